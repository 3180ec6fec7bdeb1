package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxBytes is the largest file accepted.
const MaxBytes = 1 << 20

// maxDepth bounds nesting; a Config is four levels deep.
const maxDepth = 16

// Parse reads one document. An empty one is the zero Config. Errors are *Error.
func Parse(data []byte) (Config, error) {
	var c Config
	switch {
	case len(data) > MaxBytes:
		return c, &Error{Message: fmt.Sprintf("larger than %d bytes", MaxBytes)}
	case !utf8.Valid(data):
		return c, &Error{Message: "not valid UTF-8"}
	}
	root, err := syntax(data)
	if err != nil {
		return c, err
	}
	d := decoder{at: map[string]Position{}}
	if root != nil {
		if err := d.decode(root, reflect.ValueOf(&c).Elem(), "", 0); err != nil {
			return Config{}, err
		}
	}
	if err := c.validate(func(pointer string) Position { return d.at[pointer] }); err != nil {
		return Config{}, err
	}
	return c, nil
}

// syntax returns the document's root, nil for an empty document. A file that
// makes the YAML library panic is refused.
func syntax(data []byte) (root *yaml.Node, err error) {
	defer func() {
		if recover() != nil {
			root, err = nil, &Error{Message: "not YAML that can be read"}
		}
	}()
	// Decoding into nodes resolves no alias, so nothing expands here.
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, syntaxError(err)
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		return nil, &Error{Position: place(&second), Message: "more than one document"}
	case !errors.Is(err, io.EOF):
		return nil, syntaxError(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, &Error{Message: "not YAML that can be read"}
	}
	root = doc.Content[0]
	if root.Kind == yaml.ScalarNode && !quoted(root) && root.Anchor == "" && root.Style&yaml.TaggedStyle == 0 && root.ShortTag() == "!!null" {
		return nil, nil
	}
	return root, nil
}

// syntaxText is a message of the library that cannot quote the document.
var syntaxText = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?([a-zA-Z ,'\[\]{}-]+)$`)

func syntaxError(err error) *Error {
	m := syntaxText.FindStringSubmatch(err.Error())
	if m == nil || strings.Contains(m[2], "anchor") {
		return &Error{Message: "not valid YAML, or anchors and aliases, which are not supported"}
	}
	line, _ := strconv.Atoi(m[1])
	return &Error{Position: Position{Line: line}, Message: "not valid YAML: " + m[2]}
}

func place(n *yaml.Node) Position { return Position{n.Line, n.Column} }

// quoted reports a scalar that is text whatever it looks like.
func quoted(n *yaml.Node) bool {
	return n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
}

// decoder fills Go values from syntax nodes. The YAML library's own decoder
// converts between scalars and would take "123" for a name or null for an empty
// list; a security setting must be exactly what was meant.
type decoder struct {
	at map[string]Position
}

var durationType = reflect.TypeFor[time.Duration]()

func (d *decoder) decode(n *yaml.Node, v reflect.Value, path string, depth int) error {
	pos := place(n)
	fail := func(format string, args ...any) error {
		return &Error{Position: pos, Path: path, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case depth > maxDepth:
		return fail("nested too deeply")
	case n.Kind == yaml.AliasNode, n.Anchor != "":
		return fail("anchors and aliases are not supported: write the setting out")
	case n.Style&yaml.TaggedStyle != 0:
		return fail("tags are not supported")
	case n.Kind == yaml.ScalarNode && !quoted(n) && n.ShortTag() == "!!null":
		return fail("has no value: remove the key, or write %s", example(v))
	}
	d.at[path] = pos
	switch {
	case v.Type() == durationType:
		s, ok := text(n)
		if !ok {
			return fail("must be a duration with its unit, such as 30s or 5m")
		}
		dur, err := time.ParseDuration(s)
		if err != nil {
			return fail("must be a duration with its unit, such as 30s or 5m")
		}
		v.SetInt(int64(dur))
		return nil
	case v.Kind() == reflect.Pointer: // a setting that can be left out
		v.Set(reflect.New(v.Type().Elem()))
		return d.decode(n, v.Elem(), path, depth)
	case v.Kind() == reflect.Struct:
		return d.object(n, v, path, depth)
	case v.Kind() == reflect.Map:
		return d.table(n, v, path, depth)
	case v.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return fail("must be a list, such as [A, B]")
		}
		out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, item := range n.Content {
			if err := d.decode(item, out.Index(i), fmt.Sprintf("%s/%d", path, i), depth+1); err != nil {
				return err
			}
		}
		v.Set(out)
		return nil
	case v.Kind() == reflect.String:
		s, ok := text(n)
		if !ok {
			return fail("must be text: put it in quotes")
		}
		v.SetString(s)
		return nil
	case v.Kind() == reflect.Bool:
		if n.Kind != yaml.ScalarNode || quoted(n) || (n.Value != "true" && n.Value != "false") {
			return fail("must be true or false, without quotes")
		}
		v.SetBool(n.Value == "true")
		return nil
	case v.CanInt():
		i, ok := integer(n)
		if !ok || v.OverflowInt(i) {
			return fail("must be a whole number")
		}
		v.SetInt(i)
		return nil
	}
	return fail("cannot be set") // unreachable: TestEveryFieldCanBeSet
}

// text returns a string scalar's content. Numbers, booleans and the like are not
// text unless quoted.
func text(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode || (!quoted(n) && n.ShortTag() != "!!str") {
		return "", false
	}
	return n.Value, true
}

// integer reads plain decimal only: YAML's other notations mean different numbers
// to different readers.
func integer(n *yaml.Node) (int64, bool) {
	if n.Kind != yaml.ScalarNode || quoted(n) || !decimal.MatchString(n.Value) {
		return 0, false
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	return i, err == nil
}

var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// key returns a mapping key's text, or false for anything but a plain or quoted
// string.
func key(n *yaml.Node) (string, bool) {
	if n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		return "", false
	}
	return text(n)
}

func (d *decoder) object(n *yaml.Node, v reflect.Value, path string, depth int) error {
	if n.Kind != yaml.MappingNode {
		return &Error{Position: place(n), Path: path, Message: "must be a mapping of " + strings.Join(keys(v.Type()), ", ")}
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		name, ok := key(k)
		if !ok {
			return &Error{Position: place(k), Path: path, Message: "keys must be plain text; merge keys are not supported"}
		}
		field, known := fieldByKey(v, name)
		if !known {
			return &Error{Position: place(k), Path: path, Message: unknown(name, path, v.Type())}
		}
		if seen[name] {
			return &Error{Position: place(k), Path: path + "/" + name, Message: "is there twice"}
		}
		seen[name] = true
		if err := d.decode(value, field, path+"/"+name, depth+1); err != nil {
			return err
		}
		d.at[path+"/"+name] = place(k)
	}
	return nil
}

func (d *decoder) table(n *yaml.Node, v reflect.Value, path string, depth int) error {
	if n.Kind != yaml.MappingNode {
		return &Error{Position: place(n), Path: path, Message: "must be a mapping, such as " + example(v)}
	}
	out := reflect.MakeMap(v.Type())
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		name, ok := key(k)
		if !ok {
			return &Error{Position: place(k), Path: path, Message: "keys must be text: put numbers, booleans and null in quotes"}
		}
		at := path + "/" + escape(name)
		if out.MapIndex(reflect.ValueOf(name)).IsValid() {
			return &Error{Position: place(k), Path: at, Message: "is there twice"}
		}
		item := reflect.New(v.Type().Elem()).Elem()
		if err := d.decode(value, item, at, depth+1); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(name), item)
	}
	v.Set(out)
	return nil
}

// escape makes a token of a JSON pointer. A key that does not look like a name
// may be a pasted value and is not repeated.
func escape(name string) string {
	if !plausible(name) {
		return "<unusual name>"
	}
	return name
}

func plausible(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for i, r := range name {
		letter := r == '_' || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z')
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return true
}

func fieldByKey(v reflect.Value, name string) (reflect.Value, bool) {
	t := v.Type()
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("json") == name {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func keys(t reflect.Type) []string {
	out := make([]string, 0, t.NumField())
	for i := range t.NumField() {
		out = append(out, t.Field(i).Tag.Get("json"))
	}
	return out
}

func example(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		return example(reflect.Zero(v.Type().Elem()))
	case reflect.Slice:
		return "[]"
	case reflect.Map, reflect.Struct:
		return "{}"
	case reflect.Bool:
		return "false"
	case reflect.String:
		return `""`
	}
	return "0"
}

// unknown says what a key might have meant: a near spelling here, or the same key
// elsewhere.
func unknown(name, path string, t reflect.Type) string {
	here := keys(t)
	shown := "a key"
	if plausible(name) {
		shown = fmt.Sprintf("%q", name)
	}
	msg := "unknown key " + shown
	if best := nearest(name, here); best != "" {
		return msg + fmt.Sprintf("; did you mean %q?", best)
	}
	if where := elsewhere(name, reflect.TypeFor[Config](), ""); where != "" && where != path {
		return msg + fmt.Sprintf("; it belongs under %s", where)
	}
	return msg + "; known: " + strings.Join(here, ", ")
}

func elsewhere(name string, t reflect.Type, path string) string {
	if t.Kind() != reflect.Struct {
		return ""
	}
	if path != "" && slices.Contains(keys(t), name) {
		return path
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if w := elsewhere(name, f.Type, path+"/"+f.Tag.Get("json")); w != "" {
			return w
		}
	}
	return ""
}

func nearest(name string, known []string) string {
	best, bestDistance := "", 4
	for _, k := range known {
		limit := max(1, len(k)/3)
		d := distance(strings.ToLower(name), strings.ToLower(k))
		if d <= limit && d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance, for names of at most 64 bytes.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

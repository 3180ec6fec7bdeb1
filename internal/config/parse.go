package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxBytes is the largest file accepted.
const MaxBytes = 1 << 20

// maxDepth bounds nesting; a Config is four levels deep.
const maxDepth = 16

// Parse reads one document. An empty one is the zero Config. Errors are *Error.
func Parse(data []byte) (Config, error) {
	var c Config
	if len(data) > MaxBytes {
		return c, &Error{Message: fmt.Sprintf("larger than %d bytes", MaxBytes)}
	}
	// Duplicates are refused below: the parser's own message repeats the key.
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return c, syntaxError(err)
	}
	d := decoder{at: map[string]Position{}}
	switch len(file.Docs) {
	case 0:
		return c, nil
	case 1:
	default:
		return c, &Error{Position: place(file.Docs[1]), Message: "more than one document"}
	}
	if body := file.Docs[0].Body; body != nil && body.Type() != ast.CommentType {
		if _, empty := body.(*ast.NullNode); !empty {
			if err := d.decode(body, reflect.ValueOf(&c).Elem(), "", 0); err != nil {
				return Config{}, err
			}
		}
	}
	if err := c.validate(func(pointer string) Position { return d.at[pointer] }); err != nil {
		return Config{}, err
	}
	return c, nil
}

func syntaxError(err error) *Error {
	out := &Error{Message: "not valid YAML"}
	var ye yaml.Error
	if errors.As(err, &ye) {
		out.Message = "not valid YAML: " + firstLine(ye.GetMessage())
		if tk := ye.GetToken(); tk != nil && tk.Position != nil {
			out.Position = Position{tk.Position.Line, tk.Position.Column}
		}
	}
	return out
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func place(n ast.Node) Position {
	if n == nil {
		return Position{}
	}
	var tk *token.Token
	switch n := n.(type) {
	case *ast.MappingValueNode:
		tk = n.Key.GetToken()
	case *ast.MappingNode:
		if len(n.Values) > 0 {
			return place(n.Values[0])
		}
		tk = n.GetToken()
	case *ast.DocumentNode:
		if n.Body != nil {
			return place(n.Body)
		}
		tk = n.Start
	default:
		tk = n.GetToken()
	}
	if tk == nil || tk.Position == nil {
		return Position{}
	}
	return Position{tk.Position.Line, tk.Position.Column}
}

// decoder fills Go values from syntax nodes. The YAML library's own decoder
// converts between scalars and would take "123" for a name or null for an empty
// list; a security setting must be exactly what was meant.
type decoder struct {
	at map[string]Position
}

var durationType = reflect.TypeFor[time.Duration]()

func (d *decoder) decode(n ast.Node, v reflect.Value, path string, depth int) error {
	pos := place(n)
	fail := func(format string, args ...any) error {
		return &Error{Position: pos, Path: path, Message: fmt.Sprintf(format, args...)}
	}
	if depth > maxDepth {
		return fail("nested too deeply")
	}
	switch n := n.(type) {
	case *ast.AnchorNode, *ast.AliasNode:
		return fail("anchors and aliases are not supported: write the setting out")
	case *ast.TagNode:
		return fail("tags are not supported")
	case *ast.NullNode:
		return fail("has no value: remove the key, or write %s", example(v))
	case *ast.CommentGroupNode:
		return fail("has no value")
	default:
		_ = n
	}
	d.at[path] = pos
	switch {
	case v.Type() == durationType:
		s, ok := text(n)
		if !ok {
			return fail("must be a duration in quotes or plain, such as 30s or 5m")
		}
		dur, err := time.ParseDuration(s)
		if err != nil {
			return fail("must be a duration such as 30s or 5m")
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
		seq, ok := n.(*ast.SequenceNode)
		if !ok {
			return fail("must be a list, such as %s", example(v))
		}
		out := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
		for i, item := range seq.Values {
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
		b, ok := n.(*ast.BoolNode)
		if !ok {
			return fail("must be true or false, without quotes")
		}
		v.SetBool(b.Value)
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
func text(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

func integer(n ast.Node) (int64, bool) {
	in, ok := n.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	switch x := in.Value.(type) {
	case int64:
		return x, true
	case uint64:
		if x <= math.MaxInt64 {
			return int64(x), true
		}
	}
	return 0, false
}

// entries returns a mapping's entries; one without braces and with a single key
// is a node of its own in the syntax tree.
func entries(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// key returns a mapping key's text, or false for anything but a plain or quoted
// string.
func key(n ast.MapKeyNode) (string, bool) {
	s, ok := n.(*ast.StringNode)
	if !ok || n.IsMergeKey() {
		return "", false
	}
	return s.Value, true
}

func (d *decoder) object(n ast.Node, v reflect.Value, path string, depth int) error {
	list, ok := entries(n)
	if !ok {
		return &Error{Position: place(n), Path: path, Message: "must be a mapping of " + strings.Join(keys(v.Type()), ", ")}
	}
	seen := map[string]bool{}
	for _, e := range list {
		name, ok := key(e.Key)
		if !ok {
			return &Error{Position: place(e), Path: path, Message: "keys must be plain text; merge keys are not supported"}
		}
		field, known := fieldByKey(v, name)
		if !known {
			return &Error{Position: place(e), Path: path, Message: unknown(name, path, v.Type())}
		}
		if seen[name] {
			return &Error{Position: place(e), Path: path + "/" + name, Message: "is there twice"}
		}
		seen[name] = true
		if err := d.decode(e.Value, field, path+"/"+name, depth+1); err != nil {
			return located(err, place(e))
		}
		d.at[path+"/"+name] = place(e)
	}
	return nil
}

// located gives an error without a position that of its key.
func located(err error, at Position) error {
	var e *Error
	if errors.As(err, &e) && e.Position.Line == 0 {
		e.Position = at
	}
	return err
}

func (d *decoder) table(n ast.Node, v reflect.Value, path string, depth int) error {
	list, ok := entries(n)
	if !ok {
		return &Error{Position: place(n), Path: path, Message: "must be a mapping, such as " + example(v)}
	}
	out := reflect.MakeMap(v.Type())
	for _, e := range list {
		name, ok := key(e.Key)
		if !ok {
			return &Error{Position: place(e), Path: path, Message: "keys must be text: put numbers, booleans and null in quotes"}
		}
		at := path + "/" + escape(name)
		if out.MapIndex(reflect.ValueOf(name)).IsValid() {
			return &Error{Position: place(e), Path: at, Message: "is there twice"}
		}
		item := reflect.New(v.Type().Elem()).Elem()
		if err := d.decode(e.Value, item, at, depth+1); err != nil {
			return located(err, place(e))
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

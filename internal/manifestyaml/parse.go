// Package manifestyaml reads manifests, and the few other documents that have
// the same strict decoders, from YAML.
//
// YAML is turned into JSON and read by the JSON decoder, so there is one set of
// rules. What YAML has beyond JSON's data model and what makes it guess is
// refused: anchors, aliases, merge keys, tags, several documents, keys that are
// not strings, numbers in other notations. A reader need not know YAML's rules
// to know what a manifest means, and no document grows while it is read.
package manifestyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/sbxhost/sbxhost/internal/strictjson"
	"github.com/sbxhost/sbxhost/manifest"
)

// MaxYAML is the largest document read, in bytes.
const MaxYAML = manifest.MaxJSON

// Error is a fault in a YAML document. It never holds the content of a value.
type Error struct {
	Line, Column int    // from 1; 0 when not known, as the column of broken syntax
	Pointer      string // JSON pointer; "" is the whole document
	Message      string // lower case, with the remedy
}

// Error returns "line:column: pointer: message".
func (e *Error) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:", e.Line)
		if e.Column > 0 {
			fmt.Fprintf(&b, "%d:", e.Column)
		}
		b.WriteByte(' ')
	}
	if e.Pointer != "" {
		b.WriteString(e.Pointer + ": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Parse reads a manifest from YAML with the rules of manifest.Parse. Errors are
// *Error.
func Parse(data []byte) (manifest.Manifest, error) {
	c, err := convert(data, true)
	if err != nil {
		return manifest.Manifest{}, err
	}
	m, err := manifest.Parse(c.out)
	if err == nil {
		return m, nil
	}
	var me *manifest.Error
	if !errors.As(err, &me) {
		return manifest.Manifest{}, &Error{Message: "not a manifest"}
	}
	line, column := c.locate(me.Pointer)
	return manifest.Manifest{}, &Error{Line: line, Column: column, Pointer: me.Pointer, Message: me.Message}
}

// ToJSON turns a YAML document into JSON, for a strict JSON decoder to read.
// Errors are *Error. A duplicate key is one.
func ToJSON(data []byte) (json.RawMessage, error) {
	c, err := convert(data, false)
	if err != nil {
		return nil, err
	}
	return c.out, nil
}

// converter writes a syntax tree as JSON.
type converter struct {
	manifest bool // check environment keys here, where the position is known
	out      []byte
	path     []string
	root     *yaml.Node
}

// convert does not let the YAML library's panics out: a document that breaks it
// is refused.
func convert(data []byte, isManifest bool) (c *converter, err error) {
	if len(data) > MaxYAML {
		return nil, &Error{Message: "larger than the limit of 1 MiB of YAML"}
	}
	if !utf8.Valid(data) {
		return nil, &Error{Message: "not valid UTF-8"}
	}
	defer func() {
		if recover() != nil {
			c, err = nil, &Error{Message: "not YAML that can be read"}
		}
	}()
	// Decoding into nodes resolves no alias, so nothing expands here.
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, &Error{Message: "the document is empty"}
	case err != nil:
		return nil, syntaxError(err)
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		return nil, &Error{Line: second.Line, Column: second.Column, Message: "a second document; give one only"}
	case !errors.Is(err, io.EOF):
		return nil, syntaxError(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, &Error{Message: "the document is empty"}
	}
	c = &converter{manifest: isManifest, root: doc.Content[0]}
	if err := c.value(doc.Content[0], 0); err != nil {
		return nil, err
	}
	return c, nil
}

var syntaxText = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?([a-zA-Z ,'\[\]{}-]+)$`)

// syntaxError keeps the line and the library's message, unless that may quote
// the document.
func syntaxError(err error) *Error {
	m := syntaxText.FindStringSubmatch(err.Error())
	if m == nil || strings.Contains(m[2], "anchor") {
		return &Error{Message: "not valid YAML, or anchors and aliases, which are not supported"}
	}
	line, _ := strconv.Atoi(m[1])
	return &Error{Line: line, Message: "not valid YAML: " + m[2]}
}

func (c *converter) fail(n *yaml.Node, message string) *Error {
	return &Error{Line: n.Line, Column: n.Column, Pointer: strictjson.Pointer(c.path...), Message: message}
}

// locate returns where the value at pointer is written (of a member its key), or
// what encloses it when the pointer does not lead there; 0, 0 for the whole
// document.
func (c *converter) locate(pointer string) (line, column int) {
	n := c.root
	for _, token := range strictjson.Tokens(pointer) {
		var at, next *yaml.Node
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == token {
					at, next = n.Content[i], n.Content[i+1]
				}
			}
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(n.Content) {
				at, next = n.Content[i], n.Content[i]
			}
		}
		if at == nil {
			break
		}
		line, column, n = at.Line, at.Column, next
	}
	return line, column
}

// value appends n as JSON.
func (c *converter) value(n *yaml.Node, depth int) error {
	switch {
	case depth > strictjson.MaxDepth:
		return c.fail(n, fmt.Sprintf("nested deeper than %d levels", strictjson.MaxDepth))
	case n.Kind == yaml.AliasNode:
		return c.fail(n, `aliases are not supported; write the value out, or quote it if it begins with "*"`)
	case n.Anchor != "":
		return c.fail(n, `anchors are not supported; write the value out, or quote it if it begins with "&"`)
	case n.Style&yaml.TaggedStyle != 0:
		return c.fail(n, `tags are not supported; quote the value if it begins with "!"`)
	}
	switch n.Kind {
	case yaml.ScalarNode:
		return c.scalar(n)
	case yaml.MappingNode:
		return c.mapping(n, depth)
	case yaml.SequenceNode:
		c.out = append(c.out, '[')
		for i, item := range n.Content {
			if i > 0 {
				c.out = append(c.out, ',')
			}
			c.path = append(c.path, strconv.Itoa(i))
			if err := c.value(item, depth+1); err != nil {
				return err
			}
			c.path = c.path[:len(c.path)-1]
		}
		c.out = append(c.out, ']')
		return nil
	}
	return c.fail(n, "this part of YAML is not supported")
}

// quoted reports a scalar that is text whatever it looks like.
func quoted(n *yaml.Node) bool {
	return n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
}

func (c *converter) scalar(n *yaml.Node) error {
	if quoted(n) {
		c.out = strictjson.AppendString(c.out, n.Value)
		return nil
	}
	switch n.ShortTag() {
	case "!!null":
		c.out = append(c.out, "null"...)
	case "!!bool":
		c.out = append(c.out, strings.ToLower(n.Value)...)
	case "!!int", "!!float":
		// YAML has more numbers than JSON: 0x1F, 0o17, 1_000, +1, .inf, and
		// 0755, which is 755 to some readers and 493 to others.
		if !json.Valid([]byte(n.Value)) {
			return c.fail(n, "a number must be plain decimal; quote the value if it is text")
		}
		c.out = append(c.out, n.Value...)
	case "!!merge":
		return c.fail(n, `"<<" is not supported; quote the value if it is text`)
	default: // text, and dates, which are text to us
		c.out = strictjson.AppendString(c.out, n.Value)
	}
	return nil
}

func (c *converter) mapping(n *yaml.Node, depth int) error {
	c.out = append(c.out, '{')
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		key := n.Content[i]
		if err := c.key(key); err != nil {
			return err
		}
		if seen[key.Value] {
			return c.fail(key, "a key is given twice")
		}
		seen[key.Value] = true
		c.path = append(c.path, key.Value)
		c.out = append(strictjson.AppendString(c.out, key.Value), ':')
		if err := c.value(n.Content[i+1], depth+1); err != nil {
			return err
		}
		c.path = c.path[:len(c.path)-1]
	}
	c.out = append(c.out, '}')
	return nil
}

// key refuses what is not plain text. The error has the pointer of the mapping:
// a key that is not what it should be may be a value.
func (c *converter) key(k *yaml.Node) error {
	switch {
	case k.Anchor != "" || k.Kind == yaml.AliasNode:
		return c.fail(k, "anchors and aliases are not supported; write the key out")
	case k.Style&yaml.TaggedStyle != 0:
		return c.fail(k, "tags are not supported")
	case k.Kind != yaml.ScalarNode:
		return c.fail(k, "a key must be a string")
	case quoted(k):
	case k.ShortTag() == "!!merge":
		return c.fail(k, "merge keys are not supported; write the entries out")
	case k.ShortTag() != "!!str" && k.ShortTag() != "!!timestamp":
		return c.fail(k, "a key must be a string; quote it")
	}
	if c.manifest && len(c.path) == 1 && c.path[0] == "environment" {
		if err := manifest.ValidEnvKey(k.Value); err != nil {
			return c.fail(k, err.Error())
		}
	}
	return nil
}

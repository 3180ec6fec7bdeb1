// Package strictjson reads JSON documents that have to be exact: every error
// carries a JSON pointer, and whatever encoding/json would silently repair or
// merge (duplicate keys, invalid UTF-8, lone surrogates, trailing data, deep
// nesting, keys in another case) is an error.
//
// It is a pull decoder: the caller asks for the kind of value it expects.
// Errors name places and kinds, never the content of a string.
package strictjson

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is the deepest nesting of objects and arrays that is read.
const MaxDepth = 64

// Kind is the kind of a JSON value.
type Kind string

// The kinds of JSON values, as errors name them.
const (
	Null    Kind = "null"
	Bool    Kind = "a boolean"
	Number  Kind = "a number"
	String  Kind = "a string"
	Array   Kind = "a list"
	Object  Kind = "an object"
	invalid Kind = ""
)

// Error is a fault in a document.
type Error struct {
	Pointer string // RFC 6901; "" is the whole document
	Message string // lower case; never holds the content of a string
}

// Error returns "pointer: message".
func (e *Error) Error() string {
	if e.Pointer == "" {
		return e.Message
	}
	return e.Pointer + ": " + e.Message
}

// Decoder reads one document. It is not safe for concurrent use.
type Decoder struct {
	// OnKey, when set, is asked about every object key, skipped ones included,
	// before its value is read. Its error is reported at the key's pointer.
	OnKey func(key string) error

	data  []byte
	off   int
	depth int
	path  []string
	err   error // found before reading started; returned by every method
}

// New returns a Decoder that reads data, which must not change meanwhile.
func New(data []byte) *Decoder {
	d := &Decoder{data: data}
	if !utf8.Valid(data) {
		d.off = firstInvalid(data)
		d.err = d.syntax("invalid UTF-8")
	}
	return d
}

func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}

// Pointer returns the JSON pointer of the value being read.
func (d *Decoder) Pointer() string { return Pointer(d.path...) }

// Pointer builds a JSON pointer from unescaped tokens.
func Pointer(tokens ...string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte('/')
		b.WriteString(pointerEscaper.Replace(t))
	}
	return b.String()
}

// Tokens splits a JSON pointer into unescaped tokens.
func Tokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	out := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, t := range out {
		out[i] = pointerUnescaper.Replace(t)
	}
	return out
}

var (
	pointerEscaper   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

// Errorf returns an *Error at the value being read. The arguments must not
// hold content of the document that may be a secret.
func (d *Decoder) Errorf(format string, args ...any) error {
	return &Error{Pointer: d.Pointer(), Message: fmt.Sprintf(format, args...)}
}

// syntax returns an error at the current offset, with line and column (in
// bytes, from 1), because a pointer alone does not find a missing comma.
func (d *Decoder) syntax(what string) error {
	off := min(d.off, len(d.data))
	line := 1 + bytes.Count(d.data[:off], []byte("\n"))
	col := off - bytes.LastIndexByte(d.data[:off], '\n')
	return d.Errorf("%s at line %d column %d", what, line, col)
}

func (d *Decoder) space() {
	for d.off < len(d.data) {
		switch d.data[d.off] {
		case ' ', '\t', '\r', '\n':
			d.off++
		default:
			return
		}
	}
}

// Kind says what the next value is, without reading it.
func (d *Decoder) Kind() (Kind, error) {
	if d.err != nil {
		return invalid, d.err
	}
	d.space()
	if d.off >= len(d.data) {
		return invalid, d.syntax("the document ends too early")
	}
	switch c := d.data[d.off]; {
	case c == '{':
		return Object, nil
	case c == '[':
		return Array, nil
	case c == '"':
		return String, nil
	case c == '-' || c >= '0' && c <= '9':
		return Number, nil
	case c == 't' || c == 'f':
		return Bool, nil
	case c == 'n':
		return Null, nil
	}
	return invalid, d.syntax("not JSON")
}

func (d *Decoder) want(k Kind) error {
	got, err := d.Kind()
	if err != nil {
		return err
	}
	if got != k {
		return d.Errorf("must be %s, not %s", k, got)
	}
	return nil
}

// Object reads an object. For each member field is called with its key, in
// document order, and must read the value. A key that occurs twice is an error.
func (d *Decoder) Object(field func(key string) error) error {
	if err := d.want(Object); err != nil {
		return err
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	seen := map[string]struct{}{}
	for first := true; ; first = false {
		if done, err := d.next('}', first); done || err != nil {
			return err
		}
		if k, err := d.Kind(); err != nil {
			return err
		} else if k != String {
			return d.syntax("an object key must be a string; found something else")
		}
		key, err := d.text()
		if err != nil {
			return err
		}
		d.path = append(d.path, key)
		if _, dup := seen[key]; dup {
			return d.Errorf("duplicate key")
		}
		seen[key] = struct{}{}
		if d.OnKey != nil {
			if err := d.OnKey(key); err != nil {
				return d.Errorf("%s", err.Error())
			}
		}
		d.space()
		if d.off >= len(d.data) || d.data[d.off] != ':' {
			return d.syntax("missing colon")
		}
		d.off++
		if err := field(key); err != nil {
			return err
		}
		d.path = d.path[:len(d.path)-1]
	}
}

// Array reads a list. For each element item is called with its index and must
// read it.
func (d *Decoder) Array(item func(i int) error) error {
	if err := d.want(Array); err != nil {
		return err
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	for i := 0; ; i++ {
		if done, err := d.next(']', i == 0); done || err != nil {
			return err
		}
		d.path = append(d.path, strconv.Itoa(i))
		if err := item(i); err != nil {
			return err
		}
		d.path = d.path[:len(d.path)-1]
	}
}

func (d *Decoder) enter() error {
	if d.depth++; d.depth > MaxDepth {
		return d.Errorf("nested deeper than %d levels", MaxDepth)
	}
	d.off++
	return nil
}

func (d *Decoder) leave() { d.depth-- }

// next consumes the comma before a member or element, or the closing bracket.
func (d *Decoder) next(closing byte, first bool) (done bool, err error) {
	d.space()
	if d.off >= len(d.data) {
		return false, d.syntax("the document ends too early")
	}
	c := d.data[d.off]
	if c == closing {
		d.off++
		return true, nil
	}
	if first {
		return false, nil
	}
	if c != ',' {
		return false, d.syntax("missing comma")
	}
	d.off++
	d.space()
	if d.off < len(d.data) && d.data[d.off] == closing {
		return false, d.syntax("a comma before the closing bracket")
	}
	return false, nil
}

// Text reads a string.
func (d *Decoder) Text() (string, error) {
	if err := d.want(String); err != nil {
		return "", err
	}
	return d.text()
}

func (d *Decoder) text() (string, error) {
	d.off++ // the opening quote
	start := d.off
	var b []byte // nil until the first escape
	for {
		if d.off >= len(d.data) {
			return "", d.syntax("a string without its closing quote")
		}
		switch c := d.data[d.off]; {
		case c == '"':
			s := string(d.data[start:d.off])
			if b != nil {
				s = string(append(b, d.data[start:d.off]...))
			}
			d.off++
			return s, nil
		case c < ' ':
			return "", d.syntax("a control character in a string")
		case c == '\\':
			b = append(b, d.data[start:d.off]...)
			if b == nil {
				b = []byte{}
			}
			var err error
			if b, err = d.escape(b); err != nil {
				return "", err
			}
			start = d.off
		default:
			d.off++
		}
	}
}

// escape reads one escape sequence, d.off being at the backslash.
func (d *Decoder) escape(b []byte) ([]byte, error) {
	if d.off+1 >= len(d.data) {
		return nil, d.syntax("a string without its closing quote")
	}
	c := d.data[d.off+1]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r, ok := d.hex4(d.off + 2)
		if !ok {
			return nil, d.syntax("an invalid escape in a string")
		}
		n := 6
		if utf16.IsSurrogate(r) {
			low, ok := rune(0), false
			if d.off+7 < len(d.data) && d.data[d.off+6] == '\\' && d.data[d.off+7] == 'u' {
				low, ok = d.hex4(d.off + 8)
			}
			r = utf16.DecodeRune(r, low)
			if !ok || r == utf8.RuneError {
				return nil, d.syntax("half of a surrogate pair in a string")
			}
			n = 12
		}
		d.off += n
		return utf8.AppendRune(b, r), nil
	default:
		return nil, d.syntax("an invalid escape in a string")
	}
	d.off += 2
	return append(b, c), nil
}

func (d *Decoder) hex4(at int) (rune, bool) {
	if at+4 > len(d.data) {
		return 0, false
	}
	var r rune
	for _, c := range d.data[at : at+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// Number reads a number and returns it as it is written.
func (d *Decoder) Number() (string, error) {
	if err := d.want(Number); err != nil {
		return "", err
	}
	start := d.off
	peek := func() byte {
		if d.off < len(d.data) {
			return d.data[d.off]
		}
		return 0
	}
	digits := func() bool {
		n := d.off
		for c := peek(); c >= '0' && c <= '9'; c = peek() {
			d.off++
		}
		return d.off > n
	}
	if peek() == '-' {
		d.off++
	}
	if peek() == '0' {
		d.off++
	} else if !digits() {
		return "", d.syntax("an invalid number")
	}
	if peek() == '.' {
		d.off++
		if !digits() {
			return "", d.syntax("an invalid number")
		}
	}
	if c := peek(); c == 'e' || c == 'E' {
		d.off++
		if c := peek(); c == '+' || c == '-' {
			d.off++
		}
		if !digits() {
			return "", d.syntax("an invalid number")
		}
	}
	return string(d.data[start:d.off]), nil
}

// Int reads a number that is written as a plain integer.
func (d *Decoder) Int() (int64, error) {
	s, err := d.Number()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, d.Errorf("must be a whole number in range")
	}
	return n, nil
}

// Bool reads a boolean.
func (d *Decoder) Bool() (bool, error) {
	if err := d.want(Bool); err != nil {
		return false, err
	}
	if d.literal("true") {
		return true, nil
	}
	if d.literal("false") {
		return false, nil
	}
	return false, d.syntax("not JSON")
}

// literal consumes word when it is next. What follows it is judged by whoever
// reads on: a comma, a bracket or the end.
func (d *Decoder) literal(word string) bool {
	if bytes.HasPrefix(d.data[d.off:], []byte(word)) {
		d.off += len(word)
		return true
	}
	return false
}

// Skip reads any value and drops it, checking it all the same.
func (d *Decoder) Skip() error {
	k, err := d.Kind()
	if err != nil {
		return err
	}
	switch k {
	case Object:
		return d.Object(func(string) error { return d.Skip() })
	case Array:
		return d.Array(func(int) error { return d.Skip() })
	case String:
		_, err = d.Text()
	case Number:
		_, err = d.Number()
	case Bool:
		_, err = d.Bool()
	case Null:
		if !d.literal("null") {
			err = d.syntax("not JSON")
		}
	}
	return err
}

// End reports anything but white space after the document.
func (d *Decoder) End() error {
	if d.err != nil {
		return d.err
	}
	d.space()
	if d.off < len(d.data) {
		return d.syntax("data after the end of the document")
	}
	return nil
}

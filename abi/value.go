package abi

import "strconv"

// Value is a parsed JSON value of any shape, or nothing. Accessors on a missing
// value or on one of another type return the zero value: a vendor's reply is
// looked at, not trusted, and the caller checks what it needs with Exists.
type Value struct{ n *node }

// Kind is the type of a Value.
type Kind byte

// Kinds of values.
const (
	KindNone   Kind = 0 // no value at all
	KindNull   Kind = '0'
	KindObject Kind = 'o'
	KindArray  Kind = 'a'
	KindString Kind = 's'
	KindNumber Kind = 'n'
	KindBool   Kind = 'b'
)

type node struct {
	kind   Kind
	text   string
	truth  bool
	keys   []string
	values []Value
}

// Parse reads one JSON document. Duplicate member names are refused: two readers
// could disagree about which one counts. The error is a *SyntaxError.
func Parse(doc []byte) (Value, error) {
	d := newDecoder(doc, false)
	v, err := d.value()
	if err != nil {
		return Value{}, err
	}
	return v, d.end()
}

// node takes one from a few that are allocated at once.
func (d *decoder) node(kind Kind) *node {
	if len(d.nodes) == 0 {
		d.nodes = make([]node, 16)
	}
	n := &d.nodes[0]
	d.nodes = d.nodes[1:]
	n.kind = kind
	return n
}

func (d *decoder) leaf(kind Kind, b []byte, err error) (Value, error) {
	if err != nil {
		return Value{}, err
	}
	n := d.node(kind)
	n.text = d.own(b)
	return Value{n}, nil
}

func (d *decoder) value() (Value, error) {
	switch c := d.peek(); c {
	case '{':
		n := d.node(KindObject)
		more, err := d.begin('{', '}')
		for ; more && err == nil; more, err = d.next('}') {
			var k []byte
			if k, err = d.key(); err != nil {
				return Value{}, err
			}
			n.keys = append(n.keys, d.own(k))
			var v Value
			if v, err = d.value(); err != nil {
				return Value{}, in(err, n.keys[len(n.keys)-1])
			}
			n.values = append(n.values, v)
		}
		if err == nil && n.repeated() {
			err = d.fail("duplicate member in an object")
		}
		return Value{n}, err
	case '[':
		n := d.node(KindArray)
		more, err := d.begin('[', ']')
		for ; more && err == nil; more, err = d.next(']') {
			var v Value
			if v, err = d.value(); err != nil {
				return Value{}, inIndex(err, len(n.values))
			}
			n.values = append(n.values, v)
		}
		return Value{n}, err
	case '"':
		b, err := d.bytes()
		return d.leaf(KindString, b, err)
	case 't', 'f':
		b, err := d.bool()
		n := d.node(KindBool)
		n.truth = b
		return Value{n}, err
	case 'n':
		if d.null() {
			return Value{d.node(KindNull)}, nil
		}
		return Value{}, d.fail("expected a value")
	default:
		b, err := d.number()
		return d.leaf(KindNumber, b, err)
	}
}

// repeated reports whether a member name occurs twice.
func (n *node) repeated() bool {
	if len(n.keys) < 16 {
		for i, k := range n.keys {
			for _, o := range n.keys[:i] {
				if k == o {
					return true
				}
			}
		}
		return false
	}
	seen := make(map[string]bool, len(n.keys))
	for _, k := range n.keys {
		if seen[k] {
			return true
		}
		seen[k] = true
	}
	return false
}

// Kind returns the value's type.
func (v Value) Kind() Kind {
	if v.n == nil {
		return KindNone
	}
	return v.n.kind
}

// Number returns a number's text as it was written.
func (v Value) Number() string {
	if v.n == nil || v.n.kind != KindNumber {
		return ""
	}
	return v.n.text
}

// Exists reports whether there is a value other than null.
func (v Value) Exists() bool { return v.n != nil && v.n.kind != KindNull }

// Get returns the member at the given path of names.
func (v Value) Get(path ...string) Value {
	for _, name := range path {
		if v.n == nil || v.n.kind != KindObject {
			return Value{}
		}
		next := Value{}
		for i, k := range v.n.keys {
			if k == name {
				next = v.n.values[i]
				break
			}
		}
		v = next
	}
	return v
}

// Items returns an array's elements; the caller must not change the slice.
func (v Value) Items() []Value {
	if v.n == nil || v.n.kind != KindArray {
		return nil
	}
	return v.n.values
}

// Keys returns an object's member names in document order; the caller must not
// change the slice.
func (v Value) Keys() []string {
	if v.n == nil || v.n.kind != KindObject {
		return nil
	}
	return v.n.keys
}

// Text returns a string.
func (v Value) Text() string {
	if v.n == nil || v.n.kind != KindString {
		return ""
	}
	return v.n.text
}

// Int returns an integer; a fraction is cut off.
func (v Value) Int() int64 {
	if v.n == nil || v.n.kind != KindNumber {
		return 0
	}
	if i, err := strconv.ParseInt(v.n.text, 10, 64); err == nil {
		return i
	}
	f, _ := strconv.ParseFloat(v.n.text, 64)
	return int64(f)
}

// Bool returns a boolean.
func (v Value) Bool() bool { return v.n != nil && v.n.kind == KindBool && v.n.truth }

// StringMap returns the text members of an object.
func (v Value) StringMap() map[string]string {
	out := map[string]string{}
	for i, k := range v.Keys() {
		if m := v.n.values[i]; m.n.kind == KindString {
			out[k] = m.n.text
		}
	}
	return out
}

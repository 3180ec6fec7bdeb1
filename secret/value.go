// Package secret holds values that must not leak by accident.
//
// A [Value] keeps its bytes inside a closure. No formatter, reflection-based
// printer, marshaller or comparison reaches a closure's captured variables, so
// the bytes stay hidden also when a Value is an unexported field of another
// struct, where the formatting methods of this package are never called.
//
// This protects against accidents, not against code that calls Reveal. A test
// of this module limits which packages may call it.
package secret

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// Placeholder is what every formatter prints for a Value.
const Placeholder = "[secret]"

// ErrMarshal is returned by every marshaller of a Value or an Env.
var ErrMarshal = errors.New("secret: a value cannot be marshalled; store a reference instead")

// Value is one secret. The zero Value is the empty secret. A Value is
// immutable and safe for concurrent use. It is deliberately not comparable with
// ==; use Equal.
type Value struct {
	// bytes is a closure rather than a slice: printers that follow pointers and
	// read unexported fields (spew, testify's diff) show its address only.
	bytes func() []byte
}

// New returns a Value holding a copy of b.
func New(b []byte) Value {
	kept := make([]byte, len(b))
	copy(kept, b)
	return Value{bytes: func() []byte { return kept }}
}

// FromString returns a Value holding the bytes of s.
func FromString(s string) Value { return New([]byte(s)) }

// Reveal returns a copy of the secret's bytes. The caller owns the copy and
// must hand it only to the destination it was approved for. Only built-in
// providers, the plugin runtime, the redactor and the test providers may call
// it; a test of this module enforces that.
func (v Value) Reveal() []byte {
	if v.bytes == nil {
		return []byte{}
	}
	b := v.bytes()
	out := make([]byte, len(b))
	copy(out, b)
	return out
}

// Len returns the number of bytes.
func (v Value) Len() int {
	if v.bytes == nil {
		return 0
	}
	return len(v.bytes())
}

// HasNUL reports whether the value contains a NUL byte, which no process
// environment can carry.
func (v Value) HasNUL() bool {
	if v.bytes == nil {
		return false
	}
	for _, c := range v.bytes() {
		if c == 0 {
			return true
		}
	}
	return false
}

// Equal reports whether both hold the same bytes, in time that depends only on
// the lengths.
func (v Value) Equal(o Value) bool {
	var a, b []byte
	if v.bytes != nil {
		a = v.bytes()
	}
	if o.bytes != nil {
		b = o.bytes()
	}
	return subtle.ConstantTimeCompare(a, b) == 1
}

// String returns Placeholder.
func (v Value) String() string { return Placeholder }

// GoString returns Placeholder.
func (v Value) GoString() string { return Placeholder }

// Format writes Placeholder for every verb and flag.
func (v Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, Placeholder) }

// LogValue returns Placeholder.
func (v Value) LogValue() slog.Value { return slog.StringValue(Placeholder) }

// MarshalJSON returns ErrMarshal.
func (v Value) MarshalJSON() ([]byte, error) { return nil, ErrMarshal }

// MarshalText returns ErrMarshal.
func (v Value) MarshalText() ([]byte, error) { return nil, ErrMarshal }

// MarshalBinary returns ErrMarshal.
func (v Value) MarshalBinary() ([]byte, error) { return nil, ErrMarshal }

// GobEncode returns ErrMarshal.
func (v Value) GobEncode() ([]byte, error) { return nil, ErrMarshal }

// MarshalYAML returns ErrMarshal.
func (v Value) MarshalYAML() (any, error) { return nil, ErrMarshal }

// UnmarshalJSON returns ErrMarshal: values never come out of documents.
func (v *Value) UnmarshalJSON([]byte) error { return ErrMarshal }

// UnmarshalText returns ErrMarshal.
func (v *Value) UnmarshalText([]byte) error { return ErrMarshal }

// GobDecode returns ErrMarshal.
func (v *Value) GobDecode([]byte) error { return ErrMarshal }

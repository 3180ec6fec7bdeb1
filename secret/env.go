package secret

import (
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// Env maps names to values, sorted by name. The zero Env is empty. An Env is
// immutable and safe for concurrent use; printing it shows names only.
type Env struct {
	names  []string
	values []Value
}

// NewEnv returns an Env with the given entries. The map is copied.
func NewEnv(entries map[string]Value) Env {
	names := slices.Sorted(maps.Keys(entries))
	e := Env{names: names, values: make([]Value, len(names))}
	for i, n := range names {
		e.values[i] = entries[n]
	}
	return e
}

// Len returns the number of entries.
func (e Env) Len() int { return len(e.names) }

// Names returns the sorted names. The caller owns the slice.
func (e Env) Names() []string { return slices.Clone(e.names) }

// Get returns the value of name.
func (e Env) Get(name string) (Value, bool) {
	i, ok := slices.BinarySearch(e.names, name)
	if !ok {
		return Value{}, false
	}
	return e.values[i], true
}

// Has reports whether name is set.
func (e Env) Has(name string) bool {
	_, ok := slices.BinarySearch(e.names, name)
	return ok
}

// All yields the entries in name order.
func (e Env) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for i, n := range e.names {
			if !yield(n, e.values[i]) {
				return
			}
		}
	}
}

// Size returns the bytes the environment takes as NAME=VALUE strings, each with
// its terminating NUL.
func (e Env) Size() int {
	n := 0
	for i, name := range e.names {
		n += len(name) + 1 + e.values[i].Len() + 1
	}
	return n
}

// Without returns an Env that lacks the given names.
func (e Env) Without(names ...string) Env {
	out := make(map[string]Value, len(e.names))
	for n, v := range e.All() {
		if !slices.Contains(names, n) {
			out[n] = v
		}
	}
	return NewEnv(out)
}

// String lists the names.
func (e Env) String() string { return "secret.Env[" + strings.Join(e.names, " ") + "]" }

// GoString lists the names.
func (e Env) GoString() string { return e.String() }

// Format lists the names for every verb and flag.
func (e Env) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, e.String()) }

// LogValue lists the names.
func (e Env) LogValue() slog.Value { return slog.StringValue(e.String()) }

// MarshalJSON returns ErrMarshal.
func (e Env) MarshalJSON() ([]byte, error) { return nil, ErrMarshal }

// MarshalText returns ErrMarshal.
func (e Env) MarshalText() ([]byte, error) { return nil, ErrMarshal }

// MarshalBinary returns ErrMarshal.
func (e Env) MarshalBinary() ([]byte, error) { return nil, ErrMarshal }

// GobEncode returns ErrMarshal.
func (e Env) GobEncode() ([]byte, error) { return nil, ErrMarshal }

// MarshalYAML returns ErrMarshal.
func (e Env) MarshalYAML() (any, error) { return nil, ErrMarshal }

// UnmarshalJSON returns ErrMarshal: values never come out of documents.
func (e *Env) UnmarshalJSON([]byte) error { return ErrMarshal }

// GobDecode returns ErrMarshal.
func (e *Env) GobDecode([]byte) error { return ErrMarshal }

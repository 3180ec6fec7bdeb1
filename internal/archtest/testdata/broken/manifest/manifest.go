// Package manifest is documented.
package manifest

func Parse() {} // want

type Entry struct{} // a trailing comment documents a type

func (Entry) Exported() {} // want

type hidden struct{}

func (hidden) Exported() {}

// Kinds.
const (
	A = iota
	B
)

const (
	C = "c" // a trailing comment documents a constant
	D = 1 + // want
		1
	E Entry2 = "an enumeration's type says what it is"
)

// Entry2 is documented.
type Entry2 string

var F, G = 1 + // want // want
	2, 2

package wasmfile

import "fmt"

// Error says that a module is not a well-formed core module of the accepted
// subset, and at which byte.
type Error struct {
	Offset  int // in the module, in bytes
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("invalid wasm module at offset %#x: %s", e.Offset, e.Message)
}

// LimitError says that a module is larger than the host accepts. Which is a
// stable name, such as "memory pages"; Limit and Got are in that thing's unit.
type LimitError struct {
	Which  string
	Limit  uint64
	Got    uint64
	Offset int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("wasm module exceeds the limit on %s: %d, at most %d (offset %#x); make the module smaller or raise the limit", e.Which, e.Got, e.Limit, e.Offset)
}

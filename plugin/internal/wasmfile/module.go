// Package wasmfile reads WebAssembly core modules strictly and refuses, in
// milliseconds and before anything is compiled, those a host should not touch:
// malformed ones, ones that use instructions outside the accepted subset, ones
// whose size or shape makes compilers run away, and ones with imports the host
// does not offer.
//
// The subset is the MVP with sign extension, saturating conversions,
// multi-value, bulk memory, mutable globals and function references. Threads,
// tail calls, exceptions, SIMD, GC, several memories, memory64, imported
// tables, memories and globals, and externref are refused.
//
// Structure, index spaces and labels are checked here. Operand types are not:
// the compiler behind this package checks them, and the rewriter between adds
// only code that leaves the operand stack as it was, so a module that does not
// type-check before rewriting does not type-check after it.
package wasmfile

import (
	"crypto/sha256"
	"encoding/hex"
)

// ValType is a WebAssembly value type.
type ValType byte

// The accepted value types.
const (
	I32     ValType = 0x7f
	I64     ValType = 0x7e
	F32     ValType = 0x7d
	F64     ValType = 0x7c
	FuncRef ValType = 0x70
)

func (t ValType) String() string {
	switch t {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F32:
		return "f32"
	case F64:
		return "f64"
	case FuncRef:
		return "funcref"
	}
	return "invalid"
}

// FuncType is a function's parameters and results.
type FuncType struct {
	Params, Results []ValType
}

// String gives the text form, such as "(i32, i64) -> (i32)".
func (t FuncType) String() string {
	return listTypes(t.Params) + " -> " + listTypes(t.Results)
}

func listTypes(ts []ValType) string {
	s := "("
	for i, t := range ts {
		if i > 0 {
			s += ", "
		}
		s += t.String()
	}
	return s + ")"
}

// Equal reports whether both have the same parameters and results.
func (t FuncType) Equal(o FuncType) bool {
	if len(t.Params) != len(o.Params) || len(t.Results) != len(o.Results) {
		return false
	}
	for i := range t.Params {
		if t.Params[i] != o.Params[i] {
			return false
		}
	}
	for i := range t.Results {
		if t.Results[i] != o.Results[i] {
			return false
		}
	}
	return true
}

// ExternKind says what an import or export is.
type ExternKind byte

// The kinds of imports and exports.
const (
	ExternFunc   ExternKind = 0
	ExternTable  ExternKind = 1
	ExternMemory ExternKind = 2
	ExternGlobal ExternKind = 3
)

// Import is one imported function; other imports are refused when parsing.
type Import struct {
	Module, Name string
	Type         uint32 // index in Module.Types
}

// Export is one export.
type Export struct {
	Name  string
	Kind  ExternKind
	Index uint32
}

// Range is a byte range of Module.Bytes.
type Range struct{ Start, End int }

// Limit is the size of a table or memory: Max is valid if HasMax.
type Limit struct {
	Min, Max uint32
	HasMax   bool
}

// Global is a defined global. Init is the range of its constant expression,
// its end opcode included.
type Global struct {
	Type    ValType
	Mutable bool
	Init    Range
}

// ElementMode says when an element segment is used.
type ElementMode byte

// The modes of element segments.
const (
	ElementActive ElementMode = iota
	ElementPassive
	ElementDeclarative
)

// Element is one element segment, of function references. Funcs holds function
// indices, or -1 for a null reference.
type Element struct {
	Mode   ElementMode
	Table  uint32
	Offset uint32 // of active ones
	Funcs  []int64
}

// Data is one data segment.
type Data struct {
	Passive bool
	Offset  uint32 // of active ones
	Bytes   []byte // aliases Module.Bytes
}

// Function is one defined function with what its body amounts to.
type Function struct {
	Type   uint32
	Body   Range // the whole body: local declarations and code
	Code   Range // the code, its final end opcode included
	Locals uint32
	// LocalDecls is the range of the local declarations, count included.
	LocalDecls Range
	Decls      uint32 // number of declaration groups

	Instructions uint32
	Blocks       uint32 // blocks, loops and ifs
	Depth        uint32 // deepest nesting
	Branches     uint32 // branch edges: br, br_if, every br_table target, else
	Calls        uint32 // call and call_indirect
	// Work estimates what a compiler that keeps a value per local and join
	// point has to do: (locals + 1) × (blocks + branch edges), plus the values
	// that branches carry, plus blocks² / 256.
	Work uint64
}

// cost is Work with a penalty that grows with it: the time a compiler takes is
// not linear in the size of one function, but is in the number of functions.
func (f *Function) cost() uint64 { return f.Work + f.Work*f.Work/(1<<13) }

// Custom is one custom section. Payload aliases Module.Bytes.
type Custom struct {
	Name    string
	Payload []byte
	Section Range // the whole section, its id included
}

// Section is one non-custom section: ID, and its payload.
type Section struct {
	ID      byte
	Whole   Range
	Payload Range
}

// Uses says which instructions with effects a snapshot cannot undo, or that
// need a rewriter's care, occur in a module.
type Uses struct {
	TableWrite bool // table.set, grow, fill, copy, init
	ElemDrop   bool
	DataDrop   bool
	MemoryInit bool
	MemoryFill bool
	MemoryCopy bool
	MemoryGrow bool
	Indirect   bool // call_indirect
	RefFunc    bool
}

// Module is a parsed module. It is immutable and safe for concurrent use; its
// slices alias the bytes given to Parse, which must not change any more.
type Module struct {
	Bytes     []byte
	Sections  []Section
	Types     []FuncType
	Imports   []Import
	Functions []Function
	Tables    []Limit
	Memory    *Limit
	Globals   []Global
	Exports   []Export
	Start     int64 // function index, or -1
	Elements  []Element
	Data      []Data
	DataCount int64 // declared, or -1
	Customs   []Custom
	Uses      Uses

	digest [sha256.Size]byte
}

// Digest returns "sha256:…" of the module's bytes.
func (m *Module) Digest() string { return "sha256:" + hex.EncodeToString(m.digest[:]) }

// Sum returns the SHA-256 of the module's bytes.
func (m *Module) Sum() [sha256.Size]byte { return m.digest }

// FuncCount is the number of functions, imported ones included.
func (m *Module) FuncCount() uint32 { return uint32(len(m.Imports) + len(m.Functions)) }

// TypeOf returns the type index of a function, which must exist.
func (m *Module) TypeOf(fn uint32) uint32 {
	if n := uint32(len(m.Imports)); fn < n {
		return m.Imports[fn].Type
	} else {
		return m.Functions[fn-n].Type
	}
}

// Export finds an export by name.
func (m *Module) Export(name string) (Export, bool) {
	for _, e := range m.Exports {
		if e.Name == name {
			return e, true
		}
	}
	return Export{}, false
}

// ExportedFunc returns the type of an exported function.
func (m *Module) ExportedFunc(name string) (FuncType, bool) {
	e, ok := m.Export(name)
	if !ok || e.Kind != ExternFunc {
		return FuncType{}, false
	}
	return m.Types[m.TypeOf(e.Index)], true
}

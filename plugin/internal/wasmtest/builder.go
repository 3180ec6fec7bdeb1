// Package wasmtest builds WebAssembly modules for tests, good and hostile ones,
// so that no test needs an assembler. It is imported by tests only.
package wasmtest

import "encoding/binary"

// Value types.
const (
	I32     byte = 0x7f
	I64     byte = 0x7e
	F32     byte = 0x7d
	F64     byte = 0x7c
	FuncRef byte = 0x70
)

// Func is one function to be defined.
type Func struct {
	Params, Results, Locals []byte
	Code                    []byte // without the final end
	Export                  string
}

// Import is one imported function.
type Import struct {
	Module, Name    string
	Params, Results []byte
}

// Global is one global; Init is its whole initial expression without end.
type Global struct {
	Type    byte
	Mutable bool
	Init    []byte
	Export  string
}

// Data is a data segment; a negative offset makes it passive.
type Data struct {
	Offset int64
	Bytes  []byte
}

// Elem is an element segment of table 0; a negative offset makes it passive.
type Elem struct {
	Offset int64
	Funcs  []uint32
}

// Module collects what Bytes encodes. Function indices count imports first.
type Module struct {
	Imports   []Import
	Funcs     []Func
	Table     []uint32 // min, or min and max
	Memory    []uint32 // min, or min and max; exported as "memory"
	Globals   []Global
	Data      []Data
	DataCount bool
	Elems     []Elem
	Start     *uint32
	Custom    map[string][]byte
	// ExtraTypes are appended to the type section, for multi-value blocks;
	// their indices follow those of TypeIndex calls made before.
	types [][2]string
}

// TypeIndex returns the index of a function type, adding it if need be.
func (m *Module) TypeIndex(params, results []byte) uint32 {
	k := [2]string{string(params), string(results)}
	for i, t := range m.types {
		if t == k {
			return uint32(i)
		}
	}
	m.types = append(m.types, k)
	return uint32(len(m.types) - 1)
}

// U appends v as unsigned LEB128.
func U(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// S appends v as signed LEB128.
func S(b []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// Cat joins instruction sequences.
func Cat(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// Op encodes an opcode with unsigned immediates.
func Op(op byte, imm ...uint64) []byte {
	b := []byte{op}
	for _, v := range imm {
		b = U(b, v)
	}
	return b
}

// I32Const encodes i32.const.
func I32Const(v int32) []byte { return S([]byte{0x41}, int64(v)) }

// I64Const encodes i64.const.
func I64Const(v int64) []byte { return S([]byte{0x42}, v) }

func name(b []byte, s string) []byte { return append(U(b, uint64(len(s))), s...) }

func section(out []byte, id byte, n int, body []byte) []byte {
	if n == 0 {
		return out
	}
	full := append(U(nil, uint64(n)), body...)
	return append(U(append(out, id), uint64(len(full))), full...)
}

func limits(b []byte, l []uint32) []byte {
	b = append(b, byte(len(l)-1))
	for _, v := range l {
		b = U(b, uint64(v))
	}
	return b
}

// Bytes encodes the module.
func (m *Module) Bytes() []byte {
	var imports, funcs, exports, code, globals, data, elems []byte
	for _, im := range m.Imports {
		imports = append(name(name(imports, im.Module), im.Name), 0)
		imports = U(imports, uint64(m.TypeIndex(im.Params, im.Results)))
	}
	nexp := 0
	for i, f := range m.Funcs {
		funcs = U(funcs, uint64(m.TypeIndex(f.Params, f.Results)))
		if f.Export != "" {
			exports = U(append(name(exports, f.Export), 0), uint64(len(m.Imports)+i))
			nexp++
		}
		var body []byte
		body = U(body, uint64(groups(f.Locals)))
		for j := 0; j < len(f.Locals); {
			k := j
			for k < len(f.Locals) && f.Locals[k] == f.Locals[j] {
				k++
			}
			body = append(U(body, uint64(k-j)), f.Locals[j])
			j = k
		}
		body = append(append(body, f.Code...), 0x0b)
		code = append(U(code, uint64(len(body))), body...)
	}
	if m.Memory != nil {
		exports = U(append(name(exports, "memory"), 2), 0)
		nexp++
	}
	for i, g := range m.Globals {
		mut := byte(0)
		if g.Mutable {
			mut = 1
		}
		globals = append(append(append(globals, g.Type, mut), g.Init...), 0x0b)
		if g.Export != "" {
			exports = U(append(name(exports, g.Export), 3), uint64(i))
			nexp++
		}
	}
	for _, d := range m.Data {
		if d.Offset < 0 {
			data = append(data, 1)
		} else {
			data = append(append(append(data, 0), I32Const(int32(d.Offset))...), 0x0b)
		}
		data = append(U(data, uint64(len(d.Bytes))), d.Bytes...)
	}
	for _, e := range m.Elems {
		if e.Offset < 0 {
			elems = append(elems, 1, 0)
		} else {
			elems = append(append(append(elems, 0), I32Const(int32(e.Offset))...), 0x0b)
		}
		elems = U(elems, uint64(len(e.Funcs)))
		for _, f := range e.Funcs {
			elems = U(elems, uint64(f))
		}
	}
	var types []byte
	for _, t := range m.types {
		types = append(types, 0x60)
		types = name(name(types, t[0]), t[1])
	}

	out := []byte("\x00asm\x01\x00\x00\x00")
	out = section(out, 1, len(m.types), types)
	out = section(out, 2, len(m.Imports), imports)
	out = section(out, 3, len(m.Funcs), funcs)
	if m.Table != nil {
		out = section(out, 4, 1, limits([]byte{FuncRef}, m.Table))
	}
	if m.Memory != nil {
		out = section(out, 5, 1, limits(nil, m.Memory))
	}
	out = section(out, 6, len(m.Globals), globals)
	out = section(out, 7, nexp, exports)
	if m.Start != nil {
		body := U(nil, uint64(*m.Start))
		out = append(U(append(out, 8), uint64(len(body))), body...)
	}
	out = section(out, 9, len(m.Elems), elems)
	if m.DataCount {
		body := U(nil, uint64(len(m.Data)))
		out = append(U(append(out, 12), uint64(len(body))), body...)
	}
	out = section(out, 10, len(m.Funcs), code)
	out = section(out, 11, len(m.Data), data)
	for k, v := range m.Custom {
		body := append(name(nil, k), v...)
		out = append(U(append(out, 0), uint64(len(body))), body...)
	}
	return out
}

func groups(locals []byte) int {
	n := 0
	for i := range locals {
		if i == 0 || locals[i] != locals[i-1] {
			n++
		}
	}
	return n
}

package wasmtest

import "bytes"

// CallTree is a module without any loop whose export "f0" makes 2^depth calls.
func CallTree(depth int) *Module {
	m := &Module{Memory: []uint32{1}}
	for i := range depth {
		f := Func{Results: []byte{I32}, Code: Cat(Op(0x10, uint64(i+1)), Op(0x10, uint64(i+1)), Op(0x6a))}
		if i == 0 {
			f.Export = "f0"
		}
		m.Funcs = append(m.Funcs, f)
	}
	m.Funcs = append(m.Funcs, Func{Results: []byte{I32}, Code: I32Const(1)})
	return m
}

// Spin is a function body that never ends.
func Spin() []byte { return Cat([]byte{0x03, 0x40}, Op(0x0c, 0), Op(0x0b)) }

// NestedBlocks is the shape that makes a compiler which tracks every local at
// every join run away: locals assigned in the innermost of nested blocks, each
// of which can be left by a branch, and all used afterwards.
func NestedBlocks(locals, blocks int) []byte {
	var b []byte
	for range blocks {
		b = append(b, 0x02, 0x40) // block
	}
	for i := range blocks {
		b = append(b, Cat(Op(0x20, uint64(i%locals+1)), Op(0x0d, uint64(i%7%max(1, blocks-i))))...)
		for j := range min(3, locals) {
			l := uint64((i+j)%locals + 1)
			b = append(b, Cat(Op(0x20, l), I32Const(1), Op(0x6a), Op(0x21, l))...)
		}
		b = append(b, 0x0b)
	}
	return b
}

// CompileBomb has one function of the given number of i32 locals and nested
// blocks.
func CompileBomb(locals, blocks int) *Module {
	return &Module{Memory: []uint32{1}, Funcs: []Func{{
		Params: []byte{I32}, Locals: bytes.Repeat([]byte{I32}, locals), Code: NestedBlocks(locals, blocks), Export: "f",
	}}}
}

// FlatBlocks is the other such shape: many ifs one after the other.
func FlatBlocks(locals, blocks int) []byte {
	var b []byte
	for i := range blocks {
		l := uint64(i%locals + 1)
		b = append(b, Cat(Op(0x20, 0), []byte{0x04, 0x40}, Op(0x20, l), I32Const(3), Op(0x6a), Op(0x21, l), Op(0x0b))...)
	}
	for i := range locals {
		b = append(b, Cat(Op(0x20, 0), Op(0x20, uint64(i+1)), Op(0x6a), Op(0x21, 0))...)
	}
	return b
}

// TableBomb has nothing but a table of n entries.
func TableBomb(n uint32) *Module {
	return &Module{Table: []uint32{n}, Funcs: []Func{{Export: "x"}}}
}

package wasmfile

import (
	"fmt"
	"math"
)

// Op is an opcode: one byte, or 0xFC00 + n for those behind the 0xFC prefix.
type Op uint16

// Opcodes that readers of a body need to tell apart.
const (
	OpUnreachable  Op = 0x00
	OpNop          Op = 0x01
	OpBlock        Op = 0x02
	OpLoop         Op = 0x03
	OpIf           Op = 0x04
	OpElse         Op = 0x05
	OpEnd          Op = 0x0b
	OpBr           Op = 0x0c
	OpBrIf         Op = 0x0d
	OpBrTable      Op = 0x0e
	OpReturn       Op = 0x0f
	OpCall         Op = 0x10
	OpCallIndirect Op = 0x11
	OpDrop         Op = 0x1a
	OpSelect       Op = 0x1b
	OpSelectT      Op = 0x1c
	OpLocalGet     Op = 0x20
	OpLocalSet     Op = 0x21
	OpLocalTee     Op = 0x22
	OpGlobalGet    Op = 0x23
	OpGlobalSet    Op = 0x24
	OpTableGet     Op = 0x25
	OpTableSet     Op = 0x26
	OpMemorySize   Op = 0x3f
	OpMemoryGrow   Op = 0x40
	OpI32Const     Op = 0x41
	OpI64Const     Op = 0x42
	OpF32Const     Op = 0x43
	OpF64Const     Op = 0x44
	OpI64LtS       Op = 0x53
	OpRefNull      Op = 0xd0
	OpRefIsNull    Op = 0xd1
	OpRefFunc      Op = 0xd2
	OpMemoryInit   Op = 0xfc08
	OpDataDrop     Op = 0xfc09
	OpMemoryCopy   Op = 0xfc0a
	OpMemoryFill   Op = 0xfc0b
	OpTableInit    Op = 0xfc0c
	OpElemDrop     Op = 0xfc0d
	OpTableCopy    Op = 0xfc0e
	OpTableGrow    Op = 0xfc0f
	OpTableSize    Op = 0xfc10
	OpTableFill    Op = 0xfc11
)

// NoType is Instr.A of a block without a type index.
const NoType = math.MaxUint32

// Instr is one decoded instruction.
type Instr struct {
	Op         Op
	Start, End int    // in Module.Bytes
	A, B       uint32 // immediates: label, local, global, function, type, table, segment
	// Targets are a br_table's labels, the default one last. Valid until the
	// next instruction is read.
	Targets []uint32
}

// naturalAlign is log2 of the access size of 0x28 … 0x3e.
var naturalAlign = [...]byte{2, 3, 2, 3, 0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 2, 3, 2, 3, 0, 1, 0, 1, 2}

// code reads instructions one after the other.
type code struct {
	cursor
	targets   []uint32
	maxTarget uint64
}

func valType(c *cursor, what string) ValType {
	at := c.pos
	t := ValType(c.byte())
	switch t {
	case I32, I64, F32, F64, FuncRef:
	default:
		if c.err == nil {
			c.failAt(at, fmt.Sprintf("%s has type %#x, which is not accepted (accepted: i32, i64, f32, f64, funcref)", what, byte(t)))
		}
	}
	return t
}

func (c *code) next(in *Instr) {
	in.Start = c.pos
	in.A, in.B, in.Targets = 0, 0, nil
	b := c.byte()
	in.Op = Op(b)
	switch {
	case b >= 0x45 && b <= 0xc4, b == 0x00, b == 0x01, b == 0x05, b == 0x0b, b == 0x0f, b == 0x1a, b == 0x1b, b == 0xd1:
	case b >= 0x28 && b <= 0x3e:
		at := c.pos
		in.A = c.u32()
		in.B = c.u32()
		if c.err == nil && in.A > uint32(naturalAlign[b-0x28]) {
			c.failAt(at, "alignment is larger than the access")
		}
	case b == 0x02, b == 0x03, b == 0x04:
		c.blockType(in)
	case b == 0x0c, b == 0x0d, b == 0x10, b >= 0x20 && b <= 0x26, b == 0xd2:
		in.A = c.u32()
	case b == 0x0e:
		n := c.count("br_table targets", c.maxTarget, 1)
		c.targets = c.targets[:0]
		for i := 0; i <= n && c.err == nil; i++ {
			c.targets = append(c.targets, c.u32())
		}
		in.Targets = c.targets
	case b == 0x11:
		in.A = c.u32()
		in.B = c.u32()
	case b == 0x1c:
		if c.u32() != 1 {
			c.fail("select must name exactly one type")
		}
		in.A = uint32(valType(&c.cursor, "select"))
	case b == 0x3f, b == 0x40:
		if c.byte() != 0 {
			c.fail("more than one memory is not accepted")
		}
	case b == 0x41:
		in.A = uint32(c.signed(32))
	case b == 0x42:
		v := uint64(c.signed(64))
		in.A, in.B = uint32(v), uint32(v>>32)
	case b == 0x43:
		c.bytes(4)
	case b == 0x44:
		c.bytes(8)
	case b == 0xd0:
		if ValType(c.byte()) != FuncRef && c.err == nil {
			c.failAt(in.Start, "ref.null of another type than func is not accepted")
		}
	case b == 0xfc:
		c.prefixed(in)
	default:
		if c.err == nil {
			c.failAt(in.Start, refusedOpcode(b))
		}
	}
	in.End = c.pos
}

func refusedOpcode(b byte) string {
	switch {
	case b == 0xfd:
		return "SIMD instructions are not accepted; build without simd128"
	case b == 0xfe:
		return "atomic instructions are not accepted; build without threads"
	case b == 0x12, b == 0x13:
		return "tail calls are not accepted; build without tail-call"
	case b >= 0x06 && b <= 0x0a, b == 0x18, b == 0x19, b == 0x1f:
		return "exception handling is not accepted; build without exceptions"
	}
	return fmt.Sprintf("instruction %#x is not accepted", b)
}

func (c *code) blockType(in *Instr) {
	in.A = NoType
	if c.err != nil || c.pos >= c.end {
		c.fail("unexpected end")
		return
	}
	switch b := c.data[c.pos]; {
	case b == 0x40:
		c.pos++
	case b >= 0x40 && b < 0x80:
		in.B = uint32(valType(&c.cursor, "block"))
	default:
		at := c.pos
		v := c.signed(33)
		if c.err == nil && (v < 0 || v >= NoType) {
			c.failAt(at, "invalid block type")
			return
		}
		in.A = uint32(v)
	}
}

func (c *code) prefixed(in *Instr) {
	sub := c.u32()
	if c.err != nil {
		return
	}
	if sub > 17 {
		c.failAt(in.Start, fmt.Sprintf("instruction 0xfc %d is not accepted", sub))
		return
	}
	in.Op = 0xfc00 + Op(sub)
	zero := func() {
		if c.byte() != 0 {
			c.fail("more than one memory is not accepted")
		}
	}
	switch in.Op {
	case OpMemoryInit:
		in.A = c.u32()
		zero()
	case OpMemoryCopy:
		zero()
		zero()
	case OpMemoryFill:
		zero()
	case OpTableInit, OpTableCopy:
		in.A = c.u32()
		in.B = c.u32()
	case OpDataDrop, OpElemDrop, OpTableGrow, OpTableSize, OpTableFill:
		in.A = c.u32()
	}
}

// Walk calls visit for every instruction of a defined function, in order, the
// final end included. The Instr is reused between calls.
func (m *Module) Walk(f *Function, visit func(*Instr)) {
	c := code{cursor: cursor{data: m.Bytes, pos: f.Code.Start, end: f.Code.End}, maxTarget: math.MaxUint32}
	var in Instr
	for c.pos < c.end && c.err == nil {
		c.next(&in)
		visit(&in)
	}
}

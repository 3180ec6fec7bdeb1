package meter

import (
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
)

func (w *writer) code() []byte {
	m := w.m
	size := 0
	for _, f := range m.Functions {
		size += f.Body.End - f.Body.Start
	}
	b := make([]byte, 0, size+size/8+64)
	b = uvar(b, uint64(len(m.Functions)+w.helpers()))
	r := rewriter{w: w}
	for i := range m.Functions {
		body := r.body(&m.Functions[i], w.depth[i])
		b = append(uvar(b, uint64(len(body))), body...)
	}
	b = append(b, w.slowBody()...)
	if w.fill > 0 {
		b = append(b, w.bulkBody(wasmfile.OpMemoryFill)...)
	}
	if w.copy > 0 {
		b = append(b, w.bulkBody(wasmfile.OpMemoryCopy)...)
	}
	return b
}

// slowBody is the function all counter tests call: counter = refill(counter).
func (w *writer) slowBody() []byte {
	body := []byte{0}
	body = uvar(append(body, byte(wasmfile.OpGlobalGet)), uint64(w.counter))
	body = uvar(append(body, byte(wasmfile.OpCall)), uint64(w.refill))
	body = uvar(append(body, byte(wasmfile.OpGlobalSet)), uint64(w.counter))
	body = append(body, byte(wasmfile.OpEnd))
	return append(uvar(nil, uint64(len(body))), body...)
}

// block is an open block of the body being rewritten. Costs are what is not yet
// charged on the dearest path that reaches a place.
type block struct {
	loop   bool
	isIf   bool
	join   int64 // at its end, by branches; -1 = none
	back   int64 // by branches to a loop's header
	orElse int64 // at the if
	patch  int   // place of a loop header's charge in out
}

// rewriter rewrites one body after the other. Everything the original code does
// is copied; what is added leaves the operand stack alone.
type rewriter struct {
	w      *writer
	out    []byte
	copied int // the original is copied up to here
	blocks []block
	due    int64 // not yet charged on the path to here; -1 = unreachable
	exit   int64 // not yet charged at any exit
	i64    uint32
	i32    uint32
	usesI  bool
	depth  uint32
	leaf   bool
}

func (r *rewriter) body(f *wasmfile.Function, depth uint32) []byte {
	m := r.w.m
	raw := m.Bytes
	r.out = r.out[:0]
	r.blocks = append(r.blocks[:0], block{join: -1})
	r.due, r.exit = 0, 0
	r.depth, r.leaf = depth, f.Calls == 0
	r.i64, r.i32, r.usesI = f.Locals, f.Locals+1, false

	r.copied = f.Code.Start
	m.Walk(f, func(in *wasmfile.Instr) {
		if in.End == f.Code.End { // the function's own end
			r.flush(in.Start)
			r.exit = max(r.exit, r.due, r.blocks[0].join)
			r.copied = in.End
			return
		}
		r.instruction(in)
	})
	inner := r.out

	// Head, then the code, wrapped in a block if depth must be given back.
	b := make([]byte, 0, len(inner)+64)
	groups := uint64(f.Decls) + 1
	if r.usesI {
		groups++
	}
	b = uvar(b, groups)
	b = append(b, raw[skipNumber(raw, f.LocalDecls.Start):f.LocalDecls.End]...)
	b = append(b, 1, byte(wasmfile.I64))
	if r.usesI {
		b = append(b, 1, byte(wasmfile.I32))
	}
	cost := r.exit + callCost
	if depth == 0 {
		if r.leaf && cost <= leafUnchecked {
			b = r.charge(b, cost)
		} else {
			b = r.chargeAndTest(b, cost)
		}
		return append(append(b, inner...), byte(wasmfile.OpEnd))
	}
	b = r.chargeDepth(b, cost, depth)
	b = r.openWrapper(b, f)
	b = append(append(b, inner...), byte(wasmfile.OpEnd))
	b = r.add(b, int64(depth))
	return append(b, byte(wasmfile.OpEnd))
}

func skipNumber(b []byte, at int) int {
	for b[at] >= 0x80 {
		at++
	}
	return at + 1
}

// openWrapper opens the block that takes the place of the function's own label:
// branches to that label, and returns, now end at the block's end.
func (r *rewriter) openWrapper(b []byte, f *wasmfile.Function) []byte {
	t := &r.w.m.Types[f.Type]
	b = append(b, byte(wasmfile.OpBlock))
	switch len(t.Results) {
	case 0:
		return append(b, 0x40)
	case 1:
		return append(b, byte(t.Results[0]))
	}
	i := r.w.typeIndex(wasmfile.FuncType{Results: t.Results})
	return wasmfile.AppendInt(b, int64(i))
}

// flush copies the original up to the given offset.
func (r *rewriter) flush(to int) {
	r.out = append(r.out, r.w.m.Bytes[r.copied:to]...)
	r.copied = to
}

func (r *rewriter) op(op wasmfile.Op, imm uint32) {
	r.out = uvar(append(r.out, byte(op)), uint64(imm))
}

// cost of one instruction, in units.
func cost(op wasmfile.Op) int64 {
	switch op {
	case wasmfile.OpEnd, wasmfile.OpElse, wasmfile.OpBlock, wasmfile.OpLoop, wasmfile.OpNop:
		return 0
	case wasmfile.OpCall, wasmfile.OpCallIndirect:
		return callCost
	case 0x6d, 0x6e, 0x6f, 0x70, 0x7f, 0x80, 0x81, 0x82, 0x95, 0xa3, 0x91, 0x9f: // divisions, remainders, square roots
		return divCost
	case wasmfile.OpRefFunc, wasmfile.OpElemDrop, wasmfile.OpDataDrop, wasmfile.OpTableSize:
		return bulkBase
	}
	return 1
}

func (r *rewriter) instruction(in *wasmfile.Instr) {
	reachable := r.due >= 0
	if reachable {
		if r.due >= segment {
			r.flush(in.Start)
			r.out = r.charge(r.out, r.due)
			r.due = 0
		}
		r.due += cost(in.Op)
	}
	switch in.Op {
	case wasmfile.OpBlock, wasmfile.OpIf:
		r.blocks = append(r.blocks, block{join: -1, orElse: r.due, isIf: in.Op == wasmfile.OpIf})
	case wasmfile.OpLoop:
		r.loop(in, reachable)
	case wasmfile.OpElse:
		top := &r.blocks[len(r.blocks)-1]
		top.join = max(top.join, r.due)
		top.isIf = false
		r.due = top.orElse
	case wasmfile.OpEnd:
		r.end()
	case wasmfile.OpBr:
		r.branch(in.A)
		r.due = -1
	case wasmfile.OpBrIf:
		r.branch(in.A)
	case wasmfile.OpBrTable:
		for _, t := range in.Targets {
			r.branch(t)
		}
		r.due = -1
	case wasmfile.OpReturn:
		r.branch(uint32(len(r.blocks) - 1))
		if r.depth > 0 {
			r.flush(in.Start)
			r.op(wasmfile.OpBr, uint32(len(r.blocks)-1))
			r.copied = in.End
		}
		r.due = -1
	case wasmfile.OpUnreachable:
		r.due = -1
	case wasmfile.OpCall, wasmfile.OpRefFunc:
		if f := r.w.fn(in.A); f != in.A {
			r.flush(in.Start)
			r.op(in.Op, f)
			r.copied = in.End
		}
	case wasmfile.OpMemoryCopy:
		r.replace(in, r.w.copy)
	case wasmfile.OpMemoryFill:
		r.replace(in, r.w.fill)
	case wasmfile.OpMemoryInit:
		r.dynamic(in, bulkShift, false, false)
	case wasmfile.OpTableInit, wasmfile.OpTableCopy, wasmfile.OpTableFill, wasmfile.OpTableGrow:
		r.dynamic(in, tableShift, true, true)
	case wasmfile.OpTableSet, wasmfile.OpElemDrop, wasmfile.OpDataDrop:
		r.flush(in.Start)
		r.markDirty()
	case wasmfile.OpMemoryGrow:
		r.dynamic(in, growShift, true, false)
	}
}

// replace puts a call in the place of an instruction of the same type.
func (r *rewriter) replace(in *wasmfile.Instr, helper uint32) {
	r.flush(in.Start)
	r.op(wasmfile.OpCall, helper)
	r.copied = in.End
}

func (r *rewriter) branch(label uint32) {
	if r.due < 0 {
		return
	}
	b := &r.blocks[len(r.blocks)-1-int(label)]
	if b.loop {
		b.back = max(b.back, r.due)
	} else {
		b.join = max(b.join, r.due)
	}
}

// loop charges what led here before the loop, and leaves room at the header for
// the charge of one turn, which is known only at the loop's end.
func (r *rewriter) loop(in *wasmfile.Instr, reachable bool) {
	b := block{loop: true, join: -1}
	if reachable {
		r.flush(in.Start)
		if r.due > 0 {
			r.out = r.charge(r.out, r.due)
		}
		r.flush(in.End)
		b.patch = len(r.out)
		// The widest number a turn can cost; see end.
		r.out = r.chargeAndTest(r.out, 0)
		r.due = 0
	}
	r.blocks = append(r.blocks, b)
}

func (r *rewriter) end() {
	top := r.blocks[len(r.blocks)-1]
	r.blocks = r.blocks[:len(r.blocks)-1]
	if top.loop {
		if top.patch > 0 {
			r.patch(top.patch, top.back+1)
		}
		return
	}
	r.due = max(r.due, top.join)
	if top.isIf {
		r.due = max(r.due, top.orElse)
	}
}

// The counter's arithmetic. Fuel sits above the depth bits.

func (r *rewriter) counterGet(b []byte) []byte {
	return uvar(append(b, byte(wasmfile.OpGlobalGet)), uint64(r.w.counter))
}

func (r *rewriter) counterSet(b []byte) []byte {
	return uvar(append(b, byte(wasmfile.OpGlobalSet)), uint64(r.w.counter))
}

const (
	opI32Eqz       = 0x45
	opI64Eqz       = 0x50
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64And       = 0x83
	opI64Shl       = 0x86
	opI64ShrU      = 0x88
	opI64ExtendU32 = 0xad
	opI32And       = 0x71
)

// charge subtracts units of fuel.
func (r *rewriter) charge(b []byte, units int64) []byte {
	b = r.counterGet(b)
	b = wasmfile.AppendInt(append(b, byte(wasmfile.OpI64Const)), units<<depthBits)
	return r.counterSet(append(b, opI64Sub))
}

// add gives units of depth back.
func (r *rewriter) add(b []byte, units int64) []byte {
	b = r.counterGet(b)
	b = wasmfile.AppendInt(append(b, byte(wasmfile.OpI64Const)), units)
	return r.counterSet(append(b, opI64Add))
}

// fixedInt is a signed number in exactly 8 bytes, enough for 55 bits.
func fixedInt(b []byte, v int64) []byte {
	for range 7 {
		b = append(b, byte(v&0x7f)|0x80)
		v >>= 7
	}
	return append(b, byte(v&0x7f))
}

func (r *rewriter) chargeAndTest(b []byte, units int64) []byte {
	b = r.counterGet(b)
	b = fixedInt(append(b, byte(wasmfile.OpI64Const)), units<<depthBits)
	return r.test(append(b, opI64Sub))
}

// patch sets the units of a chargeAndTest written earlier.
func (r *rewriter) patch(at int, units int64) {
	at = skipNumber(r.out, at+1) + 1 // behind global.get n, i64.const
	fixedInt(r.out[at:at], units<<depthBits)
}

// test stores the new counter from the stack and calls the host if it is below
// zero.
func (r *rewriter) test(b []byte) []byte {
	b = uvar(append(b, byte(wasmfile.OpLocalTee)), uint64(r.i64))
	b = r.counterSet(b)
	b = uvar(append(b, byte(wasmfile.OpLocalGet)), uint64(r.i64))
	b = append(b, byte(wasmfile.OpI64Const), 0, byte(wasmfile.OpI64LtS))
	return r.callSlow(b)
}

func (r *rewriter) callSlow(b []byte) []byte {
	b = append(b, byte(wasmfile.OpIf), 0x40, byte(wasmfile.OpCall))
	b = uvar(b, uint64(r.w.slow))
	return append(b, byte(wasmfile.OpEnd))
}

// chargeDepth subtracts fuel and depth at once and tests both.
func (r *rewriter) chargeDepth(b []byte, units int64, depth uint32) []byte {
	b = r.counterGet(b)
	b = wasmfile.AppendInt(append(b, byte(wasmfile.OpI64Const)), units<<depthBits+int64(depth))
	b = append(b, opI64Sub)
	b = uvar(append(b, byte(wasmfile.OpLocalTee)), uint64(r.i64))
	b = r.counterSet(b)
	b = uvar(append(b, byte(wasmfile.OpLocalGet)), uint64(r.i64))
	b = wasmfile.AppendInt(append(b, byte(wasmfile.OpI64Const)), -1<<63|guardBit)
	b = append(b, opI64And, opI64Eqz, opI32Eqz)
	return r.callSlow(b)
}

// dynamic charges an operation by the count on top of the operand stack, then
// lets it happen. Clamped counts keep only 16 bits, so that the sum cannot
// overflow: what asks for more fails without having done anything.
func (r *rewriter) dynamic(in *wasmfile.Instr, shift int, multiply, dirty bool) {
	r.flush(in.Start)
	r.usesI = true
	b := r.out
	b = uvar(append(b, byte(wasmfile.OpLocalTee)), uint64(r.i32))
	b = r.counterGet(b)
	b = uvar(append(b, byte(wasmfile.OpLocalGet)), uint64(r.i32))
	if in.Op == wasmfile.OpMemoryGrow {
		b = wasmfile.AppendInt(append(b, byte(wasmfile.OpI32Const)), 0xffff)
		b = append(b, opI32And)
	}
	b = append(b, opI64ExtendU32)
	if multiply {
		b = wasmfile.AppendInt(append(b, byte(wasmfile.OpI64Const)), int64(depthBits+shift))
		b = append(b, opI64Shl)
	} else {
		b = wasmfile.AppendInt(append(b, byte(wasmfile.OpI64Const)), int64(shift))
		b = append(b, opI64ShrU)
		b = wasmfile.AppendInt(append(b, byte(wasmfile.OpI64Const)), depthBits)
		b = append(b, opI64Shl)
	}
	b = append(b, opI64Sub)
	due := max(r.due, 0) + bulkBase
	b = wasmfile.AppendInt(append(b, byte(wasmfile.OpI64Const)), due<<depthBits)
	b = r.test(append(b, opI64Sub))
	r.out = b
	if r.due >= 0 {
		r.due = 0
	}
	if dirty {
		r.markDirty()
	}
}

func (r *rewriter) markDirty() {
	r.out = append(r.out, byte(wasmfile.OpI32Const), 1)
	r.op(wasmfile.OpGlobalSet, r.w.dirty)
}

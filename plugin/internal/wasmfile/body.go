package wasmfile

import "fmt"

// frame is one open block while a body is scanned.
type frame struct {
	op      Op
	results uint32 // values a branch to it carries
}

// scanner checks bodies; its buffers are reused between functions.
type scanner struct {
	m      *Module
	lim    *Limits
	frames []frame
	code   code
}

// body checks one function body: local declarations, opcode set, nesting and
// every index it mentions. It fills in what the body amounts to.
func (s *scanner) body(f *Function, c *cursor) {
	m, lim := s.m, s.lim
	ft := &m.Types[f.Type]
	f.LocalDecls.Start = c.pos
	locals := uint64(len(ft.Params))
	groups := c.count("local declarations", lim.Locals, 2)
	for i := 0; i < groups && c.err == nil; i++ {
		n := c.u32()
		valType(c, "local")
		locals += uint64(n)
		if locals > lim.Locals {
			c.limit("locals of a function", lim.Locals, locals)
		}
	}
	if c.err != nil {
		return
	}
	f.LocalDecls.End = c.pos
	f.Decls = uint32(groups)
	f.Locals = uint32(locals)
	f.Code = Range{c.pos, c.end}

	k := &s.code
	k.cursor = *c
	k.maxTarget = lim.BranchTable
	s.frames = append(s.frames[:0], frame{results: uint32(len(ft.Results))})
	arity := uint64(len(ft.Results))
	var in Instr
	for len(s.frames) > 0 && k.err == nil {
		k.next(&in)
		if k.err != nil {
			break
		}
		f.Instructions++
		arity += s.instruction(f, &in)
		if uint64(f.Blocks) > lim.Blocks {
			k.limit("blocks of a function", lim.Blocks, uint64(f.Blocks))
		}
		// Judged while scanning, so that a bomb is refused at the first
		// byte too many.
		if uint64(f.Branches) > lim.Branches {
			k.limit("branches of a function", lim.Branches, uint64(f.Branches))
		}
		if f.Work = work(locals, f, arity); f.Work > lim.LocalsTimesJoins {
			k.limit("locals × branches of a function", lim.LocalsTimesJoins, f.Work)
		}
	}
	if k.err == nil && k.pos != k.end {
		k.fail("code after the end of the function")
	}
	*c = k.cursor
}

func work(locals uint64, f *Function, carried uint64) uint64 {
	blocks := uint64(f.Blocks)
	return (locals+1)*(blocks+uint64(f.Branches)) + carried + blocks*blocks/256
}

// instruction checks one instruction's indices and keeps the label stack. It
// returns how many values the branch edges it adds carry.
func (s *scanner) instruction(f *Function, in *Instr) (carried uint64) {
	m, k := s.m, &s.code
	index := func(v uint32, n int, what string) {
		if uint64(v) >= uint64(n) && k.err == nil {
			k.failAt(in.Start, fmt.Sprintf("%s %d does not exist (there are %d)", what, v, n))
		}
	}
	label := func(v uint32) {
		if uint64(v) >= uint64(len(s.frames)) {
			index(v, len(s.frames), "label")
			return
		}
		carried += uint64(s.frames[len(s.frames)-1-int(v)].results)
		f.Branches++
	}
	switch op := in.Op; op {
	case OpBlock, OpLoop, OpIf:
		f.Blocks++
		var results uint32
		if in.A != NoType {
			index(in.A, len(m.Types), "type")
			if k.err != nil {
				return
			}
			t := &m.Types[in.A]
			results = uint32(len(t.Results))
			if op == OpLoop {
				results = uint32(len(t.Params))
			}
			carried += uint64(len(t.Params) + len(t.Results))
		} else if in.B != 0 && op != OpLoop {
			results = 1
			carried++
		}
		s.frames = append(s.frames, frame{op, results})
		if d := uint32(len(s.frames) - 1); d > f.Depth {
			f.Depth = d
			if uint64(d) > s.lim.Nesting {
				k.limit("block nesting", s.lim.Nesting, uint64(d))
			}
		}
	case OpElse:
		top := &s.frames[len(s.frames)-1]
		if top.op != OpIf {
			k.failAt(in.Start, "else without if")
			return
		}
		top.op = OpElse
		f.Branches++
	case OpEnd:
		s.frames = s.frames[:len(s.frames)-1]
	case OpBr, OpBrIf:
		label(in.A)
	case OpBrTable:
		for _, t := range in.Targets {
			label(t)
		}
	case OpReturn:
		f.Branches++
		carried += uint64(s.frames[0].results)
	case OpCall:
		f.Calls++
		index(in.A, int(m.FuncCount()), "function")
	case OpCallIndirect:
		f.Calls++
		m.Uses.Indirect = true
		index(in.A, len(m.Types), "type")
		index(in.B, len(m.Tables), "table")
	case OpLocalGet, OpLocalSet, OpLocalTee:
		index(in.A, int(f.Locals), "local")
	case OpGlobalGet:
		index(in.A, len(m.Globals), "global")
	case OpGlobalSet:
		index(in.A, len(m.Globals), "global")
		if k.err == nil && !m.Globals[in.A].Mutable {
			k.failAt(in.Start, "global.set of an immutable global")
		}
	case OpTableGet, OpTableSize:
		index(in.A, len(m.Tables), "table")
	case OpTableSet, OpTableGrow, OpTableFill:
		m.Uses.TableWrite = true
		index(in.A, len(m.Tables), "table")
	case OpTableCopy:
		m.Uses.TableWrite = true
		index(in.A, len(m.Tables), "table")
		index(in.B, len(m.Tables), "table")
	case OpTableInit:
		m.Uses.TableWrite = true
		index(in.A, len(m.Elements), "element segment")
		index(in.B, len(m.Tables), "table")
	case OpElemDrop:
		m.Uses.ElemDrop = true
		index(in.A, len(m.Elements), "element segment")
	case OpRefFunc:
		m.Uses.RefFunc = true
		index(in.A, int(m.FuncCount()), "function")
	case OpMemoryInit, OpDataDrop:
		if m.DataCount < 0 {
			k.failAt(in.Start, "data segment used without a data count section")
			return
		}
		index(in.A, int(m.DataCount), "data segment")
		if op == OpMemoryInit {
			m.Uses.MemoryInit = true
		} else {
			m.Uses.DataDrop = true
		}
	case OpMemoryFill:
		m.Uses.MemoryFill = true
	case OpMemoryCopy:
		m.Uses.MemoryCopy = true
	case OpMemoryGrow:
		m.Uses.MemoryGrow = true
	}
	if (in.Op >= 0x28 && in.Op <= 0x40 || in.Op == OpMemoryInit || in.Op == OpMemoryCopy || in.Op == OpMemoryFill) &&
		m.Memory == nil && k.err == nil {
		k.failAt(in.Start, "memory used, but the module has none")
	}
	return carried
}

package wasmfile

import "fmt"

// elements reads the element section in all its eight forms.
func (p *parser) elements() {
	n := p.count("element segments", p.lim.ElementSegments, 2)
	total := uint64(0)
	for i := 0; i < n && p.err == nil; i++ {
		at := p.pos
		flags := p.u32()
		if p.err == nil && flags > 7 {
			p.failAt(at, "unknown kind of element segment")
			return
		}
		var e Element
		switch {
		case flags&1 == 0:
			e.Mode = ElementActive
			if flags&2 != 0 {
				e.Table = p.u32()
			}
			if p.err == nil && uint64(e.Table) >= uint64(len(p.m.Tables)) {
				p.failAt(at, "element segment of a table that does not exist")
				return
			}
			var t ValType
			_, t, e.Offset = p.constant(int(p.m.FuncCount()))
			if p.err == nil && t != I32 {
				p.failAt(at, "element segment's offset must be i32")
			}
		case flags&2 != 0:
			e.Mode = ElementDeclarative
		default:
			e.Mode = ElementPassive
		}
		exprs := flags&4 != 0
		if flags&3 != 0 {
			kind := p.byte()
			if p.err == nil && (exprs && ValType(kind) != FuncRef || !exprs && kind != 0) {
				p.failAt(at, "only element segments of functions are accepted")
				return
			}
		}
		count := p.count("elements", p.lim.Elements, 1)
		if total += uint64(count); total > p.lim.Elements {
			p.limit("elements", p.lim.Elements, total)
			return
		}
		e.Funcs = make([]int64, 0, count)
		for j := 0; j < count && p.err == nil; j++ {
			e.Funcs = append(e.Funcs, p.element(exprs))
		}
		if p.err == nil && e.Mode == ElementActive &&
			uint64(e.Offset)+uint64(len(e.Funcs)) > uint64(p.m.Tables[e.Table].Min) {
			p.failAt(at, "element segment does not fit its table")
			return
		}
		p.m.Elements = append(p.m.Elements, e)
	}
}

func (p *parser) element(expr bool) int64 {
	at := p.pos
	if !expr {
		f := p.u32()
		if p.err == nil && f >= p.m.FuncCount() {
			p.failAt(at, fmt.Sprintf("function %d does not exist", f))
		}
		return int64(f)
	}
	r, t, f := p.constant(int(p.m.FuncCount()))
	if p.err != nil {
		return -1
	}
	if t != FuncRef {
		p.failAt(at, "element is not a function")
		return -1
	}
	if Op(p.cursor.data[r.Start]) == OpRefNull {
		return -1
	}
	return int64(f)
}

func (p *parser) dataSegments() {
	at := p.pos
	n := p.count("data segments", p.lim.DataSegments, 2)
	if p.err == nil && p.m.DataCount >= 0 && int64(n) != p.m.DataCount {
		p.failAt(at, "number of data segments differs from the data count section")
		return
	}
	total := uint64(0)
	p.m.Data = make([]Data, 0, n)
	for i := 0; i < n && p.err == nil; i++ {
		at := p.pos
		var d Data
		switch flags := p.u32(); flags {
		case 0, 2:
			if flags == 2 && p.u32() != 0 {
				p.failAt(at, "more than one memory is not accepted")
			}
			if p.m.Memory == nil {
				p.failAt(at, "data segment, but the module has no memory")
				return
			}
			var t ValType
			_, t, d.Offset = p.constant(0)
			if p.err == nil && t != I32 {
				p.failAt(at, "data segment's offset must be i32")
			}
		case 1:
			d.Passive = true
		default:
			p.failAt(at, "unknown kind of data segment")
		}
		size := p.u32()
		if total += uint64(size); total > p.lim.DataBytes {
			p.limit("data bytes", p.lim.DataBytes, total)
			return
		}
		if d.Passive && uint64(size) > p.lim.PassiveBytes {
			p.limit("bytes of a passive data segment", p.lim.PassiveBytes, uint64(size))
			return
		}
		d.Bytes = p.bytes(size)
		if p.err == nil && !d.Passive &&
			uint64(d.Offset)+uint64(size) > uint64(p.m.Memory.Min)<<16 {
			p.failAt(at, "data segment does not fit the memory's initial size")
			return
		}
		p.m.Data = append(p.m.Data, d)
	}
}

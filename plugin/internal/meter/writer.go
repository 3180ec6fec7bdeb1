package meter

import (
	"slices"

	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
)

// writer produces the rewritten module, section by section.
type writer struct {
	m    *wasmfile.Module
	opts Options
	out  *Output

	refill   uint32 // function index of the import
	slow     uint32 // function index of the refill wrapper
	fill     uint32 // function indices of what stands for bulk operations, or 0
	copy     uint32
	counter  uint32 // global index
	dirty    uint32 // global index, if out.Dirty
	types    []wasmfile.FuncType
	depth    []uint32 // per defined function: units of depth, 0 = not counted
	keepData bool
}

func newWriter(m *wasmfile.Module, opts Options) *writer {
	u := m.Uses
	w := &writer{
		m: m, opts: opts, out: &Output{HasStart: m.Start >= 0, Dirty: u.TableWrite || u.ElemDrop || u.DataDrop},
		refill: uint32(len(m.Imports)), slow: m.FuncCount() + 1,
		counter: uint32(len(m.Globals)), dirty: uint32(len(m.Globals) + 1),
		types:    slices.Clone(m.Types),
		keepData: u.MemoryInit || u.DataDrop,
	}
	next := w.slow + 1
	if u.MemoryFill {
		w.fill = next
		next++
	}
	if u.MemoryCopy {
		w.copy = next
	}
	w.depth = frames(m)
	for _, d := range w.depth {
		if d > 0 {
			w.out.Tracked++
		}
	}
	return w
}

// helpers is the number of functions added.
func (w *writer) helpers() int {
	n := 1
	if w.fill > 0 {
		n++
	}
	if w.copy > 0 {
		n++
	}
	return n
}

// fn maps a function index of the original to the rewritten module: one import
// is added after the existing ones.
func (w *writer) fn(i uint32) uint32 {
	if i >= w.refill {
		return i + 1
	}
	return i
}

func (w *writer) typeIndex(t wasmfile.FuncType) uint32 {
	for i := range w.types {
		if w.types[i].Equal(t) {
			return uint32(i)
		}
	}
	w.types = append(w.types, t)
	return uint32(len(w.types) - 1)
}

func (w *writer) module() {
	m := w.m
	// Code first: it may need types that the type section must then hold.
	code := w.code()
	refillType := w.typeIndex(wasmfile.FuncType{Params: []wasmfile.ValType{wasmfile.I64}, Results: []wasmfile.ValType{wasmfile.I64}})
	slowType := w.typeIndex(wasmfile.FuncType{})
	bulkType := uint32(0)
	if w.helpers() > 1 {
		bulkType = w.typeIndex(wasmfile.FuncType{Params: []wasmfile.ValType{wasmfile.I32, wasmfile.I32, wasmfile.I32}})
	}

	b := []byte("\x00asm\x01\x00\x00\x00")
	b = section(b, wasmfile.SectionType, w.typeSection())
	b = section(b, wasmfile.SectionImport, w.importSection(refillType))
	b = section(b, wasmfile.SectionFunction, w.functionSection(slowType, bulkType))
	if len(m.Tables) > 0 {
		b = section(b, wasmfile.SectionTable, w.tableSection())
	}
	if m.Memory != nil {
		b = section(b, wasmfile.SectionMemory, w.memorySection())
	}
	b = section(b, wasmfile.SectionGlobal, w.globalSection())
	b = section(b, wasmfile.SectionExport, w.exportSection())
	if len(m.Elements) > 0 {
		b = section(b, wasmfile.SectionElement, w.elementSection())
	}
	if w.keepData {
		b = section(b, wasmfile.SectionDataCount, uvar(nil, uint64(len(m.Data))))
	}
	b = section(b, wasmfile.SectionCode, code)
	data := w.dataSection()
	if w.keepData {
		b = section(b, wasmfile.SectionData, data)
	}
	if names := w.nameSection(); names != nil {
		b = section(b, wasmfile.SectionCustom, names)
	}
	w.out.Bytes = b
}

func uvar(b []byte, v uint64) []byte { return wasmfile.AppendUint(b, v) }

func section(b []byte, id byte, payload []byte) []byte {
	return append(uvar(append(b, id), uint64(len(payload))), payload...)
}

func str(b []byte, s string) []byte { return append(uvar(b, uint64(len(s))), s...) }

func (w *writer) typeSection() []byte {
	b := uvar(nil, uint64(len(w.types)))
	for _, t := range w.types {
		b = append(b, 0x60)
		b = uvar(b, uint64(len(t.Params)))
		for _, v := range t.Params {
			b = append(b, byte(v))
		}
		b = uvar(b, uint64(len(t.Results)))
		for _, v := range t.Results {
			b = append(b, byte(v))
		}
	}
	return b
}

func (w *writer) importSection(refillType uint32) []byte {
	b := uvar(nil, uint64(len(w.m.Imports)+1))
	for _, im := range w.m.Imports {
		b = append(str(str(b, im.Module), im.Name), byte(wasmfile.ExternFunc))
		b = uvar(b, uint64(im.Type))
	}
	b = append(str(str(b, ImportModule), RefillName), byte(wasmfile.ExternFunc))
	return uvar(b, uint64(refillType))
}

func (w *writer) functionSection(slowType, bulkType uint32) []byte {
	b := uvar(nil, uint64(len(w.m.Functions)+w.helpers()))
	for i := range w.m.Functions {
		b = uvar(b, uint64(w.m.Functions[i].Type))
	}
	b = uvar(b, uint64(slowType))
	for range w.helpers() - 1 {
		b = uvar(b, uint64(bulkType))
	}
	return b
}

func limitBytes(b []byte, lo, hi uint32) []byte {
	return uvar(uvar(append(b, 1), uint64(lo)), uint64(hi))
}

func (w *writer) tableSection() []byte {
	b := uvar(nil, uint64(len(w.m.Tables)))
	for _, t := range w.m.Tables {
		hi := w.opts.MaxTableElements
		if t.HasMax {
			hi = min(hi, t.Max)
		}
		b = limitBytes(append(b, byte(wasmfile.FuncRef)), t.Min, hi)
	}
	return b
}

func (w *writer) memorySection() []byte {
	hi := w.opts.MaxMemoryPages
	if w.m.Memory.HasMax {
		hi = min(hi, w.m.Memory.Max)
	}
	return limitBytes(uvar(nil, 1), w.m.Memory.Min, hi)
}

func (w *writer) globalSection() []byte {
	n := len(w.m.Globals) + 1
	if w.out.Dirty {
		n++
	}
	b := uvar(nil, uint64(n))
	for _, g := range w.m.Globals {
		mut := byte(0)
		if g.Mutable {
			mut = 1
		}
		b = append(b, byte(g.Type), mut)
		if raw := w.m.Bytes[g.Init.Start:g.Init.End]; wasmfile.Op(raw[0]) == wasmfile.OpRefFunc {
			b = append(uvar(append(b, raw[0]), uint64(w.fn(uleb(raw[1:])))), byte(wasmfile.OpEnd))
		} else {
			b = append(b, raw...)
		}
	}
	// The counter starts below zero: nothing runs before the host has set it.
	b = append(b, byte(wasmfile.I64), 1, byte(wasmfile.OpI64Const))
	b = append(wasmfile.AppendInt(b, -1<<depthBits), byte(wasmfile.OpEnd))
	if w.out.Dirty {
		b = append(b, byte(wasmfile.I32), 1, byte(wasmfile.OpI32Const), 0, byte(wasmfile.OpEnd))
	}
	return b
}

// uleb decodes a number that the parser has already accepted.
func uleb(b []byte) uint32 {
	var v uint32
	for i, c := range b {
		v |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			break
		}
	}
	return v
}

func (w *writer) exportSection() []byte {
	var b []byte
	n := 0
	add := func(name string, kind wasmfile.ExternKind, index uint32) {
		b = uvar(append(str(b, name), byte(kind)), uint64(index))
		n++
	}
	for _, e := range w.m.Exports {
		i := e.Index
		if e.Kind == wasmfile.ExternFunc {
			i = w.fn(i)
		}
		add(e.Name, e.Kind, i)
	}
	add(CounterExport, wasmfile.ExternGlobal, w.counter)
	if w.out.Dirty {
		add(DirtyExport, wasmfile.ExternGlobal, w.dirty)
	}
	if w.out.HasStart {
		add(StartExport, wasmfile.ExternFunc, w.fn(uint32(w.m.Start)))
	}
	for i, g := range w.m.Globals {
		if g.Mutable {
			add(GlobalExport(w.out.Globals), wasmfile.ExternGlobal, uint32(i))
			w.out.Globals++
		}
	}
	return append(uvar(nil, uint64(n)), b...)
}

func (w *writer) elementSection() []byte {
	b := uvar(nil, uint64(len(w.m.Elements)))
	for _, e := range w.m.Elements {
		// One form fits all: explicit table, element expressions.
		switch e.Mode {
		case wasmfile.ElementActive:
			b = uvar(append(b, 6), uint64(e.Table))
			b = append(wasmfile.AppendInt(append(b, byte(wasmfile.OpI32Const)), int64(int32(e.Offset))), byte(wasmfile.OpEnd))
		case wasmfile.ElementPassive:
			b = append(b, 5)
		case wasmfile.ElementDeclarative:
			b = append(b, 7)
		}
		b = append(b, byte(wasmfile.FuncRef))
		b = uvar(b, uint64(len(e.Funcs)))
		for _, f := range e.Funcs {
			if f < 0 {
				b = append(b, byte(wasmfile.OpRefNull), byte(wasmfile.FuncRef), byte(wasmfile.OpEnd))
			} else {
				b = append(uvar(append(b, byte(wasmfile.OpRefFunc)), uint64(w.fn(uint32(f)))), byte(wasmfile.OpEnd))
			}
		}
	}
	return b
}

// dataSection hands active segments to the host. Where the code names segments
// by index an empty passive one stays in each one's place: an active segment
// counts as dropped once it is applied, and dropped is the same as empty.
func (w *writer) dataSection() []byte {
	b := uvar(nil, uint64(len(w.m.Data)))
	for _, d := range w.m.Data {
		if d.Passive {
			b = append(uvar(append(b, 1), uint64(len(d.Bytes))), d.Bytes...)
			continue
		}
		w.out.Data = append(w.out.Data, d)
		b = append(b, 1, 0)
	}
	return b
}

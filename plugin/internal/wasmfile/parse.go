package wasmfile

import (
	"crypto/sha256"
	"fmt"
)

// Section ids of the binary format.
const (
	SectionCustom    = 0
	SectionType      = 1
	SectionImport    = 2
	SectionFunction  = 3
	SectionTable     = 4
	SectionMemory    = 5
	SectionGlobal    = 6
	SectionExport    = 7
	SectionStart     = 8
	SectionElement   = 9
	SectionCode      = 10
	SectionData      = 11
	SectionDataCount = 12
)

// order is the rank of each section id: data count stands before code.
var order = [...]int{1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9, 12: 10, 10: 11, 11: 12}

// Parse reads a module under the default limits. The bytes are kept, not
// copied, and must not change any more. Errors are *Error or *LimitError.
func Parse(data []byte) (*Module, error) { return ParseLimits(data, Limits{}) }

// ParseLimits reads a module under the given limits; zero fields take their
// defaults.
func ParseLimits(data []byte, limits Limits) (*Module, error) {
	lim := limits.withDefaults()
	if uint64(len(data)) > lim.ModuleBytes {
		return nil, &LimitError{Which: "module bytes", Limit: lim.ModuleBytes, Got: uint64(len(data))}
	}
	p := &parser{
		cursor: cursor{data: data, end: len(data)}, lim: lim,
		m: &Module{Bytes: data, Start: -1, DataCount: -1},
	}
	p.module()
	if p.err != nil {
		return nil, p.err
	}
	p.m.digest = sha256.Sum256(data)
	return p.m, nil
}

type parser struct {
	cursor
	m    *Module
	lim  Limits
	decl []uint32 // types of defined functions, from the function section
	code bool
	data bool
}

var (
	magic   = "\x00asm"
	version = "\x01\x00\x00\x00"
)

// header checks the eight bytes at the start.
func (c *cursor) header() {
	if string(c.bytes(4)) != magic && c.err == nil {
		c.failAt(0, "not a wasm module: the magic number is missing")
	}
	at := c.pos
	switch v := string(c.bytes(4)); {
	case c.err != nil, v == version:
	case v == "\x0d\x00\x01\x00":
		c.failAt(at, "a component, not a core module; build a core module (reactor)")
	default:
		c.failAt(at, "unknown binary version")
	}
}

func (p *parser) module() {
	p.header()
	last := 0
	for p.err == nil && p.pos < p.end {
		start := p.pos
		id := p.byte()
		size := p.u32()
		from := p.pos
		p.bytes(size)
		if p.err != nil {
			return
		}
		if int(id) >= len(order) || (id != SectionCustom && order[id] == 0) {
			p.failAt(start, fmt.Sprintf("unknown section %d", id))
			return
		}
		s := &parser{cursor: cursor{data: p.cursor.data, pos: from, end: p.pos}, m: p.m, lim: p.lim, decl: p.decl}
		whole := Range{start, p.pos}
		if id == SectionCustom {
			s.custom(whole)
		} else {
			if order[id] <= last {
				p.failAt(start, fmt.Sprintf("section %d is repeated or out of order", id))
				return
			}
			last = order[id]
			p.m.Sections = append(p.m.Sections, Section{ID: id, Whole: whole, Payload: Range{from, p.pos}})
			s.section(id)
			p.decl = s.decl
			p.code = p.code || id == SectionCode
			p.data = p.data || id == SectionData
			if s.err == nil && s.pos != s.end {
				s.fail("bytes after the section's content")
			}
		}
		p.err = s.err
	}
	if p.err != nil {
		return
	}
	p.pos = p.end
	if len(p.decl) > 0 && !p.code {
		p.fail("functions are declared, but the code section is missing")
	}
	if p.m.DataCount > 0 && !p.data {
		p.fail("a data count is declared, but the data section is missing")
	}
}

func (p *parser) section(id byte) {
	switch id {
	case SectionType:
		p.types()
	case SectionImport:
		p.imports()
	case SectionFunction:
		p.functions()
	case SectionTable:
		p.tables()
	case SectionMemory:
		p.memory()
	case SectionGlobal:
		p.globals()
	case SectionExport:
		p.exports()
	case SectionStart:
		p.start()
	case SectionElement:
		p.elements()
	case SectionDataCount:
		n := p.u32()
		if uint64(n) > p.lim.DataSegments {
			p.limit("data segments", p.lim.DataSegments, uint64(n))
		}
		p.m.DataCount = int64(n)
	case SectionCode:
		p.bodies()
	case SectionData:
		p.dataSegments()
	}
}

func (p *parser) custom(whole Range) {
	if n := uint64(len(p.m.Customs)); n >= p.lim.CustomSections {
		p.limit("custom sections", p.lim.CustomSections, n+1)
		return
	}
	name := p.limitedName()
	if p.err == nil {
		p.m.Customs = append(p.m.Customs, Custom{Name: name, Payload: p.cursor.data[p.pos:p.end:p.end], Section: whole})
	}
}

func (p *parser) limitedName() string {
	s := p.name()
	if uint64(len(s)) > p.lim.NameBytes {
		p.limit("name bytes", p.lim.NameBytes, uint64(len(s)))
	}
	return s
}

func (p *parser) valTypes(which string, limit uint64) []ValType {
	n := p.count(which, limit, 1)
	ts := make([]ValType, 0, n)
	for i := 0; i < n && p.err == nil; i++ {
		ts = append(ts, valType(&p.cursor, which))
	}
	return ts
}

func (p *parser) types() {
	n := p.count("types", p.lim.Types, 3)
	for i := 0; i < n && p.err == nil; i++ {
		at := p.pos
		if p.byte() != 0x60 && p.err == nil {
			p.failAt(at, "only function types are accepted")
		}
		p.m.Types = append(p.m.Types, FuncType{
			Params: p.valTypes("parameters", p.lim.Params), Results: p.valTypes("results", p.lim.Results),
		})
	}
}

func (p *parser) typeIndex() uint32 {
	at := p.pos
	t := p.u32()
	if p.err == nil && int64(t) >= int64(len(p.m.Types)) {
		p.failAt(at, fmt.Sprintf("type %d does not exist (there are %d)", t, len(p.m.Types)))
	}
	return t
}

func (p *parser) imports() {
	n := p.count("imports", p.lim.Imports, 4)
	for i := 0; i < n && p.err == nil; i++ {
		im := Import{Module: p.limitedName(), Name: p.limitedName()}
		at := p.pos
		kind := p.byte()
		if p.err == nil && ExternKind(kind) != ExternFunc {
			p.failAt(at, fmt.Sprintf("import %s.%s is not a function; only functions can be imported, define memories, tables and globals in the module", im.Module, im.Name))
		}
		im.Type = p.typeIndex()
		p.m.Imports = append(p.m.Imports, im)
	}
}

func (p *parser) functions() {
	n := p.count("functions", p.lim.Functions, 1)
	for i := 0; i < n && p.err == nil; i++ {
		t := p.typeIndex()
		p.decl = append(p.decl, t)
		p.m.Functions = append(p.m.Functions, Function{Type: t})
	}
}

func (p *parser) limits(which string, max uint64) Limit {
	at := p.pos
	flag := p.byte()
	if flag > 1 {
		what := "unknown flags"
		switch {
		case flag&2 != 0:
			what = "shared memory or table is not accepted; build without threads"
		case flag&4 != 0:
			what = "64-bit memory or table is not accepted"
		}
		p.failAt(at, what)
		return Limit{}
	}
	l := Limit{Min: p.u32()}
	if uint64(l.Min) > max {
		p.limit(which, max, uint64(l.Min))
	}
	if flag == 1 {
		l.HasMax, l.Max = true, p.u32()
		if p.err == nil && l.Max < l.Min {
			p.fail("maximum is below the minimum")
		}
	}
	return l
}

func (p *parser) tables() {
	n := p.count("tables", p.lim.Tables, 3)
	for i := 0; i < n && p.err == nil; i++ {
		at := p.pos
		if ValType(p.byte()) != FuncRef && p.err == nil {
			p.failAt(at, "only tables of funcref are accepted")
		}
		p.m.Tables = append(p.m.Tables, p.limits("table elements", p.lim.TableElements))
	}
}

func (p *parser) memory() {
	n := p.count("memories", 1, 2)
	if n == 1 && p.err == nil {
		l := p.limits("memory pages", p.lim.MemoryPages)
		if p.err == nil && l.HasMax && l.Max > 1<<16 {
			p.fail("memory maximum is above 65536 pages")
		}
		p.m.Memory = &l
	}
}

// constant reads a constant expression and its type. Only one instruction and
// end: extended constants and references to other globals are not accepted.
func (p *parser) constant(funcs int) (r Range, t ValType, value uint32) {
	k := code{cursor: p.cursor}
	r.Start = p.pos
	var in, end Instr
	k.next(&in)
	k.next(&end)
	switch in.Op {
	case OpI32Const:
		t = I32
	case OpI64Const:
		t = I64
	case OpF32Const:
		t = F32
	case OpF64Const:
		t = F64
	case OpRefNull:
		t = FuncRef
	case OpRefFunc:
		t = FuncRef
		if k.err == nil && uint64(in.A) >= uint64(funcs) {
			k.failAt(in.Start, fmt.Sprintf("function %d does not exist", in.A))
		}
	default:
		if k.err == nil {
			k.failAt(in.Start, "only a plain constant is accepted as initial value or offset")
		}
	}
	if k.err == nil && end.Op != OpEnd {
		k.failAt(end.Start, "constant expression must be one instruction")
	}
	p.cursor = k.cursor
	r.End = p.pos
	return r, t, in.A
}

func (p *parser) globals() {
	n := p.count("globals", p.lim.Globals, 4)
	for i := 0; i < n && p.err == nil; i++ {
		at := p.pos
		g := Global{Type: valType(&p.cursor, "global")}
		mut := p.byte()
		if mut > 1 {
			p.fail("invalid mutability")
		}
		g.Mutable = mut == 1
		if g.Mutable && g.Type == FuncRef {
			p.failAt(at, "mutable globals of funcref are not accepted: an instance could not be reset")
		}
		var t ValType
		g.Init, t, _ = p.constant(int(p.m.FuncCount()))
		if p.err == nil && t != g.Type {
			p.failAt(g.Init.Start, "initial value has another type than its global")
		}
		p.m.Globals = append(p.m.Globals, g)
	}
}

func (p *parser) exports() {
	n := p.count("exports", p.lim.Exports, 3)
	seen := make(map[string]struct{}, n)
	for i := 0; i < n && p.err == nil; i++ {
		at := p.pos
		e := Export{Name: p.limitedName(), Kind: ExternKind(p.byte()), Index: p.u32()}
		if p.err != nil {
			return
		}
		if _, dup := seen[e.Name]; dup {
			p.failAt(at, fmt.Sprintf("export %q is repeated", e.Name))
			return
		}
		seen[e.Name] = struct{}{}
		count := 0
		switch e.Kind {
		case ExternFunc:
			count = int(p.m.FuncCount())
		case ExternTable:
			count = len(p.m.Tables)
		case ExternMemory:
			if p.m.Memory != nil {
				count = 1
			}
		case ExternGlobal:
			count = len(p.m.Globals)
		default:
			p.failAt(at, "unknown kind of export")
			return
		}
		if uint64(e.Index) >= uint64(count) {
			p.failAt(at, fmt.Sprintf("export %q refers to something that does not exist", e.Name))
			return
		}
		p.m.Exports = append(p.m.Exports, e)
	}
}

func (p *parser) start() {
	at := p.pos
	f := p.u32()
	if p.err != nil {
		return
	}
	if f >= p.m.FuncCount() {
		p.failAt(at, fmt.Sprintf("start function %d does not exist", f))
		return
	}
	if t := p.m.Types[p.m.TypeOf(f)]; len(t.Params)+len(t.Results) > 0 {
		p.failAt(at, "start function must take and return nothing")
		return
	}
	p.m.Start = int64(f)
}

func (p *parser) bodies() {
	at := p.pos
	n := p.count("functions", p.lim.Functions, 2)
	if p.err == nil && n != len(p.decl) {
		p.failAt(at, fmt.Sprintf("%d bodies for %d declared functions", n, len(p.decl)))
		return
	}
	if size := uint64(p.end - at); size > p.lim.CodeBytes {
		p.limit("code bytes", p.lim.CodeBytes, size)
		return
	}
	s := scanner{m: p.m, lim: &p.lim}
	var work uint64
	for i := 0; i < n && p.err == nil; i++ {
		size := p.u32()
		if uint64(size) > p.lim.FunctionBytes {
			p.limit("bytes of a function", p.lim.FunctionBytes, uint64(size))
			return
		}
		from := p.pos
		p.bytes(size)
		if p.err != nil {
			return
		}
		f := &p.m.Functions[i]
		f.Body = Range{from, p.pos}
		c := cursor{data: p.cursor.data, pos: from, end: p.pos}
		s.body(f, &c)
		p.err = c.err
		if work += f.cost(); work > p.lim.TotalWork && p.err == nil {
			p.limit("locals × branches of all functions", p.lim.TotalWork, work)
		}
	}
}

package wasmtest

import (
	"encoding/binary"
	"math/rand/v2"
)

// Generate makes a random module that is valid and whose export "run", of type
// (i32, i64) -> (i32, i64), ends after bounded work: loops count down, and calls
// go to later functions, except one bounded recursion. It uses memory, globals,
// a table, bulk operations, and may trap. Its globals are exported as "g0" ….
func Generate(r *rand.Rand) *Module {
	g := &generator{r: r, m: &Module{Memory: []uint32{1, 4}}}
	return g.module()
}

type generator struct {
	r      *rand.Rand
	m      *Module
	f      *Func
	at     int   // index of the function being made
	vars   []int // locals that may be assigned
	blocks []byte
	budget int
	inLoop int
}

var types = []byte{I32, I64, F32, F64}

func (g *generator) n(n int) int { return g.r.IntN(n) }

func (g *generator) module() *Module {
	m := g.m
	for i := range 1 + g.n(4) {
		t := types[i%4]
		m.Globals = append(m.Globals, Global{Type: t, Mutable: true, Init: g.constant(t), Export: "g" + string('0'+rune(i))})
	}
	m.Globals = append(m.Globals, Global{Type: I32, Init: I32Const(7), Export: "g9"})
	n := 3 + g.n(5)
	m.Funcs = make([]Func, n)
	m.Funcs[0] = Func{Params: []byte{I32, I64}, Results: []byte{I32, I64}, Export: "run"}
	m.Funcs[n-1] = Func{Params: []byte{I32}, Results: []byte{I32}} // recursive
	for i := 1; i < n-1; i++ {
		for range g.n(4) {
			m.Funcs[i].Params = append(m.Funcs[i].Params, types[g.n(4)])
		}
		for range g.n(3) {
			m.Funcs[i].Results = append(m.Funcs[i].Results, types[g.n(4)])
		}
	}
	for i := range m.Funcs {
		m.TypeIndex(m.Funcs[i].Params, m.Funcs[i].Results)
	}
	m.Table = []uint32{8, 16}
	var elems []uint32
	for range 1 + g.n(6) {
		elems = append(elems, uint32(n-1-g.n(min(2, n-1))))
	}
	m.Elems = []Elem{{Offset: int64(g.n(3)), Funcs: elems[:min(len(elems), 5)]}, {Offset: -1, Funcs: elems}}
	m.Data = []Data{{Offset: int64(g.n(60000)), Bytes: g.bytes(g.n(64))}, {Offset: -1, Bytes: g.bytes(1 + g.n(200))}}
	m.DataCount = true
	for i := 0; i < n-1; i++ {
		g.function(i)
	}
	rec := &m.Funcs[n-1]
	depth := int32(g.n(40))
	rec.Code = Cat(Op(0x20, 0), I32Const(63), Op(0x71), Op(0x22, 0), Op(0x45), []byte{0x04, I32}, I32Const(depth), Op(0x05),
		Op(0x20, 0), I32Const(1), Op(0x6b), Op(0x10, uint64(n-1)), Op(0x20, 0), Op(0x6a), Op(0x0b))
	if g.n(3) == 0 {
		m.Funcs = append(m.Funcs, Func{Code: g.startCode()})
		s := uint32(len(m.Funcs) - 1)
		m.Start = &s
	}
	return m
}

func (g *generator) startCode() []byte {
	return Cat(I32Const(int32(g.n(65000))), I32Const(int32(g.r.Uint32())), Op(0x36, 2, 0))
}

func (g *generator) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.r.Uint32())
	}
	return b
}

func (g *generator) function(i int) {
	f := &g.m.Funcs[i]
	g.f, g.at, g.budget = f, i, 60+g.n(200)
	g.vars, g.blocks, g.inLoop = nil, nil, 0
	for range 1 + g.n(5) {
		f.Locals = append(f.Locals, types[g.n(4)])
	}
	for j := range len(f.Params) + len(f.Locals) {
		g.vars = append(g.vars, j)
	}
	for range 1 + g.n(6) {
		g.stmt(4)
	}
	for _, t := range f.Results {
		g.expr(t, 4)
	}
	if g.n(8) == 0 {
		g.emit(Op(0x0f)) // return
	}
}

func (g *generator) emit(b ...[]byte) {
	for _, p := range b {
		g.f.Code = append(g.f.Code, p...)
	}
	g.budget -= len(b)
}

func (g *generator) typeOf(l int) byte {
	if l < len(g.f.Params) {
		return g.f.Params[l]
	}
	return g.f.Locals[l-len(g.f.Params)]
}

func (g *generator) newLocal(t byte) uint64 {
	g.f.Locals = append(g.f.Locals, t)
	return uint64(len(g.f.Params) + len(g.f.Locals) - 1)
}

func (g *generator) constant(t byte) []byte {
	switch t {
	case I32:
		return I32Const([]int32{0, 1, -1, 7, 1 << 30, -1 << 31, int32(g.r.Uint32())}[g.n(7)])
	case I64:
		return I64Const([]int64{0, 1, -1, 9, 1 << 62, -1 << 63, int64(g.r.Uint64())}[g.n(7)])
	case F32:
		return binary.LittleEndian.AppendUint32([]byte{0x43}, uint32(g.n(100))<<20)
	}
	return binary.LittleEndian.AppendUint64([]byte{0x44}, uint64(g.n(100))<<54)
}

func (g *generator) address() {
	g.emit(I32Const(int32([]int{g.n(60000), g.n(64), 65530 + g.n(8)}[min(2, g.n(40)/13)])))
}

var (
	unary     = map[byte][]byte{I32: {0x45, 0x67, 0x68, 0x69, 0xc0, 0xc1}, I64: {0x79, 0x7a, 0x7b, 0xc2, 0xc3, 0xc4}, F32: {0x8b, 0x8c, 0x8d, 0x8e, 0x8f}, F64: {0x99, 0x9a, 0x9b, 0x9c, 0x9d}}
	binaryOps = map[byte][]byte{I32: {0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f, 0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x46, 0x48, 0x4d}, I64: {0x7c, 0x7d, 0x7e, 0x7f, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88}, F32: {0x92, 0x93, 0x94, 0x96, 0x97}, F64: {0xa0, 0xa1, 0xa2, 0xa4, 0xa5}}
	loads     = map[byte][]byte{I32: {0x28, 0x2c, 0x2d, 0x2e, 0x2f}, I64: {0x29, 0x30, 0x33, 0x35}, F32: {0x2a}, F64: {0x2b}}
	stores    = map[byte]byte{I32: 0x36, I64: 0x37, F32: 0x38, F64: 0x39}
)

// convert maps a type to instructions that produce it from another.
var convert = map[byte][][2]byte{
	I32: {{I64, 0xa7}, {F64, 0xaa}, {F32, 0xa8}, {I64, 0x50}}, I64: {{I32, 0xac}, {I32, 0xad}, {F64, 0xb0}},
	F32: {{I32, 0xb2}, {F64, 0xb6}, {I32, 0xbe}}, F64: {{I64, 0xb9}, {F32, 0xbb}, {I64, 0xbf}},
}

// expr emits code that leaves one value of type t.
func (g *generator) expr(t byte, depth int) {
	if depth <= 0 || g.budget <= 0 {
		g.leaf(t)
		return
	}
	d := depth - 1
	switch g.n(14) {
	case 0, 1:
		g.leaf(t)
	case 2, 3:
		g.expr(t, d)
		g.expr(t, d)
		if ops := binaryOps[t]; t == I32 && g.n(4) == 0 {
			g.emit([]byte{0x6a})
		} else {
			g.emit([]byte{ops[g.n(len(ops))]})
		}
	case 4:
		g.expr(t, d)
		g.emit([]byte{unary[t][g.n(len(unary[t]))]})
	case 5:
		c := convert[t][g.n(len(convert[t]))]
		g.expr(c[0], d)
		g.emit([]byte{c[1]})
	case 6:
		g.address()
		g.emit([]byte{loads[t][g.n(len(loads[t]))], 0, byte(g.n(8))})
	case 7: // if … else
		g.expr(I32, d)
		g.emit([]byte{0x04, t})
		g.push(t)
		g.expr(t, d)
		g.emit([]byte{0x05})
		g.expr(t, d)
		g.emit([]byte{0x0b})
		g.pop()
	case 8: // a block left early
		g.emit([]byte{0x02, t})
		g.push(t)
		g.expr(t, d)
		g.expr(I32, d)
		g.emit(Op(0x0d, 0))
		if g.n(3) == 0 {
			g.emit(Op(0x0c, 0))
		}
		g.emit([]byte{0x0b})
		g.pop()
	case 9:
		g.expr(t, d)
		g.expr(t, d)
		g.expr(I32, d)
		g.emit([]byte{0x1b})
	case 10:
		if !g.call(t, d) {
			g.leaf(t)
		}
	case 11:
		if v, ok := g.variable(t); ok {
			g.expr(t, d)
			g.emit(Op(0x22, v))
		} else {
			g.leaf(t)
		}
	case 12: // a saturating conversion
		if t == I32 || t == I64 {
			g.expr(F64, d)
			g.emit([]byte{0xfc, map[byte]byte{I32: 2, I64: 6}[t] + byte(g.n(2))})
		} else {
			g.leaf(t)
		}
	case 13:
		g.special(t, d)
	}
}

func (g *generator) special(t byte, d int) {
	if t != I32 {
		g.leaf(t)
		return
	}
	switch g.n(6) {
	case 0:
		g.emit(Op(0x3f, 0))
	case 1:
		g.emit(I32Const([]int32{0, 1, 2, 70000, -1}[g.n(5)]), Op(0x40, 0))
	case 2: // indirect call
		last := len(g.m.Funcs) - 1
		ti := g.m.TypeIndex([]byte{I32}, []byte{I32})
		if g.at >= last || g.inLoop > 1 {
			g.leaf(t)
			return
		}
		g.expr(I32, d)
		g.emit(I32Const(int32(g.n(9))), Op(0x11, uint64(ti), 0))
	case 3:
		g.emit([]byte{0xfc}, Op(0x10, 0)) // table.size
	case 4:
		g.emit([]byte{0xd0, 0x70}, I32Const(int32(g.n(6))), []byte{0xfc}, Op(0x0f, 0)) // table.grow
	case 5:
		g.emit(I32Const(int32(g.n(9))), Op(0x25, 0), []byte{0xd1}) // is null?
	}
}

func (g *generator) leaf(t byte) {
	if g.n(3) > 0 {
		if v, ok := g.variable(t); ok {
			g.emit(Op(0x20, v))
			return
		}
		for i, gl := range g.m.Globals {
			if gl.Type == t {
				g.emit(Op(0x23, uint64(i)))
				return
			}
		}
	}
	g.emit(g.constant(t))
}

func (g *generator) variable(t byte) (uint64, bool) {
	for range 6 {
		if v := g.vars[g.n(len(g.vars))]; g.typeOf(v) == t {
			return uint64(v), true
		}
	}
	return 0, false
}

func (g *generator) push(t byte) { g.blocks = append(g.blocks, t) }
func (g *generator) pop()        { g.blocks = g.blocks[:len(g.blocks)-1] }

// call emits a call to a later function that has a result of type t, which it
// keeps; 0 = any function, all results dropped.
func (g *generator) call(t byte, d int) bool {
	if g.inLoop > 2 || g.at+1 >= len(g.m.Funcs)-1 {
		return false
	}
	i := g.at + 1 + g.n(len(g.m.Funcs)-1-g.at)
	if i >= len(g.m.Funcs) {
		return false
	}
	f := &g.m.Funcs[i]
	if t != 0 && (len(f.Results) == 0 || f.Results[0] != t) {
		return false
	}
	for _, p := range f.Params {
		g.expr(p, d-1)
	}
	g.emit(Op(0x10, uint64(i)))
	drop := len(f.Results)
	if t != 0 {
		drop--
	}
	for range drop {
		g.emit([]byte{0x1a})
	}
	return true
}

// stmt emits code that leaves nothing.
func (g *generator) stmt(depth int) {
	if depth <= 0 || g.budget <= 0 {
		return
	}
	d := depth - 1
	switch g.n(12) {
	case 0, 1:
		v := g.vars[g.n(len(g.vars))]
		g.expr(g.typeOf(v), d)
		g.emit(Op(0x21, uint64(v)))
	case 2:
		t := types[g.n(4)]
		g.address()
		g.expr(t, d)
		g.emit([]byte{stores[t], 0, byte(g.n(8))})
	case 3:
		i := g.n(len(g.m.Globals) - 1)
		g.expr(g.m.Globals[i].Type, d)
		g.emit(Op(0x24, uint64(i)))
	case 4, 5:
		g.loop(d)
	case 6:
		g.expr(I32, d)
		g.emit([]byte{0x04, 0x40})
		g.push(0)
		g.stmt(d)
		if g.n(2) == 0 {
			g.emit([]byte{0x05})
			g.stmt(d)
		}
		g.emit([]byte{0x0b})
		g.pop()
	case 7:
		g.switchTable(d)
	case 8:
		g.call(0, d)
	case 9:
		g.bulk()
	case 10:
		g.emit([]byte{0x02, 0x40})
		g.push(0)
		g.stmt(d)
		g.expr(I32, d)
		g.emit(Op(0x0d, 0))
		g.stmt(d)
		if g.n(4) == 0 { // leave the function from within
			g.expr(I32, d)
			g.emit([]byte{0x04, 0x40})
			for _, t := range g.f.Results {
				g.expr(t, 1)
			}
			if g.n(2) == 0 {
				g.emit(Op(0x0f))
			} else {
				g.emit(Op(0x0c, uint64(len(g.blocks)+1)))
			}
			g.emit([]byte{0x0b})
		}
		g.emit([]byte{0x0b})
		g.pop()
	case 11:
		if g.n(20) == 0 {
			g.emit(Op(0x00))
		} else {
			g.expr(types[g.n(4)], d)
			g.emit([]byte{0x1a})
		}
	}
}

func (g *generator) loop(d int) {
	c := g.newLocal(I32) // not among vars: nothing else assigns it
	g.emit(I32Const(int32(1+g.n(6))), Op(0x21, c))
	g.emit([]byte{0x03, 0x40})
	g.push(0)
	g.inLoop++
	g.stmt(d)
	if g.n(2) == 0 {
		g.stmt(d)
	}
	g.inLoop--
	g.emit(Op(0x20, c), I32Const(1), Op(0x6b), Op(0x22, c), Op(0x0d, 0))
	g.emit([]byte{0x0b})
	g.pop()
}

func (g *generator) switchTable(d int) {
	n := 1 + g.n(4)
	for range n {
		g.emit([]byte{0x02, 0x40})
		g.push(0)
	}
	g.expr(I32, d)
	targets := []uint64{uint64(g.n(4))}
	for range targets[0] + 1 {
		targets = append(targets, uint64(g.n(n)))
	}
	g.emit(Op(0x0e, targets...))
	for range n {
		g.emit([]byte{0x0b})
		g.pop()
		g.stmt(d)
	}
}

func (g *generator) bulk() {
	at := func() []byte { return I32Const(int32([]int{g.n(30000), g.n(300), 65000 + g.n(1000)}[g.n(3)])) }
	size := I32Const(int32([]int{0, g.n(100), g.n(40000)}[g.n(3)]))
	small := func() []byte { return I32Const(int32(g.n(5))) }
	fc := []byte{0xfc}
	switch g.n(9) {
	case 0:
		g.emit(at(), I32Const(int32(g.n(256))), size, fc, Op(0x0b, 0))
	case 1, 2:
		g.emit(at(), at(), size, fc, Op(0x0a, 0, 0))
	case 3:
		// Only the passive segment: wazero takes active ones for usable
		// after instantiation, where the specification has them dropped.
		g.emit(at(), I32Const(int32(g.n(40))), I32Const(int32(g.n(60))), fc, Op(0x08, 1, 0))
	case 4:
		g.emit(fc, Op(0x09, uint64(g.n(2))))
	case 5:
		g.emit(small(), small(), small(), fc, Op(0x0e, 0, 0))
	case 6:
		g.emit(small(), small(), small(), fc, Op(0x0c, uint64(g.n(2)), 0))
	case 7:
		g.emit(fc, Op(0x0d, uint64(g.n(2))))
	case 8:
		g.emit(small(), small(), Op(0x25, 0), Op(0x26, 0))
	}
}

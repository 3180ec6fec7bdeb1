package wasmfile_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
	. "github.com/sbxhost/sbxhost/plugin/internal/wasmtest"
)

func sample() *Module {
	one := uint32(1)
	return &Module{
		Imports: []Import{{Module: "m", Name: "f", Params: []byte{I32}, Results: []byte{I64}}},
		Funcs: []Func{
			{Export: "start"},
			{Params: []byte{I32, F32}, Results: []byte{I32}, Locals: []byte{I64, I64, F64}, Export: "add", Code: Cat(
				[]byte{0x02, 0x40, 0x03, 0x40}, Op(0x0c, 1), Op(0x0b), Op(0x0b), Op(0x20, 0))},
		},
		Table: []uint32{4, 9}, Memory: []uint32{1, 3},
		Globals: []Global{{Type: I32, Mutable: true, Init: I32Const(5)}},
		Elems:   []Elem{{Offset: 1, Funcs: []uint32{1, 2}}},
		Data:    []Data{{Offset: 16, Bytes: []byte("hello")}, {Offset: -1, Bytes: []byte("x")}}, DataCount: true,
		Start:  &one,
		Custom: map[string][]byte{"note": []byte("payload")},
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	wasm := sample().Bytes()
	m, err := wasmfile.Parse(wasm)
	require.NoError(t, err)
	sum := sha256.Sum256(wasm)
	assert.Equal(t, "sha256:"+hex.EncodeToString(sum[:]), m.Digest())
	assert.Equal(t, []wasmfile.Import{{Module: "m", Name: "f", Type: 0}}, m.Imports)
	assert.Equal(t, "(i32) -> (i64)", m.Types[0].String())
	assert.EqualValues(t, 1, m.Start)
	assert.EqualValues(t, 3, m.FuncCount())
	assert.Equal(t, []wasmfile.Limit{{Min: 4, Max: 9, HasMax: true}}, m.Tables)
	assert.Equal(t, &wasmfile.Limit{Min: 1, Max: 3, HasMax: true}, m.Memory)
	assert.Equal(t, []wasmfile.Element{{Offset: 1, Funcs: []int64{1, 2}}}, m.Elements)
	require.Len(t, m.Data, 2)
	assert.EqualValues(t, 16, m.Data[0].Offset)
	assert.Equal(t, "hello", string(m.Data[0].Bytes))
	assert.True(t, m.Data[1].Passive)
	f := m.Functions[1]
	assert.EqualValues(t, 5, f.Locals)
	assert.EqualValues(t, 2, f.Blocks)
	assert.EqualValues(t, 2, f.Depth)
	typ, ok := m.ExportedFunc("add")
	require.True(t, ok)
	assert.Equal(t, "(i32, f32) -> (i32)", typ.String())
	require.Len(t, m.Customs, 1)
	assert.Equal(t, "payload", string(m.Customs[0].Payload))
}

// Every prefix of a module and a module with any one byte more is refused, and
// never with a panic.
func TestEveryTruncationIsRefused(t *testing.T) {
	t.Parallel()
	m := sample()
	m.Custom = nil // a section boundary would be a module
	wasm := m.Bytes()
	parsed, err := wasmfile.Parse(wasm)
	require.NoError(t, err)
	whole := map[int]bool{8: true}
	for _, s := range parsed.Sections {
		whole[s.Whole.End] = true
	}
	for n := range wasm {
		_, err := wasmfile.Parse(wasm[:n])
		if !whole[n] {
			require.Error(t, err, "first %d bytes", n)
		}
	}
	_, err = wasmfile.Parse(append(wasm, 1))
	require.Error(t, err)
}

func code(c ...[]byte) *Module {
	return &Module{Memory: []uint32{1}, Funcs: []Func{{Code: Cat(c...), Export: "f"}}}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	valid := sample().Bytes()
	patch := func(from, to string) []byte { return bytes.Replace(valid, []byte(from), []byte(to), 1) }
	bytesOf := func(m *Module) []byte { return m.Bytes() }
	raw := func(sections ...[]byte) []byte {
		return Cat(append([][]byte{[]byte("\x00asm\x01\x00\x00\x00")}, sections...)...)
	}
	tests := map[string]struct {
		wasm []byte
		want string
	}{
		"empty":              {nil, "unexpected end"},
		"text":               {[]byte("(module (func))"), "magic"},
		"component":          {[]byte("\x00asm\x0d\x00\x01\x00"), "core module"},
		"other version":      {[]byte("\x00asm\x02\x00\x00\x00"), "version"},
		"unknown section":    {raw([]byte{13, 0}), "unknown section"},
		"sections swapped":   {raw([]byte{2, 1, 0}, []byte{1, 1, 0}), "out of order"},
		"section twice":      {raw([]byte{1, 1, 0}, []byte{1, 1, 0}), "out of order"},
		"section too long":   {raw([]byte{1, 5, 0}), "unexpected end"},
		"bytes left over":    {raw([]byte{1, 2, 0, 0}), "after the section"},
		"overlong number":    {raw([]byte{1, 6, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}), "32 bits"},
		"number too large":   {raw([]byte{1, 5, 0xff, 0xff, 0xff, 0xff, 0x1f}), "32 bits"},
		"huge vector":        {raw([]byte{1, 2, 0xff, 0x0f}), "longer than its section"},
		"name not UTF-8":     {patch("add", "a\xffd"), "UTF-8"},
		"SIMD":               {bytesOf(code([]byte{0xfd, 0x0c})), "SIMD"},
		"atomics":            {bytesOf(code([]byte{0xfe, 0x03, 0})), "threads"},
		"tail call":          {bytesOf(code(Op(0x12, 0))), "tail calls"},
		"exceptions":         {bytesOf(code(Op(0x08, 0))), "exception"},
		"reference call":     {bytesOf(code(Op(0x14, 0))), "not accepted"},
		"function index":     {bytesOf(code(Op(0x10, 1))), "function 1 does not exist"},
		"local index":        {bytesOf(code(Op(0x20, 0), Op(0x1a))), "local 0 does not exist"},
		"global index":       {bytesOf(code(Op(0x23, 0), Op(0x1a))), "global 0 does not exist"},
		"label":              {bytesOf(code(Op(0x0c, 1))), "label 1 does not exist"},
		"type index":         {bytesOf(code(I32Const(0), Op(0x11, 7, 0))), "type 7 does not exist"},
		"table index":        {bytesOf(code(I32Const(0), Op(0x11, 0, 0))), "table 0 does not exist"},
		"else without if":    {bytesOf(code([]byte{0x02, 0x40, 0x05, 0x0b})), "else without if"},
		"code after end":     {bytesOf(code([]byte{0x0b})), "after the end"},
		"missing end":        {bytesOf(code([]byte{0x02, 0x40})), "unexpected end"},
		"second memory":      {bytesOf(code(Op(0x3f, 1))), "more than one memory"},
		"alignment":          {bytesOf(code(I32Const(0), Op(0x28, 3, 0), Op(0x1a))), "alignment"},
		"memory.init":        {bytesOf(code(I32Const(0), I32Const(0), I32Const(0), []byte{0xfc, 8, 0, 0})), "data count"},
		"no memory":          {(&Module{Funcs: []Func{{Code: Cat(Op(0x3f, 0), Op(0x1a))}}}).Bytes(), "has none"},
		"imported memory":    {raw(section(2, Cat([]byte{1, 1, 'm', 1, 'n', 2, 0, 1}))), "not a function"},
		"shared memory":      {raw(section(5, []byte{1, 3, 1, 1})), "shared"},
		"64-bit memory":      {raw(section(5, []byte{1, 4, 1})), "64-bit"},
		"two memories":       {raw(section(5, []byte{2, 0, 1, 0, 1})), "limit on memories"},
		"externref table":    {raw(section(4, []byte{1, 0x6f, 0, 1})), "funcref"},
		"maximum < minimum":  {raw(section(5, []byte{1, 1, 2, 1})), "below"},
		"funcref global":     {(&Module{Globals: []Global{{Type: FuncRef, Mutable: true, Init: []byte{0xd0, 0x70}}}}).Bytes(), "funcref"},
		"global's type":      {(&Module{Globals: []Global{{Type: I32, Init: I64Const(1)}}}).Bytes(), "another type"},
		"start with result":  {(&Module{Funcs: []Func{{Results: []byte{I32}, Code: I32Const(1)}}, Start: new(uint32)}).Bytes(), "start function"},
		"export twice":       {(&Module{Funcs: []Func{{Export: "a"}, {Export: "a"}}}).Bytes(), "repeated"},
		"element too far":    {(&Module{Funcs: []Func{{}}, Table: []uint32{1}, Elems: []Elem{{Offset: 1, Funcs: []uint32{0}}}}).Bytes(), "does not fit"},
		"data too far":       {(&Module{Memory: []uint32{1}, Data: []Data{{Offset: 65535, Bytes: []byte("ab")}}}).Bytes(), "does not fit"},
		"data count differs": {raw(section(5, []byte{1, 0, 1}), section(12, []byte{2}), section(11, []byte{1, 1, 0})), "data count"},
		"immutable global":   {(&Module{Globals: []Global{{Type: I32, Init: I32Const(1)}}, Funcs: []Func{{Code: Cat(I32Const(1), Op(0x24, 0))}}}).Bytes(), "immutable"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := wasmfile.Parse(tt.wasm)
			require.Error(t, err)
			assert.Contains(t, err.Error(), tt.want)
			assert.Contains(t, err.Error(), "offset")
		})
	}
}

func section(id byte, body []byte) []byte {
	return Cat([]byte{id}, U(nil, uint64(len(body))), body)
}

// bombs are small modules that would keep a compiler busy for seconds to
// minutes, or take its memory.
func bombs() map[string]*Module {
	params := bytes.Repeat([]byte{I32}, 60)
	many := &Module{}
	for range 40 {
		many.Funcs = append(many.Funcs, Func{Params: []byte{I32}, Locals: bytes.Repeat([]byte{I32}, 80), Code: NestedBlocks(80, 250)})
	}
	nine := &Module{}
	for range 9 {
		nine.Funcs = append(nine.Funcs, CompileBomb(100, 450).Funcs[0])
		nine.Funcs[len(nine.Funcs)-1].Export = ""
	}
	manyFlat := &Module{}
	for range 300 {
		manyFlat.Funcs = append(manyFlat.Funcs, Func{Params: []byte{I32}, Locals: bytes.Repeat([]byte{I32}, 100), Code: FlatBlocks(100, 200)})
	}
	flat := CompileBomb(3, 1)
	flat.Funcs[0].Code = FlatBlocks(3, 16000)
	table := &Module{Funcs: []Func{{Params: []byte{I32}, Code: Cat([]byte{0x02, 0x40}, Op(0x20, 0), Op(0x0e, 100000), make([]byte, 100001), Op(0x0b))}}}
	tables := &Module{}
	var switches []byte
	for range 100 {
		switches = append(switches, Cat([]byte{0x02, 0x40}, Op(0x20, 0), Op(0x0e, 1000), make([]byte, 1001), Op(0x0b))...)
	}
	tables.Funcs = []Func{{Params: []byte{I32}, Code: switches}}
	wide := &Module{}
	ti := wide.TypeIndex(nil, bytes.Repeat([]byte{I32}, 16))
	code := bytes.Repeat(Op(0x20, 0), 16)
	for range 4000 {
		code = append(S(append(code, 0x02), int64(ti)), Cat(bytes.Repeat(I32Const(0), 16), Op(0x20, 0), Op(0x0d, 0), Op(0x0b))...)
	}
	wide.Funcs = []Func{{Params: []byte{I32}, Code: code}}
	return map[string]*Module{
		"100 locals × 800 nested blocks": CompileBomb(100, 800),
		"200 locals × 800 nested blocks": CompileBomb(200, 800),
		"500 locals × 800 nested blocks": CompileBomb(500, 800),
		"31 KB: 1,000 × 1,100 blocks":    CompileBomb(1000, 1100),
		"107 KB: 20 functions":           many,
		"300 functions in sequence":      manyFlat,
		"16,000 ifs in sequence":         flat,
		"50,000 locals":                  {Funcs: []Func{{Locals: bytes.Repeat([]byte{I64}, 50000)}}},
		"br_table of 100,000":            table,
		"100 br_tables of 1,000":         tables,
		"blocks of 16 values":            wide,
		"nesting of 50,000":              {Funcs: []Func{{Code: Cat(bytes.Repeat([]byte{0x02, 0x40}, 50000), bytes.Repeat([]byte{0x0b}, 50000))}}},
		"one function of 400 KB":         {Funcs: []Func{{Code: bytes.Repeat([]byte{0x01}, 400_000)}}},
		"table of 100,000,000":           TableBomb(100_000_000),
		"memory of 65,536 pages":         {Memory: []uint32{65536}},
		"5,000 globals":                  {Globals: make5000()},
		"type of 1,000 parameters":       {Funcs: []Func{{Params: bytes.Repeat(params, 17)}}},
		"passive segment of 2 MiB":       {Memory: []uint32{1}, Data: []Data{{Offset: -1, Bytes: make([]byte, 2<<20)}}},
		"element segments of 200,000":    {Funcs: []Func{{}}, Table: []uint32{65536}, Elems: []Elem{{Offset: -1, Funcs: make([]uint32, 200_000)}}},
		"200,000 empty data segments":    {Memory: []uint32{1}, Data: make([]Data, 200_000)},
		"70,000 functions":               {Funcs: make([]Func, 70_000)},
		"module of 17 MiB":               {Custom: map[string][]byte{"x": make([]byte, 17<<20)}},
	}
}

func make5000() []Global {
	g := make([]Global, 5000)
	for i := range g {
		g[i] = Global{Type: I32, Init: I32Const(0)}
	}
	return g
}

// Not parallel: it measures time; the best of three runs counts.
func TestBombsAreRefusedAtOnce(t *testing.T) {
	for name, m := range bombs() {
		t.Run(name, func(t *testing.T) {
			wasm := m.Bytes()
			best := time.Hour
			for range 3 {
				start := time.Now()
				_, err := wasmfile.Parse(wasm)
				best = min(best, time.Since(start))
				var limit *wasmfile.LimitError
				require.ErrorAs(t, err, &limit)
				require.Greater(t, limit.Got, limit.Limit)
			}
			assert.Less(t, best, time.Second) // 2 ms when nothing else runs
			t.Logf("%d bytes refused in %v", len(wasm), best)
		})
	}
}

func TestCustomSection(t *testing.T) {
	t.Parallel()
	wasm := sample().Bytes()
	_, ok, err := wasmfile.CustomSection(wasm, wasmfile.PluginSection)
	require.NoError(t, err)
	assert.False(t, ok)

	for _, payload := range [][]byte{[]byte(`{"abi":"sbx_v1"}`), {}, []byte("again, and longer than before")} {
		wasm, err = wasmfile.WithCustomSection(wasm, wasmfile.PluginSection, payload)
		require.NoError(t, err)
		got, ok, err := wasmfile.CustomSection(wasm, wasmfile.PluginSection)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, string(payload), string(got))
	}
	m, err := wasmfile.Parse(wasm)
	require.NoError(t, err)
	assert.Len(t, m.Customs, 2, "the other section is kept")

	doubled := append(bytes.Clone(wasm), section(0, Cat([]byte{14}, []byte(wasmfile.PluginSection), []byte("other")))...)
	_, _, err = wasmfile.CustomSection(doubled, wasmfile.PluginSection)
	require.ErrorContains(t, err, "repeated")

	removed, err := wasmfile.WithCustomSection(wasm, wasmfile.PluginSection, nil)
	require.NoError(t, err)
	assert.Equal(t, sample().Bytes(), removed)

	_, err = wasmfile.WithCustomSection([]byte("not wasm"), "x", nil)
	require.Error(t, err)
}

func FuzzParse(f *testing.F) {
	f.Add(sample().Bytes())
	f.Add([]byte("\x00asm\x01\x00\x00\x00"))
	f.Add([]byte{})
	for seed := range uint64(6) {
		f.Add(Generate(rand.New(rand.NewPCG(seed, 1))).Bytes())
	}
	f.Add(CallTree(40).Bytes())
	f.Add(TableBomb(100_000_000).Bytes())
	f.Fuzz(func(t *testing.T, wasm []byte) {
		before := bytes.Clone(wasm)
		m, err := wasmfile.Parse(wasm)
		if !bytes.Equal(before, wasm) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			return
		}
		for i := range m.Functions {
			fn := &m.Functions[i]
			n, at := uint32(0), fn.Code.Start
			m.Walk(fn, func(in *wasmfile.Instr) {
				if in.Start != at || in.End <= in.Start {
					t.Fatal("instructions do not join up")
				}
				at = in.End
				n++
			})
			if n != fn.Instructions || at != fn.Code.End {
				t.Fatalf("walked %d instructions of %d", n, fn.Instructions)
			}
		}
		packed, err := wasmfile.WithCustomSection(wasm, wasmfile.PluginSection, []byte("p"))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok, err := wasmfile.CustomSection(packed, wasmfile.PluginSection); !ok || err != nil || string(got) != "p" {
			t.Fatal("packed section is not found")
		}
	})
}

package engine_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin/internal/engine"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
	. "github.com/sbxhost/sbxhost/plugin/internal/wasmtest"
)

const (
	scribblePages = 40 // of 64 KiB
	scribbleSize  = scribblePages << 16
	hopFlag       = 1 << 16
)

// scribbler is filled with a pattern when it is initialised. A call sums up every
// word of its memory and its global, then writes: into every n-th page of 4 KiB
// where n is the low half of the operation, into its last word, and into the
// global; nothing if n is 0. With hopFlag it waits in the host before it writes.
// Each call that starts clean returns the same.
func scribbler() *Module {
	const op, at, sum = 0, 1, 2
	get := func(l uint64) []byte { return Op(0x20, l) }
	loop := func(step, body []byte) []byte {
		return Cat(I32Const(0), Op(0x21, at), []byte{0x03, 0x40}, body,
			get(at), step, Op(0x6a), Op(0x22, at), I32Const(scribbleSize), Op(0x49), Op(0x0d, 0), Op(0x0b))
	}
	n := Cat(get(op), I32Const(0xffff), Op(0x71))
	load, store := Op(0x29, 3, 0), Op(0x37, 3, 0)
	code := Cat(
		Op(0x23, 0), Op(0xac), Op(0x21, sum),
		loop(I32Const(8), Cat(get(sum), I64Const(31), Op(0x7e), get(at), load, Op(0x7c), Op(0x21, sum))),
		get(op), I32Const(hopFlag), Op(0x71), []byte{0x04, 0x40}, Op(0x10, 0), Op(0x1a), Op(0x0b),
		n, []byte{0x04, 0x40},
		loop(Cat(n, I32Const(12), Op(0x74)), Cat(get(at), get(at), load, I64Const(77), Op(0x7c), store)),
		I32Const(scribbleSize-8), I64Const(-1), store,
		Op(0x23, 0), I32Const(1), Op(0x6a), Op(0x24, 0),
		Op(0x0b),
		get(sum), Op(0xa7),
	)
	fill := Cat(I32Const(0), Op(0x21, 0), []byte{0x03, 0x40},
		get(0), get(0), I32Const(-1640531527), Op(0x6c), Op(0x36, 2, 0),
		get(0), I32Const(4), Op(0x6a), Op(0x22, 0), I32Const(scribbleSize), Op(0x49), Op(0x0d, 0), Op(0x0b))
	m := withEntry(code, Func{Locals: []byte{I32}, Code: fill, Export: "_initialize"})
	m.Memory = []uint32{scribblePages, scribblePages}
	m.Globals = []Global{{Type: I32, Mutable: true, Init: I32Const(10)}}
	m.Imports = []Import{{Module: "test", Name: "hop", Results: []byte{I32}}}
	return m
}

// Whatever a call writes, wherever, and however its pages are put back (copied
// when they are few, in the background or at once, dropped when they are many or
// when they were not used), the next one finds nothing of it.
func TestNoPageSurvives(t *testing.T) {
	t.Parallel()
	hop := engine.Func{Name: "hop", Type: wasmfile.FuncType{Results: i32s(1)}, Fn: func(c *engine.Call, stack []uint64) error {
		_ = c.Context() // as whoever waits does
		done := make(chan struct{})
		go close(done)
		<-done
		runtime.Gosched()
		stack[0] = 0
		return nil
	}}
	e := newEngine(t, engine.Config{HostModules: append(hostModules(), engine.HostModule{Name: "test", Funcs: []engine.Func{hop}})})
	for _, tt := range []struct {
		name string
		max  int
	}{{"one instance", 1}, {"several", 4}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := load(t, e, scribbler().Bytes(), engine.Options{MaxInstances: tt.max})
			defer p.Close()
			clean, err := p.Call(context.Background(), 0, nil)
			require.NoError(t, err)
			// All pages, none, few, others, so few for so long that the rest is
			// given back, and again; then by chance.
			ops := []int32{1, 0, 0, 1, 1, 7, 0, 160, 160, 160, 160, 160, 160, 160, 3, 160, 200, 639, 160, 1, 160 | hopFlag, 160, 161 | hopFlag, 0}
			r := rand.New(rand.NewPCG(3, 4))
			for range 100 {
				op := []int32{0, 1, 5, 64, 100, 160, 300, 639}[r.IntN(8)]
				for range 1 + r.IntN(4) {
					ops = append(ops, op|[]int32{0, 0, hopFlag}[r.IntN(3)])
				}
			}
			for i, op := range ops {
				res, err := p.Call(context.Background(), op, nil)
				require.NoError(t, err)
				require.Equal(t, clean.Code, res.Code, "call %d", i)
			}
			assert.Zero(t, p.Discarded())
		})
	}
}

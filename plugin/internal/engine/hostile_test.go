package engine_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin/internal/engine"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
	. "github.com/sbxhost/sbxhost/plugin/internal/wasmtest"
)

const entry = "sbx_v1_call"

// withEntry makes a module whose entry function runs the code; other functions
// come after it. Function 0 is the entry if there are no imports.
func withEntry(code []byte, more ...Func) *Module {
	return &Module{Memory: []uint32{1}, Funcs: append([]Func{{
		Params: []byte{I32}, Results: []byte{I32}, Locals: []byte{I32, I64}, Code: code, Export: entry,
	}}, more...)}
}

var zero = I32Const(0)

// forever repeats code.
func forever(code []byte) []byte {
	return Cat([]byte{0x03, 0x40}, code, Op(0x0c, 0), Op(0x0b), zero)
}

var (
	memoryFill = append([]byte{0xfc}, Op(0x0b, 0)...)
	memoryCopy = append([]byte{0xfc}, Op(0x0a, 0, 0)...)
	drop       = Op(0x1a)
)

// callTree calls 2^40 functions without any loop.
func callTree() *Module {
	m := withEntry(Op(0x10, 1))
	for _, f := range CallTree(40).Funcs {
		m.Funcs = append(m.Funcs, Func{Results: f.Results})
	}
	for i := 1; i < len(m.Funcs)-1; i++ {
		m.Funcs[i].Code = Cat(Op(0x10, uint64(i+1)), Op(0x10, uint64(i+1)), Op(0x6a))
	}
	m.Funcs[len(m.Funcs)-1].Code = I32Const(1)
	return m
}

// spinners are modules whose entry function would run for minutes or for ever.
func spinners() map[string]*Module {
	big := uint64(400) // pages
	grow := func(m *Module) *Module { m.Memory = []uint32{uint32(big)}; return m }
	table := withEntry(forever(Cat(zero, []byte{0xd0, 0x70}, I32Const(65536), []byte{0xfc}, Op(0x11, 0))))
	table.Table = []uint32{65536}
	tableCopy := withEntry(forever(Cat(zero, I32Const(0), I32Const(65536), []byte{0xfc}, Op(0x0e, 0, 0))))
	tableCopy.Table = []uint32{65536}
	tableGrow := withEntry(forever(Cat([]byte{0xd0, 0x70}, I32Const(1000), []byte{0xfc}, Op(0x0f, 0), drop)))
	tableGrow.Table = []uint32{1}
	initLoop := withEntry(forever(Cat(zero, zero, I32Const(60000), []byte{0xfc}, Op(0x08, 0, 0))))
	initLoop.Data, initLoop.DataCount = []Data{{Offset: -1, Bytes: make([]byte, 60000)}}, true
	indirect := withEntry(forever(Cat(zero, Op(0x11, 0, 0))), Func{Code: bytes.Repeat(Op(0x01), 100)})
	indirect.TypeIndex(nil, nil)
	indirect.Table, indirect.Elems = []uint32{1}, []Elem{{Offset: 0, Funcs: []uint32{1}}}
	straight := withEntry(forever(bytes.Repeat(Cat(Op(0x20, 2), I64Const(3), Op(0x7f), Op(0x21, 2)), 10000)))
	straight.Funcs[0].Code = Cat(I64Const(-1), Op(0x21, 2), straight.Funcs[0].Code)
	// One cache miss after another. The mask keeps all four bytes of every load
	// within memory: without its last two bits the generator's 903,329th number
	// would end in a trap, if the machine gets there within the deadline.
	random := withEntry(forever(Cat(
		Op(0x20, 0), I32Const(1664525), Op(0x6c), I32Const(1013904223), Op(0x6a), Op(0x22, 0),
		I32Const(25<<20-4), Op(0x71), Op(0x28, 0, 0), Op(0x20, 0), Op(0x6a), Op(0x21, 0))))
	return map[string]*Module{
		"endless loop":         withEntry(Cat(Spin(), zero)),
		"call tree":            callTree(),
		"two loops, br_if":     withEntry(forever(Cat([]byte{0x03, 0x40}, Op(0x20, 0), I32Const(1), Op(0x6a), Op(0x22, 0), I32Const(1000), Op(0x49), Op(0x0d, 0), Op(0x0b)))),
		"br_table":             withEntry(Cat([]byte{0x03, 0x40, 0x02, 0x40, 0x02, 0x40}, Op(0x20, 0), Op(0x0e, 2, 0, 1, 2), Op(0x0b), Op(0x0b), Op(0x0c, 0), Op(0x0b), zero)),
		"memory.fill":          grow(withEntry(forever(Cat(zero, I32Const(1), I32Const(int32(big<<16)), memoryFill)))),
		"memory.copy":          grow(withEntry(forever(Cat(I32Const(8), zero, I32Const(int32(big<<16)-8), memoryCopy)))),
		"memory.copy overlap":  grow(withEntry(forever(Cat(zero, I32Const(1), I32Const(int32(big<<16)-1), memoryCopy)))),
		"memory.init":          initLoop,
		"memory.grow":          withEntry(forever(Cat(I32Const(1), Op(0x40, 0), drop))),
		"memory.grow too much": withEntry(forever(Cat(I32Const(0x10000), Op(0x40, 0), drop))),
		"table.fill":           table,
		"table.copy":           tableCopy,
		"table.grow":           tableGrow,
		"indirect calls":       indirect,
		"long straight code":   straight,
		"cache misses":         grow(random),
		"host calls": func() *Module {
			m := withEntry(forever(Cat(Op(0x10, 0), drop)))
			m.Imports = []Import{{Module: "sbx_v1", Name: "in_len", Results: []byte{I32}}}
			return m
		}(),
	}
}

// longestGC runs the collector over and over until stop and returns the longest
// time one run took.
func longestGC(stop <-chan struct{}) <-chan time.Duration {
	out := make(chan time.Duration, 1)
	go func() {
		var longest time.Duration
		for {
			start := time.Now()
			runtime.GC()
			longest = max(longest, time.Since(start))
			select {
			case <-stop:
				out <- longest
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return out
}

// Not parallel: it measures time. Other programs on the machine delay the
// collector too, so the best of several runs counts, and beside each run a
// control tells what the machine gives to a loop in Go, which can be preempted
// anywhere.
func TestDeadlineStopsEverySpinner(t *testing.T) {
	e := newEngine(t, engine.Config{})
	for name, m := range spinners() {
		t.Run(name, func(t *testing.T) {
			p := load(t, e, m.Bytes(), engine.Options{Fuel: 1 << 50})
			defer p.Close()
			var took, pause, control, maxTook, maxPause time.Duration
			// What else runs may keep the machine for seconds.
			for tries, end := 0, time.Now().Add(time.Minute); tries < 10 || time.Now().Before(end); tries++ {
				control = controlGC()
				took, pause = stopSpinner(t, p)
				maxTook, maxPause = 250*time.Millisecond*slack+2*control, 50*time.Millisecond*slack+2*control
				if took < maxTook && pause < maxPause {
					break
				}
			}
			t.Logf("stopped after %v, longest GC %v (control %v)", took, pause, control)
			assert.Less(t, took, maxTook)
			assert.Less(t, pause, maxPause)
		})
	}
}

// controlGC is the longest garbage collection while a goroutine computes in Go.
func controlGC() time.Duration {
	stop := make(chan struct{})
	gc := longestGC(stop)
	n := 0
	for start := time.Now(); time.Since(start) < 100*time.Millisecond; {
		for i := range 10000 {
			n += i
		}
	}
	close(stop)
	runtime.KeepAlive(n)
	return <-gc
}

// stopSpinner calls with a deadline of 100 ms and returns how long the call and
// the longest garbage collection meanwhile took.
func stopSpinner(t *testing.T, p *engine.Pool) (took, pause time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	stop := make(chan struct{})
	gc := longestGC(stop)
	start := time.Now()
	_, err := p.Call(ctx, 0, &exchange{})
	took = time.Since(start)
	close(stop)
	pause = <-gc
	var deadline *engine.Deadline
	require.ErrorAs(t, err, &deadline)
	return took, pause
}

func TestFuelStopsEverySpinner(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{})
	for name, m := range spinners() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := load(t, e, m.Bytes(), engine.Options{Fuel: 3_000_000})
			defer p.Close()
			res, err := p.Call(context.Background(), 0, &exchange{})
			var fuel *engine.FuelExhausted
			require.ErrorAs(t, err, &fuel)
			assert.EqualValues(t, 3_000_000, fuel.Budget)
			again, _ := p.Call(context.Background(), 0, &exchange{})
			assert.Equal(t, res.Fuel, again.Fuel, "fuel is deterministic")
		})
	}
}

func TestSpinningInitialisation(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{})
	start := withEntry(zero, Func{Code: Spin()})
	one := uint32(1)
	start.Start = &one
	for name, m := range map[string]*Module{
		"start":       start,
		"_initialize": withEntry(zero, Func{Code: Spin(), Export: "_initialize"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parsed, err := wasmfile.Parse(m.Bytes())
			require.NoError(t, err)
			var init *engine.InitError
			var fuel *engine.FuelExhausted
			var deadline *engine.Deadline
			_, err = e.Load(context.Background(), parsed, engine.Options{InitFuel: 1 << 20, InitTimeout: long})
			require.ErrorAs(t, err, &init)
			require.ErrorAs(t, err, &fuel)
			begin := time.Now()
			_, err = e.Load(context.Background(), parsed, engine.Options{InitFuel: 1 << 50, InitTimeout: 100 * time.Millisecond})
			require.ErrorAs(t, err, &init)
			require.ErrorAs(t, err, &deadline)
			assert.Less(t, time.Since(begin), long/2) // the fuel is for days
		})
	}
}

func TestDeepRecursionIsALimitNotMemory(t *testing.T) {
	e := newEngine(t, engine.Config{})
	direct := withEntry(Cat(Op(0x20, 0), I32Const(1), Op(0x6a), Op(0x10, 0), I32Const(1), Op(0x6a)))
	mutual := withEntry(Op(0x10, 1), Func{Results: []byte{I32}, Code: Op(0x10, 2)}, Func{Results: []byte{I32}, Code: Cat(Op(0x10, 1), I32Const(1), Op(0x6a))})
	indirect := withEntry(Cat(Op(0x20, 0), I32Const(0), Op(0x11, 0, 0), I32Const(1), Op(0x6a)))
	indirect.TypeIndex([]byte{I32}, []byte{I32})
	indirect.Table, indirect.Elems = []uint32{1}, []Elem{{Offset: 0, Funcs: []uint32{0}}}
	// Many values are live across the call: large frames.
	var load []byte
	for i := range 2000 {
		load = append(load, Cat(zero, Op(0x28, 0, uint64(i*4)))...)
	}
	fat := withEntry(Cat(load, Op(0x20, 0), Op(0x10, 0), bytes.Repeat(Op(0x6a), 2000)))
	for name, m := range map[string]*Module{"direct": direct, "mutual": mutual, "indirect": indirect, "large frames": fat} {
		t.Run(name, func(t *testing.T) {
			p := load2(t, e, m)
			defer p.Close()
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			_, err := p.Call(context.Background(), 0, nil)
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			var limit *engine.LimitExceeded
			require.ErrorAs(t, err, &limit)
			assert.Contains(t, limit.Which, "call depth")
			t.Logf("%v, allocated %d KiB", took, (after.TotalAlloc-before.TotalAlloc)>>10)
			// The stack doubles as it grows, so this is all of its sizes.
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(96<<20))
		})
	}
}

func load2(t testing.TB, e *engine.Engine, m *Module) *engine.Pool {
	t.Helper()
	return load(t, e, m.Bytes(), engine.Options{})
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{})
	// Grows by as much as asked and returns the result.
	m := withEntry(Cat(Op(0x20, 0), Op(0x40, 0)))
	p := load(t, e, m.Bytes(), engine.Options{MemoryPages: 16})
	for _, tt := range []struct{ delta, want int32 }{{0, 1}, {15, 1}, {16, -1}, {0x7fffffff, -1}, {-1, -1}} {
		res, err := p.Call(context.Background(), tt.delta, nil)
		require.NoError(t, err)
		assert.Equal(t, tt.want, res.Code, "memory.grow(%d)", tt.delta)
	}
	m.Memory = []uint32{17}
	parsed, err := wasmfile.Parse(m.Bytes())
	require.NoError(t, err)
	_, err = e.Load(context.Background(), parsed, engine.Options{MemoryPages: 16})
	var limit *wasmfile.LimitError
	require.ErrorAs(t, err, &limit)
	assert.Equal(t, "memory pages", limit.Which)
}

func TestTraps(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{})
	for kind, code := range map[string][]byte{
		"unreachable":                   Op(0x00),
		"integer divide by zero":        Cat(I32Const(1), zero, Op(0x6d)),
		"integer overflow":              Cat(I32Const(-1<<31), I32Const(-1), Op(0x6d)),
		"out of bounds memory access":   Cat(I32Const(65535), Op(0x28, 0, 0)),
		"invalid conversion to integer": Cat([]byte{0x43, 0, 0, 0xc0, 0x7f}, Op(0xa8)),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := load2(t, e, withEntry(code))
			for range 2 {
				_, err := p.Call(context.Background(), 0, nil)
				var trap *engine.Trap
				require.ErrorAs(t, err, &trap)
				assert.Equal(t, kind, trap.Kind)
			}
			assert.EqualValues(t, 2, p.Discarded(), "an instance that trapped is discarded")
		})
	}
}

func TestHostPanicIsTheHostsFault(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{})
	m := withEntry(Op(0x10, 0))
	m.Imports = []Import{{Module: "sbx_v1", Name: "boom", Results: []byte{I32}}}
	p := load2(t, e, m)
	_, err := p.Call(context.Background(), 0, nil)
	var bug *engine.HostBug
	require.ErrorAs(t, err, &bug)
	assert.Equal(t, "sbx_v1.boom", bug.Function)
	assert.NotEmpty(t, bug.Stack)
	assert.NotContains(t, err.Error(), "canary-7f3a")
}

func TestABIViolations(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{})
	for name, args := range map[string][2]int32{
		"pointer near 2^32": {-1, 1}, "length near 2^32": {0, -1}, "both": {-8, -8}, "end beyond memory": {65535, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := withEntry(Cat(I32Const(args[0]), I32Const(args[1]), Op(0x10, 0)))
			m.Imports = []Import{{Module: "sbx_v1", Name: "out_write", Params: []byte{I32, I32}, Results: []byte{I32}}}
			_, err := load2(t, e, m).Call(context.Background(), 0, &exchange{})
			var violation *engine.ABIViolation
			require.ErrorAs(t, err, &violation)
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{})
	// A start function that would trap proves that nothing runs.
	trap := func(m *Module) *Module {
		m.Funcs = append(m.Funcs, Func{Code: Op(0x00)})
		n := uint32(len(m.Imports) + len(m.Funcs) - 1)
		m.Start = &n
		return m
	}
	noMemory := withEntry(zero)
	noMemory.Memory = nil
	command := &Module{Memory: []uint32{1}, Funcs: []Func{{Export: "_start"}}}
	imports := withEntry(zero)
	imports.Imports = []Import{
		{Module: "env", Name: "abort"}, {Module: "sbx_v1", Name: "in_len"}, {Module: "sbx_v1", Name: "steal", Results: []byte{I32}},
		{Module: "sbx_v2", Name: "in_len", Results: []byte{I32}}, {Module: "sbx_meter", Name: "refill", Params: []byte{I64}, Results: []byte{I64}},
	}
	reserved := withEntry(zero)
	reserved.Globals = []Global{{Type: I64, Mutable: true, Init: I64Const(1), Export: "sbx_meter.counter"}}
	wrongType := &Module{Memory: []uint32{1}, Funcs: []Func{{Export: entry}}}
	illTyped := withEntry(I64Const(0))
	tests := map[string]struct {
		m    *Module
		want string
	}{
		"no memory":      {noMemory, `memory as "memory"`},
		"command":        {command, "build it as a reactor"},
		"wrong type":     {wrongType, "(i32) -> (i32)"},
		"reserved name":  {reserved, "reserved name"},
		"wrong operands": {illTyped, "not valid"},
		"all unmet imports at once": {imports, "needs 5 imports that the host does not offer:\n" +
			"  env.abort () -> (): AssemblyScript's abort: compile with --use abort=\n" +
			"  sbx_v1.in_len () -> (): is offered with another type, () -> (i32)\n" +
			"  sbx_v1.steal () -> (i32): unknown function of a known module\n" +
			"  sbx_v2.in_len () -> (i32)\n" +
			"  sbx_meter.refill (i64) -> (i64)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := wasmfile.Parse(trap(tt.m).Bytes())
			require.NoError(t, err)
			_, err = e.Load(context.Background(), m, engine.Options{})
			require.Error(t, err)
			assert.Contains(t, err.Error(), tt.want)
			var trapped *engine.Trap
			assert.False(t, errors.As(err, &trapped), "something of the module ran")
		})
	}
}

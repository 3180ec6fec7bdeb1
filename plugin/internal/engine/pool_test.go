package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin/internal/cache"
	"github.com/sbxhost/sbxhost/plugin/internal/engine"
	"github.com/sbxhost/sbxhost/plugin/internal/snapshot"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
	. "github.com/sbxhost/sbxhost/plugin/internal/wasmtest"
)

// stateful counts its calls in a global, in memory, in data and in pages of its
// own growth; it returns the sum of all, which is the same for every call that
// starts clean.
func stateful() *Module {
	bump := func(addr int32) []byte { // memory[addr]++, and add it to local 1
		return Cat(I32Const(addr), I32Const(addr), Op(0x28, 2, 0), I32Const(1), Op(0x6a), Op(0x22, 1), Op(0x36, 2, 0), Op(0x20, 1))
	}
	m := withEntry(Cat(
		Op(0x23, 0), I32Const(1), Op(0x6a), Op(0x24, 0), Op(0x23, 0),
		bump(100), Op(0x6a), bump(40000), Op(0x6a), bump(65000), Op(0x6a),
		Op(0x20, 0), []byte{0x04, 0x40}, Op(0x20, 0), Op(0x40, 0), Op(0x1a), Op(0x0b),
		Op(0x3f, 0), Op(0x6a),
	))
	m.Memory = []uint32{1, 8}
	m.Globals = []Global{{Type: I32, Mutable: true, Init: I32Const(10)}}
	m.Data = []Data{{Offset: 100, Bytes: []byte{50, 0, 0, 0}}}
	return m
}

func TestStateIsolation(t *testing.T) {
	t.Parallel()
	const want = 11 + 51 + 1 + 1 + 1
	for _, tt := range []struct {
		name string
		opts engine.Options
	}{{"snapshot", engine.Options{}}, {"fresh", engine.Options{NoSnapshot: true}}, {"one instance", engine.Options{MaxInstances: 1}}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t, engine.Config{})
			p := load(t, e, stateful().Bytes(), tt.opts)
			assert.Equal(t, snapshot.Supported && !tt.opts.NoSnapshot, p.Snapshot())
			for i := range 30 {
				grow := int32(i % 3)
				res, err := p.Call(context.Background(), grow, nil)
				require.NoError(t, err)
				require.Equal(t, want+grow, res.Code)
			}
		})
	}
}

// What a snapshot cannot restore must lead to a new instance.
func TestTablesAndSegmentsDoNotSurvive(t *testing.T) {
	t.Parallel()
	fc := []byte{0xfc}
	isNull := Cat(I32Const(0), Op(0x25, 0), Op(0xd1))
	tests := map[string]*Module{
		"table.set":  withEntry(Cat(isNull, I32Const(0), []byte{0xd0, 0x70}, Op(0x26, 0))),
		"table.fill": withEntry(Cat(isNull, I32Const(0), []byte{0xd0, 0x70}, I32Const(1), fc, Op(0x11, 0))),
		"table.copy": withEntry(Cat(isNull, I32Const(0), I32Const(1), I32Const(1), fc, Op(0x0e, 0, 0))),
		"table.init": withEntry(Cat(I32Const(2), Op(0x25, 0), Op(0xd1), Op(0x45), I32Const(2), I32Const(0), I32Const(1), fc, Op(0x0c, 1, 0))),
		"table.grow": withEntry(Cat(fc, Op(0x10, 0), I32Const(4), Op(0x6b), []byte{0xd0, 0x70}, I32Const(1), fc, Op(0x0f, 0), Op(0x1a))),
		"elem.drop":  withEntry(Cat(I32Const(2), I32Const(0), I32Const(1), fc, Op(0x0c, 1, 0), fc, Op(0x0d, 1), I32Const(0))),
		"data.drop":  withEntry(Cat(I32Const(0), I32Const(0), I32Const(1), fc, Op(0x08, 0, 0), fc, Op(0x09, 0), I32Const(0))),
	}
	for name, m := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m.Table = []uint32{4, 8}
			m.Elems = []Elem{{Offset: 0, Funcs: []uint32{0}}, {Offset: -1, Funcs: []uint32{0}}}
			m.Data, m.DataCount = []Data{{Offset: -1, Bytes: []byte("x")}}, true
			e := newEngine(t, engine.Config{})
			p := load2(t, e, m)
			for range 5 {
				res, err := p.Call(context.Background(), 0, nil)
				require.NoError(t, err)
				require.Zero(t, res.Code)
			}
			assert.EqualValues(t, 5, p.Discarded())
		})
	}
}

// A module that writes its table while it is initialised cannot be snapshotted,
// but works.
func TestDirtyInitialisationFallsBack(t *testing.T) {
	t.Parallel()
	m := withEntry(Cat(I32Const(0), Op(0x25, 0), Op(0xd1)), Func{Export: "_initialize", Code: Cat(I32Const(0), Op(0xd2, 0), Op(0x26, 0))})
	m.Table = []uint32{4}
	e := newEngine(t, engine.Config{})
	p := load2(t, e, m)
	assert.False(t, p.Snapshot())
	for range 5 {
		res, err := p.Call(context.Background(), 0, nil)
		require.NoError(t, err)
		require.Zero(t, res.Code, "the table entry of the initialisation is there")
	}
}

func TestWarmupIsPartOfTheSnapshot(t *testing.T) {
	t.Parallel()
	if !snapshot.Supported {
		t.Skip("no snapshots on this system")
	}
	e := newEngine(t, engine.Config{})
	p := load(t, e, stateful().Bytes(), engine.Options{Warmup: []engine.Warmup{{}, {Op: 2}}})
	for range 3 {
		res, err := p.Call(context.Background(), 0, nil)
		require.NoError(t, err)
		assert.EqualValues(t, 13+53+3+3+3, res.Code)
	}
}

// A warm-up that fails, whichever way, leaves nothing behind, not even of those
// before it.
func TestFailedWarmupLeavesNothing(t *testing.T) {
	t.Parallel()
	on := func(op int32, code []byte) []byte {
		return Cat(Op(0x20, 0), I32Const(op), Op(0x46), []byte{0x04, 0x40}, code, Op(0x0b))
	}
	m := stateful()
	m.Table = []uint32{4}
	m.Funcs[0].Code = Cat(on(90, Op(0x00)), on(91, Spin()), on(92, Cat(I32Const(0), []byte{0xd0, 0x70}, Op(0x26, 0))), m.Funcs[0].Code)
	e := newEngine(t, engine.Config{})
	for name, op := range map[string]int32{"trap": 90, "spin": 91, "written table": 92, "memory beyond its limit": 7} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			p := load(t, e, m.Bytes(), engine.Options{Warmup: []engine.Warmup{{Op: 0}, {Op: op}}})
			defer p.Close()
			t.Logf("loaded in %v", time.Since(start))
			assert.Equal(t, snapshot.Supported, p.Snapshot())
			res, err := p.Call(context.Background(), 0, nil)
			require.NoError(t, err)
			if op == 7 { // it grew, which is no failure
				assert.EqualValues(t, 13+53+3+3+8, res.Code)
			} else {
				assert.EqualValues(t, 65, res.Code)
			}
		})
	}
}

// Many goroutines, every kind of end, few instances; and nobody ever sees
// anything of another call.
func TestHammer(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{MaxInstances: 6})
	good := load(t, e, stateful().Bytes(), engine.Options{MaxInstances: 4})
	bad := load(t, e, withEntry(Op(0x00)).Bytes(), engine.Options{MaxInstances: 3})
	spin := load(t, e, withEntry(Cat(Spin(), zero)).Bytes(), engine.Options{MaxInstances: 2, Fuel: 100_000})
	fresh := load(t, e, stateful().Bytes(), engine.Options{MaxInstances: 4, NoSnapshot: true, Warm: 1})
	var wg sync.WaitGroup
	var calls atomic.Int64
	for g := range 16 {
		wg.Go(func() {
			for i := range 60 {
				grow := int32((g + i) % 2)
				switch (g + i) % 5 {
				case 0:
					_, err := bad.Call(context.Background(), 0, nil)
					var trap *engine.Trap
					assert.ErrorAs(t, err, &trap)
				case 1:
					_, err := spin.Call(context.Background(), 0, nil)
					var fuel *engine.FuelExhausted
					assert.ErrorAs(t, err, &fuel)
				case 2:
					ctx, cancel := context.WithCancel(context.Background())
					cancel()
					_, err := good.Call(ctx, 0, nil)
					assert.ErrorIs(t, err, context.Canceled)
				case 3:
					res, err := fresh.Call(context.Background(), grow, nil)
					assert.NoError(t, err)
					assert.Equal(t, 65+grow, res.Code)
				default:
					res, err := good.Call(context.Background(), grow, nil)
					assert.NoError(t, err)
					assert.Equal(t, 65+grow, res.Code)
				}
				calls.Add(1)
				assert.LessOrEqual(t, e.Live(), 6)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 16*60, calls.Load())
	for _, p := range []*engine.Pool{good, bad, spin, fresh} {
		p.Close()
	}
	assert.Zero(t, e.Live())
}

// blocker waits in a host function until its call ends.
func blocker() *Module {
	m := withEntry(Op(0x10, 0))
	m.Imports = []Import{{Module: "sbx_v1", Name: "wait", Results: []byte{I32}}}
	return m
}

func TestInstancesAreBounded(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{MaxInstances: 2})
	p := load(t, e, blocker().Bytes(), engine.Options{MaxInstances: 5})
	other := load(t, e, stateful().Bytes(), engine.Options{Warm: 1})
	// An idle instance of one module makes room for another.
	_, err := other.Call(context.Background(), 0, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var inside atomic.Int32
	for range 2 {
		wg.Go(func() {
			_, err := p.Call(ctx, 0, &inside)
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	require.Eventually(t, func() bool { return inside.Load() == 2 }, long, time.Millisecond)
	_, err = other.CallTimeout(context.Background(), 0, nil, 50*time.Millisecond)
	var deadline *engine.Deadline
	require.ErrorAs(t, err, &deadline, "waits for an instance, no longer than it may")
	cancel()
	wg.Wait()
	_, err = other.Call(context.Background(), 0, nil)
	require.NoError(t, err)
}

// The first instance of a module takes the place of an idle one too, or waits.
func TestLoadingKeepsTheBound(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{MaxInstances: 2})
	load(t, e, stateful().Bytes(), engine.Options{})
	require.Eventually(t, func() bool { return e.Live() == 2 }, long, time.Millisecond, "two are made ahead")
	fresh := load(t, e, stateful().Bytes(), engine.Options{NoSnapshot: true})
	assert.LessOrEqual(t, e.Live(), 2)
	_, err := fresh.Call(context.Background(), 0, nil)
	require.NoError(t, err)

	busy := load(t, e, blocker().Bytes(), engine.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var inside atomic.Int32
	for range 2 {
		wg.Go(func() { _, _ = busy.Call(ctx, 0, &inside) }) // ends with the test
	}
	require.Eventually(t, func() bool { return inside.Load() == 2 }, long, time.Millisecond)
	m, err := wasmfile.Parse(stateful().Bytes())
	require.NoError(t, err)
	_, err = e.Load(context.Background(), m, engine.Options{InitTimeout: 50 * time.Millisecond})
	var deadline *engine.Deadline
	require.ErrorAs(t, err, &deadline, "waits for room, no longer than it may")
	short, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	_, err = e.Load(short, m, engine.Options{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	cancel()
	wg.Wait()
	load(t, e, stateful().Bytes(), engine.Options{})
}

func TestClose(t *testing.T) {
	t.Parallel()
	e := newEngine(t, engine.Config{})
	p := load(t, e, blocker().Bytes(), engine.Options{})
	twin := load(t, e, blocker().Bytes(), engine.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var inside atomic.Int32
	go func() {
		_, err := p.Call(ctx, 0, &inside)
		done <- err
	}()
	require.Eventually(t, func() bool { return inside.Load() == 1 }, long, time.Millisecond)
	closed := make(chan struct{})
	go func() { p.Close(); close(closed) }()
	select {
	case <-closed:
		t.Fatal("closed while a call was running")
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	<-closed
	_, err := p.Call(context.Background(), 0, nil)
	var gone *engine.Closed
	require.ErrorAs(t, err, &gone)
	// The other pool of the same code goes on.
	_, err = twin.CallTimeout(context.Background(), 0, nil, 10*time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, e.Close())
	_, err = twin.Call(context.Background(), 0, nil)
	require.ErrorAs(t, err, &gone)
	m, err := wasmfile.Parse(blocker().Bytes())
	require.NoError(t, err)
	_, err = e.Load(context.Background(), m, engine.Options{})
	require.ErrorAs(t, err, &gone)
}

// Not parallel: it counts goroutines and file descriptors. With
// SBXHOST_TEST_RELOADS=1000 it does as many rounds.
func TestReloadingLeavesNothing(t *testing.T) {
	rounds := 60
	if n, err := strconv.Atoi(os.Getenv("SBXHOST_TEST_RELOADS")); err == nil {
		rounds = n
	}
	e := newEngine(t, engine.Config{})
	round := func() {
		p := load(t, e, stateful().Bytes(), engine.Options{})
		_, err := p.Call(context.Background(), 1, nil)
		require.NoError(t, err)
		_, err = p.Call(context.Background(), 0, nil)
		require.NoError(t, err)
		p.Close()
	}
	counts := func() (heap uint64, goroutines, fds, maps int) {
		for range 4 { // finalizers free compiled code
			runtime.GC()
			time.Sleep(5 * time.Millisecond)
		}
		var ms runtime.MemStats
		runtime.ReadMemStats(&ms)
		if runtime.GOOS == "linux" {
			list, err := os.ReadDir("/proc/self/fd")
			require.NoError(t, err)
			fds = len(list)
			b, err := os.ReadFile("/proc/self/maps")
			require.NoError(t, err)
			maps = bytes.Count(b, []byte("\n"))
		}
		return ms.HeapAlloc, runtime.NumGoroutine(), fds, maps
	}
	for range 10 {
		round()
	}
	heap, goroutines, fds, maps := counts()
	for range rounds {
		round()
	}
	heap2, goroutines2, fds2, maps2 := counts()
	// One descriptor and some mappings are made once, on first use.
	left := func() bool {
		return int64(heap2)-int64(heap) > 512<<10 || goroutines2 > goroutines || fds2 > fds+1 || maps2 > maps+32
	}
	// On a busy machine finalizers, and goroutines that have done their work, take
	// their time to go; what is left behind stays.
	for end := time.Now().Add(time.Minute); left() && time.Now().Before(end); {
		heap2, goroutines2, fds2, maps2 = counts()
	}
	t.Logf("%d rounds: heap %+d bytes, goroutines %+d, descriptors %+d, mappings %+d",
		rounds, int64(heap2)-int64(heap), goroutines2-goroutines, fds2-fds, maps2-maps)
	assert.LessOrEqual(t, int64(heap2)-int64(heap), int64(512<<10))
	assert.LessOrEqual(t, goroutines2, goroutines)
	assert.LessOrEqual(t, fds2, fds+1)
	assert.LessOrEqual(t, maps2, maps+32)
	assert.Zero(t, e.Live())
}

func TestConcurrentLoadsCompileOnce(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	c, err := cache.Open(cache.Options{Dir: filepath.Join(root, "cache"), KeyFile: filepath.Join(root, "key")})
	require.NoError(t, err)
	e := newEngine(t, engine.Config{Cache: c})
	m, err := wasmfile.Parse(stateful().Bytes())
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			p, err := e.Load(context.Background(), m, engine.Options{Timeout: long, InitTimeout: long})
			if !assert.NoError(t, err) {
				return
			}
			_, err = p.Call(context.Background(), 0, nil)
			assert.NoError(t, err)
			p.Close()
		})
	}
	wg.Wait()
	s := c.Stats()
	assert.EqualValues(t, 1, s.Misses, "%+v", s)
}

// Real compiled code through the cache: a second engine uses it, a forged entry
// is compiled again.
func TestCacheWithRealCode(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	o := cache.Options{Dir: filepath.Join(root, "cache"), KeyFile: filepath.Join(root, "keys", "key")}
	use := func(t *testing.T) cache.Stats {
		c, err := cache.Open(o)
		require.NoError(t, err)
		e := newEngine(t, engine.Config{Cache: c})
		p := load2(t, e, stateful())
		res, err := p.Call(context.Background(), 0, nil)
		require.NoError(t, err)
		require.EqualValues(t, 65, res.Code)
		return c.Stats()
	}
	assert.Equal(t, cache.Stats{Misses: 1}, use(t))
	assert.Equal(t, cache.Stats{Hits: 1}, use(t))
	entries, err := filepath.Glob(filepath.Join(o.Dir, "*.sbxc"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	b, err := os.ReadFile(entries[0])
	require.NoError(t, err)
	for i := len(b) / 2; i < len(b)/2+64; i++ {
		b[i] = 0xcc // what an attacker would like to have run
	}
	require.NoError(t, os.WriteFile(entries[0], b, 0o600))
	assert.Equal(t, cache.Stats{Misses: 1, Rejected: 1}, use(t))
	assert.Equal(t, cache.Stats{Hits: 1}, use(t))
}

func TestFuelIsDeterministic(t *testing.T) {
	t.Parallel()
	p := load2(t, newEngine(t, engine.Config{}), stateful())
	first, err := p.Call(context.Background(), 0, nil)
	require.NoError(t, err)
	require.Positive(t, first.Fuel)
	for range 10 {
		again, err := p.Call(context.Background(), 0, nil)
		require.NoError(t, err)
		require.Equal(t, first.Fuel, again.Fuel)
	}
}

func ExamplePool_Call() {
	e, err := engine.New(context.Background(), engine.Config{HostModules: hostModules()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = e.Close() }()
	m, err := wasmfile.Parse(withEntry(Cat(Op(0x20, 0), I32Const(2), Op(0x6c))).Bytes())
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := e.Load(context.Background(), m, engine.Options{Timeout: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := p.Call(context.Background(), 21, nil)
	fmt.Println(res.Code, err)
	// Output: 42 <nil>
}

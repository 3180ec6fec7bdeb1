package engine_test

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/sbxhost/sbxhost/plugin/internal/engine"
	"github.com/sbxhost/sbxhost/plugin/internal/meter"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
)

// bare is the guest on wazero alone, metered or not, to compare with.
type bare struct {
	rt   wazero.Runtime
	code wazero.CompiledModule
	data []wasmfile.Data
	x    *exchange
}

func newBare(tb testing.TB, metered, closeOnDone bool) *bare {
	tb.Helper()
	ctx := context.Background()
	b := &bare{x: &exchange{}}
	b.rt = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(512).WithCloseOnContextDone(closeOnDone))
	tb.Cleanup(func() { _ = b.rt.Close(ctx) })
	_, err := wasi_snapshot_preview1.Instantiate(ctx, b.rt)
	require.NoError(tb, err)
	i32 := api.ValueTypeI32
	host := b.rt.NewHostModuleBuilder("sbx_v1")
	export := func(name string, params int, fn func(m api.Module, stack []uint64)) {
		host.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, stack []uint64) { fn(m, stack) }),
			[]api.ValueType{i32, i32, i32}[:params], []api.ValueType{i32}).Export(name)
	}
	export("in_len", 0, func(_ api.Module, stack []uint64) { stack[0] = uint64(len(b.x.in)) })
	export("in_read", 3, func(m api.Module, stack []uint64) {
		m.Memory().Write(uint32(stack[0]), b.x.in[uint32(stack[1]):][:uint32(stack[2])])
		stack[0] = stack[2]
	})
	export("out_write", 2, func(m api.Module, stack []uint64) {
		v, _ := m.Memory().Read(uint32(stack[0]), uint32(stack[1]))
		b.x.out = append([]byte(nil), v...)
		stack[0] = 0
	})
	_, err = host.Instantiate(ctx)
	require.NoError(tb, err)
	wasm := guest
	if metered {
		_, err := b.rt.NewHostModuleBuilder(meter.ImportModule).NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(
			func(_ context.Context, _ api.Module, stack []uint64) {
				stack[0] = meter.Counter(1<<16, meter.Depth(stack[0]))
			}),
			[]api.ValueType{api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).Export(meter.RefillName).Instantiate(ctx)
		require.NoError(tb, err)
		m, err := wasmfile.Parse(guest)
		require.NoError(tb, err)
		out, err := meter.Rewrite(m, meter.Options{})
		require.NoError(tb, err)
		wasm, b.data = out.Bytes, out.Data
	}
	b.code, err = b.rt.CompileModule(ctx, wasm)
	require.NoError(tb, err)
	return b
}

func (b *bare) instance(tb testing.TB) (api.Module, api.Function) {
	ctx := context.Background()
	mod, err := b.rt.InstantiateModule(ctx, b.code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	require.NoError(tb, err)
	if g, ok := mod.ExportedGlobal(meter.CounterExport).(api.MutableGlobal); ok {
		g.Set(meter.Counter(1<<16, meter.MaxDepth))
	}
	for _, d := range b.data {
		require.True(tb, mod.Memory().Write(d.Offset, d.Bytes))
	}
	_, err = mod.ExportedFunction("_initialize").Call(ctx)
	require.NoError(tb, err)
	return mod, mod.ExportedFunction(entry)
}

func (b *bare) call(tb testing.TB, fn api.Function, op int32, in []byte) {
	b.x.in = in
	stack := [1]uint64{api.EncodeI32(op)}
	if err := fn.CallWithStack(context.Background(), stack[:]); err != nil || stack[0] != 0 {
		tb.Fatal(err, stack[0])
	}
}

var sizes = []struct {
	name string
	n    int
}{{"1KiB", 1 << 10}, {"64KiB", 64 << 10}}

// BenchmarkMetering compares the guest plain, metered, and with the engine's own
// termination switch, on a reused instance.
func BenchmarkMetering(b *testing.B) {
	for _, kind := range []struct {
		name            string
		metered, onDone bool
	}{{"plain", false, false}, {"metered", true, false}, {"closeOnContextDone", false, true}} {
		h := newBare(b, kind.metered, kind.onDone)
		_, fn := h.instance(b)
		for _, s := range sizes {
			in := payload(s.n)
			b.Run("json/"+s.name+"/"+kind.name, func(b *testing.B) {
				for b.Loop() {
					h.call(b, fn, 0, in)
				}
			})
		}
	}
}

// BenchmarkIsolation compares what a clean state per call costs.
func BenchmarkIsolation(b *testing.B) {
	in := payload(1 << 10)
	b.Run("dirty pooled", func(b *testing.B) {
		h := newBare(b, true, false)
		_, fn := h.instance(b)
		for b.Loop() {
			h.call(b, fn, 0, in)
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		p := goGuest(b)
		x := &exchange{in: in}
		for b.Loop() {
			if _, err := p.Call(context.Background(), 0, x); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("fresh ordinary", func(b *testing.B) {
		h := newBare(b, false, false)
		for b.Loop() {
			mod, fn := h.instance(b)
			h.call(b, fn, 0, in)
			_ = mod.Close(context.Background())
		}
	})
}

// BenchmarkRawEcho compares a call through the engine with one on wazero alone.
func BenchmarkRawEcho(b *testing.B) {
	in := payload(1 << 10)
	b.Run("wazero", func(b *testing.B) {
		h := newBare(b, false, false)
		_, fn := h.instance(b)
		for b.Loop() {
			h.call(b, fn, 7, in)
		}
	})
	b.Run("engine", func(b *testing.B) {
		p := goGuest(b)
		x := &exchange{in: in}
		for b.Loop() {
			if _, err := p.Call(context.Background(), 7, x); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// rss is the process's proportional share of memory, in bytes.
func rss(tb testing.TB) int64 {
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/smaps_rollup")
	require.NoError(tb, err)
	for _, l := range strings.Split(string(b), "\n") {
		if f := strings.Fields(l); len(f) > 1 && f[0] == "Pss:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			require.NoError(tb, err)
			return n << 10
		}
	}
	tb.Fatal("no Pss")
	return 0
}

// BenchmarkIdleInstance reports the memory of one idle instance.
func BenchmarkIdleInstance(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("needs /proc")
	}
	for b.Loop() {
		const n = 200
		e := newEngine(b, engine.Config{MaxInstances: n})
		p := load(b, e, guest, engine.Options{MaxInstances: n, Warmup: []engine.Warmup{{Op: 0, State: &exchange{in: payload(1 << 10)}}}})
		before := rss(b)
		require.NoError(b, p.Prewarm(n))
		b.ReportMetric(float64(rss(b)-before)/n/1024, "KiB/instance")
		_ = e.Close()
	}
}

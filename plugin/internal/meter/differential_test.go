package meter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sbxhost/sbxhost/plugin/internal/meter"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmtest"
)

// outcome is all that can be observed of a run.
type outcome struct {
	results []uint64
	trap    string
	memory  string
	globals []uint64
}

var errFuel = errors.New("out of fuel")

func config() wazero.RuntimeConfig {
	return wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(64).
		WithCoreFeatures(api.CoreFeaturesV2.SetEnabled(api.CoreFeatureSIMD, false))
}

// meteredRuntime has sbx_meter.refill, which gives fuel until the budget is gone.
func meteredRuntime(t testing.TB, budget *int64, deep *bool) wazero.Runtime {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, config())
	_, err := rt.NewHostModuleBuilder(meter.ImportModule).NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(
		func(_ context.Context, _ api.Module, stack []uint64) {
			if meter.TooDeep(stack[0]) {
				*deep = true
				panic(errFuel)
			}
			const slice = 1000
			*budget -= slice - meter.Fuel(stack[0])
			if *budget <= 0 {
				panic(errFuel)
			}
			stack[0] = meter.Counter(slice, meter.Depth(stack[0]))
		}), []api.ValueType{api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).Export(meter.RefillName).Instantiate(ctx)
	require.NoError(t, err)
	return rt
}

func observe(m api.Module, results []uint64, err error) outcome {
	o := outcome{results: results}
	if err != nil {
		o.results = nil
		o.trap, _, _ = strings.Cut(err.Error(), "\n")
	}
	if b, ok := m.Memory().Read(0, m.Memory().Size()); ok {
		o.memory = string(b)
	}
	for i := range 10 {
		if g := m.ExportedGlobal("g" + strconv.Itoa(i)); g != nil {
			o.globals = append(o.globals, g.Get())
		}
	}
	return o
}

func runMetered(t testing.TB, wasm []byte, args [2]uint64) (o outcome, compiled, finished bool) {
	t.Helper()
	ctx := context.Background()
	m, err := wasmfile.Parse(wasm)
	require.NoError(t, err)
	out, err := meter.Rewrite(m, meter.Options{MaxMemoryPages: 64})
	require.NoError(t, err)
	budget, deep := int64(3_000_000), false
	rt := meteredRuntime(t, &budget, &deep)
	defer func() { require.NoError(t, rt.Close(ctx)) }()
	code, err := rt.CompileModule(ctx, out.Bytes)
	if err != nil {
		return outcome{trap: err.Error()}, false, false
	}
	mod, err := rt.InstantiateModule(ctx, code, wazero.NewModuleConfig().WithStartFunctions())
	require.NoError(t, err)
	mod.ExportedGlobal(meter.CounterExport).(api.MutableGlobal).Set(meter.Counter(1000, meter.MaxDepth))
	for _, d := range out.Data {
		require.True(t, mod.Memory().Write(d.Offset, d.Bytes))
	}
	if out.HasStart {
		if _, err = mod.ExportedFunction(meter.StartExport).Call(ctx); err != nil {
			return outcome{trap: "start"}, true, !errors.Is(err, errFuel)
		}
	}
	results, err := mod.ExportedFunction("run").Call(ctx, args[:]...)
	require.False(t, deep, "the generator's recursion is shallow")
	left := mod.ExportedGlobal(meter.CounterExport).Get()
	if err == nil {
		require.EqualValues(t, meter.MaxDepth, meter.Depth(left), "all call depth is given back")
	}
	return observe(mod, results, err), true, !errors.Is(err, errFuel)
}

func runPlain(t testing.TB, wasm []byte, args [2]uint64) (o outcome, compiled bool) {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, config())
	defer func() { require.NoError(t, rt.Close(ctx)) }()
	code, err := rt.CompileModule(ctx, wasm)
	if err != nil {
		return outcome{trap: err.Error()}, false
	}
	mod, err := rt.InstantiateModule(ctx, code, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		return outcome{trap: "start"}, true
	}
	results, err := mod.ExportedFunction("run").Call(ctx, args[:]...)
	return observe(mod, results, err), true
}

// compare runs a module both ways and reports whether it ran to its end.
func compare(t testing.TB, wasm []byte, args [2]uint64) bool {
	t.Helper()
	metered, ok, finished := runMetered(t, wasm, args)
	require.True(t, ok, "the rewritten module is valid: %s", metered.trap)
	if !finished {
		return false
	}
	plain, ok := runPlain(t, wasm, args)
	require.True(t, ok, "the generated module is valid: %s", plain.trap)
	require.Equal(t, plain.trap, metered.trap)
	require.Equal(t, plain.results, metered.results)
	require.Equal(t, plain.globals, metered.globals)
	require.True(t, plain.memory == metered.memory, "memories differ")
	return true
}

func generated(seed uint64) []byte {
	return wasmtest.Generate(rand.New(rand.NewPCG(seed, 1))).Bytes()
}

func TestMeteredAndPlainAgree(t *testing.T) {
	t.Parallel()
	n := uint64(150)
	if v, err := strconv.ParseUint(os.Getenv("SBXHOST_TEST_MODULES"), 10, 64); err == nil {
		n = v
	}
	finished, trapped := 0, 0
	for seed := range n {
		wasm := generated(seed)
		ok := false
		require.True(t, t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			ok = compare(t, wasm, [2]uint64{seed, seed * 0x9e3779b97f4a7c15})
		}))
		if ok {
			finished++
			if o, _ := runPlain(t, wasm, [2]uint64{seed, seed * 0x9e3779b97f4a7c15}); o.trap != "" {
				trapped++
			}
		}
	}
	t.Logf("%d modules, %d finished, %d of them by a trap", n, finished, trapped)
	require.Greater(t, finished, int(n)*8/10, "most modules must run to their end for this to mean anything")
	require.Greater(t, finished-trapped, int(n)/10)
}

// A module that the compiler refuses plain is refused rewritten, and the other
// way round: the rewriter neither breaks modules nor repairs them.
func agreeOnValidity(t testing.TB, wasm []byte) (valid bool) {
	t.Helper()
	m, err := wasmfile.Parse(wasm)
	if err != nil {
		return false
	}
	out, err := meter.Rewrite(m, meter.Options{MaxMemoryPages: 64})
	if err != nil {
		return false
	}
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, config())
	defer func() { require.NoError(t, rt.Close(ctx)) }()
	_, plain := rt.CompileModule(ctx, wasm)
	_, metered := rt.CompileModule(ctx, out.Bytes)
	require.Equal(t, plain == nil, metered == nil, "plain: %v\nmetered: %v", plain, metered)
	return plain == nil
}

func TestRewritingKeepsValidity(t *testing.T) {
	t.Parallel()
	valid, invalid := 0, 0
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 2))
		wasm := generated(seed % 40)
		for range 1 + r.IntN(3) {
			wasm[8+r.IntN(len(wasm)-8)] = byte(r.Uint32())
		}
		if _, err := wasmfile.Parse(wasm); err != nil {
			continue
		}
		if agreeOnValidity(t, wasm) {
			valid++
		} else {
			invalid++
		}
	}
	t.Logf("%d mutants valid, %d invalid, the rest refused by the parser", valid, invalid)
	require.Greater(t, valid, 20)
	require.Greater(t, invalid, 20)
}

func FuzzMeteredAndPlainAgree(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(seed, uint64(1), uint64(2), []byte(nil))
		f.Add(seed, uint64(3), ^uint64(0), []byte{byte(seed), 40, 7})
	}
	f.Fuzz(func(t *testing.T, seed, a, b uint64, edits []byte) {
		wasm := generated(seed)
		if len(edits) == 0 {
			compare(t, wasm, [2]uint64{a & 0xffffffff, b})
			return
		}
		for i := 0; i+2 < len(edits); i += 3 {
			wasm[8+(int(edits[i])<<8|int(edits[i+1]))%(len(wasm)-8)] = edits[i+2]
		}
		agreeOnValidity(t, wasm)
	})
}

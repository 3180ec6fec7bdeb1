package benchbridge

import (
	"context"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/meter"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
)

// Bare is a module on wazero alone, without the engine.
type Bare struct {
	rt   wazero.Runtime
	code wazero.CompiledModule
	data []wasmfile.Data
	x    exchange
}

// Instance is one instance of a Bare module. It keeps its state between calls.
type Instance struct {
	bare  *Bare
	mod   api.Module
	entry api.Function
	fuel  api.MutableGlobal // nil: not metered
}

// fuel is handed out anew by each call and refill, so it never runs out.
const fuel = 1 << 19

// BareOptions say what is switched on.
type BareOptions struct {
	Metered            bool // rewritten to count, as the engine does it
	CloseOnContextDone bool // wazero's own termination switch
}

// NewBare compiles wasm. Close it.
func NewBare(wasm []byte, o BareOptions) (*Bare, error) {
	ctx := context.Background()
	b := &Bare{rt: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().
		WithMemoryLimitPages(512).WithCloseOnContextDone(o.CloseOnContextDone))}
	if err := b.load(ctx, wasm, o.Metered); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Bare) load(ctx context.Context, wasm []byte, metered bool) error {
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, b.rt); err != nil {
		return err
	}
	host := b.rt.NewHostModuleBuilder(abi.Module)
	for _, im := range abi.Imports() {
		host.NewFunctionBuilder().WithGoModuleFunction(b.imported(im.Name), valueTypes(im.Params), valueTypes(im.Results)).Export(im.Name)
	}
	if _, err := host.Instantiate(ctx); err != nil {
		return err
	}
	if metered {
		i64 := []api.ValueType{api.ValueTypeI64}
		refill := func(_ context.Context, _ api.Module, stack []uint64) {
			stack[0] = meter.Counter(fuel, meter.Depth(stack[0]))
		}
		if _, err := b.rt.NewHostModuleBuilder(meter.ImportModule).NewFunctionBuilder().
			WithGoModuleFunction(api.GoModuleFunc(refill), i64, i64).Export(meter.RefillName).Instantiate(ctx); err != nil {
			return err
		}
		m, err := wasmfile.Parse(wasm)
		if err != nil {
			return err
		}
		out, err := meter.Rewrite(m, meter.Options{})
		if err != nil {
			return err
		}
		wasm, b.data = out.Bytes, out.Data
	}
	var err error
	b.code, err = b.rt.CompileModule(ctx, wasm)
	return err
}

func valueTypes(names []string) []api.ValueType {
	var out []api.ValueType
	for _, t := range types(names) {
		out = append(out, api.ValueType(t))
	}
	return out
}

func (b *Bare) imported(name string) api.GoModuleFunc {
	switch name {
	case "in_len":
		return func(_ context.Context, _ api.Module, stack []uint64) { stack[0] = uint64(len(b.x.in)) }
	case "in_read":
		return func(_ context.Context, m api.Module, stack []uint64) {
			part := b.x.in[api.DecodeU32(stack[1]):][:api.DecodeU32(stack[2])]
			if !m.Memory().Write(api.DecodeU32(stack[0]), part) {
				panic("in_read: out of range")
			}
			stack[0] = uint64(len(part))
		}
	case "out_write", "err_write":
		return func(_ context.Context, m api.Module, stack []uint64) {
			v, ok := m.Memory().Read(api.DecodeU32(stack[0]), api.DecodeU32(stack[1]))
			if !ok {
				panic("out_write: out of range")
			}
			b.x.out = append([]byte(nil), v...)
			stack[0] = 0
		}
	}
	return func(context.Context, api.Module, []uint64) { panic(name + " is not offered here") }
}

// Instance makes an ordinary instance and initialises it.
func (b *Bare) Instance() (*Instance, error) {
	ctx := context.Background()
	mod, err := b.rt.InstantiateModule(ctx, b.code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, err
	}
	in := &Instance{bare: b, mod: mod, entry: mod.ExportedFunction("sbx_v1_call")}
	in.fuel, _ = mod.ExportedGlobal(meter.CounterExport).(api.MutableGlobal)
	in.refuel()
	for _, d := range b.data {
		if !mod.Memory().Write(d.Offset, d.Bytes) {
			return nil, errors.New("a data segment lies outside of memory")
		}
	}
	if f := mod.ExportedFunction("_initialize"); f != nil {
		_, err = f.Call(ctx)
	}
	return in, err
}

func (in *Instance) refuel() {
	if in.fuel != nil {
		in.fuel.Set(meter.Counter(fuel, meter.MaxDepth))
	}
}

// Call runs one operation under ctx and returns what the module wrote.
func (in *Instance) Call(ctx context.Context, op int32, input []byte) ([]byte, error) {
	in.bare.x = exchange{in: input}
	in.refuel()
	stack := [1]uint64{api.EncodeI32(op)}
	if err := in.entry.CallWithStack(ctx, stack[:]); err != nil {
		return nil, err
	}
	if stack[0] != 0 {
		return nil, fmt.Errorf("the module reported error %d: %s", api.DecodeI32(stack[0]), in.bare.x.out)
	}
	return in.bare.x.out, nil
}

// Close frees the instance.
func (in *Instance) Close() error { return in.mod.Close(context.Background()) }

// Close frees everything.
func (b *Bare) Close() error { return b.rt.Close(context.Background()) }

package engine

import (
	"context"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sbxhost/sbxhost/plugin/internal/meter"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
)

// HostFunc is a function the host offers. Parameters come on the stack and
// results are left there, as uint64 each (api.DecodeU32 and so on). Returning an
// error ends the call with that error and discards the instance: it is for
// violations and for the end of the call, not for expected failures, which are
// results.
type HostFunc func(c *Call, stack []uint64) error

// Func is a host function with its type.
type Func struct {
	Name string
	Type wasmfile.FuncType
	Fn   HostFunc
}

// HostModule is a set of host functions under one import module name.
type HostModule struct {
	Name  string
	Funcs []Func
}

// Offers lists what modules may import from these host modules.
func Offers(mods []HostModule) []wasmfile.Offer {
	var out []wasmfile.Offer
	for _, m := range mods {
		for _, f := range m.Funcs {
			out = append(out, wasmfile.Offer{Module: m.Name, Name: f.Name, Type: f.Type})
		}
	}
	return out
}

func meterModule() HostModule {
	return HostModule{Name: meter.ImportModule, Funcs: []Func{{
		Name: meter.RefillName,
		Type: wasmfile.FuncType{Params: []wasmfile.ValType{wasmfile.I64}, Results: []wasmfile.ValType{wasmfile.I64}},
		Fn:   refill,
	}}}
}

func valueTypes(ts []wasmfile.ValType) []api.ValueType {
	out := make([]api.ValueType, len(ts))
	for i, t := range ts {
		out[i] = api.ValueType(t)
	}
	return out
}

// install makes a host module available to the modules of a runtime. Functions
// use wazero's stack form only: its reflective one is fifteen times dearer.
func install(ctx context.Context, rt wazero.Runtime, m HostModule) error {
	b := rt.NewHostModuleBuilder(m.Name)
	for _, f := range m.Funcs {
		name := m.Name + "." + f.Name
		fn := f.Fn
		b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
			c := ctx.(*callContext).call
			if err := guard(name, c, fn, stack); err != nil {
				c.abort(err)
			}
		}), valueTypes(f.Type.Params), valueTypes(f.Type.Results)).WithName(name).Export(f.Name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// Memory gives host functions access to the calling module's memory. Every
// method checks bounds in 64-bit arithmetic against the memory's present size.
type Memory struct{ m api.Memory }

// Memory returns the module's memory. Do not keep it or views of it beyond the
// host function: anything that runs in the module may grow and move it.
func (c *Call) Memory() Memory {
	return Memory{c.inst.mod.Memory()}
}

// Read copies n bytes out.
func (m Memory) Read(ptr, n uint32) ([]byte, bool) {
	v, ok := m.View(ptr, n)
	if !ok {
		return nil, false
	}
	return append(make([]byte, 0, n), v...), true
}

// View gives n bytes in place, valid until the module runs again.
func (m Memory) View(ptr, n uint32) ([]byte, bool) { return m.m.Read(ptr, n) }

// Write copies b in.
func (m Memory) Write(ptr uint32, b []byte) bool { return m.m.Write(ptr, b) }

// Size is the memory's size in bytes.
func (m Memory) Size() uint64 { return uint64(m.m.Size()) }

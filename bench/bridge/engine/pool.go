// Package benchbridge gives the benchmarks the plugin engine, which is internal
// to the plugin folder: hence this module's path. Nothing but the benchmarks uses
// it.
package benchbridge

import (
	"context"
	"errors"

	"github.com/tetratelabs/wazero/api"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/engine"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
)

// exchange is the state of one call.
type exchange struct{ in, out []byte }

// Pool is a module loaded the way plugins are: checked, metered, and every call
// in an instance that starts from the clean snapshot, with a deadline and a
// budget.
type Pool struct {
	engine *engine.Engine
	pool   *engine.Pool
}

// Warmup is a call made before the snapshot.
type Warmup struct {
	Op int32
	In []byte
}

// NewPool loads wasm. Before the snapshot the warm-up calls are made, as the plugin
// host does with its synthetic requests. Close it.
func NewPool(wasm []byte, warm ...Warmup) (*Pool, error) {
	ctx := context.Background()
	e, err := engine.New(ctx, engine.Config{HostModules: []engine.HostModule{engine.Preview1(), hostModule()}})
	if err != nil {
		return nil, err
	}
	m, err := wasmfile.Parse(wasm)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	var opts engine.Options
	for _, w := range warm {
		opts.Warmup = append(opts.Warmup, engine.Warmup{Op: w.Op, State: &exchange{in: w.In}})
	}
	p, err := e.Load(ctx, m, opts)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return &Pool{engine: e, pool: p}, nil
}

// Call runs one operation and returns what the module wrote.
func (p *Pool) Call(op int32, in []byte) ([]byte, error) {
	x := &exchange{in: in}
	r, err := p.pool.Call(context.Background(), op, x)
	if err == nil && r.Code != 0 {
		err = errors.New("the module reported an error: " + string(x.out))
	}
	return x.out, err
}

// Discarded is the number of instances that could not be put back to the snapshot.
func (p *Pool) Discarded() int64 { return p.pool.Discarded() }

// Close frees everything.
func (p *Pool) Close() error { return p.engine.Close() }

func types(names []string) []wasmfile.ValType {
	out := make([]wasmfile.ValType, len(names))
	for i, n := range names {
		out[i] = wasmfile.I32
		if n == "i64" {
			out[i] = wasmfile.I64
		}
	}
	return out
}

// hostModule is the plugins' import module, of which only what carries requests
// and replies does something.
func hostModule() engine.HostModule {
	m := engine.HostModule{Name: abi.Module}
	for _, im := range abi.Imports() {
		fn := func(_ *engine.Call, stack []uint64) error {
			if len(im.Results) > 0 {
				stack[0] = api.EncodeI32(int32(abi.ErrnoUnsupported))
			}
			return nil
		}
		switch im.Name {
		case "in_len":
			fn = func(c *engine.Call, stack []uint64) error {
				stack[0] = uint64(len(c.State.(*exchange).in))
				return nil
			}
		case "in_read":
			fn = func(c *engine.Call, stack []uint64) error {
				in := c.State.(*exchange).in
				off := uint64(api.DecodeU32(stack[1]))
				end := min(off+uint64(api.DecodeU32(stack[2])), uint64(len(in)))
				if off > end || !c.Memory().Write(api.DecodeU32(stack[0]), in[off:end]) {
					return &engine.ABIViolation{What: "in_read: out of range"}
				}
				stack[0] = end - off
				return nil
			}
		case "out_write", "err_write":
			fn = func(c *engine.Call, stack []uint64) error {
				b, ok := c.Memory().Read(api.DecodeU32(stack[0]), api.DecodeU32(stack[1]))
				if !ok {
					return &engine.ABIViolation{What: "out_write: out of range"}
				}
				c.State.(*exchange).out = b
				stack[0] = 0
				return nil
			}
		}
		m.Funcs = append(m.Funcs, engine.Func{Name: im.Name, Type: wasmfile.FuncType{Params: types(im.Params), Results: types(im.Results)}, Fn: fn})
	}
	return m
}

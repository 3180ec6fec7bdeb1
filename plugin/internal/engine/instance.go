package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sbxhost/sbxhost/plugin/internal/meter"
	"github.com/sbxhost/sbxhost/plugin/internal/snapshot"
)

// instance is one instantiated module. It is used by one goroutine at a time.
type instance struct {
	pool    *Pool
	mod     api.Module
	mem     *snapshot.Memory
	entry   api.Function // looked up once: a lookup allocates a stack
	counter api.MutableGlobal
	dirty   api.MutableGlobal // nil if the module cannot get dirty
	globals []api.MutableGlobal
	stack   [1]uint64
	since   time.Time // idle since
}

var moduleConfig = wazero.NewModuleConfig().WithName("").WithStartFunctions()

// instantiate makes an instance. With an image it is ready for a call;
// otherwise nothing has run in it and its memory holds only zeros.
func (p *Pool) instantiate(img *snapshot.Image, values []uint64) (in *instance, err error) {
	alloc := &snapshot.Allocator{Image: img}
	defer func() {
		// wazero panics where a memory cannot be had.
		if r := recover(); r != nil {
			in = nil
			err = fmt.Errorf("instantiate plugin: %s", panicText(r))
			if alloc.Memory != nil {
				if alloc.Memory.Err() != nil {
					err = fmt.Errorf("instantiate plugin: %w", alloc.Memory.Err())
				}
				alloc.Memory.Free()
			}
		}
	}()
	ctx := experimental.WithMemoryAllocator(context.Background(), alloc)
	mod, err := p.engine.rt.InstantiateModule(ctx, p.prog.code, moduleConfig)
	if err != nil {
		return nil, fmt.Errorf("instantiate plugin: %w", err)
	}
	in = &instance{pool: p, mod: mod, mem: alloc.Memory}
	in.entry = mod.ExportedFunction(p.opts.Entry)
	in.counter = mod.ExportedGlobal(meter.CounterExport).(api.MutableGlobal)
	if p.out.Dirty {
		in.dirty = mod.ExportedGlobal(meter.DirtyExport).(api.MutableGlobal)
	}
	in.globals = make([]api.MutableGlobal, p.out.Globals)
	for i := range in.globals {
		in.globals[i] = mod.ExportedGlobal(meter.GlobalExport(i)).(api.MutableGlobal)
	}
	in.restoreGlobals(values)
	return in, nil
}

func (in *instance) restoreGlobals(values []uint64) {
	for i, v := range values {
		in.globals[i].Set(v)
	}
}

// resettable reports whether restoring memory and globals gives back the clean
// state.
func (in *instance) resettable() bool {
	return in.pool.img != nil && !in.mem.Grown() && (in.dirty == nil || in.dirty.Get() == 0)
}

func (in *instance) reset() error {
	if err := in.mem.Reset(); err != nil {
		return err
	}
	in.restoreGlobals(in.pool.values)
	return nil
}

func (in *instance) close() { _ = in.mod.Close(context.Background()) }

// prepare does what instantiation and initialisation mean in the original
// module: data segments, start function, _initialize.
func (in *instance) prepare(ctx context.Context) error {
	mem := in.mem.Bytes()
	for _, d := range in.pool.out.Data {
		if uint64(d.Offset)+uint64(len(d.Bytes)) > uint64(len(mem)) {
			return &InitError{"instantiation", &Trap{Kind: "out of bounds memory access"}}
		}
		copy(mem[d.Offset:], d.Bytes)
	}
	c := in.pool.newCall(ctx, in, in.pool.opts.InitFuel, in.pool.opts.InitTimeout)
	defer c.release()
	c.Init = true
	if in.pool.out.HasStart {
		if err := c.run(in.mod.ExportedFunction(meter.StartExport), nil); err != nil {
			return &InitError{"start function", err}
		}
	}
	if in.pool.hasInit {
		if err := c.run(in.mod.ExportedFunction("_initialize"), nil); err != nil {
			return &InitError{"_initialize", err}
		}
	}
	return nil
}

// warmUp makes the calls of Options.Warmup, and reports whether all of them
// returned and left an instance that a snapshot can be taken of.
func (in *instance) warmUp(ctx context.Context) bool {
	for _, w := range in.pool.opts.Warmup {
		c := in.pool.newCall(ctx, in, FuelPerSecond/10, in.pool.opts.InitTimeout)
		c.Init, c.Op, c.State = true, w.Op, w.State
		in.stack[0] = api.EncodeI32(w.Op)
		err := c.run(in.entry, in.stack[:])
		c.release()
		if err != nil {
			return false
		}
	}
	return in.dirty == nil || in.dirty.Get() == 0 || len(in.pool.opts.Warmup) == 0
}

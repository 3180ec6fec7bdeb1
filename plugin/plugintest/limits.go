package plugintest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/internal/engine"
	"github.com/sbxhost/sbxhost/plugin/internal/hook"
	"github.com/sbxhost/sbxhost/provider"
)

// limits checks what the operations need of fuel and memory, and that running
// out of either is contained.
func (k *kit) limits(ctx context.Context) {
	const fuel = 2 * engine.FuelPerSecond
	k.check(ctx, "limits/headroom", "ordinary operations stay under half of the limits on fuel and memory", time.Minute, func(t *t) {
		var mu sync.Mutex
		var most int64
		var memory int
		limit := abi.DefaultMemory
		if k.m.Limits.MemoryMiB > 0 {
			limit = int(k.m.Limits.MemoryMiB) << 20
		}
		p := k.open(t, &hook.Hooks{After: func(_ abi.Op, mem []byte, used int64) {
			mu.Lock()
			defer mu.Unlock()
			most, memory = max(most, used), max(memory, len(mem))
		}})
		for _, a := range k.actions() {
			w := k.build(t, p, a)
			if _, err := k.act(t, a, w); err != nil {
				t.errorf("%s failed: %s", a.op, describeError(err))
			}
			k.tear(t, w)
		}
		mu.Lock()
		defer mu.Unlock()
		t.notef("at most %.1f of %d million units of fuel, %.1f of %d MiB of memory", float64(most)/1e6, fuel/1_000_000, float64(memory)/(1<<20), limit>>20)
		if most > fuel/2 {
			t.errorf("an operation took %d units of fuel, of %d", most, int64(fuel))
		}
		if memory > limit/2 {
			t.errorf("an instance had %d bytes of memory, of %d", memory, limit)
		}
	})
	k.check(ctx, "limits/fuel", "an operation that runs out of fuel ends as FuelExhausted; the host and the next operation are not affected", time.Minute, func(t *t) {
		starved := k.fresh(t, &hook.Hooks{Fuel: 100}, nil, nil)
		_, err := starved.Create(t.ctx, k.createRequest())
		var spent *plugin.FuelExhausted
		if !errors.As(err, &spent) || provider.CodeOf(err) != provider.ResourceExhausted {
			t.errorf("Create with 100 units of fuel, less than a request costs, ended with %v, it must be FuelExhausted", err)
		}
		k.healthy(t, k.open(t, nil))
		k.tear(t, &world{p: k.open(t, nil)})
	})
	k.check(ctx, "limits/memory", "with less memory than it wants, the plugin fails in a typed way; the host and the next operation are not affected", time.Minute, func(t *t) {
		var mu sync.Mutex
		var least uint32
		p := k.open(t, &hook.Hooks{After: func(_ abi.Op, mem []byte, _ int64) {
			mu.Lock()
			least = uint32(len(mem) / 65536) //nolint:gosec // bounded by the limit
			mu.Unlock()
		}})
		w := &world{p: p, req: k.createRequest()}
		sb, err := p.Create(t.ctx, w.req)
		t.must(err, "Create")
		w.sb = sb
		k.tear(t, w)
		mu.Lock()
		pages := least
		mu.Unlock()
		for _, limit := range slices.Compact([]uint32{max(pages/2, 1), max(pages-1, 1)}) {
			tight := k.fresh(t, &hook.Hooks{MemoryPages: limit}, nil, nil)
			w := &world{p: tight, req: k.createRequest()}
			within(t.ctx, opTimeout, func(ctx context.Context) { w.sb, err = tight.Create(ctx, w.req) })
			var typed *provider.Error
			if err != nil && !errors.As(err, &typed) {
				t.errorf("with %d pages: an error without a code: %s", limit, err)
			}
			var bug *plugin.HostBug
			if errors.As(err, &bug) {
				t.errorf("with %d pages: %s", limit, bug)
			}
			w.p = p
			k.tear(t, w)
		}
		k.healthy(t, p)
	})
}

package engine

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sbxhost/sbxhost/plugin/internal/meter"
	"github.com/sbxhost/sbxhost/plugin/internal/snapshot"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
)

// Options are the limits of one loaded module. Zero fields take their defaults.
type Options struct {
	// Entry is the exported function that Call runs, of type (i32) -> i32.
	// Default "sbx_v1_call".
	Entry string
	// MemoryPages is the most memory an instance can have, in pages of
	// 64 KiB. Default 512 (32 MiB).
	MemoryPages uint32
	// TableElements is the most elements a table can have. Default 65,536.
	TableElements uint32
	// Fuel is the budget of one call. Default two seconds of CPU.
	Fuel int64
	// Timeout is the wall time of one call. Default 30 s; the caller's
	// context can only shorten it.
	Timeout time.Duration
	// InitFuel and InitTimeout are the same for start function and _initialize
	// together. Default one second of CPU, and 30 s.
	InitFuel    int64
	InitTimeout time.Duration
	// MaxInstances bounds this module's instances. Default 32.
	MaxInstances int
	// Warm is how many instances are made ahead of calls. Two let one be reset
	// while the other works. Default 2.
	Warm int
	// NoSnapshot gives every call an instance that ran its initialisation
	// for that call alone, for modules whose state must not repeat.
	NoSnapshot bool
	// Warmup are calls made once before the snapshot, so that what they
	// compute and keep is there in every call. If one of them does not return,
	// or outlasts a tenth of a second of CPU, the snapshot is taken without any.
	// Where there is no snapshot they are not made.
	Warmup []Warmup
	// Log gets what the module writes, line by line. It is called on the
	// goroutine of the call. May be nil.
	Log func(Line)
	// LogBytes bounds what one call can log. Default 64 KiB.
	LogBytes int
	// After, when set, is called after each call, however it ended, with the
	// instance's whole memory, valid until it returns, and the fuel the call
	// took. It exists for conformance tests.
	After func(op int32, memory []byte, fuel int64)
}

// Warmup is a call made before the snapshot. Its State is synthetic: what the
// module learns from it stays in every instance.
type Warmup struct {
	Op    int32
	State any
}

func (o *Options) setDefaults() {
	if o.Entry == "" {
		o.Entry = "sbx_v1_call"
	}
	if o.MemoryPages == 0 {
		o.MemoryPages = 512
	}
	if o.TableElements == 0 {
		o.TableElements = 1 << 16
	}
	if o.Fuel <= 0 {
		o.Fuel = 2 * FuelPerSecond
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.InitFuel <= 0 {
		o.InitFuel = FuelPerSecond
	}
	if o.InitTimeout <= 0 {
		o.InitTimeout = 30 * time.Second
	}
	if o.MaxInstances <= 0 {
		o.MaxInstances = 32
	}
	if o.Warm <= 0 {
		o.Warm = 2
	}
	if o.LogBytes <= 0 {
		o.LogBytes = 64 << 10
	}
}

// Pool is a loaded module and its instances.
type Pool struct {
	engine  *Engine
	opts    Options
	out     *meter.Output
	prog    *program
	hasInit bool

	img    *snapshot.Image // nil: no snapshot
	values []uint64        // mutable globals of the snapshot

	// Under engine.mu.
	closed    bool
	live      int
	ready     []*instance // clean, may be handed out
	used      []*instance // to be reset
	prepared  bool        // the first instance is through
	discarded int64       // instances not used again after a call

	calls sync.WaitGroup
	once  sync.Once
}

// Load prepares a module: checks its imports and entry point, rewrites, compiles
// (or takes compiled code that is there), initialises it once and takes the
// snapshot. Nothing of the module runs before all checks have passed.
func (e *Engine) Load(ctx context.Context, m *wasmfile.Module, opts Options) (*Pool, error) {
	opts.setDefaults()
	opts.MemoryPages = min(opts.MemoryPages, e.cfg.MaxMemoryPages)
	p := &Pool{engine: e, opts: opts}
	if err := p.check(m); err != nil {
		return nil, err
	}
	var err error
	p.out, err = meter.Rewrite(m, meter.Options{MaxMemoryPages: opts.MemoryPages, MaxTableElements: opts.TableElements})
	if err != nil {
		return nil, err
	}
	wasm := p.out.Bytes
	p.out.Bytes = nil
	if p.prog, err = e.program(ctx, sha256.Sum256(wasm), wasm); err != nil {
		return nil, err
	}
	if err := p.enter(ctx); err != nil {
		e.release(p.prog)
		return nil, err
	}
	if err := p.first(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// enter waits for room for the first instance, which counts against the bounds like
// any other, before it exists.
func (p *Pool) enter(ctx context.Context) error {
	e := p.engine
	wait, cancel := context.WithTimeout(ctx, p.opts.InitTimeout)
	defer cancel()
	for {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return &Closed{"plugin engine"}
		}
		if victim, ok := p.admit(); ok {
			e.pools[p] = struct{}{}
			e.mu.Unlock()
			if victim != nil {
				victim.close()
			}
			return nil
		}
		wake := e.wake
		e.waiters++
		e.mu.Unlock()
		var err error
		select {
		case <-wake:
		case <-wait.Done():
			if err = context.Cause(ctx); err == nil {
				err = &Deadline{Timeout: p.opts.InitTimeout}
			}
		}
		e.mu.Lock()
		e.waiters--
		e.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (p *Pool) check(m *wasmfile.Module) error {
	if err := m.CheckImports(Offers(p.engine.cfg.HostModules), nil); err != nil {
		return err
	}
	if ex, ok := m.Export("memory"); !ok || ex.Kind != wasmfile.ExternMemory {
		return &ABIViolation{"the module does not export its memory as \"memory\""}
	}
	want := wasmfile.FuncType{Params: []wasmfile.ValType{wasmfile.I32}, Results: []wasmfile.ValType{wasmfile.I32}}
	if t, ok := m.ExportedFunc(p.opts.Entry); !ok || !t.Equal(want) {
		what := "the module does not export " + p.opts.Entry + " of type " + want.String()
		if _, start := m.Export("_start"); start && !ok {
			what += "; it is a command: build it as a reactor (Go: -buildmode=c-shared; clang: -mexec-model=reactor)"
		}
		return &ABIViolation{what}
	}
	if t, ok := m.ExportedFunc("_initialize"); ok {
		if len(t.Params)+len(t.Results) > 0 {
			return &ABIViolation{"_initialize must take and return nothing"}
		}
		p.hasInit = true
	}
	return nil
}

// first makes the first instance and takes the snapshot from it, or keeps it as
// the first warm one where none can be taken.
func (p *Pool) first(ctx context.Context) error {
	in, err := p.instantiate(nil, nil)
	if err != nil {
		p.gone(1)
		return err
	}
	if err = in.prepare(ctx); err == nil && snapshot.Supported && !p.opts.NoSnapshot && !in.warmUp(ctx) {
		// Whatever it did is not to be part of anything.
		in.close()
		if in, err = p.instantiate(nil, nil); err == nil {
			err = in.prepare(ctx)
		}
	}
	if err != nil {
		if in != nil {
			in.close()
		}
		p.gone(1)
		return err
	}
	if snapshot.Supported && !p.opts.NoSnapshot && (in.dirty == nil || in.dirty.Get() == 0) {
		img, err := snapshot.NewImage(in.mem.Bytes())
		for _, g := range in.globals {
			p.values = append(p.values, g.Get())
		}
		in.close()
		p.gone(1)
		if err != nil {
			return err
		}
		p.img = img
	} else {
		p.put(in, time.Now())
	}
	p.engine.mu.Lock()
	p.prepared = true
	p.engine.mu.Unlock()
	p.engine.nudge()
	return nil
}

// Snapshot reports whether calls start from a snapshot.
func (p *Pool) Snapshot() bool { return p.img != nil }

// gone accounts for instances that are no more.
func (p *Pool) gone(n int) {
	e := p.engine
	e.mu.Lock()
	e.live -= n
	p.live -= n
	e.broadcast()
	e.mu.Unlock()
}

// put makes a clean instance available.
func (p *Pool) put(in *instance, now time.Time) {
	e := p.engine
	e.mu.Lock()
	if p.closed {
		e.mu.Unlock()
		in.close()
		p.gone(1)
		return
	}
	in.since = now
	p.ready = append(p.ready, in)
	e.broadcast()
	e.mu.Unlock()
}

// Result is what a call gave.
type Result struct {
	// Code is what the entry function returned.
	Code int32
	// Fuel is how much the call took.
	Fuel int64
}

// Call runs the entry function in a clean instance, waiting for one if all are
// busy. State is handed to host functions. The context's end ends the call; so
// do the pool's timeout and fuel. No two calls ever see anything of each other.
func (p *Pool) Call(ctx context.Context, op int32, state any) (Result, error) {
	return p.CallTimeout(ctx, op, state, p.opts.Timeout)
}

// CallTimeout is Call with another wall time, for operations that have a
// deadline of their own.
func (p *Pool) CallTimeout(ctx context.Context, op int32, state any, timeout time.Duration) (Result, error) {
	c := p.newCall(ctx, nil, p.opts.Fuel, timeout)
	c.Op, c.State = op, state
	p.engine.mu.Lock()
	if p.closed {
		p.engine.mu.Unlock()
		return Result{}, &Closed{"plugin"}
	}
	p.calls.Add(1)
	in := pop(&p.ready)
	if in != nil {
		p.refill()
	}
	p.engine.mu.Unlock()
	defer p.calls.Done()
	defer c.release()
	if in == nil {
		var err error
		if in, err = p.acquire(c); err != nil {
			return Result{}, err
		}
		c.now = time.Now()
	}
	c.inst = in
	in.stack[0] = api.EncodeI32(op)
	clean := false
	defer func() {
		in.mem.Leave()
		p.giveBack(in, clean, c.now)
	}()
	in.mem.Enter()
	err := c.run(in.entry, in.stack[:])
	in.mem.Leave()
	clean = err == nil
	if p.opts.After != nil {
		p.opts.After(op, in.mem.Bytes(), c.spent)
	}
	return Result{Code: api.DecodeI32(in.stack[0]), Fuel: c.spent}, err
}

func (p *Pool) newCall(ctx context.Context, in *instance, fuel int64, timeout time.Duration) *Call {
	now := time.Now()
	c := &Call{parent: ctx, inst: in, budget: fuel, timeout: timeout, now: now, deadline: now.Add(timeout)}
	if d, ok := ctx.Deadline(); ok && d.Before(c.deadline) {
		c.deadline, c.timeout = d, 0
	}
	c.lines[0].init(c, Stdout, p)
	c.lines[1].init(c, Stderr, p)
	return c
}

// acquire finds or makes a clean instance.
func (p *Pool) acquire(c *Call) (*instance, error) {
	e := p.engine
	for {
		e.mu.Lock()
		if p.closed || e.closed {
			e.mu.Unlock()
			return nil, &Closed{"plugin"}
		}
		if in := pop(&p.ready); in != nil {
			p.refill()
			e.mu.Unlock()
			return in, nil
		}
		if in := pop(&p.used); in != nil {
			e.mu.Unlock()
			if err := in.reset(); err != nil {
				in.close()
				p.gone(1)
				return nil, err
			}
			return in, nil
		}
		if victim, ok := p.admit(); ok {
			e.mu.Unlock()
			if victim != nil {
				victim.close()
			}
			return p.make(c.Context())
		}
		wake := e.wake
		e.waiters++
		e.mu.Unlock()
		var err error
		select {
		case <-wake:
		case <-c.Context().Done():
			if err = c.ended(); err == nil {
				err = &Deadline{Timeout: c.timeout}
			}
		}
		e.mu.Lock()
		e.waiters--
		e.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

func pop(s *[]*instance) *instance {
	n := len(*s)
	if n == 0 {
		return nil
	}
	in := (*s)[n-1]
	(*s)[n-1] = nil
	*s = (*s)[:n-1]
	return in
}

// admit counts one more instance of the pool, if the bounds allow. The place of an
// idle one of another pool, which the caller closes, goes straight to it, so that
// nobody takes it in between. Called with mu held.
func (p *Pool) admit() (victim *instance, ok bool) {
	e := p.engine
	switch {
	case p.live >= p.opts.MaxInstances:
		return nil, false
	case e.live < e.cfg.MaxInstances:
		e.live++
	default:
		if victim = e.idle(p); victim == nil {
			return nil, false
		}
		victim.pool.live--
	}
	p.live++
	return victim, true
}

// idle takes an idle instance of another pool. Called with mu held.
func (e *Engine) idle(except *Pool) *instance {
	for p := range e.pools {
		if p == except {
			continue
		}
		if in := pop(&p.used); in != nil {
			return in
		}
		if in := pop(&p.ready); in != nil {
			return in
		}
	}
	return nil
}

// make makes a clean instance that is already accounted for.
func (p *Pool) make(ctx context.Context) (*instance, error) {
	in, err := p.instantiate(p.img, p.values)
	if err == nil && p.img == nil {
		if err = in.prepare(ctx); err != nil {
			in.close()
		}
	}
	if err != nil {
		p.gone(1)
		return nil, err
	}
	return in, nil
}

// giveBack takes an instance after a call. One that trapped, exited, was stopped
// or changed what a snapshot does not hold is discarded. One that is quickly reset
// is reset at once: to wake somebody else for it would take longer.
func (p *Pool) giveBack(in *instance, clean bool, now time.Time) {
	e := p.engine
	if clean && in.resettable() {
		if in.mem.Cheap() {
			if in.reset() == nil {
				p.put(in, now)
				return
			}
		} else if p.queue(in) {
			e.nudge()
			return
		}
	}
	in.close()
	p.gone(1)
	e.mu.Lock()
	p.discarded++
	e.mu.Unlock()
	e.nudge()
}

// queue leaves an instance for being reset, unless the pool is closed.
func (p *Pool) queue(in *instance) bool {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	if p.closed {
		return false
	}
	p.used = append(p.used, in)
	p.engine.broadcast()
	return true
}

// Discarded is the number of instances that were not used again after a call.
func (p *Pool) Discarded() int64 {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	return p.discarded
}

// refill asks for fresh instances where there is no snapshot. Called with mu
// held.
func (p *Pool) refill() {
	if p.img == nil {
		select {
		case p.engine.kick <- struct{}{}:
		default:
		}
	}
}

// trimAfter is how long an instance is idle before it gives its private pages
// back.
const trimAfter = 2 * time.Second

// background resets used instances, one at a time: on several threads at once
// resetting is slower than on one, for they all change one address space. It
// also makes fresh ones where there is no snapshot, and trims those that are not
// used.
func (e *Engine) background() {
	defer close(e.done)
	tick := time.NewTicker(trimAfter)
	defer tick.Stop()
	for {
		select {
		case _, ok := <-e.kick:
			if !ok {
				return
			}
			for e.step() {
			}
		case <-tick.C:
			for e.trim() {
			}
		}
	}
}

// trim trims one instance, and reports whether there was one to trim.
func (e *Engine) trim() bool {
	e.mu.Lock()
	for p := range e.pools {
		for i, in := range p.ready {
			if p.closed || in.mem == nil || !in.mem.Hot() || time.Since(in.since) < trimAfter {
				continue
			}
			p.ready = slices.Delete(p.ready, i, i+1)
			p.calls.Add(1)
			e.mu.Unlock()
			defer p.calls.Done()
			if err := in.mem.Trim(); err != nil {
				in.close()
				p.gone(1)
				return true
			}
			e.mu.Lock()
			if p.closed {
				e.mu.Unlock()
				in.close()
				p.gone(1)
				return true
			}
			// First, that is last to be used again.
			p.ready = slices.Insert(p.ready, 0, in)
			e.broadcast()
			e.mu.Unlock()
			return true
		}
	}
	e.mu.Unlock()
	return false
}

// step does one thing that is due, and reports whether there was one.
func (e *Engine) step() bool {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return false
	}
	for p := range e.pools {
		if in := pop(&p.used); in != nil {
			p.calls.Add(1) // the image must outlive the reset
			e.mu.Unlock()
			if err := in.reset(); err != nil {
				in.close()
				p.gone(1)
			} else {
				p.put(in, time.Now())
			}
			p.calls.Done()
			return true
		}
		if e.waiters == 0 && p.short() && p.live < p.opts.MaxInstances && e.live < e.cfg.MaxInstances {
			e.live++
			p.live++
			p.calls.Add(1)
			e.mu.Unlock()
			in, err := p.make(context.Background())
			if err == nil {
				p.put(in, time.Now())
			}
			p.calls.Done()
			return err == nil
		}
	}
	e.mu.Unlock()
	return false
}

// short reports whether the pool wants an instance made in the background. With a
// snapshot, instances come back after being reset, so it is enough that there
// are some; without, every call takes one. Called with mu held.
func (p *Pool) short() bool {
	if p.closed || !p.prepared {
		return false
	}
	if p.img != nil {
		return p.live < p.opts.Warm
	}
	return len(p.ready) < p.opts.Warm
}

// Close ends the pool: no more calls, instances freed when the running calls
// have ended, code freed when no other pool uses it. It waits for that. Loading
// the same module again gives a new pool.
func (p *Pool) Close() {
	p.once.Do(func() {
		e := p.engine
		e.mu.Lock()
		p.closed = true
		idle := append(p.ready, p.used...)
		p.ready, p.used = nil, nil
		e.broadcast()
		e.mu.Unlock()
		for _, in := range idle {
			in.close()
		}
		p.gone(len(idle))
		p.calls.Wait()
		if p.img != nil {
			_ = p.img.Close()
		}
		e.mu.Lock()
		delete(e.pools, p)
		e.mu.Unlock()
		e.release(p.prog)
	})
	p.calls.Wait()
}

// Idle is the number of instances that wait for a call or for being reset.
func (p *Pool) Idle() int {
	p.engine.mu.Lock()
	defer p.engine.mu.Unlock()
	return len(p.ready) + len(p.used)
}

// Prewarm makes instances until n are idle, or the bounds are reached.
func (p *Pool) Prewarm(n int) error {
	e := p.engine
	for p.Idle() < n {
		e.mu.Lock()
		if p.closed || p.live >= p.opts.MaxInstances || e.live >= e.cfg.MaxInstances {
			e.mu.Unlock()
			return nil
		}
		e.live++
		p.live++
		p.calls.Add(1)
		e.mu.Unlock()
		in, err := p.make(context.Background())
		if err == nil {
			p.put(in, time.Now())
		}
		p.calls.Done()
		if err != nil {
			return err
		}
	}
	return nil
}

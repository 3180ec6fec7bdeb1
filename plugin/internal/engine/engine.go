// Package engine runs untrusted WebAssembly modules: parsed and judged before
// anything is compiled (wasmfile), metered (meter), compiled once per content
// with an authenticated disk cache (cache), and run in instances that start every
// call from the same clean state (snapshot).
//
// An Engine owns the compiler, the host functions and the bound on instances. A
// Pool is one loaded module; Pool.Call runs its entry function once. Both are
// safe for concurrent use; what happens inside one call happens on one
// goroutine.
//
// Every way a call can end has its own error type, see errors.go. After any of
// them the instance is discarded.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sbxhost/sbxhost/plugin/internal/cache"
	"github.com/sbxhost/sbxhost/plugin/internal/meter"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
)

// Config configures an Engine. Zero fields take their defaults.
type Config struct {
	// HostModules are what modules can import. Default: nothing.
	HostModules []HostModule
	// Limits bound modules before compilation.
	Limits wasmfile.Limits
	// Cache keeps compiled code between processes. Default: none. The engine
	// does not close it.
	Cache *cache.Cache
	// MaxInstances bounds the live instances of all pools, idle ones
	// included. Default 256.
	MaxInstances int
	// MaxMemoryPages is the most memory any module can have, in pages of
	// 64 KiB. Default 4,096 (256 MiB): a copy of all of it at once is not
	// interruptible, so this also bounds pauses.
	MaxMemoryPages uint32
	// CompileTimeout bounds one compilation. Default 1 minute.
	CompileTimeout time.Duration
	// CompileWorkers is how many functions are compiled at once. Default 2:
	// with one, the compiler would not look at its deadline.
	CompileWorkers int
	// Interpreter replaces the compiler, for systems it does not support.
	Interpreter bool
}

// Engine compiles and runs modules.
type Engine struct {
	cfg Config
	rt  wazero.Runtime
	wc  wazero.CompilationCache
	ws  *cache.Workspace

	mu       sync.Mutex
	closed   bool
	pools    map[*Pool]struct{}
	live     int           // instances, being made included
	wake     chan struct{} // closed when an instance was freed or became clean
	waiters  int
	programs map[[32]byte]*program

	compiling sync.Mutex // one compilation at a time: see compile
	kick      chan struct{}
	done      chan struct{} // closed when the background goroutine has ended
}

// New makes an engine. Close it.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	if cfg.MaxInstances <= 0 {
		cfg.MaxInstances = 256
	}
	if cfg.MaxMemoryPages == 0 {
		cfg.MaxMemoryPages = 4096
	}
	cfg.MaxMemoryPages = min(cfg.MaxMemoryPages, 1<<16-1)
	if cfg.CompileTimeout <= 0 {
		cfg.CompileTimeout = time.Minute
	}
	cfg.CompileWorkers = max(cfg.CompileWorkers, 2)
	e := &Engine{
		cfg: cfg, pools: map[*Pool]struct{}{}, programs: map[[32]byte]*program{},
		wake: make(chan struct{}), kick: make(chan struct{}, 1), done: make(chan struct{}),
	}
	rc := wazero.NewRuntimeConfigCompiler()
	if cfg.Interpreter {
		rc = wazero.NewRuntimeConfigInterpreter()
	}
	rc = rc.
		WithCoreFeatures(api.CoreFeaturesV2.SetEnabled(api.CoreFeatureSIMD, false)).
		WithMemoryLimitPages(cfg.MaxMemoryPages).
		WithDebugInfoEnabled(false).
		WithCustomSections(false).
		WithCloseOnContextDone(false)
	if cfg.Cache != nil && !cfg.Interpreter {
		var err error
		if e.ws, err = cfg.Cache.Workspace(); err != nil {
			return nil, err
		}
		if e.wc, err = wazero.NewCompilationCacheWithDir(e.ws.Dir()); err != nil {
			_ = e.ws.Close()
			return nil, fmt.Errorf("open the compiler's private cache directory: %w", err)
		}
		rc = rc.WithCompilationCache(e.wc)
	}
	e.rt = wazero.NewRuntimeWithConfig(ctx, rc)
	for _, m := range append([]HostModule{meterModule()}, cfg.HostModules...) {
		if err := install(ctx, e.rt, m); err != nil {
			return nil, errors.Join(fmt.Errorf("install host module %s: %w", m.Name, err), e.closeRuntime())
		}
	}
	go e.background()
	return e, nil
}

func (e *Engine) closeRuntime() error {
	ctx := context.Background()
	errs := []error{e.rt.Close(ctx)}
	if e.wc != nil {
		errs = append(errs, e.wc.Close(ctx))
	}
	if e.ws != nil {
		errs = append(errs, e.ws.Close())
	}
	return errors.Join(errs...)
}

// Close closes all pools, waits for their calls to end, and frees everything.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	pools := make([]*Pool, 0, len(e.pools))
	for p := range e.pools {
		pools = append(pools, p)
	}
	e.broadcast()
	e.mu.Unlock()
	for _, p := range pools {
		p.Close()
	}
	close(e.kick)
	<-e.done
	return e.closeRuntime()
}

// Live is the number of instances that exist now, for tests and metrics.
func (e *Engine) Live() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.live
}

// program is compiled code, shared by the pools that use the same content.
type program struct {
	key   [32]byte
	refs  int // under Engine.mu
	ready chan struct{}
	code  wazero.CompiledModule
	err   error
}

// program compiles a rewritten module, or waits for who is already doing it, or
// takes what is there. Give it back with release.
func (e *Engine) program(ctx context.Context, key [32]byte, wasm []byte) (*program, error) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, &Closed{"plugin engine"}
	}
	p := e.programs[key]
	if p == nil {
		p = &program{key: key, ready: make(chan struct{})}
		e.programs[key] = p
		// Not under the caller's context: others may be waiting for the
		// same code.
		go func() {
			p.code, p.err = e.compile(wasm)
			close(p.ready)
		}()
	}
	p.refs++
	e.mu.Unlock()
	select {
	case <-p.ready:
	case <-ctx.Done():
		go func() { // the compilation goes on, its result is dropped if nobody else wants it
			<-p.ready
			e.release(p)
		}()
		return nil, context.Cause(ctx)
	}
	if p.err != nil {
		e.release(p)
		return nil, p.err
	}
	return p, nil
}

func (e *Engine) release(p *program) {
	e.mu.Lock()
	p.refs--
	last := p.refs == 0
	if last && e.programs[p.key] == p {
		delete(e.programs, p.key)
	}
	e.mu.Unlock()
	if last && p.code != nil {
		// Under the same lock as compiling: the compiler's memory of what it
		// has compiled is by content, and closing drops that entry.
		e.compiling.Lock()
		defer e.compiling.Unlock()
		_ = p.code.Close(context.Background())
	}
}

// CompileError says that the compiler refused a module that passed all checks
// before it: operand types do not match.
type CompileError struct{ Err error }

func (e *CompileError) Error() string { return "wasm module is not valid: " + e.Err.Error() }

// Unwrap gives the compiler's error.
func (e *CompileError) Unwrap() error { return e.Err }

// compile runs the compiler, through the disk cache if there is one. One at a
// time: the compiler itself uses several workers, and the file it leaves in the
// private directory must be attributable.
func (e *Engine) compile(wasm []byte) (code wazero.CompiledModule, err error) {
	e.compiling.Lock()
	defer e.compiling.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.CompileTimeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = &CompileError{fmt.Errorf("the compiler failed: %s", panicText(r))}
		}
	}()
	ctx = experimental.WithCompilationWorkers(ctx, e.cfg.CompileWorkers)
	run := func() error {
		var err error
		code, err = e.rt.CompileModule(ctx, wasm)
		if err == nil || ctx.Err() == nil {
			return err
		}
		return &LimitExceeded{Which: "compile time, in milliseconds", Limit: uint64(e.cfg.CompileTimeout.Milliseconds())}
	}
	if e.ws == nil {
		err = run()
	} else {
		err = e.ws.Compile(meter.Version, wasm, run)
	}
	var limit *LimitExceeded
	if err != nil && !errors.As(err, &limit) {
		err = &CompileError{err}
	}
	return code, err
}

// broadcast wakes everybody who waits for an instance. Called with mu held.
func (e *Engine) broadcast() {
	if e.waiters > 0 || e.closed {
		close(e.wake)
		e.wake = make(chan struct{})
	}
}

// nudge tells the background goroutine that there is something to do.
func (e *Engine) nudge() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

package engine

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sbxhost/sbxhost/plugin/internal/meter"
)

// slice is how much fuel a module gets at once. Between two refills native code
// runs that nothing can interrupt, so this bounds how late a deadline is seen and
// how long the host's garbage collector has to wait each of the several times per
// cycle that it stops all goroutines: some 50 microseconds of plain computing, a
// millisecond where every access misses all caches or faults. A refill costs
// about 200 nanoseconds.
const slice = 1 << 19

// FuelPerSecond is about how much fuel a second of plain computing takes. It
// serves to turn a budget of CPU time into fuel; machines differ: a tight loop was
// seen to take 6e9 a second, work on memory less.
const FuelPerSecond = 5_000_000_000

// Call is one run of a module's function, as host functions see it. It belongs
// to the goroutine of that call.
type Call struct {
	// State is what the caller of Pool.Call gave for this call.
	State any
	// Op is the operation asked for.
	Op int32
	// Init is true while the module is being initialised and warmed up: no
	// session is behind such a call.
	Init bool

	parent   context.Context
	ctx      context.Context // parent with the deadline, once somebody asks
	cancel   context.CancelFunc
	inst     *instance
	within   callContext
	now      time.Time // when the clock was read last
	deadline time.Time
	timeout  time.Duration // engine's own, zero if the caller's deadline is nearer
	budget   int64         // fuel for the whole call
	given    int64         // fuel handed to the module in this slice
	spent    int64
	cause    error // why a host function ended the call
	lines    [2]lineWriter
	logged   int
}

// callContext carries a Call through wazero to host functions without a lookup.
type callContext struct {
	context.Context
	call *Call
}

// Value is always nil: wazero looks for settings of its own in every call, and a
// caller's chain of contexts, which holds none, can be long.
func (*callContext) Value(any) any { return nil }

// Context ends when the call must end. Host functions that wait select on it.
func (c *Call) Context() context.Context {
	if c.inst != nil {
		c.inst.mem.Loose()
	}
	if c.ctx == nil { // made on demand: most calls never wait for anything
		c.ctx, c.cancel = context.WithDeadline(c.parent, c.deadline)
	}
	return c.ctx
}

// release ends Context.
func (c *Call) release() {
	if c.cancel != nil {
		c.cancel()
	}
}

// Earn adds fuel to the call's budget: for output that the host delivered, so
// that a long stream is not limited by the fuel of a short call.
func (c *Call) Earn(units int64) { c.budget += max(units, 0) }

// Charge takes fuel for work the host does for the module. The error ends the
// call; host functions return it.
func (c *Call) Charge(units int64) error {
	c.spent += max(units, 0)
	return c.check()
}

// Used is how much fuel the call took so far, the running slice not included.
func (c *Call) Used() int64 { return c.spent }

// check says why the call must end, if it must.
func (c *Call) check() error {
	if err := c.ended(); err != nil {
		return err
	}
	if c.spent >= c.budget {
		return &FuelExhausted{Budget: c.budget}
	}
	return nil
}

// ended reads the clock itself: while guests keep all processors busy, timers
// fire late.
func (c *Call) ended() error {
	c.now = time.Now()
	return c.endedBy(c.now)
}

func (c *Call) endedBy(now time.Time) error {
	if err := c.parent.Err(); err != nil {
		if errors.Is(err, context.Canceled) {
			return &Canceled{}
		}
	} else if now.Before(c.deadline) {
		return nil
	}
	return &Deadline{Timeout: c.timeout}
}

// refill is sbx_meter.refill: the module's counter ran out.
func refill(c *Call, stack []uint64) error {
	v := stack[0]
	if meter.TooDeep(v) {
		return &LimitExceeded{Which: "call depth, in bytes of stack", Limit: meter.MaxDepth * meter.DepthUnit}
	}
	c.spent += c.given - meter.Fuel(v)
	c.given = 0
	if err := c.check(); err != nil {
		return err
	}
	c.given = min(slice, c.budget-c.spent)
	stack[0] = meter.Counter(c.given, meter.Depth(v))
	return nil
}

// run calls an exported function under the call's budget and deadline.
func (c *Call) run(fn api.Function, stack []uint64) error {
	if err := c.endedBy(c.now); err != nil {
		return err
	}
	if c.spent >= c.budget {
		return &FuelExhausted{Budget: c.budget}
	}
	c.given = min(slice, c.budget-c.spent)
	c.inst.counter.Set(meter.Counter(c.given, meter.MaxDepth))
	c.within = callContext{Context: c.parent, call: c}
	err := fn.CallWithStack(&c.within, stack)
	if left := c.inst.counter.Get(); !meter.TooDeep(left) && c.given > 0 {
		c.spent += c.given - meter.Fuel(left)
		c.given = 0
	}
	c.flushLines()
	if err == nil {
		// A deadline seen too late is still a deadline: results after it
		// must not depend on luck.
		return c.ended()
	}
	if c.cause != nil {
		return c.cause
	}
	return trapError(err)
}

// trapError turns what wazero reports into a typed error.
func trapError(err error) error {
	root := err
	for {
		next := errors.Unwrap(root)
		if next == nil {
			break
		}
		root = next
	}
	text := root.Error()
	kind := text
	if i := strings.IndexByte(kind, '\n'); i >= 0 {
		kind = kind[:i]
	}
	kind = strings.TrimPrefix(kind, "wasm error: ")
	if kind == "stack overflow" {
		return &LimitExceeded{Which: "call depth", Limit: meter.MaxDepth * meter.DepthUnit}
	}
	if !knownTraps[kind] {
		return &HostBug{Function: "wasm engine", Value: err.Error(), Stack: nil}
	}
	full := err.Error()
	trace := ""
	if i := strings.Index(full, "wasm stack trace:"); i >= 0 {
		trace = full[i:min(len(full), i+2048)]
	}
	return &Trap{Kind: kind, Trace: trace}
}

// knownTraps are wazero's errors that a module can cause.
var knownTraps = map[string]bool{
	"invalid conversion to integer": true,
	"integer overflow":              true,
	"integer divide by zero":        true,
	"unreachable":                   true,
	"out of bounds memory access":   true,
	"invalid table access":          true,
	"indirect call type mismatch":   true,
	"null reference":                true,
	"unaligned atomic":              true,
	"expected shared memory":        true,
	"too many waiters":              true,
}

// errAbort unwinds the module after a host function set Call.cause.
var errAbort = errors.New("call ended by the host")

// abort ends the call with the given reason. Only host function wrappers call
// it.
func (c *Call) abort(err error) {
	c.cause = err
	panic(errAbort)
}

// guard runs a host function under a recover of our own: wazero would report a
// panic of the host as an error of the module.
func guard(name string, c *Call, fn HostFunc, stack []uint64) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &HostBug{Function: name, Value: panicText(r), Stack: debug.Stack()}
		}
	}()
	return fn(c, stack)
}

func panicText(r any) string {
	switch v := r.(type) {
	case error:
		return v.Error()
	case string:
		return v
	}
	return "panic"
}

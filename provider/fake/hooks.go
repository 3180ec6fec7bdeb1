package fake

import (
	"context"
	"errors"

	"github.com/sbxhost/sbxhost/provider"
)

// Method names a call of the contract.
type Method string

// The methods that Calls records and Hooks can break.
const (
	MethodCreate  Method = "create"
	MethodOpen    Method = "open"
	MethodList    Method = "list"
	MethodDestroy Method = "destroy"
	MethodExec    Method = "exec"
	MethodStatus  Method = "status"
	MethodSignal  Method = "signal"
	MethodKill    Method = "kill"
	MethodWait    Method = "wait"
	MethodResize  Method = "resize"
	MethodRead    Method = "files.open"
	MethodWrite   Method = "files.write"
	MethodReadDir Method = "files.list"
	MethodStat    Method = "files.stat"
	MethodRemove  Method = "files.remove"
	MethodMkdir   Method = "files.mkdir"
	MethodPort    Method = "port"
	MethodPause   Method = "pause"
	MethodResume  Method = "resume"
	MethodExport  Method = "export"
	MethodImport  Method = "import"
	MethodLogs    Method = "logs"
)

// Call is one recorded call. It holds names only, never a value.
type Call struct {
	Method  Method
	Ref     string // the sandbox's id, where the call has one
	Session string // on create and list, and on calls of a sandbox
	Exec    string // ExecRequest.ID, on exec, signal, kill, wait and resize
	Path    string // on files
	// Names of what came with the call, sorted.
	Env, Protected, Secrets []string
	Transport               provider.Transport // on create
	// Code of the answer, "" for success. It is set when the call has returned.
	Code provider.Code
	// Done: the call has returned.
	Done bool
}

// Hooks break calls. Both functions may be nil, may block until ctx is done to
// hang the call, and must be safe for concurrent use. What they return is handed
// to the caller as it is; return a *provider.Error unless a provider that breaks
// the contract is what you want.
type Hooks struct {
	// Before runs first. An error is the answer, and nothing is done.
	Before func(ctx context.Context, c Call) error
	// After runs when the action was done (or refused, with err). An error
	// replaces the answer: the action's effect stays, as when an answer is lost
	// on the way.
	After func(ctx context.Context, c Call, err error) error
}

// SetHooks replaces the hooks; calls under way keep the ones they started with.
func (p *Provider) SetHooks(h Hooks) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hooks = h
}

// Fail returns Hooks under which the method fails with code before anything is
// done.
func Fail(m Method, code provider.Code) Hooks {
	return Hooks{Before: func(_ context.Context, c Call) error {
		if c.Method != m {
			return nil
		}
		return failure(code, string(m), "", "failed by the test", provider.AppliedNo)
	}}
}

// Drop returns Hooks under which the method is done and its answer lost: the
// caller gets code with Applied unknown.
func Drop(m Method, code provider.Code) Hooks {
	return Hooks{After: func(_ context.Context, c Call, err error) error {
		if c.Method != m {
			return nil
		}
		if err != nil {
			return err // there was nothing to lose
		}
		return failure(code, string(m), "", "answer dropped by the test", provider.AppliedUnknown)
	}}
}

// Hang returns Hooks under which the method does nothing until its context ends.
func Hang(m Method) Hooks {
	return Hooks{Before: func(ctx context.Context, c Call) error {
		if c.Method != m {
			return nil
		}
		<-ctx.Done()
		return contextError(ctx, string(m), provider.AppliedNo)
	}}
}

// Calls returns every call so far in the order they began. The caller owns the
// result.
func (p *Provider) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Call, len(p.calls))
	for i, c := range p.calls {
		out[i] = *c
	}
	return out
}

// Count returns how often the method was called.
func (p *Provider) Count(m Method) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, c := range p.calls {
		if c.Method == m {
			n++
		}
	}
	return n
}

// Forget empties the recorded calls.
func (p *Provider) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = nil
}

// invoke records a call and runs act between the hooks.
func invoke[T any](ctx context.Context, p *Provider, c Call, act func() (T, error)) (T, error) {
	var none T
	p.mu.Lock()
	h := p.hooks
	entry := &Call{}
	*entry = c
	p.calls = append(p.calls, entry)
	p.mu.Unlock()
	finish := func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.Done, c.Code = true, provider.CodeOf(err)
		*entry = c
	}
	if h.Before != nil {
		if err := h.Before(ctx, c); err != nil {
			finish(err)
			return none, err
		}
	}
	if ctx.Err() != nil {
		err := contextError(ctx, string(c.Method), provider.AppliedNo)
		finish(err)
		return none, err
	}
	out, err := act()
	if h.After != nil {
		if lost := h.After(ctx, c, err); lost != nil {
			finish(lost)
			return none, lost
		}
	}
	finish(err)
	if err != nil {
		return none, err
	}
	return out, nil
}

// contextError turns the end of ctx into the contract's error.
func contextError(ctx context.Context, op string, applied provider.Applied) error {
	code := provider.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = provider.DeadlineExceeded
	}
	return failure(code, op, "", "the caller's context ended", applied)
}

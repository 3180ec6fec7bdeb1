// Package fault breaks a provider on purpose, to test what stands on it: the
// host, an embedder's own code, a provider's own retries.
//
//	p := fault.New(fake.New(fake.Options{}))
//	err := h.RegisterTrusted("fake", p)
//	p.Set(fault.Rule{Method: fault.Create, Kind: fault.Drop})       // the next create
//	p.Set(fault.Rule{Method: fault.List, Kind: fault.Stale, Times: -1}) // every list from now on
//	p.Clear()
//
// It wraps any [provider.Provider] and everything that comes out of it:
// sandboxes, with exactly the optional interfaces that they have, processes,
// their input, files and their readers. Which call is hit is decided by counting
// the calls of its method, so a test that makes the same calls breaks at the same
// place every time.
package fault

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// Method names a call of the contract.
type Method string

// The methods that can be broken. Describe and Ref do no I/O and cannot.
const (
	Create  Method = "create"
	Open    Method = "open"
	List    Method = "list"
	Destroy Method = "destroy"

	Exec   Method = "exec"
	Status Method = "status"

	Stdin  Method = "stdin" // one Write of a command's input
	Signal Method = "signal"
	Kill   Method = "kill"
	Wait   Method = "wait"
	Resize Method = "resize"

	FileOpen   Method = "files.open"
	FileRead   Method = "files.read" // one Read of an opened file
	FileWrite  Method = "files.write"
	FileList   Method = "files.list"
	FileStat   Method = "files.stat"
	FileRemove Method = "files.remove"
	FileMkdir  Method = "files.mkdir"

	Port   Method = "port"
	Pause  Method = "pause"
	Resume Method = "resume" // of a paused sandbox
	Export Method = "export"
	Import Method = "import"
	Logs   Method = "logs"
)

// Methods lists every method.
func Methods() []Method {
	return []Method{Create, Open, List, Destroy, Exec, Status, Stdin, Signal, Kill, Wait, Resize,
		FileOpen, FileRead, FileWrite, FileList, FileStat, FileRemove, FileMkdir,
		Port, Pause, Resume, Export, Import, Logs}
}

// Kind is what goes wrong.
type Kind string

// The kinds of fault. Done means: the provider behind was asked and acted.
const (
	// Fail: an error, nothing done, and the error says so (AppliedNo).
	Fail Kind = "fail"
	// Lose: the request is lost. An error, nothing done, and nobody can tell
	// (AppliedUnknown).
	Lose Kind = "lose"
	// Drop: the answer is lost. Done, and then an error (AppliedUnknown). A call
	// that fails by itself keeps its error: there is no answer to lose.
	Drop Kind = "drop"
	// Hang: nothing is done and no answer comes until the context ends.
	Hang Kind = "hang"
	// Stall: done, and then no answer comes until the context ends.
	Stall Kind = "stall"
	// Delay: done after Rule.Delay, unless the context ends before.
	Delay Kind = "delay"
	// Late: done and answered after Rule.Delay, whether or not anybody still
	// waits: the caller's context does not reach the provider behind.
	Late Kind = "late"
	// Linger: done at once, and answered after Rule.Delay, whether or not anybody
	// still waits. The context does not reach the provider behind.
	Linger Kind = "linger"
	// Duplicate: the request arrives twice, one after the other; the second
	// answer counts.
	Duplicate Kind = "duplicate"
	// Stale: List answers what it answered the last time it was asked the same
	// while this fault was not in force, nothing if never. Other methods are not
	// affected.
	Stale Kind = "stale"
)

// Kinds lists every kind.
func Kinds() []Kind {
	return []Kind{Fail, Lose, Drop, Hang, Stall, Delay, Late, Linger, Duplicate, Stale}
}

// Rule breaks some calls of one method.
type Rule struct {
	// Method to break. "": every one; the calls of each are then counted apart.
	Method Method
	// Kind of fault.
	Kind Kind
	// From which call on, counted from 1 since the rules were set. 0: the first.
	From int
	// Times is how many calls are hit. 0: one. Negative: all that follow.
	Times int
	// Code of the error, with Fail, Lose and Drop. "": Unavailable.
	Code provider.Code
	// Delay with Delay, Late and Linger. 0: 10 ms.
	Delay time.Duration
}

func (r Rule) hits(m Method, call int) bool {
	from, times := max(r.From, 1), r.Times
	if times == 0 {
		times = 1
	}
	return (r.Method == "" || r.Method == m) && call >= from && (times < 0 || call < from+times)
}

// Call is one call that was made.
type Call struct {
	Method Method
	// Kind of the fault that hit it, "" for none.
	Kind Kind
}

// Point is a moment of a call.
type Point string

// The points that Watch reports.
const (
	Before Point = "before" // the provider behind is asked next
	After  Point = "after"  // it has answered
)

// Provider is a provider with faults. Make it with New. It is safe for
// concurrent use; with concurrent calls of one method the order in which they
// are counted is the scheduler's.
type Provider struct {
	inner provider.Provider

	mu      sync.Mutex
	rules   []Rule
	cleared chan struct{} // closed when the rules are replaced
	counts  map[Method]int
	calls   []Call
	lists   map[provider.Query][]provider.Resource
	watch   func(Method, Point)
}

// Format implements fmt.Formatter: a fixed word, whatever the verb. Printing
// reads none of the fields that change.
func (p *Provider) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "fault.Provider") }

var _ provider.Provider = (*Provider)(nil)

// New wraps a provider. The first rule that hits a call counts.
func New(inner provider.Provider, rules ...Rule) *Provider {
	return &Provider{inner: inner, rules: slices.Clone(rules), cleared: make(chan struct{}),
		counts: map[Method]int{}, lists: map[provider.Query][]provider.Resource{}}
}

// Set replaces the rules and starts counting anew. Calls that hang are let go:
// they answer that nobody knows what became of them.
func (p *Provider) Set(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = slices.Clone(rules)
	p.counts, p.calls = map[Method]int{}, nil
	close(p.cleared)
	p.cleared = make(chan struct{})
}

// Watch makes f be called before and after every call that reaches the provider
// behind, on the caller's goroutine; nil ends it. A test can look at things there,
// or end the process.
func (p *Provider) Watch(f func(Method, Point)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = f
}

// Clear ends all faults; see Set.
func (p *Provider) Clear() { p.Set() }

// Calls returns the calls since the rules were set, in the order they began.
func (p *Provider) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Count returns how often a method was called since the rules were set.
func (p *Provider) Count(m Method) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[m]
}

// Hits returns how many calls were hit since the rules were set.
func (p *Provider) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, c := range p.calls {
		if c.Kind != "" {
			n++
		}
	}
	return n
}

// take counts a call and returns the rule that hits it, if any.
func (p *Provider) take(m Method) (r Rule, hit bool, cleared <-chan struct{}, watch func(Method, Point)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[m]++
	for _, rule := range p.rules {
		if rule.hits(m, p.counts[m]) && (rule.Kind != Stale || m == List) {
			r, hit = rule, true
			break
		}
	}
	p.calls = append(p.calls, Call{m, r.Kind})
	if r.Code == "" {
		r.Code = provider.Unavailable
	}
	if r.Delay == 0 {
		r.Delay = 10 * time.Millisecond
	}
	return r, hit, p.cleared, p.watch
}

// invoke makes one call, broken or not. discard, which may be nil, frees an
// answer that nobody gets; stale gives the answer of a stale List.
func invoke[T any](ctx context.Context, p *Provider, m Method, discard func(T), act func(context.Context) (T, error), stale ...func() T) (T, error) {
	var none T
	r, hit, cleared, watch := p.take(m)
	if watch != nil {
		inner := act
		act = func(ctx context.Context) (T, error) {
			watch(m, Before)
			v, err := inner(ctx)
			watch(m, After)
			return v, err
		}
	}
	if !hit {
		return act(ctx)
	}
	drop := func(v T) {
		if discard != nil {
			discard(v)
		}
	}
	switch r.Kind {
	case Fail:
		return none, failure(r.Code, m, "failed on purpose", provider.AppliedNo)
	case Lose:
		return none, failure(r.Code, m, "the request was lost on purpose", provider.AppliedUnknown)
	case Hang:
		return none, hang(ctx, m, cleared)
	case Drop, Stall:
		v, err := act(ctx)
		if err != nil {
			return none, err
		}
		drop(v)
		if r.Kind == Stall {
			return none, hang(ctx, m, cleared)
		}
		return none, failure(r.Code, m, "the answer was dropped on purpose", provider.AppliedUnknown)
	case Delay:
		t := time.NewTimer(r.Delay)
		defer t.Stop()
		select {
		case <-t.C:
			return act(ctx)
		case <-ctx.Done():
			return none, failure(provider.CodeOf(ctx.Err()), m, "the caller did not wait", provider.AppliedNo)
		}
	case Late:
		time.Sleep(r.Delay) // on purpose: nothing shortens it
		return act(context.WithoutCancel(ctx))
	case Linger:
		v, err := act(context.WithoutCancel(ctx))
		time.Sleep(r.Delay)
		return v, err
	case Duplicate:
		if v, err := act(ctx); err == nil {
			drop(v)
		}
		return act(ctx)
	case Stale:
		return stale[0](), nil
	}
	return act(ctx)
}

// invokeErr is invoke for calls that return only an error.
func invokeErr(ctx context.Context, p *Provider, m Method, act func(context.Context) error) error {
	_, err := invoke(ctx, p, m, nil, func(ctx context.Context) (struct{}, error) { return struct{}{}, act(ctx) })
	return err
}

func hang(ctx context.Context, m Method, cleared <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return failure(provider.CodeOf(ctx.Err()), m, "no answer came, on purpose", provider.AppliedUnknown)
	case <-cleared:
		return failure(provider.Unavailable, m, "no answer came, on purpose", provider.AppliedUnknown)
	}
}

func failure(code provider.Code, m Method, message string, applied provider.Applied) error {
	return &provider.Error{Code: code, Op: string(m), Provider: "fault", Message: message, Applied: applied}
}

// Describe implements provider.Provider. It is never broken.
func (p *Provider) Describe() provider.Description { return p.inner.Describe() }

// Create implements provider.Provider.
func (p *Provider) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	return invoke(ctx, p, Create, nil, func(ctx context.Context) (provider.Sandbox, error) {
		sb, err := p.inner.Create(ctx, req)
		return p.wrap(sb, err)
	})
}

// Open implements provider.Provider.
func (p *Provider) Open(ctx context.Context, ref provider.Ref) (provider.Sandbox, error) {
	return invoke(ctx, p, Open, nil, func(ctx context.Context) (provider.Sandbox, error) {
		sb, err := p.inner.Open(ctx, ref)
		return p.wrap(sb, err)
	})
}

// List implements provider.Provider.
func (p *Provider) List(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
	return invoke(ctx, p, List, nil, func(ctx context.Context) ([]provider.Resource, error) {
		out, err := p.inner.List(ctx, q)
		if err == nil {
			p.mu.Lock()
			p.lists[q] = slices.Clone(out)
			p.mu.Unlock()
		}
		return out, err
	}, func() []provider.Resource {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.Clone(p.lists[q])
	})
}

// Destroy implements provider.Provider.
func (p *Provider) Destroy(ctx context.Context, ref provider.Ref) error {
	return invokeErr(ctx, p, Destroy, func(ctx context.Context) error { return p.inner.Destroy(ctx, ref) })
}

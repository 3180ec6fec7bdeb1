// Package host runs commands in sandboxes with secrets that the host granted.
//
// A [Host] holds the registered providers, the grants and the ledger. A
// [Session] is its live handle on one sandbox. Secrets are named by references
// in the manifest; the host resolves them when, and only when, an exact grant
// covers them and the provider was registered as trusted.
//
//	h, err := host.New(host.Options{Grants: grants.Set{
//		ProcessEnvironmentBindings: map[string]string{"API_TOKEN": "HOST_TOKEN"},
//	}})
//	err = h.RegisterTrusted("local", provider)
//	s, err := h.Create(ctx, host.CreateRequest{Provider: "local", Manifest: m})
//	r, err := s.Exec(ctx, host.ExecRequest{Args: []string{"python", "main.py"}})
//	err = s.Close(ctx)
//
// # Trust
//
// Trust is the call that registers a provider, never a name that a provider
// reports. A manifest with references on any other provider is refused before
// the provider is touched.
//
// # What leaves
//
// Everything that comes back from a sandbox passes the session's redactor:
// output, file contents, names, errors, events, logs, spans, state. This guards
// against accidents; code in the sandbox that holds a value can transform it.
//
// # Errors
//
// Errors carry a provider.Code: use errors.Is with provider.ErrNotFound and the
// like, or provider.CodeOf. An operation on a session with protected values
// fails with a [*LifecycleError], which holds only what the host itself
// recorded. Other operations keep the provider's error, redacted. Errors found
// before the provider is touched keep their text.
//
// # Telemetry
//
// Events go to [Options].Sinks, records to the Logger, spans to the Tracer. All
// three are built from one allow-list of fields ([Record]) after redaction.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/redact"
)

// Options configures a Host. The zero value grants nothing, logs nothing and
// forgets everything when the process ends.
type Options struct {
	// ID is the owner written on every sandbox. Two hosts that share a provider
	// account must not share it. Required with a Ledger, which outlives the
	// process; default: random.
	ID string

	// Grants are the host-scoped grants. They are copied.
	Grants grants.Set

	// Source is where values are read. Default: the process environment.
	Source grants.Source

	// Ledger records what was made, so that nothing is orphaned. The host does
	// not close it. Default: in memory.
	Ledger ledger.Ledger

	// Redact configures the redactor of every session.
	Redact redact.Options

	// Logger receives one record per event. Default: none.
	Logger *slog.Logger

	// Tracer receives one span per operation. Default: none.
	Tracer trace.Tracer

	// Sinks receive every event. A sink that fails, blocks or panics never
	// changes the result of an operation.
	Sinks []Sink

	// HostPathRoots are the directories that a manifest's hostPath files and
	// pathGrants may use. Paths below them are opened without following
	// symbolic links. Default: none, so that host paths are refused.
	HostPathRoots []string

	// Limits bounds what this host runs at once; zero fields take the defaults
	// documented there.
	Limits Limits

	// Clock tells the time that is recorded and that lifetimes are judged by.
	// Default: time.Now.
	Clock func() time.Time
}

// Host runs sandboxes. Make one with New. In the order of a sandbox's life:
//
//	New, RegisterTrusted, Register, SetGrants   configure
//	CheckGrants                                 explain, without reading a value
//	Create, Adopt, Resume                       make a Session
//	Session, Sessions                           find one
//	Reconcile, ReconcileEvery                   agree with providers and ledger
//	StoredState, Discard                        what an earlier process left
//	Close                                       end everything
//
// A Host is safe for concurrent use.
type Host struct {
	id     string
	epoch  string
	source grants.Source
	ledger ledger.Ledger
	redact redact.Options
	tracer trace.Tracer
	limits Limits
	clock  func() time.Time
	events *emitter
	roots  *hostRoots

	live, pending, execs slots
	reconciling          chan struct{} // one Reconcile at a time

	// creating is cancelled when Close stops waiting for what is being made.
	creating       context.Context
	cancelCreating context.CancelFunc

	mu        sync.RWMutex
	closed    bool
	ops       sync.WaitGroup // operations of the host itself; added to under mu
	grants    grants.Set
	providers map[string]*registration
	sessions  map[string]*Session
	detached  map[string]*time.Timer // by session id
	keys      map[string]*keyed
	stored    storedKeys
	resumes   map[string]*flight
	busy      map[string]chan struct{} // attempts that an operation is working on; closed when it ends
	deferred  map[string]bool          // attempts whose removal is to be tried again
}

// Format implements fmt.Formatter: the host's id, whatever the verb. Printing
// reads none of the fields that change.
func (h *Host) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "host.Host["+h.id+"]") }

// New returns a Host. It validates the grants, always, and opens the host path
// roots. Errors are InvalidArgument, or a *grants.Error.
func New(opts Options) (*Host, error) {
	if err := opts.Grants.Validate(); err != nil {
		return nil, failure("new", "", err)
	}
	limits, err := opts.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	if opts.ID == "" {
		if opts.Ledger != nil {
			return nil, invalid("new", "a host with a ledger needs an ID", "set Options.ID to a name that only this host uses")
		}
		opts.ID = randomID()
	}
	if !validOwner(opts.ID) {
		return nil, invalid("new", "the host's ID must be 1 to 64 letters, digits, dots, dashes or underscores", "")
	}
	if opts.Ledger == nil {
		opts.Ledger = ledger.Memory()
	}
	if opts.Source == nil {
		opts.Source = grants.ProcessEnvironment()
	}
	if opts.Tracer == nil {
		opts.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	roots, err := openHostRoots(opts.HostPathRoots)
	if err != nil {
		return nil, err
	}
	h := &Host{
		id: opts.ID, epoch: randomID()[:16], source: opts.Source, ledger: opts.Ledger, redact: opts.Redact,
		tracer: opts.Tracer, limits: limits, clock: opts.Clock, roots: roots,
		events:    newEmitter(opts.Sinks, opts.Logger),
		grants:    opts.Grants.Clone(),
		live:      slots{max: limits.Live, what: "live sessions", setting: "Limits.Live"},
		pending:   slots{max: limits.Pending, what: "sessions being made", setting: "Limits.Pending"},
		execs:     slots{max: limits.Execs, what: "running commands", setting: "Limits.Execs"},
		providers: map[string]*registration{}, sessions: map[string]*Session{},
		detached: map[string]*time.Timer{}, keys: map[string]*keyed{}, resumes: map[string]*flight{},
		busy: map[string]chan struct{}{}, deferred: map[string]bool{}, reconciling: make(chan struct{}, 1),
	}
	h.creating, h.cancelCreating = context.WithCancel(context.Background())
	return h, nil
}

// ID returns the owner written on every sandbox.
func (h *Host) ID() string { return h.id }

// SetGrants replaces the host-scoped grants: the new set is validated in full,
// then swapped. What is bound under grants that no longer cover it is refused
// from then on, creates in progress included.
func (h *Host) SetGrants(set grants.Set) error {
	if err := set.Validate(); err != nil {
		return failure("set grants", "", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grants = set.Clone()
	return nil
}

// effective returns the grants in force now for a run-scoped set.
func (h *Host) effective(run *grants.Set) (grants.Set, error) {
	h.mu.RLock()
	host := h.grants
	h.mu.RUnlock()
	return grants.Merge(host, run)
}

// Session returns the live session with the given id.
func (h *Host) Session(id string) (*Session, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	s, ok := h.sessions[id]
	return s, ok
}

// Sessions returns the live sessions, oldest first.
func (h *Host) Sessions() []*Session {
	h.mu.RLock()
	out := slices.Collect(maps.Values(h.sessions))
	h.mu.RUnlock()
	slices.SortFunc(out, func(a, b *Session) int {
		if c := a.createdAt.Compare(b.createdAt); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
	return out
}

// Close ends the host: new operations are refused, what is being made is waited
// for until ctx is done and cancelled then, and every live session is closed,
// which destroys its sandbox. Detach those that are to live on first. A sandbox
// that could not be destroyed stays in the ledger; the error joins one per
// session. Close may be called again.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	for id, t := range h.detached {
		t.Stop()
		delete(h.detached, id)
	}
	h.mu.Unlock()

	made := make(chan struct{})
	go func() { h.ops.Wait(); close(made) }()
	select {
	case <-made:
	case <-ctx.Done():
		h.cancelCreating()
		<-made // cancelled operations come back: see bounded
	}
	h.cancelCreating()

	sessions := h.Sessions()
	errs := make([]error, len(sessions))
	inParallel(len(sessions), 16, func(i int) { errs[i] = sessions[i].Close(ctx) })
	h.events.close(ctx)
	h.roots.close()
	return errors.Join(errs...)
}

// begin counts an operation of the host itself. The returned context ends when
// Close gives up waiting.
func (h *Host) begin(ctx context.Context, op string) (context.Context, func(), error) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, nil, &provider.Error{Code: provider.FailedPrecondition, Op: op, Message: "the host is closed", Applied: provider.AppliedNo}
	}
	h.ops.Add(1)
	h.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(h.creating, cancel)
	return ctx, func() { stop(); cancel(); h.ops.Done() }, nil
}

// inParallel calls f for 0 … n-1, at most width at once.
func inParallel(n, width int, f func(int)) {
	var wg sync.WaitGroup
	tickets := make(chan struct{}, width)
	for i := range n {
		tickets <- struct{}{}
		wg.Go(func() { f(i); <-tickets })
	}
	wg.Wait()
}

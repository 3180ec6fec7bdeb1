// Package fake is a provider that keeps its sandboxes in memory, for the tests
// of those who embed the host.
//
// It keeps the whole provider contract: providertest passes on it. Commands are
// Go functions: some useful ones are built in (see [Builtins]), an embedder
// registers others in [Options].Commands. ExecRequest.Shell is run by a minimal
// interpreter (see [Shell]) or by the embedder's own. Nothing a sandbox does
// reaches the machine: no process, no file, no network.
//
// # What a test can do with it
//
//   - Weaken it: Options.Describe edits the description, and the fake then
//     behaves as declared (no standard input, merged stderr, create transport
//     only, no transport, killing the command alone …).
//   - Look into it: [Provider.Calls], [Provider.Execs], [Provider.Record] and
//     [Provider.Running] say what was asked, what reached which process and what
//     the provider stores. They compare values and never give one out.
//   - Break it: [Hooks] fail, delay, hang or drop the answer of any method.
//
// A fake never leaves anything running after Destroy of all its sandboxes, as
// long as registered commands return when their context ends.
package fake

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// Options for New. The zero value is a provider that can do everything.
type Options struct {
	// Name in the description; default "fake".
	Name string
	// Describe edits the default description before the provider is made. The
	// fake behaves as the edited one says. An invalid result makes New panic:
	// it is a mistake in the test.
	Describe func(*provider.Description)
	// Commands by Args[0], before the built-in ones.
	Commands map[string]Command
	// Shell runs ExecRequest.Shell; default Shell.
	Shell Command
	// Base is the environment every command starts from; default PATH, HOME and
	// LANG.
	Base map[string]string
	// Endpoint answers Ports.Port; default 127.0.0.1:PORT.
	Endpoint func(ref provider.Ref, port int) provider.Endpoint
	// NoPorts, NoPauser, NoArchiver and NoLogs leave the optional interface out
	// of the sandboxes' method sets.
	NoPorts, NoPauser, NoArchiver, NoLogs bool
	// NoList makes List fail with Unsupported.
	NoList bool
	// NoSecrets makes Exec refuse request-scoped secrets with Unsupported.
	NoSecrets bool
	// Clock is used for times and TTL; default time.Now.
	Clock func() time.Time
	// Hooks in force from the start; see SetHooks.
	Hooks Hooks
}

// Provider is the in-memory provider. Make it with New. It is safe for
// concurrent use.
type Provider struct {
	opts Options
	desc provider.Description

	mu        sync.Mutex
	hooks     Hooks
	calls     []*Call
	execs     []*execution
	sandboxes map[string]*sandbox // by id, in any state but gone
	sessions  map[string][]*sandbox
	nextEnd   time.Time          // when the first lifetime is over; zero: never
	records   map[string]*Record // by id, kept after Destroy
	lastID    int
	lastPID   int
}

// Format implements fmt.Formatter: its name, whatever the verb. Printing
// reads none of the fields that change.
func (p *Provider) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "fake.Provider["+p.desc.Name+"]")
}

// New returns a provider without sandboxes.
func New(opts Options) *Provider {
	if opts.Name == "" {
		opts.Name = "fake"
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Shell == nil {
		opts.Shell = Shell
	}
	if opts.Base == nil {
		opts.Base = map[string]string{"PATH": "/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
	}
	if opts.Endpoint == nil {
		opts.Endpoint = func(_ provider.Ref, port int) provider.Endpoint {
			return provider.Endpoint{Address: fmt.Sprintf("127.0.0.1:%d", port)}
		}
	}
	opts.Commands, opts.Base = maps.Clone(opts.Commands), maps.Clone(opts.Base)
	d := defaultDescription(opts.Name)
	if opts.Describe != nil {
		opts.Describe(&d)
	}
	if err := provider.ValidateDescription(d); err != nil {
		panic("fake: Options.Describe made an invalid description: " + err.Error())
	}
	return &Provider{opts: opts, desc: d, hooks: opts.Hooks,
		sandboxes: map[string]*sandbox{}, sessions: map[string][]*sandbox{}, records: map[string]*Record{}}
}

func defaultDescription(name string) provider.Description {
	return provider.Description{
		Name:      name,
		Version:   "1",
		Isolation: "none",
		OpenEnds:  []string{"commands are Go functions in the host's own process"},
		Transports: []provider.TransportInfo{
			{Transport: provider.TransportExec, Detail: "memory", Exposure: "the process alone"},
			{Transport: provider.TransportCreate, Detail: "record", Exposure: "whoever can read the provider's record"},
		},
		Exec: provider.ExecCapabilities{
			Stream: true, Stdin: provider.StdinLive, TTY: true, Stderr: provider.StderrSeparate,
			Kill: provider.KillTree, PartialOnTimeout: true, BackgroundSafe: true,
		},
		Features: provider.Features{
			Image: provider.SupportEnforced, User: provider.SupportEnforced,
			NetworkNone: provider.SupportEnforced, NetworkDefault: provider.SupportEnforced,
			Ports: provider.SupportEnforced, StartImage: provider.SupportEnforced,
			CPUs: provider.SupportUnenforced, MemoryMiB: provider.SupportUnenforced,
			PIDs: provider.SupportEnforced, DiskMiB: provider.SupportUnenforced,
			TTL: provider.SupportEnforced, WorkspaceMove: provider.SupportEnforced,
		},
		DefaultNetwork: "none",
		Survives:       true,
		IsolatesExecs:  true,
	}
}

// Describe implements provider.Provider.
func (p *Provider) Describe() provider.Description {
	d := p.desc
	d.OpenEnds = slices.Clone(d.OpenEnds)
	d.Transports = slices.Clone(d.Transports)
	d.RefusedDestinations = slices.Clone(d.RefusedDestinations)
	return d
}

// Create implements provider.Provider.
func (p *Provider) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	call := Call{Method: MethodCreate, Session: req.SessionID, Transport: req.Transport,
		Env: slices.Sorted(maps.Keys(req.Environment)), Protected: req.Protected.Names()}
	return invoke(ctx, p, call, func() (provider.Sandbox, error) {
		if err := provider.ValidateCreate(req); err != nil {
			return nil, err
		}
		if err := provider.CheckCreate(p.desc, req); err != nil {
			return nil, err
		}
		if req.Progress != nil {
			req.Progress(provider.Stage{Name: "start"})
		}
		sb, made, err := p.create(req)
		if err != nil {
			return nil, err
		}
		if made && req.Checkpoint != nil {
			if err := req.Checkpoint(sb.ref()); err != nil {
				p.mu.Lock()
				p.drop(sb)
				p.mu.Unlock()
				e := failure(provider.Unavailable, "create", req.Name, "the ref could not be made durable", provider.AppliedNo)
				e.Err = err
				return nil, e
			}
		}
		return sb.face(), nil
	})
}

// create makes the sandbox, or finds the one to adopt.
func (p *Provider) create(req provider.CreateRequest) (sb *sandbox, made bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	for _, sb := range p.sessions[req.SessionID] {
		if req.Replaces != nil && sb.labels[provider.LabelAttempt] != req.Labels[provider.LabelAttempt] {
			continue
		}
		if sb.labels[provider.LabelDigest] != req.Digest {
			return nil, false, failure(provider.Conflict, "create", req.Name,
				"a sandbox of this session with another digest exists", provider.AppliedNo)
		}
		return sb, false, nil
	}
	p.lastID++
	sb = p.newSandbox(fmt.Sprintf("fake-%06d", p.lastID), req)
	if req.Replaces != nil && !req.EmptyWorkspace && p.desc.Features.SharedWorkspace {
		if old := p.sandboxes[req.Replaces.ID]; old != nil {
			sb.files = old.files
		}
	}
	p.add(sb)
	p.records[sb.id] = newRecord(sb, req)
	return sb, true, nil
}

// add makes a sandbox findable. The caller holds the lock.
func (p *Provider) add(sb *sandbox) {
	session := sb.labels[provider.LabelSession]
	p.sandboxes[sb.id] = sb
	p.sessions[session] = append(p.sessions[session], sb)
	if end := sb.created.Add(sb.ttl); sb.ttl > 0 && (p.nextEnd.IsZero() || end.Before(p.nextEnd)) {
		p.nextEnd = end
	}
}

// drop is the opposite of add. The caller holds the lock.
func (p *Provider) drop(sb *sandbox) {
	session := sb.labels[provider.LabelSession]
	delete(p.sandboxes, sb.id)
	p.sessions[session] = slices.DeleteFunc(p.sessions[session], func(o *sandbox) bool { return o == sb })
	if len(p.sessions[session]) == 0 {
		delete(p.sessions, session)
	}
}

// Open implements provider.Provider.
func (p *Provider) Open(ctx context.Context, ref provider.Ref) (provider.Sandbox, error) {
	return invoke(ctx, p, Call{Method: MethodOpen, Ref: ref.ID}, func() (provider.Sandbox, error) {
		sb, err := p.find("open", ref)
		if err != nil {
			return nil, err
		}
		return sb.face(), nil
	})
}

func (p *Provider) find(op string, ref provider.Ref) (*sandbox, error) {
	if err := provider.ValidateRef(ref); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	sb := p.sandboxes[ref.ID]
	if sb == nil {
		return nil, gone(op)
	}
	return sb, nil
}

// List implements provider.Provider. It returns the sandboxes that carry an
// owner label, oldest first.
func (p *Provider) List(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
	return invoke(ctx, p, Call{Method: MethodList, Session: q.Session}, func() ([]provider.Resource, error) {
		if p.opts.NoList {
			return nil, failure(provider.Unsupported, "list", "", "this fake was told not to list", provider.AppliedNo)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.expire()
		out := []provider.Resource{}
		found := p.sessions[q.Session]
		if q.Session == "" {
			found = slices.Collect(maps.Values(p.sandboxes))
		}
		for _, sb := range slices.SortedFunc(slices.Values(found), func(a, b *sandbox) int { return strings.Compare(a.id, b.id) }) {
			l := sb.labels
			if l[provider.LabelOwner] == "" ||
				q.Owner != "" && l[provider.LabelOwner] != q.Owner ||
				q.Session != "" && l[provider.LabelSession] != q.Session {
				continue
			}
			out = append(out, provider.Resource{Ref: sb.ref(), Name: sb.name, Labels: maps.Clone(l),
				State: sb.state(), CreatedAt: sb.created})
		}
		return out, nil
	})
}

// Destroy implements provider.Provider.
func (p *Provider) Destroy(ctx context.Context, ref provider.Ref) error {
	_, err := invoke(ctx, p, Call{Method: MethodDestroy, Ref: ref.ID}, func() (struct{}, error) {
		var none struct{}
		sb, err := p.find("destroy", ref)
		if provider.CodeOf(err) == provider.NotFound {
			return none, nil
		}
		if err != nil {
			return none, err
		}
		if err := sb.shutdown(ctx); err != nil {
			return none, err
		}
		p.mu.Lock()
		p.drop(sb)
		p.mu.Unlock()
		return none, nil
	})
	return err
}

// expire removes sandboxes whose TTL is over. The caller holds the lock.
func (p *Provider) expire() {
	if p.desc.Features.TTL != provider.SupportEnforced {
		return
	}
	now := p.opts.Clock()
	if p.nextEnd.IsZero() || now.Before(p.nextEnd) {
		return
	}
	p.nextEnd = time.Time{}
	for _, sb := range p.sandboxes {
		end := sb.created.Add(sb.ttl)
		switch {
		case sb.ttl <= 0:
		case !now.Before(end):
			sb.setState(provider.StateStopped) // nothing new starts
			sb.killAll()
			p.drop(sb)
		case p.nextEnd.IsZero() || end.Before(p.nextEnd):
			p.nextEnd = end
		}
	}
}

// BreakStreams cuts the connection to every command that runs in a sandbox, as a
// fault of the network does: the commands go on, their exits are lost. It
// returns how many were cut.
func (p *Provider) BreakStreams(ref provider.Ref) int {
	p.mu.Lock()
	sb := p.sandboxes[ref.ID]
	p.mu.Unlock()
	if sb == nil {
		return 0
	}
	n := 0
	for _, e := range sb.running() {
		if e.lose() {
			n++
		}
	}
	return n
}

func (p *Provider) nextPID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastPID++
	return p.lastPID
}

// Plant adds a sandbox that the host did not ask for, with exactly these labels,
// to test that foreign sandboxes are left alone and that adopting works.
func (p *Provider) Plant(name string, labels map[string]string) provider.Ref {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastID++
	sb := p.newSandbox(fmt.Sprintf("fake-%06d", p.lastID), provider.CreateRequest{
		Name: name, Labels: labels, Root: "/workspace"})
	p.add(sb)
	return sb.ref()
}

// SetState puts a sandbox in a state, as an operator or a vendor might. Its
// processes are killed unless the state is running or paused. It reports
// whether the sandbox exists.
func (p *Provider) SetState(ref provider.Ref, state provider.State) bool {
	p.mu.Lock()
	sb := p.sandboxes[ref.ID]
	if sb != nil && state == provider.StateGone {
		p.drop(sb)
	}
	p.mu.Unlock()
	if sb == nil {
		return false
	}
	sb.setState(state)
	if state != provider.StateRunning && state != provider.StatePaused {
		sb.killAll()
	}
	return true
}

func failure(code provider.Code, op, subject, message string, applied provider.Applied) *provider.Error {
	return &provider.Error{Code: code, Op: op, Provider: "fake", Subject: subject, Message: message, Applied: applied}
}

func gone(op string) error {
	return failure(provider.NotFound, op, "", "no such sandbox", provider.AppliedNo)
}

// values turns literals into values, so that a printed process shows none.
func values(env map[string]string) map[string]secret.Value {
	out := make(map[string]secret.Value, len(env))
	for k, v := range env {
		out[k] = secret.FromString(v)
	}
	return out
}

package host

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/redact"
	"github.com/sbxhost/sbxhost/secret"
)

// Session is the host's live handle on one sandbox. Create, Resume and Adopt
// make it; Close destroys the sandbox, Detach lets go of it. A Session is safe
// for concurrent use.
type Session struct {
	h         *Host
	reg       *registration
	id        string
	key       string
	principal string
	createdAt time.Time

	manifest    manifest.Manifest
	run         *grants.Set
	transport   provider.TransportInfo
	network     string
	unenforced  []string
	adopted     bool
	sharedTrust bool
	foreignPast bool // commands that nobody here knows may be running in it

	redactor *redact.Redactor
	boundary *boundary
	sandbox  provider.Sandbox // behind deadlines and the boundary
	ref      provider.Ref
	ledger   *ledgered // nil when adopted

	// ending is cancelled when the session stops taking operations.
	ending context.Context
	end    context.CancelCauseFunc
	// closing is held by the one Close, Detach or replacement that is under way.
	closing chan struct{}

	mu        sync.Mutex
	phase     phase
	ops       int
	quiet     chan struct{} // closed when ops is 0 after the session stopped taking operations
	binding   *grants.Binding
	granted   grants.Set // what binding was made under
	values    secret.Env // what each exec gets, with the exec transport
	expiresAt time.Time  // zero: never
	lastUse   time.Time
	touched   time.Time // when the ledger was last told
	timer     *time.Timer
	execs     *execTable
	request   requestSecrets
}

// Format implements fmt.Formatter: the session's id, whatever the verb. Printing
// reads none of the fields that change.
func (s *Session) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "host.Session["+s.id+"]") }

// phase of a session's life.
type phase int

const (
	phaseOpen   phase = iota
	phaseEnding       // takes no operations; Close may be repeated
	phaseClosed       // destroyed, detached or replaced
)

// session makes the live handle of what a plan built.
func (p *plan) session(led *ledgered, sb provider.Sandbox) *Session {
	s := &Session{
		h: p.h, reg: p.reg, id: p.id, key: p.key, principal: p.principal,
		manifest: p.manifest, run: p.run, transport: p.transport,
		network: p.request.Network, unenforced: p.unenforced, sharedTrust: p.sharedTrust,
		redactor: p.redactor, boundary: p.boundary, sandbox: sb, ref: sb.Ref(), ledger: led,
		binding: p.binding, granted: p.grants, createdAt: led.record.CreatedAt, expiresAt: led.record.ExpiresAt,
		lastUse: p.h.clock(), touched: p.h.clock(), closing: make(chan struct{}, 1),
	}
	if p.transport.Transport == provider.TransportExec {
		s.values = p.values
	}
	s.ending, s.end = context.WithCancelCause(context.Background())
	return s
}

// admit makes a session findable and starts its lifetime.
func (h *Host) admit(s *Session) {
	h.mu.Lock()
	h.sessions[s.id] = s
	if t := h.detached[s.id]; t != nil {
		t.Stop()
		delete(h.detached, s.id)
	}
	h.mu.Unlock()
	s.watchLifetime()
}

// forget is the opposite of admit. It frees the session's slot and key.
func (h *Host) forget(s *Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions[s.id] != s {
		return
	}
	delete(h.sessions, s.id)
	if k := h.keys[s.key]; k != nil && k.s == s {
		delete(h.keys, s.key)
	}
	h.live.release()
}

// ID returns the session's id, 32 hex digits made by the host.
func (s *Session) ID() string { return s.id }

// Provider returns the name its provider is registered under.
func (s *Session) Provider() string { return s.reg.name }

// Transport returns how protected values are delivered: "exec/supervisor",
// "create" and the like; "none" for a session without.
func (s *Session) Transport() string { return s.transport.String() }

// Unmaskable lists the values in force that cannot be redacted, and why.
func (s *Session) Unmaskable() []redact.Refused { return s.redactor.Unmaskable() }

// Info describes a session. It holds names, never values.
type Info struct {
	ID        string            `json:"id"`
	Provider  string            `json:"provider"`
	Transport string            `json:"transport"`
	Sandbox   string            `json:"sandbox"` // the provider's id of it
	Image     string            `json:"image,omitempty"`
	Root      string            `json:"root"`
	Network   string            `json:"network"`
	Protected []string          `json:"protected,omitempty"` // destinations
	Labels    map[string]string `json:"labels,omitempty"`
	CreatedAt time.Time         `json:"createdAt"`
	ExpiresAt time.Time         `json:"expiresAt,omitzero"`
	// Isolation is the boundary in force and OpenEnds what it leaves open.
	Isolation string   `json:"isolation,omitempty"`
	OpenEnds  []string `json:"openEnds,omitempty"`
	// Unenforced lists wishes of the manifest that are not enforced.
	Unenforced []string `json:"unenforced,omitempty"`
	// Adopted sessions are of a sandbox that somebody else made.
	Adopted bool `json:"adopted,omitempty"`
}

// Info describes the session. It does no I/O.
func (s *Session) Info() Info {
	s.mu.Lock()
	expires := s.expiresAt
	s.mu.Unlock()
	return Info{
		ID: s.id, Provider: s.reg.name, Transport: s.Transport(), Sandbox: s.boundary.text(s.ref.ID),
		Image: s.manifest.Image, Root: s.manifest.Root, Network: s.network,
		Protected: destinations(s.manifest.Pairs()), Labels: maps.Clone(s.manifest.Labels),
		CreatedAt: s.createdAt, ExpiresAt: expires,
		Isolation: s.reg.desc.Isolation, OpenEnds: slices.Clone(s.reg.desc.OpenEnds),
		Unenforced: slices.Clone(s.unenforced), Adopted: s.adopted,
	}
}

// Status asks the provider for the sandbox's present state.
func (s *Session) Status(ctx context.Context) (provider.Status, error) {
	ctx, done, err := s.use(ctx, "status")
	if err != nil {
		return provider.Status{State: provider.StateUnknown}, err
	}
	defer done()
	return s.sandbox.Status(ctx)
}

// use begins an operation. The returned context also ends when the session does.
func (s *Session) use(ctx context.Context, op string) (context.Context, func(), error) {
	// Before the authority too, which ends with the session: "closed" is what
	// the caller can act on.
	s.mu.Lock()
	err := s.closedLocked(op)
	s.mu.Unlock()
	if err == nil {
		err = s.authority(ctx, op)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if closed := s.closedLocked(op); closed != nil {
		return nil, nil, closed // which is also why it has no authority, if it ended just now
	}
	if err != nil {
		return nil, nil, err
	}
	s.ops++
	s.lastUse = s.h.clock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ending, cancel)
	return ctx, func() {
		stop()
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lastUse = s.h.clock()
		if s.ops--; s.ops == 0 && s.quiet != nil {
			close(s.quiet)
			s.quiet = nil
		}
	}, nil
}

// closedLocked refuses an operation on a session that has ended. s.mu is held.
func (s *Session) closedLocked(op string) error {
	if s.phase == phaseOpen {
		return nil
	}
	return refusal(provider.FailedPrecondition, op, "the session "+s.id+" is closed", "create or resume one")
}

// authority confirms that the session's references may be used now. A session
// whose manifest has references and that no valid binding covers is refused,
// whatever the reason.
func (s *Session) authority(ctx context.Context, op string) error {
	pairs := s.manifest.Pairs()
	if len(pairs) == 0 {
		return nil
	}
	if !s.reg.receives() {
		return refusal(provider.Unsupported, op, "provider "+s.reg.name+" cannot be given references", "")
	}
	now, err := s.h.effective(s.run)
	if err != nil {
		return failure(op, s.reg.name, err)
	}
	use := grants.Use{Manifest: s.manifest, Provider: s.reg.name, Session: s.id, Grants: now}
	for {
		s.mu.Lock()
		b, granted := s.binding, s.granted
		s.mu.Unlock()
		refused := b.Covers(use)
		if refused == nil {
			return nil
		}
		if was := use; b != nil {
			was.Grants = granted
			if b.Covers(was) == nil {
				return s.rebind(ctx, op, now)
			}
		}
		s.mu.Lock()
		same := s.binding == b
		s.mu.Unlock()
		if same {
			return failure(op, s.reg.name, refused)
		}
		// Another operation made a new binding meanwhile: that one counts.
	}
}

// rebind makes a new binding after the host's grants were reloaded: a binding
// dies with any change of them, and the new ones must cover every reference. The
// values stay those that were read when the session began.
func (s *Session) rebind(ctx context.Context, op string, now grants.Set) error {
	b, err := grants.Bind(ctx, grants.BindRequest{Manifest: s.manifest, Grants: now, Source: s.h.source,
		Provider: s.reg.name, Session: s.id, RefusedDestinations: s.reg.desc.RefusedDestinations})
	s.disclosure().resolved(s.manifest.Pairs(), err)
	if err != nil {
		return failure(op, s.reg.name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.binding.Revoke()
	s.binding, s.granted = b, now
	if s.phase != phaseOpen {
		b.Revoke()
	}
	return nil
}

func (s *Session) disclosure() disclosure {
	return disclosure{events: s.h.events, clean: s.redactor, exposure: s.transport.Exposure, record: Record{
		Host: s.h.id, Principal: s.principal, Session: s.id, Provider: s.reg.name, Transport: s.Transport()}}
}

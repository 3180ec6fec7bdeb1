package host

import (
	"context"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

// CreateRequest asks for a new session.
type CreateRequest struct {
	// Provider is the name it was registered under.
	Provider string
	// Manifest is what is wanted. It is copied.
	Manifest manifest.Manifest
	// Grants are run-scoped: each non-nil kind replaces the host's of the same
	// kind. nil: the host's grants.
	Grants *grants.Set
	// Transport to use for protected values. Never downgraded silently.
	Transport Transport
	// Key is the caller's idempotency key: the same key with the same manifest
	// gives the same session back, with another manifest it is Conflict. The
	// key is free again when the session is closed. "": none.
	Key string
	// SharedTrust declares that everything run in this sandbox may see each
	// other's request-scoped secrets. See ExecRequest.Secrets.
	SharedTrust bool
	// Principal is who asks, for events and disclosure records. It grants
	// nothing.
	Principal string
	// Progress is told about the provider's steps. It must not block. May be
	// nil.
	Progress func(provider.Stage)
}

// Create makes a sandbox and returns its session. The caller owns the session
// and must Close or Detach it.
//
// Each step comes before the next, and nothing of the provider is touched before
// the fifth: (1) manifest and request are validated; (2) references need a
// trusted provider with a transport; (3) they are bound under the grants in
// force and their values are read, once; (4) the redactor knows the values and
// the intent is in the ledger; (5) the provider creates; (6) files are written;
// (7) the ledger commits. A failure after the fifth destroys what was made; what
// could not be destroyed stays in the ledger and is tried again.
//
// Errors: InvalidArgument, Unsupported, NotGranted (a *grants.Error says which
// pair to add, or which source is not set), NotFound for an unknown provider,
// Conflict for a Key, ResourceExhausted at a limit; then the provider's, or a
// *LifecycleError when there are references. Cancelling ctx undoes what was
// done.
func (h *Host) Create(ctx context.Context, req CreateRequest) (*Session, error) {
	p := &plan{h: h, op: "create", providerName: req.Provider, manifest: req.Manifest, run: req.Grants,
		want: req.Transport, key: req.Key, sharedTrust: req.SharedTrust, principal: req.Principal,
		progress: req.Progress, id: randomID(), attempt: randomID()}
	ctx, end, err := h.begin(ctx, p.op)
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, tr := h.trace(ctx, KindCreate, p.op)
	tr.principal, tr.provider = req.Principal, shown(req.Provider)
	s, err := h.create(ctx, p)
	if s != nil {
		tr.session, tr.transport = s.id, s.Transport()
	}
	tr.redactor = p.redactor
	tr.end(err)
	return s, err
}

func (h *Host) create(ctx context.Context, p *plan) (*Session, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if p.key == "" {
		return h.createNew(ctx, p)
	}
	return h.createOnce(ctx, p)
}

// createNew goes through steps 3 to 7.
func (h *Host) createNew(ctx context.Context, p *plan) (*Session, error) {
	if err := h.pending.reserve(p.op); err != nil {
		return nil, err
	}
	defer h.pending.release()
	if err := h.live.reserve(p.op); err != nil {
		return nil, err
	}
	if err := p.bind(ctx); err != nil {
		h.live.release()
		return nil, err
	}
	// Until the session can be found, nothing else may take its sandbox for
	// nobody's.
	defer h.setBusy(p.attempt, false)
	s, err := p.build(ctx, p.fill())
	if err != nil {
		p.binding.Revoke()
		h.live.release()
		return nil, err
	}
	h.admit(s)
	return s, nil
}

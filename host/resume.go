package host

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

const opResume = "resume"

// ResumeRequest asks to go on with a session from its state.
type ResumeRequest struct {
	// State is what Session.State returned. It is hostile input: it names the
	// session, and everything else in it is only compared.
	State []byte
	// Provider must name the session's provider. Required for a protected
	// session; "" means the recorded one otherwise.
	Provider string
	// Manifest is the current trusted manifest. Required for a protected
	// session, and must declare exactly the persisted (destination, source)
	// pairs. nil: the persisted one, for an unprotected session.
	Manifest *manifest.Manifest
	// Grants as in CreateRequest.
	Grants *grants.Set
	// Transport as in CreateRequest.
	Transport Transport
	// DiscardWorkspace allows a replacement that starts without the files of
	// the previous sandbox.
	DiscardWorkspace bool
	// SharedTrust as in CreateRequest.
	SharedTrust bool
	// Principal as in CreateRequest.
	Principal string
	// Progress as in CreateRequest.
	Progress func(provider.Stage)
}

// Resume goes on with a session. An unprotected one is re-attached: the same
// sandbox, with the literals and lifetime of the current manifest. A session
// that is live here is returned as it is. Where sandboxes end with the process
// that made them, what such a process left is replaced, as below.
//
// A protected one never is: state and current manifest must declare exactly the
// same pairs, the current grants are bound again and the values read again, a
// replacement is built in full, the files under the root move to it, and then
// the previous sandbox is destroyed. If the replacement fails, the previous one
// is untouched. If destroying the previous one fails, Resume returns the session
// and a *RetirementError.
//
// Whose sandbox it is, and which, comes from the ledger and from the labels at
// the provider, never from the state. Without proof in either the state is
// refused (NotFound). Other errors: InvalidArgument, Conflict for what does not
// match, Unsupported, NotGranted, FailedPrecondition for a workspace that cannot
// move; then as Create. Concurrent calls for one session make one replacement.
func (h *Host) Resume(ctx context.Context, req ResumeRequest) (*Session, error) {
	ctx, end, err := h.begin(ctx, opResume)
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, tr := h.trace(ctx, KindResume, opResume)
	tr.principal = req.Principal
	s, err := h.resume(ctx, req, tr)
	if s != nil {
		tr.provider, tr.transport, tr.redactor = s.reg.name, s.Transport(), s.redactor
	}
	tr.end(err)
	return s, err
}

func (h *Host) resume(ctx context.Context, req ResumeRequest, tr *traced) (*Session, error) {
	saved, err := parseState(req.State)
	if err != nil {
		return nil, err
	}
	tr.session = saved.session
	return h.oneResume(ctx, saved.session, resumePrint(req), func() (*Session, error) {
		r := &resumption{h: h, req: req, saved: saved}
		if err := r.check(); err != nil {
			return nil, err
		}
		tr.provider = r.plan.providerName
		if err := r.prove(ctx); err != nil {
			return nil, err
		}
		r.plan.key = r.record.Key
		if len(r.plan.pairs) > 0 {
			return r.replace(ctx)
		}
		if r.ended() {
			// The sandbox is made anew, so its host paths are used after all.
			r.plan.attach = false
			if err := r.plan.check(); err != nil {
				return nil, err
			}
			return r.replace(ctx)
		}
		return r.attach(ctx)
	})
}

// flight is a resume that is under way.
type flight struct {
	print [sha256.Size]byte
	done  chan struct{}
	s     *Session
	err   error
}

// oneResume lets one resume of a session run; callers that ask for the same
// meanwhile get its result.
func (h *Host) oneResume(ctx context.Context, session string, print [sha256.Size]byte, f func() (*Session, error)) (*Session, error) {
	h.mu.Lock()
	if fl := h.resumes[session]; fl != nil {
		h.mu.Unlock()
		if fl.print != print {
			return nil, refusal(provider.Conflict, opResume, "another resume of the session "+session+" is under way", "wait for it")
		}
		select {
		case <-fl.done:
			return fl.s, fl.err
		case <-ctx.Done():
			return nil, refusal(provider.CodeOf(ctx.Err()), opResume, "gave up waiting for another resume of the session "+session, "")
		}
	}
	fl := &flight{print: print, done: make(chan struct{})}
	h.resumes[session] = fl
	h.mu.Unlock()
	fl.s, fl.err = f()
	h.mu.Lock()
	delete(h.resumes, session)
	h.mu.Unlock()
	close(fl.done)
	return fl.s, fl.err
}

// resumePrint covers everything that decides what a resume may do, so that
// nobody gets a session that he could not have resumed himself.
func resumePrint(req ResumeRequest) [sha256.Size]byte {
	digest := ""
	if req.Manifest != nil {
		digest = req.Manifest.Digest()
	}
	doc, _ := json.Marshal([]any{req.State, req.Provider, digest, req.Manifest != nil, req.Grants, req.Transport,
		req.DiscardWorkspace, req.SharedTrust, req.Principal}) // plain data; cannot fail
	return sha256.Sum256(doc)
}

// resumption is one Resume between its check and its session.
type resumption struct {
	h     *Host
	req   ResumeRequest
	saved savedState
	plan  *plan

	record   ledger.Record       // the ledger's, or made from the labels
	recorded bool                // it is the ledger's
	listed   []provider.Resource // what the provider reports as ours
	listErr  error
}

// check validates everything that can be validated without asking the ledger or
// the provider, and before any source is read.
func (r *resumption) check() error {
	name, m := r.req.Provider, r.saved.manifest
	if name == "" {
		name = r.saved.provider
	}
	if r.req.Manifest != nil {
		m = *r.req.Manifest
	}
	if name != r.saved.provider {
		return refusal(provider.Conflict, opResume, "the state is of the provider "+r.saved.provider+", not of "+shown(name), "resume it on its own provider")
	}
	persisted, declared := r.saved.manifest.Pairs(), m.Pairs()
	protected := len(persisted) > 0 || len(declared) > 0 || len(r.saved.protected) > 0
	if protected {
		reg, err := r.h.registration(opResume, name)
		if err != nil {
			return err
		}
		// Whoever could not have made the session is told so first.
		if _, err := reg.choose(opResume, TransportAuto); err != nil {
			return err
		}
		if r.req.Provider == "" || r.req.Manifest == nil {
			return invalid(opResume, "resuming a session with references needs the provider and the current manifest from the caller", "set Provider and Manifest")
		}
		if !slices.Equal(persisted, declared) || !slices.Equal(r.saved.protected, orEmpty(destinations(declared))) {
			return mismatch("the current manifest and the state do not declare the same references", "resume with the manifest that the session was made from")
		}
	}
	if what := fixedDifference(r.saved.manifest, m); what != "" {
		return mismatch("the current manifest and the state differ in "+what+", which cannot change on resume", "create a new session")
	}
	r.plan = &plan{h: r.h, op: opResume, providerName: name, manifest: m, run: r.req.Grants, want: r.req.Transport,
		sharedTrust: r.req.SharedTrust, principal: r.req.Principal, progress: r.req.Progress,
		id: r.saved.session, attempt: randomID(),
		// Nothing is written but into a replacement that begins empty.
		attach: !protected, keepFiles: !r.req.DiscardWorkspace}
	return r.plan.check()
}

func mismatch(message, remedy string) error {
	return refusal(provider.Conflict, opResume, message, remedy)
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// fixedDifference names a part of the manifest that a running sandbox, or its
// workspace, depends on and that differs.
func fixedDifference(a, b manifest.Manifest) string {
	switch {
	case a.Root != b.Root:
		return "root"
	case a.User != b.User:
		return "user"
	case !slices.Equal(a.PathGrants, b.PathGrants):
		return "pathGrants"
	case len(a.Pairs()) > 0:
		return "" // a replacement takes the rest from the current manifest
	case a.Image != b.Image:
		return "image"
	case a.Network != b.Network:
		return "network"
	case a.Start != b.Start:
		return "start"
	case !slices.Equal(a.Ports, b.Ports):
		return "ports"
	case a.Resources != b.Resources:
		return "resources"
	}
	return ""
}

// prove finds out whose the session is, from the ledger and from the labels at
// the provider.
func (r *resumption) prove(ctx context.Context) error {
	records, err := r.h.ledger.Session(ctx, r.saved.session)
	if err != nil {
		return ledgerFailed(opResume, provider.AppliedNo, err)
	}
	known := len(records) > 0
	records = slices.DeleteFunc(records, func(rec ledger.Record) bool {
		return rec.Owner != r.h.id || rec.Phase != ledger.Created
	})
	if known && len(records) == 0 {
		return refusal(provider.NotFound, opResume, "the session "+r.saved.session+" was closed, was never finished, or is not this host's", "create a new session")
	}
	if len(records) > 0 {
		r.record, r.recorded = records[len(records)-1], true
		// What the ledger alone shows is refused before the provider is asked.
		if err := r.compare(); err != nil {
			return err
		}
	}
	r.listed, r.listErr = r.plan.reg.provider.List(ctx, provider.Query{Owner: r.h.id, Session: r.saved.session})
	r.listed = slices.DeleteFunc(r.listed, func(x provider.Resource) bool {
		return x.Labels[provider.LabelOwner] != r.h.id || x.Labels[provider.LabelSession] != r.saved.session || x.State == provider.StateGone
	})
	if r.recorded {
		return r.compareLabels()
	}
	if r.listErr != nil {
		return refusal(provider.FailedPrecondition, opResume, "the ledger does not know the session "+r.saved.session+", and the provider cannot be asked whose it is", "try again later")
	}
	if len(r.listed) == 0 {
		return refusal(provider.NotFound, opResume, "neither the ledger nor the provider knows the session "+r.saved.session+" as this host's", "")
	}
	if len(r.listed) > 1 {
		return refusal(provider.Conflict, opResume, "the provider has more than one sandbox of the session "+r.saved.session+", and the ledger knows none", "reconcile first")
	}
	x := r.listed[0]
	r.record = ledger.Record{Session: r.saved.session, Owner: r.h.id, Epoch: x.Labels[provider.LabelEpoch],
		Provider: r.plan.providerName, Name: x.Name, Attempt: x.Labels[provider.LabelAttempt], Digest: x.Labels[provider.LabelDigest],
		Phase: ledger.Created, Ref: x.Ref, Protected: x.Labels[provider.LabelProtected] == "1", CreatedAt: x.CreatedAt}
	if r.record.CreatedAt.IsZero() {
		r.record.CreatedAt = r.h.clock()
	}
	if r.record.Attempt == "" {
		return refusal(provider.NotFound, opResume, "the sandbox of the session "+r.saved.session+" lacks the labels that would prove it this host's", "")
	}
	return r.compare()
}

// compare refuses a state that says anything else than the record does.
func (r *resumption) compare() error {
	protected := len(r.plan.pairs) > 0
	switch {
	case r.record.Provider != r.plan.providerName:
		return mismatch("the session "+r.saved.session+" is of another provider", "resume it on its own provider")
	case r.record.Ref.ID != r.saved.ref.ID:
		return mismatch("the state names another sandbox than the session's", "use the latest state that Session.State returned, unchanged, or Host.StoredState")
	case r.record.Protected != protected:
		return mismatch("the session "+r.saved.session+" has protected values and the manifest has no references, or the reverse", "resume with the manifest that the session was made from")
	case r.recorded && !slices.Equal(orEmpty(r.record.ProtectedNames), orEmpty(destinations(r.plan.pairs))):
		return mismatch("the session "+r.saved.session+" has other protected destinations than the manifest", "resume with the manifest that the session was made from")
	case expired(r.record, r.h.clock()):
		return refusal(provider.FailedPrecondition, opResume, "the lifetime of the session "+r.saved.session+" is over", "create a new session")
	}
	if !r.recorded {
		return nil
	}
	was, err := manifest.Parse(r.record.Manifest)
	if err != nil {
		return refusal(provider.Internal, opResume, "the ledger's manifest of the session "+r.saved.session+" cannot be read", "")
	}
	if !slices.Equal(was.Pairs(), r.plan.pairs) {
		return mismatch("the current manifest does not declare the references that the session was made with", "resume with the manifest that the session was made from")
	}
	if what := fixedDifference(was, r.plan.manifest); what != "" {
		return mismatch("the current manifest differs from that of the session in "+what+", which cannot change on resume", "create a new session")
	}
	return nil
}

// compareLabels lets the provider's labels object to what the ledger says.
func (r *resumption) compareLabels() error {
	for _, x := range r.listed {
		if x.Labels[provider.LabelAttempt] == r.record.Attempt && (x.Labels[provider.LabelProtected] == "1") != r.record.Protected {
			return mismatch("the sandbox's labels and the ledger disagree on whether it is protected", "destroy it, and create a new session")
		}
	}
	return nil
}

// attach re-attaches to an unprotected session's sandbox.
func (r *resumption) attach(ctx context.Context) (*Session, error) {
	h, p := r.h, r.plan
	if s, ok := h.Session(p.id); ok {
		return s, r.sameAsLive(s)
	}
	if err := h.live.reserve(opResume); err != nil {
		return nil, err
	}
	s, err := r.open(ctx)
	if err != nil {
		h.live.release()
		return nil, err
	}
	h.stored.note(s.key, s.ledger.record.Attempt)
	h.settled(s.ledger.record.Attempt) // whatever was to become of it
	h.admit(s)
	return s, nil
}

// ended reports whether the previous sandbox ended with the process that made it.
// Nothing can be run in it any more, but its files can be moved.
func (r *resumption) ended() bool {
	d := r.plan.reg.desc
	if _, live := r.h.Session(r.plan.id); live || d.Survives || d.Features.WorkspaceMove == provider.SupportNone {
		return false
	}
	i := slices.IndexFunc(r.listed, r.isPrevious)
	return i >= 0 && r.listed[i].State == provider.StateStopped
}

// sameAsLive refuses a manifest that the live session does not have.
func (r *resumption) sameAsLive(s *Session) error {
	if r.req.Manifest != nil && s.manifest.Digest() != r.plan.manifest.Digest() {
		return refusal(provider.Conflict, opResume, "the session "+s.id+" is live here with another manifest", "close or detach it first")
	}
	return nil
}

// take claims the session's sandbox, and sees that it is still the session's: it
// may have been removed since it was proven.
func (r *resumption) take(ctx context.Context) error {
	if err := r.h.claim(ctx, opResume, r.record.Attempt); err != nil {
		return err
	}
	if !r.recorded {
		return nil
	}
	rec, err := r.h.ledger.Get(ctx, r.record.Attempt)
	switch {
	case provider.CodeOf(err) == provider.NotFound, err == nil && rec.Phase != ledger.Created:
		err = refusal(provider.NotFound, opResume, "the session "+r.saved.session+" was closed meanwhile", "create a new session")
	case err != nil:
		err = ledgerFailed(opResume, provider.AppliedNo, err)
	}
	if err != nil {
		r.h.setBusy(r.record.Attempt, false)
	}
	return err
}

// notAnothers refuses a sandbox that has the recorded one's ref and not its
// labels. One that is not listed may be a stale list's; Open will tell.
func (r *resumption) notAnothers(ctx context.Context) error {
	if r.listErr != nil || slices.ContainsFunc(r.listed, r.isPrevious) {
		return nil
	}
	listed, err := r.plan.reg.provider.List(ctx, provider.Query{Session: r.saved.session})
	if err != nil {
		return r.plan.boundary.err(opResume, err)
	}
	if slices.ContainsFunc(listed, func(x provider.Resource) bool { return x.Ref.ID == r.record.Ref.ID && !proven(x, r.record) }) {
		return refusal(provider.NotFound, opResume, "the sandbox of the session "+r.saved.session+" is gone, and what has its place is not this host's", "create a new session")
	}
	return nil
}

func (r *resumption) open(ctx context.Context) (*Session, error) {
	p := r.plan
	p.arm()
	if err := r.take(ctx); err != nil {
		return nil, err
	}
	defer r.h.setBusy(r.record.Attempt, false)
	if err := r.notAnothers(ctx); err != nil {
		return nil, err
	}
	led := &ledgered{Provider: p.reg.provider, ledger: r.h.ledger, now: r.h.clock, record: r.record}
	r.h.retryDeferred(ctx, p.reg)
	raw, err := led.Open(ctx, r.record.Ref)
	if err != nil {
		return nil, p.boundary.err(opResume, err)
	}
	if err := p.checkRef(raw.Ref()); err != nil {
		return nil, err
	}
	if ttl := p.manifest.Lifetime.TTL; ttl > 0 {
		led.record.ExpiresAt = led.record.CreatedAt.Add(ttl)
	}
	led.record.Idle, led.record.Ref = p.manifest.Lifetime.Idle, raw.Ref()
	if led.record.Manifest, err = p.manifest.MarshalJSON(); err != nil {
		return nil, failure(opResume, p.providerName, err)
	}
	if err := led.created(ctx); err != nil {
		return nil, err
	}
	s := p.session(led, maskedSandbox{inner: raw, b: p.boundary})
	s.foreignPast = true
	return s, nil
}

package host

import (
	"context"
	"slices"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

const opAdopt = "adopt"

// AdoptRequest names a sandbox that this host did not make.
type AdoptRequest struct {
	// Provider is the name it was registered under.
	Provider string
	// Ref names the sandbox to the provider.
	Ref provider.Ref
	// Manifest says how to use it: root, user, literals. References are
	// refused, and so are files and path grants: the sandbox is there already.
	Manifest manifest.Manifest
	// SharedTrust as in CreateRequest.
	SharedTrust bool
	// Principal as in CreateRequest.
	Principal string
}

// Adopt makes a session of a sandbox that this host did not make. It is refused
// (Unsupported) if any reference is in sight, granted or not: in the manifest,
// before the provider is touched, or on the sandbox, by its label. A sandbox of
// this host's own is AlreadyExists: resume it. The sandbox stays its maker's:
// Close lets go of it and destroys nothing.
func (h *Host) Adopt(ctx context.Context, req AdoptRequest) (*Session, error) {
	ctx, end, err := h.begin(ctx, opAdopt)
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, tr := h.trace(ctx, KindCreate, opAdopt)
	tr.principal, tr.provider = req.Principal, shown(req.Provider)
	s, err := h.adopt(ctx, req)
	if s != nil {
		tr.session = s.id
	}
	tr.end(err)
	return s, err
}

func (h *Host) adopt(ctx context.Context, req AdoptRequest) (*Session, error) {
	p := &plan{h: h, op: opAdopt, providerName: req.Provider, manifest: req.Manifest, sharedTrust: req.SharedTrust,
		principal: req.Principal, id: randomID(), attempt: randomID(), attach: true}
	if len(req.Manifest.Pairs()) > 0 {
		return nil, refusal(provider.Unsupported, opAdopt, "a sandbox that this host did not make cannot be given references", "leave them out, or create a session")
	}
	if len(req.Manifest.Files) > 0 || len(req.Manifest.PathGrants) > 0 {
		return nil, refusal(provider.Unsupported, opAdopt, "the manifest of an adopted sandbox cannot have files or path grants", "write the files after adopting it")
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	if err := provider.ValidateRef(req.Ref); err != nil {
		return nil, failure(opAdopt, req.Provider, err)
	}
	if err := h.notOurs(ctx, p.reg, req.Ref); err != nil {
		return nil, err
	}
	if err := h.live.reserve(opAdopt); err != nil {
		return nil, err
	}
	p.arm()
	raw, err := p.reg.provider.Open(ctx, req.Ref)
	if err != nil {
		h.live.release()
		return nil, p.boundary.err(opAdopt, err)
	}
	s := p.session(&ledgered{record: ledger.Record{CreatedAt: h.clock()}}, maskedSandbox{inner: raw, b: p.boundary})
	s.adopted, s.foreignPast, s.ledger = true, true, nil
	h.admit(s)
	return s, nil
}

// notOurs refuses a sandbox that some host made: this one's is to be resumed,
// and one with protected values must never be adopted, whoever made it.
func (h *Host) notOurs(ctx context.Context, reg *registration, ref provider.Ref) error {
	records, err := h.ledger.List(ctx, h.id)
	if err != nil {
		return ledgerFailed(opAdopt, provider.AppliedNo, err)
	}
	for _, r := range records {
		if r.Provider != reg.name || r.Ref.ID != ref.ID {
			continue
		}
		return alreadyOurs(r.Protected)
	}
	// A provider that cannot list shows no labels; then none is in sight. One that
	// fails to list this time could be hiding a protected sandbox.
	listed, err := reg.provider.List(ctx, provider.Query{})
	if err != nil && codeOf(err) != provider.Unsupported {
		return &provider.Error{Code: codeOf(err), Op: opAdopt, Message: "whose sandbox this is cannot be told: the provider did not list its sandboxes",
			Remedy: "try again", Applied: provider.AppliedNo}
	}
	i := slices.IndexFunc(listed, func(x provider.Resource) bool { return x.Ref.ID == ref.ID })
	if i < 0 {
		return nil
	}
	labels := listed[i].Labels
	if labels[provider.LabelProtected] == "1" || labels[provider.LabelOwner] == h.id {
		return alreadyOurs(labels[provider.LabelProtected] == "1")
	}
	return nil
}

func alreadyOurs(protected bool) error {
	if protected {
		return refusal(provider.Unsupported, opAdopt, "the sandbox has protected values and cannot be adopted", "resume its session on the host that made it")
	}
	return refusal(provider.AlreadyExists, opAdopt, "the sandbox is this host's own", "resume its session")
}

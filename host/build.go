package host

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// build makes the sandbox: intent, provider, files, commit. When anything fails
// after the provider was asked, what was made is destroyed, and what could not
// be destroyed stays in the ledger. fill puts the files in place; nil when there
// are none. The attempt stays busy until the caller has made the session known.
func (p *plan) build(ctx context.Context, fill func(context.Context, provider.Sandbox) error) (*Session, error) {
	rec, err := p.record()
	if err != nil {
		return nil, err
	}
	led := &ledgered{Provider: p.reg.provider, ledger: p.h.ledger, now: p.h.clock, record: rec, still: p.release, checkRef: p.checkRef}
	p.h.setBusy(p.attempt, true)

	req := p.request
	if p.transport.Transport == provider.TransportCreate {
		req.Protected = p.values
	}
	if err := provider.ValidateCreate(req); err != nil {
		return nil, err
	}
	if err := p.still(); err != nil {
		return nil, err
	}
	p.h.retryDeferred(ctx, p.reg)
	raw, err := led.Create(ctx, req)
	if own := (*stopped)(nil); errors.As(err, &own) {
		return nil, own.error
	}
	if err != nil {
		p.h.keepDeferred(ctx, rec.Attempt)
		return nil, p.boundary.err(p.op, err)
	}
	s, err := p.finish(ctx, led, raw, fill)
	if err != nil {
		p.undo(ctx, led, raw)
		return nil, err
	}
	return s, nil
}

// release is the last look before the provider is asked, and the moment that
// values given at creation are handed over.
func (p *plan) release() error {
	if err := p.still(); err != nil {
		return err
	}
	if p.transport.Transport == provider.TransportCreate {
		p.disclosure().handedOver(p.pairs, p.op)
	}
	return nil
}

// finish checks what the provider returned, puts the files in place and commits.
func (p *plan) finish(ctx context.Context, led *ledgered, raw provider.Sandbox, fill func(context.Context, provider.Sandbox) error) (*Session, error) {
	ref := raw.Ref()
	if err := p.checkRef(ref); err != nil {
		return nil, err
	}
	p.boundary.fact("sandbox", ref.ID)
	sb := maskedSandbox{inner: raw, b: p.boundary}
	if fill != nil {
		// This may take its time; the ref is what finds the sandbox meanwhile.
		if !led.knows(ref) {
			if err := led.put(ctx, ledger.Intent); err != nil {
				return nil, p.boundary.err(p.op, err)
			}
		}
		if err := p.timed(ctx, sb, fill); err != nil {
			return nil, err
		}
	}
	if p.request.Resources != (provider.Resources{}) {
		st, err := sb.Status(ctx)
		if err != nil {
			return nil, err
		}
		for _, u := range st.Unenforced {
			if slices.Contains(p.unenforced, u) {
				continue
			}
			// "resources.diskMiB: why" says more than the bare name that the
			// description gave.
			name, _, _ := strings.Cut(u, ":")
			p.unenforced = append(slices.DeleteFunc(p.unenforced, func(have string) bool { return have == name }), u)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, p.boundary.err(p.op, err)
	}
	if err := p.still(); err != nil {
		return nil, err
	}
	if err := led.created(ctx); err != nil {
		return nil, p.boundary.err(p.op, err)
	}
	return p.session(led, sb), nil
}

// timed gives putting the files in place as much time as making the sandbox.
func (p *plan) timed(ctx context.Context, sb provider.Sandbox, fill func(context.Context, provider.Sandbox) error) error {
	if limit := p.h.limits.CreateTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return fill(ctx, sb)
}

// checkRef refuses a ref that could not be kept: it is stored and shown.
func (p *plan) checkRef(ref provider.Ref) error {
	doc, err := provider.EncodeRef(ref)
	if err != nil {
		return p.boundary.err(p.op, &provider.Error{Code: provider.Internal, Op: p.op, Provider: p.providerName,
			Message: "the provider returned a ref that cannot be stored", Applied: provider.AppliedYes})
	}
	if names := p.redactor.Contains(doc); len(names) > 0 {
		return p.boundary.err(p.op, &provider.Error{Code: provider.Internal, Op: p.op, Provider: p.providerName,
			Message: "the provider returned a ref that holds a protected value", Applied: provider.AppliedYes})
	}
	return nil
}

// undo destroys what a failed build made.
func (p *plan) undo(ctx context.Context, led *ledgered, raw provider.Sandbox) {
	ctx = context.WithoutCancel(ctx) // the caller may have given up; this has its own deadline
	if err := led.Destroy(ctx, raw.Ref()); err != nil {
		p.boundary.fact("cleanup", "failed")
		p.h.keepDeferred(ctx, led.record.Attempt)
	}
}

// fill returns what puts the manifest's files into a new sandbox.
func (p *plan) fill() func(context.Context, provider.Sandbox) error {
	if len(p.files) == 0 {
		return nil
	}
	return p.writeFiles
}

func (p *plan) writeFiles(ctx context.Context, sb provider.Sandbox) error {
	dst := sb.Files()
	for _, f := range p.files {
		if err := p.writeFile(ctx, dst, f); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) writeFile(ctx context.Context, dst provider.FS, f plannedFile) error {
	if f.dir {
		return dst.Mkdir(ctx, f.path, f.mode)
	}
	r, err := f.reader(p.h.roots)
	if err != nil {
		return invalid(p.op, "files: "+f.path+": "+err.Error(), "")
	}
	defer func() { _ = r.Close() }()
	return dst.Write(ctx, f.path, io.Reader(r), provider.WriteOptions{Mode: f.mode})
}

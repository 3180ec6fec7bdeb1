package daytona

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// sandboxID is what ids of the service look like, more or less. Names, which the
// service takes in the same place, are told apart by the answer.
var sandboxID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// own finds the sandbox of a reference, which may come from anywhere, and proves
// that it is one of ours. Gone is NotFound.
func (p *Provider) own(ctx context.Context, op string, ref provider.Ref) (sandboxInfo, error) {
	if !sandboxID.MatchString(ref.ID) {
		return sandboxInfo{}, problem(provider.NotFound, op, "", "the service has no ids of this form")
	}
	sb, err := p.look(ctx, ref.ID)
	switch {
	case isGone(err):
		p.forget(ref.ID)
		return sb, problem(provider.NotFound, op, ref.ID, "the sandbox is gone")
	case err != nil:
		return sb, serviceProblem(ctx, op, ref.ID, err, provider.AppliedNo)
	case sb.ID != ref.ID:
		return sb, problem(provider.NotFound, op, ref.ID, "there is no sandbox with this id")
	case !proves(sb):
		return sb, problem(provider.PermissionDenied, op, ref.ID, "the sandbox was not made by sbxhost, and is left alone")
	}
	return sb, nil
}

// Destroy implements provider.Provider.
func (p *Provider) Destroy(ctx context.Context, ref provider.Ref) error {
	if ctx.Err() != nil {
		return ctxProblem("destroy", ref.ID, ctx.Err(), provider.AppliedNo)
	}
	if _, err := p.own(ctx, "destroy", ref); err != nil {
		if isGone(err) {
			return nil
		}
		return err
	}
	return p.destroy(ctx, ref.ID)
}

// destroy deletes a sandbox that is known to be ours, and returns nil when the
// service says that there is none of this id.
func (p *Provider) destroy(parent context.Context, id string) error {
	ctx, cancel := context.WithTimeout(parent, p.opts.DestroyTimeout)
	defer cancel()
	applied := provider.AppliedNo
	var last error
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		young := p.unborn(id)
		err := p.s.DeleteSandbox(ctx, id)
		switch s := statusOf(err); {
		case err == nil:
			p.seen(id)
			return p.confirm(parent, ctx, id)
		case isGone(err) && young: // look again
		case isGone(err):
			return p.confirm(parent, ctx, id) // a name in the list may still be on its way
		case s == http.StatusConflict, s == http.StatusTooManyRequests, s >= 500, s == 0, s < 400:
			if s == 0 || s >= 500 || s < 300 {
				applied = provider.AppliedUnknown
			}
		default:
			return serviceProblem(parent, "destroy", id, err, applied)
		}
		last = err
		sb, getErr := p.look(ctx, id)
		if isGone(getErr) {
			p.forget(id)
			return nil
		}
		if getErr == nil && dying(sb.State) {
			return p.confirm(parent, ctx, id)
		}
		var e *callError
		if errors.As(err, &e) && e.after > pause {
			pause = e.after
		}
		if !sleep(ctx, pause) {
			if parent.Err() != nil {
				return ctxProblem("destroy", id, parent.Err(), applied)
			}
			f := serviceProblem(parent, "destroy", id, last, applied)
			f.Remedy = "try again later; sbxhost keeps it on record until it is gone"
			return f
		}
	}
}

// confirm polls until the sandbox is gone: only a 404 says so.
func (p *Provider) confirm(parent, ctx context.Context, id string) error {
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, time.Second) {
		_, err := p.s.GetSandbox(ctx, id)
		if isGone(err) {
			p.forget(id)
			return nil
		}
		if !sleep(ctx, pause) {
			if parent.Err() != nil {
				return ctxProblem("destroy", id, parent.Err(), provider.AppliedUnknown)
			}
			return problem(provider.DeadlineExceeded, "destroy", id, "the service has not confirmed within "+p.opts.DestroyTimeout.String()+" that the sandbox is gone").
				applied(provider.AppliedUnknown).remedy("try again later; sbxhost keeps it on record until it is gone")
		}
	}
}

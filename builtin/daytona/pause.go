package daytona

import (
	"context"
	"net/http"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// Pause implements provider.Pauser: it stops the sandbox. Files stay; processes
// end.
func (sb *sandbox) Pause(ctx context.Context) error {
	return sb.change(ctx, "pause", provider.StatePaused, func() error { return sb.p.s.StopSandbox(ctx, sb.id) })
}

// Resume implements provider.Pauser: it starts a stopped or archived sandbox.
func (sb *sandbox) Resume(ctx context.Context) error {
	return sb.change(ctx, "resume", provider.StateRunning, func() error { return sb.p.s.StartSandbox(ctx, sb.id) })
}

// change brings the sandbox into a state. What the request answers is looked at
// only when the state does not come.
func (sb *sandbox) change(ctx context.Context, op string, want provider.State, ask func() error) error {
	if ctx.Err() != nil {
		return ctxProblem(op, sb.id, ctx.Err(), provider.AppliedNo)
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, sb.p.opts.CreateTimeout)
	defer cancel()
	applied := provider.AppliedNo
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, time.Second) {
		info, err := sb.p.s.GetSandbox(ctx, sb.id)
		state := stateOf(info.State)
		switch {
		case isGone(err), err == nil && dying(info.State):
			return problem(provider.NotFound, op, sb.id, "the sandbox is gone")
		case err != nil:
			return serviceProblem(parent, op, sb.id, err, applied)
		case state == want:
			return nil
		case failed(info.State):
			return problem(provider.FailedPrecondition, op, sb.id, "the sandbox has failed").applied(applied).remedy("destroy it and create another")
		case state == provider.StateRunning || state == provider.StatePaused && info.DesiredState != "started":
			applied = provider.AppliedUnknown
			if err := ask(); err != nil {
				switch s := statusOf(err); {
				case s == http.StatusConflict, s == http.StatusBadRequest: // it changes already; look again
				case s == 0 || s >= 500: // the answer is lost; look again
				default:
					return serviceProblem(parent, op, sb.id, err, applied)
				}
			}
		}
		if !sleep(ctx, pause) {
			if parent.Err() != nil {
				return ctxProblem(op, sb.id, parent.Err(), applied)
			}
			return problem(provider.DeadlineExceeded, op, sb.id, "the sandbox is still "+shownState(info.State)).applied(applied).remedy("try again later")
		}
	}
}

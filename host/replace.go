package host

import (
	"context"
	"io"
	"slices"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// replace builds a replacement for a protected session's sandbox, and then
// destroys the previous one.
func (r *resumption) replace(ctx context.Context) (*Session, error) {
	h, p := r.h, r.plan
	move, err := r.canMove()
	if err != nil {
		return nil, err
	}
	if err := h.pending.reserve(opResume); err != nil {
		return nil, err
	}
	defer h.pending.release()

	live, _ := h.Session(p.id)
	if live != nil {
		// A Close, Detach or lifetime that runs out must not happen meanwhile.
		unlock, err := live.lockEnd(ctx, opResume)
		if err != nil {
			return nil, err
		}
		defer unlock()
		if !live.inPhase(phaseOpen) {
			return nil, refusal(provider.FailedPrecondition, opResume, "the session "+p.id+" was closed", "create a new one")
		}
		// Values stay known as long as something may still show them.
		p.redactor = live.redactor
	} else if err := h.live.reserve(opResume); err != nil {
		return nil, err
	}
	s, err := r.taken(ctx, move)
	if err != nil {
		p.binding.Revoke()
		if live == nil {
			h.live.release()
		}
		return nil, err
	}
	defer h.setBusy(r.record.Attempt, false)
	defer h.setBusy(p.attempt, false)
	h.succeed(live, s)
	return s, r.retirePrevious(ctx, s)
}

// taken claims the previous sandbox and builds its replacement. Both stay claimed
// when it succeeds.
func (r *resumption) taken(ctx context.Context, move bool) (*Session, error) {
	if err := r.take(ctx); err != nil {
		return nil, err
	}
	r.plan.after = r.record.CreatedAt
	s, err := r.build(ctx, move)
	if err != nil {
		r.h.setBusy(r.plan.attempt, false)
		r.h.setBusy(r.record.Attempt, false)
	}
	return s, err
}

// succeed puts the replacement's session in the place of the previous one.
func (h *Host) succeed(live, s *Session) {
	h.stored.note(s.key, s.ledger.record.Attempt)
	if live == nil {
		h.admit(s)
		return
	}
	h.mu.Lock()
	h.sessions[s.id] = s
	if k := h.keys[s.key]; k != nil && k.s == live {
		k.s = s
	}
	h.mu.Unlock()
	live.mu.Lock()
	live.phase = phaseClosed
	live.binding.Revoke()
	if live.timer != nil {
		live.timer.Stop()
	}
	live.mu.Unlock()
	live.end(errEnded)
	live.stopExecs()
	s.watchLifetime()
}

// canMove decides how the workspace gets to the replacement, before anything is
// made.
func (r *resumption) canMove() (bool, error) {
	if r.req.DiscardWorkspace {
		return false, nil
	}
	f := r.plan.reg.desc.Features
	if f.WorkspaceMove == provider.SupportNone {
		return false, refusal(provider.Unsupported, opResume, "provider "+r.plan.providerName+" cannot move the workspace to a replacement", "set DiscardWorkspace to go on without the files")
	}
	if r.listErr == nil && !slices.ContainsFunc(r.listed, r.isPrevious) {
		return false, refusal(provider.FailedPrecondition, opResume, "the previous sandbox of the session "+r.saved.session+" is gone, and its files with it", "set DiscardWorkspace to go on without the files")
	}
	return true, nil
}

func (r *resumption) isPrevious(x provider.Resource) bool { return proven(x, r.record) }

// build makes the replacement. The previous sandbox is looked at, and paused
// where both share storage, but not changed.
func (r *resumption) build(ctx context.Context, move bool) (*Session, error) {
	p := r.plan
	if err := p.bind(ctx); err != nil {
		return nil, err
	}
	p.boundary.fact("previous", r.record.Ref.ID)
	p.request.Name = provider.ReplacementName(p.id, p.attempt)
	p.request.Replaces = &r.record.Ref
	p.request.EmptyWorkspace = !move && p.reg.desc.Features.SharedWorkspace
	p.boundary.fact("name", p.request.Name)
	if !move {
		return p.build(ctx, p.fill())
	}
	previous, err := p.reg.provider.Open(ctx, r.record.Ref)
	if err != nil {
		return nil, p.boundary.err(opResume, err)
	}
	if p.reg.desc.Features.SharedWorkspace {
		return r.buildShared(ctx, previous)
	}
	return p.build(ctx, func(ctx context.Context, replacement provider.Sandbox) error {
		return p.boundary.err(opResume, r.moveFiles(ctx, previous, replacement))
	})
}

// buildShared makes a replacement on the same storage. Its files are there
// already, and must not be written by two at once.
func (r *resumption) buildShared(ctx context.Context, previous provider.Sandbox) (*Session, error) {
	p := r.plan
	pauser, ok := optional[provider.Pauser](previous)
	if !ok {
		return nil, p.boundary.err(opResume, refusal(provider.Unsupported, opResume, "the provider shares the workspace but cannot pause the previous sandbox", ""))
	}
	st, err := previous.Status(ctx)
	if err != nil {
		return nil, p.boundary.err(opResume, err)
	}
	if st.State == provider.StateRunning {
		// One that comes through after all must not hold up what goes on.
		late := func(struct{}) { r.unpause(ctx, pauser) }
		_, err := bounded(ctx, r.h.limits.CallTimeout, "pause", late, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, pauser.Pause(ctx)
		})
		if err != nil {
			r.unpause(ctx, pauser) // an answer may have been lost
			return nil, p.boundary.err(opResume, err)
		}
	}
	s, err := p.build(ctx, nil)
	if err != nil && st.State == provider.StateRunning {
		r.unpause(ctx, pauser)
	}
	return s, err
}

// unpause lets the previous sandbox go on.
func (r *resumption) unpause(ctx context.Context, p provider.Pauser) {
	if err := boundedErr(context.WithoutCancel(ctx), r.h.limits.CallTimeout, "unpause", p.Resume); err != nil {
		r.plan.boundary.fact("previousPaused", "yes")
	}
}

// moveFiles copies the files under the root from one sandbox to another, byte
// for byte, without keeping them.
func (r *resumption) moveFiles(ctx context.Context, from, to provider.Sandbox) error {
	src, ok := optional[provider.Archiver](from)
	dst, ok2 := optional[provider.Archiver](to)
	if !ok || !ok2 {
		return refusal(provider.Unsupported, opResume, "the provider declares that it can move a workspace, but its sandboxes have no archive", "")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	exported := make(chan error, 1)
	go func() {
		err := boundedErr(ctx, 0, "export", func(ctx context.Context) error { return src.Export(ctx, pw) })
		exported <- err
		_ = pw.CloseWithError(err) // nil is the end of the archive
	}()
	err := boundedErr(ctx, 0, "import", func(ctx context.Context) error { return dst.Import(ctx, pr) })
	if err == nil {
		// An archive may be read to its end before its last padding.
		_, _ = io.Copy(io.Discard, pr)
	}
	select {
	case exportErr := <-exported:
		if exportErr != nil {
			err = exportErr // and what the import says is its consequence
		}
		return err
	default:
	}
	cancel()
	_ = pr.Close()
	exportErr := <-exported
	if err == nil {
		err = exportErr
	}
	return err
}

// retirePrevious destroys every other sandbox of the session: those that the
// provider reports as ours, and the one the ledger knows.
func (r *resumption) retirePrevious(ctx context.Context, s *Session) error {
	ctx = context.WithoutCancel(ctx) // the replacement is in place; there is no way back
	records, err := r.h.ledger.Session(ctx, s.id)
	if err != nil || !r.recorded {
		records = append(records, r.record)
	}
	failed := &RetirementError{Provider: s.reg.name, Session: s.id, Replacement: s.ref.ID}
	for _, rec := range records {
		if rec.Attempt == s.ledger.record.Attempt || rec.Owner != r.h.id || rec.Provider != s.reg.name {
			continue
		}
		if err := r.h.retire(ctx, s.reg, rec, "replaced"); err != nil {
			failed.Code = codeOf(err)
			failed.Previous = append(failed.Previous, name(rec))
			rec.Phase, rec.LastError = ledger.Retiring, string(failed.Code)
			_ = r.h.ledger.Put(ctx, rec)
			r.h.keepDeferred(ctx, rec.Attempt)
		}
	}
	if len(failed.Previous) > 0 {
		return failed
	}
	return nil
}

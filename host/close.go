package host

import (
	"context"
	"errors"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// errEnded is why a session's operations were cancelled.
var errEnded = errors.New("the session was closed")

// Close destroys the sandbox. New operations are refused from now on, running
// ones are cancelled and commands are stopped; Close waits for them. On an error
// the sandbox may still be there: Close may be called again and then does every
// step again, and the ledger sees to it in any case. A closed session is closed
// without an error. The sandbox of an adopted session is let go of, not
// destroyed.
func (s *Session) Close(ctx context.Context) error { return s.close(ctx, "") }

// close is Close, with the reason that its event gives.
func (s *Session) close(ctx context.Context, why string) error {
	unlock, err := s.lockEnd(ctx, "close")
	if err != nil {
		return err
	}
	defer unlock()
	if s.inPhase(phaseClosed) {
		return nil
	}
	ctx, tr := s.trace(ctx, KindClose, "close")
	tr.record.Reason = why
	err = s.destroy(ctx)
	tr.end(err)
	return err
}

func (s *Session) destroy(ctx context.Context) error {
	if s.adopted {
		if err := s.stop(ctx, "close"); err != nil {
			return err
		}
		s.over()
		return nil
	}
	s.h.setBusy(s.ledger.record.Attempt, true)
	defer s.h.setBusy(s.ledger.record.Attempt, false)
	// Before anything is stopped: if this is as far as it gets, the next process
	// finishes it, and does not take a sandbox that was to go for one that waits.
	s.ledger.retiring(ctx)
	if err := s.stop(ctx, "close"); err != nil {
		return err
	}
	if err := s.ledger.Destroy(ctx, s.ref); err != nil {
		// From here on the ledger is responsible; the session's slot is free.
		s.h.keepDeferred(ctx, s.ledger.record.Attempt)
		s.h.forget(s)
		return s.boundary.err("close", err)
	}
	s.over()
	return nil
}

// lockEnd lets one Close, Detach or replacement at a time through.
func (s *Session) lockEnd(ctx context.Context, op string) (func(), error) {
	select {
	case s.closing <- struct{}{}:
		return func() { <-s.closing }, nil
	default:
	}
	select {
	case s.closing <- struct{}{}:
		return func() { <-s.closing }, nil
	case <-ctx.Done():
		return nil, refusal(provider.CodeOf(ctx.Err()), op, "gave up waiting: the session is being closed, detached or resumed", "")
	}
}

// stop ends everything that runs in the session and waits for it. After stop the
// session takes no operation any more.
func (s *Session) stop(ctx context.Context, op string) error {
	s.mu.Lock()
	if s.phase == phaseOpen {
		s.phase = phaseEnding
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	quiet := s.quiet
	if s.ops > 0 && quiet == nil {
		quiet = make(chan struct{})
		s.quiet = quiet
	}
	s.mu.Unlock()
	s.end(errEnded)
	s.stopExecs()
	if quiet == nil {
		return nil
	}
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return s.boundary.err(op, &provider.Error{Code: provider.CodeOf(ctx.Err()), Op: op,
			Message: "gave up waiting for what runs in the session", Remedy: "close it again", Applied: provider.AppliedNo})
	}
}

// over ends the session for good.
func (s *Session) over() {
	s.mu.Lock()
	s.phase = phaseClosed
	s.binding.Revoke()
	s.mu.Unlock()
	s.h.forget(s)
}

func (s *Session) inPhase(p phase) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == p
}

func (s *Session) trace(ctx context.Context, kind Kind, op string) (context.Context, *traced) {
	ctx, tr := s.h.trace(ctx, kind, op)
	tr.redactor, tr.principal, tr.session, tr.provider, tr.transport = s.redactor, s.principal, s.id, s.reg.name, s.Transport()
	return ctx, tr
}

// Detach ends the session without destroying the sandbox, and returns its state
// for a later Resume. Running commands are stopped; what they left running goes
// on. The ledger keeps the sandbox until its lifetime ends. When the state
// cannot be had the session stays as it is. An adopted session has no state;
// Close it.
func (s *Session) Detach(ctx context.Context) ([]byte, error) {
	unlock, err := s.lockEnd(ctx, "detach")
	if err != nil {
		return nil, err
	}
	defer unlock()
	state, err := s.State(ctx)
	if err != nil {
		return nil, err
	}
	ctx, tr := s.trace(ctx, KindClose, "detach")
	err = s.detach(ctx)
	tr.end(err)
	if err != nil {
		return nil, err
	}
	return state, nil
}

func (s *Session) detach(ctx context.Context) error {
	if err := s.stop(ctx, "detach"); err != nil {
		return err
	}
	// The idle lifetime of a detached sandbox counts from now.
	_ = s.ledger.put(context.WithoutCancel(ctx), ledger.Created)
	s.h.stored.note(s.key, s.ledger.record.Attempt)
	s.over()
	s.h.watchDetached(s.ledger.record)
	return nil
}

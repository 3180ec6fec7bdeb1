package host

import (
	"context"
	"time"

	"github.com/sbxhost/sbxhost/ledger"
)

// watchLifetime arms the timer that closes the session at the end of its TTL, or
// when it was idle for too long.
func (s *Session) watchLifetime() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.adopted || s.phase != phaseOpen {
		return
	}
	if d, ok := s.remaining(); ok {
		s.timer = time.AfterFunc(s.look(d), s.lifetimeOver)
	}
}

// touchEvery is how exactly the ledger knows when a session with an idle
// lifetime was used last, for the case that this process dies.
func touchEvery(idle time.Duration) time.Duration { return max(idle/4, time.Second) }

// look is when to look at the session again that may go on for d.
func (s *Session) look(d time.Duration) time.Duration {
	if idle := s.manifest.Lifetime.Idle; idle > 0 {
		return min(d, touchEvery(idle))
	}
	return d
}

// remaining returns how long the session may go on. The caller holds s.mu.
func (s *Session) remaining() (time.Duration, bool) {
	now := s.h.clock()
	d, limited := time.Duration(0), false
	if !s.expiresAt.IsZero() {
		d, limited = s.expiresAt.Sub(now), true
	}
	if idle := s.manifest.Lifetime.Idle; idle > 0 {
		left := idle - now.Sub(s.lastUse)
		if s.ops > 0 {
			left = idle // in use
		}
		if !limited || left < d {
			d, limited = left, true
		}
	}
	return max(d, 0), limited
}

func (s *Session) lifetimeOver() {
	s.mu.Lock()
	if s.phase == phaseClosed {
		s.mu.Unlock()
		return
	}
	if d, limited := s.remaining(); !limited || d > 0 {
		used := s.ops > 0 || !s.lastUse.Before(s.touched)
		if s.touched = s.h.clock(); limited {
			s.timer.Reset(s.look(d))
		}
		s.mu.Unlock()
		if used && s.manifest.Lifetime.Idle > 0 {
			s.touch()
		}
		return
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), s.h.limits.CallTimeout)
	defer cancel()
	if s.close(ctx, "its lifetime ended") != nil { // which is in the event
		s.lifetimeAgain()
	}
}

// lifetimeRetry is how soon a session is closed again whose lifetime is over and
// that could not be closed.
const lifetimeRetry = time.Minute

// lifetimeAgain arms the timer of a session that is still this host's: something
// in it did not end in time, or a replacement was being made.
func (s *Session) lifetimeAgain() {
	if now, ok := s.h.Session(s.id); !ok || now != s || s.h.isClosed() {
		return // removed or replaced; else the ledger sees to it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != phaseClosed {
		s.timer.Reset(lifetimeRetry)
	}
}

// touch notes in the ledger that the session is in use.
func (s *Session) touch() {
	select {
	case s.closing <- struct{}{}:
	default:
		return // it is being closed, detached or replaced
	}
	defer func() { <-s.closing }()
	if s.inPhase(phaseOpen) {
		ctx, cancel := context.WithTimeout(context.Background(), s.h.limits.CallTimeout)
		defer cancel()
		_ = s.ledger.put(ctx, ledger.Created) // the next one will do
	}
}

// expired reports whether a sandbox that is nobody's session has outlived its
// lifetime. The ledger knows the last use of an idle one only roughly, and it is
// not to go too early.
func expired(rec ledger.Record, now time.Time) bool {
	return !rec.ExpiresAt.IsZero() && !now.Before(rec.ExpiresAt) ||
		rec.Idle > 0 && now.Sub(rec.UpdatedAt) >= rec.Idle+touchEvery(rec.Idle)
}

// watchDetached destroys a detached sandbox at the end of its lifetime, as long
// as this host runs. After that Reconcile does.
func (h *Host) watchDetached(rec ledger.Record) {
	var left time.Duration
	now := h.clock()
	switch {
	case !rec.ExpiresAt.IsZero() && rec.Idle > 0:
		left = min(rec.ExpiresAt.Sub(now), rec.Idle)
	case !rec.ExpiresAt.IsZero():
		left = rec.ExpiresAt.Sub(now)
	case rec.Idle > 0:
		left = rec.Idle
	default:
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.sessions[rec.Session] != nil {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(max(left, 0), func() {
		h.mu.Lock()
		if h.detached[rec.Session] == t {
			delete(h.detached, rec.Session)
		}
		h.mu.Unlock()
		h.detachedOver(rec)
	})
	h.detached[rec.Session] = t
}

func (h *Host) detachedOver(rec ledger.Record) {
	const op = "expire"
	ctx, cancel := context.WithTimeout(context.Background(), h.limits.CallTimeout)
	defer cancel()
	ctx, end, err := h.begin(ctx, op)
	if err != nil {
		return
	}
	defer end()
	reg, err := h.registration(op, rec.Provider)
	if err != nil || h.claim(ctx, op, rec.Attempt) != nil {
		return
	}
	defer h.setBusy(rec.Attempt, false)
	h.mu.RLock()
	taken := h.sessions[rec.Session] != nil || h.resumes[rec.Session] != nil
	h.mu.RUnlock()
	if taken {
		return
	}
	// It may have been resumed, and detached again, since the timer fired: then
	// that has a timer of its own.
	now, err := h.ledger.Get(ctx, rec.Attempt)
	if err != nil || now.UpdatedAt.After(rec.UpdatedAt) {
		return
	}
	if h.retire(ctx, reg, rec, "its lifetime ended") != nil {
		h.keepDeferred(ctx, rec.Attempt)
	}
}

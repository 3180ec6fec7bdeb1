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
	if s.phase != phaseOpen {
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
	_ = s.close(ctx, "its lifetime ended") // a failure is in the ledger and in the event
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
	h.detached[rec.Session] = time.AfterFunc(max(left, 0), func() { h.detachedOver(rec) })
}

func (h *Host) detachedOver(rec ledger.Record) {
	ctx, cancel := context.WithTimeout(context.Background(), h.limits.CallTimeout)
	defer cancel()
	ctx, end, err := h.begin(ctx, "expire")
	if err != nil {
		return
	}
	defer end()
	h.mu.Lock()
	delete(h.detached, rec.Session)
	taken := h.sessions[rec.Session] != nil || h.resumes[rec.Session] != nil || h.busy[rec.Attempt]
	reg := h.providers[rec.Provider]
	if !taken {
		h.busy[rec.Attempt] = true
	}
	h.mu.Unlock()
	if taken || reg == nil {
		return
	}
	defer h.setBusy(rec.Attempt, false)
	if h.retire(ctx, reg, rec, "its lifetime ended") != nil {
		h.keepDeferred(ctx, rec.Attempt)
	}
}

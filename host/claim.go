package host

import (
	"context"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// An attempt has one operation working on it at a time: its create, its resume,
// its removal. What an operation read of an attempt before it had the attempt to
// itself may be out of date, so each reads the record again once it does.

// setBusy marks an attempt as being worked on, so that nothing else settles it.
func (h *Host) setBusy(attempt string, busy bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if busy {
		h.markLocked(attempt)
		return
	}
	if ch := h.busy[attempt]; ch != nil {
		close(ch)
		delete(h.busy, attempt)
	}
}

func (h *Host) markLocked(attempt string) {
	if h.busy[attempt] == nil {
		h.busy[attempt] = make(chan struct{})
	}
}

// claim waits until nothing else works on an attempt, and takes it.
func (h *Host) claim(ctx context.Context, op, attempt string) error {
	for {
		h.mu.Lock()
		ch := h.busy[attempt]
		if ch == nil {
			h.markLocked(attempt)
			h.mu.Unlock()
			return nil
		}
		h.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return refusal(provider.CodeOf(ctx.Err()), op, "gave up waiting for what else is done with the sandbox", "")
		}
	}
}

// liveLocked returns the attempt of a session that is live here, or "". h.mu is
// held.
func (h *Host) liveLocked(session string) string {
	if s := h.sessions[session]; s != nil && s.ledger != nil {
		return s.ledger.record.Attempt
	}
	return ""
}

func (h *Host) liveAttempt(session string) string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.liveLocked(session)
}

// inUseLocked reports whether an attempt is a live session's, or is being worked
// on. h.mu is held.
func (h *Host) inUseLocked(session, attempt string) bool {
	return h.busy[attempt] != nil || h.resumes[session] != nil || h.liveLocked(session) == attempt
}

// take claims an attempt that is not in use.
func (h *Host) take(session, attempt string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.inUseLocked(session, attempt) {
		return false
	}
	h.markLocked(attempt)
	return true
}

// takeSession claims the records of a session, and returns those it got and the
// attempt that is live. It does not get the live one, nor what something else
// works on: that is being made for the first time, or removed. While the session
// is being resumed, which of its sandboxes counts is open, and it gets nothing
// and false.
func (h *Host) takeSession(session string, records []ledger.Record) (taken map[string]bool, live string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resumes[session] != nil {
		return nil, "", false
	}
	live, taken = h.liveLocked(session), map[string]bool{}
	for _, rec := range records {
		if rec.Attempt != live && h.busy[rec.Attempt] == nil {
			taken[rec.Attempt] = true
			h.markLocked(rec.Attempt)
		}
	}
	return taken, live, true
}

package host

import (
	"context"
	"slices"
	"time"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// keepDeferred remembers a removal that is to be tried again, unless the ledger
// has no record of it.
func (h *Host) keepDeferred(ctx context.Context, attempt string) {
	if _, err := h.ledger.Get(context.WithoutCancel(ctx), attempt); provider.CodeOf(err) == provider.NotFound {
		return
	}
	h.mu.Lock()
	h.deferred[attempt] = true
	h.mu.Unlock()
}

// retryPatience is how long an operation spends on what others left.
const retryPatience = 10 * time.Second

// retryDeferred tries again to remove what earlier operations could not, on one
// provider. Failures stay in the ledger. It is called when the provider is about
// to be used anyway, never before.
func (h *Host) retryDeferred(ctx context.Context, reg *registration) {
	ctx, cancel := context.WithTimeout(ctx, retryPatience)
	defer cancel()
	h.mu.Lock()
	var attempts []string
	for a := range h.deferred {
		if h.busy[a] == nil {
			attempts = append(attempts, a)
			h.markLocked(a)
		}
	}
	h.mu.Unlock()
	slices.Sort(attempts)
	records := make([]ledger.Record, 0, len(attempts))
	for _, a := range attempts {
		defer h.setBusy(a, false)
		rec, err := h.ledger.Get(ctx, a)
		switch {
		case provider.CodeOf(err) == provider.NotFound, err == nil && h.liveAttempt(rec.Session) == a:
			h.settled(a)
		case err == nil && rec.Provider == reg.name:
			records = append(records, rec)
		}
	}
	h.retireAll(ctx, reg, records)
}

// retireAll retires records of one provider, which is asked once what it has.
func (h *Host) retireAll(ctx context.Context, reg *registration, records []ledger.Record) {
	if len(records) == 0 {
		return
	}
	q := provider.Query{Owner: h.id}
	if len(records) == 1 {
		q.Session = records[0].Session
	}
	listed, err := reg.provider.List(ctx, q)
	for _, rec := range records {
		_ = h.retireListed(ctx, reg, rec, "tried again", listed, err) // it stays deferred
	}
}

func (h *Host) settled(attempt string) {
	h.mu.Lock()
	delete(h.deferred, attempt)
	h.mu.Unlock()
}

// retire destroys the sandbox of a record that is nobody's session any more. A
// failure stays in the ledger.
func (h *Host) retire(ctx context.Context, reg *registration, rec ledger.Record, why string) error {
	listed, err := reg.provider.List(ctx, provider.Query{Owner: rec.Owner, Session: rec.Session})
	return h.retireListed(ctx, reg, rec, why, listed, err)
}

// retireListed is retire with what the provider said it has.
func (h *Host) retireListed(ctx context.Context, reg *registration, rec ledger.Record, why string, listed []provider.Resource, listErr error) error {
	ctx, tr := h.trace(ctx, KindRetire, "retire")
	tr.session, tr.provider, tr.record.Reason = rec.Session, reg.name, why
	led := &ledgered{Provider: reg.provider, ledger: h.ledger, now: h.clock, record: rec, saved: saved{rec.Phase, rec.Ref}}
	led.retiring(ctx)
	err := led.remove(ctx, listed, listErr)
	if err == nil {
		h.settled(rec.Attempt)
	}
	tr.end(err)
	return err
}

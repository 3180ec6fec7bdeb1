package host

import (
	"context"
	"slices"
	"time"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// setBusy marks an attempt as being worked on, so that nothing else settles it.
func (h *Host) setBusy(attempt string, busy bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if busy {
		h.busy[attempt] = true
	} else {
		delete(h.busy, attempt)
	}
}

// keepDeferred remembers a removal that is to be tried again, if the ledger
// still has its record.
func (h *Host) keepDeferred(ctx context.Context, attempt string) {
	if _, err := h.ledger.Get(context.WithoutCancel(ctx), attempt); err != nil {
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
		if !h.busy[a] {
			attempts = append(attempts, a)
			h.busy[a] = true
		}
	}
	h.mu.Unlock()
	slices.Sort(attempts)
	for _, a := range attempts {
		h.retryOne(ctx, reg, a)
		h.setBusy(a, false)
	}
}

func (h *Host) retryOne(ctx context.Context, reg *registration, attempt string) {
	rec, err := h.ledger.Get(ctx, attempt)
	if err != nil && provider.CodeOf(err) != provider.NotFound {
		return
	}
	if err != nil || rec.Phase == ledger.Created {
		h.settled(attempt)
		return
	}
	if rec.Provider == reg.name {
		_ = h.retire(ctx, reg, rec, "tried again")
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
	ctx, tr := h.trace(ctx, KindRetire, "retire")
	tr.session, tr.provider, tr.record.Reason = rec.Session, reg.name, why
	led := &ledgered{Provider: reg.provider, ledger: h.ledger, now: h.clock, record: rec}
	err := led.remove(ctx)
	if err == nil {
		h.settled(rec.Attempt)
	}
	tr.end(err)
	return err
}

package host

import (
	"context"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

// StoredState returns the state of a session that waits: the ledger knows it, and
// no host holds it. It is what Session.State returned, for a caller who did not
// come to keep it: one whose process died after a Create or Resume, and before it
// stored the new state. Report.Waiting and Report.Stopped name such sessions.
//
// Errors: NotFound, also for a session that is being removed; Conflict for one
// that is live here, which has a State of its own.
func (h *Host) StoredState(ctx context.Context, session string) ([]byte, error) {
	const op = "stored state"
	rec, err := h.waiting(ctx, op, session)
	if err != nil {
		return nil, err
	}
	m, err := manifest.Parse(rec.Manifest)
	if err != nil {
		return nil, refusal(provider.Internal, op, "the ledger's manifest of the session "+rec.Session+" cannot be read", "")
	}
	ref, err := provider.EncodeRef(rec.Ref)
	if err != nil {
		return nil, failure(op, rec.Provider, err)
	}
	return writeState(rec.Session, rec.Provider, m, ref, rec.CreatedAt)
}

// Discard destroys the sandbox of a session that waits, without resuming it: no
// grant and no value is needed for that. What cannot be destroyed now stays in
// the ledger and is tried again. A session that is not known is success. Conflict
// for one that is live here: close it.
func (h *Host) Discard(ctx context.Context, session string) error {
	const op = "discard"
	ctx, end, err := h.begin(ctx, op)
	if err != nil {
		return err
	}
	defer end()
	if !validSessionID(session) {
		return invalid(op, "a session's id is 32 hex digits", "")
	}
	records, err := h.ledger.Session(ctx, session)
	if err != nil {
		return ledgerFailed(op, provider.AppliedNo, err)
	}
	for _, rec := range records {
		if rec.Owner != h.id {
			continue
		}
		if err := h.discard(ctx, op, rec); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) discard(ctx context.Context, op string, rec ledger.Record) error {
	reg, err := h.registration(op, rec.Provider)
	if err != nil {
		return err
	}
	if !h.take(rec.Session, rec.Attempt) {
		return refusal(provider.Conflict, op, "the session "+rec.Session+" is live here, or is being made, resumed or removed", "close it, or wait")
	}
	defer h.setBusy(rec.Attempt, false)
	switch rec, err = h.ledger.Get(ctx, rec.Attempt); {
	case provider.CodeOf(err) == provider.NotFound:
		return nil // removed meanwhile
	case err != nil:
		return ledgerFailed(op, provider.AppliedNo, err)
	}
	if err := h.retire(ctx, reg, rec, "discarded"); err != nil {
		h.keepDeferred(ctx, rec.Attempt)
		if rec.Protected {
			b := newBoundary(rec.Provider, true, nil)
			b.fact("session", rec.Session)
			b.fact("sandbox", rec.Ref.ID)
			b.fact("name", rec.Name)
			return b.err(op, err)
		}
		return err
	}
	return nil
}

// waiting returns the record of a session that nobody here holds.
func (h *Host) waiting(ctx context.Context, op, session string) (ledger.Record, error) {
	none := ledger.Record{}
	if !validSessionID(session) {
		return none, invalid(op, "a session's id is 32 hex digits", "")
	}
	if _, live := h.Session(session); live {
		return none, refusal(provider.Conflict, op, "the session "+session+" is live here", "ask it for its state")
	}
	records, err := h.ledger.Session(ctx, session)
	if err != nil {
		return none, ledgerFailed(op, provider.AppliedNo, err)
	}
	found := none
	for _, rec := range records { // oldest first
		if rec.Owner == h.id && rec.Phase == ledger.Created {
			found = rec
		}
	}
	if found.Attempt == "" {
		return none, refusal(provider.NotFound, op, "no session "+session+" waits", "")
	}
	return found, nil
}

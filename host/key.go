package host

import (
	"context"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// keyed is what an idempotency key stands for.
type keyed struct {
	digest string        // of manifest, provider, transport and pairs
	done   chan struct{} // closed when the first create has ended
	s      *Session      // nil when it failed
}

// createOnce gives the session of p.key, making it if it is not there. Whoever
// asks with the key needs the grants all the same: a key carries no authority.
func (h *Host) createOnce(ctx context.Context, p *plan) (*Session, error) {
	for {
		h.mu.Lock()
		k, taken := h.keys[p.key]
		if !taken {
			k = &keyed{digest: p.request.Digest, done: make(chan struct{})}
			h.keys[p.key] = k
			h.mu.Unlock()
			return h.createFirst(ctx, p, k)
		}
		h.mu.Unlock()
		if k.digest != p.request.Digest {
			return nil, keyConflict(p.op)
		}
		select {
		case <-k.done:
		case <-ctx.Done():
			return nil, refusal(provider.CodeOf(ctx.Err()), p.op, "gave up waiting for the session of this key", "")
		}
		if k.s == nil {
			continue // the first one failed: its key is free again
		}
		if err := p.mayShare(ctx); err != nil {
			return nil, err
		}
		return k.s, nil
	}
}

func (h *Host) createFirst(ctx context.Context, p *plan, k *keyed) (*Session, error) {
	err := h.keyInLedger(ctx, p)
	var s *Session
	if err == nil {
		s, err = h.createNew(ctx, p)
	}
	h.mu.Lock()
	if k.s = s; s == nil {
		delete(h.keys, p.key)
	}
	h.mu.Unlock()
	close(k.done)
	return s, err
}

// keyInLedger refuses a key whose session was made before and is not live here:
// making another one would break what the key promises.
func (h *Host) keyInLedger(ctx context.Context, p *plan) error {
	records, err := h.ledger.List(ctx, h.id)
	if err != nil {
		return ledgerFailed(p.op, provider.AppliedNo, err)
	}
	for _, r := range records {
		if r.Key != p.key || r.Phase != ledger.Created {
			continue
		}
		if r.Digest != p.request.Digest {
			return keyConflict(p.op)
		}
		return refusal(provider.FailedPrecondition, p.op, "the session "+r.Session+" of this key is not live here", "resume it from its state, or use another key")
	}
	return nil
}

func keyConflict(op string) error {
	return refusal(provider.Conflict, op, "this key was used with another manifest, provider or transport", "use another key, or the same request")
}

// mayShare checks that this caller could have made the session itself.
func (p *plan) mayShare(ctx context.Context) error {
	err := p.bind(ctx)
	p.binding.Revoke()
	return err
}

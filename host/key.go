package host

import (
	"context"
	"sync"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// keyed is what an idempotency key stands for.
type keyed struct {
	digest string        // of manifest, provider, transport and pairs
	done   chan struct{} // closed when the first create has ended
	s      *Session      // nil when it failed; under Host.mu
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
		h.mu.RLock()
		s := k.s // a replacement takes its place at any time
		h.mu.RUnlock()
		if s == nil {
			continue // the first one failed: its key is free again
		}
		if err := p.mayShare(ctx); err != nil {
			return nil, err
		}
		return s, nil
	}
}

func (h *Host) createFirst(ctx context.Context, p *plan, k *keyed) (*Session, error) {
	s, err := h.keyInLedger(ctx, p)
	if err == nil && s == nil {
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

// keyInLedger looks for a session that was made with the key and is not among
// the keys of this host's life: one that was resumed is returned, and one that
// nobody holds is refused, because making another one would break what the key
// promises.
func (h *Host) keyInLedger(ctx context.Context, p *plan) (*Session, error) {
	attempt, err := h.stored.find(ctx, h, p.key)
	if err != nil {
		return nil, ledgerFailed(p.op, provider.AppliedNo, err)
	}
	if attempt == "" {
		return nil, nil
	}
	r, err := h.ledger.Get(ctx, attempt)
	switch code := provider.CodeOf(err); {
	case code == provider.NotFound || code == "" && r.Phase != ledger.Created:
		return nil, nil // it is gone, or going
	case code != "":
		return nil, ledgerFailed(p.op, provider.AppliedNo, err)
	}
	if r.Digest != p.request.Digest {
		return nil, keyConflict(p.op)
	}
	if s, live := h.Session(r.Session); live && s.key == p.key {
		if err := p.mayShare(ctx); err != nil {
			return nil, err
		}
		return s, nil
	}
	return nil, refusal(provider.FailedPrecondition, p.op, "the session "+r.Session+" of this key is not live here", "resume it from its state, or use another key")
}

// storedKeys knows which attempt an idempotency key stands for in the ledger.
type storedKeys struct {
	mu       sync.Mutex
	attempts map[string]string // nil until the ledger was read
}

func (k *storedKeys) find(ctx context.Context, h *Host, key string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.attempts == nil {
		records, err := h.ledger.List(ctx, h.id)
		if err != nil {
			return "", err
		}
		k.attempts = map[string]string{}
		// Oldest first: the newest counts, of those that are complete. One that is
		// not, or is to go, may be the remains of a replacement.
		for _, r := range records {
			if r.Key != "" && r.Phase == ledger.Created {
				k.attempts[r.Key] = r.Attempt
			}
		}
	}
	return k.attempts[key], nil
}

// note remembers a session that leaves this host and stays in the ledger.
func (k *storedKeys) note(key, attempt string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.attempts != nil && key != "" {
		k.attempts[key] = attempt
	}
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

package host

import (
	"context"

	"github.com/sbxhost/sbxhost/provider"
)

// Pause freezes the sandbox; it keeps its memory. Idempotent. Unsupported when
// the provider cannot.
func (s *Session) Pause(ctx context.Context) error {
	return s.pauser(ctx, "pause", provider.Pauser.Pause)
}

// Unpause lets a paused sandbox go on. Idempotent.
func (s *Session) Unpause(ctx context.Context) error {
	return s.pauser(ctx, "unpause", provider.Pauser.Resume)
}

func (s *Session) pauser(ctx context.Context, op string, f func(provider.Pauser, context.Context) error) error {
	p, ok := optional[provider.Pauser](s.sandbox)
	if !ok {
		return refusal(provider.Unsupported, op, "provider "+s.reg.name+" cannot pause", "")
	}
	ctx, done, err := s.use(ctx, op)
	if err != nil {
		return err
	}
	defer done()
	return s.boundary.err(op, boundedErr(ctx, s.h.limits.CallTimeout, op, func(ctx context.Context) error { return f(p, ctx) }))
}

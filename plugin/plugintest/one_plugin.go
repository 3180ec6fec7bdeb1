package plugintest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/hook"
	"github.com/sbxhost/sbxhost/secret"
)

// shared is a plugin that several checks use one after the other: loading one
// takes longer than most checks do. Its hooks are those of the check that runs.
type shared struct {
	loaded
	hooks atomic.Pointer[hook.Hooks]
}

// Close leaves the plugin to the next check.
func (s *shared) Close() error {
	s.hooks.Store(&hook.Hooks{})
	return nil
}

// share loads a plugin for several checks. wait is its hooks' Hurry.
func (k *kit) share(ctx context.Context, wait time.Duration) (*shared, error) {
	s := &shared{}
	s.hooks.Store(&hook.Hooks{})
	p, err := k.load(ctx, &hook.Hooks{
		Import: func(op abi.Op, name string) (int64, bool) {
			if f := s.hooks.Load().Import; f != nil {
				return f(op, name)
			}
			return 0, false
		},
		Meta: func(op abi.Op, meta []byte) []byte {
			if f := s.hooks.Load().Meta; f != nil {
				return f(op, meta)
			}
			return meta
		},
		After: func(op abi.Op, memory []byte, fuel int64) {
			if f := s.hooks.Load().After; f != nil {
				f(op, memory, fuel)
			}
		},
		Captured: func(name string, token secret.Value) {
			if f := s.hooks.Load().Captured; f != nil {
				f(name, token)
			}
		},
		Shown: func(what string, data []byte) {
			if f := s.hooks.Load().Shown; f != nil {
				f(what, data)
			}
		},
		Hurry: wait,
	}, nil, nil)
	s.loaded = p
	return s, err
}

// open gives a check the plugin. h must not change limits; see fresh.
func (k *kit) open(t *t, h *hook.Hooks) loaded { return t.borrow(k.hurried, h) }

// openUnhurried is open of a plugin whose waits take their time.
func (k *kit) openUnhurried(t *t, h *hook.Hooks) loaded { return t.borrow(k.unhurried, h) }

func (t *t) borrow(s *shared, h *hook.Hooks) loaded {
	if h == nil {
		h = &hook.Hooks{}
	}
	s.hooks.Store(h)
	t.cleanup(func() { _ = s.Close() }) // never fails
	return s
}

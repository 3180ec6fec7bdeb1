// Package hook lets the conformance kit look into, and disturb, a plugin under
// test. Hooks reach a plugin through the context given to plugin.Load and through
// nothing else, so that only packages of this room can set them. A plugin loaded
// without hooks pays one comparison per call.
package hook

import (
	"context"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/secret"
)

// Hooks are called from the goroutines that run the plugin; they must be safe
// for concurrent use. Zero fields do nothing.
type Hooks struct {
	// Import is called before each import of an operation is carried out. With
	// override the import does nothing and returns result.
	Import func(op abi.Op, name string) (result int64, override bool)
	// Meta may replace the description of a request before the broker sees it.
	Meta func(op abi.Op, meta []byte) []byte
	// After is called when an operation's call has ended, however it ended, with
	// the whole memory of the instance, valid during the call of After only, and
	// the fuel it took.
	After func(op abi.Op, memory []byte, fuel int64)
	// Captured is called with each token that the host takes out of a reply.
	Captured func(name string, token secret.Value)
	// Shown is called with what of each answer the plugin may read, whether it
	// reads it or not.
	Shown func(what string, data []byte)
	// Hurry, when positive, is the longest that the host waits between two looks
	// at a sandbox, and that a plugin's sleep takes.
	Hurry time.Duration
	// Fuel and MemoryPages replace the limits of a call and of an instance.
	Fuel        int64
	MemoryPages uint32
}

type key struct{}

// With returns a context that carries h to plugin.Load.
func With(ctx context.Context, h *Hooks) context.Context {
	return context.WithValue(ctx, key{}, h)
}

// From returns the hooks in ctx, or hooks that do nothing.
func From(ctx context.Context) *Hooks {
	if h, ok := ctx.Value(key{}).(*Hooks); ok {
		return h
	}
	return &Hooks{}
}

// Wait shortens a wait as Hurry says.
func (h *Hooks) Wait(d time.Duration) time.Duration {
	if h.Hurry > 0 {
		return min(d, h.Hurry)
	}
	return d
}

package host

import (
	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

// CreateRequest asks for a new session.
type CreateRequest struct {
	// Provider is the name it was registered under.
	Provider string
	// Manifest is what is wanted. It is copied.
	Manifest manifest.Manifest
	// Grants are run-scoped: each non-nil kind replaces the host's of the same
	// kind. nil: the host's grants.
	Grants *grants.Set
	// Transport to use for protected values. Never downgraded silently.
	Transport Transport
	// Key is the caller's idempotency key: the same key with the same manifest
	// gives the same session back, with another manifest it is Conflict. The
	// key is free again when the session is closed. "": none.
	Key string
	// SharedTrust declares that everything run in this sandbox may see each
	// other's request-scoped secrets. See ExecRequest.Secrets.
	SharedTrust bool
	// Principal is who asks, for events and disclosure records. It grants
	// nothing.
	Principal string
	// Progress is told about the provider's steps. It must not block. May be
	// nil.
	Progress func(provider.Stage)
}

package host

import (
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

// AdoptRequest names a sandbox that this host did not make.
type AdoptRequest struct {
	// Provider is the name it was registered under.
	Provider string
	// Ref names the sandbox to the provider.
	Ref provider.Ref
	// Manifest says how to use it: root, user, literals. References are
	// refused.
	Manifest manifest.Manifest
	// SharedTrust as in CreateRequest.
	SharedTrust bool
	// Principal as in CreateRequest.
	Principal string
}

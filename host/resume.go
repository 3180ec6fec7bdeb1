package host

import (
	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

// ResumeRequest asks to go on with a session from its state.
type ResumeRequest struct {
	// State is what Session.State returned. It is hostile input: it names the
	// session, and everything else in it is only compared.
	State []byte
	// Provider must name the session's provider. Required for a protected
	// session; "" means the recorded one otherwise.
	Provider string
	// Manifest is the current trusted manifest. Required for a protected
	// session, and must declare exactly the persisted (destination, source)
	// pairs. nil: the persisted one, for an unprotected session.
	Manifest *manifest.Manifest
	// Grants as in CreateRequest.
	Grants *grants.Set
	// Transport as in CreateRequest.
	Transport Transport
	// DiscardWorkspace allows a replacement that starts without the files of
	// the previous sandbox.
	DiscardWorkspace bool
	// SharedTrust as in CreateRequest.
	SharedTrust bool
	// Principal as in CreateRequest.
	Principal string
	// Progress as in CreateRequest.
	Progress func(provider.Stage)
}

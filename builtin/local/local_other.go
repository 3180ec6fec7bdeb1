//go:build !linux

package local

import (
	"runtime"

	"github.com/sbxhost/sbxhost/provider"
)

// Provider exists on Linux only.
type Provider struct{ provider.Provider }

// New returns an Unsupported *provider.Error on this system.
func New(Options) (*Provider, error) {
	return nil, &provider.Error{
		Code: provider.Unsupported, Op: "new", Provider: "local", Applied: provider.AppliedNo,
		Message: "the local provider needs Linux 5.13 or newer with user namespaces or Landlock; this is " + runtime.GOOS,
		Remedy:  "run sbxhost on Linux (in a virtual machine, for example), or use another provider",
	}
}

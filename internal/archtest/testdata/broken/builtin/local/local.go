// Package local is documented.
package local

import (
	_ "example.com/broken/host"
	_ "example.com/broken/internal/bridge"
	"example.com/broken/secret"

	_ "github.com/opencontainers/cgroups" // not core: free
)

func reveal(v secret.Value) []byte { return v.Reveal() }

// Package redact is documented.
package redact

import (
	_ "example.com/broken/manifest"
	"example.com/broken/secret"
)

// AddEnv may reveal.
func AddEnv(v secret.Value) []byte { return v.Reveal() }

// Add may not.
func Add(v secret.Value) []byte { return v.Reveal() } // want

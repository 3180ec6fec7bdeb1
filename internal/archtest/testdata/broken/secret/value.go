// Package secret is documented.
package secret

// Value is one secret.
type Value struct{}

// Reveal is the one allowed method of that name.
func (v Value) Reveal() []byte { return nil }

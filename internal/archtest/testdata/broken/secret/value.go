// Package secret is documented.
package secret

import (
	"fmt"
	"sync"
)

// Value is one secret.
type Value struct{}

// Reveal is the one allowed method of that name.
func (v Value) Reveal() []byte { return nil }

// Vault may be printed while somebody writes.
type Vault struct { // want
	mu     sync.RWMutex
	values map[string]Value
}

// Safe says itself what is printed.
type Safe struct{ mu sync.Mutex }

// Format implements fmt.Formatter.
func (s *Safe) Format(f fmt.State, _ rune) {}

type box struct{} // want

func (box) Ref()   {}
func (box) Exec()  {}
func (box) Files() {}

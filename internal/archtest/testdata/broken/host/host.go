// Package host is documented.
package host

import (
	"example.com/broken/secret"

	_ "github.com/spf13/cobra"
	_ "github.com/tetratelabs/wazero/api"
	_ "go.opentelemetry.io/otel/sdk/trace"
	_ "go.opentelemetry.io/otel/trace"
)

type revealer interface{ Reveal() []byte } // want

func call(v secret.Value) []byte { return v.Reveal() } // want

func value(v secret.Value) func() []byte { return v.Reveal } // want

func expression() any { return secret.Value.Reveal } // want

func byName() string { return "Reveal" } // want

func (fake) Reveal() {} // want

type fake struct{}

// Package host runs commands in sandboxes with secrets that the host granted.
//
// A [Host] holds the registered providers, the grants and the ledger. A
// [Session] is its live handle on one sandbox. Secrets are named by references
// in the manifest; the host resolves them when, and only when, an exact grant
// covers them and the provider was registered as trusted.
//
//	h, err := host.New(host.Options{Grants: grants.Set{
//		ProcessEnvironmentBindings: map[string]string{"API_TOKEN": "HOST_TOKEN"},
//	}})
//	err = h.RegisterTrusted("local", provider)
//	s, err := h.Create(ctx, host.CreateRequest{Provider: "local", Manifest: m})
//	r, err := s.Exec(ctx, host.ExecRequest{Args: []string{"python", "main.py"}})
//	err = s.Close(ctx)
//
// # Trust
//
// Trust is the call that registers a provider, never a name that a provider
// reports. A manifest with references on any other provider is refused before
// the provider is touched.
//
// # What leaves
//
// Everything that comes back from a sandbox passes the session's redactor:
// output, file contents, names, errors, events, logs, spans, state. This guards
// against accidents; code in the sandbox that holds a value can transform it.
//
// # Errors
//
// Errors carry a provider.Code: use errors.Is with provider.ErrNotFound and the
// like, or provider.CodeOf. An operation on a session with protected values
// fails with a [*LifecycleError], which holds only what the host itself
// recorded. Other operations keep the provider's error, redacted. Errors found
// before the provider is touched keep their text.
//
// # Telemetry
//
// Events go to [Options].Sinks, records to the Logger, spans to the Tracer. All
// three are built from one allow-list of fields ([Record]) after redaction.
package host

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/redact"
)

// Options configures a Host. The zero value grants nothing, logs nothing and
// forgets everything when the process ends.
type Options struct {
	// ID is the owner written on every sandbox. Two hosts that share a provider
	// account must not share it. Required with a Ledger, which outlives the
	// process; default: random.
	ID string

	// Grants are the host-scoped grants. They are copied.
	Grants grants.Set

	// Source is where values are read. Default: the process environment.
	Source grants.Source

	// Ledger records what was made, so that nothing is orphaned. The host does
	// not close it. Default: in memory.
	Ledger ledger.Ledger

	// Redact configures the redactor of every session.
	Redact redact.Options

	// Logger receives one record per event. Default: none.
	Logger *slog.Logger

	// Tracer receives one span per operation. Default: none.
	Tracer trace.Tracer

	// Sinks receive every event. A sink that fails, blocks or panics never
	// changes the result of an operation.
	Sinks []Sink

	// HostPathRoots are the directories that a manifest's hostPath files and
	// pathGrants may use. Paths below them are opened without following
	// symbolic links. Default: none, so that host paths are refused.
	HostPathRoots []string

	// Limits bounds what this host runs at once; zero fields take the defaults
	// documented there.
	Limits Limits

	// Clock tells the time that is recorded and that lifetimes are judged by.
	// Default: time.Now.
	Clock func() time.Time
}

// Operations of a Host, in the order of a sandbox's life:
//
//	New, RegisterTrusted, Register, SetGrants   configure
//	CheckGrants                                 explain, without reading a value
//	Create, Adopt, Resume                       make a Session
//	Session, Sessions                           find one
//	Reconcile                                   agree with providers and ledger
//	Close                                       end everything
//
// and of a Session: Exec, Start; ReadFile, WriteFile, Open, List, Stat, Remove,
// Mkdir, Export; Status, Info, Port, Pause, Unpause; State, Detach, Close.
// Both are safe for concurrent use.
var _ interface {
	Close(context.Context) error
} = (*Host)(nil)

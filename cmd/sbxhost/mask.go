package main

import (
	"context"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/redact"
	"github.com/sbxhost/sbxhost/secret"
)

// maskMessages makes errors and notes of ours free of the values that a run is
// about. What a session returns is masked by the session; but our own messages
// repeat arguments, paths and names, and the caller's shell may have expanded a
// variable into one of them.
func (a *app) maskMessages(pairs []manifest.Pair, request secret.Env) {
	values := map[string]secret.Value{}
	source := grants.ProcessEnvironment()
	for _, p := range pairs {
		if v, set, err := source.Lookup(context.Background(), p.Source); err == nil && set {
			values[p.Destination] = v
		}
	}
	a.messages = redact.New(redact.Options{})
	// What is too short to be masked is reported where it is delivered.
	a.messages.AddEnv(secret.NewEnv(values))
	a.messages.AddEnv(request)
}

// masked returns a message as it may be shown.
func (a *app) masked(s string) string {
	if a.messages == nil {
		return s
	}
	return a.messages.String(s)
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

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
	a.messages, a.known = redact.New(redact.Options{}), true
	source := grants.ProcessEnvironment()
	for _, p := range pairs {
		if v, set, err := source.Lookup(context.Background(), p.Source); err == nil && set {
			// One by one: a destination may be there twice, from different sources.
			// What is too short to be masked is reported where it is delivered.
			a.messages.AddEnv(secret.NewEnv(map[string]secret.Value{p.Destination: v}))
		}
	}
	a.messages.AddEnv(request)
}

// maskTyped is maskMessages for a command line that was given up, or has not come so
// far, before the pairs were known.
func (a *app) maskTyped() {
	a.maskMessages(a.typed(), secret.Env{})
	a.known = false
}

// typed returns all pairs that the command line's flags and what was read of the
// manifest name, whatever else is wrong with them, or overrules them.
func (a *app) typed() []manifest.Pair {
	pairs := slices.Clone(a.declared)
	for i, arg := range a.args {
		if arg == "--" {
			break
		}
		flag, text, cut := strings.Cut(arg, "=")
		if !slices.Contains([]string{"--secret", "--grant", "--request-secret"}, flag) {
			continue
		}
		if !cut {
			if i+1 == len(a.args) {
				break
			}
			text = a.args[i+1]
		}
		dest, source, cut := strings.Cut(text, "=")
		if !cut {
			source = dest
		}
		if manifest.ValidEnvKey(dest) != nil {
			dest = "SECRET" // what is wrong with it may be a value
		}
		pairs = append(pairs, manifest.Pair{Destination: dest, Source: source})
	}
	return pairs
}

// masked returns a message as it may be shown.
func (a *app) masked(s string) string {
	if a.messages == nil {
		return s
	}
	return a.messages.String(s)
}

// maskedAttr is masked for what is logged.
func (a *app) maskedAttr(_ []string, at slog.Attr) slog.Attr {
	switch at.Value.Kind() {
	case slog.KindString:
		at.Value = slog.StringValue(a.masked(at.Value.String()))
	case slog.KindAny:
		switch v := at.Value.Any().(type) {
		case nil, slog.Level, *slog.Source:
		case []string:
			out := make([]string, len(v))
			for i := range v {
				out[i] = a.masked(v[i])
			}
			at.Value = slog.AnyValue(out)
		default:
			at.Value = slog.StringValue(a.masked(fmt.Sprint(v)))
		}
	}
	return at
}

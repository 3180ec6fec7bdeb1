package grants

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/sbxhost/sbxhost/manifest"
)

// Kind says what an Error is about. The set is closed; switch on it.
type Kind string

// The kinds of errors.
const (
	KindNotGranted     Kind = "not granted"         // a reference without its grant
	KindNotSet         Kind = "not set"             // the source variable is not set on the host
	KindRefused        Kind = "destination refused" // we or the provider manage this variable
	KindMalformed      Kind = "malformed"           // a name, a grant, a requirement or a value that can never work
	KindConflict       Kind = "conflict"            // one destination with two sources
	KindInvalidBinding Kind = "invalid binding"     // no binding, or not for this use
	KindSource         Kind = "source failed"       // the source could not be asked
	KindNotSupplied    Kind = "not supplied"        // a required request secret is missing
)

// Error is what this package returns. It names destinations and sources, never
// a value, and wraps nothing except context.Canceled and
// context.DeadlineExceeded.
type Error struct {
	Kind Kind
	// Destination and Source of the first pair concerned; "" when the error is
	// about something else. A source that may be a pasted value reads
	// "<unusual name>".
	Destination, Source string
	// Pairs lists every pair concerned, sorted by destination, the first one
	// included, with sources as in Source.
	Pairs []manifest.Pair
	// Reason says more; it may be empty.
	Reason string
	// Remedy says what to do; it may be empty.
	Remedy string
	// Provider is the host's registration identity, when one is concerned.
	Provider string

	ctxErr error // nil, context.Canceled or context.DeadlineExceeded
}

// Error returns "grants: kind: pairs: reason; remedy".
func (e *Error) Error() string {
	parts := []string{"grants", string(e.Kind)}
	if who := e.subject(); who != "" {
		parts = append(parts, who)
	}
	if e.Reason != "" {
		parts = append(parts, e.Reason)
	}
	s := strings.Join(parts, ": ")
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// maxListed is how many pairs a message lists.
const maxListed = 20

func (e *Error) subject() string {
	if len(e.Pairs) == 0 {
		switch {
		case e.Destination == "" && e.Source == "":
			return ""
		case e.Source == "":
			return e.Destination
		case e.Destination == "":
			return e.Source
		}
		return describe(manifest.Pair{Destination: e.Destination, Source: e.Source})
	}
	var b strings.Builder
	for i, p := range e.Pairs {
		if i == maxListed {
			fmt.Fprintf(&b, " and %d more", len(e.Pairs)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(describe(p))
	}
	return b.String()
}

func describe(p manifest.Pair) string {
	return p.Destination + " (from host variable " + p.Source + ")"
}

// Is reports whether target is the same Kind, so that
// errors.Is(err, grants.KindNotGranted) works.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// Unwrap returns context.Canceled or context.DeadlineExceeded when that is why
// a source could not be asked, else nil. No other cause is ever kept: a source's
// own error may quote a value.
func (e *Error) Unwrap() error { return e.ctxErr }

// Error makes a Kind usable as a target of errors.Is.
func (k Kind) Error() string { return string(k) }

const unusualName = "<unusual name>"

var usual = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// DisplaySource returns the name as it may be shown and recorded: itself when it
// looks like a variable's name, else "<unusual name>", because it may be a value
// that somebody pasted in the wrong place.
func DisplaySource(name string) string {
	if usual.MatchString(name) {
		return name
	}
	return unusualName
}

// display returns the pairs as they may be shown.
func display(pairs []manifest.Pair) []manifest.Pair {
	out := make([]manifest.Pair, len(pairs))
	for i, p := range pairs {
		out[i] = manifest.Pair{Destination: DisplaySource(p.Destination), Source: DisplaySource(p.Source)}
	}
	return out
}

// pairsError returns an Error about pairs, of which there is at least one.
func pairsError(kind Kind, pairs []manifest.Pair, reason, remedy string) *Error {
	shown := display(pairs)
	return &Error{Kind: kind, Destination: shown[0].Destination, Source: shown[0].Source,
		Pairs: shown, Reason: reason, Remedy: remedy}
}

// contextCause returns the context error in err's tree, and nothing else of it.
func contextCause(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	}
	return nil
}

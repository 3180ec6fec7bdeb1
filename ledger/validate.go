package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sbxhost/sbxhost/provider"
)

// Limits of a record.
const (
	// MaxField is the longest name, id or digest, in bytes: none is text that
	// people write, so that there is no room for anything else.
	MaxField = 256
	// MaxKey is the longest idempotency key, in bytes.
	MaxKey = 1024
	// MaxProtectedNames is the most names in ProtectedNames.
	MaxProtectedNames = 4096
	// MaxManifest is the largest manifest, in bytes.
	MaxManifest = 2 << 20
)

// Validate checks that the record is complete and holds nothing but names, ids,
// times and references: every text field is one short printable word, a key has
// no control characters, LastError is a code and nothing else, and a ref is as
// provider.ValidateRef wants it. The error is an InvalidArgument that lists the
// faulty fields and repeats none of their content.
func (r Record) Validate() error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, f := range []struct {
		name, value string
	}{
		{"session", r.Session}, {"attempt", r.Attempt}, {"owner", r.Owner}, {"epoch", r.Epoch},
		{"provider", r.Provider}, {"name", r.Name}, {"digest", r.Digest},
	} {
		if !word(f.value) {
			fault("%s must be 1 to %d printable characters without space", f.name, MaxField)
		}
	}
	if len(r.Key) > MaxKey || !utf8.ValidString(r.Key) || strings.ContainsFunc(r.Key, unicode.IsControl) {
		fault("key must be at most %d bytes of UTF-8 without control characters", MaxKey)
	}
	if !slices.Contains([]Phase{Intent, Created, Retiring, Gone}, r.Phase) {
		fault("phase must be intent, created, retiring or gone")
	}
	hasRef := r.Ref.ID != "" || len(r.Ref.Data) > 0
	if r.Phase == Created && !hasRef {
		fault("ref is missing in phase created")
	}
	if hasRef && provider.ValidateRef(r.Ref) != nil {
		fault("ref is malformed or too large")
	}
	if len(r.ProtectedNames) > MaxProtectedNames {
		fault("protectedNames holds more than %d names", MaxProtectedNames)
	}
	for i, n := range r.ProtectedNames {
		if !provider.ValidEnvKey(n) || len(n) > MaxField {
			fault("protectedNames[%d] is not an environment key", i)
			break
		}
	}
	if len(r.ProtectedNames) > 0 && !r.Protected {
		fault("protected must be true with protectedNames")
	}
	switch {
	case len(r.Manifest) > MaxManifest:
		fault("manifest is larger than %d bytes", MaxManifest)
	case len(r.Manifest) > 0 && (!utf8.Valid(r.Manifest) || !json.Valid(r.Manifest) || !bytes.HasPrefix(bytes.TrimSpace(r.Manifest), []byte("{"))):
		fault("manifest must be a JSON object")
	}
	if r.CreatedAt.IsZero() || r.UpdatedAt.IsZero() {
		fault("createdAt and updatedAt must be set")
	}
	for _, y := range []int{r.CreatedAt.UTC().Year(), r.UpdatedAt.UTC().Year(), r.ExpiresAt.UTC().Year()} {
		if y < 1 || y > 9999 {
			fault("times must be in the years 1 to 9999")
			break
		}
	}
	if r.Idle < 0 {
		fault("idle must not be negative")
	}
	if r.LastError != "" && !slices.Contains(provider.Codes(), provider.Code(r.LastError)) {
		fault("lastError must be a code of package provider")
	}
	if len(faults) > 0 {
		return &provider.Error{Code: provider.InvalidArgument, Op: "ledger", Message: "the record is invalid: " + strings.Join(faults, "; "),
			Applied: provider.AppliedNo}
	}
	return nil
}

// word reports whether s is one printable word.
func word(s string) bool {
	return s != "" && len(s) <= MaxField && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
}

// TransitionError says that a phase does not follow the stored one.
type TransitionError struct {
	Attempt  string
	From, To Phase // From is "" when there is no stored record
}

// Error implements error.
func (e *TransitionError) Error() string {
	from := string(e.From)
	if from == "" {
		from = "no record"
	}
	return fmt.Sprintf("ledger: attempt %s cannot go from %s to %s; the phases go intent, created, retiring, gone, and a failed intent may retire",
		e.Attempt, from, e.To)
}

// ErrorCode returns provider.FailedPrecondition.
func (e *TransitionError) ErrorCode() provider.Code { return provider.FailedPrecondition }

// Is matches the error's code.
func (e *TransitionError) Is(target error) bool { return target == error(e.ErrorCode()) }

// IdentityError says that a Put would make a record one of another sandbox.
type IdentityError struct {
	Attempt string
	Field   string // the first field that differs
}

// Error implements error.
func (e *IdentityError) Error() string {
	return fmt.Sprintf("ledger: attempt %s is recorded with another %s; use a fresh attempt for another sandbox", e.Attempt, e.Field)
}

// ErrorCode returns provider.Conflict.
func (e *IdentityError) ErrorCode() provider.Code { return provider.Conflict }

// Is matches the error's code.
func (e *IdentityError) Is(target error) bool { return target == error(e.ErrorCode()) }

// CheckPut decides whether next may be put where the record of its attempt is
// stored; stored is nil when there is none. Implementations call it under the
// lock that orders their writes.
func CheckPut(stored *Record, next Record) error {
	if err := next.Validate(); err != nil {
		return err
	}
	if stored == nil {
		if next.Phase == Gone {
			return &TransitionError{Attempt: next.Attempt, To: next.Phase}
		}
		return nil
	}
	for _, f := range []struct {
		name string
		same bool
	}{
		{"session", stored.Session == next.Session},
		{"owner", stored.Owner == next.Owner},
		{"epoch", stored.Epoch == next.Epoch},
		{"provider", stored.Provider == next.Provider},
		{"name", stored.Name == next.Name},
		{"digest", stored.Digest == next.Digest},
		{"key", stored.Key == next.Key},
		{"createdAt", stored.CreatedAt.Equal(next.CreatedAt)},
		// A sandbox that held values once is never taken for one that did not.
		{"protected", next.Protected || !stored.Protected},
	} {
		if !f.same {
			return &IdentityError{Attempt: next.Attempt, Field: f.name}
		}
	}
	if !follows(stored.Phase, next.Phase) {
		return &TransitionError{Attempt: next.Attempt, From: stored.Phase, To: next.Phase}
	}
	return nil
}

func follows(from, to Phase) bool {
	switch from {
	case Intent:
		return to == Intent || to == Created || to == Retiring
	case Created:
		return to == Created || to == Retiring
	case Retiring:
		return to == Retiring || to == Gone
	}
	return from == to
}

package grants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/secret"
)

// BindRequest asks for the authority to read the references of one manifest.
type BindRequest struct {
	Manifest manifest.Manifest
	Grants   Set    // in force for this run: see Merge
	Source   Source // nil: ProcessEnvironment
	// Provider is the identity that the host gave the provider at
	// registration, never a name that the provider reports.
	Provider string
	// Session is the host-made session id.
	Session string
	// RefusedDestinations are variables that the provider manages itself.
	RefusedDestinations []string
}

// Use says what a Binding is about to be used for. It must be what was bound.
type Use struct {
	Manifest manifest.Manifest
	Provider string
	Session  string
	Grants   Set // in force now
}

// Binding is the record that the references of one manifest may be read now,
// for one provider and session. Only Bind makes a valid one; the zero Binding
// and nil are never valid. It cannot be marshalled, holds no value, and dies
// when it is revoked. Copies share its life. It is safe for concurrent use.
type Binding struct{ rec *record }

type record struct {
	pairs      []manifest.Pair
	references string // digest of the manifest's references
	grants     string // fingerprint of the set in force
	provider   string
	session    string
	source     Source
	revoked    atomic.Bool
}

// Bind checks every reference of the manifest and returns the record that may
// read their values. It is all-or-nothing: first all references are checked
// against the rules and the grants, and only when every one passes are sources
// looked at, for presence only. On any failure there is no record, and no value
// was read. A manifest without references gives a Binding without pairs.
//
// Errors are *Error: KindMalformed, KindConflict, KindRefused, KindNotGranted,
// KindNotSet, KindSource. A cancelled ctx gives KindSource that unwraps to the
// context's error.
func Bind(ctx context.Context, req BindRequest) (*Binding, error) {
	if err := req.Grants.Validate(); err != nil {
		return nil, err
	}
	pairs := req.Manifest.Pairs()
	if len(pairs) > 0 && (req.Provider == "" || req.Session == "") {
		return nil, pairsError(KindInvalidBinding, pairs, "binding needs the provider's registration identity and the session id", "")
	}
	if err := checkPairs(pairs, req); err != nil {
		return nil, err
	}
	source := req.Source
	if source == nil {
		source = ProcessEnvironment()
	}
	if err := checkPresent(ctx, source, pairs); err != nil {
		return nil, err
	}
	return &Binding{rec: &record{
		pairs:      pairs,
		references: req.Manifest.ReferencesDigest(),
		grants:     req.Grants.fingerprint(),
		provider:   req.Provider,
		session:    req.Session,
		source:     source,
	}}, nil
}

// checkPairs judges the pairs without looking at any source.
func checkPairs(pairs []manifest.Pair, req BindRequest) error {
	var refused, byProvider, missing []manifest.Pair
	for _, p := range pairs {
		for _, err := range []error{manifest.ValidEnvKey(p.Destination), manifest.ValidName(p.Source)} {
			if err != nil {
				return pairsError(KindMalformed, []manifest.Pair{p}, err.Error(), "")
			}
		}
		switch {
		case manifest.ReservedDestination(p.Destination):
			refused = append(refused, p)
		case slices.Contains(req.RefusedDestinations, p.Destination):
			byProvider = append(byProvider, p)
		case !req.Grants.Allows(p):
			missing = append(missing, p)
		}
	}
	switch {
	case len(refused) > 0:
		return pairsError(KindRefused, refused, "managed by shells or the loader", "choose another name inside the sandbox")
	case len(byProvider) > 0:
		e := pairsError(KindRefused, byProvider, "managed by the provider "+req.Provider, "choose another name inside the sandbox")
		e.Provider = req.Provider
		return e
	case len(missing) > 0:
		return pairsError(KindNotGranted, missing, "", howToGrant(missing))
	}
	return nil
}

const checkSourceName = "the manifest names a source that does not look like a variable; check that no value was pasted there"

// howToGrant tells what to add for each missing pair.
func howToGrant(pairs []manifest.Pair) string {
	var lines, flags []string
	for _, p := range display(pairs)[:min(len(pairs), maxListed)] {
		if p.Source == unusualName {
			return checkSourceName
		}
		lines = append(lines, p.Destination+": "+p.Source)
		flags = append(flags, "--grant "+p.Destination+"="+p.Source)
	}
	return "add " + strings.Join(lines, ", ") + " to processEnvironmentBindings, or pass " + strings.Join(flags, " ")
}

// checkPresent asks for each distinct source once.
func checkPresent(ctx context.Context, source Source, pairs []manifest.Pair) error {
	asked := map[string]bool{}
	var unset []manifest.Pair
	for _, p := range pairs {
		present, known := asked[p.Source]
		if !known {
			var err error
			if present, err = askPresent(ctx, source, p); err != nil {
				return err
			}
			asked[p.Source] = present
		}
		if !present {
			unset = append(unset, p)
		}
	}
	if len(unset) > 0 {
		return notSet(unset)
	}
	return nil
}

func notSet(pairs []manifest.Pair) *Error {
	var names []string
	for _, p := range display(pairs)[:min(len(pairs), maxListed)] {
		if p.Source == unusualName {
			return pairsError(KindNotSet, pairs, "", checkSourceName)
		}
		if !slices.Contains(names, p.Source) {
			names = append(names, p.Source)
		}
	}
	return pairsError(KindNotSet, pairs, "", "set "+strings.Join(names, ", ")+" in the host's environment")
}

// askPresent and askValue keep nothing of what a source says when it fails,
// panics included.
func askPresent(ctx context.Context, source Source, p manifest.Pair) (ok bool, err error) {
	defer func() {
		if recover() != nil {
			ok, err = false, sourceFailed(p, nil)
		}
	}()
	if err := ctx.Err(); err != nil {
		return false, sourceFailed(p, err)
	}
	ok, serr := source.Present(ctx, p.Source)
	if serr != nil {
		return false, sourceFailed(p, serr)
	}
	return ok, nil
}

func askValue(ctx context.Context, source Source, p manifest.Pair) (v secret.Value, ok bool, err error) {
	defer func() {
		if recover() != nil {
			v, ok, err = secret.Value{}, false, sourceFailed(p, nil)
		}
	}()
	if err := ctx.Err(); err != nil {
		return secret.Value{}, false, sourceFailed(p, err)
	}
	v, ok, serr := source.Lookup(ctx, p.Source)
	if serr != nil {
		return secret.Value{}, false, sourceFailed(p, serr)
	}
	return v, ok, nil
}

func sourceFailed(p manifest.Pair, cause error) *Error {
	e := pairsError(KindSource, []manifest.Pair{p}, "the source could not be read; what it said is not shown, because it may quote a value", "")
	if e.ctxErr = contextCause(cause); e.ctxErr != nil {
		e.Reason = e.ctxErr.Error()
	}
	return e
}

// Invalid returns the pairs that b does not cover, sorted by destination: none
// when b is valid for exactly u, else every reference of u.Manifest and every
// bound pair that the manifest does not have any more. It works with a nil
// Binding: no record means that every reference is invalid.
func Invalid(b *Binding, u Use) []manifest.Pair {
	if b.mismatch(u) == "" {
		return nil
	}
	pairs := u.Manifest.Pairs()
	for _, p := range b.Pairs() {
		if !slices.Contains(pairs, p) {
			pairs = append(pairs, p)
		}
	}
	slices.SortFunc(pairs, comparePairs)
	return pairs
}

// mismatch returns why b is not valid for u, or "".
func (b *Binding) mismatch(u Use) string {
	switch {
	case b == nil || b.rec == nil:
		if len(u.Manifest.Pairs()) == 0 {
			return "" // nothing to be covered
		}
		return "there is no binding"
	case b.rec.revoked.Load():
		return "the binding was revoked"
	case b.rec.provider != u.Provider:
		return "it was made for another provider"
	case b.rec.session != u.Session:
		return "it was made for another session"
	case b.rec.references != u.Manifest.ReferencesDigest():
		return "the manifest's references have changed since"
	case b.rec.grants != u.Grants.fingerprint():
		return "the grants have changed since"
	}
	return ""
}

// Covers returns nil when b is valid for exactly u, else an *Error of
// KindInvalidBinding that lists the pairs of Invalid. A nil Binding covers a
// manifest without references and no other.
func (b *Binding) Covers(u Use) error {
	why := b.mismatch(u)
	if why == "" {
		return nil
	}
	const remedy = "bind the manifest again"
	pairs := Invalid(b, u)
	if len(pairs) == 0 {
		return &Error{Kind: KindInvalidBinding, Reason: why, Remedy: remedy}
	}
	return pairsError(KindInvalidBinding, pairs, why, remedy)
}

func comparePairs(a, b manifest.Pair) int {
	if c := strings.Compare(a.Destination, b.Destination); c != 0 {
		return c
	}
	return strings.Compare(a.Source, b.Source)
}

// Values reads the values of all bound references in one snapshot, each source
// once, keyed by destination. It fails closed: a nil, revoked or mismatching
// Binding, a source that is not set any more, a value with NUL, and a value or a
// sum over the limits (MaxValue, MaxEnvironment of package manifest, the
// manifest's literals included) give an *Error, and no value at all.
func (b *Binding) Values(ctx context.Context, u Use) (secret.Env, error) {
	if err := b.Covers(u); err != nil {
		return secret.Env{}, err
	}
	if b == nil || b.rec == nil {
		return secret.NewEnv(nil), nil // Covers: the manifest has no reference
	}
	total := 0
	for k, v := range u.Manifest.Literals() {
		total += envSize(k, len(v))
	}
	read := map[string]secret.Value{}
	out := make(map[string]secret.Value, len(b.rec.pairs))
	var unset []manifest.Pair
	for _, p := range b.rec.pairs {
		v, known := read[p.Source]
		if !known {
			var ok bool
			var err error
			if v, ok, err = askValue(ctx, b.rec.source, p); err != nil {
				return secret.Env{}, err
			}
			if !ok {
				unset = append(unset, p)
				continue
			}
			read[p.Source] = v
		}
		if err := checkValue(p.Destination, v, &total); err != "" {
			return secret.Env{}, pairsError(KindMalformed, []manifest.Pair{p}, err, "")
		}
		out[p.Destination] = v
	}
	if len(unset) > 0 {
		return secret.Env{}, notSet(unset)
	}
	// A change while the sources were read counts.
	if err := b.Covers(u); err != nil {
		return secret.Env{}, err
	}
	return secret.NewEnv(out), nil
}

// envSize is what one variable takes: NAME=VALUE and NUL.
func envSize(name string, valueLen int) int { return len(name) + 1 + valueLen + 1 }

// checkValue adds the variable to total and returns which rule it breaks, or "".
func checkValue(name string, v secret.Value, total *int) string {
	n := envSize(name, v.Len())
	*total += n
	switch {
	case v.HasNUL():
		return "the value contains NUL, which no environment can carry"
	case n > manifest.MaxValue:
		return "the value is larger than the limit of 128 KiB with its name (MaxValue)"
	case *total > manifest.MaxEnvironment:
		return "the environment is larger than the limit of 1 MiB in all (MaxEnvironment)"
	}
	return ""
}

// Pairs returns the bound pairs, sorted by destination. The caller owns the
// slice. A nil Binding has none.
func (b *Binding) Pairs() []manifest.Pair {
	if b == nil || b.rec == nil {
		return nil
	}
	return slices.Clone(b.rec.pairs)
}

// Revoke ends the binding for good. It may be called many times, and on nil.
func (b *Binding) Revoke() {
	if b != nil && b.rec != nil {
		b.rec.revoked.Store(true)
	}
}

// ErrMarshal is returned by every marshaller of a Binding, a Carrier and an
// Activation.
var ErrMarshal = errors.New("grants: authority and values cannot be marshalled; store the manifest and bind it again")

// String lists the bound destinations.
func (b *Binding) String() string {
	if b == nil || b.rec == nil {
		return "grants.Binding[none]"
	}
	names := make([]string, len(b.rec.pairs))
	for i, p := range b.rec.pairs {
		names[i] = p.Destination
	}
	return "grants.Binding[" + strings.Join(names, " ") + "]"
}

// GoString lists the bound destinations.
func (b *Binding) GoString() string { return b.String() }

// Format lists the bound destinations for every verb.
func (b *Binding) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, b.String()) }

// LogValue lists the bound destinations.
func (b *Binding) LogValue() slog.Value { return slog.StringValue(b.String()) }

// MarshalJSON returns ErrMarshal.
func (b Binding) MarshalJSON() ([]byte, error) { return nil, ErrMarshal }

// MarshalText returns ErrMarshal.
func (b Binding) MarshalText() ([]byte, error) { return nil, ErrMarshal }

// MarshalBinary returns ErrMarshal.
func (b Binding) MarshalBinary() ([]byte, error) { return nil, ErrMarshal }

// MarshalYAML returns ErrMarshal.
func (b Binding) MarshalYAML() (any, error) { return nil, ErrMarshal }

// GobEncode returns ErrMarshal.
func (b Binding) GobEncode() ([]byte, error) { return nil, ErrMarshal }

// UnmarshalJSON returns ErrMarshal: authority never comes out of a document.
func (b *Binding) UnmarshalJSON([]byte) error { return ErrMarshal }

// GobDecode returns ErrMarshal.
func (b *Binding) GobDecode([]byte) error { return ErrMarshal }

var _ json.Marshaler = (*Binding)(nil)

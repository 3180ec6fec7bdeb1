// Package grants decides which host variables a manifest's references may read.
//
// A [Set] is the host's permission for exact destination → source pairs. [Bind]
// checks the references of one manifest against it and returns a [Binding], the
// only thing that can read values: for that manifest, provider and session, and
// for as long as nothing of it changes. Everything fails closed: no Binding
// means that every reference is invalid.
//
// The package also holds request-scoped secrets: a [Requirement] is a name that
// a command declares, a [Carrier] what the caller supplies, an [Activation] the
// intersection.
package grants

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/sbxhost/sbxhost/internal/strictjson"
	"github.com/sbxhost/sbxhost/manifest"
)

// Set grants exact destination → source pairs. The zero Set grants nothing.
// There is no "all" and no pattern; "*" is a name like any other. Grants come
// from the host's configuration or its operator, never from a manifest, a
// state, a provider or a request.
type Set struct {
	// AllowedProcessEnvironmentKeys grants K → K for each key.
	AllowedProcessEnvironmentKeys []string `json:"allowedProcessEnvironmentKeys,omitzero"`
	// ProcessEnvironmentBindings grants destination → source.
	ProcessEnvironmentBindings map[string]string `json:"processEnvironmentBindings,omitzero"`
}

// UnmarshalJSON reads a Set strictly: an unknown or repeated key, a bare string
// where a list belongs, null and every other wrong type are *Error of
// KindMalformed. The result is validated. On error s is unchanged.
func (s *Set) UnmarshalJSON(data []byte) error {
	var out Set
	d := strictjson.New(data)
	err := d.Object(func(key string) error {
		switch key {
		case "allowedProcessEnvironmentKeys":
			out.AllowedProcessEnvironmentKeys = []string{}
			return d.Array(func(int) error {
				k, err := d.Text()
				out.AllowedProcessEnvironmentKeys = append(out.AllowedProcessEnvironmentKeys, k)
				return err
			})
		case "processEnvironmentBindings":
			out.ProcessEnvironmentBindings = map[string]string{}
			n := 0
			return d.Object(func(dest string) error {
				// A pair is not told by its names here: either may be pasted.
				n++
				source, err := d.Text()
				out.ProcessEnvironmentBindings[dest] = source
				if err != nil {
					return atEntry("processEnvironmentBindings", n-1, err)
				}
				return nil
			})
		}
		return errUnknownGrant
	})
	if err == nil {
		err = d.End()
	}
	if err != nil {
		return malformedDocument("grant set", err)
	}
	if err := out.Validate(); err != nil {
		return err
	}
	*s = out
	return nil
}

var errUnknownGrant = errors.New("unknown key; a grant set has allowedProcessEnvironmentKeys (a list) and processEnvironmentBindings (destination: source)")

// Validate reports malformed names and a destination granted from two sources
// as an *Error. Repeating the same grant is not an error.
func (s Set) Validate() error {
	for i, k := range s.AllowedProcessEnvironmentKeys {
		if err := manifest.ValidName(k); err != nil {
			return &Error{Kind: KindMalformed, Reason: entry("allowedProcessEnvironmentKeys", i) + ": " + err.Error()}
		}
	}
	for i, dest := range slices.Sorted(maps.Keys(s.ProcessEnvironmentBindings)) {
		source := s.ProcessEnvironmentBindings[dest]
		if err := manifest.ValidName(dest); err != nil {
			return &Error{Kind: KindMalformed, Source: DisplaySource(source),
				Reason: entry("processEnvironmentBindings", i) + " (in order of the names): destination: " + err.Error()}
		}
		if err := manifest.ValidName(source); err != nil {
			return &Error{Kind: KindMalformed, Destination: DisplaySource(dest),
				Reason: "processEnvironmentBindings: source: " + err.Error()}
		}
	}
	for _, k := range s.AllowedProcessEnvironmentKeys {
		if source, ok := s.ProcessEnvironmentBindings[k]; ok && source != k {
			return &Error{Kind: KindConflict, Destination: DisplaySource(k), Source: DisplaySource(source),
				Reason: "granted from two sources: allowedProcessEnvironmentKeys gives it the source of the same name",
				Remedy: "keep one of the two grants for " + DisplaySource(k)}
		}
	}
	return nil
}

// Clone returns a deep copy; nil stays nil.
func (s Set) Clone() Set {
	return Set{
		AllowedProcessEnvironmentKeys: slices.Clone(s.AllowedProcessEnvironmentKeys),
		ProcessEnvironmentBindings:    maps.Clone(s.ProcessEnvironmentBindings),
	}
}

// IsEmpty reports whether nothing is granted.
func (s Set) IsEmpty() bool {
	return len(s.AllowedProcessEnvironmentKeys) == 0 && len(s.ProcessEnvironmentBindings) == 0
}

// Allows reports whether exactly p is granted.
func (s Set) Allows(p manifest.Pair) bool {
	if source, ok := s.ProcessEnvironmentBindings[p.Destination]; ok && source == p.Source {
		return true
	}
	return p.Destination == p.Source && slices.Contains(s.AllowedProcessEnvironmentKeys, p.Destination)
}

// Merge returns the grants in force for one run: a kind that run gives (non-nil,
// also when empty) replaces the host's kind as a whole, the other stays. The
// result is a deep copy, validated as one: a conflict that the replacement
// removes is none. A nil run leaves the host's set.
func Merge(host Set, run *Set) (Set, error) {
	out := host.Clone()
	if run != nil {
		r := run.Clone()
		if r.AllowedProcessEnvironmentKeys != nil {
			out.AllowedProcessEnvironmentKeys = r.AllowedProcessEnvironmentKeys
		}
		if r.ProcessEnvironmentBindings != nil {
			out.ProcessEnvironmentBindings = r.ProcessEnvironmentBindings
		}
	}
	if err := out.Validate(); err != nil {
		return Set{}, err
	}
	return out, nil
}

// fingerprint returns what the set grants in one comparable string: the same
// for every spelling of the same pairs.
func (s Set) fingerprint() string {
	pairs := maps.Clone(s.ProcessEnvironmentBindings)
	if pairs == nil {
		pairs = map[string]string{}
	}
	for _, k := range s.AllowedProcessEnvironmentKeys {
		pairs[k] = k // Validate has refused another source for k
	}
	// encoding/json sorts the keys; names are valid UTF-8 by Validate.
	b, _ := json.Marshal(pairs)
	return string(b)
}

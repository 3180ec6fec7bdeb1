package grants

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/sbxhost/sbxhost/internal/strictjson"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/secret"
)

// MaxRequirements is how many names one declaration may have.
const MaxRequirements = 1000

// Requirement is a name that a command declares: the request secret it needs.
type Requirement struct {
	Name     string `json:"name"`
	Optional bool   `json:"optional,omitempty"`
}

// ParseRequirements reads a declaration: a JSON list whose entries are names or
// {"name": …, "optional": …} objects. Nothing at all (raw is empty, the field is
// absent) is an empty list. Reading is strict: anything but a list, a name that
// is no identifier or is reserved, a quoted boolean, an unknown key, and a name
// given twice with different flags are *Error of KindMalformed that tell the
// entry by its index and never show it. A repetition that agrees is dropped.
// Order is kept.
func ParseRequirements(raw json.RawMessage) ([]Requirement, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var out []Requirement
	d := strictjson.New(raw)
	err := d.Array(func(i int) error {
		if i >= MaxRequirements {
			return fmt.Errorf("more than %d entries (MaxRequirements)", MaxRequirements)
		}
		r, err := readRequirement(d)
		if err == nil {
			err = checkRequestName(r.Name)
		}
		if err != nil {
			return &entryError{where: fmt.Sprintf("entry %d", i), reason: messageOf(err)}
		}
		for _, earlier := range out {
			if earlier.Name != r.Name {
				continue
			}
			if earlier.Optional != r.Optional {
				return &entryError{where: fmt.Sprintf("entry %d", i), reason: "repeats an earlier name with another optional flag"}
			}
			return nil
		}
		out = append(out, r)
		return nil
	})
	if err == nil {
		err = d.End()
	}
	if err != nil {
		return nil, malformedDocument("required secrets", err)
	}
	return out, nil
}

func readRequirement(d *strictjson.Decoder) (Requirement, error) {
	var r Requirement
	kind, err := d.Kind()
	if err != nil {
		return r, err
	}
	switch kind {
	case strictjson.String:
		r.Name, err = d.Text()
		return r, err
	case strictjson.Object:
	default:
		return r, fmt.Errorf("must be a name or an object with name and optional, not %s", kind)
	}
	named := false
	err = d.Object(func(key string) (err error) {
		switch key {
		case "name":
			named = true
			r.Name, err = d.Text()
		case "optional":
			r.Optional, err = d.Bool()
		default:
			err = errors.New("unknown key; an entry has name and optional")
		}
		return err
	})
	if err == nil && !named {
		err = errors.New("has no name")
	}
	return r, err
}

// checkRequestName is the rule for names of request secrets: as for the
// destinations of references.
func checkRequestName(name string) error {
	if err := manifest.ValidEnvKey(name); err != nil {
		return err
	}
	if manifest.ReservedDestination(name) {
		return errors.New("is managed by shells or the loader")
	}
	return nil
}

// Carrier holds what a caller supplies with one request: name → value. The zero
// Carrier is empty. It prints the number of names only, cannot be marshalled,
// and is immutable and safe for concurrent use.
type Carrier struct {
	// entries is a closure, so that printers that read unexported fields show
	// no name either: what a caller sends is the caller's.
	entries func() secret.Env
}

func (c Carrier) env() secret.Env {
	if c.entries == nil {
		return secret.Env{}
	}
	return c.entries()
}

// NewCarrier returns a Carrier with a copy of values.
func NewCarrier(values map[string]string) Carrier {
	m := make(map[string]secret.Value, len(values))
	for k, v := range values {
		m[k] = secret.FromString(v)
	}
	env := secret.NewEnv(m)
	return Carrier{entries: func() secret.Env { return env }}
}

// CarrierFrom returns a Carrier from loosely typed data, such as decoded JSON.
// It takes the entries that map a string to a string and leaves out all others;
// anything that is not a mapping, nil included, gives the empty Carrier. It
// never fails.
func CarrierFrom(data any) Carrier {
	values := map[string]string{}
	switch m := data.(type) {
	case map[string]string:
		return NewCarrier(m)
	case map[string]any:
		for k, v := range m {
			if s, ok := v.(string); ok {
				values[k] = s
			}
		}
	case map[any]any:
		for k, v := range m {
			ks, okK := k.(string)
			vs, okV := v.(string)
			if okK && okV {
				values[ks] = vs
			}
		}
	}
	return NewCarrier(values)
}

// Len returns the number of names.
func (c Carrier) Len() int { return c.env().Len() }

// String tells the number of names.
func (c Carrier) String() string { return fmt.Sprintf("grants.Carrier[%d names]", c.env().Len()) }

// GoString tells the number of names.
func (c Carrier) GoString() string { return c.String() }

// Format tells the number of names for every verb.
func (c Carrier) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue tells the number of names.
func (c Carrier) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON returns ErrMarshal.
func (c Carrier) MarshalJSON() ([]byte, error) { return nil, ErrMarshal }

// MarshalText returns ErrMarshal.
func (c Carrier) MarshalText() ([]byte, error) { return nil, ErrMarshal }

// MarshalBinary returns ErrMarshal.
func (c Carrier) MarshalBinary() ([]byte, error) { return nil, ErrMarshal }

// MarshalYAML returns ErrMarshal.
func (c Carrier) MarshalYAML() (any, error) { return nil, ErrMarshal }

// GobEncode returns ErrMarshal.
func (c Carrier) GobEncode() ([]byte, error) { return nil, ErrMarshal }

// Activation is the declared ∩ supplied secrets of one command. The zero
// Activation is none. It prints names only, cannot be marshalled, and is
// immutable and safe for concurrent use.
type Activation struct {
	env     secret.Env
	missing []string
	refused []string
}

// Activate returns what is both declared and supplied. What is supplied and not
// declared is never in it; what is declared and not supplied is listed by
// Missing when it is required. It never fails: whoever runs the command calls
// Check first.
func Activate(reqs []Requirement, c Carrier) Activation {
	var a Activation
	values, supplied := map[string]secret.Value{}, c.env()
	for _, r := range reqs {
		if checkRequestName(r.Name) != nil {
			// Only possible for a list that ParseRequirements has not made.
			a.refused = append(a.refused, DisplaySource(r.Name))
			continue
		}
		if v, ok := supplied.Get(r.Name); ok {
			values[r.Name] = v
		} else if !r.Optional {
			a.missing = append(a.missing, r.Name)
		}
	}
	a.env = secret.NewEnv(values)
	a.missing = sortedUnique(a.missing)
	a.refused = sortedUnique(a.refused)
	return a
}

func sortedUnique(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}

// Missing returns the sorted required names that were not supplied. The caller
// owns the slice.
func (a Activation) Missing() []string { return slices.Clone(a.missing) }

// Refused returns the sorted declared names that can never be injected: no
// identifier, or reserved. The caller owns the slice.
func (a Activation) Refused() []string { return slices.Clone(a.refused) }

// Env returns the values to inject, for this command only.
func (a Activation) Env() secret.Env { return a.env }

// Names returns the sorted names to inject. The caller owns the slice.
func (a Activation) Names() []string { return a.env.Names() }

// IsZero reports whether there is nothing to inject and nothing to complain
// about.
func (a Activation) IsZero() bool {
	return a.env.Len() == 0 && len(a.missing) == 0 && len(a.refused) == 0
}

// Check returns why the command must not run, or nil: a declared name that is
// refused (KindRefused), required names that were not supplied (KindNotSupplied,
// all of them), a name that is one of the protected destinations of the session
// (KindConflict), a value with NUL or over the limits (KindMalformed).
func (a Activation) Check(protected []string) error {
	if len(a.refused) > 0 {
		return &Error{Kind: KindRefused, Destination: a.refused[0],
			Reason: "request secrets cannot have these names: " + listed(a.refused),
			Remedy: "declare names that are identifiers and not managed by shells or the loader"}
	}
	if len(a.missing) > 0 {
		return &Error{Kind: KindNotSupplied, Destination: a.missing[0],
			Reason: "required request secrets: " + listed(a.missing),
			Remedy: "supply them with the request"}
	}
	total := 0
	for name, v := range a.env.All() {
		if slices.Contains(protected, name) {
			return &Error{Kind: KindConflict, Destination: name,
				Reason: "is a protected destination of this session",
				Remedy: "declare the request secret under another name"}
		}
		if err := checkValue(name, v, &total); err != "" {
			return &Error{Kind: KindMalformed, Destination: name, Reason: err}
		}
	}
	return nil
}

func listed(names []string) string {
	if len(names) > maxListed {
		return strings.Join(names[:maxListed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}

// String lists the names.
func (a Activation) String() string {
	return "grants.Activation[" + strings.Join(a.env.Names(), " ") + "]"
}

// GoString lists the names.
func (a Activation) GoString() string { return a.String() }

// Format lists the names for every verb.
func (a Activation) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, a.String()) }

// LogValue lists the names.
func (a Activation) LogValue() slog.Value { return slog.StringValue(a.String()) }

// MarshalJSON returns ErrMarshal.
func (a Activation) MarshalJSON() ([]byte, error) { return nil, ErrMarshal }

// MarshalText returns ErrMarshal.
func (a Activation) MarshalText() ([]byte, error) { return nil, ErrMarshal }

// MarshalBinary returns ErrMarshal.
func (a Activation) MarshalBinary() ([]byte, error) { return nil, ErrMarshal }

// MarshalYAML returns ErrMarshal.
func (a Activation) MarshalYAML() (any, error) { return nil, ErrMarshal }

// GobEncode returns ErrMarshal.
func (a Activation) GobEncode() ([]byte, error) { return nil, ErrMarshal }

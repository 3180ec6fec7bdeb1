package manifest

import (
	"maps"
	"slices"
	"strings"
)

// Pairs returns the pair of every reference, sorted by destination. The caller
// owns the slice.
func (m Manifest) Pairs() []Pair {
	var out []Pair
	for name, e := range m.Environment {
		if e.Reference == nil {
			continue
		}
		source := e.Reference.Name
		if source == "" {
			source = name
		}
		out = append(out, Pair{Destination: name, Source: source})
	}
	slices.SortFunc(out, func(a, b Pair) int { return strings.Compare(a.Destination, b.Destination) })
	return out
}

// Literals returns a copy of the literal environment entries.
func (m Manifest) Literals() map[string]string {
	out := map[string]string{}
	for name, e := range m.Environment {
		if e.Reference == nil {
			out[name] = e.Literal
		}
	}
	return out
}

// Clone returns a deep copy. It carries no authority: the copy has to be bound
// like any other manifest.
func (m Manifest) Clone() Manifest {
	c := m
	c.Environment = maps.Clone(m.Environment)
	for name, e := range c.Environment {
		if e.Reference != nil {
			r := *e.Reference
			e.Reference = &r
			c.Environment[name] = e
		}
	}
	c.Files = maps.Clone(m.Files)
	for name, f := range c.Files {
		f.Content = slices.Clone(f.Content)
		c.Files[name] = f
	}
	c.PathGrants = slices.Clone(m.PathGrants)
	c.Ports = slices.Clone(m.Ports)
	c.Labels = maps.Clone(m.Labels)
	return c
}

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/redact"
)

// parsePair reads DEST[=SOURCE]. Its errors repeat nothing that could be a
// pasted value.
func parsePair(flag, arg string) (manifest.Pair, error) {
	dest, source, cut := strings.Cut(arg, "=")
	if !cut {
		source = dest
	}
	if err := manifest.ValidEnvKey(dest); err != nil {
		return manifest.Pair{}, usageError("%s: the name before \"=\" must be an identifier", flag)
	}
	if err := manifest.ValidName(source); err != nil {
		return manifest.Pair{}, usageError("%s %s: the name after \"=\": %w", flag, grants.DisplaySource(dest), err)
	}
	return manifest.Pair{Destination: dest, Source: source}, nil
}

// parsePairs reads the values of a repeatable flag. The same destination twice
// is fine if it is the same pair.
func parsePairs(flag string, args []string) ([]manifest.Pair, error) {
	seen := map[string]string{}
	for _, arg := range args {
		p, err := parsePair(flag, arg)
		if err != nil {
			return nil, err
		}
		if s, ok := seen[p.Destination]; ok && s != p.Source {
			return nil, usageError("%s names %s twice with different sources", flag, grants.DisplaySource(p.Destination))
		}
		seen[p.Destination] = p.Source
	}
	out := make([]manifest.Pair, 0, len(seen))
	for _, d := range slices.Sorted(maps.Keys(seen)) {
		out = append(out, manifest.Pair{Destination: d, Source: seen[d]})
	}
	return out, nil
}

// withGrants adds the operator's pairs to the configured set. For a destination
// that the configuration grants from another source, the operator's word counts,
// for this run.
func withGrants(set grants.Set, pairs []manifest.Pair) grants.Set {
	set = set.Clone()
	for _, p := range pairs {
		if set.ProcessEnvironmentBindings == nil {
			set.ProcessEnvironmentBindings = map[string]string{}
		}
		set.ProcessEnvironmentBindings[p.Destination] = p.Source
		if p.Source != p.Destination {
			set.AllowedProcessEnvironmentKeys = slices.DeleteFunc(set.AllowedProcessEnvironmentKeys,
				func(k string) bool { return k == p.Destination })
		}
	}
	return set
}

// notSet is the error for a variable of our own environment.
func notSet(source string) error {
	shown := grants.DisplaySource(source)
	return &grants.Error{Kind: grants.KindNotSet, Source: shown,
		Remedy: fmt.Sprintf("set %s in sbxhost's own environment", shown)}
}

func redactOptions(c config.Redact) redact.Options {
	return redact.Options{MinLen: c.MinLength, Idle: c.Idle}
}

// environNames lists the names in the process environment.
func environNames() []string {
	var out []string
	for _, kv := range os.Environ() {
		if name, _, ok := strings.Cut(kv, "="); ok && name != "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

package config

import (
	"maps"
	"regexp"
	"slices"

	"github.com/sbxhost/sbxhost/grants"
)

// pluginName is what a plugin's manifest may be named.
var pluginName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// validatePlugins checks the plugins section, in the order of the names.
func (c Config) validatePlugins(fail func(pointer, format string, args ...any) error) error {
	for _, name := range slices.Sorted(maps.Keys(c.Plugins)) {
		p, at := c.Plugins[name], "/plugins/"+escape(name)
		switch {
		case !pluginName.MatchString(name):
			return fail(at, "a plugin's name is 1 to 63 lower-case letters, digits, dots, dashes or underscores")
		case p.Path == "":
			return fail(at, "must say where the plugin is: path: %s.wasm", name)
		}
		for _, cred := range slices.Sorted(maps.Keys(p.Credentials)) {
			s, at := p.Credentials[cred], at+"/credentials/"+escape(cred)
			switch {
			case s.Type != SourceProcessEnv:
				return fail(at+"/type", "must be %s", SourceProcessEnv)
			case s.Name == "":
				return fail(at, "must name a variable of sbxhost's environment: {type: %s, name: NAME}", SourceProcessEnv)
			case grants.DisplaySource(s.Name) != s.Name:
				// It may be a pasted value.
				return fail(at+"/name", "must be the name of a variable, never a value")
			}
		}
		for _, origin := range slices.Sorted(maps.Keys(p.Origins)) {
			if p.Origins[origin].URL == "" {
				return fail(at+"/origins/"+escape(origin), "must have a url")
			}
		}
	}
	return nil
}

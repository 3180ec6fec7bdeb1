package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/plugin"
)

// pluginChecks says of each configured plugin whether it would load, what it may
// be given and who would see that, and whether its credentials' sources are set.
// It runs none of them and reads no value.
func pluginChecks(ctx context.Context, cfg config.Loaded) []check {
	if len(cfg.Plugins) == 0 {
		return nil
	}
	list, err := listPlugins(cfg, lockPath(cfg, ""))
	if err != nil {
		return []check{{"plugins", statusFail, err.Error(), []string{"approve the plugins again: sbxhost plugin approve"}}}
	}
	var out []check
	for _, p := range list {
		if p.Configured != "" {
			out = append(out, pluginCheck(ctx, cfg, p))
		}
	}
	return out
}

func pluginCheck(ctx context.Context, cfg config.Loaded, p listedPlugin) check {
	c := check{Name: "plugin " + p.Name, Status: statusFail, Detail: p.Status}
	if p.Detail != "" {
		c.Detail += ": " + p.Detail
	}
	if slices.ContainsFunc(builtins(), func(b builtin) bool { return b.name == p.Name }) {
		c.Detail, c.Fix = "has the name of a built-in provider, which wins", []string{"rename the plugin"}
		return c
	}
	switch p.Status {
	case "ready":
	case "unreadable":
		c.Fix = []string{"correct plugins." + p.Name + ".path, or build the plugin"}
		return c
	default:
		c.Fix = []string{"look at it and approve it: sbxhost plugin approve " + p.Configured}
		return c
	}
	set := cfg.Plugins[p.Name]
	module, err := readModule(set.Path)
	if err != nil {
		c.Detail = err.Error()
		return c
	}
	in, err := plugin.Inspect(module)
	if err != nil {
		c.Detail = err.Error()
		return c
	}
	c.Status, c.Detail = statusOK, "approved, "+in.Kind+", references: "+references(in, set.AllowPluginDriven)
	source := grants.ProcessEnvironment()
	for _, cred := range in.Credentials {
		src, ok := set.Credentials[cred]
		if !ok {
			c.Status = statusFail
			c.Detail += "; credential " + cred + " has no source"
			c.Fix = append(c.Fix, "set plugins."+p.Name+".credentials."+cred+": {type: process_env, name: NAME}")
			continue
		}
		shown := grants.DisplaySource(src.Name)
		if set, err := source.Present(ctx, src.Name); err != nil || !set {
			if c.Status == statusOK {
				c.Status = statusNote
			}
			c.Detail += "; credential " + cred + " from " + shown + ", which is not set"
			c.Fix = append(c.Fix, "set "+shown+" in sbxhost's environment before using the plugin")
		} else {
			c.Detail += "; credential " + cred + " from " + shown + ", which is set"
		}
	}
	for _, cred := range slices.Sorted(maps.Keys(set.Credentials)) {
		if !slices.Contains(in.Credentials, cred) {
			c.Status = statusNote
			c.Detail += "; the plugin names no credential " + cred
			c.Fix = append(c.Fix, "take plugins."+p.Name+".credentials."+cred+" out")
		}
	}
	return c
}

// references says what a plugin may be given and who would see it.
func references(in *plugin.Inspection, allowDriven bool) string {
	if len(in.ProtectedTransports) == 0 {
		return "never"
	}
	if in.Kind == "plugin-driven" && !allowDriven {
		return "no, for it is plugin-driven and allowPluginDriven is not set"
	}
	var parts []string
	for _, t := range in.Description.Transports {
		parts = append(parts, "by "+string(t.Transport)+" ("+t.Exposure+")")
	}
	return strings.Join(parts, ", ")
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// compileTime bounds the compilation of a plugin: somebody waits for it, and can
// interrupt it.
const compileTime = 10 * time.Minute

// loadPlugin loads a configured plugin. It is freed when the invocation ends.
func (a *app) loadPlugin(ctx context.Context, cfg config.Loaded, name string) (*plugin.Plugin, error) {
	pc, err := pluginConfig(ctx, cfg, name, a.logger)
	if err != nil {
		return nil, err
	}
	rt, err := plugin.NewRuntime(ctx, plugin.RuntimeConfig{CacheDir: a.pluginCache(cfg), CompileTimeout: compileTime})
	if err != nil {
		return nil, fmt.Errorf("start the plugin runtime: %w", err)
	}
	p, err := plugin.Load(ctx, rt, pc)
	if err != nil {
		_ = rt.Close() // nothing was loaded
		return nil, err
	}
	a.atExit = append(a.atExit, func() {
		_ = p.Close() // the process ends
		_ = rt.Close()
	})
	return p, nil
}

// pluginCache is where compiled plugins are kept, "" when there is no place.
func (a *app) pluginCache(cfg config.Loaded) string {
	if cfg.PluginsCache != "" {
		return cfg.PluginsCache
	}
	if d := a.getenv("XDG_CACHE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "sbxhost", "plugins")
	}
	if home := a.getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".cache", "sbxhost", "plugins")
	}
	return ""
}

// pluginConfig reads what a configured plugin needs: its file, the approvals and
// its credentials.
func pluginConfig(ctx context.Context, cfg config.Loaded, name string, log *slog.Logger) (plugin.Config, error) {
	c := cfg.Plugins[name]
	fail := func(code provider.Code, message, remedy string, err error) error {
		return &provider.Error{Code: code, Op: "load plugin", Subject: name, Message: message, Remedy: remedy, Applied: provider.AppliedNo, Err: err}
	}
	module, err := readModule(c.Path)
	if err != nil {
		return plugin.Config{}, fail(provider.NotFound, "its file cannot be read", "correct plugins."+name+".path in the configuration", err)
	}
	path := lockPath(cfg, "")
	lock, err := plugin.ReadLock(path)
	if err != nil {
		return plugin.Config{}, err
	}
	if in, err := plugin.Inspect(module); err != nil {
		return plugin.Config{}, err
	} else if in.Name != name {
		return plugin.Config{}, fail(provider.InvalidArgument, fmt.Sprintf("the file holds the plugin %q", clean(in.Name)), "configure it under its own name", nil)
	}
	out := plugin.Config{
		Module: module, Lock: lock, Settings: c.Settings, AllowPluginDriven: c.AllowPluginDriven, Logger: log,
		Credentials: map[string]secret.Value{}, Origins: map[string]plugin.Origin{},
	}
	for n, o := range c.Origins {
		out.Origins[n] = plugin.Origin{URL: o.URL, AllowPrivate: o.AllowPrivate}
	}
	source := grants.ProcessEnvironment()
	for _, cred := range slices.Sorted(maps.Keys(c.Credentials)) {
		src := c.Credentials[cred].Name
		v, set, err := source.Lookup(ctx, src)
		switch {
		case err != nil:
			return plugin.Config{}, fail(provider.Unavailable, "credential "+cred+" cannot be read from "+src, "", err)
		case !set:
			return plugin.Config{}, fail(provider.NotGranted, "credential "+cred+": the variable "+src+" is not set", "set "+src+" in sbxhost's environment", nil)
		}
		out.Credentials[cred] = v
	}
	return out, nil
}

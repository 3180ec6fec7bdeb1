package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/provider"
)

// builtin is a provider that the command knows. All of them are trusted: they
// are part of this module.
type builtin struct {
	name string
	make func(context.Context, config.Config, providerFlags) (provider.Provider, error)
}

// known is a provider that --provider can name: a built-in, or a configured
// plugin, whose make is nil.
type known struct{ builtin }

func (k known) plugin() bool { return k.make == nil }

// providerFlags are the command line's wishes about providers.
type providerFlags struct {
	unsafeLocal bool
}

// builtins lists the providers, the default first.
func builtins() []builtin {
	return []builtin{
		{"local", func(_ context.Context, c config.Config, f providerFlags) (provider.Provider, error) {
			return local.New(localOptions(c.Local, f))
		}},
		{"docker", func(ctx context.Context, c config.Config, _ providerFlags) (provider.Provider, error) {
			return docker.New(ctx, dockerOptions(c.Docker))
		}},
		{"daytona", func(ctx context.Context, c config.Config, _ providerFlags) (provider.Provider, error) {
			return newDaytona(ctx, c.Daytona)
		}},
	}
}

// patience bounds how long an engine, or a service that doctor asks, may take to
// answer for the first time. On a busy machine that is seconds; who waits can
// interrupt it.
const patience = 30 * time.Second

func dockerOptions(c config.Docker) docker.Options {
	return docker.Options{
		Host:           c.Host,
		Context:        c.Context,
		Image:          c.Image,
		Pull:           docker.PullPolicy(c.Pull),
		PIDs:           c.PIDs,
		ShimPath:       c.ShimPath,
		AllowEngineEnv: c.AllowEngineEnv,
		ConnectTimeout: patience,
	}
}

func localOptions(c config.Local, f providerFlags) local.Options {
	return local.Options{
		StateDir:      c.StateDir,
		AllowNetwork:  c.AllowNetwork,
		InheritEnv:    c.InheritEnv,
		ReadOnlyPaths: c.ReadOnlyPaths,
		PIDs:          c.PIDs,
		Unsafe:        c.Unsafe || f.unsafeLocal,
	}
}

// defaultProvider is what --provider auto and no --provider mean.
const defaultProvider = "local"

// providerNames lists the built-ins, and then the configured plugins.
func providerNames(c config.Config) []string {
	var names []string
	for _, b := range builtins() {
		names = append(names, b.name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Plugins)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// findProvider resolves a --provider flag. A plugin cannot take a built-in's
// name.
func findProvider(c config.Config, flag string) (known, error) {
	if flag == "" || flag == "auto" {
		flag = defaultProvider
	}
	for _, b := range builtins() {
		if b.name == flag {
			return known{b}, nil
		}
	}
	if _, ok := c.Plugins[flag]; ok {
		return known{builtin{name: flag}}, nil
	}
	return known{}, usageError("unknown provider; known: %s; plugins go under plugins in the configuration", strings.Join(providerNames(c), ", "))
}

func (a *app) completeProviders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	cfg, err := a.loadConfig()
	if err != nil {
		cfg = config.Loaded{} // the built-ins still are there
	}
	return append(providerNames(cfg.Config), "auto"), cobra.ShellCompDirectiveNoFileComp
}

func completeTransports(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"auto", "exec", "create"}, cobra.ShellCompDirectiveNoFileComp
}

func parseTransport(flag string) (host.Transport, error) {
	switch t := host.Transport(flag); t {
	case "", host.TransportAuto, host.TransportExec, host.TransportCreate:
		return t, nil
	}
	return "", usageError("--transport must be auto, exec or create")
}

// openProvider makes a provider, and returns how a host gets to know it.
func (a *app) openProvider(ctx context.Context, cfg config.Loaded, name string, f providerFlags) (provider.Provider, func(*host.Host) error, error) {
	k, err := findProvider(cfg.Config, name)
	if err != nil {
		return nil, nil, err
	}
	if k.plugin() {
		loaded, err := a.loadPlugin(ctx, cfg, k.name)
		if err != nil {
			return nil, nil, err
		}
		return loaded, func(h *host.Host) error { return h.RegisterPlugin(k.name, loaded) }, nil
	}
	p, err := k.make(ctx, cfg.Config, f)
	if err != nil {
		return nil, nil, err
	}
	return p, func(h *host.Host) error { return h.RegisterTrusted(k.name, p) }, nil
}

// newHost makes a host with the configuration in force and one provider. led may
// be nil, for a host that makes nothing.
func (a *app) newHost(ctx context.Context, cfg config.Loaded, name string, f providerFlags, led *runLedger) (*host.Host, provider.Provider, error) {
	p, register, err := a.openProvider(ctx, cfg, name, f)
	if err != nil {
		return nil, nil, err
	}
	opts := host.Options{
		Grants:        cfg.Grants(),
		Redact:        redactOptions(cfg.Redact),
		Logger:        a.logger,
		HostPathRoots: cfg.HostPathRoots,
		Limits:        hostLimits(cfg.Limits),
	}
	if led != nil {
		opts.ID, opts.Ledger = led.id, led
	}
	h, err := host.New(opts)
	if err != nil {
		return nil, nil, err
	}
	if err := register(h); err != nil {
		return nil, nil, fmt.Errorf("register %s: %w", name, err)
	}
	return h, p, nil
}

func hostLimits(c config.Limits) host.Limits {
	return host.Limits{
		Live:           c.Live,
		Pending:        c.Pending,
		Execs:          c.Execs,
		RequestSecrets: c.RequestSecrets,
		ExecTimeout:    c.ExecTimeout,
		Output:         c.MaxOutput,
	}
}

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/provider"
)

// builtin is a provider that the command knows. All of them are trusted: they
// are part of this module.
type builtin struct {
	name string
	make func(config.Config, providerFlags) (provider.Provider, error)
}

// providerFlags are the command line's wishes about providers.
type providerFlags struct {
	unsafeLocal bool
}

// builtins lists the providers, the default first.
func builtins() []builtin {
	return []builtin{
		{"local", func(c config.Config, f providerFlags) (provider.Provider, error) {
			return local.New(localOptions(c.Local, f))
		}},
	}
}

func localOptions(c config.Local, f providerFlags) local.Options {
	return local.Options{
		StateDir:     c.StateDir,
		AllowNetwork: c.AllowNetwork,
		InheritEnv:   c.InheritEnv,
		Unsafe:       c.Unsafe || f.unsafeLocal,
	}
}

// defaultProvider is what --provider auto and no --provider mean.
const defaultProvider = "local"

func providerNames() []string {
	var names []string
	for _, b := range builtins() {
		names = append(names, b.name)
	}
	return names
}

// findProvider resolves a --provider flag.
func findProvider(flag string) (builtin, error) {
	if flag == "" || flag == "auto" {
		flag = defaultProvider
	}
	for _, b := range builtins() {
		if b.name == flag {
			return b, nil
		}
	}
	return builtin{}, usageError("unknown provider; known: %s", strings.Join(providerNames(), ", "))
}

func completeProviders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return append(providerNames(), "auto"), cobra.ShellCompDirectiveNoFileComp
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

// newHost makes a host with the configuration in force and one provider.
func (a *app) newHost(cfg config.Loaded, name string, f providerFlags) (*host.Host, provider.Provider, error) {
	b, err := findProvider(name)
	if err != nil {
		return nil, nil, err
	}
	p, err := b.make(cfg.Config, f)
	if err != nil {
		return nil, nil, err
	}
	h, err := host.New(host.Options{
		Grants:        cfg.Grants(),
		Redact:        redactOptions(cfg.Redact),
		Logger:        a.logger,
		HostPathRoots: cfg.HostPathRoots,
		Limits:        hostLimits(cfg.Limits),
	})
	if err != nil {
		return nil, nil, err
	}
	if err := h.RegisterTrusted(b.name, p); err != nil {
		return nil, nil, fmt.Errorf("register %s: %w", b.name, err)
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

package plugintest

import (
	"context"

	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/provider"
)

// Loaded is a plugin as the kit uses it.
type Loaded interface {
	provider.Provider
	Close() error
}

// RunOnHost is Run with another host in the place of plugin.Load.
func RunOnHost(ctx context.Context, o Options, load func(context.Context, *plugin.Runtime, plugin.Config) (Loaded, error)) (*Report, error) {
	return runWith(ctx, o, func(ctx context.Context, rt *plugin.Runtime, cfg plugin.Config) (loaded, error) {
		return load(ctx, rt, cfg)
	})
}

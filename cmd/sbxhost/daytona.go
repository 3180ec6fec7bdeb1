package main

import (
	"context"

	"github.com/sbxhost/sbxhost/builtin/daytona"
	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// newDaytona makes the daytona provider with the key that the configuration
// names.
func newDaytona(ctx context.Context, c config.Daytona) (*daytona.Provider, error) {
	key, err := daytonaKey(ctx, c)
	if err != nil {
		return nil, err
	}
	return daytona.New(daytonaOptions(c, key))
}

func daytonaOptions(c config.Daytona, key secret.Value) daytona.Options {
	return daytona.Options{
		APIURL:         c.APIURL,
		APIKey:         key,
		OrganizationID: c.OrganizationID,
		Target:         c.Target,
		ToolboxURL:     c.ToolboxURL,
		Snapshot:       c.Snapshot,
		AutoStop:       c.AutoStop,
	}
}

// daytonaKey reads the API key.
func daytonaKey(ctx context.Context, c config.Daytona) (secret.Value, error) {
	name := c.KeyName()
	v, set, err := grants.ProcessEnvironment().Lookup(ctx, name)
	switch {
	case err != nil:
		return secret.Value{}, &provider.Error{Code: provider.Unavailable, Op: "new", Provider: "daytona", Applied: provider.AppliedNo,
			Message: "the API key cannot be read from " + name, Err: err}
	case !set || v.Len() == 0:
		return secret.Value{}, &provider.Error{Code: provider.NotGranted, Op: "new", Provider: "daytona", Applied: provider.AppliedNo,
			Message: "there is no API key: the variable " + name + " is not set",
			Remedy:  "set " + name + " in sbxhost's environment, or name another variable with " + daytona.SettingAPIKey}
	}
	return v, nil
}

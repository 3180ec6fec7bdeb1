package main

import (
	"context"
	"errors"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/provider"
)

// dockerCheck connects to the engine. One that is not there is a note: nobody has
// to use it. One that the configuration names and that cannot be used is a failure.
func dockerCheck(ctx context.Context, c config.Config) check {
	opts := dockerOptions(c.Docker)
	out := check{Name: "docker provider", Status: statusOK}
	p, err := docker.New(ctx, opts)
	if err != nil {
		out.Status = statusNote
		if c.Docker.Host != "" || c.Docker.Context != "" {
			out.Status = statusFail
		}
		var pe *provider.Error
		if errors.As(err, &pe) {
			out.Detail = pe.Message
			if pe.Subject != "" {
				out.Detail += ": " + pe.Subject
			}
			if pe.Remedy != "" {
				out.Fix = []string{pe.Remedy}
			}
			return out
		}
		out.Detail = err.Error()
		return out
	}
	d := p.Describe()
	out.Detail = "engine " + p.EngineVersion() + " at " + p.Endpoint()
	if len(d.Transports) > 0 {
		out.Detail += ", transport " + d.Transports[0].String()
	}
	if len(d.Transports) > 0 && d.Transports[0].Detail != "supervisor" {
		out.Status, out.Fix = statusNote, []string{"set " + docker.SettingShimPath + " to a supervisor for the engine's architecture"}
	}
	return out
}

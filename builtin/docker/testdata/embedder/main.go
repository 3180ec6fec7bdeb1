// Command embedder is somebody's own program that uses the docker provider.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(ctx context.Context, engine, image string) error {
	p, err := docker.New(ctx, docker.Options{Host: engine, Pull: docker.PullNever})
	if err != nil {
		return err
	}
	h, err := host.New(host.Options{Grants: grants.Set{ProcessEnvironmentBindings: map[string]string{"TOKEN": "HOST_TOKEN"}}})
	if err != nil {
		return err
	}
	defer func() { _ = h.Close(ctx) }()
	if err := h.RegisterTrusted("docker", p); err != nil {
		return err
	}
	m := manifest.New()
	m.Image, m.Network = image, manifest.NetworkNone
	m.Environment = map[string]manifest.Entry{"TOKEN": {Reference: &manifest.Reference{Name: "HOST_TOKEN"}}}
	s, err := h.Create(ctx, host.CreateRequest{Provider: "docker", Manifest: m})
	if err != nil {
		return err
	}
	r, err := s.Exec(ctx, host.ExecRequest{Shell: `echo "$TOKEN ${#TOKEN}"`})
	if err != nil {
		return err
	}
	fmt.Printf("cgo=%v %s", withCgo, r.Stdout)
	return s.Close(ctx)
}

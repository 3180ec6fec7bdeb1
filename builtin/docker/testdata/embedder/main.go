// Command embedder is somebody's own program that uses the docker and the local
// provider.
//
//	embedder docker ENGINE IMAGE
//	embedder local STATE
//	embedder again
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/builtin/docker/testdata/embedder/aaa"
	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

func init() { aaa.Note("main") }

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	m := manifest.New()
	m.Network = manifest.NetworkNone
	m.Environment = map[string]manifest.Entry{"TOKEN": {Reference: &manifest.Reference{Name: "HOST_TOKEN"}}}
	switch args[0] {
	case "docker":
		p, err := docker.New(ctx, docker.Options{Host: args[1], Pull: docker.PullNever, ConnectTimeout: time.Minute})
		if err != nil {
			return err
		}
		m.Image = args[2]
		return use(ctx, "docker", p, m)
	case "local":
		p, err := local.New(local.Options{StateDir: args[1]})
		if err != nil {
			return err
		}
		if err := use(ctx, "local", p, m); err != nil {
			return err
		}
		fmt.Printf("level: %s\n", p.Level())
		for _, why := range p.Reasons() {
			fmt.Printf("not %s\n", why)
		}
		for _, end := range p.Describe().OpenEnds {
			fmt.Printf("open: %s\n", end)
		}
	case "again": // what a program would do that runs itself in the sandbox
		return exec.CommandContext(ctx, "/proc/self/exe", "nothing").Run()
	}
	return nil
}

// use runs two commands in a sandbox and prints what the first one said.
func use(ctx context.Context, name string, p provider.Provider, m manifest.Manifest) error {
	h, err := host.New(host.Options{Grants: grants.Set{ProcessEnvironmentBindings: map[string]string{"TOKEN": "HOST_TOKEN"}}})
	if err != nil {
		return err
	}
	defer func() { _ = h.Close(ctx) }()
	if err := h.RegisterTrusted(name, p); err != nil {
		return err
	}
	s, err := h.Create(ctx, host.CreateRequest{Provider: name, Manifest: m})
	if err != nil {
		return err
	}
	r, err := s.Exec(ctx, host.ExecRequest{Shell: `echo "$TOKEN ${#TOKEN}"`})
	if err != nil {
		return err
	}
	fmt.Printf("cgo=%v %s", withCgo, r.Stdout)
	if _, err := s.Exec(ctx, host.ExecRequest{Args: []string{"true"}}); err != nil {
		return err
	}
	return s.Close(ctx)
}

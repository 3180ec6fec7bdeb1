package docker

import (
	"bufio"
	"context"
	"io"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/client"
)

// Engine is the interface to the engine, for tests that inject faults.
type Engine = engine

// NewWithEngine returns a Provider on an engine of the test's.
func NewWithEngine(ctx context.Context, e Engine, opts Options) (*Provider, error) {
	return newProvider(ctx, e, opts)
}

// SetPutPatience sets how long another process may take to put the supervisor there.
func SetPutPatience(p *Provider, d time.Duration) { p.putPatience = d }

// SetLatePatience sets how long a create that was given up waits for the engine.
func SetLatePatience(p *Provider, d time.Duration) { p.latePatience = d }

// SetKillPatience sets how long a kill waits for the command's supervisor.
func SetKillPatience(p *Provider, d time.Duration) { p.killPatience = d }

// SetRootPatience sets how long is waited for a container's PID 1.
func SetRootPatience(p *Provider, d time.Duration) { p.rootPatience = d }

// Connect returns the client that New would use.
func Connect(opts Options) (*client.Client, error) { return connect(opts) }

// Demultiplex reads standard output from an engine's stream.
func Demultiplex(r io.Reader) io.Reader {
	return &hijacked{resp: types.HijackedResponse{Reader: bufio.NewReader(r)}}
}

// Explanation is what a stream of Demultiplex said besides.
func Explanation(r io.Reader) (stderr, began string) { return r.(*hijacked).explanation() }

// SessionOf is the session of a sandbox's name.
func SessionOf(name string) string { return sessionOf(name) }

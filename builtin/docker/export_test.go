package docker

import (
	"context"

	"github.com/docker/docker/client"
)

// Engine is the interface to the engine, for tests that inject faults.
type Engine = engine

// NewWithEngine returns a Provider on an engine of the test's.
func NewWithEngine(ctx context.Context, e Engine, opts Options) (*Provider, error) {
	return newProvider(ctx, e, opts)
}

// Connect returns the client that New would use.
func Connect(opts Options) (*client.Client, error) { return connect(opts) }

package plugin

import (
	"context"
	"path/filepath"
	"time"

	"github.com/sbxhost/sbxhost/plugin/internal/cache"
	"github.com/sbxhost/sbxhost/plugin/internal/engine"
)

// RuntimeConfig configures a Runtime. The zero value compiles in memory only.
type RuntimeConfig struct {
	// CacheDir keeps compiled code between processes, authenticated with a key
	// beside it (CacheDir + ".key"). Empty: no disk cache.
	CacheDir string
	// MaxInstances bounds the live instances of all plugins. Default 256.
	MaxInstances int
	// CompileTimeout bounds the compilation of one plugin, which takes longer where
	// the machine is slow or busy. Default 1 minute.
	CompileTimeout time.Duration
	// Interpreter runs plugins without compiling them, for systems that the
	// compiler does not support.
	Interpreter bool
}

// Runtime holds what plugins share: the compiler, its cache and the bound on
// instances. It is safe for concurrent use. Close it after the plugins.
type Runtime struct {
	engine *engine.Engine
}

// NewRuntime makes a Runtime.
func NewRuntime(ctx context.Context, cfg RuntimeConfig) (*Runtime, error) {
	ec := engine.Config{HostModules: []engine.HostModule{engine.Preview1(), hostModule()}, MaxInstances: cfg.MaxInstances,
		CompileTimeout: cfg.CompileTimeout, Interpreter: cfg.Interpreter}
	if cfg.CacheDir != "" {
		dir, err := filepath.Abs(cfg.CacheDir)
		if err != nil {
			return nil, err
		}
		if ec.Cache, err = cache.Open(cache.Options{Dir: dir, KeyFile: dir + ".key"}); err != nil {
			return nil, err
		}
	}
	e, err := engine.New(ctx, ec)
	if err != nil {
		return nil, err
	}
	return &Runtime{engine: e}, nil
}

// Close frees the compiler and every plugin's instances.
func (r *Runtime) Close() error { return r.engine.Close() }

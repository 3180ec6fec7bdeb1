package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"

	"github.com/sbxhost/sbxhost/internal/shim/shimbin"
	"github.com/sbxhost/sbxhost/provider"
)

// Provider makes sandboxes on one engine. It is safe for concurrent use and has
// nothing to close.
type Provider struct {
	e        engine
	opts     Options
	version  string // of the engine
	arch     string // of the engine, in Go's spelling
	info     system.Info
	moby     bool   // the engine is Docker's own, and not one that speaks its API
	local    bool   // the engine is on this machine
	shim     []byte // nil: none fits, the engine's own exec is used
	shimSum  string
	describe provider.Description

	supervisor supervisor
	networks   networks
	places     places
	sessions   locks // one create or destroy of a session at a time

	// The constants of these names; tests have others.
	putPatience, latePatience, killPatience, rootPatience time.Duration

	mu        sync.Mutex
	sandboxes map[string]*sandbox // by container id
}

// Format implements fmt.Formatter: its name, whatever the verb. Printing
// reads none of the fields that change.
func (p *Provider) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "docker.Provider["+p.describe.Name+"]")
}

// New connects to the engine and returns a Provider, or a *provider.Error that
// says what is wrong and what to do about it: Unavailable for an engine that does
// not answer, PermissionDenied for a socket that this user may not use,
// Unsupported for an engine that cannot be used. ctx covers the connecting.
func New(ctx context.Context, opts Options) (*Provider, error) {
	c, err := connect(opts)
	if err != nil {
		return nil, err
	}
	p, err := newProvider(ctx, c, opts)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return p, nil
}

func newProvider(ctx context.Context, e engine, opts Options) (*Provider, error) {
	if opts.PIDs <= 0 {
		opts.PIDs = 512
	}
	if opts.ConnectTimeout <= 0 {
		opts.ConnectTimeout = 10 * time.Second
	}
	switch opts.Pull {
	case "":
		opts.Pull = PullMissing
	case PullMissing, PullAlways, PullNever:
	default:
		return nil, problem(provider.InvalidArgument, "new", "", "the pull policy is not one of missing, always, never")
	}
	p := &Provider{e: e, opts: opts, supervisor: supervisor{turn: make(chan struct{}, 1)}, sandboxes: map[string]*sandbox{},
		putPatience: putPatience, latePatience: latePatience, killPatience: killPatience, rootPatience: rootPatience}
	p.sessions.init()
	p.networks.init()
	host := e.DaemonHost()
	p.local = strings.HasPrefix(host, "unix://") || strings.HasPrefix(host, "npipe://")

	timed, cancel := context.WithTimeout(ctx, opts.ConnectTimeout)
	defer cancel()
	v, err := e.ServerVersion(timed)
	if err != nil {
		if timed.Err() != nil && ctx.Err() == nil {
			return nil, problem(provider.Unavailable, "connect", host, "the engine does not answer within "+opts.ConnectTimeout.String()).
				remedy("see whether it is overloaded or stopped")
		}
		return nil, engineProblem(ctx, "connect", host, err, provider.AppliedNo)
	}
	p.version, p.arch = v.Version, v.Arch
	p.moby = slices.ContainsFunc(v.Components, func(c types.ComponentVersion) bool { return c.Name == "Engine" })
	if v.Os != "linux" {
		return nil, problem(provider.Unsupported, "connect", host, "the engine runs "+v.Os+" containers").remedy("switch it to Linux containers")
	}
	if p.info, err = e.Info(timed); err != nil {
		return nil, engineProblem(ctx, "connect", host, err, provider.AppliedNo)
	}
	if err := p.loadShim(host); err != nil {
		return nil, err
	}
	p.describe = p.description()
	return p, nil
}

// loadShim finds the supervisor for the engine's architecture.
func (p *Provider) loadShim(host string) error {
	if p.opts.ShimPath != "" {
		b, err := os.ReadFile(p.opts.ShimPath)
		if err != nil {
			return problem(provider.FailedPrecondition, "new", p.opts.ShimPath, "the supervisor cannot be read").cause(err).remedy("correct " + SettingShimPath)
		}
		p.shim = b
	} else if b, ok := shimbin.Linux(p.arch); ok {
		p.shim = b
	} else if !p.opts.AllowEngineEnv {
		return problem(provider.Unsupported, "connect", host, "there is no supervisor for the engine's architecture "+p.arch).
			remedy("build one and set " + SettingShimPath + "; or set " + SettingEngineEnv + " and do without: values then pass through the engine, and commands are killed as far as possible")
	}
	if p.shim != nil {
		sum := sha256.Sum256(p.shim)
		p.shimSum = hex.EncodeToString(sum[:])
	}
	return nil
}

// EngineVersion returns the engine's version, as it said when New connected.
func (p *Provider) EngineVersion() string { return p.version }

// Place tells this engine from others: by its id, whatever address it is reached at;
// by the address where the id may be invented per answer, as Podman's is, or missing.
func (p *Provider) Place() string {
	if !p.moby || p.info.ID == "" {
		return "address " + p.e.DaemonHost()
	}
	return p.info.ID
}

// Endpoint returns the engine's address.
func (p *Provider) Endpoint() string { return p.e.DaemonHost() }

// Describe implements provider.Provider.
func (p *Provider) Describe() provider.Description {
	d := p.describe
	d.OpenEnds = append([]string(nil), d.OpenEnds...)
	d.Transports = append([]provider.TransportInfo(nil), d.Transports...)
	return d
}

// locks holds a lock per name, taken with a context.
type locks struct {
	mu    sync.Mutex
	taken map[string]chan struct{}
}

func (l *locks) init() { l.taken = map[string]chan struct{}{} }

func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		busy := l.taken[name]
		if busy == nil {
			c := make(chan struct{})
			l.taken[name] = c
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.taken, name)
				l.mu.Unlock()
				close(c)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

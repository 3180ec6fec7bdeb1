// Package plugin runs providers that nobody trusts: WebAssembly modules that
// decide when to call which approved request, and never see, nor can obtain, a
// value.
//
// A plugin declares in its manifest ([Manifest], a custom section of the module)
// what it may do; an operator approves exactly that ([Lock]). [Load] checks both
// without running anything of the plugin; the first operation compiles and
// initialises it. [Plugin] implements provider.Provider.
//
// # Kinds
//
// A sealed plugin's requests that create a sandbox, run a command or move a file
// are written by the host, and their output goes past the plugin. A
// plugin-driven one builds bodies itself and could obtain a value by what it
// runs; references are refused unless [Config].AllowPluginDriven is set. Without
// a protected transport in the manifest they are refused always, before any
// plugin code has run.
//
// # Errors
//
// Every error is a *provider.Error. Where the plugin itself failed its cause is
// one of the types in errors.go.
package plugin

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
	"github.com/sbxhost/sbxhost/plugin/internal/engine"
	"github.com/sbxhost/sbxhost/plugin/internal/hook"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// Origin is what the operator says about one of the plugin's origins.
type Origin struct {
	// URL sets a configured origin, or replaces a fixed one.
	URL string
	// AllowPrivate permits loopback, private and link-local addresses, and plain
	// HTTP to them.
	AllowPrivate bool
}

// Config says what to load and what it is given. The zero value of each optional
// field is the safe one.
type Config struct {
	// Module is the .wasm file's content.
	Module []byte
	// Lock holds the approvals. A module whose digest and manifest are not
	// approved in it is refused.
	Lock *Lock
	// Credentials are the operator's secrets by their name in the manifest. They
	// are put into headers of fixed and configured origins only.
	Credentials map[string]secret.Value
	// Settings are the manifest's config values.
	Settings map[string]string
	// Origins are settings by origin name.
	Origins map[string]Origin
	// AllowPluginDriven lets a plugin-driven plugin be given references. It
	// could obtain their values.
	AllowPluginDriven bool
	// Logger receives the plugin's log lines, redacted. nil discards them.
	Logger *slog.Logger
	// TLS and Resolve replace certificate roots and name resolution, for tests
	// and private networks. nil is the system's.
	TLS     *tls.Config
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Trace, when set, is called with a copy of every byte sequence the plugin
	// could see. It exists for conformance tests.
	Trace func(what string, data []byte)
}

// Plugin is a loaded provider plugin. It is safe for concurrent use. Close it.
type Plugin struct {
	rt      *Runtime
	module  *wasmfile.Module
	m       *spec.Manifest
	cfg     Config
	broker  *egress.Broker
	log     *slog.Logger
	desc    provider.Description
	hooks   *hook.Hooks
	loading sync.Mutex
	pool    *engine.Pool
	closed  bool

	mu       sync.Mutex
	inCreate map[string]chan struct{}   // by session id
	sessions map[string][]*sandboxState // by session id, made or opened here; two while one replaces the other
	roots    map[string]string          // by session id: the root asked for
}

// Format implements fmt.Formatter: its name, whatever the verb. Printing
// reads none of the fields that change.
func (p *Plugin) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "plugin.Plugin["+p.desc.Name+"]")
}

// Load checks a module, its manifest, its approval and its configuration. None
// of the plugin's code runs. The error says everything that is wrong.
func Load(ctx context.Context, rt *Runtime, cfg Config) (*Plugin, error) {
	const op = "load plugin"
	mod, m, err := inspectModule(cfg.Module)
	if err != nil {
		return nil, err
	}
	if cfg.Lock == nil {
		return nil, &provider.Error{Code: provider.PermissionDenied, Op: op, Subject: m.Name, Message: "no plugin is approved", Remedy: "inspect it and run sbxhost plugin approve", Applied: provider.AppliedNo}
	}
	if err := cfg.Lock.check(m.Name, mod.Digest(), manifestSection(cfg.Module)); err != nil {
		return nil, err
	}
	if err := checkSettings(m, cfg.Settings); err != nil {
		return nil, err
	}
	origins := make(map[string]egress.OriginSetting, len(cfg.Origins))
	for k, o := range cfg.Origins {
		origins[k] = egress.OriginSetting(o)
	}
	hooks := hook.From(ctx)
	broker, err := egress.New(egress.Config{Captured: hooks.Captured, Shown: hooks.Shown, Manifest: m, Credentials: maps.Clone(cfg.Credentials), Settings: maps.Clone(cfg.Settings), Origins: origins, Resolve: cfg.Resolve, TLS: cfg.TLS})
	if err != nil {
		return nil, &provider.Error{Code: provider.InvalidArgument, Op: op, Subject: m.Name, Message: err.Error(), Applied: provider.AppliedNo}
	}
	p := &Plugin{rt: rt, module: mod, m: m, cfg: cfg, broker: broker, log: cfg.Logger, hooks: hooks, inCreate: map[string]chan struct{}{}, sessions: map[string][]*sandboxState{}, roots: map[string]string{}}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.desc = describe(m, cfg.AllowPluginDriven)
	if err := provider.ValidateDescription(p.desc); err != nil {
		return nil, err
	}
	return p, nil
}

// checkSettings compares the operator's settings with what the manifest
// declares.
func checkSettings(m *spec.Manifest, settings map[string]string) error {
	bad := func(name, what string) error {
		return &provider.Error{Code: provider.InvalidArgument, Op: "load plugin", Subject: m.Name, Message: "setting " + name + " " + what, Applied: provider.AppliedNo}
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		f, ok := m.Config[name]
		v := settings[name]
		switch {
		case !ok:
			return bad(name, "is not one the plugin declares")
		case f.Type == "integer":
			if _, err := strconv.ParseInt(v, 10, 64); err != nil {
				return bad(name, "must be an integer")
			}
		case f.Type == "boolean" && v != "true" && v != "false":
			return bad(name, "must be true or false")
		case len(f.Enum) > 0 && !slices.Contains(f.Enum, v):
			return bad(name, fmt.Sprintf("must be one of %v", f.Enum))
		case f.MaxLength > 0 && len(v) > f.MaxLength:
			return bad(name, fmt.Sprintf("is longer than %d bytes", f.MaxLength))
		}
	}
	for name, f := range m.Config {
		if _, ok := settings[name]; f.Required && !ok {
			return bad(name, "is required; set settings."+name)
		}
	}
	return nil
}

// describe derives the provider's description from the manifest; the plugin has
// no say in it.
func describe(m *spec.Manifest, allowDriven bool) provider.Description {
	d := provider.Description{
		Name: m.Name, Version: m.Version, Isolation: "vendor", DefaultNetwork: "default", Survives: true,
		Exec: provider.ExecCapabilities{
			Stream: m.Exec.Stream, Stdin: provider.StdinMode(m.Exec.Stdin), TTY: m.Exec.TTY && m.Exec.Stdin == "live", Stderr: provider.StderrMode(m.Exec.Stderr),
			Kill: provider.KillMode(m.Exec.Kill), PartialOnTimeout: m.Exec.PartialOnTimeout, BackgroundSafe: m.Exec.BackgroundSafe,
			MaxTimeout: time.Duration(m.Exec.MaxTimeoutMillis) * time.Millisecond,
		},
	}
	if !m.Has("exec") {
		d.Exec = provider.ExecCapabilities{Stdin: provider.StdinNone, Stderr: provider.StderrSeparate, Kill: provider.KillNone}
	}
	d.Features = features(m)
	who := "the vendor's records, and whoever can read them"
	if m.Kind == spec.PluginDriven {
		d.OpenEnds = append(d.OpenEnds, "plugin-driven: the plugin builds requests itself and could obtain values by what it runs")
		who = "the plugin, if it wants to, and the vendor's records"
	}
	if m.Kind == spec.PluginDriven && !allowDriven {
		return d
	}
	if len(m.Protected.Exec) > 0 {
		d.Transports = append(d.Transports, provider.TransportInfo{Transport: provider.TransportExec, Detail: string(m.Kind), Exposure: "visible to the vendor's exec service; " + exposure(m)})
	}
	if len(m.Protected.Create) > 0 {
		d.Transports = append(d.Transports, provider.TransportInfo{Transport: provider.TransportCreate, Detail: string(m.Kind), Exposure: "visible in " + who})
	}
	return d
}

func exposure(m *spec.Manifest) string {
	if m.Kind == spec.PluginDriven {
		return "the plugin could obtain them by what it runs"
	}
	return "never to the plugin"
}

// features says how a manifest's wishes are honoured, from what the create route
// has slots for.
func features(m *spec.Manifest) provider.Features {
	has := map[string]bool{}
	driven := m.Kind == spec.PluginDriven
	for _, r := range m.Routes {
		if r.Role == spec.RoleCreate {
			for _, s := range r.Request.Slots {
				has[s.From] = true
			}
		}
		if r.Role == spec.RoleExec {
			for _, s := range r.Request.Slots {
				has[s.From] = true
			}
		}
	}
	support := func(slot string, miss provider.Support) provider.Support {
		if has[slot] || driven {
			return provider.SupportEnforced
		}
		return miss
	}
	return provider.Features{
		Image: support("image", provider.SupportNone), User: support("exec.user", provider.SupportNone),
		NetworkNone: support("network", provider.SupportNone), NetworkDefault: provider.SupportEnforced,
		Ports: portSupport(m), CPUs: support("cpus", provider.SupportNone), MemoryMiB: support("memoryMiB", provider.SupportNone),
		DiskMiB: support("diskMiB", provider.SupportUnenforced), TTL: support("ttlSeconds", provider.SupportUnenforced),
	}
}

func portSupport(m *spec.Manifest) provider.Support {
	if m.Has("port") {
		return provider.SupportEnforced
	}
	return provider.SupportNone
}

// Describe returns what the approved manifest and the operator's configuration
// make of the plugin. It runs none of its code.
func (p *Plugin) Describe() provider.Description {
	d := p.desc
	d.Transports, d.OpenEnds = slices.Clone(d.Transports), slices.Clone(d.OpenEnds)
	return d
}

// Close ends the plugin: running operations end, instances are freed.
func (p *Plugin) Close() error {
	p.loading.Lock()
	p.closed = true
	pool := p.pool
	p.loading.Unlock()
	if pool != nil {
		pool.Close()
	}
	p.broker.Close()
	return nil
}

// instances returns the pool, compiling and initialising the module when it is
// used for the first time.
func (p *Plugin) instances(ctx context.Context) (*engine.Pool, error) {
	p.loading.Lock()
	defer p.loading.Unlock()
	if p.closed {
		return nil, &engine.Closed{What: "plugin " + p.m.Name}
	}
	if p.pool != nil {
		return p.pool, nil
	}
	opts := engine.Options{
		Entry: abi.CallExport, TableElements: abi.DefaultTable, MemoryPages: abi.DefaultMemory / 65536, NoSnapshot: p.m.NoSnapshot,
		Timeout: abi.DefaultWallMillis * time.Millisecond, LogBytes: abi.MaxLogPerCall, Log: p.stdio,
		Warmup: rehearsals(), Fuel: p.hooks.Fuel,
	}
	if after := p.hooks.After; after != nil {
		opts.After = func(op int32, memory []byte, fuel int64) { after(abi.Op(op), memory, fuel) }
	}
	if p.m.Limits.MemoryMiB > 0 {
		opts.MemoryPages = uint32(p.m.Limits.MemoryMiB) * 16 //nolint:gosec // at most 1024 MiB, checked
	}
	if p.m.Limits.WallMs > 0 {
		opts.Timeout = time.Duration(p.m.Limits.WallMs) * time.Millisecond
		// Initialising has a bound of its own on computing; on a machine that is
		// very busy it may take as long as a call.
		opts.InitTimeout = max(opts.Timeout, abi.DefaultWallMillis*time.Millisecond)
	}
	if p.hooks.MemoryPages > 0 {
		opts.MemoryPages = p.hooks.MemoryPages
	}
	pool, err := p.rt.engine.Load(ctx, p.module, opts)
	if err != nil {
		return nil, err
	}
	p.pool = pool
	return pool, nil
}

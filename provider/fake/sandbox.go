package fake

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// sandbox is one sandbox. face decides which optional interfaces callers see.
type sandbox struct {
	p        *Provider
	id       string
	name     string
	labels   map[string]string
	root     string
	user     string
	ports    []int
	pids     int64
	ttl      time.Duration
	created  time.Time
	creation secret.Env // the creation environment: literals and, by the create transport, protected values
	wishes   []string   // accepted and not enforced
	files    *tree

	mu    sync.Mutex
	cond  *sync.Cond // state changes
	stat  provider.State
	execs map[*execution]struct{} // with anything alive
	log   []byte
}

// Format implements fmt.Formatter: the sandbox's id, whatever the verb. A caller
// may print what it was given while commands run, which change the fields.
func (sb *sandbox) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "fake.Sandbox["+sb.id+"]") }

// newSandbox makes a running sandbox; the caller holds the provider's lock.
func (p *Provider) newSandbox(id string, req provider.CreateRequest) *sandbox {
	env := values(req.Environment)
	for k, v := range req.Protected.All() {
		env[k] = v
	}
	sb := &sandbox{p: p, id: id, name: req.Name, labels: maps.Clone(req.Labels), root: req.Root,
		user: req.User, ports: slices.Clone(req.Ports), pids: req.Resources.PIDs, ttl: req.TTL,
		created: p.opts.Clock(), creation: secret.NewEnv(env), files: newTree(req.Root, p.opts.Clock),
		stat: provider.StateRunning, execs: map[*execution]struct{}{}}
	sb.cond = sync.NewCond(&sb.mu)
	f := p.desc.Features
	for _, w := range []struct {
		asked   bool
		support provider.Support
		name    string
	}{
		{req.Image != "", f.Image, "image"},
		{req.User != "", f.User, "user"},
		{req.Network == "none", f.NetworkNone, "network"},
		{req.Network == "default", f.NetworkDefault, "network"},
		{len(req.Mounts) > 0, f.PathGrants, "pathGrants"},
		{len(req.Ports) > 0, f.Ports, "ports"},
		{req.Resources.CPUs > 0, f.CPUs, "resources.cpus"},
		{req.Resources.MemoryMiB > 0, f.MemoryMiB, "resources.memoryMiB"},
		{req.Resources.PIDs > 0, f.PIDs, "resources.pids"},
		{req.Resources.DiskMiB > 0, f.DiskMiB, "resources.diskMiB"},
		{req.TTL > 0, f.TTL, "lifetime.ttl"},
	} {
		if w.asked && w.support == provider.SupportUnenforced {
			sb.wishes = append(sb.wishes, w.name)
		}
	}
	if req.Start == "image" {
		sb.log = []byte("fake: image started\n")
	}
	return sb
}

func (sb *sandbox) ref() provider.Ref { return provider.Ref{ID: sb.id} }

// Ref implements provider.Sandbox.
func (sb *sandbox) Ref() provider.Ref { return sb.ref() }

// Files implements provider.Sandbox.
func (sb *sandbox) Files() provider.FS { return fileAccess{sb} }

// Status implements provider.Sandbox.
func (sb *sandbox) Status(ctx context.Context) (provider.Status, error) {
	return invoke(ctx, sb.p, sb.call(MethodStatus), func() (provider.Status, error) {
		if _, err := sb.p.find("status", sb.ref()); err != nil {
			return provider.Status{}, err
		}
		return provider.Status{State: sb.state(), Unenforced: slices.Clone(sb.wishes)}, nil
	})
}

func (sb *sandbox) call(m Method) Call {
	return Call{Method: m, Ref: sb.id, Session: sb.labels[provider.LabelSession]}
}

func (sb *sandbox) state() provider.State {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.stat
}

func (sb *sandbox) setState(s provider.State) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.stat = s
	sb.cond.Broadcast()
}

// usable returns why the sandbox cannot serve op, if so.
func (sb *sandbox) usable(op string) error {
	if _, err := sb.p.find(op, sb.ref()); err != nil {
		return err
	}
	if s := sb.state(); s != provider.StateRunning {
		return failure(provider.FailedPrecondition, op, sb.id, "the sandbox is "+string(s), provider.AppliedNo)
	}
	return nil
}

// running returns the live executions.
func (sb *sandbox) running() []*execution {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return slices.Collect(maps.Keys(sb.execs))
}

// killAll kills every process at once, without waiting.
func (sb *sandbox) killAll() {
	for _, e := range sb.running() {
		for _, t := range e.alive() {
			t.die("KILL", causeSandbox)
		}
	}
}

// shutdown kills every process and waits for their end.
func (sb *sandbox) shutdown(ctx context.Context) error {
	sb.setState(provider.StateStopped) // nothing new starts
	sb.killAll()
	for _, e := range sb.running() {
		for _, t := range e.alive() {
			select {
			case <-t.gone:
			case <-ctx.Done():
				return contextError(ctx, "destroy", provider.AppliedUnknown)
			}
		}
	}
	return nil
}

// ports, pauser, archiver and logs hold the optional methods, so that face can
// leave each out.
type (
	ports    struct{ sb *sandbox }
	pauser   struct{ sb *sandbox }
	archiver struct{ sb *sandbox }
	logs     struct{ sb *sandbox }
)

// Port implements provider.Ports.
func (o ports) Port(ctx context.Context, port int) (provider.Endpoint, error) {
	return invoke(ctx, o.sb.p, o.sb.call(MethodPort), func() (provider.Endpoint, error) {
		if err := o.sb.usable("port"); err != nil {
			return provider.Endpoint{}, err
		}
		if !slices.Contains(o.sb.ports, port) {
			return provider.Endpoint{}, failure(provider.NotFound, "port", o.sb.id,
				"the manifest does not name this port", provider.AppliedNo)
		}
		return o.sb.p.opts.Endpoint(o.sb.ref(), port), nil
	})
}

func (o pauser) set(ctx context.Context, m Method, from, to provider.State) error {
	_, err := invoke(ctx, o.sb.p, o.sb.call(m), func() (struct{}, error) {
		if _, err := o.sb.p.find(string(m), o.sb.ref()); err != nil {
			return struct{}{}, err
		}
		switch s := o.sb.state(); s {
		case from, to:
			o.sb.setState(to)
			return struct{}{}, nil
		default:
			return struct{}{}, failure(provider.FailedPrecondition, string(m), o.sb.id,
				"the sandbox is "+string(s), provider.AppliedNo)
		}
	})
	return err
}

// Pause implements provider.Pauser: processes stop at their next write, read or
// sleep.
func (o pauser) Pause(ctx context.Context) error {
	return o.set(ctx, MethodPause, provider.StateRunning, provider.StatePaused)
}

// Resume implements provider.Pauser.
func (o pauser) Resume(ctx context.Context) error {
	return o.set(ctx, MethodResume, provider.StatePaused, provider.StateRunning)
}

// Logs implements provider.Logs.
func (o logs) Logs(ctx context.Context, w io.Writer) error {
	_, err := invoke(ctx, o.sb.p, o.sb.call(MethodLogs), func() (struct{}, error) {
		if _, err := o.sb.p.find("logs", o.sb.ref()); err != nil {
			return struct{}{}, err
		}
		if _, err := w.Write(o.sb.log); err != nil {
			return struct{}{}, failure(provider.Internal, "logs", o.sb.id, "the caller's writer failed", provider.AppliedNo)
		}
		return struct{}{}, nil
	})
	return err
}

// face returns the sandbox with exactly the optional interfaces wanted: callers
// discover them by type assertion.
func (sb *sandbox) face() provider.Sandbox {
	type (
		P = provider.Ports
		U = provider.Pauser
		A = provider.Archiver
		L = provider.Logs
	)
	o := sb.p.opts
	po, pa, ar, lo := ports{sb}, pauser{sb}, archiver{sb}, logs{sb}
	bit := func(left bool, b int) int {
		if left {
			return 0
		}
		return b
	}
	switch bit(o.NoPorts, 1) | bit(o.NoPauser, 2) | bit(o.NoArchiver, 4) | bit(o.NoLogs, 8) {
	case 1:
		return struct {
			*sandbox
			P
		}{sb, po}
	case 2:
		return struct {
			*sandbox
			U
		}{sb, pa}
	case 3:
		return struct {
			*sandbox
			P
			U
		}{sb, po, pa}
	case 4:
		return struct {
			*sandbox
			A
		}{sb, ar}
	case 5:
		return struct {
			*sandbox
			P
			A
		}{sb, po, ar}
	case 6:
		return struct {
			*sandbox
			U
			A
		}{sb, pa, ar}
	case 7:
		return struct {
			*sandbox
			P
			U
			A
		}{sb, po, pa, ar}
	case 8:
		return struct {
			*sandbox
			L
		}{sb, lo}
	case 9:
		return struct {
			*sandbox
			P
			L
		}{sb, po, lo}
	case 10:
		return struct {
			*sandbox
			U
			L
		}{sb, pa, lo}
	case 11:
		return struct {
			*sandbox
			P
			U
			L
		}{sb, po, pa, lo}
	case 12:
		return struct {
			*sandbox
			A
			L
		}{sb, ar, lo}
	case 13:
		return struct {
			*sandbox
			P
			A
			L
		}{sb, po, ar, lo}
	case 14:
		return struct {
			*sandbox
			U
			A
			L
		}{sb, pa, ar, lo}
	case 15:
		return struct {
			*sandbox
			P
			U
			A
			L
		}{sb, po, pa, ar, lo}
	}
	return sb
}

package docker

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/docker/go-connections/nat"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// sandbox is one container, or, when id is "", a workspace whose container is
// gone. There is one for each container and Provider.
type sandbox struct {
	p         *Provider
	name      string
	id        string
	owner     string
	session   string
	imageID   string
	labels    map[string]string
	container []string // names in the container's environment
	network   bool     // it is on its owner's network

	files *shim.Files // nil without a supervisor

	mu      sync.Mutex
	base    []string   // the image's environment
	values  secret.Env // with the create transport, in the process that created it
	known   bool       // values are
	ended   bool       // it was destroyed through this Provider
	settled bool       // what an engine's restart left was ended
	thawed  time.Time  // when this Provider last unpaused it
	lost    []string   // ids of commands that were lost and may run on
}

// Format implements fmt.Formatter: its name, whatever the verb. Printing
// reads none of the fields that change.
func (s *sandbox) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "docker.Sandbox["+s.name+"]") }

// inspectContainer asks the engine for a container. What the rest of the package
// relies on is there, whatever answers as an engine.
func (p *Provider) inspectContainer(ctx context.Context, name string) (container.InspectResponse, error) {
	info, err := p.e.ContainerInspect(ctx, name)
	if err == nil && (info.ContainerJSONBase == nil || info.State == nil || info.Config == nil) {
		return container.InspectResponse{}, problem(provider.Internal, "inspect", name, "the engine's answer is incomplete").remedy("see what answers at " + p.e.DaemonHost())
	}
	return info, err
}

// sandbox returns the one of a container that was proved ours.
func (p *Provider) sandbox(info container.InspectResponse) (*sandbox, error) {
	name := strings.TrimPrefix(info.Name, "/")
	if !proves(name, kindSandbox, info.Config.Labels) {
		return nil, problem(provider.NotFound, "open", name, "a container of this name is not ours")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sandboxes[info.ID]; s != nil {
		return s, nil
	}
	l := info.Config.Labels
	s := &sandbox{p: p, name: name, id: info.ID, owner: l[provider.LabelOwner], session: l[provider.LabelSession], imageID: info.Image, labels: l}
	s.network = info.HostConfig != nil && !info.HostConfig.NetworkMode.IsNone()
	for _, kv := range info.Config.Env {
		k, _, _ := strings.Cut(kv, "=")
		s.container = append(s.container, k)
	}
	if p.shim != nil {
		s.files = shim.NewFiles(shim.FilesOptions{Dial: s.dialFiles, Workload: shim.Workload{User: l[labelUser]}, Root: l[labelRoot], Provider: providerName})
	}
	p.sandboxes[info.ID] = s
	return s, nil
}

// given remembers the values of the create transport for this sandbox's commands,
// and the environment of its image.
func (s *sandbox) given(req provider.CreateRequest, pic picture) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pic.id == s.imageID {
		s.base = append([]string{}, pic.env...)
	}
	if req.Transport == provider.TransportCreate {
		s.values, s.known = req.Protected, true
	}
}

func (p *Provider) forget(s *sandbox) {
	p.mu.Lock()
	if p.sandboxes[s.id] == s {
		delete(p.sandboxes, s.id)
	}
	p.mu.Unlock()
	s.mu.Lock()
	s.ended, s.values = true, secret.Env{}
	s.mu.Unlock()
	if s.files != nil {
		_ = s.files.Close()
	}
}

// forgetName forgets sandboxes whose container somebody else removed.
func (p *Provider) forgetName(name string) {
	p.mu.Lock()
	var gone []*sandbox
	for _, s := range p.sandboxes {
		if s.name == name {
			gone = append(gone, s)
		}
	}
	p.mu.Unlock()
	for _, s := range gone {
		p.forget(s)
	}
}

// Ref implements provider.Sandbox.
func (s *sandbox) Ref() provider.Ref { return provider.Ref{ID: s.name} }

// inspect asks the engine, about this very container.
func (s *sandbox) inspect(ctx context.Context, op string) (container.InspectResponse, error) {
	if s.id == "" {
		return container.InspectResponse{}, problem(provider.FailedPrecondition, op, s.name, "the sandbox's container is gone; its workspace is there").remedy("resume the session, or destroy it")
	}
	info, err := s.p.inspectContainer(ctx, s.id)
	if err != nil {
		return info, s.problem(ctx, op, err, provider.AppliedNo)
	}
	return info, nil
}

// problem is an engine's error about this sandbox.
func (s *sandbox) problem(ctx context.Context, op string, err error, lost provider.Applied) *fault {
	if gone(err) && ctx.Err() == nil {
		return problem(provider.NotFound, op, s.name, "the sandbox is gone")
	}
	return engineProblem(ctx, op, s.name, err, lost)
}

func stateOf(st *container.State) provider.State {
	switch {
	case st.Paused:
		return provider.StatePaused
	case st.Running:
		return provider.StateRunning
	case st.Restarting:
		return provider.StateUnknown
	}
	switch st.Status {
	case container.StateCreated:
		return provider.StatePending
	case container.StateExited, container.StateDead, container.StateRemoving:
		return provider.StateStopped
	}
	return provider.StateUnknown
}

// Status implements provider.Sandbox.
func (s *sandbox) Status(ctx context.Context) (provider.Status, error) {
	if err := ctx.Err(); err != nil {
		return provider.Status{}, ctxProblem("status", s.name, err, provider.AppliedNo)
	}
	if s.id == "" {
		return provider.Status{State: provider.StateStopped, Reason: "its container is gone; its workspace is there"}, nil
	}
	info, err := s.inspect(ctx, "status")
	if provider.CodeOf(err) == provider.NotFound {
		return provider.Status{State: provider.StateGone, Reason: "its container was removed"}, nil
	}
	if err != nil {
		return provider.Status{}, err
	}
	st := provider.Status{State: stateOf(info.State)}
	for _, u := range splitList(s.labels[labelUnenforced]) {
		st.Unenforced = append(st.Unenforced, u+": the engine's storage is not limited per container")
	}
	if st.State == provider.StateStopped {
		switch {
		case info.State.OOMKilled:
			st.Reason = "it ran out of memory"
		case info.State.Error != "":
			st.Reason = info.State.Error
		default:
			st.Reason = "its supervisor ended with code " + itoa(info.State.ExitCode)
		}
	}
	return st, nil
}

// Pause implements provider.Pauser. A sandbox that does not run stays as it is.
func (s *sandbox) Pause(ctx context.Context) error {
	s.mu.Lock()
	s.thawed = time.Time{}
	s.mu.Unlock()
	return s.freeze(ctx, "pause", func(st *container.State) bool { return st.Running && !st.Paused }, s.p.e.ContainerPause)
}

// Resume implements provider.Pauser.
func (s *sandbox) Resume(ctx context.Context) error {
	return s.freeze(ctx, "unpause", func(st *container.State) bool { return st.Paused }, func(ctx context.Context, id string) error {
		err := s.p.e.ContainerUnpause(ctx, id)
		if err == nil {
			s.mu.Lock()
			s.thawed = time.Now()
			s.mu.Unlock()
		}
		return err
	})
}

// thawLimit is how long after unpausing an engine may say that a sandbox is paused.
const thawLimit = 3 * time.Second

// thaws reports whether an engine says that the sandbox is paused, so shortly after
// it was unpaused that this may be the pause of before: an engine hears of both from
// its runtime, one after the other, and may note the pause once more meanwhile.
func (s *sandbox) thaws(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(err.Error(), "is paused") && time.Since(s.thawed) < thawLimit
}

func (s *sandbox) freeze(ctx context.Context, op string, needed func(*container.State) bool, act func(context.Context, string) error) error {
	if err := ctx.Err(); err != nil {
		return ctxProblem(op, s.name, err, provider.AppliedNo)
	}
	if s.id == "" {
		return nil // nothing of it runs
	}
	info, err := s.inspect(ctx, op)
	if err != nil {
		return err
	}
	if !needed(info.State) {
		return nil
	}
	for try := 1; ; try++ {
		if err = act(ctx, s.id); err == nil {
			return nil
		}
		// Somebody else may have been quicker.
		if now, ierr := s.inspect(ctx, op); ierr == nil && !needed(now.State) {
			return nil
		}
		if !strings.Contains(err.Error(), busyFreezer) || ctx.Err() != nil {
			return s.problem(ctx, op, err, provider.AppliedUnknown)
		}
		if try == freezes {
			return problem(provider.Unavailable, op, s.name, "the engine could not freeze the container's processes").cause(err).
				remedy("try again when the machine is less busy").applied(provider.AppliedNo)
		}
		select {
		case <-time.After(time.Duration(try) * 100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

const (
	// busyFreezer is what a runtime says that gave up freezing, with nothing frozen:
	// on a busy machine with control groups of version 1 that is a matter of chance,
	// and trying again is the caller's business
	// (https://github.com/opencontainers/runc/pull/4388).
	busyFreezer = "unable to freeze"
	freezes     = 5
)

// Port implements provider.Ports.
func (s *sandbox) Port(ctx context.Context, port int) (provider.Endpoint, error) {
	if err := ctx.Err(); err != nil {
		return provider.Endpoint{}, ctxProblem("port", s.name, err, provider.AppliedNo)
	}
	info, err := s.inspect(ctx, "port")
	if err != nil {
		return provider.Endpoint{}, err
	}
	key := nat.Port(itoa(port) + "/tcp")
	if info.HostConfig == nil || len(info.HostConfig.PortBindings[key]) == 0 {
		return provider.Endpoint{}, problem(provider.NotFound, "port", itoa(port), "the manifest does not name this port")
	}
	if info.NetworkSettings != nil {
		for _, b := range info.NetworkSettings.Ports[key] {
			if b.HostIP == "127.0.0.1" && b.HostPort != "" {
				return provider.Endpoint{Address: b.HostIP + ":" + b.HostPort}, nil
			}
		}
	}
	return provider.Endpoint{}, problem(provider.FailedPrecondition, "port", itoa(port), "the sandbox does not run")
}

// Logs implements provider.Logs: what the image's own command wrote. It is empty
// with start: idle.
func (s *sandbox) Logs(ctx context.Context, w io.Writer) error {
	if err := ctx.Err(); err != nil {
		return ctxProblem("logs", s.name, err, provider.AppliedNo)
	}
	if s.id == "" || s.labels[labelStart] != "image" {
		return nil
	}
	r, err := s.p.e.ContainerLogs(ctx, s.id, container.LogsOptions{ShowStderr: true})
	if err != nil {
		return s.problem(ctx, "logs", err, provider.AppliedNo)
	}
	defer func() { _ = r.Close() }()
	if _, err := stdcopy.StdCopy(io.Discard, w, r); err != nil {
		return s.problem(ctx, "logs", err, provider.AppliedNo)
	}
	return nil
}

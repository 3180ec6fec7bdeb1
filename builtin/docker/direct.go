package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/provider"
)

// This file is what is left where no supervisor fits the engine and
// Options.AllowEngineEnv allows to go without: the image's own sleep as the
// container's command, the engine's exec, its environment included, and a shell of
// the image to kill with. Describe declares what that can do.

// tagVariable marks the processes of one exec, so that they can be found again.
const tagVariable = "SBXHOST_EXEC"

// withoutSupervisor keeps the container alive by itself.
func (c *creation) withoutSupervisor(config *container.Config, host *container.HostConfig) {
	yes := true
	config.Entrypoint, config.OpenStdin = []string{"sleep", "2147483647"}, false
	host.Init = &yes // somebody has to reap
	host.CapAdd = shim.WorkloadCapabilities()
}

// startDirect starts the container and sees that it stays. One whose image has no
// sleep is started too, and ends when it is found out, whenever that is: so the image
// is asked for a sleep that ends.
func (c *creation) startDirect(ctx context.Context, s *sandbox) error {
	if err := c.p.e.ContainerStart(ctx, s.id, container.StartOptions{}); err != nil {
		return engineProblem(ctx, opCreate, c.req.Name, err, provider.AppliedUnknown)
	}
	code, herr := s.helper(ctx, "sleep", "0")
	info, err := s.inspect(ctx, opCreate)
	switch {
	case err != nil:
		return err
	case !info.State.Running, herr == nil && code != 0:
		return problem(provider.FailedPrecondition, opCreate, c.image, "without a supervisor the image must have a sleep command").
			remedy("set " + SettingShimPath + ", or use another image").applied(provider.AppliedUnknown)
	case herr != nil:
		return s.problem(ctx, opCreate, herr, provider.AppliedUnknown).applied(provider.AppliedUnknown)
	}
	return nil
}

// helper runs a program of the image's to its end, as root and with no value, and
// returns its exit code.
func (s *sandbox) helper(ctx context.Context, args ...string) (code int, err error) {
	made, err := s.p.e.ContainerExecCreate(ctx, s.id, container.ExecOptions{User: "0:0", WorkingDir: "/", Env: helperEnv(s.container),
		Cmd: args, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return 0, err
	}
	conn, err := hijack(ctx, func() (types.HijackedResponse, error) {
		return s.p.e.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	})
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := io.Copy(io.Discard, conn); err != nil {
		return 0, err
	}
	// Its output ends before the engine has heard of its end.
	for {
		info, err := s.p.e.ContainerExecInspect(ctx, made.ID)
		if err != nil || !info.Running {
			return info.ExitCode, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// directProcess is one command without a supervisor.
type directProcess struct {
	s     *sandbox
	id    string // the engine's
	tag   string
	stdin io.WriteCloser
	done  chan struct{}

	mu     sync.Mutex
	killed bool
	timed  bool
	exit   provider.Exit
}

// Format implements fmt.Formatter: its id, whatever the verb. Printing
// reads none of the fields that change.
func (p *directProcess) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "docker.Process["+p.id+"]")
}

type closeWriter struct{ h types.HijackedResponse }

func (w closeWriter) Write(p []byte) (int, error) { return w.h.Conn.Write(p) }
func (w closeWriter) Close() error                { return w.h.CloseWrite() }

// execDirect starts a command by the engine's own exec.
func (s *sandbox) execDirect(ctx context.Context, req provider.ExecRequest) (provider.Process, error) {
	env, err := s.environment(ctx, req)
	if err != nil {
		return nil, err
	}
	tag := randomID() + randomID()
	env.set(tagVariable, tag)
	var list []string
	for _, kv := range env.list() {
		list = append(list, string(kv))
		clear(kv)
	}
	args := req.Args
	if req.Shell != "" {
		args = []string{"sh", "-c", req.Shell}
	}
	user := req.User
	if user == "" {
		user = s.labels[labelUser]
	}
	input := req.Input != nil || req.Stdin == provider.StdinLive
	made, err := s.p.e.ContainerExecCreate(ctx, s.id, container.ExecOptions{User: user, WorkingDir: s.dirOf(req.Dir), Cmd: args, Env: list,
		AttachStdin: input, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return nil, s.problem(ctx, opExec, err, provider.AppliedNo)
	}
	conn, err := hijack(ctx, func() (types.HijackedResponse, error) {
		return s.p.e.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	})
	if err != nil {
		return nil, s.problem(ctx, opExec, err, provider.AppliedUnknown)
	}
	p := &directProcess{s: s, id: made.ID, tag: tag, done: make(chan struct{})}
	in := closeWriter{conn.resp}
	switch {
	case req.Input != nil:
		go func() { _, _ = io.Copy(in, req.Input); _ = in.Close() }()
	case req.Stdin == provider.StdinLive:
		p.stdin = in
	}
	var out, errs gate
	out.w, errs.w = req.Stdout, req.Stderr
	streams := make(chan error, 1)
	go func() {
		_, err := stdcopy.StdCopy(&out, &errs, conn.resp.Reader)
		streams <- err
	}()
	go p.watch(context.WithoutCancel(ctx), conn, streams, req.Timeout, &out, &errs)
	return p, nil
}

// gate passes output on until it is shut or its writer failed.
type gate struct {
	mu   sync.Mutex
	w    io.Writer
	shut bool
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		if n, err := g.w.Write(p); err != nil || n < len(p) {
			g.shut = true
		}
	}
	return len(p), nil
}

func (g *gate) close() { g.mu.Lock(); g.shut = true; g.mu.Unlock() }

const (
	// drainTime is how long output is waited for after the command's end: what it
	// left may hold the stream. Docker closes that after two seconds.
	drainTime = 3 * time.Second
	// beginTime is how long an engine may take from its answer to the start.
	beginTime = 30 * time.Second
)

// watch asks the engine until the command has ended: its streams may be held by
// what it left.
func (p *directProcess) watch(ctx context.Context, conn *hijacked, streams <-chan error, timeout time.Duration, gates ...*gate) {
	defer close(p.done)
	defer func() { _ = conn.Close() }()
	began, wait, failures := time.Now(), 10*time.Millisecond, 0
	var info container.ExecInspect
	for ended := false; !ended; {
		select {
		case <-streams: //nolint:errcheck // how the stream ended says nothing
			streams, wait = nil, time.Millisecond
		case <-time.After(wait):
			wait = min(2*wait, 100*time.Millisecond)
		}
		var err error
		info, err = p.s.p.e.ContainerExecInspect(ctx, p.id)
		switch {
		case err == nil:
			// An engine answers before it begins: one that does not run and has neither
			// number, code nor the end of its output has yet to.
			begun := info.Pid != 0 || info.ExitCode != 0 || streams == nil || time.Since(began) > beginTime
			failures, ended = 0, begun && !info.Running
		case gone(err), failures > 20:
			p.finish(provider.Exit{Kind: provider.ExitLost, Code: -1, LeftRunning: -1}, gates)
			return
		default:
			failures++
		}
		if timeout > 0 && time.Since(began) > timeout && !ended {
			timeout = 0
			p.mu.Lock()
			p.timed = true
			p.mu.Unlock()
			go func() { _ = p.kill(ctx, "KILL") }()
		}
	}
	if streams != nil {
		select {
		case <-streams: //nolint:errcheck // how the stream ended says nothing
		case <-time.After(drainTime):
		}
	}
	p.mu.Lock()
	e := provider.Exit{Kind: provider.ExitExited, Code: info.ExitCode, LeftRunning: -1}
	if byUs := p.timed || p.killed; byUs && info.ExitCode > 128 {
		e = provider.Exit{Kind: provider.ExitKilled, Code: -1, Signal: signalName(byte(info.ExitCode - 128)), LeftRunning: -1} //nolint:gosec // an exit code
		if p.timed {
			e.Kind = provider.ExitTimedOut
		}
	}
	p.mu.Unlock()
	p.finish(e, gates)
}

func (p *directProcess) finish(e provider.Exit, gates []*gate) {
	for _, g := range gates {
		g.close()
	}
	p.exit = e
}

// Stdin implements provider.Process.
func (p *directProcess) Stdin() io.WriteCloser { return p.stdin }

// killScript signals every process whose environment has the tag, and says how
// many there were. $1 is the tag, $2 the signal.
const killScript = `n=0
for d in /proc/[0-9]*; do
  if tr '\0' '\n' <"$d/environ" 2>/dev/null | grep -q "^` + tagVariable + `=$1\$"; then kill -s "$2" "${d#/proc/}" 2>/dev/null && n=$((n+1)); fi
done
echo "found $n"`

// kill signals the command's processes by means of the image's shell.
func (p *directProcess) kill(ctx context.Context, signal string) error {
	code, err := p.s.helper(ctx, "/bin/sh", "-c", killScript, "sh", p.tag, signal)
	if err == nil && code != 0 {
		err = errors.New("the image's shell could not do it")
	}
	return err
}

// Signal implements provider.Process.
func (p *directProcess) Signal(ctx context.Context, name string) error {
	if signalNumber(name) == 0 {
		return problem(provider.InvalidArgument, "signal", p.s.name, "unknown signal").remedy("use a POSIX name without SIG, such as TERM")
	}
	select {
	case <-p.done:
		return problem(provider.FailedPrecondition, "signal", p.s.name, "the command has ended")
	default:
	}
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	if err := p.kill(ctx, name); err != nil {
		return problem(provider.Unsupported, "signal", p.s.name, "without a supervisor a signal needs a shell in the image").cause(err).remedy("set " + SettingShimPath)
	}
	return nil
}

// Kill implements provider.Process.
func (p *directProcess) Kill(ctx context.Context, grace time.Duration) error {
	if err := ctx.Err(); err != nil {
		return ctxProblem("kill", p.s.name, err, provider.AppliedNo)
	}
	select {
	case <-p.done:
		return nil
	default:
	}
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	for _, step := range []struct {
		signal string
		wait   time.Duration
	}{{"TERM", grace}, {"KILL", p.s.p.killPatience}} {
		if step.wait <= 0 {
			continue
		}
		if err := p.kill(ctx, step.signal); err != nil {
			return problem(provider.Unsupported, "kill", p.s.name, "without a supervisor a kill needs a shell in the image").cause(err).
				remedy("destroy the sandbox; set " + SettingShimPath).applied(provider.AppliedUnknown)
		}
		select {
		case <-p.done:
			return nil
		case <-time.After(step.wait):
		case <-ctx.Done():
			return ctxProblem("kill", p.s.name, ctx.Err(), provider.AppliedUnknown)
		}
	}
	return problem(provider.Unavailable, "kill", p.s.name, "the command is still alive after KILL").remedy("destroy the sandbox").applied(provider.AppliedUnknown)
}

// Wait implements provider.Process.
func (p *directProcess) Wait(ctx context.Context) (provider.Exit, error) {
	select {
	case <-p.done:
		return p.exit, nil
	default:
	}
	select {
	case <-p.done:
		return p.exit, nil
	case <-ctx.Done():
		return provider.Exit{}, ctxProblem("wait", p.s.name, ctx.Err(), provider.AppliedNo)
	}
}

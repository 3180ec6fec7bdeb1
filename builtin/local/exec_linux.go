package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/sbxhost/sbxhost/provider"
	"golang.org/x/sys/unix"
)

// Exec implements provider.Sandbox.
func (s *sandbox) Exec(ctx context.Context, req provider.ExecRequest) (provider.Process, error) {
	r, err := s.request(req)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, ctxProblem("exec", s.record.ID, err, provider.AppliedNo)
	}
	s.mu.Lock()
	if !s.live || (s.jail != nil && !s.jail.alive()) {
		reason := s.reason
		s.mu.Unlock()
		if reason == "" {
			reason = "its supervisor ended"
		}
		return nil, problem(provider.FailedPrecondition, "exec", s.record.ID, "the sandbox is stopped: "+reason).remedy("create another")
	}
	s.starting.Add(1)
	j := s.jail
	s.mu.Unlock()
	defer s.starting.Done()

	p := &process{s: s, jail: j, tty: req.TTY}
	if j != nil {
		p.exec, err = j.exec(ctx, r)
	} else {
		p.exec, p.watcher, err = s.execBare(ctx, r)
	}
	if err != nil {
		return nil, s.startProblem(ctx, req, err)
	}
	return p, nil
}

// request checks a request and turns it into the supervisor's.
func (s *sandbox) request(req provider.ExecRequest) (shim.Request, error) {
	id := s.record.ID
	invalid := func(what string) error { return problem(provider.InvalidArgument, "exec", id, what) }
	r := shim.Request{
		TTY: req.TTY, Cols: req.Cols, Rows: req.Rows, KillLeftovers: req.KillLeftovers,
		Stdout: req.Stdout, Stderr: req.Stderr, Timeout: req.Timeout, Grace: req.Grace,
	}
	if err := provider.ValidateExec(req); err != nil {
		return r, ours(err)
	}
	if err := provider.CheckExec(s.p.describe, req); err != nil {
		return r, ours(err)
	}
	if req.User != "" {
		return r, problem(provider.Unsupported, "exec", id, "local cannot run as another user").remedy("leave user out")
	}
	if r.Args = req.Args; req.Shell != "" {
		r.Args = []string{"/bin/sh", "-c", req.Shell}
	}
	if len(req.Dir) > 3000 {
		return r, invalid("the working directory's name is too long")
	}
	r.Input, r.LiveInput = req.Input, req.Stdin == provider.StdinLive
	r.Dir = s.dirOf(req.Dir)
	env := s.environment(req, r.Dir)
	r.Env = env
	size := 0
	for _, v := range env {
		size += len(v) + 1
	}
	for _, a := range r.Args {
		size += len(a) + 1
	}
	if size > wire.MaxSetup {
		return r, invalid("arguments and environment are larger than Linux allows")
	}
	return r, nil
}

// home is where the workspace is for a command.
func (s *sandbox) home() string {
	if s.p.level == LevelNamespaces {
		return s.record.Root
	}
	return path.Join(s.work, workspaceDir)
}

// dirOf resolves a request's working directory.
func (s *sandbox) dirOf(dir string) string {
	home := s.home()
	if !path.IsAbs(dir) {
		return path.Join(home, dir)
	}
	dir = path.Clean(dir)
	if s.p.level != LevelNamespaces { // the root is elsewhere here
		if dir == s.record.Root {
			return home
		}
		if rest, ok := strings.CutPrefix(dir, s.record.Root+"/"); ok {
			return path.Join(home, rest)
		}
	}
	return dir
}

// startProblem explains why nothing was started.
func (s *sandbox) startProblem(ctx context.Context, req provider.ExecRequest, err error) error {
	id := s.record.ID
	if ctx.Err() != nil {
		return ctxProblem("exec", id, ctx.Err(), provider.AppliedUnknown)
	}
	var start *shim.StartError
	if !errors.As(err, &start) {
		if !s.alive() {
			return problem(provider.FailedPrecondition, "exec", id, "the sandbox ended").applied(provider.AppliedUnknown)
		}
		var errno unix.Errno
		if errors.As(err, &errno) && (errno == unix.EMFILE || errno == unix.ENFILE || errno == unix.ENOMEM) {
			return problem(provider.ResourceExhausted, "exec", id, "the host has no descriptors or memory left").cause(errno)
		}
		return problem(provider.Lost, "exec", id, "the supervisor broke off").applied(provider.AppliedUnknown)
	}
	errno := unix.Errno(start.Errno)
	p := func(code provider.Code, what string) *fault { return problem(code, "exec", id, what).cause(errno) }
	switch start.Stage {
	case wire.StageDir:
		if errno == unix.ENOENT || errno == unix.ENOTDIR {
			return p(provider.NotFound, "the working directory is not there")
		}
		return p(provider.PermissionDenied, "the working directory cannot be entered")
	case wire.StageExec:
		switch errno {
		case unix.ENOENT, unix.ENOTDIR:
			return p(provider.NotFound, "the command was not found")
		case unix.E2BIG:
			return p(provider.InvalidArgument, "arguments and environment are larger than Linux allows")
		case unix.ENOMEM, unix.EAGAIN, unix.EMFILE, unix.ENFILE:
			return p(provider.ResourceExhausted, "the command cannot be executed now")
		}
		return p(provider.PermissionDenied, "the command cannot be executed")
	case wire.StageFork, wire.StageTerminal:
		return p(provider.ResourceExhausted, "no process or terminal can be made")
	}
	return p(provider.Internal, "the command could not be confined, and was not started")
}

// process is one command.
type process struct {
	s       *sandbox
	jail    *jail // the one it was started in: a create may have made another since
	exec    *shim.Exec
	watcher *watcher // its own supervisor, where there is no jail
	tty     bool
}

// Format implements fmt.Formatter: the name of its sandbox, whatever the verb. Printing
// reads none of the fields that change, and shows none of the request's.
func (p *process) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "local.Process["+p.s.record.ID+"]")
}

// Stdin implements provider.Process.
func (p *process) Stdin() io.WriteCloser {
	if w := p.exec.Stdin(); w != nil {
		return w
	}
	return nil
}

// Signal implements provider.Process.
func (p *process) Signal(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return ctxProblem("signal", p.s.record.ID, err, provider.AppliedNo)
	}
	n := unix.SignalNum("SIG" + name)
	if n == 0 {
		return problem(provider.InvalidArgument, "signal", p.s.record.ID, "unknown signal").remedy("use a POSIX name without SIG, such as TERM")
	}
	if err := p.exec.Signal(byte(n)); err != nil {
		return problem(provider.FailedPrecondition, "signal", p.s.record.ID, "the command has ended")
	}
	return nil
}

// Kill implements provider.Process.
func (p *process) Kill(ctx context.Context, grace time.Duration) error {
	err := p.exec.Kill(ctx, grace)
	var survivors *shim.SurvivorsError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctxProblem("kill", p.s.record.ID, ctx.Err(), provider.AppliedUnknown)
	case errors.As(err, &survivors):
		return problem(provider.Unavailable, "kill", p.s.record.ID, "processes are still alive after KILL").applied(provider.AppliedYes).remedy("destroy the sandbox")
	}
	// The supervisor is gone. Where it is the namespace's PID 1, so is the tree.
	if p.jail != nil {
		if p.jail.ends(ctx) {
			return nil
		}
		if ctx.Err() != nil {
			return ctxProblem("kill", p.s.record.ID, ctx.Err(), provider.AppliedUnknown)
		}
	}
	return problem(provider.Lost, "kill", p.s.record.ID, "the supervisor ended before it confirmed the kill").applied(provider.AppliedUnknown).remedy("destroy the sandbox")
}

// Resize implements provider.Resizer.
func (p *process) Resize(ctx context.Context, cols, rows uint16) error {
	if err := ctx.Err(); err != nil {
		return ctxProblem("resize", p.s.record.ID, err, provider.AppliedNo)
	}
	if err := p.exec.Resize(cols, rows); err != nil {
		return problem(provider.FailedPrecondition, "resize", p.s.record.ID, "the command has no terminal, or has ended")
	}
	return nil
}

// Wait implements provider.Process.
func (p *process) Wait(ctx context.Context) (provider.Exit, error) {
	st, err := p.exec.Wait(ctx)
	if err != nil {
		return provider.Exit{}, ctxProblem("wait", p.s.record.ID, err, provider.AppliedNo)
	}
	e := provider.Exit{Code: -1, Merged: p.tty, LeftRunning: int(st.Left), TreeDead: st.TreeDead}
	if st.Signal != 0 {
		e.Signal = strings.TrimPrefix(unix.SignalName(unix.Signal(st.Signal)), "SIG")
		if e.Signal == "" {
			e.Signal = itoa(int(st.Signal))
		}
	}
	switch {
	case st.Lost:
		e.Kind, e.LeftRunning = provider.ExitLost, -1
		if p.jail != nil && p.jail.ends(ctx) {
			e.LeftRunning, e.TreeDead = 0, true
		}
	case st.TimedOut && st.ByUs:
		e.Kind = provider.ExitTimedOut
	case st.KilledByHost && st.ByUs, st.SignalledByHost:
		e.Kind = provider.ExitKilled
	case st.Signal != 0:
		e.Kind = provider.ExitSignaled
	default:
		e.Kind, e.Code = provider.ExitExited, int(st.Code)
	}
	return e, nil
}

package fake

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// drainGrace is how long output may still arrive when the command has ended and
// a child of it holds the streams.
const drainGrace = 250 * time.Millisecond

// maxInput is the largest complete input.
const maxInput = 64 << 20

// cause is why a process died.
type cause int

const (
	causeNone    cause = iota
	causeKill          // Process.Kill or Signal
	causeTimeout       // ExecRequest.Timeout
	causeSelf          // a signal from inside
	causeSandbox       // the sandbox was destroyed or stopped
)

// execution is one ExecRequest: a command and what it started. It implements
// provider.Process.
type execution struct {
	sb   *sandbox
	req  provider.ExecRequest
	env  secret.Env
	caps provider.ExecCapabilities

	in       *pipe // nil: always empty
	out, err *pipe // the same with merged output

	main *task // the command itself; set before anything runs

	mu    sync.Mutex
	tasks []*task // main first
	live  int     // of them
	cols  uint16
	rows  uint16

	deliveries []*delivery
	ended      chan struct{} // closed when exit is set
	broken     chan struct{} // closed when the stream is lost
	breaking   sync.Once
	exit       provider.Exit
	killing    sync.Mutex
}

// Format implements fmt.Formatter: the command's id, whatever the verb. See
// [sandbox.Format].
func (e *execution) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "fake.Exec["+e.req.ID+"]") }

// Exec implements provider.Sandbox.
func (sb *sandbox) Exec(ctx context.Context, req provider.ExecRequest) (provider.Process, error) {
	call := sb.call(MethodExec)
	call.Exec = req.ID
	call.Env, call.Protected, call.Secrets = slices.Sorted(maps.Keys(req.Env)), req.Protected.Names(), req.Secrets.Names()
	e, err := invoke(ctx, sb.p, call, func() (*execution, error) { return sb.start(ctx, req) })
	if err != nil {
		return nil, err
	}
	if req.TTY {
		return terminal{e}, nil
	}
	return e, nil
}

func (sb *sandbox) start(ctx context.Context, req provider.ExecRequest) (*execution, error) {
	if err := provider.ValidateExec(req); err != nil {
		return nil, err
	}
	if err := provider.CheckExec(sb.p.desc, req); err != nil {
		return nil, err
	}
	if sb.p.opts.NoSecrets && req.Secrets.Len() > 0 {
		return nil, failure(provider.Unsupported, "exec", sb.id, "this fake was told to refuse request secrets", provider.AppliedNo)
	}
	if err := sb.usable("exec"); err != nil {
		return nil, err
	}
	dir := req.Dir
	if !path.IsAbs(dir) {
		dir = path.Join(sb.root, dir)
	}
	if err := sb.checkDir(dir); err != nil {
		return nil, err
	}
	run, args, err := sb.resolve(req, dir)
	if err != nil {
		return nil, err
	}
	e := &execution{sb: sb, req: req, env: sb.environment(req), caps: sb.p.desc.Exec,
		ended: make(chan struct{}), broken: make(chan struct{}), cols: req.Cols, rows: req.Rows}
	if err := e.input(ctx); err != nil {
		return nil, err
	}
	e.output()
	t, err := e.spawn(nil, run, args, SpawnOptions{HoldOutput: true}, dir)
	if err != nil {
		return nil, err
	}
	e.main = t
	sb.p.mu.Lock()
	sb.p.execs = append(sb.p.execs, e)
	if r := sb.p.records[sb.id]; r != nil {
		r.addExec(req)
	}
	sb.p.mu.Unlock()
	for _, d := range e.deliveries {
		go d.run()
	}
	go t.main()
	go e.conclude(t)
	return e, nil
}

func (sb *sandbox) checkDir(dir string) error {
	sb.files.mu.Lock()
	defer sb.files.mu.Unlock()
	s, err := sb.files.look(sb.files.top, dir, false, true)
	if err == nil && s.node != nil && s.node.dir() {
		return nil
	}
	return failure(provider.NotFound, "exec", sb.id, "the working directory is not there", provider.AppliedNo)
}

// resolve finds the function that runs the request.
func (sb *sandbox) resolve(req provider.ExecRequest, dir string) (Command, []string, error) {
	if req.Shell != "" {
		return sb.p.opts.Shell, []string{"sh", "-c", req.Shell}, nil
	}
	name := req.Args[0]
	if run := sb.p.command(name); run != nil {
		return run, slices.Clone(req.Args), nil
	}
	if strings.Contains(name, "/") {
		file := name
		if !path.IsAbs(file) {
			file = path.Join(dir, file)
		}
		data, mode, err := sb.files.read(file)
		switch {
		case mode.IsDir(), err == nil && mode&0o111 == 0:
			return nil, nil, failure(provider.PermissionDenied, "exec", sb.id, "the command cannot be executed", provider.AppliedNo)
		case err == nil:
			// An executable file is a script of the shell.
			return sb.p.opts.Shell, []string{"sh", "-c", string(data)}, nil
		}
	}
	return nil, nil, failure(provider.NotFound, "exec", sb.id, "no such command", provider.AppliedNo)
}

// environment puts together what the workload gets, later entries winning.
func (sb *sandbox) environment(req provider.ExecRequest) secret.Env {
	env := values(sb.p.opts.Base)
	for _, part := range []secret.Env{sb.creation, secret.NewEnv(values(req.Env)), req.Protected, req.Secrets} {
		for k, v := range part.All() {
			env[k] = v
		}
	}
	return secret.NewEnv(env)
}

func (e *execution) input(ctx context.Context) error {
	switch e.req.Stdin {
	case provider.StdinLive:
		e.in = newPipe(1)
	case provider.StdinUpfront:
		data, err := io.ReadAll(io.LimitReader(&contextReader{ctx, e.req.Input}, maxInput+1))
		if err != nil {
			return failure(provider.InvalidArgument, "exec", e.sb.id, "the input could not be read", provider.AppliedNo)
		}
		if len(data) > maxInput {
			return failure(provider.ResourceExhausted, "exec", e.sb.id, "the input is larger than 64 MiB", provider.AppliedNo)
		}
		e.in = newPipe(0)
		e.in.buf = data
	}
	return nil
}

func (e *execution) output() {
	held := !e.caps.Stream
	e.out = newPipe(0)
	e.deliveries = []*delivery{{pipe: e.out, dst: e.req.Stdout, crlf: e.req.TTY, held: held, done: make(chan struct{})}}
	if e.merged() {
		e.err = e.out
		return
	}
	e.err = newPipe(0)
	e.deliveries = append(e.deliveries, &delivery{pipe: e.err, dst: e.req.Stderr, held: held, done: make(chan struct{})})
}

func (e *execution) merged() bool { return e.req.TTY || e.caps.Stderr == provider.StderrMerged }

// conclude waits for the command, settles what it left and publishes the exit.
func (e *execution) conclude(t *task) {
	var deadline *time.Timer
	if e.req.Timeout > 0 && e.caps.Kill != provider.KillNone {
		deadline = time.AfterFunc(e.req.Timeout, func() { _ = e.kill(context.Background(), e.req.Grace, causeTimeout) })
	}
	select {
	case <-t.gone:
	case <-e.broken:
		for _, d := range e.deliveries {
			d.finish(0, true)
		}
		e.publish(provider.Exit{Kind: provider.ExitLost, Code: -1, Merged: e.merged(), LeftRunning: -1})
		return
	}
	if deadline != nil && !deadline.Stop() && t.why() == causeTimeout {
		_ = e.kill(context.Background(), 0, causeTimeout)
	}
	exit := t.exit()
	exit.Merged = e.merged()
	left := e.alive()
	exit.LeftRunning = len(left)
	if e.req.KillLeftovers || !e.caps.BackgroundSafe {
		for ; len(left) > 0; left = e.alive() {
			for _, c := range left {
				c.die("KILL", causeKill)
			}
			for _, c := range left {
				<-c.gone
			}
		}
	}
	keep := exit.Kind != provider.ExitTimedOut || e.caps.PartialOnTimeout
	for _, d := range e.deliveries {
		d.finish(drainGrace, keep)
	}
	if e.in != nil {
		e.in.end()
	}
	exit.TreeDead = len(e.alive()) == 0
	e.publish(exit)
}

// lose breaks the stream; false when the command has ended.
func (e *execution) lose() bool {
	select {
	case <-e.ended:
		return false
	default:
	}
	e.breaking.Do(func() { close(e.broken) })
	return true
}

// publish makes the exit known. The caller's writers are not used any more.
func (e *execution) publish(exit provider.Exit) {
	e.exit = exit
	e.deliveries = nil
	e.req.Stdout, e.req.Stderr, e.req.Input = nil, nil, nil
	close(e.ended)
	e.sb.settled(e)
}

// alive returns the tasks that have not ended.
func (e *execution) alive() []*task {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []*task
	for _, t := range e.tasks {
		select {
		case <-t.gone:
		default:
			out = append(out, t)
		}
	}
	return out
}

// reach returns the live tasks that a kill by mode touches.
func (e *execution) reach() []*task {
	var out []*task
	for _, t := range e.alive() {
		switch e.caps.Kill {
		case provider.KillTree:
			out = append(out, t)
		case provider.KillGroup:
			if !t.session {
				out = append(out, t)
			}
		case provider.KillProcess:
			if t == e.main {
				out = append(out, t)
			}
		}
	}
	return out
}

func (e *execution) kill(ctx context.Context, grace time.Duration, why cause) error {
	e.killing.Lock()
	defer e.killing.Unlock()
	if grace > 0 {
		for _, t := range e.reach() {
			t.deliver("TERM", why)
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
	wait:
		for _, t := range e.reach() {
			select {
			case <-t.gone:
			case <-timer.C:
				break wait
			case <-ctx.Done():
				return contextError(ctx, "kill", provider.AppliedUnknown)
			}
		}
	}
	// A dying process may have started another: until none is left.
	for targets := e.reach(); len(targets) > 0; targets = e.reach() {
		for _, t := range targets {
			t.die("KILL", why)
		}
		for _, t := range targets {
			select {
			case <-t.gone:
			case <-ctx.Done():
				return contextError(ctx, "kill", provider.AppliedUnknown)
			}
		}
	}
	return nil
}

func (e *execution) call(m Method) Call {
	c := e.sb.call(m)
	c.Exec = e.req.ID
	return c
}

// Stdin implements provider.Process.
func (e *execution) Stdin() io.WriteCloser {
	if e.req.Stdin != provider.StdinLive {
		return nil
	}
	return stdin{e}
}

// stdin is the caller's end of the command's input.
type stdin struct{ e *execution }

func (s stdin) Write(b []byte) (int, error) {
	n, err := s.e.in.write(b, func() bool { return true })
	if err != nil {
		return n, failure(provider.FailedPrecondition, "stdin", s.e.sb.id, "the input is closed", provider.AppliedNo)
	}
	return n, nil
}

func (s stdin) Close() error { s.e.in.end(); return nil }

// Signal implements provider.Process.
func (e *execution) Signal(ctx context.Context, name string) error {
	_, err := invoke(ctx, e.sb.p, e.call(MethodSignal), func() (struct{}, error) {
		switch {
		case e.caps.Kill == provider.KillNone:
			return struct{}{}, failure(provider.Unsupported, "signal", e.sb.id, "this fake was told not to signal", provider.AppliedNo)
		case !slices.Contains(signals, name):
			return struct{}{}, failure(provider.InvalidArgument, "signal", e.sb.id, "no such signal", provider.AppliedNo)
		}
		t := e.main
		select {
		case <-t.gone:
			return struct{}{}, failure(provider.FailedPrecondition, "signal", e.sb.id, "the command has ended", provider.AppliedNo)
		default:
		}
		t.deliver(name, causeKill)
		return struct{}{}, nil
	})
	return err
}

// Kill implements provider.Process.
func (e *execution) Kill(ctx context.Context, grace time.Duration) error {
	_, err := invoke(ctx, e.sb.p, e.call(MethodKill), func() (struct{}, error) {
		if e.caps.Kill == provider.KillNone {
			return struct{}{}, failure(provider.Unsupported, "kill", e.sb.id, "this fake was told not to kill", provider.AppliedNo)
		}
		return struct{}{}, e.kill(ctx, grace, causeKill)
	})
	return err
}

// Wait implements provider.Process.
func (e *execution) Wait(ctx context.Context) (provider.Exit, error) {
	return invoke(ctx, e.sb.p, e.call(MethodWait), func() (provider.Exit, error) {
		select {
		case <-e.ended:
			return e.exit, nil
		case <-ctx.Done():
			return provider.Exit{}, contextError(ctx, "wait", provider.AppliedNo)
		}
	})
}

// terminal is an execution with a TTY.
type terminal struct{ *execution }

// Resize implements provider.Resizer.
func (t terminal) Resize(ctx context.Context, cols, rows uint16) error {
	_, err := invoke(ctx, t.sb.p, t.call(MethodResize), func() (struct{}, error) {
		select {
		case <-t.main.gone:
			return struct{}{}, failure(provider.FailedPrecondition, "resize", t.sb.id, "the command has ended", provider.AppliedNo)
		default:
		}
		t.mu.Lock()
		t.cols, t.rows = cols, rows
		t.mu.Unlock()
		t.main.deliver("WINCH", causeKill)
		return struct{}{}, nil
	})
	return err
}

// settled forgets e when nothing of it lives any more.
func (sb *sandbox) settled(e *execution) {
	select {
	case <-e.ended:
	default:
		return // conclude looks again
	}
	e.mu.Lock()
	live := e.live // counted, not looked for: each of many that end asks
	e.mu.Unlock()
	if live > 0 {
		return
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	delete(sb.execs, e)
}

// spawn adds a task; main starts it.
func (e *execution) spawn(parent *task, run Command, args []string, o SpawnOptions, dir string) (*task, error) {
	pid := e.sb.p.nextPID()
	ctx, cancel := context.WithCancel(context.Background())
	t := &task{e: e, pid: pid, args: args, run: run, dir: dir, holds: o.HoldOutput, ctx: ctx, cancel: cancel,
		gone: make(chan struct{}), traps: map[string]chan struct{}{}}
	t.session = o.NewSession || parent != nil && parent.session
	e.sb.mu.Lock()
	defer e.sb.mu.Unlock()
	switch {
	case e.sb.stat == provider.StateRunning, e.sb.stat == provider.StatePaused && parent != nil:
	case parent != nil: // which killAll is about to reach, and it looks once
		cancel()
		return nil, fmt.Errorf("spawn: %w", context.Canceled)
	default:
		cancel()
		return nil, failure(provider.FailedPrecondition, "exec", e.sb.id, "the sandbox is "+string(e.sb.stat), provider.AppliedNo)
	}
	if parent != nil && parent.ctx.Err() != nil {
		cancel()
		return nil, fmt.Errorf("spawn: %w", context.Canceled)
	}
	if e.sb.pids > 0 {
		n := int64(1)
		for other := range e.sb.execs {
			n += int64(len(other.alive()))
		}
		if n > e.sb.pids {
			cancel()
			return nil, failure(provider.ResourceExhausted, "exec", e.sb.id, "the process limit is reached", provider.AppliedNo)
		}
	}
	e.sb.execs[e] = struct{}{}
	if t.holds {
		e.out.hold()
		if e.err != e.out {
			e.err.hold()
		}
	}
	e.mu.Lock()
	e.tasks = append(e.tasks, t)
	e.live++
	e.mu.Unlock()
	return t, nil
}

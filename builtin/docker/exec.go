package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

const opExec = "exec"

// Exec implements provider.Sandbox.
func (s *sandbox) Exec(ctx context.Context, req provider.ExecRequest) (provider.Process, error) {
	if err := provider.ValidateExec(req); err != nil {
		return nil, ours(err)
	}
	if err := provider.CheckExec(s.p.describe, req); err != nil {
		return nil, ours(err)
	}
	if err := ctx.Err(); err != nil {
		return nil, ctxProblem(opExec, s.name, err, provider.AppliedNo)
	}
	if err := s.live(opExec); err != nil {
		return nil, err
	}
	if s.p.shim == nil {
		return s.execDirect(ctx, req)
	}
	r, err := s.request(ctx, req)
	if err != nil {
		return nil, err
	}
	s.settleLost(ctx)
	id := execID(req.ID)
	conn, err := s.dial(ctx, opExec, shim.ExecArgs(id))
	if err != nil {
		return nil, err
	}
	e, err := shim.Start(ctx, conn, r)
	if err != nil {
		return nil, s.startProblem(ctx, conn, err)
	}
	return &process{s: s, exec: e, id: id, tty: req.TTY}, nil
}

// live refuses what cannot be asked of a sandbox that is gone.
func (s *sandbox) live(op string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return problem(provider.NotFound, op, s.name, "the sandbox is gone")
	case s.id == "":
		return problem(provider.FailedPrecondition, op, s.name, "the sandbox's container is gone; its workspace is there").remedy("resume the session, or destroy it")
	}
	return nil
}

// execID makes an id that the supervisor takes. It is in the engine's events.
func execID(id string) string {
	if shim.ValidID(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// dial starts one mode of the supervisor by an engine exec and returns its input
// and output.
func (s *sandbox) dial(ctx context.Context, op string, args []string) (*hijacked, error) {
	for {
		conn, err := s.dialOnce(ctx, args)
		if err == nil {
			return conn, nil
		}
		// Without a request on its input the supervisor starts nothing.
		if !s.thaws(err) {
			return nil, s.problem(ctx, op, err, provider.AppliedNo)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctxProblem(op, s.name, ctx.Err(), provider.AppliedNo)
		}
	}
}

func (s *sandbox) dialOnce(ctx context.Context, args []string) (*hijacked, error) {
	made, err := s.p.e.ContainerExecCreate(ctx, s.id, container.ExecOptions{
		User: "0:0", WorkingDir: "/", Cmd: args, Env: helperEnv(s.container), AttachStdin: true, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return nil, err
	}
	return hijack(ctx, func() (types.HijackedResponse, error) {
		return s.p.e.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	})
}

func (s *sandbox) dialFiles(ctx context.Context) (io.ReadWriteCloser, error) {
	if err := s.live("files"); err != nil {
		return nil, err
	}
	conn, err := s.dial(ctx, "files", shim.FilesArgs("files-"+randomID()))
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// request turns a request into the supervisor's.
func (s *sandbox) request(ctx context.Context, req provider.ExecRequest) (shim.Request, error) {
	r := shim.Request{
		TTY: req.TTY, Cols: req.Cols, Rows: req.Rows, KillLeftovers: req.KillLeftovers,
		Stdout: req.Stdout, Stderr: req.Stderr, Timeout: req.Timeout, Grace: req.Grace,
		Input: req.Input, LiveInput: req.Stdin == provider.StdinLive,
	}
	invalid := func(what string) error { return problem(provider.InvalidArgument, opExec, s.name, what) }
	user := req.User
	if user == "" {
		user = s.labels[labelUser]
	}
	var err error
	if r.Setup, err = (shim.Workload{User: user}).Setup(); err != nil {
		return r, invalid("the user's name is malformed")
	}
	if r.Args = req.Args; req.Shell != "" {
		r.Args = []string{"sh", "-c", req.Shell}
	}
	r.Dir = s.dirOf(req.Dir)
	if len(r.Dir) > 3000 {
		return r, invalid("the working directory's name is too long")
	}
	env, err := s.environment(ctx, req)
	if err != nil {
		return r, err
	}
	r.Env = env.list()
	size := 0
	for _, v := range r.Env {
		size += len(v) + 1
	}
	for _, a := range r.Args {
		size += len(a) + 1
	}
	if size > wire.MaxSetup {
		for _, v := range r.Env {
			clear(v)
		}
		return r, invalid("arguments and environment are larger than Linux allows")
	}
	return r, nil
}

func (s *sandbox) dirOf(dir string) string {
	if path.IsAbs(dir) {
		return path.Clean(dir)
	}
	return path.Join(s.labels[labelRoot], dir)
}

// environment of a command: the image's, the literals, and what is protected.
func (s *sandbox) environment(ctx context.Context, req provider.ExecRequest) (*environ, error) {
	base, err := s.imageEnv(ctx)
	if err != nil {
		return nil, err
	}
	env := baseEnv(base)
	if req.TTY && !env.has("TERM") {
		env.set("TERM", "xterm")
	}
	created, err := s.createdWith(ctx)
	if err != nil {
		return nil, err
	}
	for k, v := range created.All() {
		if _, literal := req.Env[k]; literal {
			return nil, problem(provider.InvalidArgument, opExec, s.name, k+" is both a literal and protected")
		}
		env.setValue(k, v)
	}
	for k, v := range req.Env {
		env.set(k, v)
	}
	for _, e := range []secret.Env{req.Protected, req.Secrets} {
		for k, v := range e.All() {
			env.setValue(k, v)
		}
	}
	return env, nil
}

// imageEnv is the environment that the image gives.
func (s *sandbox) imageEnv(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	base := s.base
	s.mu.Unlock()
	if base != nil {
		return base, nil
	}
	pic, err := s.p.inspectImage(ctx, s.imageID)
	if err != nil {
		return nil, engineProblem(ctx, opExec, s.name, err, provider.AppliedNo)
	}
	base = pic.env
	if base == nil {
		base = []string{}
	}
	s.mu.Lock()
	s.base = base
	s.mu.Unlock()
	return base, nil
}

// createdWith returns the values of the create transport. A process that did not
// create the sandbox has them from the container's record.
func (s *sandbox) createdWith(ctx context.Context) (secret.Env, error) {
	names := splitList(s.labels[labelProtected])
	s.mu.Lock()
	values, known := s.values, s.known
	s.mu.Unlock()
	if len(names) == 0 || known {
		return values, nil
	}
	info, err := s.inspect(ctx, opExec)
	if err != nil {
		return secret.Env{}, err
	}
	found := map[string]secret.Value{}
	for _, kv := range info.Config.Env {
		k, v, _ := strings.Cut(kv, "=")
		for _, n := range names {
			if n == k {
				found[k] = secret.FromString(v)
			}
		}
	}
	values = secret.NewEnv(found)
	s.mu.Lock()
	s.values, s.known = values, true
	s.mu.Unlock()
	return values, nil
}

// linuxErrno is an error number of Linux, whatever system we run on.
type linuxErrno uint32

const (
	enoent  linuxErrno = 2
	e2big   linuxErrno = 7
	eagain  linuxErrno = 11
	enomem  linuxErrno = 12
	eacces  linuxErrno = 13
	enotdir linuxErrno = 20
	enfile  linuxErrno = 23
	emfile  linuxErrno = 24
)

var errnoTexts = map[linuxErrno]string{
	1: "operation not permitted", enoent: "no such file or directory", e2big: "argument list too long", 8: "exec format error",
	eagain: "resource temporarily unavailable", enomem: "cannot allocate memory", eacces: "permission denied", enotdir: "not a directory",
	enfile: "too many open files in system", emfile: "too many open files", 40: "too many levels of symbolic links",
}

func (e linuxErrno) Error() string {
	if t, ok := errnoTexts[e]; ok {
		return t
	}
	return "error number " + itoa(int(e))
}

func errno(e *shim.StartError) linuxErrno { return linuxErrno(e.Errno) }

// startProblem explains why a command was not started.
func (s *sandbox) startProblem(ctx context.Context, conn *hijacked, err error) error {
	if ctx.Err() != nil {
		return ctxProblem(opExec, s.name, ctx.Err(), provider.AppliedUnknown)
	}
	var start *shim.StartError
	if !errors.As(err, &start) {
		return s.brokeOff(ctx, conn)
	}
	no := errno(start)
	p := func(code provider.Code, what string) *fault { return problem(code, opExec, s.name, what).cause(no) }
	switch start.Stage {
	case wire.StageUser:
		if no == enoent {
			return p(provider.InvalidArgument, "the sandbox has no such user").remedy("use a user of the image, or a numeric id")
		}
		return p(provider.PermissionDenied, "the command cannot run as this user")
	case wire.StageDir:
		if no == enoent || no == enotdir {
			return p(provider.NotFound, "the working directory is not there")
		}
		return p(provider.PermissionDenied, "the working directory cannot be entered")
	case wire.StageExec:
		switch no {
		case enoent, enotdir:
			return p(provider.NotFound, "the command was not found")
		case e2big:
			return p(provider.InvalidArgument, "arguments and environment are larger than Linux allows")
		case enomem, eagain, emfile, enfile:
			return p(provider.ResourceExhausted, "the command cannot be executed now").remedy(moreProcesses)
		}
		return p(provider.PermissionDenied, "the command cannot be executed")
	case wire.StageFork, wire.StageTerminal:
		return p(provider.ResourceExhausted, "no process or terminal can be made").remedy(moreProcesses)
	}
	return p(provider.Internal, "the command could not be confined, and was not started")
}

// moreProcesses is what to do when the kernel has no process or memory to give.
const moreProcesses = "end some of the sandbox's processes, or give it more (resources.pids, resources.memoryMiB)"

// brokeOff explains a stream that ended before the command ran.
func (s *sandbox) brokeOff(ctx context.Context, conn *hijacked) error {
	_, began := conn.explanation()
	info, err := s.inspect(ctx, opExec)
	switch {
	case err != nil:
		return err
	case info.State.Paused:
		return problem(provider.FailedPrecondition, opExec, s.name, "the sandbox is paused").remedy("resume it first").applied(provider.AppliedUnknown)
	case !info.State.Running:
		return problem(provider.FailedPrecondition, opExec, s.name, "the sandbox is stopped").remedy("create another").applied(provider.AppliedUnknown)
	case strings.HasPrefix(began, "OCI runtime"):
		// The engine could not start the supervisor, so nothing was.
		f := problem(provider.Internal, opExec, s.name, "the engine could not start the supervisor").cause(errors.New(strings.TrimSpace(began)))
		if strings.Contains(began, "resource temporarily unavailable") || strings.Contains(began, "cannot allocate memory") {
			f.Code = provider.ResourceExhausted
			f.Remedy = moreProcesses
		}
		return f
	}
	return problem(provider.Lost, opExec, s.name, "the supervisor broke off").applied(provider.AppliedUnknown)
}

// process is one command.
type process struct {
	s    *sandbox
	exec *shim.Exec
	id   string
	tty  bool

	once  sync.Once
	swept chan struct{} // closed when what a lost command left was looked after
	clean bool          // … and is gone
}

// Format implements fmt.Formatter: its id, whatever the verb. Printing
// reads none of the fields that change, and shows none of the request's.
func (p *process) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "docker.Process["+p.id+"]") }

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
		return ctxProblem("signal", p.s.name, err, provider.AppliedNo)
	}
	n := signalNumber(name)
	if n == 0 {
		return problem(provider.InvalidArgument, "signal", p.s.name, "unknown signal").remedy("use a POSIX name without SIG, such as TERM")
	}
	if err := told(ctx, func() error { return p.exec.Signal(n) }); err != nil {
		if ctx.Err() != nil {
			return ctxProblem("signal", p.s.name, ctx.Err(), provider.AppliedUnknown)
		}
		return problem(provider.FailedPrecondition, "signal", p.s.name, "the command has ended")
	}
	return nil
}

// told calls tell, which waits as long as the engine takes nothing, until ctx ends.
func told(ctx context.Context, tell func() error) error {
	done := make(chan error, 1)
	go func() { done <- tell() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	// killPatience is how long beyond the grace a supervisor may take.
	killPatience = 6 * time.Second
	// rootPatience is how long PID 1 may take; its own limit is five seconds.
	rootPatience = 8 * time.Second
)

// Kill implements provider.Process: through the command's supervisor; where that
// does not answer or is gone, through PID 1; and where that does not work either,
// with the whole container.
func (p *process) Kill(ctx context.Context, grace time.Duration) error {
	const op = "kill"
	if err := ctx.Err(); err != nil {
		return ctxProblem(op, p.s.name, err, provider.AppliedNo)
	}
	first, cancel := context.WithTimeout(ctx, max(grace, 0)+p.s.p.killPatience)
	err := p.exec.Kill(first, grace)
	cancel()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctxProblem(op, p.s.name, ctx.Err(), provider.AppliedUnknown)
	}
	info, err := p.s.inspect(ctx, op)
	switch {
	case provider.CodeOf(err) == provider.NotFound:
		return nil // and everything with it
	case err != nil:
		return problem(provider.Lost, op, p.s.name, "the supervisor ended before it confirmed the kill, and the engine does not answer").cause(err).applied(provider.AppliedUnknown).remedy("destroy the sandbox")
	case info.State.Paused:
		return problem(provider.FailedPrecondition, op, p.s.name, "the sandbox is paused: nothing in it can end").remedy("resume it first").applied(provider.AppliedUnknown)
	case !info.State.Running:
		return nil
	}
	if p.s.sweep(ctx, p.id) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctxProblem(op, p.s.name, ctx.Err(), provider.AppliedUnknown)
	}
	return p.s.stop(ctx, op)
}

// sweep has PID 1 kill an exec's supervisor and tree.
func (s *sandbox) sweep(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, s.p.rootPatience)
	defer cancel()
	return s.control(ctx, func(c *shim.Control) error {
		_, err := c.KillExec(ctx, id)
		return err
	})
}

// control asks PID 1 something.
func (s *sandbox) control(ctx context.Context, ask func(*shim.Control) error) error {
	conn, err := s.p.attach(ctx, s.id)
	if err != nil {
		return err
	}
	c := shim.NewControl(conn)
	defer func() { _ = c.Close() }()
	return ask(c)
}

// stop ends the container, and so everything in it.
func (s *sandbox) stop(ctx context.Context, op string) error {
	if err := s.p.e.ContainerKill(ctx, s.id, "KILL"); err != nil && !gone(err) {
		if info, ierr := s.inspect(ctx, op); ierr != nil || info.State.Running {
			return s.problem(ctx, op, err, provider.AppliedUnknown).remedy("destroy the sandbox")
		}
	}
	for {
		info, err := s.inspect(ctx, op)
		if provider.CodeOf(err) == provider.NotFound || (err == nil && !info.State.Running) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctxProblem(op, s.name, ctx.Err(), provider.AppliedUnknown)
		}
	}
}

// Resize implements provider.Resizer.
func (p *process) Resize(ctx context.Context, cols, rows uint16) error {
	if err := ctx.Err(); err != nil {
		return ctxProblem("resize", p.s.name, err, provider.AppliedNo)
	}
	if !p.tty || told(ctx, func() error { return p.exec.Resize(cols, rows) }) != nil {
		if ctx.Err() != nil {
			return ctxProblem("resize", p.s.name, ctx.Err(), provider.AppliedUnknown)
		}
		return problem(provider.FailedPrecondition, "resize", p.s.name, "the command has no terminal, or has ended")
	}
	return nil
}

// Wait implements provider.Process.
func (p *process) Wait(ctx context.Context) (provider.Exit, error) {
	st, err := p.exec.Wait(ctx)
	if err != nil {
		return provider.Exit{}, ctxProblem("wait", p.s.name, err, provider.AppliedNo)
	}
	e := provider.Exit{Code: -1, Merged: p.tty, LeftRunning: int(st.Left), TreeDead: st.TreeDead}
	if st.Signal != 0 {
		e.Signal = signalName(st.Signal)
	}
	switch {
	case st.Lost:
		e.Kind, e.LeftRunning = provider.ExitLost, -1
		if p.lost(ctx) {
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

// lost sees, once, that nothing of a command runs on whose stream broke, and
// reports whether that is certain.
func (p *process) lost(ctx context.Context) bool {
	p.once.Do(func() {
		p.swept = make(chan struct{})
		go func() {
			defer close(p.swept)
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.s.p.rootPatience)
			defer cancel()
			info, err := p.s.inspect(after, "wait")
			switch {
			case provider.CodeOf(err) == provider.NotFound, err == nil && !info.State.Running:
				p.clean = true
			case err == nil && !info.State.Paused:
				p.clean = p.s.sweep(after, p.id) == nil
			}
			if !p.clean {
				p.s.owe(p.id)
			}
		}()
	})
	select {
	case <-p.swept:
		return p.clean
	case <-ctx.Done():
		return false
	}
}

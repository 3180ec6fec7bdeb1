package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/provider"
)

// maxUpfront is the largest complete input: it goes into one request body.
const maxUpfront = 1 << 20

// stdinChunk is the largest piece of live input in one request.
const stdinChunk = 64 << 10

// execSlack is how much longer than its command an exec call may take: for
// polling, and for the plugin's own clean-up.
const execSlack = 30 * time.Second

// noTimeout bounds execs without a deadline; the host has one of its own.
const noTimeout = 24 * time.Hour

// process is one running command of a plugin's sandbox.
type process struct {
	h      *sandboxHandle
	req    provider.ExecRequest
	exec   *egress.Exec
	stdin  *stdinWriter
	cancel context.CancelFunc

	started chan struct{} // closed when the command runs
	once    sync.Once
	named   chan struct{} // closed when the plugin has given the exec a reference
	naming  sync.Once
	onward  chan struct{} // closed when the plugin, told that the command runs, went on to wait for something
	going   sync.Once
	done    chan struct{} // closed when exit and err are set
	exit    provider.Exit
	err     error

	mu       sync.Mutex
	ref      []byte // the plugin's reference of the exec
	killed   bool
	timedOut bool
}

// Format implements fmt.Formatter: the plugin's name, whatever the verb. Printing
// reads none of the fields that change, and shows none of the request's.
func (pr *process) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "plugin.Process["+pr.h.p.desc.Name+"]")
}

// Exec starts a command through the plugin.
func (h *sandboxHandle) Exec(ctx context.Context, q provider.ExecRequest) (provider.Process, error) {
	const op = "exec"
	if err := provider.ValidateExec(q); err != nil {
		return nil, err
	}
	if q.Secrets.Len() > 0 && len(h.p.m.Protected.Exec) == 0 {
		return nil, h.p.refused(provider.Unsupported, op, "the plugin has no protected way to give a command a request's secrets")
	}
	if err := h.p.mayProtect(op, provider.TransportExec, q.Protected.Len() > 0); err != nil {
		return nil, err
	}
	if q.Secrets.Len() > 0 {
		if err := h.p.mayProtect(op, provider.TransportExec, true); err != nil {
			return nil, err
		}
	}
	if q.User != "" && h.p.desc.Features.User == provider.SupportNone {
		return nil, h.p.refused(provider.Unsupported, op, "the plugin cannot choose a user")
	}
	if err := h.p.canDo(op, q); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, h.p.failed(op, err, provider.AppliedNo)
	}
	if q.KillLeftovers {
		// Harmless to miss where each exec is the vendor's own process tree; the
		// description says that execs are not isolated.
		q.KillLeftovers = false
	}
	dir := q.Dir
	if !path.IsAbs(dir) {
		dir = path.Join(h.st.root, dir)
	}
	e := &egress.Exec{
		ID: q.ID, Args: q.Args, Shell: q.Shell, Dir: dir, User: q.User, TimeoutMs: q.Timeout.Milliseconds(),
		Env: q.Env, Protected: q.Protected, Secrets: q.Secrets, Stdout: q.Stdout, Stderr: q.Stderr,
	}
	feed := q.Stdin == provider.StdinUpfront && q.Input != nil && h.p.desc.Exec.Stdin == provider.StdinLive
	if q.Stdin == provider.StdinUpfront && q.Input != nil && !feed {
		data, err := io.ReadAll(io.LimitReader(q.Input, maxUpfront+1))
		if err != nil {
			return nil, h.p.failed(op, errors.New("reading the command's input failed"), provider.AppliedNo)
		}
		if len(data) > maxUpfront {
			return nil, h.p.refused(provider.InvalidArgument, op, "the input is larger than 1 MiB, the most this provider takes at once")
		}
		e.Input = data
	}
	h.st.net.Arm(q.Protected)
	h.st.net.Arm(q.Secrets)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	pr := &process{h: h, req: q, exec: e, cancel: cancel, started: make(chan struct{}), named: make(chan struct{}), onward: make(chan struct{}), done: make(chan struct{})}
	if q.Stdin == provider.StdinLive {
		pr.stdin = &stdinWriter{pr: pr, ctx: run}
	}
	go pr.run(run)
	if feed {
		go pr.feed(run, q.Input)
	}
	select {
	case <-pr.started:
		return pr, nil
	case <-pr.done:
		if pr.err != nil {
			return nil, pr.err
		}
		return pr, nil
	case <-ctx.Done():
		cancel()
		<-pr.done
		if pr.err == nil {
			return pr, nil // it was over before we could stop it
		}
		return nil, h.p.failed(op, ctx.Err(), provider.AppliedOf(pr.err))
	}
}

// canDo refuses what the approved manifest has no place for; nothing is left out
// in silence.
func (p *Plugin) canDo(op string, q provider.ExecRequest) error {
	switch {
	case q.Stdin == provider.StdinLive && p.desc.Exec.Stdin != provider.StdinLive:
		return p.refused(provider.Unsupported, op, "the plugin cannot give a running command input")
	case q.Stdin == provider.StdinUpfront && p.desc.Exec.Stdin == provider.StdinNone:
		return p.refused(provider.Unsupported, op, "the plugin cannot give a command input")
	case q.TTY && !p.desc.Exec.TTY:
		return p.refused(provider.Unsupported, op, "the plugin cannot make a terminal")
	case len(q.Env) > 0 && !p.takesLiterals():
		return p.refused(provider.Unsupported, op, "the plugin cannot set variables for one command; put them into the manifest")
	}
	return nil
}

// takesLiterals reports whether an exec route has a place for the literals of
// one command.
func (p *Plugin) takesLiterals() bool {
	for _, r := range p.m.Routes {
		for _, s := range r.Request.Slots {
			if s.From == "exec.environment" || s.From == "exec.line" {
				return true
			}
		}
	}
	return p.m.Kind == "plugin-driven"
}

// feed sends complete input piece by piece, where the vendor takes live input
// only. A command that does not read it is no failure.
func (pr *process) feed(ctx context.Context, input io.Reader) {
	select {
	case <-pr.started:
	case <-pr.done:
		return
	}
	w := &stdinWriter{pr: pr, ctx: ctx}
	_, _ = io.CopyBuffer(w, struct{ io.Reader }{input}, make([]byte, stdinChunk)) // it may have ended, or closed its input
	_ = w.Close()                                                                 // as above
}

func (pr *process) document() abi.Exec {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	e := abi.Exec{ID: pr.req.ID, Ref: abi.Raw(pr.ref), TTY: pr.req.TTY, Cols: int64(pr.req.Cols), Rows: int64(pr.req.Rows), Stdin: string(pr.req.Stdin), TimeoutMs: pr.req.Timeout.Milliseconds()}
	return e
}

// run carries the exec operation out.
func (pr *process) run(ctx context.Context) {
	defer close(pr.done)
	defer pr.cancel()
	p, st := pr.h.p, pr.h.st
	net := p.broker.Call(egress.CallConfig{Op: abi.OpExec, Session: st.net, Exec: pr.exec, Started: pr.markStarted})
	defer net.Close()
	ref, sandbox := st.snapshot()
	req := abi.ExecRequest{Session: st.session, Config: p.settings(), Ref: ref, Sandbox: sandbox, Exec: pr.document()}
	c := &call{net: net, scan: st.net.Find, goesOn: pr.goesOn}
	c.checkpoint = func(kind int32, ref []byte) error {
		if kind == 0 {
			return st.keep(net, ref)
		}
		if err := checkRef(net, ref); err != nil {
			return err
		}
		pr.mu.Lock()
		pr.ref = bytes.Clone(ref)
		pr.mu.Unlock()
		pr.naming.Do(func() { close(pr.named) })
		pr.markStarted()
		return nil
	}
	if p.m.Kind == "plugin-driven" {
		pr.driven(&req, net, c)
	}
	limit := pr.req.Timeout + execSlack
	if pr.req.Timeout == 0 {
		limit = noTimeout
	}
	stop := pr.watch(ctx)
	var reply abi.ExecReply
	err := p.run(ctx, "exec", abi.OpExec, &req, &reply, c, limit)
	stop()
	pr.finish(reply, err, net)
}

// driven adds what only a plugin-driven plugin is told and may do.
func (pr *process) driven(req *abi.ExecRequest, net *egress.Call, c *call) {
	q := pr.req
	req.Exec.Args, req.Exec.Shell, req.Exec.Dir, req.Exec.User = q.Args, q.Shell, pr.exec.Dir, q.User
	names := make([]string, 0, len(q.Env))
	for n := range q.Env {
		names = append(names, n)
	}
	names = append(append(names, q.Protected.Names()...), q.Secrets.Names()...)
	req.Exec.Env = &abi.EnvHandle{Handle: net.NewHandle(), Names: sortedUnique(names)}
	c.emit = func(stream int32, data []byte) error {
		w := map[int32]io.Writer{1: q.Stdout, 2: q.Stderr}[stream]
		if w == nil {
			return &egress.Failure{Errno: abi.ErrnoInvalid, Detail: "no such stream"}
		}
		pr.markStarted()
		_, _ = w.Write(data) // a caller that stopped reading drops the rest
		return nil
	}
}

// nameWait is how long an operation on a command that has just started waits for
// the plugin to say how it is called, from when the plugin went on without saying:
// a plugin need not name its commands. How long it takes to get there says nothing,
// where the machine is busy; slowName bounds it.
const (
	nameWait = time.Second
	slowName = 30 * time.Second
)

func (pr *process) awaitName(ctx context.Context) {
	for _, w := range []struct {
		until <-chan struct{}
		most  time.Duration
	}{{pr.onward, slowName}, {nil, nameWait}} {
		t := time.NewTimer(w.most)
		select {
		case <-w.until:
			t.Stop()
			continue
		case <-pr.named:
		case <-pr.done:
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		return
	}
}

// goesOn is told of each import with which the plugin waits for something.
func (pr *process) goesOn() {
	select {
	case <-pr.started:
		pr.going.Do(func() { close(pr.onward) })
	default:
	}
}

func (pr *process) markStarted() { pr.once.Do(func() { close(pr.started) }) }

// watch kills the command at its deadline.
func (pr *process) watch(ctx context.Context) (stop func()) {
	if pr.req.Timeout <= 0 {
		return func() {}
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		t := time.NewTimer(pr.req.Timeout)
		defer t.Stop()
		select {
		case <-quit:
			return
		case <-ctx.Done():
			return
		case <-t.C:
		}
		pr.mu.Lock()
		pr.timedOut = true
		pr.mu.Unlock()
		kill, cancel := context.WithTimeout(ctx, pr.req.Grace+5*time.Second)
		defer cancel()
		if pr.stopTree(kill, pr.req.Grace, quit) != nil {
			pr.cancel()
		}
	}()
	return func() { close(quit); wg.Wait() }
}

// finish turns the operation's end into the command's.
func (pr *process) finish(reply abi.ExecReply, err error, net *egress.Call) {
	pr.mu.Lock()
	timedOut, killed := pr.timedOut, pr.killed
	pr.mu.Unlock()
	started := false
	select {
	case <-pr.started:
		started = true
	default:
	}
	lost := provider.Exit{Kind: provider.ExitLost, Code: -1, LeftRunning: -1, Merged: pr.h.p.desc.Exec.Stderr == provider.StderrMerged}
	switch {
	case err != nil && !started && provider.AppliedOf(err) == provider.AppliedNo:
		pr.err = err
		return
	case err != nil || net.Truncated():
		pr.exit = lost
		if timedOut {
			pr.exit.Kind = provider.ExitTimedOut
		}
		pr.logLost(err)
		return
	}
	pr.exit = lost
	if pr.h.p.sendsCommands() && (!net.Begun() || net.Unfinished()) {
		// The plugin's word on how a command ended counts only where the host
		// sent it, and saw its output to the end.
		if !net.Begun() && net.Applied() == provider.AppliedNo {
			pr.err = pr.h.p.failed("exec", &ABIViolation{What: "exec ended without sending the command"}, provider.AppliedNo)
		}
		if timedOut {
			pr.exit.Kind = provider.ExitTimedOut
		}
		return
	}
	switch kind := provider.ExitKind(reply.Status); kind {
	case provider.ExitExited:
		if reply.ExitCode < 0 || reply.ExitCode > 255 {
			return
		}
		pr.exit.Kind, pr.exit.Code = kind, int(reply.ExitCode)
	case provider.ExitSignaled, provider.ExitKilled, provider.ExitTimedOut:
		pr.exit.Kind, pr.exit.Signal = kind, reply.Signal
		if _, hit := pr.h.st.net.Find(reply.Signal); hit || len(reply.Signal) > 16 {
			pr.exit.Signal = ""
		}
	}
	switch {
	case timedOut:
		pr.exit.Kind, pr.exit.Code = provider.ExitTimedOut, -1
	case killed && pr.exit.Kind == provider.ExitSignaled:
		pr.exit.Kind = provider.ExitKilled
	}
}

// sendsCommands reports whether it is the host that writes the request which
// starts a command.
func (p *Plugin) sendsCommands() bool {
	if p.m.Kind != spec.Sealed {
		return false
	}
	for _, r := range p.m.Routes {
		if r.Role == spec.RoleExec {
			return true
		}
	}
	return false
}

func (pr *process) logLost(err error) {
	if err != nil {
		pr.h.p.log.Warn("the outcome of a command is not known", "plugin", pr.h.p.m.Name, "code", string(provider.CodeOf(err)))
	}
}

// Stdin returns the command's live input.
func (pr *process) Stdin() io.WriteCloser {
	if pr.stdin == nil {
		return nil
	}
	return pr.stdin
}

// Signal sends a signal through the plugin.
func (pr *process) Signal(ctx context.Context, name string) error {
	if pr.h.p.desc.Exec.Kill == provider.KillNone {
		return pr.h.p.refused(provider.Unsupported, "signal", "the plugin cannot signal commands")
	}
	if !knownSignal(name) {
		return pr.h.p.refused(provider.InvalidArgument, "signal", "there is no such signal; give its POSIX name without SIG")
	}
	select {
	case <-pr.done:
		return pr.h.p.refused(provider.FailedPrecondition, "signal", "the command has ended")
	default:
	}
	pr.awaitName(ctx)
	pr.mu.Lock()
	pr.killed = true
	pr.mu.Unlock()
	st := pr.h.st
	net := pr.h.p.broker.Call(egress.CallConfig{Op: abi.OpSignal, Session: st.net, Exec: pr.exec})
	defer net.Close()
	ref, sandbox := st.snapshot()
	req := abi.SignalRequest{Session: st.session, Config: pr.h.p.settings(), Ref: ref, Sandbox: sandbox, Exec: pr.document(), Signal: name}
	return pr.h.p.run(ctx, "signal", abi.OpSignal, &req, &abi.Empty{}, &call{net: net, scan: st.net.Find}, 0)
}

// Kill ends the command: TERM, grace, KILL. It returns nil only when the vendor
// reported the command's end.
func (pr *process) Kill(ctx context.Context, grace time.Duration) error {
	if pr.h.p.desc.Exec.Kill == provider.KillNone {
		return pr.stopTree(ctx, grace, nil)
	}
	select {
	case <-pr.done:
		return nil
	default:
	}
	return pr.stopTree(ctx, grace, nil)
}

func (pr *process) stopTree(ctx context.Context, grace time.Duration, quit <-chan struct{}) error {
	if pr.h.p.desc.Exec.Kill == provider.KillNone {
		pr.cancel()
		return pr.h.p.refused(provider.Unsupported, "kill", "the plugin cannot kill commands; the command may go on in the sandbox")
	}
	termErr := error(nil)
	if grace > 0 {
		termErr = pr.Signal(ctx, "TERM")
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-pr.done:
			return nil
		case <-quit:
			return nil
		case <-ctx.Done():
			return pr.h.p.failed("kill", ctx.Err(), provider.AppliedUnknown)
		case <-t.C:
		}
	}
	if err := pr.Signal(ctx, "KILL"); err != nil && provider.CodeOf(err) != provider.FailedPrecondition && provider.CodeOf(err) != provider.NotFound {
		return errors.Join(err, termErr)
	}
	select {
	case <-pr.done:
		return nil
	case <-quit:
		return nil
	case <-ctx.Done():
		return pr.h.p.failed("kill", ctx.Err(), provider.AppliedUnknown)
	}
}

// Wait blocks until the command has ended.
func (pr *process) Wait(ctx context.Context) (provider.Exit, error) {
	select {
	case <-pr.done:
		return pr.exit, nil
	default:
	}
	select {
	case <-pr.done:
		return pr.exit, nil
	case <-ctx.Done():
		return provider.Exit{}, pr.h.p.failed("wait", ctx.Err(), provider.AppliedUnknown)
	}
}

// Resize sets the terminal's size.
func (pr *process) Resize(ctx context.Context, cols, rows uint16) error {
	st := pr.h.st
	net := pr.h.p.broker.Call(egress.CallConfig{Op: abi.OpResize, Session: st.net, Exec: pr.exec})
	defer net.Close()
	ref, sandbox := st.snapshot()
	req := abi.ResizeRequest{Session: st.session, Config: pr.h.p.settings(), Ref: ref, Sandbox: sandbox, Exec: pr.document(), Cols: int64(cols), Rows: int64(rows)}
	return pr.h.p.run(ctx, "resize", abi.OpResize, &req, &abi.Empty{}, &call{net: net, scan: st.net.Find}, 0)
}

// stdinWriter sends each piece of input in an operation of its own.
type stdinWriter struct {
	pr     *process
	ctx    context.Context //nolint:containedctx // an io.Writer has nowhere else to take it from
	mu     sync.Mutex
	closed bool
}

// Write delivers p and returns when the vendor has taken it.
func (w *stdinWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, io.ErrClosedPipe
	}
	n := 0
	for n < len(b) {
		if w.ended() {
			return n, io.ErrClosedPipe
		}
		chunk := b[n:min(n+stdinChunk, len(b))]
		if err := w.send(chunk, false); err != nil {
			return n, err
		}
		n += len(chunk)
	}
	return n, nil
}

// Close is the command's end of file.
func (w *stdinWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	if w.ended() {
		return nil
	}
	return w.send(nil, true)
}

func (w *stdinWriter) ended() bool {
	select {
	case <-w.pr.done:
		return true
	default:
		return false
	}
}

func (w *stdinWriter) send(chunk []byte, eof bool) error {
	pr, st := w.pr, w.pr.h.st
	pr.awaitName(w.ctx)
	e := *pr.exec
	e.Input = chunk
	net := pr.h.p.broker.Call(egress.CallConfig{Op: abi.OpInput, Session: st.net, Exec: &e})
	defer net.Close()
	ref, sandbox := st.snapshot()
	req := abi.InputRequest{Session: st.session, Config: pr.h.p.settings(), Ref: ref, Sandbox: sandbox, Exec: pr.document(), EOF: eof}
	err := pr.h.p.run(w.ctx, "input", abi.OpInput, &req, &abi.Empty{}, &call{net: net, scan: st.net.Find}, 0)
	if err != nil && w.ctx.Err() != nil {
		// The command ended meanwhile, perhaps because of this input and before
		// the vendor's answer came: as with a pipe, what was on its way is taken.
		<-pr.done
		return nil
	}
	return err
}

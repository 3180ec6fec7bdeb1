package daytona

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// terminal is a command with a terminal of its own.
//
// The terminal's environment would be shown by the service, so it has none of
// ours. Its shell becomes a script that reads the command's environment from a
// pipe in the sandbox; a request like any command's, with the values in envs,
// writes it there.
type terminal struct {
	sb   *sandbox
	req  provider.ExecRequest
	run  runner
	conn ptyConn
	beat func()

	ctx    context.Context
	cancel context.CancelFunc
	begun  chan string // what the script said first: "go", or why not
	done   chan struct{}
	exit   provider.Exit

	mu   sync.Mutex
	why  provider.ExitKind
	sent string
	dead bool // Kill found nothing of it left
}

// Format implements fmt.Formatter: a fixed word, whatever the verb. Printing
// reads none of the fields that change.
func (t *terminal) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "daytona.Process") }

// startPatience bounds how long a terminal may take to begin its command.
const startPatience = 30 * time.Second

func (sb *sandbox) startTTY(ctx context.Context, req provider.ExecRequest) (provider.Process, error) {
	r := runner{tag: random(), dir: sb.dir(req.Dir), args: req.Args, shell: req.Shell, old: sb.old, env: req.Env, tty: true}
	t := &terminal{sb: sb, req: req, run: r, begun: make(chan string, 1), done: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	out, err := sb.helper(ctx, helper{op: "exec", subject: sb.id, again: true, script: `[ -d ` + base + ` ] || mkdir -m 700 -- ` + base + `
rm -f ` + file(r.tag, "env") + `; mkfifo -m 600 ` + file(r.tag, "env") + ` && echo made`})
	if err == nil && !strings.Contains(out, "made") {
		err = problem(provider.FailedPrecondition, "exec", sb.id, "the sandbox's "+base+" cannot be used")
	}
	if err == nil {
		if upErr := sb.box.Upload(ctx, file(r.tag, "tty"), []byte(r.ttyScript())); upErr != nil {
			err = sb.explain(ctx, "exec", sb.id, upErr, provider.AppliedNo)
		}
	}
	if err != nil {
		t.cancel()
		var f *fault
		if asFault(err, &f) {
			f.Applied = provider.AppliedNo
		}
		return nil, err
	}
	cols, rows := size(req.Cols, 80), size(req.Rows, 24)
	if err := sb.box.CreatePTY(ctx, r.tag, "/", cols, rows); err != nil {
		f := sb.explain(ctx, "exec", sb.id, err, provider.AppliedNo) // a terminal without a command
		t.end()
		return nil, f
	}
	if t.conn, err = sb.box.ConnectPTY(ctx, r.tag); err != nil {
		f := sb.explain(ctx, "exec", sb.id, err, provider.AppliedNo)
		f.Applied = provider.AppliedNo
		t.end()
		return nil, f
	}
	t.beat = sb.beat.begin()
	if err := t.begin(ctx); err != nil {
		t.beat()
		t.conn.Close()
		t.end()
		return nil, err
	}
	return t, nil
}

// size keeps a terminal's size within what the service takes.
func size(n, otherwise uint16) uint16 {
	if n == 0 {
		return otherwise
	}
	return min(n, 1000)
}

// ttyScript is what the terminal's shell becomes.
func (r runner) ttyScript() string {
	var b strings.Builder
	w := func(parts ...string) { b.WriteString(strings.Join(parts, "") + "\n") }
	w(`_sbx_say() { printf '\n%s %s\n' `, r.mark(), ` "$*"; exit 0; }`)
	if r.old {
		for k, v := range r.env {
			w(`export `, k, `=`, quote(v))
		}
		w(`export `, markName, `=`, r.tag)
	} else {
		w(`. `, file(r.tag, "env"))
	}
	w(`[ "${`, markName, `-}" = `, r.tag, ` ] || _sbx_say `, saidNoEnvs)
	w(`set -C`)
	// No process id: the command takes this one, and must not be spared.
	w(`if printf tty 2>/dev/null >`, file(r.tag, "run"), `; then :; else _sbx_say `, saidAgain, `; fi`)
	w(`set +C`)
	r.commandLine(w)
	w(`printf '%s' "$$" >`, file(r.tag, "pid"))
	w(`printf '\n%s go\n' `, r.mark())
	w(`exec "$@"`)
	return b.String()
}

// begin has the shell become the script, gives it the environment, and waits for
// its first word.
func (t *terminal) begin(ctx context.Context) error {
	go t.read()
	if err := t.conn.Write(ctx, []byte(" exec /bin/sh "+file(t.run.tag, "tty")+"\n")); err != nil {
		return problem(provider.Unavailable, "exec", t.sb.id, "the terminal does not take input")
	}
	given := make(chan error, 1)
	if !t.run.old {
		go func() { given <- t.give() }()
	}
	limit := startPatience
	if t.req.Timeout > 0 {
		limit = min(limit, t.req.Timeout) // not begun at its deadline, it must not begin any more
	}
	patience := time.NewTimer(limit)
	defer patience.Stop()
	for {
		select {
		case err := <-given:
			if err != nil {
				return err
			}
			given = nil
		case word := <-t.begun:
			return t.judge(word)
		case <-t.done:
			select {
			case word := <-t.begun:
				return t.judge(word)
			default:
			}
			return problem(provider.Lost, "exec", t.sb.id, "the terminal broke, and whether the command was started is not known").applied(t.applied())
		case <-ctx.Done():
			return ctxProblem("exec", t.sb.id, ctx.Err(), t.applied())
		case <-patience.C:
			return problem(provider.DeadlineExceeded, "exec", t.sb.id, "the terminal did not start the command").applied(t.applied())
		}
	}
}

func (t *terminal) judge(word string) error {
	switch word {
	case "go":
		return nil
	case saidNoEnvs:
		return t.sb.refuseEnvs("exec")
	case saidNoDir:
		return problem(provider.NotFound, "exec", t.sb.id, "the working directory is not there")
	case saidNoEnt:
		return problem(provider.NotFound, "exec", t.sb.id, "the command is not there")
	case saidNoExec:
		return problem(provider.PermissionDenied, "exec", t.sb.id, "the command cannot be executed")
	}
	return problem(provider.FailedPrecondition, "exec", t.sb.id, "the terminal could not start the command")
}

// applied makes sure that the command does not begin any more, if it can.
func (t *terminal) applied() provider.Applied {
	p := &process{sb: t.sb, run: t.run, ctx: t.ctx}
	if p.tombstone() == neverStarted {
		return provider.AppliedNo
	}
	return provider.AppliedUnknown
}

// give writes the environment into the pipe. The shell that writes it is the one
// that reads it, so that both quote alike.
func (t *terminal) give() error {
	env := maps.Clone(t.req.Env)
	if env == nil {
		env = map[string]string{}
	}
	env[markName] = t.run.tag
	script := `{ [ "${` + markName + `-}" = ` + t.run.tag + ` ] || exit 9
/bin/sh -c 'export -p' >` + file(t.run.tag, "env") + `
} </dev/null`
	ctx, cancel := context.WithTimeout(t.ctx, startPatience)
	defer cancel()
	res, err := t.sb.box.Execute(ctx, executeRequest{script: script, env: env, values: []secret.Env{t.req.Protected, t.req.Secrets}, timeout: startPatience})
	switch {
	case err != nil:
		f := t.sb.explain(ctx, "exec", t.sb.id, err, provider.AppliedUnknown)
		f.Applied = t.applied()
		return f
	case res.exited && res.code == 9:
		return t.sb.refuseEnvs("exec")
	}
	return nil
}

// frames is how much output is kept for a caller that is slow: the service drops
// a client that does not read.
const frames = 4096

// read takes what the terminal prints, drops everything up to the script's first
// word, and delivers the rest.
func (t *terminal) read() {
	queue := make(chan []byte, frames)
	var end error
	go func() {
		defer close(queue)
		for {
			data, err := t.conn.Read(t.ctx)
			if err != nil {
				end = err
				return
			}
			select {
			case queue <- data:
			case <-t.ctx.Done():
				end = t.ctx.Err()
				return
			}
		}
	}()
	var before []byte
	started := false
	to := t.req.Stdout
	deliver := func(data []byte) {
		if to != nil && len(data) > 0 {
			if _, err := to.Write(data); err != nil {
				to = nil
			}
		}
	}
	mark := []byte("\n" + t.run.mark() + " ")
	for data := range queue {
		if started {
			deliver(data)
			continue
		}
		before = append(before, data...)
		_, rest, ok := bytes.Cut(before, mark)
		if i := bytes.IndexByte(rest, '\n'); ok && i >= 0 {
			word := strings.TrimRight(string(rest[:i]), "\r")
			started = word == "go"
			t.begun <- word
			deliver(rest[i+1:])
			before = nil
			if !started {
				break
			}
			go t.feed()
			if t.req.Timeout > 0 {
				go t.deadline()
			}
		} else if keep := 64 << 10; len(before) > keep {
			before = bytes.Clone(before[len(before)-keep/2:])
		}
	}
	for range queue { // the word was a refusal
	}
	t.settle(end, started)
}

// feed gives the terminal an input that was complete before the start.
func (t *terminal) feed() {
	if t.req.Stdin != provider.StdinUpfront {
		return
	}
	in := t.keys()
	if _, err := io.Copy(in, t.req.Input); err == nil {
		_ = in.Close()
	}
}

func (t *terminal) deadline() {
	timer := time.NewTimer(t.req.Timeout)
	defer timer.Stop()
	select {
	case <-t.done:
		return
	case <-timer.C:
	}
	t.because(provider.ExitTimedOut, "KILL")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.req.Grace+1500*time.Millisecond)
	defer cancel()
	_ = t.sb.killAll(ctx, t.run.tag, t.req.Grace)
	_ = t.sb.box.DeletePTY(ctx, t.run.tag)
	select {
	case <-t.done:
	case <-time.After(300 * time.Millisecond):
		t.cancel()
	}
}

func (t *terminal) because(why provider.ExitKind, signal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why == "" || why == provider.ExitTimedOut {
		t.why = why
	}
	t.sent = signal
}

// settle makes the exit of the connection's end.
func (t *terminal) settle(err error, started bool) {
	t.mu.Lock()
	why, sent, dead := t.why, t.sent, t.dead
	t.mu.Unlock()
	t.exit = provider.Exit{Kind: provider.ExitLost, Code: -1, Merged: true, LeftRunning: -1}
	var end *ptyEnd
	known := errors.As(err, &end) && end.Code != nil && started
	switch {
	case why == provider.ExitTimedOut:
		t.exit.Kind, t.exit.Signal = why, "KILL"
	case known && strings.HasPrefix(end.Reason, "SIG"):
		t.exit.Kind, t.exit.Signal = provider.ExitSignaled, strings.TrimPrefix(end.Reason, "SIG")
		if why == provider.ExitKilled {
			t.exit.Kind = why
		}
	case known && why == provider.ExitKilled && signalOf(*end.Code) != "":
		t.exit.Kind, t.exit.Signal = why, signalOf(*end.Code)
	case known && *end.Code >= 0 && *end.Code <= 255:
		t.exit.Kind, t.exit.Code = provider.ExitExited, *end.Code
	case why == provider.ExitKilled && dead: // a signal that was sent proves no end
		t.exit.Kind, t.exit.Signal = why, sent
	}
	if t.beat != nil {
		t.beat()
	}
	close(t.done)
	t.conn.Close()
	if started {
		go t.end()
	}
}

// end removes the terminal and its files.
func (t *terminal) end() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), 10*time.Second)
	defer cancel()
	t.cancel()
	_ = t.sb.box.DeletePTY(ctx, t.run.tag)
	p := &process{sb: t.sb, run: t.run, ctx: t.ctx}
	// Whoever still wants to write into the pipe is let go.
	_, _ = t.sb.helper(ctx, helper{op: "exec", again: true, timeout: 10 * time.Second, script: `[ ! -p ` + file(t.run.tag, "env") + ` ] || exec 3<>` + file(t.run.tag, "env")})
	p.cleanUp()
}

// Stdin implements provider.Process.
func (t *terminal) Stdin() io.WriteCloser {
	if t.req.Stdin != provider.StdinLive {
		return nil
	}
	return t.keys()
}

// keys is the terminal's input, whoever writes to it.
func (t *terminal) keys() io.WriteCloser { return &keyboard{t} }

type keyboard struct{ t *terminal }

// Write sends at most as much at a time as the service takes.
func (k *keyboard) Write(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		part := b[n:min(len(b), n+32<<10)]
		if err := k.t.conn.Write(k.t.ctx, part); err != nil {
			return n, io.ErrClosedPipe
		}
		n += len(part)
	}
	return n, nil
}

// Close types the end-of-file character.
func (k *keyboard) Close() error {
	_, _ = k.Write([]byte{4})
	return nil
}

// Resize implements provider.Resizer.
func (t *terminal) Resize(ctx context.Context, cols, rows uint16) error {
	select {
	case <-t.done:
		return problem(provider.FailedPrecondition, "resize", t.sb.id, "the command has ended")
	default:
	}
	if err := t.sb.box.ResizePTY(ctx, t.run.tag, size(cols, 80), size(rows, 24)); err != nil {
		if s := statusOf(err); s == 410 || s == 404 {
			return problem(provider.FailedPrecondition, "resize", t.sb.id, "the command has ended")
		}
		return t.sb.explain(ctx, "resize", t.sb.id, err, provider.AppliedUnknown)
	}
	return nil
}

// Signal implements provider.Process.
func (t *terminal) Signal(ctx context.Context, name string) error {
	if _, ok := signalNumber(name); !ok {
		return problem(provider.InvalidArgument, "signal", t.sb.id, "there is no such signal").remedy("use a name without SIG, such as TERM")
	}
	ended := problem(provider.FailedPrecondition, "signal", t.sb.id, "the command has ended")
	select {
	case <-t.done:
		return ended
	default:
	}
	t.because(provider.ExitKilled, name)
	out, err := t.sb.helper(ctx, helper{op: "signal", subject: t.sb.id, script: `p=$(cat ` + file(t.run.tag, "pid") + `) && [ -n "$p" ] && kill -s ` + name + ` "$p" && echo sent`})
	if err != nil {
		return err
	}
	if !strings.Contains(out, "sent") {
		return ended
	}
	return nil
}

// Kill implements provider.Process.
func (t *terminal) Kill(ctx context.Context, grace time.Duration) error {
	if ctx.Err() != nil {
		return ctxProblem("kill", t.sb.id, ctx.Err(), provider.AppliedNo)
	}
	t.because(provider.ExitKilled, "KILL")
	if err := t.sb.killAll(ctx, t.run.tag, grace); err != nil {
		return err
	}
	t.mu.Lock()
	t.dead = true
	t.mu.Unlock()
	_ = t.sb.box.DeletePTY(ctx, t.run.tag) // what cleared its environment loses its terminal
	select {
	case <-t.done:
	case <-time.After(2 * time.Second):
		t.cancel()
	}
	return nil
}

// Wait implements provider.Process.
func (t *terminal) Wait(ctx context.Context) (provider.Exit, error) {
	select {
	case <-t.done:
		return t.exit, nil
	default:
	}
	select {
	case <-t.done:
		return t.exit, nil
	case <-ctx.Done():
		return provider.Exit{}, ctxProblem("wait", t.sb.id, ctx.Err(), provider.AppliedNo)
	}
}

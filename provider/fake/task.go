package fake

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// signals that a process can be sent.
var signals = []string{"HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "PIPE", "ALRM", "TERM", "CHLD", "CONT", "WINCH"}

// harmless signals do nothing to a process that does not trap them.
var harmless = []string{"CHLD", "CONT", "WINCH"}

// Command is a program of the fake. It returns the exit code. Its context ends
// when the process is killed; it must return soon after. A panic in it is not
// caught.
type Command func(ctx context.Context, p *Proc) int

// task is one process: a goroutine that runs a Command.
type task struct {
	e       *execution
	pid     int
	args    []string
	run     Command
	dir     string
	holds   bool // holds the output streams
	session bool // left the command's session
	ctx     context.Context
	cancel  context.CancelFunc
	gone    chan struct{} // closed when the function has returned

	mu     sync.Mutex
	traps  map[string]chan struct{}
	signal string // what killed it
	cause  cause
	code   int
}

func (t *task) main() {
	defer t.end()
	t.code = 1 // of a command that ends its goroutine
	t.code = t.run(t.ctx, &Proc{t: t, Args: t.args, Dir: t.dir})
}

func (t *task) end() {
	t.cancel()
	// gone first: a child that still holds the streams is then known to be dead
	// when the streams end.
	close(t.gone)
	t.e.mu.Lock()
	t.e.live--
	t.e.mu.Unlock()
	if t.holds {
		t.e.out.release()
		if t.e.err != t.e.out {
			t.e.err.release()
		}
	}
	t.e.sb.settled(t.e)
}

// deliver sends a signal: to the trap, or with its default effect.
func (t *task) deliver(name string, why cause) {
	t.mu.Lock()
	trap, trapped := t.traps[name]
	t.mu.Unlock()
	switch {
	case name == "KILL":
	case trapped:
		select {
		case trap <- struct{}{}:
		default: // one is pending, as with real signals
		}
		return
	case slices.Contains(harmless, name):
		return
	}
	t.die(name, why)
}

// die kills the process. The first death counts.
func (t *task) die(name string, why cause) {
	t.mu.Lock()
	if t.signal == "" {
		t.signal, t.cause = name, why
	}
	t.mu.Unlock()
	t.cancel()
	t.e.wake()
}

// wake makes every blocked process of the execution look whether it lives.
func (e *execution) wake() {
	if e.in != nil {
		e.in.wake()
	}
	e.out.wake()
	e.err.wake()
	e.sb.mu.Lock()
	e.sb.cond.Broadcast()
	e.sb.mu.Unlock()
}

func (t *task) living() bool { return t.ctx.Err() == nil }

func (t *task) why() cause {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cause
}

// exit says how the task ended, once it has.
func (t *task) exit() provider.Exit {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.cause {
	case causeNone:
		return provider.Exit{Kind: provider.ExitExited, Code: t.code & 0xff}
	case causeTimeout:
		return provider.Exit{Kind: provider.ExitTimedOut, Code: -1, Signal: t.signal}
	case causeSelf:
		return provider.Exit{Kind: provider.ExitSignaled, Code: -1, Signal: t.signal}
	}
	return provider.Exit{Kind: provider.ExitKilled, Code: -1, Signal: t.signal}
}

// unpaused blocks while the sandbox is paused and the process lives.
func (t *task) unpaused() {
	sb := t.e.sb
	sb.mu.Lock()
	defer sb.mu.Unlock()
	for sb.stat == provider.StatePaused && t.living() {
		sb.cond.Wait()
	}
}

// Proc is what a Command sees of its process.
type Proc struct {
	t *task
	// Args, Args[0] being the command's name.
	Args []string
	// Dir is the working directory, an absolute path in the sandbox.
	Dir string
}

// Format implements fmt.Formatter: the command's name and the process's number,
// whatever the verb. See [sandbox.Format].
func (p *Proc) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "fake.Proc[%q %d]", p.Args[:min(1, len(p.Args))], p.t.pid)
}

// PID of the process, unique in its provider.
func (p *Proc) PID() int { return p.t.pid }

// Getenv returns an environment variable as the workload sees it. A command is
// the workload: it may get protected values.
func (p *Proc) Getenv(name string) (string, bool) {
	v, ok := p.t.e.env.Get(name)
	if !ok {
		return "", false
	}
	return string(v.Reveal()), true
}

// Env returns the whole environment.
func (p *Proc) Env() secret.Env { return p.t.e.env }

// User is the user the command runs as, "" for the default.
func (p *Proc) User() string {
	if p.t.e.req.User != "" {
		return p.t.e.req.User
	}
	return p.t.e.sb.user
}

// TTY reports whether the command has a terminal, and its size.
func (p *Proc) TTY() (cols, rows uint16, ok bool) {
	e := p.t.e
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cols, e.rows, e.req.TTY
}

// Stdin returns the standard input. It ends when the process is killed.
func (p *Proc) Stdin() io.Reader { return taskInput{p.t} }

type taskInput struct{ t *task }

func (i taskInput) Read(b []byte) (int, error) {
	if i.t.e.in == nil || i.t != i.t.e.main {
		return 0, io.EOF
	}
	n, err := i.t.e.in.read(b, i.t.living)
	i.t.unpaused()
	return n, err
}

// Stdout returns the standard output. Writing blocks while nobody takes the
// output, and fails when the process has been killed.
func (p *Proc) Stdout() io.Writer { return taskOutput{p.t, p.t.e.out} }

// Stderr is like Stdout.
func (p *Proc) Stderr() io.Writer { return taskOutput{p.t, p.t.e.err} }

type taskOutput struct {
	t    *task
	pipe *pipe
}

func (o taskOutput) Write(b []byte) (int, error) {
	o.t.unpaused()
	if !o.t.holds {
		return len(b), nil
	}
	return o.pipe.write(b, o.t.living)
}

// Sleep waits for d, longer when the sandbox is paused meanwhile. It returns
// false when the process was killed.
func (p *Proc) Sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		p.t.unpaused()
	case <-p.t.ctx.Done():
	}
	return p.t.living()
}

// Trap keeps a signal from its default effect and reports it on the channel,
// which holds one. KILL cannot be trapped.
func (p *Proc) Trap(name string) <-chan struct{} {
	ch := make(chan struct{}, 1)
	p.t.mu.Lock()
	p.t.traps[name] = ch
	p.t.mu.Unlock()
	return ch
}

// Raise sends the process a signal from inside.
func (p *Proc) Raise(name string) { p.t.deliver(name, causeSelf) }

// SpawnOptions for Proc.Spawn.
type SpawnOptions struct {
	// HoldOutput gives the child the command's output streams, which it holds
	// until it ends.
	HoldOutput bool
	// NewSession takes the child out of the command's process group and session.
	NewSession bool
}

// Spawn starts a child with the same environment and an empty input. It goes on
// when its parent ends. wait blocks until the child has ended and returns its
// exit code, 128 and more after a signal. The error is a *provider.Error: no such
// command, or the process limit.
func (p *Proc) Spawn(args []string, o SpawnOptions) (wait func() int, err error) {
	run := p.t.e.sb.p.command(args[0])
	if run == nil {
		return nil, failure(provider.NotFound, "exec", "", "no such command", provider.AppliedNo)
	}
	o.HoldOutput = o.HoldOutput && p.t.holds
	t, err := p.t.e.spawn(p.t, run, slices.Clone(args), o, p.Dir)
	if err != nil {
		return nil, err
	}
	go t.main()
	return func() int {
		select {
		case <-t.gone:
		case <-p.t.ctx.Done():
		}
		if !p.t.living() {
			return 137
		}
		if t.why() != causeNone {
			return 128 + 9
		}
		return t.code
	}, nil
}

// Call runs another command in this process, as a shell runs a built-in, and
// returns its exit code: 127 when there is none of that name.
func (p *Proc) Call(ctx context.Context, args []string) int {
	run := p.t.e.sb.p.command(args[0])
	if run == nil {
		_, _ = io.WriteString(p.Stderr(), "fake: "+args[0]+": not found\n")
		return 127
	}
	child := *p
	child.Args = slices.Clone(args)
	return run(ctx, &child)
}

func (p *Proc) abs(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	// Not cleaned: ".." after a symbolic link is the link's parent.
	return p.Dir + "/" + name
}

// ReadFile returns a file of the sandbox; relative names start at Dir. A command
// sees the whole file system, not only the root. The caller must not change the
// bytes.
func (p *Proc) ReadFile(name string) ([]byte, error) {
	data, _, err := p.t.e.sb.files.read(p.abs(name))
	return data, err
}

// WriteFile puts a file, making missing parents.
func (p *Proc) WriteFile(name string, data []byte) error {
	return p.t.e.sb.files.writeAll(p.abs(name), slices.Clone(data), 0)
}

// AppendFile adds to a file in one step, making it when it is missing.
func (p *Proc) AppendFile(name string, data []byte) error {
	t := p.t.e.sb.files
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.look(t.top, p.abs(name), false, true)
	if err != nil {
		return err
	}
	if s.node != nil {
		data = append(slices.Clone(s.node.data), data...)
	}
	return t.put(t.top, p.abs(name), slices.Clone(data), 0, false)
}

// Symlink makes a symbolic link.
func (p *Proc) Symlink(target, name string) error {
	return p.t.e.sb.files.symlink(target, p.abs(name))
}

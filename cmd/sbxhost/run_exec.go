package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/redact"
)

// cleanupTime bounds the removal of the sandbox.
const cleanupTime = 30 * time.Second

// streamKept is how much output is kept per stream when it is copied as it comes:
// only what a slow reader of ours may have to catch up with.
const streamKept = 256 << 10

// runResult is what run --json prints. Everything in it has passed the session's
// redactor.
type runResult struct {
	Session        string           `json:"session"`
	Provider       string           `json:"provider"`
	Isolation      string           `json:"isolation,omitempty"`
	Transport      string           `json:"transport"`
	Protected      []string         `json:"protected,omitempty"`
	Unenforced     []string         `json:"unenforced,omitempty"`
	Status         host.ExitKind    `json:"status"`
	ExitCode       int              `json:"exitCode"`
	Signal         string           `json:"signal,omitempty"`
	TimedOut       bool             `json:"timedOut"`
	DeathConfirmed bool             `json:"deathConfirmed"`
	LeftRunning    int              `json:"leftRunning"`
	Stdout         string           `json:"stdout"`
	Stderr         string           `json:"stderr"`
	StdoutBytes    []byte           `json:"stdoutBase64,omitempty"` // instead, when it is not UTF-8
	StderrBytes    []byte           `json:"stderrBase64,omitempty"`
	Truncated      host.Truncated   `json:"truncated"`
	Merged         bool             `json:"merged"`
	Redactions     map[string]int64 `json:"redactions,omitempty"`
	Unmaskable     []redact.Refused `json:"unmaskable,omitempty"`
	DurationMillis int64            `json:"durationMs"`
	Notice         string           `json:"notice,omitempty"`
	State          string           `json:"state,omitempty"` // with --keep

	broken error // why our own output could not be written
}

// runPlan does the work: create, files, exec, destroy.
func (a *app) runPlan(ctx context.Context, cfg config.Loaded, p *plan) (out *runResult, err error) {
	led, err := a.openRunLedger()
	if err != nil {
		return nil, err
	}
	defer led.close()
	h, prov, err := a.newHost(ctx, cfg, p.provider, p.flags, led)
	if err != nil {
		return nil, err
	}
	defer func() {
		c, cancel := cleanupContext(ctx)
		defer cancel()
		if cerr := h.Close(c); err == nil && cerr != nil {
			err = cerr
		}
	}()
	if p.keep && !prov.Describe().Survives {
		return nil, usageError("--keep: sandboxes of %s do not outlive this process", p.provider)
	}
	if err := led.place(placeOf(p.provider, prov)); err != nil {
		return nil, err
	}
	a.sweepRuns(ctx, p.provider, prov)
	p.create.Progress = a.progress()
	s, err := h.Create(ctx, p.create)
	if err != nil {
		return nil, err
	}
	kept := false
	defer func() {
		if kept {
			return
		}
		c, cancel := cleanupContext(ctx)
		defer cancel()
		if cerr := s.Close(c); cerr != nil {
			a.note("removing the sandbox failed: %v", cerr)
			if err == nil {
				err = cerr
			}
		}
	}()
	info := s.Info()
	if info.Provider == defaultProvider && info.Isolation == "landlock" && !a.json {
		a.note("isolation is landlock, which is weaker than namespaces; sbxhost doctor says why, and what stays open")
	}
	if len(info.Unenforced) > 0 && !a.json {
		a.note("not enforced by %s: %s", info.Provider, strings.Join(info.Unenforced, ", "))
	}
	if err := put(ctx, s, p.uploads); err != nil {
		return nil, err
	}
	res, broken, err := a.exec(ctx, s, p)
	if err != nil {
		return nil, err
	}
	out = newRunResult(s, res)
	out.broken = broken
	if p.keep {
		c, cancel := cleanupContext(ctx)
		defer cancel()
		state, err := s.Detach(c)
		if err != nil {
			return nil, err
		}
		kept = true
		if err := led.keep(); err != nil {
			return nil, err
		}
		out.State = string(state)
		if !a.json {
			a.note("kept sandbox %s; its state: %s", s.ID(), state)
		}
	}
	return out, nil
}

func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}

// exec runs the command and copies its output as it comes.
func (a *app) exec(ctx context.Context, s *host.Session, p *plan) (res *host.Result, broken, err error) {
	req := p.exec
	if !a.json {
		req.MaxOutput = streamKept
	}
	if p.pass {
		req.Stdin = ours(a.stdin)
	}
	restore := func() {}
	if p.tty {
		req.Cols, req.Rows = a.size()
		if p.pass {
			if restore, err = a.raw(); err != nil {
				return nil, nil, err
			}
		}
	}
	defer restore()

	proc, err := s.Start(ctx, req)
	if err != nil {
		return nil, nil, a.startError(err, p)
	}
	if p.tty {
		defer a.followSize(func(cols, rows uint16) {
			c, cancel := cleanupContext(ctx)
			defer cancel()
			_ = proc.Resize(c, cols, rows) // a missed resize is not worth a message in a raw terminal
		})()
	}
	var once sync.Once
	kill := func() {
		once.Do(func() {
			c, cancel := cleanupContext(ctx)
			defer cancel()
			if kerr := proc.Kill(c); kerr != nil {
				a.note("stopping the command failed: %v", kerr)
			}
		})
	}
	ended := make(chan struct{})
	var killing sync.WaitGroup
	killing.Go(func() {
		select {
		case <-ctx.Done():
			kill()
		case <-ended:
		}
	})
	res, broken = a.copyEvents(proc, kill)
	close(ended)
	killing.Wait()
	if res == nil {
		return nil, broken, errors.New("the command's output ended without its result")
	}
	return res, broken, nil
}

// input is our own: one that is closed, or whose terminal has gone, has ended.
type input struct {
	r      io.Reader
	device bool // a terminal, or one that was: elsewhere EIO is a disk that fails
}

func ours(r io.Reader) input {
	in := input{r: r}
	if f, ok := r.(*os.File); ok {
		info, err := f.Stat()
		in.device = err == nil && info.Mode()&fs.ModeCharDevice != 0
	}
	return in
}

func (i input) Read(p []byte) (int, error) {
	n, err := i.r.Read(p)
	if errors.Is(err, syscall.EBADF) || errors.Is(err, fs.ErrClosed) || i.device && errors.Is(err, syscall.EIO) {
		err = io.EOF
	}
	return n, err
}

// copyEvents writes output to our own streams and returns the result.
func (a *app) copyEvents(proc *host.Process, kill func()) (res *host.Result, broken error) {
	for ev := range proc.Events() {
		if ev.Exit != nil {
			res = ev.Exit
			continue
		}
		if a.json || broken != nil {
			continue
		}
		w := a.stdout
		if ev.Stream == host.Stderr {
			w = a.stderr
		}
		if _, err := w.Write(ev.Data); err != nil {
			broken = err
			kill()
		}
	}
	return res, broken
}

// startError tells the two failures that have exit codes of their own from the
// others.
func (a *app) startError(err error, p *plan) error {
	switch provider.CodeOf(err) {
	case provider.NotFound:
		what := "command"
		if p.exec.Dir != "" {
			what = "command or working directory"
		}
		return &exitError{code: exitNotFound, err: fmt.Errorf("%s not found in the sandbox: %s (%w)", what, p.command, err)}
	case provider.PermissionDenied:
		return &exitError{code: exitCannotRun, err: fmt.Errorf("command cannot be run in the sandbox: %s (%w)", p.command, err)}
	}
	return err
}

func newRunResult(s *host.Session, r *host.Result) *runResult {
	info := s.Info()
	out := &runResult{
		Session: s.ID(), Provider: info.Provider, Isolation: info.Isolation, Transport: info.Transport,
		Protected: info.Protected, Unenforced: info.Unenforced,
		Status: r.Status, ExitCode: r.ExitCode, Signal: r.Signal, TimedOut: r.TimedOut,
		DeathConfirmed: r.DeathConfirmed, LeftRunning: r.LeftRunning,
		Truncated: r.Truncated, Merged: r.Merged, Redactions: r.Redactions, Unmaskable: r.Unmaskable,
		DurationMillis: r.Duration.Milliseconds(), Notice: r.Notice,
	}
	out.Stdout, out.StdoutBytes = asText(r.Stdout)
	out.Stderr, out.StderrBytes = asText(r.Stderr)
	return out
}

// asText returns output as text when JSON can hold it unchanged.
func asText(b []byte) (string, []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return "", b
}

// exitCode maps a result to our exit code and says on stderr what the command's
// own output does not.
func (a *app) exitCode(r *runResult) int {
	if !a.json {
		if r.Notice != "" {
			a.note("%s", r.Notice)
		}
		for _, u := range r.Unmaskable {
			a.note("%s cannot be masked: %s", u.Name, u.Reason)
		}
	}
	switch {
	case errors.Is(r.broken, syscall.EPIPE):
		return exitBrokenPipe
	case r.broken != nil:
		a.note("writing the output failed: %v", r.broken)
		return exitFailed
	}
	switch r.Status {
	case host.Exited:
		return r.ExitCode
	case host.TimedOut:
		return exitTimedOut
	case host.Signaled, host.Killed:
		if n := signalNumber(r.Signal); n > 0 {
			return exitSignal + n
		}
	}
	if !a.json {
		a.note("how the command ended is not known (%s)", r.Status)
	}
	return exitFailed
}

// signalNumber returns the number of a signal's name without SIG; 0 if unknown.
func signalNumber(name string) int {
	numbers := map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8,
		"KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "STKFLT": 16,
		"XCPU": 24, "XFSZ": 25, "VTALRM": 26, "PROF": 27, "SYS": 31}
	return numbers[strings.TrimPrefix(name, "SIG")]
}

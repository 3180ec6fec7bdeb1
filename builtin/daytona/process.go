package daytona

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// process implements provider.Process for a command whose output goes through
// files.
type process struct {
	sb       *sandbox
	req      provider.ExecRequest
	run      runner
	stdin    *input
	stopBeat func()
	renewed  bool

	born   time.Time
	ctx    context.Context // of the request and of following it
	cancel context.CancelFunc
	// ended is closed when the request has ended; result and failure are set then.
	ended   chan struct{}
	result  executeResult
	failure error

	mu   sync.Mutex
	why  provider.ExitKind // how we ended it: timed_out, killed, or ""
	sent string            // the last signal of ours
	dead bool              // Kill found nothing of it left

	done chan struct{} // closed when exit is final and output delivered
	exit provider.Exit
}

func asFault(err error, f **fault) bool { return errors.As(err, f) }

// backstop is how much later than the host the sandbox's daemon kills, in case
// the host is gone.
const backstop = 30 * time.Second

// Format implements fmt.Formatter: a fixed word, whatever the verb. Printing
// reads none of the fields that change, and shows none of the request's.
func (p *process) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "daytona.Process") }

// execute sends the one request that runs the command.
func (p *process) execute() {
	defer close(p.ended)
	in := executeRequest{script: p.run.script(), env: p.environment(), values: []secret.Env{p.req.Protected, p.req.Secrets}}
	if p.req.Timeout > 0 {
		in.timeout = p.req.Timeout + p.req.Grace + backstop
	}
	p.result, p.failure = p.sb.box.Execute(p.ctx, in)
}

// follow delivers output, enforces the deadline, and settles the exit.
func (p *process) follow() {
	over := make(chan struct{}) // nothing more will be written
	var tails sync.WaitGroup
	pull, stop := context.WithCancel(context.WithoutCancel(p.ctx))
	state := newTailing(over)
	for i, to := range []io.Writer{p.req.Stdout, p.req.Stderr} {
		tails.Go(func() { p.tail(pull, i, to, state) })
	}
	go func() {
		defer stop()
		exit := p.settle()
		state.settle(exit, p.result, p.run)
		close(over)
		tails.Wait()
		if state.broken() && exit.Kind == provider.ExitExited {
			// The command's end is known and its output is not: not a success.
			exit = provider.Exit{Kind: provider.ExitLost, Code: -1, LeftRunning: -1}
		}
		p.exit = exit
		p.stopBeat()
		if p.stdin != nil {
			p.stdin.end()
		}
		close(p.done)
		p.cancel()
		p.cleanUp()
	}()
}

// cleanUp removes the command's files, and lets go of whoever waits at its pipes.
func (p *process) cleanUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 10*time.Second)
	defer cancel()
	script := ""
	if p.run.live {
		script = `exec 3<>` + file(p.run.tag, "in") + ` 4<>` + file(p.run.tag, "ctl") + "\n"
	}
	// The marker stays: a copy of the request may still arrive.
	script += `for f in ` + base + `/` + p.run.tag + `.*; do [ "$f" = ` + file(p.run.tag, "run") + ` ] || rm -f -- "$f"; done`
	_, _ = p.sb.helper(ctx, helper{op: "exec", again: true, timeout: 10 * time.Second, script: script})
}

// settle waits for the command's end, or for the deadline.
func (p *process) settle() provider.Exit {
	lost := provider.Exit{Kind: provider.ExitLost, Code: -1, LeftRunning: -1}
	var deadline <-chan time.Time
	if p.req.Timeout > 0 {
		t := time.NewTimer(time.Until(p.born.Add(p.req.Timeout)))
		defer t.Stop()
		deadline = t.C
	}
	select {
	case <-p.ended:
	case <-deadline:
		p.because(provider.ExitTimedOut, "")
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), p.req.Grace+1500*time.Millisecond)
		_ = p.sb.killAll(ctx, p.run.tag, p.req.Grace) // the host says what is known of it
		cancel()
		select {
		case <-p.ended:
		case <-time.After(300 * time.Millisecond):
			p.cancel()
			<-p.ended
		}
	}
	why, sent, dead := p.reason()
	if why == provider.ExitTimedOut {
		return provider.Exit{Kind: why, Code: -1, Signal: "KILL", LeftRunning: -1}
	}
	word, code, flags := p.run.said(p.result.output)
	exit, ok := exitOf(code, flags)
	switch {
	case statusOf(p.failure) == http.StatusRequestTimeout && p.req.Timeout > 0 && time.Since(p.born) >= p.req.Timeout && why == "":
		return provider.Exit{Kind: provider.ExitTimedOut, Code: -1, Signal: "KILL", LeftRunning: -1}
	case why == provider.ExitKilled && dead && (p.failure != nil || word != saidExited):
		// A signal that was sent proves no end.
		return provider.Exit{Kind: why, Code: -1, Signal: sent, LeftRunning: -1}
	case p.failure != nil, word != saidExited, !ok, !p.result.exited, p.result.code != 0:
		return lost
	}
	if why == provider.ExitKilled {
		name := exit.Signal
		if name == "" {
			name = signalOf(exit.Code)
		}
		if name != "" && (name == sent || sent == "KILL" && name == "TERM") {
			return provider.Exit{Kind: why, Code: -1, Signal: name, LeftRunning: -1}
		}
	}
	if p.req.KillLeftovers {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 5*time.Second)
		_ = p.sb.killAll(ctx, p.run.tag, 0)
		cancel()
	}
	return exit
}

func (p *process) because(why provider.ExitKind, signal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == "" || why == provider.ExitTimedOut {
		p.why = why
	}
	p.sent = signal
}

func (p *process) reason() (why provider.ExitKind, sent string, dead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.why, p.sent, p.dead
}

// Stdin implements provider.Process.
func (p *process) Stdin() io.WriteCloser {
	if p.stdin == nil {
		return nil
	}
	return p.stdin
}

// Wait implements provider.Process.
func (p *process) Wait(ctx context.Context) (provider.Exit, error) {
	select {
	case <-p.done:
		return p.exit, nil
	default:
	}
	select {
	case <-p.done:
		return p.exit, nil
	case <-ctx.Done():
		return provider.Exit{}, ctxProblem("wait", p.sb.id, ctx.Err(), provider.AppliedNo)
	}
}

func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Signal implements provider.Process.
func (p *process) Signal(ctx context.Context, name string) error {
	if _, ok := signalNumber(name); !ok {
		return problem(provider.InvalidArgument, "signal", p.sb.id, "there is no such signal").remedy("use a name without SIG, such as TERM")
	}
	ended := problem(provider.FailedPrecondition, "signal", p.sb.id, "the command has ended")
	if p.over() {
		return ended
	}
	p.because(provider.ExitKilled, name)
	out, err := p.sb.helper(ctx, helper{op: "signal", script: `p=$(cat ` + file(p.run.tag, "pid") + `) && [ -n "$p" ] && kill -s ` + name + ` "$p" && echo sent`})
	if err != nil {
		return err
	}
	if !strings.Contains(out, "sent") {
		return ended
	}
	return nil
}

// Kill implements provider.Process.
func (p *process) Kill(ctx context.Context, grace time.Duration) error {
	if ctx.Err() != nil {
		return ctxProblem("kill", p.sb.id, ctx.Err(), provider.AppliedNo)
	}
	if p.over() {
		return p.sb.killAll(ctx, p.run.tag, grace)
	}
	p.because(provider.ExitKilled, "KILL")
	if err := p.sb.killAll(ctx, p.run.tag, grace); err != nil {
		return err
	}
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	// Nothing is left to wait for, whatever the request thinks.
	select {
	case <-p.ended:
	case <-time.After(2 * time.Second):
		p.cancel()
	}
	return nil
}

// killAll ends the processes of a command: its process group, and whatever has
// its mark in the environment, setsid children included. The runner itself is
// spared, so that it can tell the end. It returns nil when none is left.
func (sb *sandbox) killAll(ctx context.Context, tag string, grace time.Duration) error {
	tenths := int(grace / (100 * time.Millisecond))
	out, err := sb.helper(ctx, helper{op: "kill", subject: sb.id, again: true, timeout: grace + 30*time.Second, script: `
own=$(cat ` + file(tag, "run") + `)
find_() { t=; for e in $(grep -ls ` + markName + `=` + tag + ` /proc/[0-9]*/environ); do
  e=${e#/proc/}; e=${e%/environ}; [ "$e" = "$own" ] || t="$t $e"; done
  for e in /proc/[0-9]*/stat; do
    read -r s <"$e" || continue
    e=${e#/proc/}; e=${e%/stat}; set -- ${s##*) }
    [ "${3-}" != "$own" ] || [ "$1" = Z ] || [ "$e" = "$own" ] || t="$t $e"
  done; [ -n "$t" ]; }
nap() { sleep 0.1 || sleep 1; }
i=` + strconv.Itoa(tenths) + `
if [ $i -gt 0 ] && find_; then
  kill -TERM $t
  while [ $i -gt 0 ] && find_; do nap; i=$((i-1)); done
fi
i=0
while find_; do
  kill -KILL $t
  i=$((i+1)); [ $i -lt 50 ] || break
  [ $i -lt 3 ] || nap
done
find_ || echo dead`})
	if err != nil {
		return err
	}
	if !strings.Contains(out, "dead") {
		return problem(provider.Unavailable, "kill", sb.id, "processes of the command are still there").applied(provider.AppliedYes).remedy("destroy the sandbox")
	}
	return nil
}

package providertest

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// wantTimedOut checks a command that ran into its deadline.
func (t *T) wantTimedOut(r *running, o outcome, what string) {
	if o.Kind != provider.ExitTimedOut || o.Code != -1 {
		t.Errorf("%s ended as %s with code %d; it must be timed_out with code -1", what, o.Kind, o.Code)
	}
	if o.took < r.timeout-50*time.Millisecond {
		t.Errorf("%s ended after %s, before its timeout of %s", what, o.took, r.timeout)
	}
}

// longTimeout is a timeout long enough: on a busy machine a command may not come to
// do anything in a short one.
const longTimeout = 15 * time.Second

// beginTimed is begin with the harness's timeout, or longer: a provider that comes
// to start a command only at its deadline rightly does not start it any more.
func (t *T) beginTimed(sb provider.Sandbox, cmd Command, grace time.Duration) *running {
	for timeout := t.h.Timeout; ; timeout *= 4 {
		r, err := t.tryBegin(sb, cmd, withTimeout(timeout, grace))
		if err == nil {
			return r
		}
		if provider.CodeOf(err) != provider.DeadlineExceeded || provider.AppliedOf(err) != provider.AppliedNo || timeout >= longTimeout {
			t.Fatalf("Exec failed: %v", err)
		}
	}
}

func timeoutChecks() []check {
	return []check{
		{name: "timeout/kills", rule: "a command is killed at its Timeout: the exit is timed_out within Slack of it", needs: []need{canKill, printSleep}, run: func(t *T) {
			r := t.beginTimed(t.create(), t.h.Commands.PrintSleep("", 300*time.Second, marker()), 0)
			t.wantTimedOut(r, r.wait(r.timeout+t.h.Slack), "a sleeper")
		}},
		{name: "timeout/partial", rule: "with exec.partialOnTimeout output up to the timeout is kept", needs: []need{canKill, printSleep,
			declared("exec.partialOnTimeout", func(d provider.Description) bool { return d.Exec.PartialOnTimeout })}, run: func(t *T) {
			sb := t.create()
			// A provider that keeps nothing keeps nothing of a longer one either.
			for timeout := t.h.Timeout; ; timeout *= 4 {
				r, err := t.tryBegin(sb, t.h.Commands.PrintSleep("so far", 300*time.Second, marker()), withTimeout(timeout, 0))
				if err != nil && timeout < longTimeout {
					continue // not started in time
				}
				t.must(err, "Exec")
				o := r.wait(timeout + t.h.Slack)
				if o.stdout == "" && timeout < longTimeout {
					continue
				}
				t.wantText("the output up to the timeout", o.stdout, "so far")
				return
			}
		}},
		{name: "timeout/tree", rule: "with exec.kill tree the timeout kills every descendant, setsid children too, and Exit.TreeDead says so", needs: []need{killsTree, waiting, survivors}, run: func(t *T) {
			sb := t.create()
			for _, session := range []bool{false, true} {
				for timeout := t.h.Timeout; ; timeout *= 4 {
					m := marker()
					r, err := t.tryBegin(sb, t.h.Commands.Foreground(300*time.Second, m, session), withTimeout(timeout, 0))
					if err != nil && timeout < longTimeout {
						continue // not started in time
					}
					t.must(err, "Exec")
					o := r.wait(timeout + t.h.Slack)
					if o.Kind != provider.ExitTimedOut {
						t.Errorf("the command ended as %s, it must be timed_out", o.Kind)
					}
					if !o.TreeDead {
						t.Errorf("Exit.TreeDead is false after a timeout that killed the tree (setsid child: %v)", session)
					}
					t.survivors(sb, fmt.Sprintf("after the timeout (setsid child: %v)", session), m, false)
					// Without a child nothing was proved.
					if !t.d.Exec.PartialOnTimeout || o.stdout != "" || timeout >= longTimeout {
						break
					}
				}
			}
		}},
		{name: "timeout/term-ignored", rule: "a command that ignores TERM is killed when Grace is over", needs: []need{canKill,
			probe("Commands.IgnoreTerm", func(h *Harness) bool { return h.Commands.IgnoreTerm != nil })}, run: func(t *T) {
			grace := 300 * time.Millisecond
			r := t.beginTimed(t.create(), t.h.Commands.IgnoreTerm(300*time.Second, marker()), grace)
			t.wantTimedOut(r, r.wait(r.timeout+grace+t.h.Slack), "a command that ignores TERM")
		}},
		{name: "timeout/others", rule: "a timeout leaves the sandbox's other commands alone", needs: []need{canKill, printSleep, stdinLive, cat}, run: func(t *T) {
			sb := t.create()
			other := t.begin(sb, t.h.Commands.Cat(), live)
			r := t.beginTimed(sb, t.h.Commands.PrintSleep("", 300*time.Second, marker()), 0)
			r.wait(r.timeout + t.h.Slack)
			_, err := io.WriteString(other.proc.Stdin(), "still here")
			t.must(err, "writing to the other command")
			t.must(other.proc.Stdin().Close(), "closing its input")
			o := other.wait(t.soon())
			t.wantExit(o, "the other command", 0)
			t.wantText("its output", o.stdout, "still here")
		}},
		{name: "timeout/in-time", rule: "a command that ends before its timeout is not touched by it", run: func(t *T) {
			sb := t.create()
			o := t.run(sb, t.h.Commands.Exit(3), withTimeout(60*time.Second, 0))
			t.wantExit(o, "a quick command with a timeout", 3)
		}},
	}
}

// kill kills and reports how long it took.
func (t *T) kill(r *running, grace time.Duration, what string) {
	ctx, cancel := t.call()
	defer cancel()
	if err := r.proc.Kill(ctx, grace); err != nil {
		t.Errorf("%s failed: %v", what, err)
	}
}

// started begins cmd and waits until it says ready, where output is live.
func (t *T) started(sb provider.Sandbox, cmd Command, ready string, mods ...execMod) *running {
	r := t.begin(sb, cmd, mods...)
	if t.d.Exec.Stream {
		if !r.out.reached(ready, 10*time.Second+t.soon()) {
			t.Fatalf("the command did not print %q within 20 s", ready)
		}
	} else {
		pause(t.ctx, t.h.Timeout)
	}
	return r
}

func killChecks() []check {
	ignoreTerm := probe("Commands.IgnoreTerm", func(h *Harness) bool { return h.Commands.IgnoreTerm != nil })
	return []check{
		{name: "kill/ends", rule: "Kill ends the command; its exit is killed, with code -1 and the signal", needs: []need{canKill, printSleep}, run: func(t *T) {
			sb, m := t.create(), marker()
			r := t.started(sb, t.h.Commands.PrintSleep("on", 300*time.Second, m), "on")
			t.kill(r, 0, "Kill")
			o := r.wait(t.h.Slack)
			if o.Kind != provider.ExitKilled || o.Code != -1 || o.Signal == "" {
				t.Errorf("the exit is %s with code %d and signal %q; it must be killed with code -1 and a signal", o.Kind, o.Code, o.Signal)
			}
			if t.d.Exec.Kill == provider.KillTree {
				t.survivors(sb, "after Kill returned nil", m, false)
			}
		}},
		{name: "kill/tree", rule: "with exec.kill tree Kill returns nil when every descendant is dead, setsid children too", needs: []need{killsTree, waiting, survivors}, run: func(t *T) {
			sb := t.create()
			for _, session := range []bool{false, true} {
				m := marker()
				r := t.started(sb, t.h.Commands.Foreground(300*time.Second, m, session), "started")
				t.survivors(sb, "before Kill", m, true)
				t.kill(r, 0, "Kill")
				t.survivors(sb, fmt.Sprintf("after Kill returned nil (setsid child: %v)", session), m, false)
				r.wait(t.h.Slack)
			}
		}},
		{name: "kill/term-ignored", rule: "Kill sends KILL when Grace is over", needs: []need{canKill, ignoreTerm}, run: func(t *T) {
			sb := t.create()
			r := t.started(sb, t.h.Commands.IgnoreTerm(300*time.Second, marker()), "ready")
			began := time.Now()
			t.kill(r, 200*time.Millisecond, "Kill")
			if took := time.Since(began); took > 200*time.Millisecond+t.h.Slack {
				t.Errorf("Kill took %s with a grace of 200 ms", took)
			}
			r.wait(t.h.Slack)
		}},
		{name: "kill/idempotent", rule: "Kill is idempotent, and killing what has ended is success", needs: []need{canKill, printSleep}, run: func(t *T) {
			sb := t.create()
			r := t.started(sb, t.h.Commands.PrintSleep("on", 300*time.Second, marker()), "on")
			t.kill(r, 0, "Kill")
			t.kill(r, 0, "the second Kill")
			r.wait(t.h.Slack)
			t.kill(r, 0, "Kill after Wait")
			done := t.begin(sb, t.h.Commands.Exit(4))
			t.wantExit(done.wait(t.h.CallTimeout), "a quick command", 4)
			t.kill(done, 0, "Kill of an ended command")
			t.wantExit(done.wait(t.h.CallTimeout), "the quick command, after Kill,", 4)
		}},
		{name: "kill/left-over", rule: "Kill of an ended command kills what it left running", needs: []need{killsTree, background, children, survivors}, run: func(t *T) {
			sb, m := t.create(), marker()
			r := t.begin(sb, t.h.Commands.Background(300*time.Second, m, true))
			r.wait(t.soon())
			t.survivors(sb, "the background child", m, true)
			t.kill(r, 0, "Kill of an ended command")
			t.survivors(sb, "after Kill", m, false)
		}},
		{name: "kill/others", rule: "Kill leaves the sandbox's other commands alone", needs: []need{canKill, printSleep, stdinLive, cat}, run: func(t *T) {
			sb := t.create()
			other := t.begin(sb, t.h.Commands.Cat(), live)
			r := t.started(sb, t.h.Commands.PrintSleep("on", 300*time.Second, marker()), "on")
			t.kill(r, 0, "Kill")
			t.must(other.proc.Stdin().Close(), "closing the other command's input")
			t.wantExit(other.wait(t.soon()), "the other command", 0)
		}},
		{name: "kill/undeclared", rule: "without exec.kill Signal and Kill are Unsupported", needs: []need{
			undeclared("exec.kill", func(d provider.Description) bool { return d.Exec.Kill != provider.KillNone }), printSleep}, run: func(t *T) {
			r := t.begin(t.create(), t.h.Commands.PrintSleep("on", 5*time.Second, marker()))
			ctx, cancel := t.call()
			defer cancel()
			t.wantCode(r.proc.Kill(ctx, 0), "Kill", provider.Unsupported)
			t.wantCode(r.proc.Signal(ctx, "TERM"), "Signal", provider.Unsupported)
		}},
		{name: "signal/term", rule: "Signal sends a signal by name to the command", needs: []need{canKill, printSleep}, run: func(t *T) {
			sb := t.create()
			r := t.started(sb, t.h.Commands.PrintSleep("on", 300*time.Second, marker()), "on")
			ctx, cancel := t.call()
			defer cancel()
			t.must(r.proc.Signal(ctx, "TERM"), "Signal TERM")
			o := r.wait(t.soon())
			if o.Kind != provider.ExitKilled || o.Signal != "TERM" || o.Code != -1 {
				t.Errorf("the exit is %s with code %d and signal %q; it must be killed with code -1 by TERM", o.Kind, o.Code, o.Signal)
			}
		}},
		{name: "signal/ended", rule: "signalling an ended command is FailedPrecondition", needs: []need{canKill}, run: func(t *T) {
			r := t.begin(t.create(), t.h.Commands.Exit(0))
			r.wait(t.h.CallTimeout)
			ctx, cancel := t.call()
			defer cancel()
			t.wantCode(r.proc.Signal(ctx, "TERM"), "Signal to an ended command", provider.FailedPrecondition)
		}},
		{name: "signal/unknown", rule: "an unknown signal is InvalidArgument, and the command goes on", needs: []need{canKill, stdinLive, cat}, run: func(t *T) {
			r := t.begin(t.create(), t.h.Commands.Cat(), live)
			ctx, cancel := t.call()
			defer cancel()
			for _, name := range []string{"NOSUCH", "", "SIGTERM", "15", "TERM;id"} {
				t.wantCode(r.proc.Signal(ctx, name), fmt.Sprintf("Signal %q", name), provider.InvalidArgument)
			}
			t.must(r.proc.Stdin().Close(), "closing the command's input")
			t.wantExit(r.wait(t.soon()), "the command", 0)
		}},
		{name: "signal/own", rule: "a command that a signal from inside ends is signaled, with its name and code -1", needs: []need{
			probe("Commands.Raise", func(h *Harness) bool { return h.Commands.Raise != nil }), canKill}, run: func(t *T) {
			o := t.run(t.create(), t.h.Commands.Raise("USR1"))
			if o.Kind != provider.ExitSignaled || o.Signal != "USR1" || o.Code != -1 {
				t.Errorf("the exit is %s with code %d and signal %q; it must be signaled with code -1 by USR1", o.Kind, o.Code, o.Signal)
			}
		}},
	}
}

func backgroundChecks() []check {
	return []check{
		{name: "background/no-delay", rule: "a background child that holds the output does not delay its command's end", needs: []need{background, children}, run: func(t *T) {
			r := t.begin(t.create(), t.h.Commands.Background(300*time.Second, marker(), false))
			o := r.wait(t.h.Slack)
			t.wantExit(o, "the command that started a background child", 0)
			t.wantText("its output", o.stdout, "started\n")
		}},
		{name: "background/survives", rule: "with exec.backgroundSafe a background child outlives its command, and Exit.LeftRunning counts it or says -1", needs: []need{background, children, survivors}, run: func(t *T) {
			sb := t.create()
			for _, session := range []bool{false, true} {
				m := marker()
				r := t.begin(sb, t.h.Commands.Background(300*time.Second, m, session))
				o := r.wait(t.soon())
				if o.LeftRunning == 0 || o.TreeDead {
					t.Errorf("Exit says LeftRunning %d and TreeDead %v while a background child runs (setsid: %v)", o.LeftRunning, o.TreeDead, session)
				}
				t.wantExit(t.run(sb, t.h.Commands.Exit(0)), "the next command", 0)
				t.survivors(sb, fmt.Sprintf("the background child (setsid: %v)", session), m, true)
			}
		}},
		{name: "background/kill-leftovers", rule: "with KillLeftovers nothing of the command is left when Wait returns", needs: []need{killsTree, children, survivors}, run: func(t *T) {
			sb := t.create()
			for _, session := range []bool{false, true} {
				m := marker()
				r := t.begin(sb, t.h.Commands.Background(300*time.Second, m, session), func(r *provider.ExecRequest) { r.KillLeftovers = true })
				o := r.wait(t.soon())
				t.wantExit(o, "the command", 0)
				if !o.TreeDead {
					t.Errorf("Exit.TreeDead is false with KillLeftovers (setsid: %v)", session)
				}
				t.survivors(sb, fmt.Sprintf("after KillLeftovers (setsid: %v)", session), m, false)
			}
		}},
	}
}

func ttyChecks() []check {
	size := probe("Commands.TTYSize", func(h *Harness) bool { return h.Commands.TTYSize != nil })
	tty := func(cols, rows uint16) execMod {
		return func(r *provider.ExecRequest) {
			r.TTY, r.Cols, r.Rows, r.Stdin = true, cols, rows, provider.StdinLive
		}
	}
	lines := func(s string) []string { return strings.Fields(strings.ReplaceAll(s, "\r\n", "\n")) }
	return []check{
		{name: "tty/size", rule: "with a TTY the command has a terminal of the size asked for; its output arrives on Stdout", needs: []need{terminal, size}, run: func(t *T) {
			o := t.run(t.create(), t.h.Commands.TTYSize(), tty(91, 37))
			t.wantExit(o, "printing the terminal's size", 0)
			t.wantText("the size", strings.Join(lines(o.stdout), " "), "91x37")
			t.wantText("stderr", o.stderr, "")
		}},
		{name: "tty/merged", rule: "with a TTY stderr arrives on Stdout, and Exit.Merged says so", needs: []need{terminal}, run: func(t *T) {
			o := t.run(t.create(), t.h.Commands.Print("to-out\n", "to-err\n"), tty(80, 24))
			t.wantText("stdout", strings.Join(lines(o.stdout), " "), "to-out to-err")
			t.wantText("stderr", o.stderr, "")
			if !o.Merged {
				t.Errorf("Exit.Merged is false with a TTY")
			}
		}},
		{name: "tty/none", rule: "without a TTY the command has no terminal", needs: []need{size}, run: func(t *T) {
			t.wantExit(t.run(t.create(), t.h.Commands.TTYSize()), "asking for a terminal that was not asked for", 1)
		}},
		{name: "tty/resize", rule: "Resize changes the terminal's size while the command runs", needs: []need{terminal, streams,
			probe("Commands.TTYResize", func(h *Harness) bool { return h.Commands.TTYResize != nil })}, run: func(t *T) {
			r := t.started(t.create(), t.h.Commands.TTYResize(), "80x24", tty(80, 24))
			z, ok := r.proc.(provider.Resizer)
			if !ok {
				t.Fatalf("a Process started with a TTY must be a Resizer")
			}
			ctx, cancel := t.call()
			defer cancel()
			t.must(z.Resize(ctx, 132, 50), "Resize")
			o := r.wait(10*time.Second + t.soon())
			t.wantText("the sizes", strings.Join(lines(o.stdout), " "), "80x24 132x50")
		}},
		{name: "tty/undeclared", rule: "a TTY that Describe does not declare is Unsupported", needs: []need{
			undeclared("exec.tty", func(d provider.Description) bool { return d.Exec.TTY })}, run: func(t *T) {
			ctx, cancel := t.call()
			defer cancel()
			_, err := t.create().Exec(ctx, t.exec(t.h.Commands.Exit(0), func(r *provider.ExecRequest) { r.TTY, r.Cols, r.Rows = true, 80, 24 }))
			t.wantCode(err, "Exec with a TTY", provider.Unsupported)
		}},
	}
}

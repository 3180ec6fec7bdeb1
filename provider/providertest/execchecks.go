package providertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// awkward are texts that quoting and encoding get wrong.
var awkward = []string{"plain", "two words", "  edges  ", "", "line\nbreak", "trailing\n", `'single' "double"`,
	"$HOME $(id) `id` ${X}", `back\slash \n`, "*?[a]~", "-n", "grüße 世界 🙂", "tab\tbell\x07esc\x1b", "a=b=c", "%s%d"}

func execChecks() []check {
	return []check{
		{name: "exec/exit-codes", rule: "Exit.Code is the command's own exit code", run: func(t *T) {
			sb := t.create()
			for _, code := range []int{0, 1, 2, 7, 124, 125, 126, 127, 130, 255} {
				t.wantExit(t.run(sb, t.h.Commands.Exit(code)), fmt.Sprintf("exit %d", code), code)
			}
		}},
		{name: "exec/output", rule: "output arrives byte for byte", run: func(t *T) {
			sb := t.create()
			for _, text := range awkward {
				o := t.run(sb, t.h.Commands.Print(text, ""))
				t.wantExit(o, "printing", 0)
				t.wantText("stdout", o.stdout, text)
			}
		}},
		{name: "exec/stderr", rule: "stderr arrives apart, or on stdout with Exit.Merged, as exec.stderr declares", run: func(t *T) {
			sb := t.create()
			o := t.run(sb, t.h.Commands.Print("to-out\n", "to-err\n"))
			t.wantExit(o, "printing on both streams", 0)
			if t.d.Exec.Stderr == provider.StderrMerged {
				if !strings.Contains(o.stdout, "to-out\n") || !strings.Contains(o.stdout, "to-err\n") || o.stderr != "" {
					t.Errorf("declared merged: both texts must be on stdout and none on stderr; got %q and %q", o.stdout, o.stderr)
				}
			} else {
				t.wantText("stdout", o.stdout, "to-out\n")
				t.wantText("stderr", o.stderr, "to-err\n")
			}
			if o.Merged != (t.d.Exec.Stderr == provider.StderrMerged) {
				t.Errorf("Exit.Merged is %v, Describe declares stderr %s", o.Merged, t.d.Exec.Stderr)
			}
		}},
		{name: "exec/args", rule: "arguments reach the command unaltered", needs: []need{
			probe("Commands.PrintArgs", func(h *Harness) bool { return h.Commands.PrintArgs != nil })}, run: func(t *T) {
			o := t.run(t.create(), t.h.Commands.PrintArgs(awkward...))
			t.wantExit(o, "printing arguments", 0)
			t.wantText("the arguments", o.stdout, strings.Join(awkward, "\x00")+"\x00")
		}},
		{name: "exec/printed", rule: "a sandbox and a process can be printed at any time, which shows nothing of a request", run: func(t *T) {
			sb := t.create()
			marker := "canary-" + random(12)
			r := t.begin(sb, t.h.Commands.Print(marker, ""))
			show := func() {
				for _, v := range []any{sb, r.proc} {
					for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
						if text := fmt.Sprintf(verb, v); strings.Contains(text, marker) || strings.Contains(text, fmt.Sprintf("%x", marker)) {
							t.Errorf("a %T printed by %s shows what a request held", v, verb)
							return
						}
					}
				}
			}
			for range 20 { // while it runs: a race detector sees what is read without its lock
				show()
			}
			t.wantExit(r.wait(t.h.CallTimeout), "printing", 0)
			show()
		}},
		{name: "exec/shell", rule: "Shell is run by the sandbox's sh -c without being altered", needs: []need{realShell}, run: func(t *T) {
			o := t.run(t.create(), Command{Shell: "x='a  b'; echo \"$x\" | cat && (exit 4)\n"})
			t.wantExit(o, "the script", 4)
			t.wantText("its output", o.stdout, "a  b\n")
		}},
		{name: "exec/dir", rule: "Dir is relative to the root, or absolute", needs: []need{
			probe("Commands.Dir", func(h *Harness) bool { return h.Commands.Dir != nil })}, run: func(t *T) {
			var root string
			sb := t.create(func(r *provider.CreateRequest) { root = r.Root })
			ctx, cancel := t.call()
			defer cancel()
			t.must(sb.Files().Mkdir(ctx, "sub/dir", 0o755), "Mkdir")
			for dir, want := range map[string]string{"": root, ".": root, "sub/dir": root + "/sub/dir", root + "/sub": root + "/sub"} {
				t.wantText("the working directory for Dir "+dir, t.run(sb, t.h.Commands.Dir(), withDir(dir)).stdout, want+"\n")
			}
		}},
		{name: "exec/dir-missing", rule: "a working directory that is not there is an error before anything is started", needs: []need{appends}, run: func(t *T) {
			sb := t.create()
			ctx, cancel := t.call()
			defer cancel()
			_, err := sb.Exec(ctx, t.exec(t.h.Commands.Append("../started", "x"), withDir("nowhere")))
			t.wantCode(err, "Exec in a missing directory", provider.NotFound, provider.FailedPrecondition, provider.InvalidArgument)
		}},
		{name: "exec/user", rule: "with features.user enforced the command runs as ExecRequest.User", needs: []need{
			declared("features.user enforced", func(d provider.Description) bool { return d.Features.User == provider.SupportEnforced }),
			probe("Commands.User", func(h *Harness) bool { return h.Commands.User != nil })}, run: func(t *T) {
			o := t.run(t.create(), t.h.Commands.User(), func(r *provider.ExecRequest) { r.User = "nobody" })
			if got := strings.TrimSpace(o.stdout); got != "nobody" && got != "65534" {
				t.Errorf("the command ran as %q, it must be nobody", got)
			}
		}},
		{name: "exec/env", rule: "Env reaches the command byte for byte", needs: []need{printEnv}, run: func(t *T) {
			sb := t.create()
			for _, v := range awkward {
				o := t.run(sb, t.h.Commands.PrintEnv("KIT_LITERAL"), func(r *provider.ExecRequest) {
					r.Env = map[string]string{"KIT_LITERAL": v, "KIT_OTHER": "other"}
				})
				t.wantExit(o, "printing the variable", 0)
				t.wantText("the variable", o.stdout, v)
			}
			t.wantExit(t.run(sb, t.h.Commands.PrintEnv("KIT_LITERAL")), "the next command, without it,", 3)
		}},
		{name: "exec/invalid", rule: "a request that ValidateExec refuses is InvalidArgument, with Applied no", needs: []need{appends}, run: func(t *T) {
			sb := t.create()
			for what, mod := range map[string]execMod{
				"args and shell":   func(r *provider.ExecRequest) { r.Args, r.Shell = []string{"true"}, "true" },
				"neither":          func(r *provider.ExecRequest) { r.Args, r.Shell = nil, "" },
				"a bad key":        func(r *provider.ExecRequest) { r.Env = map[string]string{"A-B": "x"} },
				"a key with =":     func(r *provider.ExecRequest) { r.Env = map[string]string{"A=B": "x"} },
				"a NUL in a value": func(r *provider.ExecRequest) { r.Env = map[string]string{"A": "x\x00y"} },
				"a NUL in an argument": func(r *provider.ExecRequest) {
					if len(r.Args) > 0 {
						r.Args = append(r.Args, "x\x00y")
					} else {
						r.Shell += " x\x00y"
					}
				},
			} {
				ctx, cancel := t.call()
				p, err := sb.Exec(ctx, t.exec(t.h.Commands.Append("started", what), mod))
				if t.wantCode(err, "Exec with "+what, provider.InvalidArgument) && provider.AppliedOf(err) != provider.AppliedNo {
					t.Errorf("Exec with %s says Applied %q, it must be no", what, provider.AppliedOf(err))
				}
				if err == nil {
					_, _ = p.Wait(ctx)
				}
				cancel()
			}
			if got, err := t.read(sb, "started"); err == nil {
				t.Errorf("a refused request was started all the same: %q", got)
			}
		}},
		{name: "exec/not-found", rule: "a command that does not exist is NotFound from Exec, with Applied no", run: func(t *T) {
			ctx, cancel := t.call()
			defer cancel()
			sb := t.create()
			for _, name := range []string{"no-such-command-" + random(4), "/no/such/command"} {
				_, err := sb.Exec(ctx, t.exec(Command{Args: []string{name}}))
				if t.wantCode(err, "Exec of a missing command", provider.NotFound) && provider.AppliedOf(err) != provider.AppliedNo {
					t.Errorf("Exec of a missing command says Applied %q, it must be no", provider.AppliedOf(err))
				}
			}
		}},
		{name: "exec/not-executable", rule: "a file that cannot be executed is PermissionDenied from Exec, with Applied no", run: func(t *T) {
			sb := t.create()
			t.write(sb, "plain", "just text\n")
			ctx, cancel := t.call()
			defer cancel()
			_, err := sb.Exec(ctx, t.exec(Command{Args: []string{"./plain"}}))
			if t.wantCode(err, "Exec of a file without the x bit", provider.PermissionDenied) && provider.AppliedOf(err) != provider.AppliedNo {
				t.Errorf("Exec of a file without the x bit says Applied %q, it must be no", provider.AppliedOf(err))
			}
		}},
		{name: "exec/live-output", rule: "with exec.stream output is delivered while the command runs", needs: []need{streams, printSleep}, run: func(t *T) {
			r := t.begin(t.create(), t.h.Commands.PrintSleep("first", 300*time.Second, marker()))
			if !r.out.reached("first", t.soon()) {
				t.Errorf("output did not arrive within %s while the command ran on", t.soon())
			}
		}},
		{name: "exec/once", rule: "a command is started exactly once", needs: []need{appends}, run: func(t *T) {
			sb := t.create()
			for i := range 5 {
				t.wantExit(t.run(sb, t.h.Commands.Append("count", fmt.Sprint(i))), "appending a line", 0)
			}
			got, err := t.read(sb, "count")
			t.must(err, "reading the file")
			t.wantText("the lines of five commands", got, "0\n1\n2\n3\n4\n")
		}},
		{name: "exec/concurrent", rule: "commands of one sandbox run side by side, each with its own output", run: func(t *T) {
			sb := t.create()
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					text, out := fmt.Sprintf("command %d\n", i), newBuffer()
					ctx, cancel := t.call()
					defer cancel()
					p, err := sb.Exec(ctx, t.exec(t.h.Commands.Print(text, ""), func(r *provider.ExecRequest) { r.Stdout = out }))
					if err != nil {
						t.Errorf("concurrent Exec failed: %v", err)
						return
					}
					exit, err := p.Wait(ctx)
					if err != nil || exit.Kind != provider.ExitExited || exit.Code != 0 || out.String() != text {
						t.Errorf("concurrent command %d: exit %s %d, output %q, error %v", i, exit.Kind, exit.Code, out.String(), err)
					}
				})
			}
			wg.Wait()
		}},
		{name: "exec/wait-same", rule: "Wait may be called many times and from many goroutines; all get the same Exit", run: func(t *T) {
			r := t.begin(t.create(), t.h.Commands.Exit(9))
			first := r.wait(t.h.CallTimeout).Exit
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					ctx, cancel := t.call()
					defer cancel()
					if again, err := r.proc.Wait(ctx); err != nil || again != first {
						t.Errorf("a later Wait returned %+v (error %v), the first %+v", again, err, first)
					}
				})
			}
			wg.Wait()
		}},
		{name: "exec/wait-canceled", rule: "a cancelled Wait abandons the wait; the command goes on", needs: []need{stdinLive, cat}, run: func(t *T) {
			r := t.begin(t.create(), t.h.Commands.Cat(), live)
			ctx, cancel := context.WithTimeout(t.ctx, 50*time.Millisecond)
			_, err := r.proc.Wait(ctx)
			cancel()
			t.wantCode(err, "Wait whose context ended", provider.Canceled, provider.DeadlineExceeded)
			_, err = io.WriteString(r.proc.Stdin(), "still here\n")
			t.must(err, "writing to the command")
			t.must(r.proc.Stdin().Close(), "closing its input")
			o := r.wait(t.h.CallTimeout)
			t.wantExit(o, "the command", 0)
			t.wantText("its output", o.stdout, "still here\n")
		}},
		{name: "exec/start-context", rule: "cancelling Exec's context after it returned does nothing to the command", needs: []need{stdinLive, cat}, run: func(t *T) {
			sb, out := t.create(), newBuffer()
			ctx, cancel := t.call()
			p, err := sb.Exec(ctx, t.exec(t.h.Commands.Cat(), live, func(r *provider.ExecRequest) { r.Stdout = out }))
			cancel()
			t.must(err, "Exec")
			_, err = io.WriteString(p.Stdin(), "alive\n")
			t.must(err, "writing to the command after Exec's context was cancelled")
			t.must(p.Stdin().Close(), "closing its input")
			wctx, wcancel := t.call()
			defer wcancel()
			exit, err := p.Wait(wctx)
			t.must(err, "Wait")
			t.wantExit(outcome{Exit: exit}, "the command", 0)
			t.wantText("its output", out.String(), "alive\n")
		}},
		{name: "exec/writers", rule: "the writers are not used after Wait returned an Exit", needs: []need{children}, run: func(t *T) {
			sb := t.create()
			for range 3 {
				w := &guarded{}
				ctx, cancel := t.call()
				p, err := sb.Exec(ctx, t.exec(t.h.Commands.Background(time.Second, marker(), false), func(r *provider.ExecRequest) {
					r.Stdout, r.Stderr = w, w
				}))
				t.must(err, "Exec")
				_, err = p.Wait(ctx)
				cancel()
				t.must(err, "Wait")
				w.closed.Store(true)
				pause(t.ctx, 300*time.Millisecond)
				if n := w.late.Load(); n > 0 {
					t.Fatalf("a writer was called %d times after Wait had returned", n)
				}
			}
		}},
		{name: "exec/failing-writer", rule: "when a writer fails, the rest of that stream is drained and dropped, and the command goes on", needs: []need{
			probe("Commands.Spam", func(h *Harness) bool { return h.Commands.Spam != nil })}, run: func(t *T) {
			sb := t.create()
			w := &guarded{fail: true}
			ctx, cancel := t.call()
			defer cancel()
			p, err := sb.Exec(ctx, t.exec(t.h.Commands.Spam(1<<20), func(r *provider.ExecRequest) { r.Stdout = w }))
			t.must(err, "Exec")
			wctx, wcancel := context.WithTimeout(t.ctx, 10*time.Second+t.soon())
			defer wcancel()
			exit, err := p.Wait(wctx)
			t.must(err, "Wait for a command whose output nobody takes")
			t.wantExit(outcome{Exit: exit}, "the command", 0)
		}},
		{name: "exec/lost", rule: "when the connection to a running command breaks, its exit is lost, never success", needs: []need{printSleep,
			probe("Break", func(h *Harness) bool { return h.Break != nil })}, run: func(t *T) {
			sb := t.create()
			r := t.begin(sb, t.h.Commands.PrintSleep("on", 300*time.Second, marker()))
			if t.d.Exec.Stream && !r.out.reached("on", 10*time.Second+t.soon()) {
				t.Fatalf("the command did not start")
			}
			t.h.Break(t, sb, r.proc)
			ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second+t.soon())
			defer cancel()
			exit, err := r.proc.Wait(ctx)
			switch {
			case err != nil && ctx.Err() != nil:
				t.Errorf("Wait still blocks %s after the connection broke", 10*time.Second+t.soon())
			case err != nil:
				t.wantCode(err, "Wait after the connection broke", provider.Lost)
			case exit.Kind != provider.ExitLost && exit.Kind != provider.ExitKilled:
				t.Errorf("the exit is %s with code %d, it must be lost", exit.Kind, exit.Code)
			case exit.Code != -1:
				t.Errorf("the exit is %s with code %d, the code must be -1", exit.Kind, exit.Code)
			}
		}},
	}
}

// guarded notices writes that come too late.
type guarded struct {
	closed atomic.Bool
	late   atomic.Int64
	fail   bool
}

func (g *guarded) Write(p []byte) (int, error) {
	if g.closed.Load() {
		g.late.Add(1)
	}
	if g.fail {
		return 0, errors.New("writer failed on purpose")
	}
	return len(p), nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func stdinChecks() []check {
	return []check{
		{name: "stdin/none", rule: "without input a command reads end of file at once", needs: []need{cat}, run: func(t *T) {
			r := t.begin(t.create(), t.h.Commands.Cat())
			if r.proc.Stdin() != nil {
				t.Errorf("Stdin must return nil unless ExecRequest.Stdin is live")
			}
			o := r.wait(t.soon())
			t.wantExit(o, "reading an empty input", 0)
			t.wantText("stdout", o.stdout, "")
		}},
		{name: "stdin/upfront", rule: "StdinUpfront gives the command the complete input, then end of file", needs: []need{stdinGiven, cat}, run: func(t *T) {
			sb := t.create()
			big := strings.Repeat("0123456789abcdef", 20_000)
			for _, text := range append([]string{big}, awkward...) {
				r := t.begin(sb, t.h.Commands.Cat(), func(r *provider.ExecRequest) {
					r.Stdin, r.Input = provider.StdinUpfront, strings.NewReader(text)
				})
				o := r.wait(10*time.Second + t.soon())
				t.wantExit(o, "copying the input", 0)
				t.wantText("the copied input", o.stdout, text)
			}
		}},
		{name: "stdin/live", rule: "StdinLive takes input while the command runs; closing it is end of file", needs: []need{stdinLive, streams, cat}, run: func(t *T) {
			r := t.begin(t.create(), t.h.Commands.Cat(), live)
			in := r.proc.Stdin()
			if in == nil {
				t.Fatalf("Stdin returned nil with StdinLive")
			}
			for _, text := range []string{"one\n", "two\n", "three\n"} {
				_, err := io.WriteString(in, text)
				t.must(err, "writing to the command")
				if !r.out.reached(text, t.soon()) {
					t.Fatalf("the command did not answer %q within %s", text, t.soon())
				}
			}
			t.must(in.Close(), "closing the input")
			o := r.wait(t.soon())
			t.wantExit(o, "the command", 0)
			t.wantText("stdout", o.stdout, "one\ntwo\nthree\n")
		}},
		{name: "stdin/live-large", rule: "StdinLive passes any amount of input", needs: []need{stdinLive, cat}, run: func(t *T) {
			r := t.begin(t.create(), t.h.Commands.Cat(), live)
			text := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB
			go func() {
				_, _ = io.WriteString(r.proc.Stdin(), text)
				_ = r.proc.Stdin().Close()
			}()
			o := r.wait(30*time.Second + t.soon())
			t.wantExit(o, "the command", 0)
			t.wantText("the copied input", o.stdout, text)
		}},
		{name: "stdin/unread", rule: "input that the command does not read neither hangs nor fails it", needs: []need{stdinGiven}, run: func(t *T) {
			text := strings.Repeat("x", 1<<20)
			r := t.begin(t.create(), t.h.Commands.Exit(6), func(r *provider.ExecRequest) {
				r.Stdin, r.Input = provider.StdinUpfront, strings.NewReader(text)
			})
			t.wantExit(r.wait(10*time.Second+t.soon()), "a command that leaves its input unread", 6)
		}},
		{name: "stdin/undeclared", rule: "an input that exec.stdin does not declare is Unsupported, and nothing is started", needs: []need{
			undeclared("exec.stdin live", func(d provider.Description) bool { return d.Exec.Stdin == provider.StdinLive }), appends}, run: func(t *T) {
			sb := t.create()
			ctx, cancel := t.call()
			defer cancel()
			_, err := sb.Exec(ctx, t.exec(t.h.Commands.Append("started", "x"), live))
			t.wantCode(err, "Exec with live input", provider.Unsupported)
			if t.d.Exec.Stdin == provider.StdinNone {
				_, err := sb.Exec(ctx, t.exec(t.h.Commands.Append("started", "x"), func(r *provider.ExecRequest) {
					r.Stdin, r.Input = provider.StdinUpfront, strings.NewReader("x")
				}))
				t.wantCode(err, "Exec with input", provider.Unsupported)
			}
			if _, err := t.read(sb, "started"); err == nil {
				t.Errorf("a refused request was started all the same")
			}
		}},
	}
}

func volumeChecks() []check {
	return []check{{name: "volume/output", rule: "much output arrives completely, in bounded memory", limit: 10 * time.Minute, needs: []need{
		probe("Commands.Spam", func(h *Harness) bool { return h.Commands.Spam != nil })}, run: func(t *T) {
		sb := t.create()
		// The heap is the whole process's, in which other tests may run. A provider
		// that keeps output does so each time.
		for try := 1; ; try++ {
			n, grew := t.spam(sb)
			if n != t.h.Volume {
				t.Errorf("%d bytes arrived, %d were written", n, t.h.Volume)
			}
			const most = 64 << 20
			if t.h.Volume <= most || grew <= most {
				return
			}
			if try == 3 {
				t.Errorf("the heap grew by %d MiB while %d MiB passed, three times; output must not be kept", grew>>20, t.h.Volume>>20)
				return
			}
		}
	}}}
}

// spam lets a command write Volume bytes, and returns how many arrived and by how
// much the live heap grew meanwhile.
func (t *T) spam(sb provider.Sandbox) (arrived, grew int64) {
	w := &counter{}
	runtime.GC()
	w.base = liveHeap()
	ctx, cancel := context.WithTimeout(t.ctx, 9*time.Minute)
	defer cancel()
	p, err := sb.Exec(ctx, t.exec(t.h.Commands.Spam(t.h.Volume), func(r *provider.ExecRequest) { r.Stdout = w }))
	t.must(err, "Exec")
	exit, err := p.Wait(ctx)
	t.must(err, "Wait")
	t.wantExit(outcome{Exit: exit}, "the writer", 0)
	return w.totals()
}

// counter counts output and watches what lives on the heap. It bears a provider
// that goes on writing when it must not.
type counter struct {
	mu      sync.Mutex
	n, seen int64
	base    int64
	peak    int64
}

func (c *counter) totals() (n, peak int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n, c.peak
}

func (c *counter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += int64(len(p))
	if c.n-c.seen >= 8<<20 {
		c.seen = c.n
		c.peak = max(c.peak, liveHeap()-c.base)
	}
	return len(p), nil
}

// liveHeap returns the bytes that the last collection found alive: garbage does
// not count.
func liveHeap() int64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(s[0].Value.Uint64())
}

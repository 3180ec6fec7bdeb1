package providertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// matrixDeadline is the timeout of each script of the matrix.
const matrixDeadline = time.Minute

// script is one shape of script. $0 is a marker.
type script struct {
	name, text string
	out        string // the exact output
	code       int
	left       bool // leaves a process running
}

// scripts are the shapes that providers get wrong. SHELL stands for the shell's
// command line.
var scripts = []script{
	{"sequence", "echo a; echo b", "a\nb\n", 0, false},
	{"background-wait", "(echo a; exit 3) & wait $!", "a\n", 3, false},
	{"subshell", "(echo a; exit 4)", "a\n", 4, false},
	{"pipe", "echo a | cat", "a\n", 0, false},
	{"here-document", "x=2; cat <<EOF\nvalue $((x+1)) 'q' \"d\"\nEOF\n", "value 3 'q' \"d\"\n", 0, false},
	{"background-holds-stdout", "(sleep 300; :) & echo hi", "hi\n", 0, true},
	{"setsid", `setsid SHELL -c 'sleep 300; :' "$0" & echo hi`, "hi\n", 0, true},
	{"stdin-reader", "cat; echo eof", "eof\n", 0, false},
}

func matrixChecks(h *Harness) []check {
	var out []check
	for _, sh := range h.Shells {
		at := func(text string) Command {
			var quoted strings.Builder
			for _, a := range sh.Args {
				quoted.WriteString("'" + strings.ReplaceAll(a, "'", `'\''`) + "' ")
			}
			text = strings.ReplaceAll(text, "SHELL", quoted.String())
			return Command{Args: append(append([]string{}, sh.Args...), "-c", text)}
		}
		marked := func(text, m string) Command {
			c := at(text)
			c.Args = append(c.Args, m)
			return c
		}
		for _, s := range scripts {
			out = append(out, check{name: "matrix/" + sh.Name + "/" + s.name, needs: []need{realShell},
				rule: "output and exit code are right within the deadline and Slack, and a kill leaves nothing",
				run: func(t *T) {
					sb, m := t.create(), marker()
					r := t.begin(sb, marked(s.text, m), withTimeout(matrixDeadline, 0))
					limit := matrixDeadline + t.h.Slack
					if s.left && t.d.Exec.BackgroundSafe {
						limit = t.h.Slack // what it leaves must not delay it
					}
					o := r.wait(limit)
					t.wantExit(o, "the script", s.code)
					t.wantText("its output", o.stdout, s.out)
					if t.d.Exec.Kill == provider.KillTree {
						if s.left && t.d.Exec.BackgroundSafe {
							t.survivors(sb, "the background child", m, true)
						}
						t.kill(r, 0, "Kill")
						t.survivors(sb, "after Kill", m, false)
					}
				}})
		}
		out = append(out,
			check{name: "matrix/" + sh.Name + "/large-writer", needs: []need{realShell}, limit: 10 * time.Minute,
				rule: "200 MB of output arrive completely",
				run: func(t *T) {
					w := &counter{}
					ctx, cancel := t.call()
					defer cancel()
					p, err := t.create().Exec(ctx, t.exec(at(fmt.Sprintf("head -c %d /dev/zero; exit 5", t.h.Volume)),
						withTimeout(5*time.Minute, 0), func(r *provider.ExecRequest) { r.Stdout = w }))
					t.must(err, "Exec")
					exit, err := p.Wait(t.ctx)
					t.must(err, "Wait")
					t.wantExit(outcome{Exit: exit}, "the writer", 5)
					if w.n != t.h.Volume {
						t.Errorf("%d bytes arrived, %d were written", w.n, t.h.Volume)
					}
				}},
			check{name: "matrix/" + sh.Name + "/fork-bomb", needs: []need{realShell, killsTree,
				declared("features.pids enforced", func(d provider.Description) bool { return d.Features.PIDs == provider.SupportEnforced })},
				rule: "a fork bomb within the pids limit dies at its timeout, whole",
				run: func(t *T) {
					sb, m := t.create(func(r *provider.CreateRequest) { r.Resources.PIDs = 64 }), marker()
					r := t.beginTimed(sb, marked(`bomb() { bomb | bomb & bomb; }; bomb 2>/dev/null`, m), 0)
					o := r.wait(r.timeout + t.h.Slack)
					// At the limit a shell may give up before the timeout.
					if o.Kind == provider.ExitLost || o.Kind == provider.ExitKilled {
						t.Errorf("the exit is %s, it must be timed_out or the shell's own", o.Kind)
					}
					t.kill(r, 0, "Kill after a fork bomb")
					t.survivors(sb, "after the fork bomb", m, false)
					t.wantExit(t.run(sb, t.h.Commands.Exit(0)), "a command after the fork bomb", 0)
				}})
	}
	return out
}

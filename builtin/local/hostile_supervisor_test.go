//go:build linux

package local_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/provider"
)

// TestHostileToItsSupervisor lets commands attack what supervises them, at both
// levels. Whatever they do, the command ends in time, is not reported as a
// success, nothing of it survives, and the sandbox goes on.
func TestHostileToItsSupervisor(t *testing.T) {
	t.Parallel()
	attacks := []struct {
		name, shell string
		timeout     time.Duration
		// success: the attack does not keep the command from ending well.
		success bool
	}{
		{"kill-supervisor", `kill -KILL $PPID; sleep %s`, 3 * time.Second, false},
		{"stop-supervisor", `kill -STOP $PPID; sleep %s`, 2 * time.Second, false},
		{"stop-supervisor-and-exit", `kill -STOP $PPID; exit 0`, 2 * time.Second, true},
		{"kill-all", `(setsid sleep %s &) ; kill -KILL -1; sleep %[1]s`, 3 * time.Second, false},
		{"stop-all", `kill -STOP -1; sleep %s`, 2 * time.Second, false},
		{"kill-init", `kill -KILL 1; kill -STOP 1; kill -TERM 1; kill -INT 1; sleep %s`, 2 * time.Second, false},
		{"term-ignored", `trap "" TERM INT HUP; (trap "" TERM; setsid sleep %s) & while :; do sleep %[1]s; done`, time.Second, false},
		{"orphans", `for i in 1 2 3 4 5; do (setsid sh -c "trap '' TERM; sleep %s" &) ; done; trap "" TERM; sleep %[1]s`, time.Second, false},
		{"close-everything", `exec 0<&- 1>&- 2>&-; exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-; sleep %s`, time.Second, false},
		{"preload", `sleep %s`, time.Second, false},
	}
	for _, level := range []local.Level{local.LevelNamespaces, local.LevelLandlock} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			state, err := os.MkdirTemp("", "hostile-state-")
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(state) })
			p, err := local.New(local.Options{StateDir: state, Level: level})
			require.NoError(t, err)
			for i, a := range attacks {
				t.Run(a.name, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					defer cancel()
					v := &victimSandbox{sb: plainSandbox(ctx, t, p, fmt.Sprintf("%032x", i+1))}
					defer func() { assert.NoError(t, p.Destroy(context.WithoutCancel(ctx), v.sb.Ref())) }()
					// An odd number of seconds finds the survivors.
					mark := fmt.Sprintf("9%d%02d.%s", os.Getpid(), i, map[local.Level]string{local.LevelNamespaces: "1", local.LevelLandlock: "2"}[level])
					shell := a.shell
					if strings.Contains(shell, "%s") {
						shell = fmt.Sprintf(shell, mark)
					}
					start := time.Now()
					req := provider.ExecRequest{Shell: shell, Timeout: a.timeout, Grace: 200 * time.Millisecond}
					if a.name == "preload" {
						req.Env = map[string]string{"LD_PRELOAD": "/workspace/evil.so", "GODEBUG": "inittrace=1", "GOTRACEBACK": "crash"}
					}
					_, exit, err := v.runAny(ctx, req)
					require.NoError(t, err)
					assert.Less(t, time.Since(start), a.timeout+time.Minute)
					if !a.success {
						assert.False(t, exit.Kind == provider.ExitExited && exit.Code == 0, "%+v", exit)
					}
					assert.Empty(t, processesWith(t, mark), "survivors")
					out, exit, err := v.run(ctx, provider.ExecRequest{Shell: "echo fine"})
					require.NoError(t, err)
					assert.Equal(t, "fine\n", out, "%+v", exit)
				})
			}
		})
	}
}

// runAny is run for a command that may print on both streams.
func (v *victimSandbox) runAny(ctx context.Context, req provider.ExecRequest) (string, provider.Exit, error) {
	v.n++
	req.ID = fmt.Sprintf("run-%d", v.n)
	var out safeBuffer
	req.Stdin, req.Stdout, req.Stderr = provider.StdinNone, &out, &out
	proc, err := v.sb.Exec(ctx, req)
	if err != nil {
		return "", provider.Exit{}, err
	}
	exit, err := proc.Wait(ctx)
	return out.String(), exit, err
}

// processesWith lists the processes whose command line holds mark, once those
// that are dying had time to.
func processesWith(t *testing.T, mark string) []string {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var found []string
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		require.NoError(t, err)
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(mark)) {
				found = append(found, f+" "+strings.ReplaceAll(string(b), "\x00", " "))
			}
		}
		if len(found) == 0 || time.Now().After(deadline) {
			return found
		}
	}
}

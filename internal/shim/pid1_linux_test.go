package shim_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// soon is a context for one question.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// lives waits until exactly these supervisors live: one whose exit frame has come
// takes another moment to go.
func lives(t *testing.T, c *shim.Control, want ...string) {
	t.Helper()
	var ids []string
	ok := assert.Eventually(t, func() bool {
		var err error
		ids, err = c.Execs(soon(t))
		slices.Sort(ids)
		return err == nil && slices.Equal(ids, want)
	}, 30*time.Second, 5*time.Millisecond)
	require.True(t, ok, "%v live, not %v", ids, want)
}

func TestContainerExec(t *testing.T) {
	t.Parallel()
	b, c := startBox(t, boxOptions{})
	x, out, _ := b.exec("one", "", `echo "$TOKEN $HOME $(id -u)"; exit 7`)
	st := wait(t, x)
	assert.Equal(t, byte(7), st.Code)
	assert.Equal(t, "canary-value /root 0\n", out.String())
	lives(t, c)
}

// A background server goes on after the exec that started it: its supervisor lives on
// and nothing is handed to PID 1.
func TestBackgroundServerGoesOnInAContainer(t *testing.T) {
	t.Parallel()
	b, c := startBox(t, boxOptions{})
	m := marker(t)
	x, _, e := b.exec("server", "app", `setsid sleep `+m+` >/dev/null 2>&1 </dev/null & (setsid sleep `+m+` >/dev/null 2>&1 &); echo up`)
	st := wait(t, x)
	assert.False(t, st.TreeDead)
	assert.EqualValues(t, 2, st.Left)
	require.NoError(t, e.in.Close())
	time.Sleep(time.Second) // four looks of PID 1
	assert.Len(t, b.inside(m), 2)
	lives(t, c, "server")
	k, err := c.KillExec(soon(t), "server")
	require.NoError(t, err)
	assert.Equal(t, 1, k.Execs)
	assert.Empty(t, b.inside(m))
}

// Trap 6, by a root workload, which alone can reach its supervisor: after KILL the
// tree is handed to PID 1, which kills it.
func TestTrap06SupervisorKilledByItsWorkload(t *testing.T) {
	t.Parallel()
	b, c := startBox(t, boxOptions{})
	m := marker(t)
	bystander, out2, _ := b.exec("bystander", "", `echo up; sleep `+m+`9`)
	out2.waitFor(t, "up")
	x, out, _ := b.exec("victim", "", `trap '' TERM; setsid sleep `+m+` & (setsid sleep `+m+` &); echo up; read go; kill -KILL $PPID; sleep `+m, live())
	out.waitFor(t, "up")
	_, err := io.WriteString(x.Stdin(), "go\n")
	require.NoError(t, err)
	assert.True(t, wait(t, x).Lost)
	b.gone("orphans are alive", func() []int { return exactly(b, m) })
	lives(t, c, "bystander")
	require.NoError(t, bystander.Kill(soon(t), 0))
}

// exactly lists sleeps of m and not of a longer number.
func exactly(b *box, m string) []int { return b.inside("sleep\x00" + m + "\x00") }

// Trap 6: a stopped supervisor does not answer its control frame, but PID 1 kills it
// and the tree.
func TestTrap06SupervisorStoppedByItsWorkload(t *testing.T) {
	t.Parallel()
	b, c := startBox(t, boxOptions{})
	m := marker(t)
	x, out, _ := b.exec("stopped", "", `trap '' TERM; setsid sleep `+m+` & echo ready; read go; kill -STOP $PPID; sleep `+m, live())
	out.waitFor(t, "ready")
	_, err := io.WriteString(x.Stdin(), "go\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		p := b.inside("shim\x00exec\x00stopped")
		return len(p) == 1 && strings.HasPrefix(statusLine(p[0], "State:"), "T")
	}, 30*time.Second, 5*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, x.Kill(ctx, 0), context.DeadlineExceeded, "a stopped supervisor answered")
	began := time.Now()
	k, err := c.KillExec(soon(t), "stopped")
	require.NoError(t, err)
	assert.Less(t, time.Since(began), 30*time.Second)
	assert.Equal(t, 1, k.Execs)
	assert.Empty(t, b.inside(m))
	assert.True(t, wait(t, x).Lost)
}

// Trap 6, for the usual workload, which is not root: it can do neither.
func TestTrap06OrdinaryWorkloadCannotReachItsSupervisor(t *testing.T) {
	t.Parallel()
	b, _ := startBox(t, boxOptions{})
	x, out, _ := b.exec("x", "app", `kill -KILL $PPID; kill -STOP $PPID; kill -KILL 1; kill -TERM 1; echo alive`)
	st := wait(t, x)
	assert.Equal(t, byte(0), st.Code)
	assert.Contains(t, out.String(), "alive")
	assert.Equal(t, 4, strings.Count(out.String(), "not permitted"), "%s", out)
}

// Trap 4: a supervisor at the pids limit beside a bomb that ignores TERM and changes
// sessions; the kill needs no new process.
func TestTrap04ForkBombAtTheLimit(t *testing.T) {
	for _, user := range []string{"app", ""} {
		for _, way := range []string{"frame", "pid1", "pid1 with its supervisor killed"} {
			t.Run(strings.TrimSpace(way+" "+user), func(t *testing.T) {
				b, c := startBox(t, boxOptions{PIDs: 96})
				x, out, _ := b.exec("bomb", user, `exec /hostile`, func(r *shim.Request) { r.Env = append(r.Env, []byte(stageEnv+"=fork-bomb")) })
				out.waitFor(t, "bombing")
				require.Eventually(t, func() bool { return limitHit(b.cgroup) }, 30*time.Second, 10*time.Millisecond)
				began := time.Now()
				switch way {
				case "frame":
					require.NoError(t, x.Kill(soon(t), 0))
					assert.True(t, wait(t, x).TreeDead)
				case "pid1":
					k, err := c.KillExec(soon(t), "bomb")
					require.NoError(t, err)
					assert.Equal(t, 1, k.Execs)
				default:
					for _, pid := range b.inside("shim\x00exec\x00bomb") {
						require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
					}
				}
				b.gone("the bomb lives", func() []int { return b.inside("hostile") })
				t.Logf("dead after %v", time.Since(began).Round(time.Millisecond))
				_, err := c.Ping(soon(t))
				require.NoError(t, err)
			})
		}
	}
}

// limitHit reports whether a fork was refused in the group.
func limitHit(group string) bool {
	b, err := os.ReadFile(group + "/pids.events")
	if err != nil {
		return false
	}
	f := strings.Fields(string(b))
	n, _ := strconv.Atoi(f[len(f)-1])
	return n > 0
}

// PID 1 starts no thread for what it is asked, holds nothing of the environment and only
// one capability.
func TestPID1IsBare(t *testing.T) {
	t.Parallel()
	b, c := startBox(t, boxOptions{Env: []string{"CANARY=canary-env", "GODEBUG=gctrace=1"}})
	threads := func() int {
		n, err := strconv.Atoi(statusLine(b.pid(), "Threads:"))
		require.NoError(t, err)
		return n
	}
	before := threads()
	assert.Equal(t, "0000000000000020", statusLine(b.pid(), "CapEff:"))
	assert.Equal(t, "0000000000000020", statusLine(b.pid(), "CapPrm:"))
	assert.Equal(t, "0000000000000000", statusLine(b.pid(), "CapBnd:"))
	assert.Equal(t, "1", statusLine(b.pid(), "NoNewPrivs:"))
	env, err := os.ReadFile("/proc/" + strconv.Itoa(b.pid()) + "/environ")
	require.NoError(t, err)
	assert.NotContains(t, string(env), "canary")
	for i := range 5 {
		x, _, _ := b.exec("e"+strconv.Itoa(i%3), "", `true`)
		wait(t, x)
		_, err := c.KillExec(soon(t), "none")
		require.NoError(t, err)
	}
	ctx := soon(t)
	for range 4000 { // more than its memory limit in garbage
		_, err := c.Execs(ctx)
		require.NoError(t, err)
	}
	kb := 0
	_, err = fmt.Sscanf(statusLine(b.pid(), "VmHWM:"), "%d", &kb)
	require.NoError(t, err)
	assert.Less(t, kb, 64<<10, "KiB of memory at most")
	// On a very busy machine the runtime makes another one for each of its two
	// processors, when all that were made before are just about to sleep.
	assert.LessOrEqual(t, threads(), before+2)
	assert.Empty(t, b.log.String())
}

// Trap 9: what holds values is closed to every workload, root's too.
func TestTrap09SupervisorsCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"app", ""} {
		t.Run("user "+user, func(t *testing.T) {
			t.Parallel()
			b, _ := startBox(t, boxOptions{Env: []string{"CANARY=canary-env"}})
			x, out, _ := b.exec("x", user, `for p in 1 $PPID; do for f in environ mem maps fd/0 exe; do
				if head -c 1 /proc/$p/$f >/dev/null 2>&1 || readlink /proc/$p/$f >/dev/null 2>&1; then echo "read $p $f"; fi; done; done
				tr '\0' ' ' </proc/$PPID/cmdline; grep -h Cap[PB] /proc/self/status`)
			wait(t, x)
			assert.NotContains(t, out.String(), "read ")
			assert.NotContains(t, out.String(), "canary")
			assert.Contains(t, out.String(), "/.sbx/shim exec x")
			if user == "" {
				assert.Contains(t, out.String(), "CapPrm:\t00000000000004fb\nCapBnd:\t00000000000004fb", "WorkloadCapabilities and nothing else")
			} else {
				assert.Contains(t, out.String(), "CapPrm:\t0000000000000000")
			}
		})
	}
}

// Trap 9: tracing is refused from the supervisor's first instruction on, before it
// has made itself unreadable: it has a capability that no workload has.
func TestTrap09TracingRefusedByCapability(t *testing.T) {
	t.Parallel()
	b, _ := startBox(t, boxOptions{})
	x, out, _ := b.exec("x", "", `echo up; sleep 60 & wait`)
	out.waitFor(t, "up")
	sup := b.inside("shim\x00exec\x00x")
	require.Len(t, sup, 1)
	var work []int
	require.Eventually(t, func() bool { work = b.inside("sleep\x0060"); return len(work) == 1 }, 30*time.Second, 5*time.Millisecond)
	caps := func(pid int) uint64 {
		v, err := strconv.ParseUint(statusLine(pid, "CapPrm:"), 16, 64)
		require.NoError(t, err)
		return v
	}
	assert.NotZero(t, caps(sup[0])&^caps(work[0]), "the workload's capabilities cover the supervisor's")
	require.NoError(t, x.Kill(soon(t), 0))
}

// Trap 7: root without CAP_KILL cannot kill the tree of another user; PID 1 does not
// start without it.
func TestTrap07NeedsCapKill(t *testing.T) {
	t.Parallel()
	b := launchBox(t, boxOptions{NoKill: true})
	b.wait()
	assert.Equal(t, 125, b.cmd.ProcessState.ExitCode())
	assert.Contains(t, b.log.String(), "capability KILL")
	assert.Equal(t, 1, strings.Count(b.log.String(), "\n"))
}

// Trap 7: with it, trees of every user are killed, by frame and by PID 1.
func TestTrap07KillsTreesOfOtherUsers(t *testing.T) {
	t.Parallel()
	b, c := startBox(t, boxOptions{})
	m := marker(t)
	x, out, _ := b.exec("a", "app", `trap '' TERM; setsid sleep `+m+` & echo up; sleep `+m)
	out.waitFor(t, "up")
	y, out, _ := b.exec("b", "1234:99", `trap '' TERM; setsid sleep `+m+` & echo up; sleep `+m)
	out.waitFor(t, "up")
	began := time.Now()
	require.NoError(t, x.Kill(soon(t), 0))
	t.Logf("frame: %v", time.Since(began))
	began = time.Now()
	_, err := c.KillExec(soon(t), "b")
	require.NoError(t, err)
	t.Logf("PID 1: %v", time.Since(began))
	assert.Empty(t, b.inside(m))
	assert.True(t, wait(t, x).TreeDead)
	assert.True(t, wait(t, y).Lost)
}

// What pretends to be a supervisor is none: it has a parent.
func TestPretendersAreNotSupervisors(t *testing.T) {
	t.Parallel()
	b, c := startBox(t, boxOptions{})
	m := marker(t)
	// The shim itself as the workload's child, waiting for frames that never come,
	// with the id of another exec; and a program with that command line whose own
	// name looks like the rest of a status without a parent.
	x, out, _ := b.exec("liar", "", `sleep 1000 | /.sbx/shim exec target & sleep 1000 | /.sbx/shim files target &
		`+stageEnv+`=pretend /hostile & echo up; sleep `+m)
	out.waitFor(t, "up")
	y, out2, _ := b.exec("target", "app", `echo up; sleep `+m)
	out2.waitFor(t, "up")
	require.Eventually(t, func() bool {
		return len(b.inside("shim\x00exec\x00target")) == 3 && len(b.inside("files\x00target")) == 1
	}, 30*time.Second, 5*time.Millisecond)
	lives(t, c, "liar", "target")
	k, err := c.KillExec(soon(t), "target")
	require.NoError(t, err)
	assert.Equal(t, 1, k.Execs, "a pretender was taken for a supervisor")
	assert.True(t, wait(t, y).Lost)
	assert.Len(t, b.inside("shim\x00exec\x00target"), 2, "the liar's child is the liar's")
	// An exec that is kept does not keep pretenders of its name in other trees.
	k, err = c.KillAllExcept(soon(t), []string{"target"})
	require.NoError(t, err)
	assert.Equal(t, 1, k.Execs)
	assert.True(t, wait(t, x).Lost)
	assert.Empty(t, b.everything())
}

func TestKillAllExcept(t *testing.T) {
	t.Parallel()
	b, c := startBox(t, boxOptions{})
	m := marker(t)
	var execs []*shim.Exec
	for _, id := range []string{"one", "two", "three"} {
		x, out, _ := b.exec(id, "app", `trap '' TERM; setsid sleep `+m+` & echo up; sleep `+m)
		out.waitFor(t, "up")
		execs = append(execs, x)
	}
	k, err := c.KillAllExcept(soon(t), []string{"two", "elsewhere"})
	require.NoError(t, err)
	assert.Equal(t, 2, k.Execs)
	lives(t, c, "two")
	assert.True(t, wait(t, execs[0]).Lost)
	assert.True(t, wait(t, execs[2]).Lost)
	assert.NotEmpty(t, b.inside(m))
	k, err = c.KillAllExcept(soon(t), nil)
	require.NoError(t, err)
	assert.Equal(t, 1, k.Execs)
	assert.Empty(t, b.everything())
}

// The stop signal from outside ends everything at once, from inside nothing.
func TestStop(t *testing.T) {
	t.Parallel()
	assertAtOnce(t, func() time.Duration { return stop(t) })
}

// graceOfStop is a little less than what a stop leaves the image's command to end.
const graceOfStop = 1900 * time.Millisecond

// assertAtOnce asserts that something does not wait for the grace of a stop. A busy
// machine delays it once in a while; one that waits does so every time.
func assertAtOnce(t *testing.T, do func() time.Duration) {
	t.Helper()
	best := time.Hour
	for range 5 {
		if best = min(best, do()); best < graceOfStop {
			return
		}
	}
	t.Errorf("it takes %s", best)
}

func stop(t *testing.T) time.Duration {
	t.Helper()
	b, c := startBox(t, boxOptions{})
	x, out, _ := b.exec("x", "", `for s in TERM INT HUP QUIT KILL STOP CHLD USR1 ALRM 37 34 64; do kill -$s 1; done; echo sent; trap '' TERM; sleep 1000`)
	out.waitFor(t, "sent")
	for range 3 {
		_, err := c.Ping(soon(t))
		require.NoError(t, err)
	}
	began := time.Now()
	require.NoError(t, syscall.Kill(b.pid(), wire.StopSignal))
	b.wait()
	took := time.Since(began)
	assert.Equal(t, 0, b.cmd.ProcessState.ExitCode())
	assert.True(t, wait(t, x).Lost)
	<-c.Done()
	_, err := c.Ping(soon(t))
	assert.ErrorIs(t, err, shim.ErrControlClosed)
	return took
}

// A host that died in the middle of a sentence, noise, a second host: the next
// question is answered all the same, and half a question is not acted on.
func TestControlStreamIsShared(t *testing.T) {
	t.Parallel()
	b, c := startBox(t, boxOptions{})
	m := marker(t)
	x, out, _ := b.exec("keep", "app", `echo up; sleep `+m)
	out.waitFor(t, "up")
	nonce := strings.Repeat("ab", 16)
	cut := wire.AppendLine(nil, nonce, wire.VerbKeep, "other", "keep")
	for _, noise := range []string{
		string(cut[:len(cut)-14]), // "keep other kee…"
		string(cut[:len(cut)-10]) + "\n",
		"sbx1 " + nonce + " keep\n",
		"\x00\xff\x01garbage\n\n\n",
		strings.Repeat("x", wire.MaxLine+10),
	} {
		_, err := io.WriteString(b.in, noise)
		require.NoError(t, err)
		_, err = c.Ping(soon(t))
		require.NoError(t, err, "after %.20q", noise)
	}
	second := b.attach()
	done := make(chan error, 40)
	for i := range 40 {
		who := c
		if i%2 == 0 {
			who = second
		}
		go func() { _, err := who.Ping(soon(t)); done <- err }()
	}
	for range 40 {
		require.NoError(t, <-done)
	}
	require.NoError(t, second.Close())
	_, err := c.Ping(soon(t))
	require.NoError(t, err)
	assert.NotEmpty(t, b.inside(m), "half a question was acted on")
	require.NoError(t, x.Kill(soon(t), 0))
}

// The end of PID 1's standard input changes nothing.
func TestEndOfControlInput(t *testing.T) {
	t.Parallel()
	b, c := startBox(t, boxOptions{})
	x, out, _ := b.exec("x", "app", `read line; echo "got $line"`, live())
	require.NoError(t, b.in.Close())
	_, err := io.WriteString(x.Stdin(), "text\n")
	require.NoError(t, err)
	assert.Equal(t, byte(0), wait(t, x).Code)
	assert.Equal(t, "got text\n", out.String())
	_, err = c.Ping(soon(t))
	require.ErrorIs(t, err, shim.ErrControlClosed)
	time.Sleep(300 * time.Millisecond)
	u := cpuTicks(b.pid())
	time.Sleep(500 * time.Millisecond)
	assert.LessOrEqual(t, cpuTicks(b.pid())-u, 5, "PID 1 spins")
}

func cpuTicks(pid int) int {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	f := strings.Fields(string(b))
	u, _ := strconv.Atoi(f[13])
	s, _ := strconv.Atoi(f[14])
	return u + s
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	b, c := startBox(t, boxOptions{})
	_ = b
	var refused *shim.RefusedError
	err := c.StartImage(soon(t), shim.ImageCommand{Args: []string{"true"}})
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, wire.RefuseMode, refused.Reason)
	for _, id := range []string{"", "a b", "a\nb", ".x", strings.Repeat("a", wire.MaxID+1), "ü"} {
		_, err = c.KillExec(soon(t), id)
		require.ErrorAs(t, err, &refused, "%q", id)
		_, err = c.KillAllExcept(soon(t), []string{id})
		require.ErrorAs(t, err, &refused, "%q", id)
	}
	k, err := c.KillExec(soon(t), "not-there")
	require.NoError(t, err)
	assert.Zero(t, k.Execs)
	_, err = shim.Workload{User: "a\nb"}.Setup()
	require.Error(t, err)
}

func TestImageCommand(t *testing.T) {
	t.Parallel()
	start := func(c *shim.Control, user, script string) error {
		return c.StartImage(soon(t), shim.ImageCommand{
			Workload: shim.Workload{User: user}, Args: []string{"/bin/sh", "-c", script},
			Env: [][]byte{[]byte("PATH=/usr/bin:/bin"), []byte("CANARY=canary-image")}, Dir: "/tmp",
		})
	}
	state := func(c *shim.Control) wire.ImageStatus {
		p, err := c.Ping(soon(t))
		require.NoError(t, err)
		return p.Image
	}
	t.Run("runs, logs and ends", func(t *testing.T) {
		t.Parallel()
		b, c := startBox(t, boxOptions{Image: true, Root: "/workspace", User: "app"})
		assert.Equal(t, wire.ImageWaiting, state(c).State)
		require.NoError(t, start(c, "app", `echo "out $(id -un) $PWD $CANARY $HOME"; echo err >&2; cat; exit 3`))
		require.Eventually(t, func() bool { return state(c).State == wire.ImageEnded }, 30*time.Second, 5*time.Millisecond)
		assert.Equal(t, byte(3), state(c).Code)
		b.log.waitFor(t, "err\n") // its way here is another one than the state's
		assert.Equal(t, "out app /tmp canary-image /workspace\nerr\n", b.log.String())
		var refused *shim.RefusedError
		require.ErrorAs(t, start(c, "app", "true"), &refused)
		assert.Equal(t, wire.RefuseAgain, refused.Reason)
		x, _, _ := b.exec("x", "app", "true")
		assert.Equal(t, byte(0), wait(t, x).Code)
		for _, f := range []string{"cmdline", "environ"} {
			for _, pid := range append(b.everything(), b.pid()) {
				text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + f)
				assert.NotContains(t, string(text), "canary")
			}
		}
	})
	t.Run("its daemons are no orphans, and reconcile spares them", func(t *testing.T) {
		t.Parallel()
		b, c := startBox(t, boxOptions{Image: true})
		m := marker(t)
		require.NoError(t, start(c, "", `(setsid sleep `+m+` &); exec sleep `+m))
		// Each has executed, so the shell between them is gone.
		require.Eventually(t, func() bool { return len(exactly(b, m)) == 2 }, 30*time.Second, 5*time.Millisecond)
		_, err := c.KillAllExcept(soon(t), nil)
		require.NoError(t, err)
		time.Sleep(600 * time.Millisecond) // two looks of PID 1
		assert.Len(t, b.inside(m), 2)
		assert.Equal(t, wire.ImageRunning, state(c).State)
	})
	t.Run("is told of a stop", func(t *testing.T) {
		t.Parallel()
		assertAtOnce(t, func() time.Duration {
			b, c := startBox(t, boxOptions{Image: true})
			require.NoError(t, start(c, "", `trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 1000 & wait; done`))
			b.log.waitFor(t, "up")
			began := time.Now()
			require.NoError(t, syscall.Kill(b.pid(), wire.StopSignal))
			b.wait()
			took := time.Since(began)
			if took < graceOfStop { // and not what a busy machine kept from hearing of it
				assert.Contains(t, b.log.String(), "bye")
			}
			return took
		})
	})
	t.Run("may not delay a stop", func(t *testing.T) {
		t.Parallel()
		b, c := startBox(t, boxOptions{Image: true})
		require.NoError(t, start(c, "", `trap '' TERM; echo up; while :; do sleep 0.02; done`))
		b.log.waitFor(t, "up")
		began := time.Now()
		require.NoError(t, syscall.Kill(b.pid(), wire.StopSignal))
		b.wait()
		assert.Less(t, time.Since(began), 30*time.Second)
		assert.GreaterOrEqual(t, time.Since(began), graceOfStop)
	})
	t.Run("cannot be started", func(t *testing.T) {
		t.Parallel()
		_, c := startBox(t, boxOptions{Image: true})
		err := c.StartImage(soon(t), shim.ImageCommand{Args: []string{"/no/such"}})
		var se *shim.StartError
		require.ErrorAs(t, err, &se)
		assert.Equal(t, wire.StageExec, se.Stage)
		assert.Equal(t, syscall.ENOENT, syscall.Errno(se.Errno))
		assert.Equal(t, wire.ImageLost, state(c).State)
	})
	t.Run("unknown user", func(t *testing.T) {
		t.Parallel()
		_, c := startBox(t, boxOptions{Image: true})
		var se *shim.StartError
		require.ErrorAs(t, start(c, "nobody-here", "true"), &se)
		assert.Equal(t, wire.StageUser, se.Stage)
	})
	t.Run("with its supervisor killed", func(t *testing.T) {
		t.Parallel()
		b, c := startBox(t, boxOptions{Image: true})
		m := marker(t)
		require.NoError(t, start(c, "", `(setsid sleep `+m+` &); sleep 0.3; kill -KILL $PPID; sleep `+m))
		b.gone("what it left", func() []int { return b.inside(m) })
		require.Eventually(t, func() bool { return state(c).State == wire.ImageLost }, 30*time.Second, 5*time.Millisecond)
		x, _, _ := b.exec("x", "app", "true")
		assert.Equal(t, byte(0), wait(t, x).Code)
	})
}

// The workspace is made and given to the user; what belongs to somebody is left.
func TestRootIsGivenToTheUser(t *testing.T) {
	t.Parallel()
	b, _ := startBox(t, boxOptions{Root: "/workspace", User: "app:staff"})
	x, out, _ := b.exec("x", "app", `stat -c '%u %g %a' /workspace; touch /workspace/f && echo ok`)
	wait(t, x)
	assert.Equal(t, "1000 50 755\nok\n", out.String())
	b, _ = startBox(t, boxOptions{Root: "/tmp/a/b", User: "1000"})
	x, out, _ = b.exec("x", "app", `stat -c '%u %g %a' /tmp/a/b /tmp/a`)
	wait(t, x)
	assert.Equal(t, "1000 1001 755\n0 0 755\n", out.String())
	failed := launchBox(t, boxOptions{Root: "/workspace", User: "nobody-here"})
	failed.wait()
	assert.Equal(t, 125, failed.cmd.ProcessState.ExitCode())
	assert.Contains(t, failed.log.String(), "user")
	failed = launchBox(t, boxOptions{Root: "/usr/made-here/x", User: "app"})
	failed.wait()
	assert.Contains(t, failed.log.String(), "make the workspace")
	require.NoDirExists(t, "/usr/made-here")
}

package docker_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/provider"
)

// begin starts a command and waits until it printed ready.
func begin(t testing.TB, sb provider.Sandbox, req provider.ExecRequest) provider.Process {
	t.Helper()
	p, ready := launch(t, sb, req)
	select {
	case err := <-ready:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the command does not get ready")
	}
	return p
}

// intoTimeout runs a command into its timeout. meanwhile is called when it has printed
// ready; on a busy machine a short timeout may be over before that, or while meanwhile
// looks, which it then says: the next one is longer.
func intoTimeout(t testing.TB, sb provider.Sandbox, req provider.ExecRequest, meanwhile func() bool) provider.Exit {
	t.Helper()
	for req.Timeout = 2 * time.Second; ; req.Timeout *= 6 {
		p, ready := launch(t, sb, req)
		ended := make(chan provider.Exit, 1)
		go func() {
			e, _ := p.Wait(t.Context()) // an exit of no kind is wrong
			ended <- e
		}()
		var e provider.Exit
		saw := false
		select {
		case err := <-ready:
			saw = err == nil && meanwhile()
			e = <-ended
		case e = <-ended:
		}
		if saw || e.Kind != provider.ExitTimedOut {
			return e
		}
		require.Less(t, req.Timeout, time.Minute, "the command does not get ready")
	}
}

// launch starts a command, and says when it has printed ready.
func launch(t testing.TB, sb provider.Sandbox, req provider.ExecRequest) (provider.Process, <-chan error) {
	t.Helper()
	r, w := io.Pipe()
	ready := make(chan error, 1)
	go func() {
		var got []byte
		buf := make([]byte, 1024)
		for !bytes.Contains(got, []byte("ready")) {
			n, err := r.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				ready <- err
				return
			}
		}
		ready <- nil
		_, _ = io.Copy(io.Discard, r)
	}()
	req.ID, req.Stdout, req.Stderr = randomHex(8), w, io.Discard
	p, err := sb.Exec(t.Context(), req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return p, ready
}

// marked lists the host's processes whose arguments hold the word.
func marked(t testing.TB, word string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var out []int
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(word)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			require.NoError(t, err)
			out = append(out, pid)
		}
	}
	return out
}

// shimOf is the supervisor of the process with that word.
func shimOf(t testing.TB, word string) int {
	t.Helper()
	for _, pid := range marked(t, word) {
		for pid > 1 {
			b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			if err != nil {
				break // it has ended meanwhile
			}
			_, rest, _ := strings.Cut(string(b), ") ")
			parent, err := strconv.Atoi(strings.Fields(rest)[1])
			require.NoError(t, err)
			if args, _ := os.ReadFile("/proc/" + strconv.Itoa(parent) + "/cmdline"); strings.HasPrefix(string(args), "/.sbx/shim\x00exec\x00") {
				return parent
			}
			pid = parent
		}
	}
	t.Fatal("no supervisor found")
	return 0
}

func assertNone(t testing.TB, word string) {
	t.Helper()
	assert.Eventually(t, func() bool { return len(marked(t, word)) == 0 }, time.Minute, 20*time.Millisecond, "processes are left")
}

// family is a script that ignores TERM and has children that left the session.
func family(word string) string {
	return `trap '' TERM HUP
run() { exec sh -c "trap '' TERM; sleep 300; : ` + word + `"; }
setsid sh -c "trap '' TERM; sleep 300; : ` + word + `" &
(setsid sh -c "(sleep 300; : ` + word + `) & sleep 300; : ` + word + `" &)
echo ready; run`
}

func wait(t testing.TB, p provider.Process, limit time.Duration) provider.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	e, err := p.Wait(ctx)
	require.NoError(t, err)
	return e
}

// A command that runs into its deadline, or is killed, leaves nothing of its tree,
// and other commands go on.
func TestNothingOfATreeIsLeft(t *testing.T) {
	t.Parallel()
	sb := create(t, newProvider(t))
	other, word := "other-"+randomHex(8), "tree-"+randomHex(8)
	begin(t, sb, shell(`echo ready; sleep 300; : `+other))

	r := shell(family(word))
	r.Grace = 200 * time.Millisecond
	e := intoTimeout(t, sb, r, func() bool { return len(marked(t, word)) > 0 })
	assert.Equal(t, provider.ExitTimedOut, e.Kind)
	assert.True(t, e.TreeDead)
	assertNone(t, word)

	p := begin(t, sb, shell(family(word)))
	require.NoError(t, p.Kill(t.Context(), 200*time.Millisecond))
	assert.Equal(t, provider.ExitKilled, wait(t, p, time.Minute).Kind)
	assertNone(t, word)
	assert.NotEmpty(t, marked(t, other), "another command was ended too")
}

// A server started in the background keeps running after the command that started
// it, and a later kill of that command ends it.
func TestBackgroundServerGoesOn(t *testing.T) {
	t.Parallel()
	sb := create(t, newProvider(t))
	word := "server-" + randomHex(8)
	p := begin(t, sb, shell(`setsid sh -c 'while :; do echo hello > beat; sleep 0.1; : `+word+`; done' & echo ready`))
	e := wait(t, p, time.Minute)
	assert.Equal(t, provider.ExitExited, e.Kind)
	assert.Positive(t, e.LeftRunning)
	beats := func() bool {
		_, err := sb.Files().Stat(t.Context(), "beat")
		return err == nil
	}
	require.Eventually(t, beats, time.Minute, 50*time.Millisecond, "the server does not beat")
	require.NoError(t, sb.Files().Remove(t.Context(), "beat", false))
	assert.Eventually(t, beats, time.Minute, 50*time.Millisecond, "the server does not beat any more")
	require.NoError(t, p.Kill(t.Context(), 0))
	assertNone(t, word)
}

// Traps 4 and 6: when the supervisor of a command is killed or stopped, the kill goes
// through the first process, and other commands go on.
func TestKillWithoutTheSupervisor(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	docker.SetKillPatience(p, 5*time.Second) // which a stopped one is waited for
	for _, c := range []struct {
		name, user string
		sig        syscall.Signal
	}{{"killed", "", syscall.SIGKILL}, {"stopped", "", syscall.SIGSTOP}, {"killed, of another user (trap 7)", "alice", syscall.SIGKILL}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sig := c.sig
			sb := create(t, p, func(r *provider.CreateRequest) { r.User = c.user })
			word, other := "orphan-"+randomHex(8), "other-"+randomHex(8)
			begin(t, sb, shell(`echo ready; sleep 300; : `+other))
			proc := begin(t, sb, shell(family(word)))
			require.NoError(t, syscall.Kill(shimOf(t, word), sig))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, proc.Kill(ctx, 100*time.Millisecond))
			assertNone(t, word)
			assert.Equal(t, provider.ExitLost, wait(t, proc, time.Minute).Kind, "an exit that nobody saw is lost")
			assert.NotEmpty(t, marked(t, other))
		})
	}
}

// Trap 3: input that nobody reads does not hold a kill up.
func TestUnreadInputDoesNotHoldTheKill(t *testing.T) {
	t.Parallel()
	sb := create(t, newProvider(t))
	word := "unread-" + randomHex(8)
	r := shell("echo ready; sleep 300; : " + word)
	r.Stdin = provider.StdinLive
	p := begin(t, sb, r)
	go func() {
		for b := make([]byte, 64<<10); ; {
			if _, err := p.Stdin().Write(b); err != nil {
				return
			}
		}
	}()
	time.Sleep(300 * time.Millisecond) // until the window is used up
	require.NoError(t, p.Kill(t.Context(), 0))
	assertNone(t, word)
	assert.Equal(t, provider.ExitKilled, wait(t, p, time.Minute).Kind, "its supervisor did not hear the kill")
}

// A stream that breaks is lost, never success, and nothing of the command is left.
func TestLostStreamIsLost(t *testing.T) {
	t.Parallel()
	sb := create(t, newProvider(t))
	word := "lost-" + randomHex(8)
	p := begin(t, sb, shell(family(word)))
	require.NoError(t, syscall.Kill(shimOf(t, word), syscall.SIGKILL))
	e := wait(t, p, time.Minute)
	assert.Equal(t, provider.ExitLost, e.Kind)
	assert.True(t, e.TreeDead)
	assertNone(t, word)
}

// Commands of a paused sandbox cannot end, and that is said.
func TestKillWhilePaused(t *testing.T) {
	t.Parallel()
	paused := newProvider(t)
	docker.SetKillPatience(paused, 5*time.Second) // which a frozen one is waited for
	sb := create(t, paused)
	word := "frozen-" + randomHex(8)
	p := begin(t, sb, shell(`echo ready; sleep 300; : `+word))
	pauser := sb.(provider.Pauser)
	require.NoError(t, pauser.Pause(t.Context()))
	err := p.Kill(t.Context(), 0)
	assert.ErrorIs(t, err, provider.ErrFailedPrecondition)
	assert.ErrorContains(t, err, "paused")
	_, err = sb.Exec(t.Context(), provider.ExecRequest{ID: "x", Args: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard})
	assert.ErrorIs(t, err, provider.ErrFailedPrecondition)
	require.NoError(t, pauser.Resume(t.Context()))
	assertNone(t, word)
}

// killContainer kills a container and returns when the engine knows that it has ended:
// the answer to the kill comes after ten seconds at the latest.
func killContainer(t testing.TB, name string) {
	t.Helper()
	cli := api(t)
	require.NoError(t, cli.ContainerKill(t.Context(), name, "KILL"))
	require.Eventually(t, func() bool {
		info, err := cli.ContainerInspect(t.Context(), name)
		return err == nil && !info.State.Running
	}, time.Minute, 20*time.Millisecond)
}

// A container that was killed or stopped from outside ends its commands as lost, and
// says so afterwards.
func TestContainerStoppedFromOutside(t *testing.T) {
	t.Parallel()
	sb := create(t, newProvider(t))
	p := begin(t, sb, shell(`echo ready; sleep 300`))
	killContainer(t, sb.Ref().ID)
	assert.Equal(t, provider.ExitLost, wait(t, p, time.Minute).Kind)
	st, err := sb.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, provider.StateStopped, st.State)
	assert.NotEmpty(t, st.Reason)
	_, err = sb.Exec(t.Context(), provider.ExecRequest{ID: "x", Args: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard})
	assert.ErrorIs(t, err, provider.ErrFailedPrecondition)
	assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
}

// volumeVariable asks for the long run of the next test.
const volumeVariable = "SBXHOST_TEST_OUTPUT_GIB"

// However long the output, the host does not grow. 1 GiB; SBXHOST_TEST_OUTPUT_GIB=10
// makes it ten.
func TestOutputDoesNotGrowTheHost(t *testing.T) {
	gib := 1
	if s := os.Getenv(volumeVariable); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		gib = n
	} else if testing.Short() {
		gib = 0
	}
	size := int64(gib) << 30
	if gib == 0 {
		size = 128 << 20
	}
	sb := create(t, newProvider(t))
	w := &counting{}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	p, err := sb.Exec(t.Context(), provider.ExecRequest{ID: "long", Shell: "head -c " + strconv.FormatInt(size, 10) + " /dev/zero", Stdout: w, Stderr: io.Discard})
	require.NoError(t, err)
	e := wait(t, p, 10*time.Minute)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	assert.Equal(t, provider.Exit{Kind: provider.ExitExited, TreeDead: true}, e)
	assert.Equal(t, size, w.n)
	grown := int64(after.HeapSys) - int64(before.HeapSys)
	t.Logf("%d MiB in %s; heap grew by %d KiB", size>>20, took, grown>>10)
	assert.Less(t, grown, int64(16<<20))
}

type counting struct{ n int64 }

func (c *counting) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }

// A reader that stops is felt by the command, and does not hold the kill up.
func TestSlowReaderDoesNotHoldTheKill(t *testing.T) {
	t.Parallel()
	sb := create(t, newProvider(t))
	block := make(chan struct{})
	w := &blocking{until: block}
	p, err := sb.Exec(t.Context(), provider.ExecRequest{ID: "slow", Shell: "cat /dev/zero", Stdout: w, Stderr: io.Discard})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- p.Kill(context.WithoutCancel(t.Context()), 0) }()
	select {
	case err := <-done:
		assert.NoError(t, err)
	case <-time.After(time.Minute):
		t.Error("the kill waits for the reader")
	}
	close(block)
	assert.Equal(t, provider.ExitKilled, wait(t, p, time.Minute).Kind, "its supervisor did not hear the kill")
}

type blocking struct{ until chan struct{} }

func (b *blocking) Write(p []byte) (int, error) { <-b.until; return len(p), nil }

// An engine may say for a moment that a sandbox is paused which was just unpaused.
func TestPausedOnceMore(t *testing.T) {
	t.Parallel()
	o := options(t)
	c, err := docker.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	e := newFaulty(c)
	p, err := docker.NewWithEngine(t.Context(), e, o)
	require.NoError(t, err)
	sb := create(t, patient(p))
	pauser := sb.(provider.Pauser)
	require.NoError(t, pauser.Pause(t.Context()))
	require.NoError(t, pauser.Resume(t.Context()))
	var times atomic.Int64
	e.failBefore("ContainerExecCreate", func(id string) error {
		if times.Add(1) > 3 {
			return nil
		}
		return errors.New("Error response from daemon: Container " + id + " is paused, unpause the container before exec")
	})
	assert.Equal(t, "out\n", run(t, sb, shell("echo out")).stdout)
	assert.EqualValues(t, 4, times.Load())
	// One that stays paused is, however it came to be.
	e.failBefore("ContainerExecCreate", func(id string) error { return errors.New("Container " + id + " is paused") })
	r := shell("echo out")
	r.ID, r.Stdout, r.Stderr = "e", io.Discard, io.Discard
	_, err = sb.Exec(t.Context(), r)
	require.ErrorIs(t, err, provider.ErrFailedPrecondition)
}

package shim_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/internal/shim/shimbin"
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	runStage()
	code := m.Run()
	if code == 0 {
		leak := goleak.Find()
		// What the last test started may be on its way out yet.
		for end := time.Now().Add(30 * time.Second); leak != nil && time.Now().Before(end); leak = goleak.Find() {
			time.Sleep(10 * time.Millisecond)
		}
		if leak != nil {
			fmt.Fprintln(os.Stderr, leak)
			code = 1
		}
	}
	_ = os.RemoveAll(filepath.Dir(program()))
	os.Exit(code)
}

// engine is a supervisor that is spoken to over its standard input and output, as
// an engine's exec is.
type engine struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser
}

func (e *engine) Read(p []byte) (int, error)  { return e.out.Read(p) }
func (e *engine) Write(p []byte) (int, error) { return e.in.Write(p) }
func (e *engine) Close() error {
	_ = e.in.Close()
	return e.out.Close()
}

var program = sync.OnceValue(func() string {
	bin, _ := shimbin.Linux(runtime.GOARCH)
	dir, err := os.MkdirTemp("", "shim-test")
	if err != nil {
		panic(err)
	}
	path := filepath.Join(dir, "shim")
	// A process that another test makes meanwhile would have it open for writing, and
	// what is open for writing cannot be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, bin, 0o755); err != nil {
		panic(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // other users run it too
		panic(err)
	}
	return path
})

func newEngine(t *testing.T) *engine {
	t.Helper()
	return newEngineAs(t, nil)
}

// newEngineAs starts the supervisor as another user.
func newEngineAs(t *testing.T, who *syscall.Credential) *engine {
	t.Helper()
	cmd := exec.Command(program(), "exec", "id")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	cmd.Env = shim.Environ()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	e := &engine{cmd, in, out}
	t.Cleanup(func() {
		_ = in.Close()
		done := make(chan struct{})
		go func() { defer close(done); _, _ = cmd.Process.Wait() }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			<-done
			t.Error("the supervisor did not end")
		}
		_ = out.Close()
	})
	return e
}

func setup(t *testing.T) []byte {
	t.Helper()
	b, err := (&wire.Config{Unconfined: true}).MarshalBinary()
	require.NoError(t, err)
	return b
}

// launch starts a shell script under a supervisor of its own.
func launch(t *testing.T, script string, mods ...func(*shim.Request)) (*shim.Exec, *buffer, *buffer, *engine) {
	t.Helper()
	var out, errs buffer
	req := shim.Request{
		Setup: setup(t), Args: []string{"/bin/sh", "-c", script},
		Env:    [][]byte{[]byte("PATH=/usr/bin:/bin"), []byte("TOKEN=canary-value")},
		Stdout: &out, Stderr: &errs,
	}
	for _, m := range mods {
		m(&req)
	}
	e := newEngine(t)
	x, err := shim.Start(t.Context(), e, req)
	require.NoError(t, err)
	return x, &out, &errs, e
}

// buffer may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *buffer) waitFor(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(b.String(), text) }, 30*time.Second, 2*time.Millisecond)
}

func wait(t *testing.T, x *shim.Exec) shim.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := x.Wait(ctx)
	require.NoError(t, err)
	return st
}

func live() func(*shim.Request) { return func(r *shim.Request) { r.LiveInput = true } }

// processes lists those whose command line holds marker.
func processes(t *testing.T, marker string) []int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var out []int
	for _, d := range dirs {
		if b, err := os.ReadFile(d); err == nil && bytes.Contains(b, []byte(marker)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(d)))
			require.NoError(t, err)
			out = append(out, pid)
		}
	}
	return out
}

func alive(t *testing.T, marker string) int { return len(processes(t, marker)) }

// marker is a time to sleep that no other test has, of this process or another.
func marker(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("300.%d%06d", os.Getpid(), markers.Add(1))
}

var markers atomic.Int64

func TestFramedExec(t *testing.T) {
	t.Parallel()
	t.Run("output, code and environment", func(t *testing.T) {
		t.Parallel()
		x, out, errs, _ := launch(t, `printf '%s' "$TOKEN"; echo err >&2; exit 7`)
		st := wait(t, x)
		assert.Equal(t, byte(7), st.Code)
		assert.True(t, st.TreeDead)
		assert.Equal(t, "canary-value", out.String())
		assert.Equal(t, "err\n", errs.String())
	})
	t.Run("signal", func(t *testing.T) {
		t.Parallel()
		x, _, _, _ := launch(t, `kill -SEGV $$`)
		st := wait(t, x)
		assert.Equal(t, byte(syscall.SIGSEGV), st.Signal)
		assert.False(t, st.ByUs)
	})
	t.Run("no input is the end of input", func(t *testing.T) {
		t.Parallel()
		x, out, _, _ := launch(t, `cat; echo end`)
		assert.Equal(t, byte(0), wait(t, x).Code)
		assert.Equal(t, "end\n", out.String())
	})
	t.Run("much output", func(t *testing.T) {
		t.Parallel()
		var n counter
		x, _, _, _ := launch(t, `head -c 50000000 /dev/zero`, func(r *shim.Request) { r.Stdout = &n })
		assert.Equal(t, byte(0), wait(t, x).Code)
		assert.EqualValues(t, 50000000, n)
	})
	t.Run("not found", func(t *testing.T) {
		t.Parallel()
		e := newEngine(t)
		_, err := shim.Start(t.Context(), e, shim.Request{Setup: setup(t), Args: []string{"no-such-program"}})
		var start *shim.StartError
		require.ErrorAs(t, err, &start)
		assert.Equal(t, wire.StageExec, start.Stage)
		assert.Equal(t, syscall.ENOENT, syscall.Errno(start.Errno))
	})
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// Trap 2: the end of the user's input is not the end of the transport.
func TestTrap02EndOfInputIsNotTheEndOfTheTransport(t *testing.T) {
	t.Parallel()
	x, out, _, _ := launch(t, `cat; echo after`, live())
	_, err := io.WriteString(x.Stdin(), "line\n")
	require.NoError(t, err)
	out.waitFor(t, "line\n")
	require.NoError(t, x.Stdin().Close())
	st := wait(t, x)
	assert.Equal(t, byte(0), st.Code)
	assert.False(t, st.ByUs)
	assert.Equal(t, "line\nafter\n", out.String())
}

func TestEndOfTheTransportKillsTheTree(t *testing.T) {
	t.Parallel()
	m := marker(t)
	x, out, _, e := launch(t, `trap '' TERM; setsid sleep `+m+` & (setsid sleep `+m+` &); echo ready; sleep `+m)
	out.waitFor(t, "ready")
	require.Eventually(t, func() bool { return alive(t, m) >= 3 }, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, e.in.Close())
	require.Eventually(t, func() bool { return alive(t, m) == 0 }, 30*time.Second, 5*time.Millisecond)
	st := wait(t, x)
	assert.True(t, st.Lost || st.ByUs)
}

// Trap 3: a kill does not wait behind input that nobody reads.
func TestTrap03KillPassesUnreadInput(t *testing.T) {
	t.Parallel()
	m := marker(t)
	x, out, _, _ := launch(t, `trap '' TERM; echo ready; sleep `+m+` & wait; sleep `+m, live())
	out.waitFor(t, "ready")
	written := make(chan error, 1)
	go func() {
		_, err := x.Stdin().Write(make([]byte, 64<<20))
		written <- err
	}()
	require.Never(t, func() bool { return len(written) > 0 }, 100*time.Millisecond, 10*time.Millisecond, "64 MiB were taken though nobody reads")
	began := time.Now()
	require.NoError(t, x.Kill(t.Context(), 0))
	assert.Less(t, time.Since(began), 30*time.Second)
	assert.Zero(t, alive(t, m))
	assert.Error(t, <-written)
	st := wait(t, x)
	assert.True(t, st.KilledByHost && st.ByUs && st.TreeDead)
}

func TestInputCreditDelivers(t *testing.T) {
	t.Parallel()
	x, out, _, _ := launch(t, `wc -c`, func(r *shim.Request) { r.Input = bytes.NewReader(make([]byte, 9<<20)) })
	assert.Equal(t, byte(0), wait(t, x).Code)
	assert.Equal(t, "9437184\n", out.String())
}

// TestSupervisorEnforcesCredit speaks the protocol by hand and sends more than the
// window: the supervisor breaks off and the tree dies.
func TestSupervisorEnforcesCredit(t *testing.T) {
	t.Parallel()
	m := marker(t)
	e := newEngine(t)
	b := wire.Append(nil, wire.Setup, setup(t))
	b = wire.Append(b, wire.Args, wire.AppendStrings(nil, "/bin/sleep", m))
	b = wire.Append(b, wire.Env, nil)
	b = wire.Append(b, wire.Go, nil)
	_, err := e.Write(b)
	require.NoError(t, err)
	r := wire.NewReader(e, wire.FromSupervisor)
	f, err := r.Next()
	require.NoError(t, err)
	require.Equal(t, wire.Ready, f.Type)
	go func() {
		for range wire.Window/wire.MaxChunk + 3 { // a pipe takes one more
			_, _ = e.Write(wire.Append(nil, wire.Input, make([]byte, wire.MaxChunk)))
		}
	}()
	require.Eventually(t, func() bool { return alive(t, m) == 0 }, 30*time.Second, 5*time.Millisecond)
}

// A reader that does not read is felt by the command; neither side buffers what it
// writes. A kill is answered all the same.
func TestOutputIsHeldBack(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	progress := filepath.Join(t.TempDir(), "n")
	x, _, _, e := launch(t, `i=0; while :; do head -c 1000000 /dev/zero; i=$((i+1)); echo $i >`+progress+`; done`, func(r *shim.Request) {
		r.Stdout = blocked(release)
	})
	written := func() string { b, _ := os.ReadFile(progress); return string(b) }
	last := "none"
	require.Eventually(t, func() bool { now := written(); same := now == last; last = now; return same }, 30*time.Second, 200*time.Millisecond)
	n, _ := strconv.Atoi(strings.TrimSpace(last))
	assert.Less(t, n, 5, "MB were taken from the command though nobody reads")
	kb := 0
	_, err := fmt.Sscanf(statusLine(e.cmd.Process.Pid, "VmHWM:"), "%d", &kb)
	require.NoError(t, err)
	assert.Less(t, kb, 32<<10)
	require.NoError(t, x.Kill(t.Context(), 0))
	close(release)
	assert.True(t, wait(t, x).TreeDead)
}

type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) { <-b; return len(p), nil }

func TestMalformedRequestsStartNothing(t *testing.T) {
	t.Parallel()
	args := wire.Append(nil, wire.Args, wire.AppendStrings(nil, "/bin/sh", "-c", "echo started"))
	start := wire.Append(nil, wire.Go, nil)
	conf := wire.Append(nil, wire.Setup, setup(t))
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, in := range map[string][]byte{
		"no setup":           join(args, start),
		"no args":            join(conf, start),
		"args twice":         join(conf, args, args, start),
		"input before go":    join(conf, args, wire.Append(nil, wire.Input, []byte("x")), start),
		"unterminated args":  join(conf, wire.Append(nil, wire.Args, []byte("sh")), start),
		"garbage":            []byte("GET / HTTP/1.1\r\n\r\n"),
		"malformed setup":    join(wire.Append(nil, wire.Setup, []byte{9}), args, start),
		"streams not passed": join(conf, wire.Append(nil, wire.Passed, nil), args, start),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t)
			_, _ = e.Write(in)
			out, _ := io.ReadAll(e.out)
			assert.NotContains(t, string(out), "started")
			assert.Empty(t, out)
		})
	}
}

// Trap 1: the terminal is made by the supervisor: its size is right before the
// command starts, the request is not echoed, and long input is not cut.
func TestTrap01FramedTerminal(t *testing.T) {
	t.Parallel()
	x, out, errs, _ := launch(t, `stty size; test -t 0 && test -t 1 && test -t 2 && echo tty; echo via >/dev/tty; read line; echo "got $line"; stty size`,
		live(), func(r *shim.Request) { r.TTY, r.Cols, r.Rows = true, 132, 44 })
	out.waitFor(t, "via\r\n") // with what its end becomes: nothing may come between
	require.NoError(t, x.Resize(80, 24))
	_, err := io.WriteString(x.Stdin(), "hello\n")
	require.NoError(t, err)
	st := wait(t, x)
	assert.Equal(t, byte(0), st.Code)
	text := strings.ReplaceAll(out.String(), "\r", "")
	assert.True(t, strings.HasPrefix(text, "44 132\ntty\nvia\n"), "%q", text)
	assert.Contains(t, text, "got hello\n24 80\n")
	assert.NotContains(t, text, "canary-value")
	assert.Empty(t, errs.String())
}

func TestTreeKill(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"setsid":      `setsid sh -c 'trap "" TERM; sleep M; sleep M' & echo ready; sleep M`,
		"double fork": `(setsid sh -c 'sleep M' & ) ; echo ready; sleep M`,
		"ignores":     `trap '' TERM HUP INT; echo ready; while :; do sleep M; done`,
		"stopped":     `sh -c 'kill -STOP $$; sleep M' & echo ready; sleep M`,
		"spawner":     `trap '' TERM; echo ready; while :; do setsid sleep M & sleep 0.01; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := marker(t)
			x, out, _, _ := launch(t, strings.ReplaceAll(script, "M", m))
			out.waitFor(t, "ready")
			require.NoError(t, x.Kill(t.Context(), 50*time.Millisecond))
			assert.Zero(t, alive(t, m))
			st := wait(t, x)
			assert.True(t, st.TreeDead)
			require.NoError(t, x.Kill(t.Context(), 0), "again")
		})
	}
}

func TestKillLeftovers(t *testing.T) {
	t.Parallel()
	m := marker(t)
	x, _, _, _ := launch(t, `setsid sleep `+m+` & exit 3`, func(r *shim.Request) { r.KillLeftovers = true })
	st := wait(t, x)
	assert.Equal(t, byte(3), st.Code)
	assert.True(t, st.TreeDead)
	assert.Zero(t, alive(t, m))
}

func TestBackgroundChildGoesOn(t *testing.T) {
	t.Parallel()
	m := marker(t)
	// It writes when the command's end is known, and not when a busy machine may
	// still be on its way there.
	known := filepath.Join(t.TempDir(), "known")
	x, out, _, _ := launch(t, `(until test -e `+known+`; do sleep 0.02; done; echo late; exec sleep `+m+`) & echo early`)
	st := wait(t, x)
	require.NoError(t, os.WriteFile(known, nil, 0o600))
	assert.Equal(t, byte(0), st.Code)
	assert.False(t, st.TreeDead)
	assert.Positive(t, st.Left)
	assert.Equal(t, "early\n", out.String())
	require.Eventually(t, func() bool { return alive(t, "sleep\x00"+m) == 1 }, 30*time.Second, 5*time.Millisecond, "it was killed by writing to a closed pipe")
	assert.Equal(t, "early\n", out.String(), "the writer was used after Wait")
	require.NoError(t, x.Kill(t.Context(), 0))
	assert.Zero(t, alive(t, m))
}

// Trap 6, the half that can be had without a jail: a supervisor that is killed
// shows as a lost exec, never as an exit code.
func TestTrap06KilledSupervisorIsLost(t *testing.T) {
	t.Parallel()
	m := marker(t)
	x, out, _, e := launch(t, `echo ready; sleep `+m)
	out.waitFor(t, "ready")
	require.NoError(t, e.cmd.Process.Kill())
	st := wait(t, x)
	assert.True(t, st.Lost)
	assert.False(t, st.TreeDead)
	require.ErrorIs(t, x.Kill(t.Context(), 0), shim.ErrLost)
	for _, pid := range processes(t, m) { // what the supervisor could not
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// Trap 9: the supervisor's memory and environment are closed to its own user, and
// hold nothing of the request in argv or environ.
func TestTrap09SupervisorIsHidden(t *testing.T) {
	t.Parallel()
	var who *syscall.Credential
	if os.Geteuid() == 0 { // root with all capabilities reads everything
		who = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	var out buffer
	x, err := shim.Start(t.Context(), newEngineAs(t, who), shim.Request{
		Setup: setup(t), Env: [][]byte{[]byte("PATH=/usr/bin:/bin"), []byte("TOKEN=canary-value")}, Stdout: &out,
		Args: []string{"/bin/sh", "-c", `for f in environ mem maps; do head -c 1 /proc/$PPID/$f >/dev/null 2>&1 && echo "read $f"; done; echo done; tr '\0' ' ' </proc/$PPID/cmdline`},
	})
	require.NoError(t, err)
	wait(t, x)
	assert.NotContains(t, out.String(), "read ")
	assert.Contains(t, out.String(), "exec id")
	assert.NotContains(t, out.String(), "canary")
}

func TestTimeoutKills(t *testing.T) {
	t.Parallel()
	m := marker(t)
	// On a busy machine it may be killed before it has said anything.
	said := filepath.Join(t.TempDir(), "said")
	x, out, _, _ := launch(t, `trap '' TERM; echo part; : >`+said+`; sleep `+m+`; sleep `+m, func(r *shim.Request) { r.Timeout, r.Grace = 3*time.Second, 50*time.Millisecond })
	st := wait(t, x)
	assert.True(t, st.TimedOut && st.ByUs && st.TreeDead)
	if _, err := os.Stat(said); err == nil {
		assert.Equal(t, "part\n", out.String())
	}
	assert.Zero(t, alive(t, m))
}

func TestStartIsCancelled(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := shim.Start(ctx, &pipeConn{r, io.Discard}, shim.Request{Setup: setup(t), Args: []string{"true"}})
	assert.ErrorIs(t, err, context.Canceled)
}

type pipeConn struct {
	*io.PipeReader
	io.Writer
}

func (p *pipeConn) Close() error { return p.PipeReader.Close() }

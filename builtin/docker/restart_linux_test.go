package docker_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/provider"
)

// privateEngine is an engine of the test's own, which it can kill. It leaves its
// containers running when it goes.
type privateEngine struct {
	t    *testing.T
	dir  string
	args []string
	cmd  *exec.Cmd
	host string
}

func newPrivateEngine(t *testing.T, args ...string) *privateEngine {
	t.Helper()
	return newPrivateEngineOn(t, func(string) {}, args...)
}

// newPrivateEngineOn starts an engine on a directory that prepare has seen.
func newPrivateEngineOn(t *testing.T, prepare func(dir string), args ...string) *privateEngine {
	t.Helper()
	api(t) // without any engine the reason is said there
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: an engine of one's own needs root")
	}
	dir, err := os.MkdirTemp("/var/tmp", "sbxhost-engine-") // sockets have short names
	require.NoError(t, err)
	e := &privateEngine{t: t, dir: dir, args: args, host: "unix://" + filepath.Join(dir, "sock")}
	t.Cleanup(e.remove)
	prepare(dir)
	e.start()
	return e
}

func (e *privateEngine) start() {
	e.t.Helper()
	log, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(e.t, err)
	defer func() { _ = log.Close() }()
	e.cmd = exec.Command("unshare", append([]string{"-n", "dockerd", "--data-root", e.dir + "/root", "--exec-root", e.dir + "/exec", "--pidfile", e.dir + "/pid",
		"-H", e.host, "--live-restore", "--bridge=none", "--iptables=false", "--ip6tables=false"}, e.args...)...)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	require.NoError(e.t, e.cmd.Start())
	cli, err := client.NewClientWithOpts(client.WithHost(e.host), client.WithAPIVersionNegotiation())
	require.NoError(e.t, err)
	defer func() { _ = cli.Close() }()
	require.Eventually(e.t, func() bool { _, err := cli.Ping(e.t.Context()); return err == nil }, 2*time.Minute, 50*time.Millisecond, "the engine does not come up: %s", e.dir)
}

func (e *privateEngine) kill() {
	e.t.Helper()
	require.NoError(e.t, e.cmd.Process.Signal(syscall.SIGKILL))
	_ = e.cmd.Wait()
	// Its runtime ends a moment after it; one that is just ending would be used.
	assert.Eventually(e.t, func() bool { return len(marked(e.t, e.dir+"/exec/containerd/containerd.toml")) == 0 }, time.Minute, 20*time.Millisecond)
	_ = os.Remove(e.dir + "/pid")
	_ = os.Remove(e.dir + "/exec/containerd/containerd.pid")
}

func (e *privateEngine) remove() {
	if e.cmd != nil {
		_ = e.cmd.Process.Signal(syscall.SIGTERM)
		_ = e.cmd.Wait()
	}
	// An engine that was killed leaves its container runtime to the next one. The shell
	// has its name on its own command line.
	_ = exec.Command("sh", "-c", `for p in /proc/[0-9]*; do if [ $p != /proc/$$ ] && tr '\0' ' ' <$p/cmdline 2>/dev/null | grep -q -- "`+e.dir+`/exec"; then kill -9 ${p#/proc/}; fi; done`).Run()
	// Who was killed may still be on its way out.
	assert.Eventually(e.t, func() bool {
		_ = exec.Command("sh", "-c", `grep " `+e.dir+`" /proc/self/mounts | cut -d' ' -f2 | sort -r | xargs -r -n1 umount -l`).Run()
		return os.RemoveAll(e.dir) == nil
	}, time.Minute, 100*time.Millisecond, "%s cannot be removed", e.dir)
}

// Trap 12: after an engine was killed and started again, the input of what ran does
// not end. The command is lost here at once. It is ended when this process starts
// another one, or, of another process, when one opens the sandbox.
// Trap 8: the engine would put an init of its own in front of every first process,
// unless told otherwise.
func TestTrap12EngineRestart_Trap08(t *testing.T) {
	t.Parallel()
	e := newPrivateEngine(t, "--init")
	o := docker.Options{Host: e.host, Image: "sbxhost-test:busybox", Pull: docker.PullNever, ConnectTimeout: connectTimeout}
	busyboxTo(t, e.host)
	p, err := docker.New(t.Context(), o)
	require.NoError(t, err)
	patient(p)
	sb, err := p.Create(t.Context(), request())
	require.NoError(t, err)
	own, err := p.Create(t.Context(), request())
	require.NoError(t, err)
	assert.Equal(t, "/.sbx/shim pid1 idle /workspace  - ", run(t, sb, shell(`tr '\0' ' ' </proc/1/cmdline`)).stdout, "trap 8: the first process is not ours")
	word, ownWord := "restart-"+randomHex(8), "own-"+randomHex(8)
	proc, ownProc := begin(t, sb, shell(family(word))), begin(t, own, shell(family(ownWord)))
	e.kill()
	for _, x := range []provider.Process{proc, ownProc} {
		exit := wait(t, x, time.Minute)
		assert.Equal(t, provider.ExitLost, exit.Kind)
		assert.False(t, exit.TreeDead, "nobody can know")
	}
	_, err = sb.Exec(t.Context(), provider.ExecRequest{ID: "x", Args: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard})
	assert.ErrorIs(t, err, provider.ErrUnavailable)
	assert.NotEmpty(t, marked(t, word), "the premise: the tree survives the engine")
	assert.NotEmpty(t, marked(t, ownWord), "the premise: the tree survives the engine")
	e.start()

	// The process that lost it.
	assert.Equal(t, "works\n", run(t, own, shell("echo works")).stdout)
	assertNone(t, ownWord)
	// Another process.
	second, err := docker.New(t.Context(), o)
	require.NoError(t, err)
	again, err := second.Open(t.Context(), sb.Ref())
	require.NoError(t, err)
	assertNone(t, word)
	assert.Equal(t, "works\n", run(t, again, shell("echo works")).stdout)
	// A background process of a command that ended is not lost: the engine knows it.
	begin(t, again, shell(`echo ready; sleep 300; : other-`+word))
	third, err := docker.New(t.Context(), o)
	require.NoError(t, err)
	_, err = third.Open(t.Context(), sb.Ref())
	require.NoError(t, err)
	assert.NotEmpty(t, marked(t, "other-"+word), "a live command of another process was ended")
	destroy(t, second, sb.Ref())
	destroy(t, p, own.Ref())
}

// A disk that is really full: what needs it says so and what to do, what does not
// goes on, and nothing is left of what failed.
func TestReallyFullDisk(t *testing.T) {
	t.Parallel()
	e := newPrivateEngineOn(t, func(dir string) {
		require.NoError(t, os.Mkdir(dir+"/root", 0o700))
		require.NoError(t, unix.Mount("tmpfs", dir+"/root", "tmpfs", 0, "size=32m,mode=0700"))
	})
	busyboxTo(t, e.host)
	p, err := docker.New(t.Context(), docker.Options{Host: e.host, Image: "sbxhost-test:busybox", Pull: docker.PullNever, ConnectTimeout: connectTimeout})
	require.NoError(t, err)
	sb, err := p.Create(t.Context(), request())
	require.NoError(t, err)
	ballast := e.dir + "/root/ballast"
	fill(t, ballast)

	req := request()
	_, err = p.Create(t.Context(), req)
	wantProblem(t, err, provider.ResourceExhausted, "disk is full", "docker system df")
	assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
	left, err := p.List(t.Context(), provider.Query{Session: req.SessionID})
	require.NoError(t, err)
	assert.Empty(t, left)
	// A command runs, and sees the full disk itself.
	got := run(t, sb, shell("echo runs; echo x > f || echo refused"))
	assert.Equal(t, "runs\nrefused\n", got.stdout)
	assert.Contains(t, got.stderr, "No space left")
	err = sb.Files().Write(t.Context(), "g", strings.NewReader(strings.Repeat("x", 1<<20)), provider.WriteOptions{})
	wantProblem(t, err, provider.ResourceExhausted, "no space left", "free space")
	_, err = sb.Files().Stat(t.Context(), "g")
	assert.ErrorIs(t, err, provider.ErrNotFound, "a part of it is there")
	_, err = p.Create(t.Context(), req)
	wantProblem(t, err, provider.ResourceExhausted)

	require.NoError(t, os.Remove(ballast))
	again, err := p.Create(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, "works\n", run(t, again, shell("echo works")).stdout)
	destroy(t, p, again.Ref())
	fill(t, ballast)
	destroy(t, p, sb.Ref()) // a full disk does not keep anything
	left, err = p.List(t.Context(), provider.Query{})
	require.NoError(t, err)
	assert.Empty(t, left)
}

// fill writes a file until there is no space left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			size /= 2
		}
	}
}

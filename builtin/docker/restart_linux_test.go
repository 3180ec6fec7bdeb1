package docker_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/provider"
)

// privateEngine is an engine of the test's own, which it can kill. It leaves its
// containers running when it goes.
type privateEngine struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	host string
}

func newPrivateEngine(t *testing.T) *privateEngine {
	t.Helper()
	api(t) // without any engine the reason is said there
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: an engine of one's own needs root")
	}
	dir, err := os.MkdirTemp("/var/tmp", "sbxhost-engine-") // sockets have short names
	require.NoError(t, err)
	e := &privateEngine{t: t, dir: dir, host: "unix://" + filepath.Join(dir, "sock")}
	t.Cleanup(e.remove)
	e.start()
	return e
}

func (e *privateEngine) start() {
	e.t.Helper()
	log, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(e.t, err)
	defer func() { _ = log.Close() }()
	e.cmd = exec.Command("unshare", "-n", "dockerd", "--data-root", e.dir+"/root", "--exec-root", e.dir+"/exec", "--pidfile", e.dir+"/pid",
		"-H", e.host, "--live-restore", "--bridge=none", "--iptables=false", "--ip6tables=false")
	e.cmd.Stdout, e.cmd.Stderr = log, log
	require.NoError(e.t, e.cmd.Start())
	cli, err := client.NewClientWithOpts(client.WithHost(e.host), client.WithAPIVersionNegotiation())
	require.NoError(e.t, err)
	defer func() { _ = cli.Close() }()
	require.Eventually(e.t, func() bool { _, err := cli.Ping(e.t.Context()); return err == nil }, 30*time.Second, 50*time.Millisecond, "the engine does not come up: %s", e.dir)
}

func (e *privateEngine) kill() {
	e.t.Helper()
	require.NoError(e.t, e.cmd.Process.Signal(syscall.SIGKILL))
	_ = e.cmd.Wait()
	// Its runtime ends a moment after it; one that is just ending would be used.
	assert.Eventually(e.t, func() bool { return len(marked(e.t, e.dir+"/exec/containerd/containerd.toml")) == 0 }, 30*time.Second, 20*time.Millisecond)
	_ = os.Remove(e.dir + "/pid")
	_ = os.Remove(e.dir + "/exec/containerd/containerd.pid")
}

func (e *privateEngine) remove() {
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	_ = e.cmd.Wait()
	// An engine that was killed leaves its container runtime to the next one.
	_ = exec.Command("sh", "-c", `for p in /proc/[0-9]*; do if tr '\0' ' ' <$p/cmdline 2>/dev/null | grep -q -- "`+e.dir+`/exec"; then kill -9 ${p#/proc/}; fi; done`).Run()
	_ = exec.Command("sh", "-c", `grep " `+e.dir+`" /proc/self/mounts | cut -d' ' -f2 | sort -r | xargs -r -n1 umount -l`).Run()
	assert.NoError(e.t, os.RemoveAll(e.dir))
}

// Trap 12: after an engine was killed and started again, the input of what ran does
// not end. The command is lost here at once, and the next process that opens the
// sandbox ends what nobody listens to any more.
func TestEngineRestart(t *testing.T) {
	t.Parallel()
	e := newPrivateEngine(t)
	o := docker.Options{Host: e.host, Image: "sbxhost-test:busybox", Pull: docker.PullNever}
	busyboxTo(t, e.host)
	p, err := docker.New(t.Context(), o)
	require.NoError(t, err)
	sb, err := p.Create(t.Context(), request())
	require.NoError(t, err)
	word := "restart-" + randomHex(8)
	proc := begin(t, sb, shell(family(word)))
	e.kill()
	assert.Equal(t, provider.ExitLost, wait(t, proc, 30*time.Second).Kind)
	_, err = sb.Exec(t.Context(), provider.ExecRequest{ID: "x", Args: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard})
	assert.ErrorIs(t, err, provider.ErrUnavailable)
	assert.NotEmpty(t, marked(t, word), "the premise: the tree survives the engine")
	e.start()
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
}

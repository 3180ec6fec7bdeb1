package local

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/sbxhost/sbxhost/provider"
)

// A supervisor that says why it gives up ends right after that: what it said is the
// reason, and not its end, however late this process comes to hear it.
func TestWhatTheSupervisorSaid(t *testing.T) {
	t.Parallel()
	provided, err := New(Options{StateDir: t.TempDir(), Level: LevelNamespaces})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, workspaceDir), 0o777)) //nolint:gosec // as a sandbox's is
	cfg, err := provided.jailConfig(&record{Root: "/workspace", Network: "none"}, dir)
	require.NoError(t, err)
	cfg.Hostname = strings.Repeat("x", 200)
	provided.late = func() { time.Sleep(300 * time.Millisecond) }
	_, err = provided.startJail(t.Context(), cfg, false, nil)
	var said *jailError
	require.ErrorAs(t, err, &said)
	assert.ErrorContains(t, err, "host name")
	provided.late = nil
	_, err = provided.startJail(t.Context(), cfg, false, func(pid int) error { return unix.Kill(pid, unix.SIGKILL) })
	require.ErrorIs(t, err, errSupervisorEnded)
}

func TestRanOut(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]bool{
		"oom_kill_disable 0\nunder_oom 0\noom_kill 0\n":               false,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n":               true,
		"low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n": true,
		"low 0\nmax 7\noom 1\noom_kill 0\n":                           false,
		"":                                                            false,
	} {
		dir := t.TempDir()
		assert.False(t, (&cgroup{dirs: []string{dir}}).ranOut())
		require.NoError(t, os.WriteFile(filepath.Join(dir, "memory.events"), []byte(content), 0o600))
		assert.Equal(t, want, (&cgroup{dirs: []string{dir}}).ranOut(), content)
	}
}

func TestEnded(t *testing.T) {
	t.Parallel()
	alive, dead := make(chan struct{}), make(chan struct{})
	close(dead)
	for _, c := range []struct {
		name string
		dead <-chan struct{}
		err  error
		want bool
	}{
		{"its end is seen", dead, syscall.EBADF, true},
		{"its end is not seen yet", alive, io.EOF, true},
		{"the control socket breaks", alive, unix.EPIPE, true},
		{"it goes before it is put into its group", alive, unix.ESRCH, true},
		{"something else", alive, unix.ENOSPC, false},
		{"it said why", dead, &jailError{"mount /data", unix.EACCES}, false},
		{"it said why, with a process's error", alive, &jailError{"find /proc", unix.ESRCH}, false},
		{"it said nonsense", dead, wire.ErrProtocol, false},
	} {
		assert.Equal(t, c.want, ended(c.dead, c.err), c.name)
	}
}

// What kills the tree of a command whose supervisor is gone is the kernel, and it may
// take its time: a kill waits for that. The end of the command says so too.
func TestKillAfterTheSupervisorsEnd(t *testing.T) {
	t.Parallel()
	p, err := New(Options{StateDir: t.TempDir(), Level: LevelNamespaces})
	require.NoError(t, err)
	id := strings.Repeat("e", 32)
	sb, err := p.Create(t.Context(), provider.CreateRequest{
		SessionID: id, Name: provider.NamePrefix + id, Digest: "sha256:test", Root: "/workspace", Network: "none", Start: "idle",
		Labels: map[string]string{
			provider.LabelOwner: "owner", provider.LabelEpoch: "1", provider.LabelSession: id,
			provider.LabelAttempt: id, provider.LabelDigest: "sha256:test", provider.LabelProtected: "0",
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Destroy(context.Background(), sb.Ref())) })
	cmd, err := sb.Exec(t.Context(), provider.ExecRequest{ID: "e", Args: []string{"sleep", "300"}, Stdout: io.Discard, Stderr: io.Discard})
	require.NoError(t, err)
	require.NoError(t, sb.(*sandbox).jail.process.Kill())
	exit, err := cmd.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, provider.Exit{Kind: provider.ExitLost, Code: -1, TreeDead: true}, exit)
	require.NoError(t, cmd.Kill(t.Context(), 0))
}

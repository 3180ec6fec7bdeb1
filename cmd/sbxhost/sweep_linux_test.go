package main

import (
	"bufio"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKilledRunIsSweptByTheNext: SIGKILL leaves a run no chance to clean up; the
// next run removes its sandbox, and leaves alone that of a run which still goes
// on.
func TestKilledRunIsSweptByTheNext(t *testing.T) {
	t.Parallel()
	state := func(home string) []string {
		dirs, err := filepath.Glob(filepath.Join(home, ".local/state/sbxhost/local/*/sandbox.json"))
		require.NoError(t, err)
		return dirs
	}
	start := func(home string) (kill func()) {
		cmd := command(t, "run", "--", "sh", "-c", "echo ready; exec sleep 300")
		if home != "" {
			cmd.Dir, cmd.Env[1] = home, "HOME="+home
		}
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "ready\n", line)
		return func() {
			_ = cmd.Process.Signal(syscall.SIGKILL) // it may have ended
			_ = cmd.Wait()                          // killed
		}
	}
	home := t.TempDir()
	start(home)()
	killed := state(home)
	require.Len(t, killed, 1, "the killed run must leave something, or this test shows nothing")

	stop := start(home)
	defer stop()
	next := func() {
		cmd := command(t, "run", "--", "true")
		cmd.Dir, cmd.Env[1] = home, "HOME="+home
		require.NoError(t, cmd.Run())
	}
	// A run does not look after others for long, and on a busy machine one may not
	// come to an end with it.
	for end := time.Now().Add(deadline); len(state(home)) > 1 && time.Now().Before(end); {
		next()
	}
	left := state(home)
	require.Len(t, left, 1, "the killed run's sandbox must be gone, the living one's there")
	require.NotEqual(t, killed, left)

	next()
	require.Equal(t, left, state(home), "a living run's sandbox must be left alone")
	_, err := os.Stat(left[0])
	assert.NoError(t, err)
}

package local_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestProbesAreSwept: what the probe of a killed process left is removed by the
// next one; a probe at work, a sandbox and other people's files are not.
func TestProbesAreSwept(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	old := time.Now().Add(-time.Hour)
	made := func(name string) string {
		dir := filepath.Join(state, name)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "workspace", "d"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600))
		require.NoError(t, os.Chtimes(dir, old, old))
		return dir
	}
	dead, busy, sandbox := made("probe-1"), made("probe-2"), made("prober")
	young := made("probe-3")
	require.NoError(t, os.Chtimes(young, time.Now(), time.Now()))
	lock, err := os.Open(filepath.Join(busy, "lock"))
	require.NoError(t, err)
	defer func() { _ = lock.Close() }()
	require.NoError(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))

	_, err = local.New(local.Options{StateDir: state})
	require.NoError(t, err)
	assert.NoDirExists(t, dead)
	assert.DirExists(t, busy)
	assert.DirExists(t, sandbox)
	assert.DirExists(t, young)
	left, err := filepath.Glob(filepath.Join(state, "probe-*"))
	require.NoError(t, err)
	assert.Len(t, left, 2, "its own are gone")
}

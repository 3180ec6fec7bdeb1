//go:build linux

package beneath

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A directory with more entries than are kept of one is emptied all the same, and
// listed in part by nothing: a walk says that it is too large.
func TestLargeDirectory(t *testing.T) { //nolint:paralleltest // it changes what all of the package uses
	defer func(n int) { maxNames = n }(maxNames)
	maxNames = 7
	root := t.TempDir()
	for i := range 25 {
		dir := filepath.Join(root, "tree", "many", fmt.Sprint("dir", i))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, "tree", "many", fmt.Sprint("file", i)), nil, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	}
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	require.ErrorIs(t, Walk(fd, func(Entry, int) error { return nil }), ErrDepth)
	require.NoError(t, RemoveTree(fd, "tree"))
	left, err := os.ReadDir(root)
	require.NoError(t, err)
	assert.Empty(t, left)
}

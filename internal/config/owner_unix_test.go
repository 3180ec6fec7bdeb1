//go:build unix

package config_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/config"
)

// A file that merely lies in the current directory could be anybody's, and it
// grants.
func TestForeignFileInCurrentDirectory(t *testing.T) {
	none := func(string) string { return "" }
	t.Chdir(t.TempDir())
	write(t, "sbxhost.yaml", "A")
	_, err := config.Load("", none)
	require.NoError(t, err)

	require.NoError(t, os.Chmod("sbxhost.yaml", 0o666))
	_, err = config.Load("", none)
	require.ErrorContains(t, err, "anyone may write it")
	_, err = config.Load("sbxhost.yaml", none)
	require.NoError(t, err, "named on purpose")
	require.NoError(t, os.Chmod("sbxhost.yaml", 0o600))

	if os.Getuid() != 0 {
		return // only root can give files away
	}
	require.NoError(t, os.Chown("sbxhost.yaml", 12345, 12345))
	_, err = config.Load("", none)
	require.ErrorContains(t, err, "belongs to user 12345")
}

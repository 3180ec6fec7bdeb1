//go:build unix

package host_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

// A named pipe would hang whoever reads it.
func TestHostPathsRefuseSpecialFiles(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	pipe := filepath.Join(root, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, p := range []string{pipe, root} {
		e := newEnv(t, func(s *setup) { s.host.HostPathRoots = []string{root} })
		m := ordinary()
		m.Files = map[string]manifest.File{"in": {HostPath: p}}
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: m})
		code(t, provider.InvalidArgument, err)
		e.untouched(t)
	}
}

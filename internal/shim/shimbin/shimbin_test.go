package shimbin_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sbxhost/sbxhost/internal/shim/shimbin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProgramsAreWhatTheSourceSays rebuilds the programs and compares every byte.
func TestProgramsAreWhatTheSourceSays(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "shim")
			cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", out, "./internal/shim/cmd/shim")
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0")
			msg, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", msg)
			built, err := os.ReadFile(out)
			require.NoError(t, err)
			have, ok := shimbin.Linux(arch)
			require.True(t, ok)
			assert.True(t, bytes.Equal(have, built), "the committed program differs from the source; run make shims (Go %s)", runtime.Version())
			assert.Less(t, len(have), 2<<20)
			assert.Len(t, shimbin.Digest(arch), 64)
		})
	}
	_, ok := shimbin.Linux("sparc")
	assert.False(t, ok)
	assert.Empty(t, shimbin.Digest("sparc"))
}

// TestProgramStaysSmall: nothing that formats, reflects over the network or
// decodes documents is linked in.
func TestProgramStaysSmall(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "list", "-deps", "github.com/sbxhost/sbxhost/internal/shim/cmd/shim")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	out, err := cmd.Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	require.Contains(t, deps, "github.com/sbxhost/sbxhost/internal/shim/wire")
	for _, unwanted := range []string{"fmt", "net", "net/http", "encoding/json", "os/exec", "os/signal", "log", "crypto/tls"} {
		assert.NotContains(t, deps, unwanted)
	}
}

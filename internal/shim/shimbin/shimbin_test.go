package shimbin_test

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sbxhost/sbxhost/internal/shim/shimbin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// toolchain returns the version of the Go that the test builds with.
func toolchain(t *testing.T) string {
	out, err := exec.Command("go", "env", "GOVERSION").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// judgeToolchain says what a build by another Go than the recorded one means: in CI
// a failure, elsewhere that the bytes cannot be compared. Both name the remedy.
func judgeToolchain(recorded, here string, ci bool) (fail, skip string) {
	if recorded == here {
		return "", ""
	}
	what := "THE SUPERVISOR'S PROGRAMS WERE BUILT BY " + recorded + ", THIS IS " + here + ": other versions make other bytes"
	if ci {
		return what + "; run make shims with this Go and commit what it changes", ""
	}
	return "", what + ", so they were not compared with the source; use " + recorded + ", or, when the project moves on, run make shims"
}

func TestToolchainIsJudged(t *testing.T) {
	t.Parallel()
	fail, skip := judgeToolchain("go1.2.3", "go1.2.3", true)
	assert.Empty(t, fail+skip)
	fail, skip = judgeToolchain("go1.2.3", "go1.2.4", true)
	assert.Empty(t, skip)
	assert.Contains(t, fail, "go1.2.3")
	assert.Contains(t, fail, "go1.2.4")
	assert.Contains(t, fail, "run make shims")
	fail, skip = judgeToolchain("go1.2.3", "go1.2.4", false)
	assert.Empty(t, fail)
	assert.Contains(t, skip, "make shims")
}

// TestRecordedToolchain: the record beside the programs is what is in them.
func TestRecordedToolchain(t *testing.T) {
	t.Parallel()
	for _, arch := range []string{"amd64", "arm64"} {
		have, ok := shimbin.Linux(arch)
		require.True(t, ok)
		info, err := buildinfo.Read(bytes.NewReader(have))
		require.NoError(t, err)
		assert.Equal(t, shimbin.GoVersion(), info.GoVersion, "go.version is not of linux/%s; run make shims", arch)
	}
}

// TestProgramsAreWhatTheSourceSays rebuilds the programs and compares every byte.
func TestProgramsAreWhatTheSourceSays(t *testing.T) {
	t.Parallel()
	fail, skip := judgeToolchain(shimbin.GoVersion(), toolchain(t), os.Getenv("CI") == "true")
	require.Empty(t, fail)
	if skip != "" {
		t.Skip(skip)
	}
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
			assert.True(t, bytes.Equal(have, built), "the committed program differs from the source; run make shims (Go %s)", shimbin.GoVersion())
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

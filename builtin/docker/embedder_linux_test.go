package docker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The provider works from go run, from a static binary, and from a program of
// somebody's own that uses cgo: what goes into the container is never the program
// itself.
func TestEmbedders(t *testing.T) {
	t.Parallel()
	image := busyboxImage(t)
	args := []string{os.Getenv(engineVariable), image}
	do := func(t *testing.T, cgo, name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "HOST_TOKEN=s3cr3t-token-value", "CGO_ENABLED="+cgo, "GOFLAGS=-buildvcs=false")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	const pkg = "./testdata/embedder"
	t.Run("go run", func(t *testing.T) {
		assert.Equal(t, "cgo=false [redacted:TOKEN] 18\n", do(t, "0", "go", append([]string{"run", "-trimpath", pkg}, args...)...))
	})
	for name, cgo := range map[string]string{"static": "0", "cgo": "1"} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath("gcc"); err != nil && cgo == "1" {
				t.Skip("NOT TESTED: no C compiler; apt-get install gcc libc6-dev")
			}
			bin := filepath.Join(t.TempDir(), "embedder")
			// As `make build` and `go test` build: what they compiled is used again.
			build, want := []string{"build", "-trimpath", "-o", bin, pkg}, "cgo=false"
			if cgo == "1" {
				build, want = []string{"build", "-o", bin, pkg}, "cgo=true"
			}
			do(t, cgo, "go", build...)
			assert.Equal(t, want+" [redacted:TOKEN] 18\n", do(t, cgo, bin, args...))
		})
	}
}

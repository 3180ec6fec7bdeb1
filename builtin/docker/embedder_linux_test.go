package docker_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const embedderPackage = "./testdata/embedder"

// embedderCommand runs with or without cgo.
func embedderCommand(ctx context.Context, cgo, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "HOST_TOKEN=s3cr3t-token-value", "CGO_ENABLED="+cgo, "GOFLAGS=-buildvcs=false")
	return cmd
}

// output runs a command to its end.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// staticEmbedder is the program without cgo, built as `make build` builds: what that
// compiled is used again.
var staticEmbedder = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sbxhost-embedder-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bin := filepath.Join(dir, "embedder")
	if out, err := embedderCommand(context.Background(), "0", "go", "build", "-trimpath", "-o", bin, embedderPackage).CombinedOutput(); err != nil {
		return string(out), err
	}
	b, err := os.ReadFile(bin)
	return string(b), err
})

func buildEmbedder(t *testing.T, cgo string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "embedder")
	if cgo == "0" {
		program, err := staticEmbedder()
		require.NoError(t, err, program)
		// By another process: a file that this one wrote may be open in a child that
		// is being made elsewhere, and cannot be executed then.
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `cat >"$1" && chmod 755 "$1"`, "sh", bin)
		cmd.Stdin = strings.NewReader(program)
		output(t, cmd)
		return bin
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("NOT TESTED: no C compiler; apt-get install gcc libc6-dev")
	}
	// As `go test` builds.
	output(t, embedderCommand(t.Context(), cgo, "go", "build", "-o", bin, embedderPackage))
	return bin
}

// The providers work from go run, from a static binary, and from a program of
// somebody's own that uses cgo.
//
// Trap 11: whatever runs in such a program before main, constructors of C and the
// initialisation of its packages, would run again in every supervisor if the program
// were its own supervisor. It runs once: what goes into a container or a jail is
// never the program itself.
func TestEmbedders_Trap11(t *testing.T) {
	t.Parallel()
	image := busyboxImage(t)
	docker := []string{"docker", os.Getenv(engineVariable), image}
	t.Run("go run", func(t *testing.T) {
		cmd := embedderCommand(t.Context(), "0", "go", append([]string{"run", "-trimpath", embedderPackage}, docker...)...)
		assert.Equal(t, "cgo=false [redacted:TOKEN] 18\n", output(t, cmd))
	})
	for name, cgo := range map[string]string{"static": "0", "cgo": "1"} {
		t.Run(name, func(t *testing.T) {
			bin := buildEmbedder(t, cgo)
			want, once := "cgo=false [redacted:TOKEN] 18\n", []string{"package", "main"}
			if cgo == "1" {
				want, once = "cgo=true [redacted:TOKEN] 18\n", []string{"constructor", "package", "main"}
			}
			// starts runs the program and returns what ran before its main.
			starts := func(args ...string) (out string, lines []string) {
				count := filepath.Join(t.TempDir(), "starts")
				cmd := embedderCommand(t.Context(), cgo, bin, args...)
				cmd.Env = append(cmd.Env, "EMBEDDER_STARTS="+count)
				return output(t, cmd), strings.Fields(slurp(t, count))
			}
			out, lines := starts(docker...)
			assert.Equal(t, want, out)
			assert.Equal(t, once, lines, "docker: the program ran again")
			out, lines = starts("local", filepath.Join(t.TempDir(), "state"))
			assert.True(t, strings.HasPrefix(out, want), out)
			assert.Contains(t, out, "level: ")
			assert.Equal(t, once, lines, "local: the program ran again")
			_, lines = starts("again")
			assert.Len(t, lines, 2*len(once), "the control: a program that runs itself is seen")
		})
	}
}

// Inside an ordinary container the local provider takes the level that can be had
// there, says what that leaves open, and works: for root and for somebody else.
func TestLocalInsideAContainer(t *testing.T) {
	t.Parallel()
	program, err := staticEmbedder()
	require.NoError(t, err, program)
	busy := mustLook(t, "busybox")
	picture := importImage(t, "embedder", nil, func() []file {
		return append(accounts(), file{name: "bin/busybox", content: slurp(t, busy)}, file{name: "bin/sh", link: "busybox"},
			file{name: "bin/true", link: "busybox"}, file{name: "embedder", content: program})
	})
	cli := api(t)
	for _, user := range []string{"", "1000:1001"} {
		t.Run("user "+user, func(t *testing.T) {
			t.Parallel()
			made, err := cli.ContainerCreate(t.Context(), &container.Config{Image: picture, User: user, Cmd: []string{"/embedder", "local", "/tmp/state"},
				Env: []string{"HOST_TOKEN=s3cr3t-token-value"}}, &container.HostConfig{NetworkMode: "none"}, nil, nil, "")
			require.NoError(t, err)
			t.Cleanup(func() {
				assert.NoError(t, cli.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true}))
			})
			require.NoError(t, cli.ContainerStart(t.Context(), made.ID, container.StartOptions{}))
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			ended, errs := cli.ContainerWait(ctx, made.ID, container.WaitConditionNotRunning)
			var code int64
			select {
			case r := <-ended:
				code = r.StatusCode
			case err := <-errs:
				require.NoError(t, err)
			}
			r, err := cli.ContainerLogs(t.Context(), made.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true})
			require.NoError(t, err)
			defer func() { _ = r.Close() }()
			var out bytes.Buffer
			_, err = stdcopy.StdCopy(&out, &out, r)
			require.NoError(t, err)
			text := out.String()
			assert.Zero(t, code, text)
			assert.True(t, strings.HasPrefix(text, "cgo=false [redacted:TOKEN] 18\n"), text)
			assert.Contains(t, text, "level: landlock\n")
			assert.Contains(t, text, "not namespaces: ")
			for _, end := range []string{"the kernel is shared", "the list of the host's processes", "SIGKILL"} {
				assert.Regexp(t, "(?m)^open: .*"+end, text)
			}
		})
	}
}

package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// Every file in testdata/docker is a session at the keyboard with a real engine: the
// one that .ci/setup found or started. Its image is made of busybox.
func TestDockerScripts(t *testing.T) {
	t.Parallel()
	host := os.Getenv("SBXHOST_TEST_ENGINE")
	if host == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("no engine to test against: run .ci/setup test, or set SBXHOST_TEST_ENGINE")
		}
		t.Skip("NOT TESTED: no engine; run .ci/setup test, or set SBXHOST_TEST_ENGINE")
	}
	const ref = "sbxhost-test:script"
	importBusybox(t, host, ref)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/docker",
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			for k, v := range map[string]string{"HOME": home, "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": filepath.Join(home, "state"),
				"SBXHOST_CONFIG": "", "DOCKER_CONFIG": "", "DOCKER_HOST": host, "DOCKER_CONTEXT": "", "IMAGE": ref} {
				env.Setenv(k, v)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": scriptCode, "json": scriptJSON},
	})
}

func importBusybox(t *testing.T, host, ref string) {
	t.Helper()
	path, err := exec.LookPath("busybox")
	require.NoError(t, err, "apt-get install busybox-static")
	program, err := os.ReadFile(path)
	require.NoError(t, err)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}))
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))}))
	_, err = w.Write(program)
	require.NoError(t, err)
	for _, name := range []string{"sh", "cat", "env", "sleep", "true"} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}))
	}
	require.NoError(t, w.Close())
	c, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	r, err := c.ImageImport(t.Context(), image.ImportSource{Source: &b, SourceName: "-"}, ref, image.ImportOptions{})
	require.NoError(t, err)
	defer func() { _ = r.Close() }()
	_, err = io.Copy(io.Discard, r)
	require.NoError(t, err)
}

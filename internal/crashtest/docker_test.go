//go:build linux

package crashtest

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/provider"
)

const (
	// engineVariable names the engine that tests may use.
	engineVariable = "SBXHOST_TEST_ENGINE"
	engineImage    = "sbxhost-crashtest:busybox"
)

// openDocker opens the test engine, seen through the owner's name of dir's: other
// directories have theirs in the same engine.
func openDocker(dir string, _ func(string)) (provider.Provider, error) {
	p, err := docker.New(context.Background(), docker.Options{Host: os.Getenv(engineVariable), Image: engineImage, Pull: docker.PullNever})
	if err != nil {
		return nil, err
	}
	return oneDir{p, ownerOf(dir)}, nil
}

// oneDir lists only what one directory's hosts and tests have made.
type oneDir struct {
	provider.Provider
	owner string
}

func (o oneDir) List(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
	list, err := o.Provider.List(ctx, q)
	return slices.DeleteFunc(list, func(x provider.Resource) bool {
		return !strings.HasPrefix(x.Labels[provider.LabelOwner], o.owner)
	}), err
}

var importOnce sync.Once

// needEngine makes the image, from a file of this machine. Without an engine the
// test is skipped, or, with CI=true, fails.
func needEngine(t *testing.T) {
	t.Helper()
	host := os.Getenv(engineVariable)
	if host == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("no engine to test against: run .ci/setup test, or set " + engineVariable)
		}
		t.Skip("NOT TESTED: no engine; run .ci/setup test, or set " + engineVariable)
	}
	importOnce.Do(func() {
		path, err := exec.LookPath("busybox")
		require.NoError(t, err, "apt-get install busybox-static")
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		var image bytes.Buffer
		w := tar.NewWriter(&image)
		require.NoError(t, w.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o755, Size: int64(len(content))}))
		_, err = w.Write(content)
		require.NoError(t, err)
		require.NoError(t, w.WriteHeader(&tar.Header{Name: "bin/sh", Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}))
		require.NoError(t, w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}))
		require.NoError(t, w.Close())
		cmd := exec.Command("docker", "-H", host, "import", "-", engineImage)
		cmd.Stdin = &image
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
}

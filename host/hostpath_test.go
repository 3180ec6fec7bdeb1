package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
)

func TestHostPaths(t *testing.T) {
	t.Parallel()
	root, outside := t.TempDir(), t.TempDir()
	write := func(name, data string, mode os.FileMode) {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(data), mode))
	}
	write(filepath.Join(root, "src/a.txt"), "a", 0o644)
	write(filepath.Join(root, "src/deep/run.sh"), "echo run", 0o755)
	write(filepath.Join(outside, "secret"), "outside", 0o644)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "src/empty"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "linked"), 0o755))
	link := func(target, name string) { require.NoError(t, os.Symlink(target, filepath.Join(root, name))) }
	link(filepath.Join(outside, "secret"), "file-link")
	link(outside, "dir-link")
	link("src", "inner-link")
	link("../src/a.txt", "linked/l")

	paths := func(hostPath string) manifest.Manifest {
		m := ordinary()
		m.Files = map[string]manifest.File{"in": {HostPath: hostPath}}
		return m
	}
	mounts := func(hostPath string) manifest.Manifest {
		m := ordinary()
		m.PathGrants = []manifest.PathGrant{{Path: "/data", HostPath: hostPath, ReadOnly: true}}
		return m
	}
	newHost := func(t *testing.T) *env {
		t.Helper()
		return newEnv(t, func(s *setup) { s.host.HostPathRoots = []string{root} },
			describe(func(d *provider.Description) { d.Features.PathGrants = provider.SupportEnforced }))
	}
	t.Run("a file and a directory are copied with their modes", func(t *testing.T) {
		t.Parallel()
		e := newHost(t)
		s := e.create(t, paths(filepath.Join(root, "src")))
		d, err := s.ReadFile(t.Context(), "in/a.txt")
		require.NoError(t, err)
		assert.Equal(t, "a", string(d.Data))
		assert.Equal(t, "run\n", string(run(t, s, "in/deep/run.sh").Stdout))
		info, err := s.Stat(t.Context(), "in/empty")
		require.NoError(t, err)
		assert.True(t, info.Mode.IsDir())
		s = e.create(t, paths(filepath.Join(root, "src/a.txt")))
		d, err = s.ReadFile(t.Context(), "in")
		require.NoError(t, err)
		assert.Equal(t, "a", string(d.Data))
	})
	t.Run("a path grant is resolved and passed on", func(t *testing.T) {
		t.Parallel()
		newHost(t).create(t, mounts(filepath.Join(root, "src")))
	})
	bad := map[string]string{
		"outside":                       filepath.Join(outside, "secret"),
		"dot dot":                       filepath.Join(root, "src") + "/../../" + filepath.Base(outside) + "/secret",
		"the root's parent":             filepath.Dir(root),
		"a link to a file":              filepath.Join(root, "file-link"),
		"a link to a directory":         filepath.Join(root, "dir-link"),
		"through a link":                filepath.Join(root, "dir-link/secret"),
		"through a link that stays":     filepath.Join(root, "inner-link/a.txt"),
		"absent":                        filepath.Join(root, "absent"),
		"a file as a directory":         filepath.Join(root, "src/a.txt/x"),
		"a directory that holds a link": filepath.Join(root, "linked"),
	}
	for name, p := range bad {
		for what, m := range map[string]manifest.Manifest{"files": paths(p), "pathGrants": mounts(p)} {
			if name == "a directory that holds a link" && what == "pathGrants" {
				continue // it is mounted, not followed
			}
			t.Run(fmt.Sprintf("%s refuse %s", what, name), func(t *testing.T) {
				t.Parallel()
				e := newHost(t)
				_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: m})
				code(t, provider.InvalidArgument, err)
				e.untouched(t)
			})
		}
	}
	t.Run("without roots every host path is refused", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: paths(filepath.Join(root, "src"))})
		code(t, provider.InvalidArgument, err)
		assert.ErrorContains(t, err, "hostPathRoots")
		e.untouched(t)
	})
	t.Run("a path that becomes a link after the check is not followed", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		name := filepath.Join(dir, "f")
		write(name, "inside", 0o644)
		e := newEnv(t, func(s *setup) { s.host.HostPathRoots = []string{dir} })
		swap := beforeFirst(fake.MethodCreate, func() {
			require.NoError(t, os.Remove(name))
			require.NoError(t, os.Symlink(filepath.Join(outside, "secret"), name))
		})
		e.fake.SetHooks(swap)
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: paths(name)})
		code(t, provider.InvalidArgument, err)
		e.empty(t)
	})
}

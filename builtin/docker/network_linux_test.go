package docker_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/provider"
)

// spy keeps what the engine is asked to make.
type spy struct {
	docker.Engine
	brand    string // of the engine, "" is its own
	disabled []bool
	modes    []string
}

func (s *spy) ServerVersion(ctx context.Context) (types.Version, error) {
	v, err := s.Engine.ServerVersion(ctx)
	for i := range v.Components {
		if s.brand != "" && v.Components[i].Name == "Engine" {
			v.Components[i].Name = s.brand
		}
	}
	return v, err
}

func (s *spy) ContainerCreate(ctx context.Context, c *container.Config, h *container.HostConfig, n *network.NetworkingConfig, p *ocispec.Platform, name string) (container.CreateResponse, error) {
	if strings.HasPrefix(name, provider.NamePrefix) && h.NetworkMode != "" && c.Labels[provider.LabelSession] != "" {
		s.disabled, s.modes = append(s.disabled, c.NetworkDisabled), append(s.modes, string(h.NetworkMode))
	}
	return s.Engine.ContainerCreate(ctx, c, h, n, p, name)
}

func spied(t testing.TB, brand string) (*spy, *docker.Provider) {
	t.Helper()
	o := options(t)
	c, err := docker.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	s := &spy{Engine: c, brand: brand}
	p, err := docker.NewWithEngine(t.Context(), s, o)
	require.NoError(t, err)
	return s, p
}

// An engine is told from others by its id, or by its address where it may invent one per answer.
func TestPlace(t *testing.T) {
	t.Parallel()
	_, p := spied(t, "")
	_, again := spied(t, "")
	assert.NotEmpty(t, p.Place())
	assert.Equal(t, p.Place(), again.Place())
	podman, p := spied(t, "Podman Engine")
	assert.Equal(t, "address "+podman.DaemonHost(), p.Place())
}

// devices are the network devices that a sandbox sees.
func devices(t testing.TB, sb provider.Sandbox) []string {
	t.Helper()
	var out []string
	for _, line := range strings.Split(run(t, sb, shell("cat /proc/net/dev")).stdout, "\n") {
		if name, _, is := strings.Cut(line, ":"); is {
			out = append(out, strings.TrimSpace(name))
		}
	}
	return out
}

// Without a network a sandbox has the loopback device alone, in a namespace of its
// own, whether or not the engine is told to make none at all; and what runs there finds
// localhost and its own name all the same.
func TestNoNetwork(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, brand, network string
		disabled             bool
	}{
		{name: "none", network: "none", disabled: true},
		{name: "none, an engine of somebody else's", brand: "Podman Engine", network: "none"},
		{name: "default", network: "default"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, p := spied(t, tc.brand)
			sb := create(t, p, func(r *provider.CreateRequest) { r.Network = tc.network })
			require.Equal(t, []bool{tc.disabled}, s.disabled)
			require.Len(t, s.modes, 1)

			here, err := os.Readlink("/proc/self/ns/net")
			require.NoError(t, err)
			info, err := api(t).ContainerInspect(t.Context(), sb.Ref().ID)
			require.NoError(t, err)
			if tc.network == "none" {
				assert.Equal(t, "none", s.modes[0])
				assert.Equal(t, []string{"lo"}, devices(t, sb))
			} else {
				assert.Greater(t, len(devices(t, sb)), 1)
			}
			there := run(t, sb, shell("readlink /proc/self/ns/net")).stdout
			assert.Contains(t, there, "net:[")
			assert.NotEqual(t, here, strings.TrimSpace(there), "the host's network")

			got := run(t, sb, shell(`mkdir -p /tmp/www && echo served >/tmp/www/x && httpd -p 127.0.0.1:8099 -h /tmp/www && wget -q -O - http://localhost:8099/x`))
			assert.Equal(t, "served\n", got.stdout, got.stderr)
			hosts := run(t, sb, shell(`cat /etc/hosts`)).stdout
			assert.Contains(t, hosts, "127.0.0.1\tlocalhost\n::1\tlocalhost")
			assert.Equal(t, info.Config.Hostname+"\n", run(t, sb, shell(`cat /etc/hostname`)).stdout)
			assert.Equal(t, info.Config.Hostname+"\n", run(t, sb, shell(`hostname`)).stdout)
			if tc.disabled {
				assert.Contains(t, hosts, "127.0.0.1\t"+info.Config.Hostname+"\n")
			}
		})
	}
}

// The names go into an empty file of the container's own and nowhere else: not through
// a link, not into a file of the host's.
func TestNoNetworkNames(t *testing.T) {
	t.Parallel()
	busy := func(extra ...file) func() []file {
		return func() []file {
			return append(append(accounts(), file{name: "bin/busybox", content: slurp(t, mustLook(t, "busybox"))}, file{name: "bin/sh", link: "busybox"}, file{name: "bin/cat", link: "busybox"}), extra...)
		}
	}
	p := newProvider(t)
	t.Run("a link", func(t *testing.T) {
		t.Parallel()
		ref := importImage(t, "hosts-link", nil, busy(file{name: "etc/hosts", link: "/home/victim"}, file{name: "home/victim", mode: 0o644}))
		sb := create(t, p, func(r *provider.CreateRequest) { r.Image = ref })
		assert.Empty(t, run(t, sb, shell("cat /home/victim")).stdout)
	})
	t.Run("a link above", func(t *testing.T) {
		t.Parallel()
		files := busy(file{name: "home/etc/hosts", mode: 0o644}, file{name: "etc", link: "/home/etc"})
		ref := importImage(t, "etc-link", nil, func() []file {
			var out []file
			for _, f := range files() {
				if !strings.HasPrefix(f.name, "etc/") {
					out = append(out, f)
				}
			}
			return out
		})
		sb := create(t, p, func(r *provider.CreateRequest) { r.Image = ref })
		assert.Empty(t, run(t, sb, shell("cat /home/etc/hosts")).stdout)
	})
	for _, where := range []string{"/etc", "/etc/hosts"} {
		t.Run("a path grant at "+where, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "hosts"), nil, 0o666))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "passwd"), []byte(passwd), 0o666))
			host := dir
			if where == "/etc/hosts" {
				host = filepath.Join(dir, "hosts")
			}
			sb := create(t, p, func(r *provider.CreateRequest) {
				r.Mounts = []provider.PathGrant{{HostPath: host, Path: where}}
			})
			assert.Empty(t, run(t, sb, shell("cat /etc/hosts")).stdout)
			assert.Empty(t, slurp(t, filepath.Join(dir, "hosts")), "a file of the host's was written")
		})
	}
}

// What the engine is asked for stays what inspect shows: a sandbox that is opened later
// is known to have no network.
func TestNoNetworkIsInspected(t *testing.T) {
	t.Parallel()
	sb := create(t, newProvider(t))
	_, raw, err := api(t).ContainerInspectWithRaw(t.Context(), sb.Ref().ID, false)
	require.NoError(t, err)
	var doc struct {
		Config     struct{ NetworkDisabled bool }
		HostConfig struct{ NetworkMode string }
	}
	require.NoError(t, json.Unmarshal(raw, &doc))
	assert.True(t, doc.Config.NetworkDisabled)
	assert.Equal(t, "none", doc.HostConfig.NetworkMode)
}

package docker_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider"
)

// samples are durations of one thing, measured in turn with the others so that a
// busy machine burdens all alike.
type samples map[string][]time.Duration

func (s samples) time(name string, f func()) {
	began := time.Now()
	f()
	s[name] = append(s[name], time.Since(began))
}

func (s samples) median(name string) time.Duration {
	d := slices.Sorted(slices.Values(s[name]))
	if len(d) == 0 {
		return 0
	}
	return d[len(d)/2]
}

// report gives the medians, and ours as a ratio to the raw client's and the
// command's.
func (s samples) report(b *testing.B) {
	for name := range s {
		b.ReportMetric(float64(s.median(name).Microseconds())/1000, name+"-ms")
	}
	ours := float64(s.median("ours"))
	for _, peer := range []string{"raw", "cli"} {
		if m := s.median(peer); m > 0 {
			b.ReportMetric(ours/float64(m), "x-"+peer)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// dockerCLI is the docker command, "" when it is not there.
func dockerCLI() string {
	if path, err := exec.LookPath("docker"); err == nil {
		return path
	}
	return ""
}

func cli(b *testing.B, args ...string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), dockerCLI(), append([]string{"--host", os.Getenv(engineVariable)}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
}

// BenchmarkLifecycle measures create until a command can run, and destroy, beside
// the raw client with the same kind of container (a named volume, no network) and
// the docker command. Targets: create 1.15 x raw create and start, destroy 1.10 x.
func BenchmarkLifecycle(b *testing.B) { lifecycle(b, "none", "none") }

// BenchmarkLifecycleNetwork is BenchmarkLifecycle with a network of its own kind: ours
// on that of an owner who has another sandbox, the others on one that is made for it.
func BenchmarkLifecycleNetwork(b *testing.B) {
	c, name := api(b), "bench-"+randomHex(8)
	must(c.NetworkCreate(b.Context(), name, network.CreateOptions{Driver: "bridge"}))
	b.Cleanup(func() { require.NoError(b, c.NetworkRemove(context.Background(), name)) })
	lifecycle(b, "default", name)
}

func lifecycle(b *testing.B, ours, theirs string) {
	p := newProvider(b)
	c, ctx := api(b), b.Context()
	ref := busyboxImage(b)
	owner := "bench-" + randomHex(8)
	request := func() provider.CreateRequest {
		return request(func(r *provider.CreateRequest) { r.Network, r.Labels[provider.LabelOwner] = ours, owner })
	}
	stays := must(p.Create(ctx, request())) // with it what is made once per engine and owner
	b.Cleanup(func() { destroy(b, p, stays.Ref()) })
	creates, destroys := samples{}, samples{}
	for b.Loop() {
		var sb provider.Sandbox
		creates.time("ours", func() { sb = must(p.Create(ctx, request())) })
		destroys.time("ours", func() { require.NoError(b, p.Destroy(ctx, sb.Ref())) })

		var made container.CreateResponse
		vol := "bench-" + randomHex(8)
		creates.time("raw", func() {
			made = must(c.ContainerCreate(ctx, &container.Config{Image: ref, Cmd: []string{"sleep", "300"}},
				&container.HostConfig{NetworkMode: container.NetworkMode(theirs), Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: vol, Target: "/workspace"}}}, nil, nil, ""))
			require.NoError(b, c.ContainerStart(ctx, made.ID, container.StartOptions{}))
		})
		destroys.time("raw", func() {
			require.NoError(b, c.ContainerRemove(ctx, made.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
			require.NoError(b, c.VolumeRemove(ctx, vol, false))
		})
		if dockerCLI() != "" {
			name := "bench-" + randomHex(8)
			creates.time("cli", func() {
				cli(b, "run", "-d", "--name", name, "--network", theirs, "-v", name+":/workspace", ref, "sleep", "300")
			})
			destroys.time("cli", func() { cli(b, "rm", "-f", name); cli(b, "volume", "rm", name) })
		}
	}
	b.Run("create", func(b *testing.B) { creates.report(b) })
	b.Run("destroy", func(b *testing.B) { destroys.report(b) })
}

// BenchmarkExec measures `true` to its exit, beside the raw client (create, attach,
// read to the end, inspect) and docker exec. Target: 1.10 x raw, faster than the
// command.
func BenchmarkExec(b *testing.B) {
	p := newProvider(b)
	c, ctx := api(b), b.Context()
	sb := create(b, p)
	s := samples{}
	for b.Loop() {
		s.time("ours", func() {
			proc := must(sb.Exec(ctx, provider.ExecRequest{ID: randomHex(8), Args: []string{"/bin/true"}, Stdout: io.Discard, Stderr: io.Discard}))
			exit := must(proc.Wait(ctx))
			require.Equal(b, provider.ExitExited, exit.Kind)
		})
		s.time("raw", func() {
			e := must(c.ContainerExecCreate(ctx, sb.Ref().ID, execOptions([]string{"/bin/true"}, nil)))
			h := must(c.ContainerExecAttach(ctx, e.ID, execAttach))
			_, err := io.Copy(io.Discard, h.Reader)
			require.NoError(b, err)
			h.Close()
			must(c.ContainerExecInspect(ctx, e.ID))
		})
		if dockerCLI() != "" {
			s.time("cli", func() { cli(b, "exec", sb.Ref().ID, "/bin/true") })
		}
	}
	s.report(b)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Fifty sandboxes at the same time: made, used, destroyed, none with an error.
func TestFiftyInParallel(t *testing.T) {
	n := 50
	if testing.Short() {
		n = 10
	}
	p := newProvider(t)
	owner := "many-" + randomHex(8)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	began := time.Now()
	for i := range n {
		wg.Go(func() {
			sb, err := p.Create(ctx, request(func(r *provider.CreateRequest) {
				r.Labels[provider.LabelOwner] = owner
				if i%5 == 0 {
					r.Network = "default"
				}
			}))
			if !assert.NoError(t, err) {
				return
			}
			proc, err := sb.Exec(ctx, provider.ExecRequest{ID: "e", Args: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard})
			if assert.NoError(t, err) {
				exit, err := proc.Wait(ctx)
				assert.NoError(t, err)
				assert.Equal(t, 0, exit.Code)
			}
			assert.NoError(t, p.Destroy(ctx, sb.Ref()))
		})
	}
	wg.Wait()
	t.Logf("%d sandboxes in %s", n, time.Since(began))
	left, err := p.List(t.Context(), provider.Query{Owner: owner})
	require.NoError(t, err)
	assert.Empty(t, left)
}

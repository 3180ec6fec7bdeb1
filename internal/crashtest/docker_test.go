//go:build linux

package crashtest

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/ledger/bolt"
	"github.com/sbxhost/sbxhost/manifest"
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
	p, err := docker.New(context.Background(), docker.Options{Host: os.Getenv(engineVariable), Image: engineImage, Pull: docker.PullNever, ConnectTimeout: time.Minute})
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

// engineQuiet waits until the engine has done what a process asked for that is no
// more: it goes on with it.
func engineQuiet(t *testing.T, dir string) {
	t.Helper()
	filter := "label=" + provider.LabelOwner + "=" + ownerOf(dir)
	look := func() string {
		return engineDo(t, "ps", "-a", "--no-trunc", "--filter", filter, "--format", "{{.Names}} {{.State}}") +
			engineDo(t, "volume", "ls", "--filter", filter, "--format", "{{.Name}}")
	}
	for was, same := look(), 0; same < 4; {
		time.Sleep(500 * time.Millisecond)
		if now := look(); now == was {
			same++
		} else {
			was, same = now, 0
		}
	}
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

// engineDo runs docker against the test engine.
func engineDo(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", append([]string{"-H", os.Getenv(engineVariable)}, args...)...).CombinedOutput()
	require.NoError(t, err, "docker %s: %s", args, out)
	return strings.TrimSpace(string(out))
}

// lookAlikes are containers and volumes that differ from ours in one label, or in
// nothing but the attempt.
type lookAlikes struct {
	t     *testing.T
	names []string
	were  map[string]string
}

// plant puts real containers beside the sandbox of a session, each with a volume
// of the same name and labels.
func (l *lookAlikes) plant(s *host.Session) {
	l.t.Helper()
	var labels map[string]string
	require.NoError(l.t, json.Unmarshal([]byte(engineDo(l.t, "inspect", "-f", "{{json .Config.Labels}}", s.Info().Sandbox)), &labels))
	kind := ""
	for k, v := range labels {
		if v == "sandbox" {
			kind = k
		}
	}
	require.NotEmpty(l.t, kind)
	for i, change := range []map[string]string{
		{provider.LabelOwner: labels[provider.LabelOwner] + "2"},
		{provider.LabelOwner: ""},
		{provider.LabelEpoch: "0123456789abcdef"},
		{provider.LabelEpoch: ""},
		{provider.LabelAttempt: ""},
		{provider.LabelSession: ""},
		{provider.LabelDigest: ""},
		{provider.LabelProtected: ""},
		{kind: ""},
		{}, // all of ours, from no create of ours
	} {
		like := maps.Clone(labels)
		like[provider.LabelAttempt] = strings.Repeat(string("0123456789abcdef"[i]), 32)
		for k, v := range change {
			if like[k] = v; v == "" {
				delete(like, k)
			}
		}
		name := provider.ReplacementName(s.ID(), strings.Repeat(string("0123456789abcdef"[i]), 32))
		flags := func(labels map[string]string) (out []string) {
			for k, v := range labels {
				out = append(out, "--label", k+"="+v)
			}
			return out
		}
		engineDo(l.t, slices.Concat([]string{"run", "-d", "--name", name, "--network", "none", "-v", name + ":/workspace"},
			flags(like), []string{engineImage, "/bin/sh", "-c", "trap : TERM; while :; do /bin/busybox sleep 1000; done"})...)
		l.names = append(l.names, name)
		// Volumes too, which nothing uses.
		if like[kind] != "" {
			like[kind] = "workspace"
		}
		engineDo(l.t, slices.Concat([]string{"volume", "create"}, flags(like), []string{name + "0"})...)
	}
	l.were = l.look()
}

// look tells all that could be done to them.
func (l *lookAlikes) look() map[string]string {
	l.t.Helper()
	out := map[string]string{}
	for _, n := range l.names {
		out[n] = engineDo(l.t, "inspect", "-f", "{{.Id}} {{.State.Status}} {{.State.StartedAt}} {{.RestartCount}} {{json .ExecIDs}}", n) +
			engineDo(l.t, "volume", "inspect", "-f", "{{.CreatedAt}} {{json .Labels}}", n, n+"0")
	}
	return out
}

func (l *lookAlikes) remove() {
	for _, n := range l.names {
		for _, args := range [][]string{{"rm", "-f", n}, {"volume", "rm", n, n + "0"}} {
			_ = exec.Command("docker", append([]string{"-H", os.Getenv(engineVariable)}, args...)...).Run() // the test is over
		}
	}
}

// What looks almost like ours in a real engine is not touched by anything that a
// host does with a session: reconcile, resume, replace, discard, close.
func TestLookAlikesInAnEngine(t *testing.T) {
	t.Parallel()
	needEngine(t)
	for name, m := range map[string]manifest.Manifest{"ordinary": ordinary(), "protected": protected()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, dir := t.Context(), t.TempDir()
			led, err := bolt.Open(filepath.Join(dir, "ledger.db"), bolt.Options{})
			require.NoError(t, err)
			defer func() { assert.NoError(t, led.Close()) }()
			next := func() *host.Host {
				h, err := host.New(options(led, ownerOf(dir)))
				require.NoError(t, err)
				p, err := openDocker(dir, nil)
				require.NoError(t, err)
				require.NoError(t, h.RegisterTrusted("p", p))
				return h
			}
			reconcile := func(h *host.Host) host.ProviderReport {
				r, err := h.Reconcile(ctx)
				require.NoError(t, err)
				require.Len(t, r.Providers, 1)
				require.Empty(t, r.Providers[0].Code)
				return r.Providers[0]
			}
			h := next()
			s, err := h.Create(ctx, host.CreateRequest{Provider: "p", Manifest: m})
			require.NoError(t, err)
			l := &lookAlikes{t: t}
			defer l.remove()
			l.plant(s)
			untouched := func(by string) { assert.Equal(t, l.were, l.look(), "touched by %s", by) }

			reconcile(h)
			untouched("a reconcile beside a live session")
			state, err := s.State(ctx)
			require.NoError(t, err)
			s, err = h.Resume(ctx, host.ResumeRequest{State: state, Provider: "p", Manifest: &m})
			require.NoError(t, err)
			untouched("a resume of a live session")
			// The process dies.
			h = next()
			r := reconcile(h)
			assert.Equal(t, []string{s.ID()}, r.Waiting)
			assert.Empty(t, r.Destroyed)
			assert.NotEmpty(t, r.Unproven)
			untouched("the reconcile of the next process")
			state, err = h.StoredState(ctx, s.ID())
			require.NoError(t, err)
			s, err = h.Resume(ctx, host.ResumeRequest{State: state, Provider: "p", Manifest: &m})
			require.NoError(t, err)
			untouched("a resume")
			res, err := s.Exec(ctx, host.ExecRequest{Args: []string{"sh", "-c", "true"}})
			require.NoError(t, err)
			assert.Zero(t, res.ExitCode)
			if name == "ordinary" {
				require.NoError(t, s.Close(ctx))
				untouched("a close")
			} else {
				_, err = s.Detach(ctx)
				require.NoError(t, err)
				require.NoError(t, h.Discard(ctx, s.ID()))
				untouched("a discard")
			}
			reconcile(h)
			require.NoError(t, h.Close(ctx))
			untouched("the last reconcile")
			records, err := led.List(ctx, ownerOf(dir))
			require.NoError(t, err)
			assert.Empty(t, records)
		})
	}
}

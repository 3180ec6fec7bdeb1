package daytona_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/daytona"
	"github.com/sbxhost/sbxhost/internal/daytonatest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/providertest"
)

// under are the checks of a short run: most of the life of a sandbox, and one of
// each kind of request.
var under = map[string][]string{
	"life": {"lifecycle/ready", "lifecycle/open", "create/adopts", "create/replaces", "list/", "destroy/verified", "destroy/concurrent", "pause/", "port/", "archive/move"},
	"use": {"exec/dir", "exec/once", "exec/not-found", "exec/live-output", "exec/broken", "stdin/live", "tty/resize", "kill/ends",
		"timeout/kills", "env/records", "files/exact", "files/mode", "files/list"},
}

// weather is a service that does what it may do: benign faults, some of them at
// the same time. Every benign fault is in one.
type weather struct {
	release daytonatest.Release
	faults  []daytonatest.Fault
}

var weathers = map[string]weather{
	"slow": {daytonatest.ReleaseMeasured, append([]daytonatest.Fault{
		{Kind: daytonatest.UnknownFields}, {Kind: daytonatest.TinyPages}, {Kind: daytonatest.Slow, Delay: 15 * time.Millisecond},
		// The toolbox has no rate limits; each refusal costs a second.
	}, again(8, 9, daytonatest.Fault{Kind: daytonatest.RateLimited, Times: 1, On: []daytonatest.Op{
		daytonatest.OpCreate, daytonatest.OpGet, daytonatest.OpList, daytonatest.OpDelete, daytonatest.OpStart, daytonatest.OpStop, daytonatest.OpSignedPreview}})...)},
	"busy": {daytonatest.ReleaseCurrent, append([]daytonatest.Fault{
		{Kind: daytonatest.UnfilteredList}, {Kind: daytonatest.InvisibleCreate, Delay: 300 * time.Millisecond},
		// Now and then a change of state is refused twice.
	}, again(12, 5, daytonatest.Fault{Kind: daytonatest.Conflict, Times: 2, On: []daytonatest.Op{daytonatest.OpStart, daytonatest.OpStop, daytonatest.OpDelete}})...)},
}

// again is a fault that happens n times, each after so many requests more.
func again(n, after int, f daytonatest.Fault) []daytonatest.Fault {
	var out []daytonatest.Fault
	for i := range n {
		f.After = i * after
		out = append(out, f)
	}
	return out
}

// TestConformanceBenign runs the whole kit while the service does what it may do,
// in both of its releases; with -short a part of the kit.
func TestConformanceBenign(t *testing.T) {
	t.Parallel()
	for _, k := range daytonatest.Kinds() {
		n := 0
		for _, w := range weathers {
			if slices.ContainsFunc(w.faults, func(f daytonatest.Fault) bool { return f.Kind == k.Kind }) {
				n++
			}
		}
		assert.Equal(t, k.Benign, n == 1, "%s is in %d weathers", k.Kind, n)
	}
	checks := groups
	if testing.Short() {
		checks = under
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for name, w := range weathers {
		wg.Go(func() {
			t.Run(name, func(t *testing.T) {
				hits := conform(t, daytonatest.Options{Release: w.release}, checks, w.faults...)
				for _, f := range w.faults {
					assert.NotZero(t, hits[f.Kind], "%s did not happen", f.Kind)
				}
			})
		})
	}
}

// TestConformanceUser runs as the user that the service's own snapshots have, who
// may write to its home and /tmp only.
func TestConformanceUser(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{User: "daytona"})
	p := newProvider(t, srv)
	req := request()
	_, err := p.Create(t.Context(), req)
	require.ErrorIs(t, err, provider.ErrFailedPrecondition)
	assert.Contains(t, err.Error(), "/home/daytona/workspace")
	assert.Empty(t, alive(srv, req.SessionID))

	h := harness(t, srv)
	h.Request = func(r *provider.CreateRequest) { r.Root = "/home/daytona/workspace" }
	h.Only = append(append([]string{}, under["use"]...), "archive/move", "env/create-exact")
	providertest.Run(t, h)
}

// TestSpecifications checks every request and reply of a whole session, in both
// releases, against the service's own documents.
func TestSpecifications(t *testing.T) {
	t.Parallel()
	for _, release := range []daytonatest.Release{daytonatest.ReleaseMeasured, daytonatest.ReleaseCurrent} {
		t.Run(string(release), func(t *testing.T) {
			t.Parallel()
			srv := daytonatest.New(t, daytonatest.Options{Release: release, Timing: daytonatest.Timing{Build: time.Minute}})
			v := daytonatest.Validate(t)
			h := harness(t, srv)
			h.New = func(providertest.TB) provider.Provider {
				return newProvider(t, srv, func(o *daytona.Options) { o.Transport = v.Transport(http.DefaultTransport) })
			}
			h.Only = []string{"create/adopts", "list/session", "exec/stderr", "stdin/live", "tty/resize", "files/replace", "files/remove", "port/", "pause/", "archive/move"}
			providertest.Run(t, h)
			p := newProvider(t, srv, func(o *daytona.Options) {
				o.Transport, o.Target, o.Heartbeat = v.Transport(http.DefaultTransport), "eu", 20*time.Millisecond
			})
			go func() { // the build goes on when its log is asked for
				for count(v, "getBuildLogsUrl") == 0 && t.Context().Err() == nil {
					time.Sleep(5 * time.Millisecond)
				}
				if t.Context().Err() == nil {
					srv.Advance(3 * time.Minute)
				}
			}()
			sb := create(t, p, func(r *provider.CreateRequest) {
				r.Image, r.Network, r.TTL, r.Ports = "debian:12", "none", time.Hour, []int{8080}
				r.Resources = provider.Resources{CPUs: 1.5, MemoryMiB: 700, DiskMiB: 4096}
				r.Progress = func(provider.Stage) {}
			})
			busy, err := sb.Exec(t.Context(), script("sleep 300"))
			require.NoError(t, err)
			require.Eventually(t, func() bool { return count(v, "updateLastActivity") > 0 }, 30*time.Second, 10*time.Millisecond, "use is not reported")
			require.NoError(t, busy.Kill(t.Context(), 0))
			_, err = p.Check(t.Context())
			require.NoError(t, err)
			require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
			for _, op := range []string{"createSandbox", "getSandbox", "listSandboxes", "deleteSandbox", "startSandbox", "stopSandbox", "getSignedPortPreviewUrl", "updateLastActivity", "getCurrentApiKey", "getBuildLogsUrl"} {
				assert.NotZero(t, count(v, op), "%s was not checked; %v", op, v.Checked())
			}
			t.Log(v.Checked())
		})
	}
}

// count is how often an operation was checked, however its id is spelled.
func count(v *daytonatest.Validator, op string) int {
	n := 0
	for id, k := range v.Checked() {
		if strings.EqualFold(strings.ReplaceAll(id, "_", ""), op) {
			n += k
		}
	}
	return n
}

package daytona_test

import (
	"net/http"
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

// under are the checks that are run in every benign mode: all of the life of a
// sandbox, and one of each kind of request.
var under = map[string][]string{
	"life": {"lifecycle/", "create/", "list/", "destroy/", "pause/", "port/", "archive/move"},
	"use": {"exec/dir", "exec/once", "exec/not-found", "exec/live-output", "exec/broken", "stdin/live", "tty/resize", "kill/ends",
		"timeout/kills", "env/records", "files/exact", "files/mode", "files/list"},
}

// TestConformanceBenign runs the kit while the service does what it may do.
func TestConformanceBenign(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	defer wg.Wait()
	turn := make(chan struct{}, 4)
	for _, k := range daytonatest.Kinds() {
		if !k.Benign {
			continue
		}
		f := daytonatest.Fault{Kind: k.Kind}
		switch k.Kind {
		case daytonatest.RateLimited: // each costs a second
			f.After, f.Times = 3, 6
		case daytonatest.Conflict:
			f.After, f.Times = 3, 40
		case daytonatest.Slow:
			f.Delay = 30 * time.Millisecond
		case daytonatest.InvisibleCreate:
			f.Delay = 300 * time.Millisecond
		}
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			t.Run(string(k.Kind), func(t *testing.T) {
				groups := map[string][]string{"life": {"lifecycle/ready", "lifecycle/open", "create/adopts", "create/replaces", "list/", "destroy/verified", "destroy/concurrent", "pause/", "port/"}}
				if k.On == nil { // the toolbox sees it too
					groups["use"] = under["use"]
				}
				conform(t, daytonatest.Options{}, groups, f)
			})
		})
	}
}

// TestConformanceCurrent runs what depends on the service's release.
func TestConformanceCurrent(t *testing.T) {
	t.Parallel()
	conform(t, daytonatest.Options{Release: daytonatest.ReleaseCurrent}, under)
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
			srv := daytonatest.New(t, daytonatest.Options{Release: release, Timing: daytonatest.Timing{Build: 300 * time.Millisecond}})
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
			sb := create(t, p, func(r *provider.CreateRequest) {
				r.Image, r.Network, r.TTL, r.Ports = "debian:12", "none", time.Hour, []int{8080}
				r.Resources = provider.Resources{CPUs: 1.5, MemoryMiB: 700, DiskMiB: 4096}
				r.Progress = func(provider.Stage) {}
			})
			run(t, sb, script("sleep 0.3"))
			_, err := p.Check(t.Context())
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

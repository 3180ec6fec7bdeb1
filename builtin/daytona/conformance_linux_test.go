package daytona_test

import (
	"maps"
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
	"github.com/sbxhost/sbxhost/secret"
)

func options(srv *daytonatest.Server) daytona.Options {
	return daytona.Options{APIURL: srv.URL(), APIKey: secret.FromString(srv.Key()), CallTimeout: 20 * time.Second, DestroyTimeout: 30 * time.Second}
}

func newProvider(t testing.TB, srv *daytonatest.Server, mods ...func(*daytona.Options)) *daytona.Provider {
	t.Helper()
	o := options(srv)
	for _, m := range mods {
		m(&o)
	}
	p, err := daytona.New(o)
	require.NoError(t, err)
	return p
}

func harness(t *testing.T, srv *daytonatest.Server) providertest.Harness {
	return providertest.Harness{
		New:       func(providertest.TB) provider.Provider { return newProvider(t, srv) },
		Commands:  providertest.ShellCommands("/bin/sh"),
		RealShell: true,
		Slack:     20 * time.Second, // the machine is busy
		HostArgv:  true,
		Survivors: providertest.CountHostProcesses,
		Records:   func(_ providertest.TB, _ provider.Sandbox, needle []byte) []string { return srv.Find(needle) },
		Break:     func(_ providertest.TB, sb provider.Sandbox, _ provider.Process) { srv.CutConnections(sb.Ref().ID) },
		// The client keeps connections to the service for the next request.
		IgnoreGoroutines: []string{"net/http.(*persistConn)"},
		Volume:           volume(),
	}
}

// volume is less with -short: what 100 MB show is no different then, only slower.
func volume() int64 {
	if testing.Short() {
		return 16 << 20
	}
	return 100 << 20
}

// The kit runs in groups at the same time: most of it is waiting.
var groups = map[string][]string{
	"life":  {"describe/", "lifecycle/", "create/", "list/", "destroy/", "cancel/", "pause/", "port/", "logs/", "archive/"},
	"exec":  {"exec/", "stdin/", "tty/", "background/"},
	"kill":  {"timeout/", "kill/", "signal/", "matrix/", "volume/", "goroutines/"},
	"env":   {"env/", "secrets/"},
	"files": {"files/"},
}

func TestConformance(t *testing.T) {
	t.Parallel()
	conform(t, daytonatest.Options{}, groups)
}

// conform runs groups of the kit, each on a service of its own, and returns how
// often each fault happened in all of them.
func conform(t *testing.T, o daytonatest.Options, groups map[string][]string, faults ...daytonatest.Fault) map[daytonatest.Kind]int {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	hits := map[daytonatest.Kind]int{}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		wg.Go(func() {
			t.Run(name, func(t *testing.T) {
				srv := daytonatest.New(t, o)
				h := harness(t, srv)
				h.Only, h.Shells = groups[name], shells
				if len(faults) > 0 {
					h.Shells, h.Volume = shells[:1], 8<<20
				}
				for _, f := range faults {
					inj := srv.Inject(f)
					defer func() {
						mu.Lock()
						hits[f.Kind] += inj.Hits()
						mu.Unlock()
					}()
				}
				providertest.Run(t, h)
			})
		})
	}
	wg.Wait()
	return hits
}

var shells = []providertest.Shell{{Name: "dash", Args: []string{"/bin/dash"}}, {Name: "bash", Args: []string{"/bin/bash"}}, {Name: "busybox", Args: []string{"busybox", "sh"}}}

// Every check of the kit is in a group.
func TestGroupsAreComplete(t *testing.T) {
	t.Parallel()
	for _, c := range providertest.Checks() {
		assert.True(t, slices.ContainsFunc(slices.Collect(maps.Values(groups)), func(only []string) bool {
			return slices.ContainsFunc(only, func(p string) bool { return strings.HasPrefix(c.Name, p) })
		}), "%s is in no group", c.Name)
	}
}

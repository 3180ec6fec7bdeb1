package examples_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
	"github.com/sbxhost/sbxhost/plugins/examples/runloop/fake"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

var runloopModule = module("runloop")

func TestRunloopValuesPassThePlugin(t *testing.T) {
	t.Parallel()
	f := newRig(t, runloopModule, fake.Register)
	p := f.load(t)
	sb, err := p.Create(t.Context(), createRequest(sessionA, map[string]string{"TOKEN": canary}))
	require.NoError(t, err)
	all := f.vendor.All()
	require.Len(t, all, 1)
	assert.Equal(t, map[string]string{"PLAIN": "literal", "TOKEN": canary}, all[0].Env)
	assert.GreaterOrEqual(t, all[0].Polls, 2, "a devbox that starts is polled")

	waits := func() (n int) {
		for _, r := range f.vendor.Requests() {
			if r.Method == http.MethodPost && strings.Contains(r.URL, "/wait_for_status") {
				n++
			}
		}
		return n
	}
	// The command goes on once it has been polled, and no sooner.
	var wg sync.WaitGroup
	defer wg.Wait()
	over := make(chan struct{})
	defer close(over)
	wg.Go(func() {
		for waits() == 0 {
			select {
			case <-over:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		assert.NoError(t, os.WriteFile(filepath.Join(all[0].Path(fakevendor.Root), "polled"), nil, 0o600))
	})
	// Output that grows over several polls arrives once, in order.
	exit, out, errs := run(t, sb, provider.ExecRequest{
		Shell: `printf %s "$TOKEN"; until [ -e polled ]; do sleep 0.1; done; echo " $EXTRA"; printf %s "$TOKEN" >&2; exit 3`, Env: map[string]string{"EXTRA": `it's "quoted"`},
		Timeout: 5 * time.Minute,
	})
	assert.Equal(t, provider.ExitExited, exit.Kind)
	assert.Equal(t, 3, exit.Code)
	assert.Equal(t, canary+" it's \"quoted\"\n", out)
	assert.Equal(t, canary, errs)
	assert.Positive(t, waits(), "the command must have been polled")
	f.sawNothing(t)
}

func TestRunloopKillAndTimeout(t *testing.T) {
	t.Parallel()
	f := newRig(t, runloopModule, fake.Register)
	sb, err := f.load(t).Create(t.Context(), createRequest(sessionA, nil))
	require.NoError(t, err)
	p, err := sb.Exec(t.Context(), provider.ExecRequest{ID: "a", Args: []string{"sleep", "60"}, Env: map[string]string{}, Stdin: provider.StdinNone, Stdout: discard, Stderr: discard})
	require.NoError(t, err)
	require.NoError(t, p.Kill(t.Context(), 100*time.Millisecond))
	exit, err := p.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, provider.ExitKilled, exit.Kind)

	// On a busy machine a short time may be over before the command has begun.
	var out string
	for i, timeout := range []time.Duration{2 * time.Second, time.Minute} {
		var kept bytes.Buffer
		p, err := sb.Exec(t.Context(), provider.ExecRequest{
			ID: "b" + strconv.Itoa(i), Shell: "echo before; sleep 600", Env: map[string]string{}, Stdin: provider.StdinNone, Stdout: &kept, Stderr: discard,
			Timeout: timeout, Grace: 100 * time.Millisecond,
		})
		if err != nil {
			continue
		}
		exit, err = p.Wait(t.Context())
		require.NoError(t, err)
		if out = kept.String(); out != "" {
			break
		}
	}
	assert.Equal(t, provider.ExitTimedOut, exit.Kind)
	assert.Equal(t, "before\n", out)
}

// A lost answer to create is repeated with the same key: one devbox.
func TestRunloopLostCreateIsOneDevbox(t *testing.T) {
	t.Parallel()
	f := newRig(t, runloopModule, fake.Register)
	p := f.load(t)
	f.vendor.Inject(lostOnce(http.MethodGet, "/v1/devboxes")) // a list is asked for again
	_, err := p.List(t.Context(), provider.Query{Owner: "o1"})
	require.NoError(t, err)
	f.vendor.Inject(lostOnce(http.MethodPost, "/v1/devboxes"))
	_, err = p.Create(t.Context(), createRequest(sessionA, nil))
	require.NoError(t, err)
	assert.Len(t, f.vendor.All(), 1)
}

func TestRunloopListPagesPastOthers(t *testing.T) {
	t.Parallel()
	f := newRig(t, runloopModule, fake.Register)
	p := f.load(t)
	for range 5 {
		_, err := f.vendor.Create("dbx_", "other", map[string]string{provider.LabelOwner: "o2"}, nil)
		require.NoError(t, err)
	}
	sb, err := p.Create(t.Context(), createRequest(sessionA, nil))
	require.NoError(t, err)
	list, err := p.List(t.Context(), provider.Query{Owner: "o1"})
	require.NoError(t, err)
	require.Len(t, list, 1, "the one of this owner is on the third page")
	assert.Equal(t, sb.Ref().ID, list[0].Ref.ID)
	require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	assert.Len(t, f.vendor.All(), 5, "nobody else's devbox was touched")
}

// There is no field for one command's secrets, so they are refused, and nothing
// is sent.
func TestRunloopRefusesRequestSecrets(t *testing.T) {
	t.Parallel()
	f := newRig(t, runloopModule, fake.Register)
	sb, err := f.load(t).Create(t.Context(), createRequest(sessionA, nil))
	require.NoError(t, err)
	before := len(f.vendor.Requests())
	_, err = sb.Exec(t.Context(), provider.ExecRequest{
		ID: "a", Args: []string{"true"}, Env: map[string]string{}, Stdin: provider.StdinNone, Stdout: discard, Stderr: discard,
		Secrets: secret.NewEnv(map[string]secret.Value{"KEY": secret.FromString(canary)}),
	})
	require.ErrorIs(t, err, provider.ErrUnsupported)
	assert.Len(t, f.vendor.Requests(), before)
}

// Runloop returns the last 100 lines unless it is asked for more.
func TestRunloopManyLines(t *testing.T) {
	t.Parallel()
	f := newRig(t, runloopModule, fake.Register)
	sb, err := f.load(t).Create(t.Context(), createRequest(sessionA, nil))
	require.NoError(t, err)
	exit, out, _ := run(t, sb, provider.ExecRequest{Shell: "seq 1 5000"})
	assert.Equal(t, provider.ExitExited, exit.Kind)
	assert.Equal(t, 5000, strings.Count(out, "\n"))
}

package examples_test

import (
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugins/examples/flymachines/fake"
	"github.com/sbxhost/sbxhost/provider"
)

var flyModule = module("flymachines")

// Fly shows a machine's environment in every reply that describes it; the plugin
// sees none of it all the same.
func TestFlyMachinesValuesPassThePlugin(t *testing.T) {
	t.Parallel()
	toolchain(t, needs["flymachines"]...)
	f := newRig(t, flyModule, fake.Register)
	p := f.load(t)
	sb, err := p.Create(t.Context(), createRequest(sessionA, map[string]string{"TOKEN": canary}))
	require.NoError(t, err)
	all := f.vendor.All()
	require.Len(t, all, 1)
	assert.Equal(t, map[string]string{"PLAIN": "literal", "TOKEN": canary}, all[0].Env)

	exit, out, errs := run(t, sb, provider.ExecRequest{
		Shell: `cat; printf %s "$TOKEN"; printf %s "$TOKEN" >&2; exit 3`, Stdin: provider.StdinUpfront, Input: strings.NewReader("input "),
	})
	assert.Equal(t, provider.ExitExited, exit.Kind)
	assert.Equal(t, 3, exit.Code)
	assert.Equal(t, "input "+canary, out)
	assert.Equal(t, canary, errs)

	// On a busy machine a short time may be over before the command was sent.
	var slow provider.Process
	for i, timeout := range []time.Duration{time.Second, time.Minute} {
		slow, err = sb.Exec(t.Context(), provider.ExecRequest{
			ID: "b" + strconv.Itoa(i), Shell: "sleep 600", Env: map[string]string{}, Stdin: provider.StdinNone, Stdout: discard, Stderr: discard, Timeout: timeout,
		})
		if err == nil {
			break
		}
	}
	require.NoError(t, err)
	exit, err = slow.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, provider.ExitTimedOut, exit.Kind)

	list, err := p.List(t.Context(), provider.Query{Owner: "o1", Session: sessionA})
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, sb.Ref().ID, list[0].Ref.ID)
	require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	assert.Empty(t, f.vendor.All())
	f.sawNothing(t)
}

// The owner's labels become metadata.KEY=VALUE, one parameter each.
func TestFlyMachinesListsByMetadata(t *testing.T) {
	t.Parallel()
	toolchain(t, needs["flymachines"]...)
	f := newRig(t, flyModule, fake.Register)
	p := f.load(t)
	for _, labels := range []map[string]string{{provider.LabelOwner: "o2"}, nil} {
		_, err := f.vendor.Create("m", "other", labels, nil)
		require.NoError(t, err)
	}
	_, err := p.Create(t.Context(), createRequest(sessionB, nil))
	require.NoError(t, err)
	list, err := p.List(t.Context(), provider.Query{Owner: "o1"})
	require.NoError(t, err)
	require.Len(t, list, 1)
	requests := f.vendor.Requests()
	u, err := url.Parse(requests[len(requests)-1].URL)
	require.NoError(t, err)
	assert.Equal(t, "o1", u.Query().Get("metadata."+provider.LabelOwner))
}

func TestFlyMachinesPause(t *testing.T) {
	t.Parallel()
	toolchain(t, needs["flymachines"]...)
	f := newRig(t, flyModule, fake.Register)
	sb, err := f.load(t).Create(t.Context(), createRequest(sessionA, nil))
	require.NoError(t, err)
	pauser, ok := sb.(provider.Pauser)
	require.True(t, ok)
	require.NoError(t, pauser.Pause(t.Context()))
	st, err := sb.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, provider.StatePaused, st.State)
	require.NoError(t, pauser.Resume(t.Context()))
	exit, _, _ := run(t, sb, provider.ExecRequest{Args: []string{"true"}})
	assert.Equal(t, provider.ExitExited, exit.Kind)
}

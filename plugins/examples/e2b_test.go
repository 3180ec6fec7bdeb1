package examples_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugins/examples/e2b/fake"
	"github.com/sbxhost/sbxhost/provider"
)

var e2bModule = module("e2b")

func TestE2BValuesPassThePlugin(t *testing.T) {
	t.Parallel()
	f := newRig(t, e2bModule, fake.Register)
	p := f.load(t)
	sb, err := p.Create(t.Context(), createRequest(sessionA, map[string]string{"TOKEN": canary}))
	require.NoError(t, err)
	all := f.vendor.All()
	require.Len(t, all, 1)
	assert.Equal(t, map[string]string{"PLAIN": "literal", "TOKEN": canary}, all[0].Env)
	exit, out, errs := run(t, sb, provider.ExecRequest{Shell: `printf %s "$TOKEN"; printf %s "$TOKEN" >&2; exit 3`})
	assert.Equal(t, 3, exit.Code)
	assert.Equal(t, canary, out)
	assert.Equal(t, canary, errs)
	require.NoError(t, sb.Files().Write(t.Context(), "f", strings.NewReader(canary), provider.WriteOptions{}))
	f.sawNothing(t, "envd_token_for")
}

// Lists come in pages of two; another owner's sandbox is never shown.
func TestE2BListPages(t *testing.T) {
	t.Parallel()
	f := newRig(t, e2bModule, fake.Register)
	p := f.load(t)
	want := map[string]bool{}
	for i, session := range []string{sessionA, sessionB, sessionC, "00000000000000000000000000000004", "00000000000000000000000000000005"} {
		q := createRequest(session, nil)
		if i == 1 {
			q.Labels[provider.LabelOwner] = "o2"
		} else {
			want[session] = true
		}
		_, err := p.Create(t.Context(), q)
		require.NoError(t, err)
	}
	list, err := p.List(t.Context(), provider.Query{Owner: "o1"})
	require.NoError(t, err)
	got := map[string]bool{}
	for _, r := range list {
		got[r.Labels[provider.LabelSession]] = true
	}
	assert.Equal(t, want, got)
	pages := 0
	for _, r := range f.vendor.Requests() {
		if strings.HasPrefix(r.URL, "/v2/sandboxes") && strings.Contains(r.URL, "nextToken") {
			pages++
		}
	}
	assert.Positive(t, pages, "the test must have needed a second page")
}

// A new host process holds no token: the plugin fetches the sandbox, whose reply
// has it, and the host captures it again.
func TestE2BTokenIsCapturedAgain(t *testing.T) {
	t.Parallel()
	f := newRig(t, e2bModule, fake.Register)
	sb, err := f.load(t).Create(t.Context(), createRequest(sessionA, map[string]string{"TOKEN": canary}))
	require.NoError(t, err)
	stored, err := provider.EncodeRef(sb.Ref())
	require.NoError(t, err)
	assert.NotContains(t, string(stored), "envd_token_for")
	assert.NotContains(t, string(stored), canaryWord)

	ref, err := provider.DecodeRef(stored)
	require.NoError(t, err)
	again, err := f.load(t).Open(t.Context(), ref)
	require.NoError(t, err)
	exit, out, _ := run(t, again, provider.ExecRequest{Args: []string{"echo", "hello"}})
	assert.Equal(t, provider.ExitExited, exit.Kind)
	assert.Equal(t, "hello\n", out)
	f.sawNothing(t, "envd_token_for")
}

// A token that the vendor no longer accepts is dropped; the plugin gets a new one
// by itself, and the command runs once.
func TestE2BRefusedTokenIsCapturedAgain(t *testing.T) {
	t.Parallel()
	f := newRig(t, e2bModule, fake.Register)
	p := f.load(t)
	sb, err := p.Create(t.Context(), createRequest(sessionA, nil))
	require.NoError(t, err)
	f.vendor.Inject(refuseOnce("/process.Process/Start"))
	exit, _, _ := run(t, sb, provider.ExecRequest{Shell: "echo once >> ran"})
	assert.Equal(t, provider.ExitExited, exit.Kind)
	_, out, _ := run(t, sb, provider.ExecRequest{ID: "b", Args: []string{"cat", "ran"}})
	assert.Equal(t, "once\n", out)
}

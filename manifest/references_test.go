package manifest_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/manifest"
)

const referenceJSON = `{"environment":{"LIT":"x","SANDBOX_TOKEN":{"type":"process_env","name":"HOST_TOKEN","description":"d"},"SAME":{"type":"process_env"}}}`

// Not parallel: it sets the variable in the process to show that nothing reads
// it.
func TestJM01ReferenceRoundTripHoldsNoValue(t *testing.T) {
	t.Setenv("HOST_TOKEN", canary)
	m := mustParse(t, referenceJSON)
	b, err := json.Marshal(m)
	require.NoError(t, err)
	assert.Contains(t, string(b), `{"type":"process_env","name":"HOST_TOKEN","description":"d"}`)
	assert.NotContains(t, string(b), canary)
	back := mustParse(t, string(b))
	require.NotNil(t, back.Environment["SANDBOX_TOKEN"].Reference)
	assert.Equal(t, m, back)
}

// A reference is plain data: no method that could resolve it.
func TestReferencesHaveNoAuthority(t *testing.T) {
	t.Parallel()
	for _, typ := range []reflect.Type{reflect.TypeFor[*manifest.Reference](), reflect.TypeFor[*manifest.Entry](), reflect.TypeFor[*manifest.Pair]()} {
		assert.Zero(t, typ.NumMethod(), typ.String())
	}
	a, b := manifest.Reference{Name: "X"}, manifest.Reference{Name: "X"}
	assert.True(t, a == b, "compared by content")
}

func TestPairsAndLiterals(t *testing.T) {
	t.Parallel()
	m := mustParse(t, referenceJSON)
	want := []manifest.Pair{{Destination: "SAME", Source: "SAME"}, {Destination: "SANDBOX_TOKEN", Source: "HOST_TOKEN"}}
	pairs := m.Pairs()
	require.Equal(t, want, pairs)
	pairs[0].Source = "changed"
	assert.Equal(t, want, m.Pairs())
	lits := m.Literals()
	require.Equal(t, map[string]string{"LIT": "x"}, lits)
	lits["LIT"] = "changed"
	assert.Equal(t, "x", m.Environment["LIT"].Literal)
	assert.Empty(t, manifest.New().Pairs())
	assert.Empty(t, manifest.New().Literals())
}

func TestCloneSharesNothing(t *testing.T) {
	t.Parallel()
	m := mustParse(t, wholeJSON())
	c := m.Clone()
	require.Equal(t, m, c)
	c.Environment["SANDBOX_TOKEN"].Reference.Name = "OTHER"
	c.Environment["NEW"] = manifest.Entry{}
	c.Files["main.py"].Content[0] = 'X'
	c.Files["new"] = manifest.File{}
	c.PathGrants[0].Path = "/x"
	c.Ports[0] = 1
	c.Labels["team"] = "x"
	assert.Equal(t, mustParse(t, wholeJSON()), m)
	assert.Equal(t, manifest.Manifest{}, manifest.Manifest{}.Clone())
}

func TestCheckDurable(t *testing.T) {
	t.Parallel()
	require.NoError(t, manifest.CheckDurable(mustParse(t, referenceJSON)), "references are durable")
	require.NoError(t, manifest.CheckDurable(manifest.New()))
	m := mustParse(t, `{"files":{"src":{"hostPath":"/home/host-only/src"},"./lib":{"hostPath":"/home/host-only/lib"},"ok":{"content":""}},
		"pathGrants":[{"path":"/data","hostPath":"/srv/host-only"}]}`)
	err := manifest.CheckDurable(m)
	var e *manifest.Error
	require.ErrorAs(t, err, &e)
	assert.Contains(t, err.Error(), "lib, src, /data", "all of them, by their sandbox-side paths")
	assert.NotContains(t, err.Error(), "host-only")
	assert.NotContains(t, err.Error(), "ok")
}

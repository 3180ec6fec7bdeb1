package grants_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
)

// These tests are about authority that travels: every way in which a manifest
// or a reference that was granted once could carry that to where it was not.

func TestHO01SameReferenceInAnotherManifest(t *testing.T) {
	t.Parallel()
	a := refs("SANDBOX_TOKEN", "HOST_TOKEN")
	mustBind(t, request(a, tokenGrant, source()))
	b := manifest.New()
	b.Environment = map[string]manifest.Entry{"SANDBOX_TOKEN": a.Environment["SANDBOX_TOKEN"]} // the very same pointer
	src := source()
	got, err := grants.Bind(t.Context(), request(b, grants.Set{}, src))
	assert.Nil(t, got)
	require.ErrorIs(t, err, grants.KindNotGranted)
	assert.False(t, src.touched(), "host variable not read")
}

func TestHO02SameReferenceUnderAnotherDestination(t *testing.T) {
	t.Parallel()
	a := refs("SANDBOX_TOKEN", "HOST_TOKEN")
	b := manifest.New()
	b.Environment = map[string]manifest.Entry{"EXFIL": a.Environment["SANDBOX_TOKEN"], "SANDBOX_TOKEN": a.Environment["SANDBOX_TOKEN"]}
	src := source()
	_, err := grants.Bind(t.Context(), request(b, tokenGrant, src))
	var e *grants.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, grants.KindNotGranted, e.Kind)
	assert.Equal(t, []manifest.Pair{pair("EXFIL", "HOST_TOKEN")}, e.Pairs, "refused for that destination")
	assert.False(t, src.touched())
	delete(b.Environment, "EXFIL")
	_, err = mustBind(t, request(b, tokenGrant, src)).Values(t.Context(), use(b, tokenGrant))
	require.NoError(t, err, "the granted destination alone still works")
}

func TestHO03NoRecordMeansEveryReferenceIsInvalid(t *testing.T) {
	t.Parallel()
	b := refs("A", "HOST_TOKEN", "B", "OTHER", "C", "")
	var none *grants.Binding
	assert.Equal(t, b.Pairs(), grants.Invalid(none, use(b, tokenGrant)))
	err := none.Covers(use(b, tokenGrant))
	require.ErrorIs(t, err, grants.KindInvalidBinding)
	for _, name := range []string{"A (", "B (", "C ("} {
		assert.Contains(t, err.Error(), name, "lists all references")
	}
	_, err = none.Values(t.Context(), use(b, tokenGrant))
	require.ErrorIs(t, err, grants.KindInvalidBinding)
}

func TestHO04TemplateSerialises(t *testing.T) {
	t.Parallel()
	m := refs("SANDBOX_TOKEN", "HOST_TOKEN")
	out, err := json.Marshal(m)
	require.NoError(t, err)
	assert.JSONEq(t, `{"version":1,"root":"/workspace","start":"idle","environment":{"SANDBOX_TOKEN":{"type":"process_env","name":"HOST_TOKEN"}}}`, string(out))
	back, err := manifest.Parse(out)
	require.NoError(t, err)
	assert.Equal(t, m, back)
	assert.NotEmpty(t, grants.Invalid(nil, use(back, tokenGrant)), "still unbound")
}

func TestHO05FailedBindLeavesNothing(t *testing.T) {
	t.Parallel()
	two := refs("SANDBOX_TOKEN", "HOST_TOKEN", "SECOND", "OTHER")
	src := source()
	b, err := grants.Bind(t.Context(), request(two, tokenGrant, src))
	require.ErrorIs(t, err, grants.KindNotGranted)
	assert.Nil(t, b, "no handle exists")
	first := manifest.New()
	first.Environment = map[string]manifest.Entry{"SANDBOX_TOKEN": two.Environment["SANDBOX_TOKEN"]}
	_, err = grants.Bind(t.Context(), request(first, grants.Set{}, src))
	require.ErrorIs(t, err, grants.KindNotGranted)
	assert.False(t, src.touched())
}

// Authority travels in no copy form: clone, JSON, merge, plain copy (HO-07,
// JM-02, JM-03, PY-11).
func TestHO07CopiesCarryNothing(t *testing.T) {
	t.Parallel()
	a := refs("SANDBOX_TOKEN", "HOST_TOKEN")
	src := source()
	bound := mustBind(t, request(a, tokenGrant, src))
	out, err := json.Marshal(a)
	require.NoError(t, err)
	parsed, err := manifest.Parse(out)
	require.NoError(t, err)
	merged := manifest.New()
	merged.Environment = map[string]manifest.Entry{"EXTRA": {Literal: "x"}}
	for k, v := range a.Environment {
		merged.Environment[k] = v
	}
	for name, c := range map[string]manifest.Manifest{
		"plain copy": a, "JM-02 clone": a.Clone(), "JM-02 JSON round trip": parsed, "clone of a clone": parsed.Clone(), "merge": merged,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := source()
			_, err := grants.Bind(t.Context(), request(c, grants.Set{}, src))
			require.ErrorIs(t, err, grants.KindNotGranted, "PY-11: bound again with empty grants it has none")
			assert.False(t, src.touched())
			assert.Equal(t, c.Pairs(), grants.Invalid(nil, use(c, tokenGrant)), "without a record")
			second := use(c, tokenGrant)
			second.Session = "s2"
			_, err = bound.Values(t.Context(), second)
			require.ErrorIs(t, err, grants.KindInvalidBinding, "the first session's record is of no use to a second")
		})
	}
}

func TestJM03UnboundManifest(t *testing.T) {
	t.Parallel()
	m := refs("SANDBOX_TOKEN", "HOST_TOKEN")
	c := m.Clone()
	out, err := json.Marshal(c)
	require.NoError(t, err)
	assert.Contains(t, string(out), `"name":"HOST_TOKEN"`)
	_, err = (*grants.Binding)(nil).Values(t.Context(), use(c, grants.Set{}))
	require.ErrorIs(t, err, grants.KindInvalidBinding)
}

func TestJM04EditedAfterBinding(t *testing.T) {
	t.Parallel()
	for id, edit := range map[string]func(manifest.Manifest){
		"JM-04a reference deleted":    func(m manifest.Manifest) { delete(m.Environment, "SANDBOX_TOKEN") },
		"JM-04b literal in its place": func(m manifest.Manifest) { m.Environment["SANDBOX_TOKEN"] = manifest.Entry{Literal: "x"} },
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			m := refs("SANDBOX_TOKEN", "HOST_TOKEN", "SECOND", "OTHER")
			g := bindings("SANDBOX_TOKEN", "HOST_TOKEN", "SECOND", "OTHER")
			b := mustBind(t, request(m, g, source()))
			edit(m)
			err := b.Covers(use(m, g))
			require.ErrorIs(t, err, grants.KindInvalidBinding)
			assert.Contains(t, err.Error(), "SANDBOX_TOKEN", "names the destination")
			assert.Contains(t, grants.Invalid(b, use(m, g)), pair("SANDBOX_TOKEN", "HOST_TOKEN"))
		})
	}
	t.Run("the binding keeps no part of the manifest", func(t *testing.T) {
		t.Parallel()
		m := refs("SANDBOX_TOKEN", "HOST_TOKEN")
		b := mustBind(t, request(m, tokenGrant, source()))
		original := m.Clone()
		m.Environment["SANDBOX_TOKEN"].Reference.Name = "OTHER"
		require.Error(t, b.Covers(use(m, tokenGrant)))
		require.NoError(t, b.Covers(use(original, tokenGrant)))
	})
	t.Run("nor of the grants", func(t *testing.T) {
		t.Parallel()
		m, g := refs("SANDBOX_TOKEN", "HOST_TOKEN"), bindings("SANDBOX_TOKEN", "HOST_TOKEN")
		b := mustBind(t, request(m, g, source()))
		g.ProcessEnvironmentBindings["EXTRA"] = "X"
		require.Error(t, b.Covers(use(m, g)))
		require.NoError(t, b.Covers(use(m, tokenGrant)))
	})
}

func TestHO11GrantRemovedBeforeUse(t *testing.T) {
	t.Parallel()
	m, src := refs("SANDBOX_TOKEN", "HOST_TOKEN"), source()
	b := mustBind(t, request(m, tokenGrant, src))
	_, err := b.Values(t.Context(), use(m, bindings("OTHER", "OTHER")))
	require.ErrorIs(t, err, grants.KindInvalidBinding)
	assert.Contains(t, err.Error(), "the grants have changed since")
	assert.Empty(t, src.lookups)
}

func TestHO12NoMemoryOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	m, src := refs("SANDBOX_TOKEN", "HOST_TOKEN"), source()
	run1, err := grants.Merge(grants.Set{}, &tokenGrant)
	require.NoError(t, err)
	b := mustBind(t, request(m, run1, src))
	_, err = b.Values(t.Context(), use(m, run1))
	require.NoError(t, err)

	run2, err := grants.Merge(grants.Set{}, nil)
	require.NoError(t, err)
	asked := len(src.lookups) + len(src.presents)
	_, err = grants.Bind(t.Context(), request(m, run2, src))
	require.ErrorIs(t, err, grants.KindNotGranted)
	assert.Equal(t, asked, len(src.lookups)+len(src.presents))
	_, err = b.Values(t.Context(), use(m, run2))
	require.ErrorIs(t, err, grants.KindInvalidBinding)
}

// h9: the same unnamed reference under two keys gives each its own source.
func TestSharedReferenceObjectGivesEachDestinationItsOwn(t *testing.T) {
	t.Parallel()
	r := &manifest.Reference{}
	m := manifest.New()
	m.Environment = map[string]manifest.Entry{"K1": {Reference: r}, "K2": {Reference: r}}
	src := &recorder{values: map[string]string{"K1": "one-" + canary, "K2": "two-" + canary}}
	b := mustBind(t, request(m, allow("K1", "K2"), src))
	env, err := b.Values(t.Context(), use(m, allow("K1", "K2")))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"K1": "one-" + canary, "K2": "two-" + canary}, reveal(env))
}

// PY-39: a value that was read before another one failed is in no error.
func TestPY39OneReadOneUnset(t *testing.T) {
	t.Parallel()
	m, g := refs("A", "HOST_TOKEN", "B", "OTHER"), bindings("A", "HOST_TOKEN", "B", "OTHER")
	src := source()
	b := mustBind(t, request(m, g, src))
	delete(src.values, "OTHER")
	env, err := b.Values(t.Context(), use(m, g))
	var e *grants.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, grants.KindNotSet, e.Kind, "the unset error is kept")
	assert.Equal(t, []manifest.Pair{pair("B", "OTHER")}, e.Pairs)
	assert.Zero(t, env.Len())
	assertNoCanary(t, err)
}

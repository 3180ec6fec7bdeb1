package grants_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/secret"
)

// recorder is a source that records how often it was asked, and can fail.
type recorder struct {
	_        sync.Mutex // must not be copied: go vet would tell
	mu       sync.Mutex
	values   map[string]string
	lookups  []string
	presents []string
	fail     error
	panics   any
	onLookup func()
}

func (r *recorder) Lookup(_ context.Context, name string) (secret.Value, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lookups = append(r.lookups, name)
	if r.onLookup != nil {
		r.onLookup()
	}
	if r.panics != nil {
		panic(r.panics)
	}
	if r.fail != nil {
		return secret.FromString(canary), true, r.fail
	}
	v, ok := r.values[name]
	return secret.FromString(v), ok, nil
}

func (r *recorder) Present(_ context.Context, name string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.presents = append(r.presents, name)
	if r.panics != nil {
		panic(r.panics)
	}
	if r.fail != nil {
		return true, r.fail
	}
	_, ok := r.values[name]
	return ok, nil
}

func (r *recorder) touched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lookups)+len(r.presents) > 0
}

// refs returns a manifest with references destination → source.
func refs(kv ...string) manifest.Manifest {
	m := manifest.New()
	m.Environment = map[string]manifest.Entry{}
	for i := 0; i < len(kv); i += 2 {
		m.Environment[kv[i]] = manifest.Entry{Reference: &manifest.Reference{Name: kv[i+1]}}
	}
	return m
}

func source() *recorder {
	return &recorder{values: map[string]string{"HOST_TOKEN": canary, "OTHER": "other-" + canary, "EMPTY": ""}}
}

func request(m manifest.Manifest, g grants.Set, s grants.Source) grants.BindRequest {
	return grants.BindRequest{Manifest: m, Grants: g, Source: s, Provider: "docker#1", Session: "s1"}
}

func use(m manifest.Manifest, g grants.Set) grants.Use {
	return grants.Use{Manifest: m, Provider: "docker#1", Session: "s1", Grants: g}
}

func mustBind(t *testing.T, req grants.BindRequest) *grants.Binding {
	t.Helper()
	b, err := grants.Bind(t.Context(), req)
	require.NoError(t, err)
	return b
}

// reveal returns the values as strings.
func reveal(e secret.Env) map[string]string {
	out := map[string]string{}
	for n, v := range e.All() {
		out[n] = string(v.Reveal())
	}
	return out
}

func assertNoCanary(t *testing.T, x any) {
	t.Helper()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		out := fmt.Sprintf(verb, x)
		for _, form := range []string{canary, "canary", hex.EncodeToString([]byte("canary")), base64.RawStdEncoding.EncodeToString([]byte(canary))} {
			assert.NotContains(t, out, form, verb)
		}
	}
}

var tokenGrant = bindings("SANDBOX_TOKEN", "HOST_TOKEN")

func TestBindAndRead(t *testing.T) {
	t.Parallel()
	m, src := refs("SANDBOX_TOKEN", "HOST_TOKEN", "OTHER", "", "E", "EMPTY"), source()
	g := grants.Set{AllowedProcessEnvironmentKeys: []string{"OTHER"}, ProcessEnvironmentBindings: map[string]string{"SANDBOX_TOKEN": "HOST_TOKEN", "E": "EMPTY"}}
	b := mustBind(t, request(m, g, src))
	assert.Empty(t, src.lookups, "binding reads no value")
	assert.Equal(t, m.Pairs(), b.Pairs())
	require.NoError(t, b.Covers(use(m, g)))
	assert.Empty(t, grants.Invalid(b, use(m, g)))
	env, err := b.Values(t.Context(), use(m, g))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"SANDBOX_TOKEN": canary, "OTHER": "other-" + canary, "E": ""}, reveal(env))

	src.values["HOST_TOKEN"] = "rotated"
	env, err = b.Values(t.Context(), use(m, g))
	require.NoError(t, err)
	assert.Equal(t, "rotated", reveal(env)["SANDBOX_TOKEN"], "each operation takes its own snapshot")
}

func TestBindWithoutReferences(t *testing.T) {
	t.Parallel()
	src := source()
	b, err := grants.Bind(t.Context(), grants.BindRequest{Manifest: manifest.New(), Source: src})
	require.NoError(t, err)
	require.NotNil(t, b)
	assert.Empty(t, b.Pairs())
	env, err := b.Values(t.Context(), grants.Use{Manifest: manifest.New()})
	require.NoError(t, err)
	assert.Zero(t, env.Len())
	assert.False(t, src.touched())

	var none *grants.Binding
	require.NoError(t, none.Covers(grants.Use{Manifest: manifest.New()}))
	env, err = none.Values(t.Context(), grants.Use{Manifest: manifest.New()})
	require.NoError(t, err)
	assert.Zero(t, env.Len())
	assert.Empty(t, none.Pairs())
	none.Revoke()
}

func TestPY01UnsetAndEmpty(t *testing.T) {
	t.Parallel()
	t.Run("unset fails by name", func(t *testing.T) {
		t.Parallel()
		_, err := grants.Bind(t.Context(), request(refs("A", "MISSING_ONE", "B", "MISSING_TWO", "C", "HOST_TOKEN"),
			bindings("A", "MISSING_ONE", "B", "MISSING_TWO", "C", "HOST_TOKEN"), source()))
		require.ErrorIs(t, err, grants.KindNotSet)
		assert.EqualError(t, err, "grants: not set: A (from host variable MISSING_ONE), B (from host variable MISSING_TWO); set MISSING_ONE, MISSING_TWO in the host's environment")
		var e *grants.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "A", e.Destination)
		assert.Equal(t, "MISSING_ONE", e.Source)
	})
	t.Run("empty counts as set", func(t *testing.T) {
		t.Parallel()
		m, g := refs("A", "EMPTY"), bindings("A", "EMPTY")
		env, err := mustBind(t, request(m, g, source())).Values(t.Context(), use(m, g))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"A": ""}, reveal(env))
	})
	t.Run("unset between bind and read", func(t *testing.T) {
		t.Parallel()
		m, src := refs("SANDBOX_TOKEN", "HOST_TOKEN", "O", "OTHER"), source()
		g := bindings("SANDBOX_TOKEN", "HOST_TOKEN", "O", "OTHER")
		b := mustBind(t, request(m, g, src))
		delete(src.values, "HOST_TOKEN")
		env, err := b.Values(t.Context(), use(m, g))
		require.ErrorIs(t, err, grants.KindNotSet)
		assert.Zero(t, env.Len(), "all or nothing")
	})
}

func TestNotGrantedSaysWhatToAdd(t *testing.T) {
	t.Parallel()
	src := source()
	b, err := grants.Bind(t.Context(), request(refs("SANDBOX_TOKEN", "HOST_TOKEN"), grants.Set{}, src))
	assert.Nil(t, b)
	assert.EqualError(t, err, "grants: not granted: SANDBOX_TOKEN (from host variable HOST_TOKEN); "+
		"add SANDBOX_TOKEN: HOST_TOKEN to processEnvironmentBindings, or pass --grant SANDBOX_TOKEN=HOST_TOKEN")
	require.ErrorIs(t, err, grants.KindNotGranted)
	assert.False(t, errors.Is(err, grants.KindNotSet))
	assert.False(t, src.touched())
}

func TestPY03TwoDestinationsOneSource(t *testing.T) {
	t.Parallel()
	m, src := refs("A", "HOST_TOKEN", "B", "HOST_TOKEN"), source()
	b, err := grants.Bind(t.Context(), request(m, bindings("A", "HOST_TOKEN"), src))
	assert.Nil(t, b)
	var e *grants.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, grants.KindNotGranted, e.Kind)
	assert.Equal(t, []manifest.Pair{pair("B", "HOST_TOKEN")}, e.Pairs)

	g := bindings("A", "HOST_TOKEN", "B", "HOST_TOKEN")
	env, err := mustBind(t, request(m, g, src)).Values(t.Context(), use(m, g))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"A": canary, "B": canary}, reveal(env))
	assert.Equal(t, []string{"HOST_TOKEN"}, src.lookups, "a source is read once per snapshot")
	assert.Equal(t, []string{"HOST_TOKEN"}, src.presents)
}

func TestPY05UngrantedNeverStartsTheSource(t *testing.T) {
	t.Parallel()
	src := source()
	// One granted, one not: nothing is asked, the granted one included.
	b, err := grants.Bind(t.Context(), request(refs("SANDBOX_TOKEN", "HOST_TOKEN", "O", "OTHER"), tokenGrant, src))
	assert.Nil(t, b)
	require.ErrorIs(t, err, grants.KindNotGranted)
	assert.False(t, src.touched())
}

func TestPY06MalformedNamesNeverStartTheSource(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]manifest.Manifest{
		"destination with =":   refs("A=B", "HOST_TOKEN"),
		"destination with NUL": refs("A\x00", "HOST_TOKEN"),
		"destination dashed":   refs("A-B", "HOST_TOKEN"),
		"destination empty":    refs("", "HOST_TOKEN"),
		"source with =":        refs("A", "="+canary),
		"source with NUL":      refs("A", canary+"\x00"),
		"one of two":           refs("A", "HOST_TOKEN", "B=", "HOST_TOKEN"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := source()
			b, err := grants.Bind(t.Context(), request(m, bindings("A", "HOST_TOKEN"), src))
			assert.Nil(t, b)
			require.ErrorIs(t, err, grants.KindMalformed)
			assertNoCanary(t, err)
			assert.False(t, src.touched())
		})
	}
	t.Run("grants", func(t *testing.T) {
		t.Parallel()
		src := source()
		_, err := grants.Bind(t.Context(), request(refs("A", "HOST_TOKEN"), bindings("A", "HOST_TOKEN", "B=", "X"), src))
		require.ErrorIs(t, err, grants.KindMalformed)
		assert.False(t, src.touched())
	})
}

func TestJU14ReservedAndProviderDestinations(t *testing.T) {
	t.Parallel()
	for _, dest := range []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PWD", "BASH_ENV"} {
		src := source()
		_, err := grants.Bind(t.Context(), request(refs(dest, "HOST_TOKEN"), bindings(dest, "HOST_TOKEN"), src))
		require.ErrorIs(t, err, grants.KindRefused, dest)
		assert.Contains(t, err.Error(), dest)
		assert.False(t, src.touched())
	}
	src := source()
	req := request(refs("SANDBOX_TOKEN", "HOST_TOKEN"), tokenGrant, src)
	req.RefusedDestinations = []string{"X", "SANDBOX_TOKEN"}
	_, err := grants.Bind(t.Context(), req)
	var e *grants.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, grants.KindRefused, e.Kind)
	assert.Equal(t, "docker#1", e.Provider)
	assert.Contains(t, err.Error(), "managed by the provider docker#1")
	assert.False(t, src.touched())
}

func TestUnusualSourceIsNeverEchoed(t *testing.T) {
	t.Parallel()
	pasted := "sk-" + canary
	m := refs("SANDBOX_TOKEN", pasted)
	for name, g := range map[string]grants.Set{"not granted": {}, "not set": bindings("SANDBOX_TOKEN", pasted)} {
		_, err := grants.Bind(t.Context(), request(m, g, source()))
		require.Error(t, err, name)
		assert.Contains(t, err.Error(), "SANDBOX_TOKEN (from host variable <unusual name>)", name)
		assert.Contains(t, err.Error(), "check that no value was pasted there", name)
		assertNoCanary(t, err)
		b, jerr := json.Marshal(err)
		require.NoError(t, jerr)
		assert.NotContains(t, string(b), "canary")
	}
	require.ErrorContains(t, (*grants.Binding)(nil).Covers(use(m, grants.Set{})), "<unusual name>")
}

func TestPY08SourceErrorsAreNotKept(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]*recorder{
		"JU-20 error": {fail: fmt.Errorf("lookup: %w", errors.New("refused "+canary))},
		"error type":  {fail: secretError{canary}},
		"panic":       {panics: canary},
		"panic error": {panics: errors.New(canary)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := refs("SANDBOX_TOKEN", "HOST_TOKEN")
			_, err := grants.Bind(t.Context(), request(m, tokenGrant, src))
			check := func(err error) {
				t.Helper()
				require.ErrorIs(t, err, grants.KindSource)
				assert.Contains(t, err.Error(), "SANDBOX_TOKEN (from host variable HOST_TOKEN)")
				assertNoCanary(t, err)
				require.NoError(t, errors.Unwrap(err), "no cause")
			}
			check(err)

			late := source()
			b := mustBind(t, request(m, tokenGrant, late))
			late.fail, late.panics = src.fail, src.panics
			env, err := b.Values(t.Context(), use(m, tokenGrant))
			check(err)
			assert.Zero(t, env.Len())
			assertNoCanary(t, env)
		})
	}
}

type secretError struct{ value string }

func (e secretError) Error() string { return e.value }

func TestCancellation(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	m, src := refs("SANDBOX_TOKEN", "HOST_TOKEN"), source()
	b := mustBind(t, request(m, tokenGrant, src))
	cancel()
	before := len(src.presents)
	_, err := grants.Bind(ctx, request(m, tokenGrant, src))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, grants.KindSource)
	_, err = b.Values(ctx, use(m, tokenGrant))
	require.ErrorIs(t, err, context.Canceled)
	assert.Len(t, src.presents, before)
	assert.Empty(t, src.lookups)

	src.fail = fmt.Errorf("%s: %w", canary, context.DeadlineExceeded)
	_, err = grants.Bind(t.Context(), request(m, tokenGrant, src))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assertNoCanary(t, err)
}

func TestPY10SourceIsUsedNotCopied(t *testing.T) {
	t.Parallel()
	m, src := refs("SANDBOX_TOKEN", "HOST_TOKEN"), source()
	b := mustBind(t, request(m, tokenGrant, src))
	_, err := b.Values(t.Context(), use(m, tokenGrant))
	require.NoError(t, err)
	assert.Equal(t, []string{"HOST_TOKEN"}, src.presents)
	assert.Equal(t, []string{"HOST_TOKEN"}, src.lookups, "the very same object was asked")
}

// uses returns every way in which a use can differ from what was bound.
func uses(m manifest.Manifest, g grants.Set) map[string]grants.Use {
	edit := func(f func(*manifest.Manifest)) grants.Use {
		c := m.Clone()
		f(&c)
		return use(c, g)
	}
	other := use(m, g)
	other.Provider = "docker#2"
	session := use(m, g)
	session.Session = "s2"
	return map[string]grants.Use{
		"another provider":         other,
		"another session":          session,
		"grant removed":            use(m, grants.Set{}),
		"grant replaced":           use(m, bindings("SANDBOX_TOKEN", "OTHER")),
		"grant added":              use(m, bindings("SANDBOX_TOKEN", "HOST_TOKEN", "X", "Y")),
		"JM-04a reference deleted": edit(func(m *manifest.Manifest) { delete(m.Environment, "SANDBOX_TOKEN") }),
		"JM-04b made a literal":    edit(func(m *manifest.Manifest) { m.Environment["SANDBOX_TOKEN"] = manifest.Entry{Literal: "x"} }),
		"h10 source renamed":       edit(func(m *manifest.Manifest) { m.Environment["SANDBOX_TOKEN"].Reference.Name = "OTHER" }),
		"h6 another destination": edit(func(m *manifest.Manifest) {
			m.Environment["EXFIL"] = m.Environment["SANDBOX_TOKEN"]
			delete(m.Environment, "SANDBOX_TOKEN")
		}),
		"reference added":  edit(func(m *manifest.Manifest) { m.Environment["EXFIL"] = m.Environment["SANDBOX_TOKEN"] }),
		"zero use":         {Manifest: m},
		"other everything": {Manifest: refs("A", "B"), Provider: "p", Session: "s"},
	}
}

func TestBindingIsForOneUseOnly(t *testing.T) {
	t.Parallel()
	m := refs("SANDBOX_TOKEN", "HOST_TOKEN")
	for name, u := range uses(m, tokenGrant) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := source()
			b := mustBind(t, request(m, tokenGrant, src))
			err := b.Covers(u)
			require.ErrorIs(t, err, grants.KindInvalidBinding)
			var e *grants.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, grants.Invalid(b, u), e.Pairs)
			assert.NotEmpty(t, e.Pairs)
			assert.Contains(t, err.Error(), "bind the manifest again")
			for _, p := range u.Manifest.Pairs() {
				assert.Contains(t, e.Pairs, p, "every reference is invalid")
			}
			for _, p := range m.Pairs() {
				assert.Contains(t, e.Pairs, p, "and so is what was bound")
			}
			env, err := b.Values(t.Context(), u)
			require.ErrorIs(t, err, grants.KindInvalidBinding)
			assert.Zero(t, env.Len())
			assert.Empty(t, src.lookups)
			require.NoError(t, b.Covers(use(m, tokenGrant)), "the rightful use is not harmed")
		})
	}
	t.Run("what is not a reference may change", func(t *testing.T) {
		t.Parallel()
		b := mustBind(t, request(m, tokenGrant, source()))
		c := m.Clone()
		c.Environment["LIT"] = manifest.Entry{Literal: "x"}
		c.Image = "other"
		require.NoError(t, b.Covers(use(c, tokenGrant)))
	})
	t.Run("the same grants in another spelling", func(t *testing.T) {
		t.Parallel()
		same := refs("K", "K")
		src := &recorder{values: map[string]string{"K": canary}}
		b := mustBind(t, request(same, allow("K"), src))
		require.NoError(t, b.Covers(use(same, allow("K", "K"))))
		require.NoError(t, b.Covers(use(same, bindings("K", "K"))))
	})
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	m, src := refs("SANDBOX_TOKEN", "HOST_TOKEN"), source()
	b := mustBind(t, request(m, tokenGrant, src))
	copied := *b
	b.Revoke()
	b.Revoke()
	for _, x := range []*grants.Binding{b, &copied} {
		err := x.Covers(use(m, tokenGrant))
		require.ErrorIs(t, err, grants.KindInvalidBinding)
		assert.Contains(t, err.Error(), "revoked")
		_, err = x.Values(t.Context(), use(m, tokenGrant))
		require.ErrorIs(t, err, grants.KindInvalidBinding)
	}
	assert.Empty(t, src.lookups)
}

func TestRevokedWhileReading(t *testing.T) {
	t.Parallel()
	m, src := refs("SANDBOX_TOKEN", "HOST_TOKEN"), source()
	b := mustBind(t, request(m, tokenGrant, src))
	src.onLookup = b.Revoke
	env, err := b.Values(t.Context(), use(m, tokenGrant))
	require.ErrorIs(t, err, grants.KindInvalidBinding)
	assert.Zero(t, env.Len())
	assert.Len(t, src.lookups, 1)
}

// A Binding that Bind has not made is worth nothing.
func TestBindingIsUnforgeable(t *testing.T) {
	t.Parallel()
	m := refs("SANDBOX_TOKEN", "HOST_TOKEN")
	for i := range reflect.TypeFor[grants.Binding]().NumField() {
		assert.False(t, reflect.TypeFor[grants.Binding]().Field(i).IsExported())
	}
	for name, b := range map[string]*grants.Binding{"nil": nil, "zero": {}, "new": new(grants.Binding)} {
		err := b.Covers(use(m, tokenGrant))
		require.ErrorIs(t, err, grants.KindInvalidBinding, name)
		assert.Contains(t, err.Error(), "there is no binding", name)
		assert.Equal(t, m.Pairs(), grants.Invalid(b, use(m, tokenGrant)), name)
		env, err := b.Values(t.Context(), use(m, tokenGrant))
		require.ErrorIs(t, err, grants.KindInvalidBinding, name)
		assert.Zero(t, env.Len(), name)
		b.Revoke()
		assert.Equal(t, "grants.Binding[none]", b.String())
	}
	t.Run("without identity there is no binding", func(t *testing.T) {
		t.Parallel()
		for _, req := range []grants.BindRequest{
			{Manifest: m, Grants: tokenGrant, Source: source(), Session: "s"},
			{Manifest: m, Grants: tokenGrant, Source: source(), Provider: "p"},
		} {
			b, err := grants.Bind(t.Context(), req)
			require.ErrorIs(t, err, grants.KindInvalidBinding)
			assert.Nil(t, b)
		}
	})
}

func TestPY13BindingsAreNotSerialised(t *testing.T) {
	t.Parallel()
	m := refs("SANDBOX_TOKEN", "HOST_TOKEN")
	b := mustBind(t, request(m, tokenGrant, grants.MapSource(map[string]string{"HOST_TOKEN": canary})))
	for name, call := range map[string]func() error{
		"json":       func() error { _, err := json.Marshal(b); return err },
		"json value": func() error { _, err := json.Marshal(*b); return err },
		"json field": func() error { _, err := json.Marshal(struct{ B *grants.Binding }{b}); return err },
		"text":       func() error { _, err := b.MarshalText(); return err },
		"binary":     func() error { _, err := b.MarshalBinary(); return err },
		"yaml":       func() error { _, err := b.MarshalYAML(); return err },
		"gob":        func() error { return gob.NewEncoder(&bytes.Buffer{}).Encode(b) },
		"gob encode": func() error { _, err := b.GobEncode(); return err },
		"from json":  func() error { return json.Unmarshal([]byte(`{}`), &grants.Binding{}) },
		"from gob":   func() error { return new(grants.Binding).GobDecode([]byte("x")) },
	} {
		require.ErrorIs(t, call(), grants.ErrMarshal, name)
	}
	// The manifest of a bound session goes through JSON as references only, and
	// what comes back has no binding.
	out, err := json.Marshal(m)
	require.NoError(t, err)
	assert.NotContains(t, string(out), "canary")
	var back manifest.Manifest
	require.NoError(t, json.Unmarshal(out, &back))
	_, err = grants.Bind(t.Context(), request(back, grants.Set{}, source()))
	require.ErrorIs(t, err, grants.KindNotGranted)
}

func TestPrintingABindingShowsNamesOnly(t *testing.T) {
	t.Parallel()
	m := refs("SANDBOX_TOKEN", "HOST_TOKEN")
	b := mustBind(t, request(m, tokenGrant, grants.MapSource(map[string]string{"HOST_TOKEN": canary})))
	type inside struct{ b *grants.Binding }
	type exposed struct{ B grants.Binding }
	for name, x := range map[string]any{"binding": b, "copy": *b, "unexported": inside{b}, "exported": exposed{*b}, "slice": []any{b}} {
		assertNoCanary(t, x)
		var text, js bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).Info("m", "b", x)
		slog.New(slog.NewJSONHandler(&js, nil)).Info("m", "b", x)
		rec := &bytesT{}
		assert.Equal(rec, x, reflect.Zero(reflect.TypeOf(x)).Interface())
		for _, out := range []string{text.String(), js.String(), rec.String()} {
			assert.NotContains(t, out, "canary", name)
		}
	}
	assert.Equal(t, "grants.Binding[SANDBOX_TOKEN]", b.String())
	assert.Equal(t, "grants.Binding[SANDBOX_TOKEN]", fmt.Sprintf("%#v", b))
}

type bytesT struct{ bytes.Buffer }

func (b *bytesT) Errorf(format string, args ...any) { _, _ = fmt.Fprintf(b, format, args...) }

func TestValuesLimits(t *testing.T) {
	t.Parallel()
	m, g := refs("A", "BIG"), bindings("A", "BIG")
	read := func(m manifest.Manifest, g grants.Set, values map[string]string) (secret.Env, error) {
		b := mustBind(t, request(m, g, grants.MapSource(values)))
		return b.Values(t.Context(), use(m, g))
	}
	_, err := read(m, g, map[string]string{"BIG": strings.Repeat("v", manifest.MaxValue-3)})
	require.NoError(t, err)
	env, err := read(m, g, map[string]string{"BIG": strings.Repeat("v", manifest.MaxValue-2)})
	require.ErrorContains(t, err, "128 KiB")
	require.ErrorContains(t, err, "A (from host variable BIG)")
	require.ErrorIs(t, err, grants.KindMalformed)
	assert.Zero(t, env.Len())
	_, err = read(m, g, map[string]string{"BIG": canary + "\x00"})
	require.ErrorContains(t, err, "contains NUL")
	assertNoCanary(t, err)

	many, granted := manifest.New(), map[string]string{}
	many.Environment = map[string]manifest.Entry{}
	for i := range 8 {
		name := fmt.Sprintf("K%d", i)
		many.Environment[name] = manifest.Entry{Reference: &manifest.Reference{Name: "BIG"}}
		granted[name] = "BIG"
	}
	all := grants.Set{ProcessEnvironmentBindings: granted}
	full := map[string]string{"BIG": strings.Repeat("v", manifest.MaxValue-4)}
	_, err = read(many, all, full)
	require.NoError(t, err, "1 MiB to the byte")
	many.Environment["LIT"] = manifest.Entry{}
	_, err = read(many, all, full)
	require.ErrorContains(t, err, "1 MiB in all", "literals count")
}

func TestProcessEnvironment(t *testing.T) {
	const name = "SBXHOST_TEST_PROCESS_ENVIRONMENT"
	src := grants.ProcessEnvironment()
	require.NoError(t, os.Unsetenv(name))
	ok, err := src.Present(t.Context(), name)
	require.NoError(t, err)
	assert.False(t, ok)
	t.Setenv(name, canary)
	v, ok, err := src.Lookup(t.Context(), name)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.True(t, v.Equal(secret.FromString(canary)))
	t.Setenv(name, "")
	_, ok, err = src.Lookup(t.Context(), name)
	require.NoError(t, err)
	assert.True(t, ok, "empty counts as set")
	for _, other := range []string{strings.ToLower(name), "", "=", name + "=", name + "\x00"} {
		_, ok, err = src.Lookup(t.Context(), other)
		require.NoError(t, err)
		assert.False(t, ok, "%q", other)
	}
	// It is the default.
	t.Setenv(name, canary)
	m := refs("A", name)
	b := mustBind(t, request(m, bindings("A", name), nil))
	env, err := b.Values(t.Context(), use(m, bindings("A", name)))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"A": canary}, reveal(env))
}

func TestMapSourceHidesAndCopies(t *testing.T) {
	t.Parallel()
	values := map[string]string{"A": canary}
	src := grants.MapSource(values)
	values["A"] = "changed"
	v, ok, err := src.Lookup(t.Context(), "A")
	require.NoError(t, err)
	require.True(t, ok)
	assert.True(t, v.Equal(secret.FromString(canary)))
	assertNoCanary(t, src)
}

func TestConcurrentUseAndRevoke(t *testing.T) {
	t.Parallel()
	m := refs("SANDBOX_TOKEN", "HOST_TOKEN")
	b := mustBind(t, request(m, tokenGrant, source()))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 50 {
				env, err := b.Values(t.Context(), use(m, tokenGrant))
				if err == nil {
					assert.True(t, maps.Equal(map[string]string{"SANDBOX_TOKEN": canary}, reveal(env)))
				} else {
					assert.ErrorIs(t, err, grants.KindInvalidBinding)
					assert.Zero(t, env.Len())
				}
				if i == 7 {
					b.Revoke()
				}
			}
		})
	}
	wg.Wait()
	require.Error(t, b.Covers(use(m, tokenGrant)))
}

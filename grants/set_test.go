package grants_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
)

const canary = "canary-9b1f-s3cr3t-value"

func pair(dest, source string) manifest.Pair {
	return manifest.Pair{Destination: dest, Source: source}
}

func bindings(kv ...string) grants.Set {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return grants.Set{ProcessEnvironmentBindings: m}
}

func allow(keys ...string) grants.Set {
	return grants.Set{AllowedProcessEnvironmentKeys: keys}
}

func TestAllowsIsExact(t *testing.T) {
	t.Parallel()
	s := grants.Set{AllowedProcessEnvironmentKeys: []string{"K", "*", "K"}, ProcessEnvironmentBindings: map[string]string{"TOKEN": "HOST"}}
	require.NoError(t, s.Validate())
	for _, p := range []manifest.Pair{pair("K", "K"), pair("TOKEN", "HOST"), pair("*", "*")} {
		assert.True(t, s.Allows(p), p)
	}
	for _, p := range []manifest.Pair{
		pair("HOST", "TOKEN"), pair("HOST", "HOST"), pair("TOKEN", "TOKEN"), pair("OTHER", "HOST"), pair("TOKEN", "K"),
		pair("K", "HOST"), pair("X", "K"), pair("k", "k"), pair("K ", "K "), pair("A", "A"), pair("", ""), pair("token", "HOST"),
	} {
		assert.False(t, s.Allows(p), p)
		assert.False(t, grants.Set{}.Allows(p), p)
	}
}

func TestValidateSet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  grants.Set
		kind grants.Kind
		text string
	}{
		"empty key":         {allow("A", ""), grants.KindMalformed, "allowedProcessEnvironmentKeys: entry 1"},
		"key with =":        {allow("A=" + canary), grants.KindMalformed, "allowedProcessEnvironmentKeys: entry 0"},
		"key with NUL":      {allow("A\x00" + canary), grants.KindMalformed, "NUL"},
		"empty destination": {bindings("", "HOST"), grants.KindMalformed, "destination"},
		"destination =":     {bindings("A="+canary, "HOST"), grants.KindMalformed, "HOST"},
		"empty source":      {bindings("TOKEN", ""), grants.KindMalformed, "TOKEN"},
		"source =":          {bindings("TOKEN", "x="+canary), grants.KindMalformed, "TOKEN"},
		"source NUL":        {bindings("TOKEN", canary+"\x00"), grants.KindMalformed, "TOKEN"},
		"conflict": {grants.Set{AllowedProcessEnvironmentKeys: []string{"TOKEN"}, ProcessEnvironmentBindings: map[string]string{"TOKEN": "HOST"}},
			grants.KindConflict, "TOKEN (from host variable HOST)"},
		"conflict with a pasted source": {grants.Set{AllowedProcessEnvironmentKeys: []string{"TOKEN"}, ProcessEnvironmentBindings: map[string]string{"TOKEN": canary}},
			grants.KindConflict, "<unusual name>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.set.Validate()
			require.ErrorIs(t, err, c.kind)
			assert.Contains(t, err.Error(), c.text)
			assert.NotContains(t, err.Error(), "canary")
		})
	}
	for name, s := range map[string]grants.Set{
		"zero": {}, "empty": {AllowedProcessEnvironmentKeys: []string{}, ProcessEnvironmentBindings: map[string]string{}},
		"repeated": allow("A", "A"), "same both ways": {AllowedProcessEnvironmentKeys: []string{"A"}, ProcessEnvironmentBindings: map[string]string{"A": "A"}},
		"two from one": bindings("A", "H", "B", "H"), "odd names": allow(" ", "a-b", "É"),
	} {
		assert.NoError(t, s.Validate(), name)
	}
	assert.True(t, grants.Set{}.IsEmpty())
	assert.True(t, grants.Set{AllowedProcessEnvironmentKeys: []string{}}.IsEmpty())
	assert.False(t, allow("A").IsEmpty())
	assert.False(t, bindings("A", "B").IsEmpty())
}

func TestMergeReplacesKinds(t *testing.T) {
	t.Parallel()
	host := grants.Set{AllowedProcessEnvironmentKeys: []string{"A"}, ProcessEnvironmentBindings: map[string]string{"T": "H"}}
	for name, c := range map[string]struct {
		run  *grants.Set
		want grants.Set
	}{
		"none":           {nil, host},
		"nothing given":  {&grants.Set{}, host},
		"other keys":     {&grants.Set{AllowedProcessEnvironmentKeys: []string{"B"}}, grants.Set{AllowedProcessEnvironmentKeys: []string{"B"}, ProcessEnvironmentBindings: map[string]string{"T": "H"}}},
		"keys off":       {&grants.Set{AllowedProcessEnvironmentKeys: []string{}}, grants.Set{AllowedProcessEnvironmentKeys: []string{}, ProcessEnvironmentBindings: map[string]string{"T": "H"}}},
		"other bindings": {&grants.Set{ProcessEnvironmentBindings: map[string]string{"U": "V"}}, grants.Set{AllowedProcessEnvironmentKeys: []string{"A"}, ProcessEnvironmentBindings: map[string]string{"U": "V"}}},
		"bindings off":   {&grants.Set{ProcessEnvironmentBindings: map[string]string{}}, grants.Set{AllowedProcessEnvironmentKeys: []string{"A"}, ProcessEnvironmentBindings: map[string]string{}}},
		"both":           {&grants.Set{AllowedProcessEnvironmentKeys: []string{}, ProcessEnvironmentBindings: map[string]string{}}, grants.Set{AllowedProcessEnvironmentKeys: []string{}, ProcessEnvironmentBindings: map[string]string{}}},
		"replaced, so no conflict": {&grants.Set{AllowedProcessEnvironmentKeys: []string{"T"}, ProcessEnvironmentBindings: map[string]string{}},
			grants.Set{AllowedProcessEnvironmentKeys: []string{"T"}, ProcessEnvironmentBindings: map[string]string{}}},
	} {
		got, err := grants.Merge(host, c.run)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, got, name)
	}
	_, err := grants.Merge(host, &grants.Set{AllowedProcessEnvironmentKeys: []string{"T"}})
	require.ErrorIs(t, err, grants.KindConflict, "conflicts are judged on the result")
	assert.Contains(t, err.Error(), "T")
	_, err = grants.Merge(allow(""), nil)
	require.ErrorIs(t, err, grants.KindMalformed)

	run := grants.Set{AllowedProcessEnvironmentKeys: []string{"R"}}
	got, err := grants.Merge(host, &run)
	require.NoError(t, err)
	run.AllowedProcessEnvironmentKeys[0] = "X"
	host.ProcessEnvironmentBindings["T"] = "X"
	assert.Equal(t, grants.Set{AllowedProcessEnvironmentKeys: []string{"R"}, ProcessEnvironmentBindings: map[string]string{"T": "H"}}, got, "deep copy")
}

func TestCloneSet(t *testing.T) {
	t.Parallel()
	s := grants.Set{AllowedProcessEnvironmentKeys: []string{"A"}, ProcessEnvironmentBindings: map[string]string{"T": "H"}}
	c := s.Clone()
	c.AllowedProcessEnvironmentKeys[0], c.ProcessEnvironmentBindings["T"] = "X", "X"
	assert.True(t, s.Allows(pair("A", "A")))
	assert.True(t, s.Allows(pair("T", "H")))
	assert.Equal(t, grants.Set{}, grants.Set{}.Clone(), "nil stays nil")
	assert.NotNil(t, grants.Set{AllowedProcessEnvironmentKeys: []string{}}.Clone().AllowedProcessEnvironmentKeys)
}

func TestSetJSON(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]grants.Set{
		`{}`:                                   {},
		`{"allowedProcessEnvironmentKeys":[]}`: {AllowedProcessEnvironmentKeys: []string{}},
		`{"processEnvironmentBindings":{}}`:    {ProcessEnvironmentBindings: map[string]string{}},
		`{"allowedProcessEnvironmentKeys":["A","B"],"processEnvironmentBindings":{"T":"H"}}`: {AllowedProcessEnvironmentKeys: []string{"A", "B"}, ProcessEnvironmentBindings: map[string]string{"T": "H"}},
	} {
		var s grants.Set
		require.NoError(t, json.Unmarshal([]byte(in), &s), in)
		assert.Equal(t, want, s, in)
		b, err := json.Marshal(s)
		require.NoError(t, err)
		assert.JSONEq(t, in, string(b), "nil and empty are told apart")
	}
	for name, c := range map[string]struct{ in, text string }{
		"PY-04 bare string":     {`{"allowedProcessEnvironmentKeys":"` + canary + `"}`, "must be a list, not a string"},
		"PY-04 bare map":        {`{"allowedProcessEnvironmentKeys":{"A":"` + canary + `"}}`, "must be a list, not an object"},
		"bindings a list":       {`{"processEnvironmentBindings":["` + canary + `"]}`, "must be an object, not a list"},
		"null list":             {`{"allowedProcessEnvironmentKeys":null}`, "must be a list, not null"},
		"number":                {`{"allowedProcessEnvironmentKeys":["A",1]}`, "must be a string, not a number"},
		"binding not a string":  {`{"processEnvironmentBindings":{"` + canary + `":true}}`, "processEnvironmentBindings: entry 0: must be a string, not a boolean"},
		"unknown key":           {`{"allowed":["A"]}`, "unknown key"},
		"other spelling":        {`{"allowed_process_environment_keys":["A"]}`, "unknown key"},
		"other case":            {`{"AllowedProcessEnvironmentKeys":["A"]}`, "unknown key"},
		"duplicate key":         {`{"processEnvironmentBindings":{},"processEnvironmentBindings":{"A":"B"}}`, "duplicate key"},
		"duplicate destination": {`{"processEnvironmentBindings":{"A":"B","A":"C"}}`, "duplicate key"},
		"a list":                {`["A"]`, "must be an object, not a list"},
		"a string":              {`"A"`, "must be an object, not a string"},
		"conflict":              {`{"allowedProcessEnvironmentKeys":["T"],"processEnvironmentBindings":{"T":"H"}}`, "two sources"},
		"malformed":             {`{"allowedProcessEnvironmentKeys":["=` + canary + `"]}`, "entry 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := allow("KEEP")
			err := s.UnmarshalJSON([]byte(c.in))
			var e *grants.Error
			require.ErrorAs(t, err, &e)
			assert.Contains(t, err.Error(), c.text)
			assert.NotContains(t, err.Error(), "canary")
			assert.Equal(t, allow("KEEP"), s, "unchanged on error")
		})
	}
	var s grants.Set
	require.ErrorIs(t, s.UnmarshalJSON([]byte(`{} {}`)), grants.KindMalformed)
	require.ErrorIs(t, s.UnmarshalJSON(nil), grants.KindMalformed)
}

func TestDisplaySource(t *testing.T) {
	t.Parallel()
	for _, n := range []string{"A", "HOST_TOKEN", "_x9", strings.Repeat("A", 64)} {
		assert.Equal(t, n, grants.DisplaySource(n))
	}
	for _, n := range []string{"", "9A", "a-b", "sk-" + canary, strings.Repeat("A", 65), "A B", "A\n", "É", "A=b", "A\x00"} {
		assert.Equal(t, "<unusual name>", grants.DisplaySource(n), "%q", n)
	}
}

package plugintest_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/plugintest"
)

// badModule is the bad plugin, with E2B's manifest less what it does not do.
var badModule = sync.OnceValues(func() ([]byte, error) {
	doc, err := os.ReadFile(e2bDir + "/manifest.json")
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(doc, &m); err != nil {
		return nil, err
	}
	m["name"], m["operations"] = "bad", []string{"create", "status", "list", "destroy"}
	var routes []any
	for _, r := range m["routes"].([]any) {
		if role := r.(map[string]any)["role"]; role == "create" || role == "control" {
			routes = append(routes, r)
		}
	}
	m["routes"], m["protectedTransport"] = routes, map[string]any{"create": []string{"create"}}
	delete(m, "exec")
	if doc, err = json.Marshal(m); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bad-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	manifest := filepath.Join(dir, "manifest.json")
	if err := os.WriteFile(manifest, doc, 0o600); err != nil {
		return nil, err
	}
	return build("testdata/bad", manifest)
})

func TestBadPluginFailsNamedChecks(t *testing.T) {
	t.Parallel()
	module, err := badModule()
	require.NoError(t, err, "%s", module)
	r := run(t, plugintest.Options{Module: module, Fake: startFake(t), Only: []string{
		"static/", "lifecycle/destroy-twice", "lifecycle/duplicate", "errno/", "http/status/", "http/destroy/401", "http/create/hang", "taint/",
	}})
	assert.False(t, r.OK())
	for name, reason := range map[string]string{
		"errno/create":            "without a sandbox id",
		"errno/list":              "panicked",
		"http/status/500":         "", // it ran out of fuel, or of time where computing is slow
		"http/destroy/401":        "PermissionDenied",
		"lifecycle/destroy-twice": "it did not work",
	} {
		c, ok := r.Find(name)
		if assert.True(t, ok, name) {
			assert.Equal(t, plugintest.Failed, c.Status, name)
			assert.Contains(t, strings.Join(c.Reasons, "\n"), reason, name)
		}
	}
	for _, name := range []string{"static/module", "static/compile", "http/status/503", "http/status/truncated", "lifecycle/duplicate-create"} {
		c, ok := r.Find(name)
		if assert.True(t, ok, name) {
			assert.Equal(t, plugintest.Passed, c.Status, "%s: %v", name, c.Reasons)
		}
	}

	var doc bytes.Buffer
	require.NoError(t, r.WriteJUnit(&doc))
	var suites struct {
		Failures int `xml:"failures,attr"`
		Tests    int `xml:"tests,attr"`
		Suites   []struct {
			Name  string `xml:"name,attr"`
			Cases []struct {
				Name    string    `xml:"name,attr"`
				Failure *struct{} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	require.NoError(t, xml.Unmarshal(doc.Bytes(), &suites))
	assert.Equal(t, len(r.With(plugintest.Failed)), suites.Failures)
	assert.Equal(t, len(r.Checks), suites.Tests)
	doc.Reset()
	require.NoError(t, r.WriteJSON(&doc))
	var back plugintest.Report
	require.NoError(t, json.Unmarshal(doc.Bytes(), &back))
	assert.Equal(t, len(r.Checks), len(back.Checks))
	matrix := r.Matrix()
	assert.Contains(t, matrix, "| operation create | yes | **failed**: `errno/create`")
	assert.Contains(t, matrix, "| operation exec | no |  |")
}

// A module that is no plugin fails a static check, and nothing else is tried.
func TestStaticChecks(t *testing.T) {
	t.Parallel()
	module, err := e2b()
	require.NoError(t, err, "%s", module)
	for name, tc := range map[string]struct {
		module []byte
		check  string
	}{
		"empty":     {nil, "static/module"},
		"no module": {[]byte("hello"), "static/module"},
		"cut":       {module[:len(module)/2], "static/module"},
		"manifest":  {bytes.Replace(module, []byte(`"kind":"sealed"`), []byte(`"kind":"seeled"`), 1), "static/manifest"},
		"imports":   {bytes.Replace(module, []byte("http_status"), []byte("http_statux"), 1), "static/imports"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := plugintest.Run(t.Context(), plugintest.Options{Module: tc.module})
			require.NoError(t, err)
			require.Len(t, r.Checks, 1)
			assert.Equal(t, tc.check, r.Checks[0].Name)
			assert.Equal(t, plugintest.Failed, r.Checks[0].Status)
			assert.NotEmpty(t, r.Checks[0].Reasons)
			assert.False(t, r.OK())
		})
	}
}

// Without a fake, what needs one is not proved, and does not count as passed.
func TestWithoutFake(t *testing.T) {
	t.Parallel()
	module, err := e2b()
	require.NoError(t, err, "%s", module)
	r, err := plugintest.Run(t.Context(), plugintest.Options{Module: module})
	require.NoError(t, err)
	c, ok := r.Find("operations")
	require.True(t, ok)
	assert.Equal(t, plugintest.NotProved, c.Status)
	assert.Contains(t, r.Summary(), "1 not proved")
	_, tried := r.Find("lifecycle/parallel")
	assert.False(t, tried)
}

// A plugin-driven plugin, or one without a protected transport, is refused
// references before any of its code has run.
func TestReferencesAreRefusedBeforeCode(t *testing.T) {
	t.Parallel()
	module, err := e2b()
	require.NoError(t, err, "%s", module)
	in, err := plugin.Inspect(module)
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(in.Manifest, &m))
	delete(m, "protectedTransport")
	doc, err := json.Marshal(m)
	require.NoError(t, err)
	packed, err := plugin.Pack(module, doc)
	require.NoError(t, err)
	r := run(t, plugintest.Options{Module: packed, Fake: startFake(t), Only: []string{"references/"}})
	c, ok := r.Find("references/refused-before-code")
	require.True(t, ok)
	assert.Equal(t, plugintest.Passed, c.Status, c.Reasons)
}

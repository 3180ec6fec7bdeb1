package manifest_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/manifest"
)

func TestCanonicalForm(t *testing.T) {
	t.Parallel()
	b, err := mustParse(t, wholeJSON()).MarshalJSON()
	require.NoError(t, err)
	assert.Equal(t, `{"version":1,"image":"python:3.12-slim","root":"/workspace","user":"app",`+
		`"environment":{"EMPTY":"","LOG_LEVEL":"debug","SAME_NAME":{"type":"process_env"},`+
		`"SANDBOX_TOKEN":{"type":"process_env","name":"HOST_TOKEN","description":"token for api.example.com"}},`+
		`"files":{"bin/tool":{"contentBase64":"AP8B","mode":"0755"},"main.py":{"content":"print(1)\n"},"src":{"hostPath":"./src"},"x/empty":{"content":""}},`+
		`"pathGrants":[{"path":"/data","hostPath":"/srv/data","readOnly":true},{"path":"/rw","hostPath":"rel"}],`+
		`"ports":[8080,80],"start":"image","network":"none",`+
		`"resources":{"cpus":1.5,"memoryMiB":512,"pids":256,"diskMiB":1024},"lifetime":{"ttl":"1h","idle":"15m"},`+
		`"labels":{"empty":"","team":"core"}}`, string(b))

	b, err = manifest.New().MarshalJSON()
	require.NoError(t, err)
	assert.Equal(t, `{"version":1,"root":"/workspace","start":"idle"}`, string(b))
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		`{}`, wholeJSON(),
		`{"files":{"a":{"content":"\u0001\u0002\u0003\u0004\u0005\u0006\u0007"},"b":{"contentBase64":"aGVsbG8="}}}`,
		`{"environment":{"A":"<&>\u2028 \"\\ 😀"},"lifetime":{"ttl":"1h0m1s","idle":"1.5ms"},"resources":{"cpus":1e-7}}`,
	} {
		m := mustParse(t, in)
		b, err := json.Marshal(m)
		require.NoError(t, err)
		var back manifest.Manifest
		require.NoError(t, json.Unmarshal(b, &back))
		assert.Equal(t, m, back)
		assert.Equal(t, m.Digest(), back.Digest())

		inside, err := json.Marshal(struct{ M manifest.Manifest }{m})
		require.NoError(t, err)
		var holder struct{ M manifest.Manifest }
		require.NoError(t, json.Unmarshal(inside, &holder))
		assert.Equal(t, m, holder.M)
	}
}

func TestUnmarshalIsStrictInsideOtherTypes(t *testing.T) {
	t.Parallel()
	holder := struct{ M manifest.Manifest }{M: manifest.New()}
	for _, in := range []string{`{"M":{"imagee":""}}`, `{"M":{"image":"a","image":"b"}}`, `{"M":{"environment":{"A":1}}}`} {
		require.Error(t, json.Unmarshal([]byte(in), &holder), in)
		assert.Equal(t, manifest.New(), holder.M, "unchanged on error")
	}
}

func TestContentNeverGrowsTheDocument(t *testing.T) {
	t.Parallel()
	for name, content := range map[string][]byte{
		"controls": []byte(strings.Repeat("\x01", 1000)), "text": []byte(strings.Repeat("line\n", 100)),
		"newlines": []byte(strings.Repeat("\n", 100)), "binary": {0xff, 0xfe}, "empty": nil, "quotes": []byte(`"""`),
	} {
		m := manifest.New()
		m.Files = map[string]manifest.File{"f": {Content: content}}
		b, err := m.MarshalJSON()
		require.NoError(t, err, name)
		base64Len := (len(content) + 2) / 3 * 4
		assert.LessOrEqual(t, len(b), len(`{"version":1,"root":"/workspace","files":{"f":{"contentBase64":""}},"start":"idle"}`)+base64Len, name)
		assert.Equal(t, content, mustParse(t, string(b)).Files["f"].Content, name)
	}
}

func TestDurationsAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Hour: "1h", 90 * time.Minute: "1h30m", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", 30 * time.Second: "30s",
		time.Hour + time.Second: "1h0m1s", 1500 * time.Microsecond: "1.5ms", 20 * time.Hour: "20h", 100 * time.Hour: "100h",
	} {
		m := manifest.New()
		m.Lifetime.TTL = d
		b, err := m.MarshalJSON()
		require.NoError(t, err)
		assert.Contains(t, string(b), `"ttl":"`+want+`"`)
		assert.Equal(t, d, mustParse(t, string(b)).Lifetime.TTL)
	}
}

func TestDigests(t *testing.T) {
	t.Parallel()
	a := mustParse(t, `{"environment":{"A":{"type":"process_env","name":"X"},"B":"1"},"labels":{"l":"1"}}`)
	same := mustParse(t, ` {"labels":{"l":"1"},"start":"idle","environment":{"B":"1","A":{"name":"X","type":"temporal.worker_env_value"}},"version":1,"root":"/workspace"}`)
	assert.Equal(t, a.Digest(), same.Digest(), "spelling does not matter")
	assert.Regexp(t, `^sha256:[0-9a-f]{64}$`, a.Digest())
	assert.Regexp(t, `^sha256:[0-9a-f]{64}$`, a.ReferencesDigest())

	for name, c := range map[string]struct {
		in             string
		sameReferences bool
	}{
		"literal":               {`{"environment":{"A":{"type":"process_env","name":"X"},"B":"2"},"labels":{"l":"1"}}`, true},
		"description":           {`{"environment":{"A":{"type":"process_env","name":"X","description":"d"},"B":"1"},"labels":{"l":"1"}}`, true},
		"image":                 {`{"image":"i","environment":{"A":{"type":"process_env","name":"X"},"B":"1"},"labels":{"l":"1"}}`, true},
		"source":                {`{"environment":{"A":{"type":"process_env","name":"Y"},"B":"1"},"labels":{"l":"1"}}`, false},
		"destination":           {`{"environment":{"C":{"type":"process_env","name":"X"},"B":"1"},"labels":{"l":"1"}}`, false},
		"removed":               {`{"environment":{"B":"1"},"labels":{"l":"1"}}`, false},
		"JM-04b made a literal": {`{"environment":{"A":"X","B":"1"},"labels":{"l":"1"}}`, false},
		"added":                 {`{"environment":{"A":{"type":"process_env","name":"X"},"B":{"type":"process_env"}},"labels":{"l":"1"}}`, false},
	} {
		m := mustParse(t, c.in)
		assert.NotEqual(t, a.Digest(), m.Digest(), name)
		assert.Equal(t, c.sameReferences, a.ReferencesDigest() == m.ReferencesDigest(), name)
	}
	implicit := mustParse(t, `{"environment":{"X":{"type":"process_env"}}}`)
	explicit := mustParse(t, `{"environment":{"X":{"type":"process_env","name":"X"}}}`)
	assert.Equal(t, implicit.ReferencesDigest(), explicit.ReferencesDigest(), "the pair is the same")
}

func TestDigestOfUnvalidatedManifestsDiffers(t *testing.T) {
	t.Parallel()
	digest := func(edit func(*manifest.Manifest)) string {
		m := manifest.New()
		edit(&m)
		return m.Digest()
	}
	assert.NotEqual(t, digest(func(m *manifest.Manifest) { m.Image = "\xff" }), digest(func(m *manifest.Manifest) { m.Image = "\xfe" }))
	assert.NotEqual(t, digest(func(m *manifest.Manifest) { m.Resources.CPUs = math.NaN() }), digest(func(m *manifest.Manifest) { m.Resources.CPUs = math.Inf(1) }))
}

func TestUncleanPathsAreWrittenClean(t *testing.T) {
	t.Parallel()
	m := manifest.New()
	m.Files = map[string]manifest.File{"./a//b": {Content: []byte("x")}}
	require.NoError(t, m.Validate())
	clean := manifest.New()
	clean.Files = map[string]manifest.File{"a/b": {Content: []byte("x")}}
	assert.Equal(t, clean.Digest(), m.Digest())
}

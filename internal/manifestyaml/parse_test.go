package manifestyaml_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/manifestyaml"
	"github.com/sbxhost/sbxhost/manifest"
)

const canary = "canary-9b1f-s3cr3t-value"

const whole = `# a comment
version: 1
image: python:3.12-slim
root: /workspace
environment:
  LOG_LEVEL: debug
  QUOTED: "1"
  WORDS: yes it is
  YES: yes
  DATE: 2024-01-01
  SANDBOX_TOKEN: {type: process_env, name: HOST_TOKEN, description: token for api.example.com}
  SAME_NAME:
    type: process_env
files:
  main.py:
    content: |
      print(1)
        indented
  folded.txt: {content: "a\nb"}
  bin/tool: {contentBase64: "AP8B", mode: "0755"}
  src: {hostPath: ./src}
pathGrants:
  - {path: /data, hostPath: /srv/data, readOnly: true}
ports: [8080, 9090]
start: idle
network: none
resources: {cpus: 1.5, memoryMiB: 512, pids: 256, diskMiB: 1024}
lifetime: {ttl: 1h, idle: 15m}
labels: {team: core}
`

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := manifestyaml.Parse([]byte(whole))
	require.NoError(t, err)
	want, err := manifest.Parse([]byte(`{"version":1,"image":"python:3.12-slim","root":"/workspace",
		"environment":{"LOG_LEVEL":"debug","QUOTED":"1","WORDS":"yes it is","YES":"yes","DATE":"2024-01-01",
			"SANDBOX_TOKEN":{"type":"process_env","name":"HOST_TOKEN","description":"token for api.example.com"},"SAME_NAME":{"type":"process_env"}},
		"files":{"main.py":{"content":"print(1)\n  indented\n"},"folded.txt":{"content":"a\nb"},"bin/tool":{"contentBase64":"AP8B","mode":"0755"},"src":{"hostPath":"./src"}},
		"pathGrants":[{"path":"/data","hostPath":"/srv/data","readOnly":true}],"ports":[8080,9090],"start":"idle","network":"none",
		"resources":{"cpus":1.5,"memoryMiB":512,"pids":256,"diskMiB":1024},"lifetime":{"ttl":"1h","idle":"15m"},"labels":{"team":"core"}}`))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Equal(t, want.Digest(), got.Digest())
}

// JSON is YAML: the same document means the same.
func TestJSONIsAccepted(t *testing.T) {
	t.Parallel()
	in := []byte(`{"environment":{"A":"x","T":{"type":"process_env"}},"ports":[80]}`)
	got, err := manifestyaml.Parse(in)
	require.NoError(t, err)
	want, err := manifest.Parse(in)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, text string }{
		"number":             {"environment:\n  A: x\n  B: 8080\n", "3:3: /environment/B: must be a string or a reference, not a number; quote the value"},
		"float":              {"environment:\n  B: 1.5\n", "2:3: /environment/B: must be a string or a reference, not a number; quote the value"},
		"boolean":            {"environment:\n  B: true\n", "2:3: /environment/B: must be a string or a reference, not a boolean; quote the value"},
		"upper-case boolean": {"environment:\n  B: TRUE\n", "2:3: /environment/B: must be a string or a reference, not a boolean; quote the value"},
		"null":               {"environment:\n  B: null\n", "2:3: /environment/B: must be a string or a reference, not null; quote the value"},
		"tilde":              {"environment: {B: ~}", "1:15: /environment/B: must be a string or a reference, not null; quote the value"},
		"nothing":            {"environment:\n  B:\n", "2:3: /environment/B: must be a string or a reference, not null; quote the value"},
		"octal":              {"environment:\n  B: 0755\n", "2:6: /environment/B: a number must be plain decimal; quote the value"},
		"hex":                {"environment:\n  B: 0x1F\n", "quote the value"},
		"underscores":        {"environment:\n  B: 1_000\n", "quote the value"},
		"plus":               {"environment:\n  B: +1\n", "quote the value"},
		"infinity":           {"environment:\n  B: .inf\n", "quote the value"},
		"not a number":       {"environment:\n  B: .nan\n", "quote the value"},
		"mode unquoted":      {"files:\n  a:\n    content: x\n    mode: 0755\n", "4:11: /files/a/mode: a number must be plain decimal; quote the value"},
		"version a fraction": {"version: 1.0", "1:1: /version: must be a whole number"},

		"duplicate":             {"environment:\n  A: a\n  A: " + canary, "3:3: /environment: a key is given twice"},
		"duplicate at top":      {"image: a\nimage: b", "2:1: a key is given twice"},
		"duplicate in two ways": {"image: a\n\"image\": b", "2:1: a key is given twice"},
		"anchor":                {"environment:\n  A: &x " + canary + "\n", "2:6: /environment/A: anchors are not supported"},
		"anchored mapping":      {"labels: &x\n  a: b\n", "anchors are not supported"},
		"alias":                 {"environment:\n  A: *x\n", "anchors and aliases"},
		"alias of an anchor":    {"user: &x a\nimage: *x\n", "1:7: /user: anchors are not supported"},
		"recursive alias":       {"environment: &a {A: *a}", "anchor"},
		"merge key":             {"environment:\n  <<: {A: b}\n", "2:3: /environment: merge keys are not supported"},
		"merge value":           {"environment:\n  A: <<\n", "quote the value if it is text"},
		"tag":                   {"environment:\n  A: !!str 1\n", "2:6: /environment/A: tags are not supported"},
		"binary tag":            {"environment:\n  A: !!binary aGk=\n", "tags are not supported"},
		"own tag":               {"image: !env " + canary, "tags are not supported"},
		"tagged key":            {"!!str image: x", "tags are not supported"},
		"anchored key":          {"&k image: x", "anchors and aliases are not supported"},
		"number as key":         {"1: 2", "1:1: a key must be a string; quote it"},
		"boolean as key":        {"environment:\n  true: x", "2:3: /environment: a key must be a string; quote it"},
		"null as key":           {"~: x", "a key must be a string"},
		"mapping as key":        {"{a: b}: c", "a key must be a string"},
		"two documents":         {"image: a\n---\nimage: b\n", "a second document"},
		"empty":                 {"", "the document is empty"},
		"only a comment":        {"# x\n", "the document is empty"},
		"null document":         {"~", "must be an object, not null"},
		"a list":                {"- a\n", "must be an object, not a list"},
		"text":                  {canary, "must be an object, not a string"},
		"invalid UTF-8":         {"image: \xff", "not valid UTF-8"},
		"UTF-16":                {"\xff\xfei\x00", "not valid UTF-8"},
		"control character":     {"image: \"a\x00\"", "not valid YAML"},
		"escaped NUL":           {`image: "a\0"`, "1:1: /image: must be text without control characters"},
		"tab indentation":       {"environment:\n\tA: b", "2: not valid YAML"},
		"unclosed quote":        {"environment:\n  A: \"" + canary, "not valid YAML"},
		"unclosed flow":         {"environment: {A: " + canary, "not valid YAML"},
		"unknown field":         {"version: 1\nimagee: x\n", "2:1: /imagee: unknown field"},
		"case":                  {"Image: x", `1:1: /Image: unknown field; it is spelled "image"`},
		"grants":                {"process_environment_bindings: {A: B}", "1:1: /process_environment_bindings: grants never come from a manifest"},
		"pasted assignment":     {"environment:\n  TOKEN=" + canary + ": x\n", `2:3: /environment: a variable name must not contain "="`},
		"assignment as text":    {"environment:\n  TOKEN=" + canary + "\n", "must be an object, not a string"},
		"reference with value":  {"environment:\n  A:\n    type: process_env\n    value: " + canary, "4:5: /environment/A/value: a reference has only"},
		"list item":             {"ports:\n  - 80\n  - 99999\n", "3:5: /ports/1: must be a port"},
		"same file twice":       {"files: {a: {content: x}, ./a: {content: y}}", "1:26: /files/.~1a: the same file is given twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := manifestyaml.Parse([]byte(c.in))
			var e *manifestyaml.Error
			require.ErrorAs(t, err, &e)
			assert.Contains(t, err.Error(), c.text)
			assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, e), "canary")
			assert.Equal(t, manifest.Manifest{}, m)
		})
	}
}

// Documents that make careless readers expand, recurse or crawl are refused, or
// read, at once.
func TestHostileDocuments(t *testing.T) {
	t.Parallel()
	var laughs strings.Builder
	laughs.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 30 {
		fmt.Fprintf(&laughs, "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i, i)
	}
	var indent strings.Builder
	for i := range 1200 {
		indent.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	for name, in := range map[string]string{
		"billion laughs": laughs.String(), "indent": indent.String(),
		"flow lists": strings.Repeat("[", 1<<20), "flow maps": strings.Repeat("{a: ", 1<<18), "dashes": strings.Repeat("- ", 1<<19),
		"explicit keys": strings.Repeat("? ", 1<<19), "tags": strings.Repeat("!a ", 1<<18), "anchors": strings.Repeat("- &a x\n", 1<<17),
		"many keys": strings.Repeat("a: b\n", 200000), "many items": "ports:\n" + strings.Repeat("- 1\n", 200000),
		"too large": strings.Repeat("#", 1<<20+1), "depth 65": strings.Repeat("[", 66) + strings.Repeat("]", 66),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			_, err := manifestyaml.Parse([]byte(in))
			var e *manifestyaml.Error
			require.ErrorAs(t, err, &e)
			assert.Less(t, time.Since(start), 2*time.Minute, "generous, for a loaded machine; a quadratic reader takes many minutes")
		})
	}
}

func TestToJSON(t *testing.T) {
	t.Parallel()
	out, err := manifestyaml.ToJSON([]byte("- A\n- {name: B, optional: true}\n- {name: C, optional: \"true\"}\n- 1.5\n- ~\n"))
	require.NoError(t, err)
	assert.Equal(t, `["A",{"name":"B","optional":true},{"name":"C","optional":"true"},1.5,null]`, string(out))
	_, err = manifestyaml.ToJSON([]byte("a: 1\na: 2"))
	require.ErrorContains(t, err, "2:1: a key is given twice")
}

// FuzzParse: no panic; what is read is a valid manifest that reads back the
// same from its JSON; JSON manifests mean the same as YAML; no error shows the
// marker.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		whole, "{}", "environment: {A: 1}", "a: &a [*a]", "<<: {a: b}", "- - - a", "? a\n: b", "files: {a: {content: >\n  x\n  y}}",
		"image: \"\\u00e9\\x41\"", "image: 'it''s'", "environment:\n  A: |-\n    x\n\n", "--- {}\n...\n", "\ufeff{}", `{"image":"\ud83d\ude00"}`,
		"environment:\n  A: " + canary + "\n  A: 1\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := manifestyaml.Parse(data)
		if err != nil {
			if strings.Contains(err.Error(), canary) && !strings.Contains(string(data), canary+":") && !strings.Contains(string(data), canary+"\"") {
				t.Fatalf("the error shows a value: %v", err)
			}
			return
		}
		out, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("read, yet not valid: %v", err)
		}
		back, err := manifest.Parse(out)
		if err != nil || !reflect.DeepEqual(m, back) {
			t.Fatalf("read back as %#v (%v), was %#v", back, err, m)
		}
		asYAML, err := manifestyaml.Parse(out)
		if err != nil || asYAML.Digest() != m.Digest() {
			t.Fatalf("its JSON means something else in YAML: %v\n%s", err, out)
		}
	})
}

package manifest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/manifest"
)

const canary = "canary-9b1f-s3cr3t-value"

// whole uses every field.
const whole = `{
  "version": 1, "image": "python:3.12-slim", "root": "/workspace", "user": "app",
  "environment": {
    "LOG_LEVEL": "debug", "EMPTY": "",
    "SANDBOX_TOKEN": {"type": "process_env", "name": "HOST_TOKEN", "description": "token for api.example.com"},
    "SAME_NAME": {"type": "process_env"}
  },
  "files": {
    "main.py": {"content": "print(1)\n"},
    "bin/tool": {"contentBase64": "AP8B", "mode": "0755"},
    "src": {"hostPath": "./src"},
    "./x/../y/../empty": {"content": ""}
  },
  "pathGrants": [{"path": "/data", "hostPath": "/srv/data", "readOnly": true}, {"path": "/rw", "hostPath": "rel"}],
  "ports": [8080, 80],
  "start": "image", "network": "none",
  "resources": {"cpus": 1.5, "memoryMiB": 512, "pids": 256, "diskMiB": 1024},
  "lifetime": {"ttl": "1h", "idle": "15m"},
  "labels": {"team": "core", "empty": ""}
}`

func wholeJSON() string { return strings.Replace(whole, "./x/../y/../empty", "./x//empty", 1) }

func mustParse(t *testing.T, s string) manifest.Manifest {
	t.Helper()
	m, err := manifest.Parse([]byte(s))
	require.NoError(t, err)
	return m
}

func TestParseEveryField(t *testing.T) {
	t.Parallel()
	m := mustParse(t, wholeJSON())
	assert.Equal(t, manifest.Manifest{
		Version: 1, Image: "python:3.12-slim", Root: "/workspace", User: "app",
		Environment: map[string]manifest.Entry{
			"LOG_LEVEL": {Literal: "debug"}, "EMPTY": {},
			"SANDBOX_TOKEN": {Reference: &manifest.Reference{Name: "HOST_TOKEN", Description: "token for api.example.com"}},
			"SAME_NAME":     {Reference: &manifest.Reference{}},
		},
		Files: map[string]manifest.File{
			"main.py":  {Content: []byte("print(1)\n")},
			"bin/tool": {Content: []byte{0, 0xff, 1}, Mode: 0o755},
			"src":      {HostPath: "./src"},
			"x/empty":  {},
		},
		PathGrants: []manifest.PathGrant{{Path: "/data", HostPath: "/srv/data", ReadOnly: true}, {Path: "/rw", HostPath: "rel"}},
		Ports:      []int{8080, 80},
		Start:      manifest.StartImage, Network: manifest.NetworkNone,
		Resources: manifest.Resources{CPUs: 1.5, MemoryMiB: 512, PIDs: 256, DiskMiB: 1024},
		Lifetime:  manifest.Lifetime{TTL: time.Hour, Idle: 15 * time.Minute},
		Labels:    map[string]string{"team": "core", "empty": ""},
	}, m)
}

func TestParseFillsDefaults(t *testing.T) {
	t.Parallel()
	for _, s := range []string{`{}`, `{"version":1}`, `{"environment":{},"files":{},"pathGrants":[],"ports":[],"resources":{},"lifetime":{},"labels":{}}`} {
		assert.Equal(t, manifest.New(), mustParse(t, s), s)
	}
	assert.NoError(t, manifest.New().Validate())
	assert.Equal(t, "/workspace", manifest.New().Root)
	assert.Error(t, manifest.Manifest{}.Validate(), "the zero value is not valid")
}

func TestReferenceTypes(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"process_env", "openai.agents.process_env", "temporal.worker_env_value"} {
		m := mustParse(t, `{"environment":{"A":{"type":"`+typ+`","name":"B"}}}`)
		assert.Equal(t, []manifest.Pair{{Destination: "A", Source: "B"}}, m.Pairs())
		b, err := json.Marshal(m)
		require.NoError(t, err)
		assert.Contains(t, string(b), `{"type":"process_env","name":"B"}`, "written back as process_env")
	}
}

// Each document is refused with this pointer and a message that contains this
// text. No error ever contains the canary.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	env := func(body string) string { return `{"environment":{` + body + `}}` }
	file := func(name, body string) string { return `{"files":{"` + name + `":` + body + `}}` }
	ref := func(extra string) string { return env(`"A":{"type":"process_env"` + extra + `}`) }
	cases := []struct{ name, in, pointer, message string }{
		{"not an object", `[]`, "", "must be an object"},
		{"null", `null`, "", "must be an object, not null"},
		{"trailing data", `{} {}`, "", "data after the end of the document"},
		{"broken", `{"image":"` + canary, "/image", "closing quote"},
		{"invalid UTF-8", "{\"image\":\"\xff\"}", "", "invalid UTF-8"},
		{"lone surrogate", `{"image":"\ud800"}`, "/image", "surrogate"},
		{"unknown field", `{"imagee":"x"}`, "/imagee", "unknown field; known here are environment, files, image, "},
		{"case-variant field", `{"Image":"x"}`, "/Image", `it is spelled "image"`},
		{"case-variant twin", `{"image":"x","IMAGE":"y"}`, "/IMAGE", `it is spelled "image"`},
		{"duplicate field", `{"image":"x","image":"y"}`, "/image", "duplicate key"},
		{"duplicate by escape", `{"image":"x","im\u0061ge":"y"}`, "/image", "duplicate key"},
		{"version 2", `{"version":2}`, "/version", "reads version 1"},
		{"version 0", `{"version":0}`, "/version", "reads version 1"},
		{"version a string", `{"version":"1"}`, "/version", "must be a number, not a string"},
		{"version a fraction", `{"version":1.0}`, "/version", "whole number"},
		{"image null", `{"image":null}`, "/image", "must be a string, not null"},
		{"image control", `{"image":"a\u0000"}`, "/image", "control characters"},
		{"user control", `{"user":"a\n"}`, "/user", "control characters"},

		{"root relative", `{"root":"work"}`, "/root", "absolute"},
		{"root empty", `{"root":""}`, "/root", "absolute"},
		{"root slash", `{"root":"/"}`, "/root", "root of the file system"},
		{"root dots", `{"root":"/a/../b"}`, "/root", `".."`},
		{"root unclean", `{"root":"/a//b"}`, "/root", "clean path"},
		{"root trailing", `{"root":"/a/"}`, "/root", "clean path"},
		{"root control", `{"root":"/a\nb"}`, "/root", "control characters"},

		{"environment a list", `{"environment":[]}`, "/environment", "must be an object, not a list"},
		{"environment null", `{"environment":null}`, "/environment", "must be an object, not null"},
		{"number", env(`"A":1`), "/environment/A", "not a number; quote the value"},
		{"boolean", env(`"A":true`), "/environment/A", "not a boolean; quote the value"},
		{"null entry", env(`"A":null`), "/environment/A", "not null; quote the value"},
		{"list entry", env(`"A":["` + canary + `"]`), "/environment/A", "not a list"},
		{"duplicate entry", env(`"A":"` + canary + `","A":"x"`), "/environment/A", "duplicate key"},
		{"key empty", env(`"":"` + canary + `"`), "/environment/<unusual name>", "must not be empty"},
		{"key with value", env(`"TOKEN=` + canary + `":""`), "/environment/<unusual name>", `"="`},
		{"key with value, broken after", env(`"TOKEN=` + canary + `" ""`), "/environment/<unusual name>", "missing colon"},
		{"key with value twice", env(`"A":"","TOKEN=` + canary + `":1`), "/environment/<unusual name>", `"="`},
		{"key dashed", env(`"A-B":"x"`), "/environment/<unusual name>", "identifier"},
		{"key digit", env(`"1A":"x"`), "/environment/<unusual name>", "identifier"},
		{"key not ASCII", env(`"É":"x"`), "/environment/<unusual name>", "identifier"},
		{"literal with NUL", env(`"A":"` + canary + `\u0000"`), "/environment/A", "NUL"},

		{"reference without type", env(`"A":{"name":"B"}`), "/environment/A", "needs type: process_env"},
		{"reference empty", env(`"A":{}`), "/environment/A", "needs type: process_env"},
		{"unknown type", env(`"A":{"type":"` + canary + `"}`), "/environment/A/type", "known are process_env, openai.agents.process_env, temporal.worker_env_value"},
		{"type in another case", env(`"A":{"type":"PROCESS_ENV"}`), "/environment/A/type", "known are"},
		{"type a list", env(`"A":{"type":["process_env"]}`), "/environment/A/type", "must be a string"},
		{"value", ref(`,"value":"` + canary + `"`), "/environment/A/value", "never holds a value"},
		{"JM-07 ephemeral", ref(`,"ephemeral":true`), "/environment/A/ephemeral", "only type, name and description"},
		{"other field", ref(`,"default":"` + canary + `"`), "/environment/A/default", "only type, name and description"},
		{"case-variant name", ref(`,"Name":"B"`), "/environment/A/Name", "only type, name and description"},
		{"name twice", ref(`,"name":"B","name":"C"`), "/environment/A/name", "duplicate key"},
		{"JM-06 name empty", ref(`,"name":""`), "/environment/A/name", "must not be empty"},
		{"JM-06 name with =", ref(`,"name":"A=` + canary + `"`), "/environment/A/name", `must not contain "="`},
		{"JM-06 name with NUL", ref(`,"name":"` + canary + `\u0000"`), "/environment/A/name", "must not contain NUL"},
		{"name a number", ref(`,"name":1`), "/environment/A/name", "must be a string"},
		{"description a list", ref(`,"description":[]`), "/environment/A/description", "must be a string"},

		{"file unknown field", file("a", `{"content":"x","owner":"y"}`), "/files/a/owner", "unknown field"},
		{"file a string", file("a", `"x"`), "/files/a", "must be an object"},
		{"file empty", file("a", `{}`), "/files/a", "needs one of content, contentBase64 and hostPath"},
		{"file only mode", file("a", `{"mode":"0644"}`), "/files/a", "needs one of"},
		{"content and base64", file("a", `{"content":"`+canary+`","contentBase64":""}`), "/files/a", "this one has content and contentBase64"},
		{"content and hostPath", file("a", `{"content":"","hostPath":"x"}`), "/files/a", "this one has content and hostPath"},
		{"base64 and hostPath", file("a", `{"contentBase64":"","hostPath":"x"}`), "/files/a", "this one has contentBase64 and hostPath"},
		{"base64 broken", file("a", `{"contentBase64":"`+canary+`"}`), "/files/a/contentBase64", "base64"},
		{"base64 unpadded", file("a", `{"contentBase64":"AA"}`), "/files/a/contentBase64", "base64"},
		{"base64 with newline", file("a", `{"contentBase64":"AA==\n"}`), "/files/a/contentBase64", "base64"},
		{"base64 stray bits", file("a", `{"contentBase64":"AB=="}`), "/files/a/contentBase64", "base64"},
		{"hostPath empty", file("a", `{"hostPath":""}`), "/files/a/hostPath", "must not be empty"},
		{"hostPath NUL", file("a", `{"hostPath":"x\u0000"}`), "/files/a/hostPath", "control characters"},
		{"hostPath with mode", file("a", `{"hostPath":"x","mode":"0755"}`), "/files/a", "mode goes with content"},
		{"mode a number", file("a", `{"content":"","mode":755}`), "/files/a/mode", "must be a string"},
		{"mode zero", file("a", `{"content":"","mode":"0000"}`), "/files/a/mode", "octal"},
		{"mode setuid", file("a", `{"content":"","mode":"4755"}`), "/files/a/mode", "octal"},
		{"mode not octal", file("a", `{"content":"","mode":"0799"}`), "/files/a/mode", "octal"},
		{"mode symbolic", file("a", `{"content":"","mode":"rwx"}`), "/files/a/mode", "octal"},
		{"mode prefixed", file("a", `{"content":"","mode":"0o755"}`), "/files/a/mode", "octal"},
		{"mode signed", file("a", `{"content":"","mode":"+75"}`), "/files/a/mode", "octal"},
		{"path empty", file("", `{"content":""}`), "/files/", "must not be empty"},
		{"path absolute", file("/etc/passwd", `{"content":""}`), "/files/~1etc~1passwd", "relative to root"},
		{"path up", file("../a", `{"content":""}`), "/files/..~1a", `".."`},
		{"path up inside", file("a/../b", `{"content":""}`), "/files/a~1..~1b", `".."`},
		{"path dot", file(".", `{"content":""}`), "/files/.", "below root"},
		{"path control", file("a\\nb", `{"content":""}`), "/files/<unusual name>", "control characters"},
		{"path slash at end", file("a/", `{"content":""}`), "/files/a~1", "slash"},
		{"same path twice", `{"files":{"a/b":{"content":""},"./a//b":{"content":""}}}`, "/files/.~1a~1~1b", "given twice"},
		{"file under file", `{"files":{"a":{"content":""},"a/b/c":{"content":""}}}`, "/files/a~1b~1c", "lies below another entry"},
		{"file under file, other order", `{"files":{"a/b":{"content":""},"./a":{"hostPath":"x"}}}`, "/files/a~1b", "lies below another entry"},

		{"path grants an object", `{"pathGrants":{}}`, "/pathGrants", "must be a list"},
		{"path grant empty", `{"pathGrants":[{}]}`, "/pathGrants/0/path", "absolute"},
		{"path grant relative", `{"pathGrants":[{"path":"a","hostPath":"b"}]}`, "/pathGrants/0/path", "absolute"},
		{"path grant root", `{"pathGrants":[{"path":"/","hostPath":"b"}]}`, "/pathGrants/0/path", "root of the file system"},
		{"path grant without hostPath", `{"pathGrants":[{"path":"/a"}]}`, "/pathGrants/0/hostPath", "must be a path"},
		{"path grant twice", `{"pathGrants":[{"path":"/a","hostPath":"b"},{"path":"/a","hostPath":"c"}]}`, "/pathGrants/1/path", "given twice"},
		{"path grant readOnly a string", `{"pathGrants":[{"path":"/a","hostPath":"b","readOnly":"true"}]}`, "/pathGrants/0/readOnly", "must be a boolean"},
		{"path grant unknown field", `{"pathGrants":[{"path":"/a","hostPath":"b","mode":"x"}]}`, "/pathGrants/0/mode", "unknown field"},

		{"port 0", `{"ports":[0]}`, "/ports/0", "1 to 65535"},
		{"port negative", `{"ports":[80,-1]}`, "/ports/1", "1 to 65535"},
		{"port too big", `{"ports":[65536]}`, "/ports/0", "1 to 65535"},
		{"port huge", `{"ports":[1e30]}`, "/ports/0", "whole number"},
		{"port twice", `{"ports":[80,81,80]}`, "/ports/2", "given twice"},
		{"port a string", `{"ports":["80"]}`, "/ports/0", "must be a number"},
		{"start", `{"start":"now"}`, "/start", `"idle" or "image"`},
		{"start empty", `{"start":""}`, "/start", `"idle" or "image"`},
		{"network", `{"network":"host"}`, "/network", `"none" or "default"`},
		{"network empty", `{"network":""}`, "/network", `"none" or "default"`},
		{"cpus zero", `{"resources":{"cpus":0}}`, "/resources/cpus", "positive"},
		{"cpus negative", `{"resources":{"cpus":-1}}`, "/resources/cpus", "positive"},
		{"cpus huge", `{"resources":{"cpus":1e999}}`, "/resources/cpus", "in range"},
		{"cpus too many", `{"resources":{"cpus":65537}}`, "/resources/cpus", "from 0 to 65536"},
		{"cpus a string", `{"resources":{"cpus":"1"}}`, "/resources/cpus", "must be a number"},
		{"memory fraction", `{"resources":{"memoryMiB":1.5}}`, "/resources/memoryMiB", "whole number"},
		{"memory zero", `{"resources":{"memoryMiB":0}}`, "/resources/memoryMiB", "positive"},
		{"memory too much", `{"resources":{"memoryMiB":1099511627776}}`, "/resources/memoryMiB", "from 0 to"},
		{"pids too many", `{"resources":{"pids":4194305}}`, "/resources/pids", "from 0 to"},
		{"resources unknown", `{"resources":{"gpus":1}}`, "/resources/gpus", "unknown field"},
		{"resources case", `{"resources":{"memoryMib":1}}`, "/resources/memoryMib", `it is spelled "memoryMiB"`},
		{"ttl a number", `{"lifetime":{"ttl":60}}`, "/lifetime/ttl", "must be a string"},
		{"ttl without unit", `{"lifetime":{"ttl":"60"}}`, "/lifetime/ttl", "duration with a unit"},
		{"ttl zero", `{"lifetime":{"ttl":"0s"}}`, "/lifetime/ttl", "positive"},
		{"idle negative", `{"lifetime":{"idle":"-1s"}}`, "/lifetime/idle", "positive"},
		{"label a number", `{"labels":{"a":1}}`, "/labels/a", "must be a string"},
		{"label reserved", `{"labels":{"sbxhost.owner":"x"}}`, "/labels/sbxhost.owner", "host's own"},
		{"label reserved in another case", `{"labels":{"SbxHost.x":"x"}}`, "/labels/SbxHost.x", "host's own"},
		{"label empty", `{"labels":{"":"x"}}`, "/labels/", "label's key"},
		{"label with =", `{"labels":{"a=b":"x"}}`, "/labels/a=b", "label's key"},
		{"label control", `{"labels":{"a":"x\u0000"}}`, "/labels/a", "control characters"},
		{"label long", `{"labels":{"` + strings.Repeat("k", 257) + `":"x"}}`, "/labels/" + strings.Repeat("k", 256) + "…", "label's key"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := manifest.Parse([]byte(c.in))
			var e *manifest.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, manifest.Manifest{}, m)
			assert.Equal(t, c.pointer, e.Pointer)
			assert.Contains(t, e.Message, c.message)
			assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), canary)
		})
	}
}

func TestNestingIsBounded(t *testing.T) {
	t.Parallel()
	deep := `{"environment":` + strings.Repeat(`{"A":`, 100) + `1` + strings.Repeat(`}`, 101)
	_, err := manifest.Parse([]byte(deep))
	require.Error(t, err)
	err = manifest.CheckGrantShapedKeys([]byte(strings.Repeat(`[`, 65) + strings.Repeat(`]`, 65)))
	assert.ErrorContains(t, err, "nested deeper than 64 levels")
	require.NoError(t, manifest.CheckGrantShapedKeys([]byte(strings.Repeat(`[`, 64)+strings.Repeat(`]`, 64))))
}

func TestLimitsAreRefusedByName(t *testing.T) {
	t.Parallel()
	entries := func(n int, value string) string {
		var b strings.Builder
		b.WriteString(`{"environment":{`)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `"K%05d":"%s"`, i, value)
		}
		return b.String() + "}}"
	}
	files := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"files":{`)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `"%d":{"content":""}`, i)
		}
		return b.String() + "}}"
	}
	value := func(n int) string { return `{"environment":{"A":"` + strings.Repeat("v", n) + `"}}` }
	pad := func(n int) string { return `{"image":"` + strings.Repeat("x", n) + `"}` }
	for name, c := range map[string]struct{ ok, bad, limit string }{
		"MaxJSON":    {pad(manifest.MaxJSON - 100), `{}` + strings.Repeat(" ", manifest.MaxJSON-1), "1 MiB of JSON (MaxJSON)"},
		"MaxEntries": {entries(manifest.MaxEntries, ""), entries(manifest.MaxEntries+1, ""), "4096 environment entries (MaxEntries)"},
		"MaxValue":   {value(manifest.MaxValue - 3), value(manifest.MaxValue - 2), "128 KiB for one variable with its name (MaxValue)"},
		"MaxFiles":   {files(manifest.MaxFiles), files(manifest.MaxFiles + 1), "10000 files (MaxFiles)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := manifest.Parse([]byte(c.ok))
			require.NoError(t, err)
			_, err = manifest.Parse([]byte(c.bad))
			require.ErrorContains(t, err, c.limit)
		})
	}
	t.Run("MaxEnvironment", func(t *testing.T) {
		t.Parallel()
		// In JSON the sum is always under MaxJSON first, so build it in Go:
		// eight values of 128 KiB fill the environment to the byte.
		m := manifest.New()
		m.Environment = map[string]manifest.Entry{}
		for i := range 8 {
			m.Environment[fmt.Sprintf("K%d", i)] = manifest.Entry{Literal: strings.Repeat("v", manifest.MaxValue-4)}
		}
		err := m.Validate()
		require.ErrorContains(t, err, "MaxJSON", "the environment alone is at its limit, the document over it")
		env := m.Literals()
		require.NoError(t, manifest.CheckEnvironment(env))
		env["X"] = ""
		require.ErrorContains(t, manifest.CheckEnvironment(env), "1 MiB in all (MaxEnvironment)")
	})
	t.Run("MaxJSON when written back", func(t *testing.T) {
		t.Parallel()
		m := manifest.New()
		m.Files = map[string]manifest.File{"big": {Content: make([]byte, manifest.MaxJSON)}}
		require.ErrorContains(t, m.Validate(), "MaxJSON")
		_, err := json.Marshal(m)
		require.ErrorContains(t, err, "MaxJSON")
	})
	t.Run("MaxPathGrants", func(t *testing.T) {
		t.Parallel()
		m := manifest.New()
		for i := range manifest.MaxPathGrants {
			m.PathGrants = append(m.PathGrants, manifest.PathGrant{Path: fmt.Sprintf("/%d", i), HostPath: "h"})
		}
		require.NoError(t, m.Validate())
		m.PathGrants = append(m.PathGrants, manifest.PathGrant{Path: "/more", HostPath: "h"})
		require.ErrorContains(t, m.Validate(), "MaxPathGrants")
	})
}

func TestValidateJudgesWhatWasBuiltInGo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit    func(*manifest.Manifest)
		pointer string
	}{
		"both kinds": {func(m *manifest.Manifest) {
			m.Environment["A"] = manifest.Entry{Literal: canary, Reference: &manifest.Reference{}}
		}, "/environment/A"},
		"JM-06 source with =": {func(m *manifest.Manifest) {
			m.Environment["A"] = manifest.Entry{Reference: &manifest.Reference{Name: "a=" + canary}}
		}, "/environment/A/name"},
		"JM-06 source NUL": {func(m *manifest.Manifest) {
			m.Environment["A"] = manifest.Entry{Reference: &manifest.Reference{Name: "a\x00"}}
		}, "/environment/A/name"},
		"source not UTF-8": {func(m *manifest.Manifest) {
			m.Environment["A"] = manifest.Entry{Reference: &manifest.Reference{Name: "\xff"}}
		}, "/environment/A/name"},
		"description": {func(m *manifest.Manifest) {
			m.Environment["A"] = manifest.Entry{Reference: &manifest.Reference{Description: "\xff"}}
		}, "/environment/A/description"},
		"key":                {func(m *manifest.Manifest) { m.Environment["A="+canary] = manifest.Entry{} }, "/environment/<unusual name>"},
		"literal not UTF-8":  {func(m *manifest.Manifest) { m.Environment["A"] = manifest.Entry{Literal: canary + "\xff"} }, "/environment/A"},
		"grant-shaped key":   {func(m *manifest.Manifest) { m.Environment["PROCESS_ENVIRONMENT_BINDINGS"] = manifest.Entry{} }, "/environment/PROCESS_ENVIRONMENT_BINDINGS"},
		"grant-shaped label": {func(m *manifest.Manifest) { m.Labels = map[string]string{"process-environment-bindings": ""} }, "/labels/process-environment-bindings"},
		"grant-shaped file":  {func(m *manifest.Manifest) { m.Files = map[string]manifest.File{"processEnvironmentBindings": {}} }, "/files/processEnvironmentBindings"},
		"file twice":         {func(m *manifest.Manifest) { m.Files = map[string]manifest.File{"a": {}, "./a": {}} }, "/files/a"},
		"file both": {func(m *manifest.Manifest) {
			m.Files = map[string]manifest.File{"a": {Content: []byte("x"), HostPath: "y"}}
		}, "/files/a"},
		"file mode": {func(m *manifest.Manifest) { m.Files = map[string]manifest.File{"a": {Mode: 0o4755}} }, "/files/a/mode"},
		"port":      {func(m *manifest.Manifest) { m.Ports = []int{70000} }, "/ports/0"},
		"cpus":      {func(m *manifest.Manifest) { m.Resources.CPUs = -1 }, "/resources/cpus"},
		"memory":    {func(m *manifest.Manifest) { m.Resources.MemoryMiB = -1 }, "/resources/memoryMiB"},
		"ttl":       {func(m *manifest.Manifest) { m.Lifetime.TTL = -1 }, "/lifetime/ttl"},
		"idle":      {func(m *manifest.Manifest) { m.Lifetime.Idle = -1 }, "/lifetime/idle"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := manifest.New()
			m.Environment = map[string]manifest.Entry{}
			c.edit(&m)
			err := m.Validate()
			var e *manifest.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, c.pointer, e.Pointer)
			assert.NotContains(t, err.Error(), canary)
			_, err = m.MarshalJSON()
			assert.Error(t, err, "nothing is written that could not be read")
		})
	}
}

func TestReservedDestinations(t *testing.T) {
	t.Parallel()
	reserved := strings.Fields(`_ IFS PWD OLDPWD PPID UID EUID GID EGID GROUPS RANDOM SRANDOM SECONDS EPOCHSECONDS
		EPOCHREALTIME LINENO OPTIND PIPESTATUS FUNCNAME DIRSTACK SHLVL SHELLOPTS ENV
		BASH BASHOPTS BASH_ENV BASH_FUNC_x KSH KSH_VERSION ZSH ZSH_NAME LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT LD_ DYLD_INSERT_LIBRARIES`)
	for _, name := range reserved {
		assert.True(t, manifest.ReservedDestination(name), name)
		_, err := manifest.Parse([]byte(`{"environment":{"` + name + `":{"type":"process_env","name":"X"}}}`))
		assert.ErrorContains(t, err, "/environment/"+name+": is managed by shells or the loader", name)
		_, err = manifest.Parse([]byte(`{"environment":{"` + name + `":"literal"}}`))
		assert.NoError(t, err, "a literal may: %s", name)
		_, err = manifest.Parse([]byte(`{"environment":{"X":{"type":"process_env","name":"` + name + `"}}}`))
		assert.NoError(t, err, "a source may: %s", name)
	}
	for _, name := range []string{"PATH", "HOME", "SHELL", "TOKEN", "pwd", "XLD_PRELOAD", "LDAP", "MYBASH", "__"} {
		assert.False(t, manifest.ReservedDestination(name), name)
		mustParse(t, `{"environment":{"`+name+`":{"type":"process_env","name":"X"}}}`)
	}
}

func TestJU14AndJU17ReservedAndDashedDestinations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ id, name, message string }{
		{"JU-14a", "LD_PRELOAD", "/environment/LD_PRELOAD: is managed by shells or the loader"},
		{"JU-14b", "LD_LIBRARY_PATH", "/environment/LD_LIBRARY_PATH: is managed by shells or the loader"},
		{"JU-14c", "LD_AUDIT", "/environment/LD_AUDIT: is managed by shells or the loader"},
		{"JU-17", "MY-TOKEN", "identifier"},
	} {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			_, err := manifest.Parse([]byte(`{"environment":{"` + c.name + `":{"type":"process_env","name":"HOST_TOKEN"}}}`))
			require.ErrorContains(t, err, c.message)
			m := manifest.New()
			m.Environment = map[string]manifest.Entry{c.name: {Reference: &manifest.Reference{Name: "HOST_TOKEN"}}}
			require.ErrorContains(t, m.Validate(), c.message)
		})
	}
}

func TestPY12GrantShapedKeys(t *testing.T) {
	t.Parallel()
	keys := []string{
		"allowedProcessEnvironmentKeys", "allowed_process_environment_keys", "allowed-process-environment-keys",
		"processEnvironmentBindings", "process_environment_bindings", "process-environment-bindings",
		"PROCESS_ENVIRONMENT_BINDINGS", "ProcessEnvironmentBindings", "processenvironmentbindings", "Process Environment Bindings",
		"AllowedProcessEnvironmentKeys", "allowed.process.environment.keys", "process_environment_binding", "process\u200benvironmentBindings",
		"process_env_bindings", "allowedProcessEnvKeys",
	}
	for _, k := range keys {
		for _, doc := range []string{
			`{"%s":{"A":"B"}}`, `{"%s":["A"]}`, `{"%s":null}`,
			`{"environment":{"%s":"x"}}`, `{"environment":{"A":{"type":"process_env","%s":{}}}}`,
			`{"files":{"%s":{"content":""}}}`, `{"files":{"a":{"content":"","%s":1}}}`,
			`{"labels":{"%s":""}}`, `{"resources":{"%s":1}}`, `{"pathGrants":[{"%s":1}]}`, `{"unknown":{"deep":[{"%s":1}]}}`,
		} {
			in := fmt.Sprintf(doc, k)
			_, err := manifest.Parse([]byte(in))
			require.Error(t, err, in)
			require.ErrorContains(t, manifest.CheckGrantShapedKeys([]byte(in)), "grants never come from a manifest", in)
		}
		_, err := manifest.Parse([]byte(`{"` + k + `":{"A":"B"}}`))
		require.ErrorContains(t, err, "grants never come from a manifest")
		require.ErrorContains(t, err, "--grant")
	}
	t.Run("other documents", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, manifest.CheckGrantShapedKeys([]byte(`{"a":[1,{"b":"processEnvironmentBindings"}],"environmentBindings":1,"keys":2}`)))
		require.NoError(t, manifest.CheckGrantShapedKeys([]byte(`{"docs/processEnvironmentBindings.md":1}`)))
		require.NoError(t, manifest.CheckGrantShapedKeys([]byte(`null`)))
		for _, broken := range []string{``, `{`, `{"a":1,"a":2}`, `{} x`, "\"\xff\""} {
			require.Error(t, manifest.CheckGrantShapedKeys([]byte(broken)), broken)
		}
		var e *manifest.Error
		require.ErrorAs(t, manifest.CheckGrantShapedKeys([]byte(`{"manifest":{"x":[0,{"process_environment_bindings":1}]}}`)), &e)
		assert.Equal(t, "/manifest/x/1/process_environment_bindings", e.Pointer)
		require.ErrorAs(t, manifest.CheckGrantShapedKeys([]byte(`{"manifest":{"environment":{"T=`+canary+`":{"process_environment_bindings":1}}}}`)), &e)
		assert.Equal(t, "/manifest/environment/<unusual name>/process_environment_bindings", e.Pointer)
	})
}

func TestValidNames(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "=", "a=b", "a\x00", "\x00", "\xff"} {
		assert.Error(t, manifest.ValidName(bad), "%q", bad)
		assert.Error(t, manifest.ValidEnvKey(bad), "%q", bad)
	}
	for _, odd := range []string{" ", " A", "a b", "*", "É", "a-b", "1", "a.b"} {
		assert.NoError(t, manifest.ValidName(odd), "%q", odd)
		assert.Error(t, manifest.ValidEnvKey(odd), "%q", odd)
	}
}

func TestK2K3CommandEnvironment(t *testing.T) {
	t.Parallel()
	t.Run("K2 good keys with metacharacter values", func(t *testing.T) {
		t.Parallel()
		env := map[string]string{}
		for _, k := range []string{"A", "_PRIVATE", "MixedCase", "lower_case", "WITH_1", "__"} {
			env[k] = "$(rm -rf /); `x` \"'\\ \n | & > $HOME"
		}
		require.NoError(t, manifest.CheckEnvironment(env))
	})
	t.Run("K3 null and empty", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, manifest.CheckEnvironment(nil))
		require.NoError(t, manifest.CheckEnvironment(map[string]string{}))
		require.NoError(t, manifest.CheckEnvironment(map[string]string{"A": ""}))
	})
	t.Run("bad keys and values", func(t *testing.T) {
		t.Parallel()
		for _, env := range []map[string]string{
			{"": canary}, {"A=B": canary}, {"A-B": canary}, {"1A": canary}, {"A B": canary}, {"A;rm": canary}, {"A\n": canary},
			{"A\x00": canary}, {"É": canary}, {"T=" + canary: "x"}, {"A": canary + "\x00"}, {"A": canary + "\xff"},
			{"A": strings.Repeat(canary, 10000)},
		} {
			err := manifest.CheckEnvironment(env)
			var e *manifest.Error
			require.ErrorAs(t, err, &e, "%v", slices.Collect(maps.Keys(env)))
			assert.NotContains(t, err.Error(), canary)
		}
	})
}

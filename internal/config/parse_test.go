package config_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/config"
)

const full = `# everything there is
allowedProcessEnvironmentKeys: [API_KEY, "OTHER_KEY"]
processEnvironmentBindings:
  SANDBOX_TOKEN: HOST_TOKEN
hostPathRoots:
  - /srv/projects
  - ./here
local:
  stateDir: /var/lib/sbxhost
  allowNetwork: true
  inheritEnv: [EDITOR]
  readOnlyPaths: [/opt/tools]
  pids: 64
  unsafe: true
  killLeftovers: false
docker: {host: "tcp://10.0.0.5:2376", image: "alpine:3", pull: never, pids: 99, shimPath: bin/shim, allowEngineEnv: true}
daytona:
  apiUrl: https://daytona.example.com/api
  apiKey: {type: process_env, name: MY_DAYTONA_KEY}
  target: eu
  organizationId: 0d9b5fa2-1111-4222-8333-944445555566
  toolboxUrl: https://proxy.example.com/toolbox
  snapshot: base
  autoStop: 30m
redact: {minLength: 6, idle: 50ms}
limits:
  live: 10
  pending: 2
  execs: 8
  requestSecrets: 100
  execTimeout: 5m
  maxOutput: 1048576
log: {level: debug, format: json}
plugins:
  e2b:
    path: e2b.wasm
    credentials:
      apiKey: {type: process_env, name: E2B_API_KEY}
    settings: {template: base}
    origins:
      api: {url: "https://api.example.com", allowPrivate: true}
    allowPluginDriven: true
pluginsLock: locks/plugins.lock
pluginsCache: /var/cache/plugins
`

func TestParseFull(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte(full))
	require.NoError(t, err)
	assert.Equal(t, config.Config{
		AllowedProcessEnvironmentKeys: []string{"API_KEY", "OTHER_KEY"},
		ProcessEnvironmentBindings:    map[string]string{"SANDBOX_TOKEN": "HOST_TOKEN"},
		HostPathRoots:                 []string{"/srv/projects", "./here"},
		Local: config.Local{StateDir: "/var/lib/sbxhost", AllowNetwork: true, InheritEnv: []string{"EDITOR"},
			ReadOnlyPaths: []string{"/opt/tools"}, PIDs: 64,
			Unsafe: true, KillLeftovers: new(bool)},
		Docker: config.Docker{Host: "tcp://10.0.0.5:2376", Image: "alpine:3", Pull: "never", PIDs: 99, ShimPath: "bin/shim", AllowEngineEnv: true},
		Daytona: config.Daytona{APIURL: "https://daytona.example.com/api", APIKey: config.Source{Type: "process_env", Name: "MY_DAYTONA_KEY"},
			Target: "eu", OrganizationID: "0d9b5fa2-1111-4222-8333-944445555566", ToolboxURL: "https://proxy.example.com/toolbox", Snapshot: "base", AutoStop: 30 * time.Minute},
		Redact: config.Redact{MinLength: 6, Idle: 50 * time.Millisecond},
		Limits: config.Limits{Live: 10, Pending: 2, Execs: 8, RequestSecrets: 100, ExecTimeout: 5 * time.Minute, MaxOutput: 1 << 20},
		Log:    config.Log{Level: "debug", Format: "json"},
		Plugins: map[string]config.Plugin{"e2b": {
			Path: "e2b.wasm", Credentials: map[string]config.Source{"apiKey": {Type: "process_env", Name: "E2B_API_KEY"}},
			Settings: map[string]string{"template": "base"},
			Origins:  map[string]config.Origin{"api": {URL: "https://api.example.com", AllowPrivate: true}}, AllowPluginDriven: true,
		}},
		PluginsLock: "locks/plugins.lock", PluginsCache: "/var/cache/plugins",
	}, c)
}

// Every field of Config is set by the full example, so that none can be
// forgotten by decoder, schema or documentation.
func TestEveryFieldCanBeSet(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte(full))
	require.NoError(t, err)
	// The one that excludes another.
	other, err := config.Parse([]byte("docker: {context: remote}"))
	require.NoError(t, err)
	c.Docker.Context = other.Docker.Context
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		if v.Kind() != reflect.Struct {
			assert.False(t, v.IsZero(), "%s is not in the example", path)
			return
		}
		for i := range v.NumField() {
			walk(v.Field(i), path+"/"+v.Type().Field(i).Tag.Get("json"))
		}
	}
	walk(reflect.ValueOf(c), "")
}

func TestParseEmpty(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "\n", "# only a comment\n", "---\n", "{}", "null"} {
		c, err := config.Parse([]byte(in))
		require.NoError(t, err, "%q", in)
		assert.Equal(t, config.Config{}, c, "%q", in)
	}
}

func TestParseJSON(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte(`{"processEnvironmentBindings": {"A": "B"}, "local": {"allowNetwork": true}}`))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"A": "B"}, c.ProcessEnvironmentBindings)
	assert.True(t, c.Local.AllowNetwork)
}

func TestVariablesAreNotExpanded(t *testing.T) {
	t.Setenv("HIDDEN", "s3cr3t-canary-value")
	c, err := config.Parse([]byte("local: {stateDir: '${HIDDEN}'}\nprocessEnvironmentBindings: {A: $HIDDEN}\n"))
	require.NoError(t, err)
	assert.Equal(t, "${HIDDEN}", c.Local.StateDir)
	assert.Equal(t, "$HIDDEN", c.ProcessEnvironmentBindings["A"])
}

var refused = []struct {
	name, in  string
	line, col int
	path      string
	message   string // a part of it
}{
	{"host and context of docker", "docker: {host: x, context: y}\n", 1, 19, "/docker/context", "excludes host"},
	{"pull policy", "docker:\n  pull: sometimes\n", 2, 3, "/docker/pull", "must be one of"},
	{"negative pids of docker", "docker: {pids: -1}\n", 1, 10, "/docker/pids", "must not be negative"},
	{"source type of daytona's key", "daytona:\n  apiKey: {type: vault, name: K}\n", 2, 12, "/daytona/apiKey/type", "must be process_env"},
	{"pasted key of daytona", "daytona: {apiKey: {type: process_env, name: dtn_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}}\n", 1, 39, "/daytona/apiKey/name", "never a value"},
	{"daytona's key without a name", "daytona: {apiKey: {type: process_env}}\n", 1, 11, "/daytona/apiKey", "must name a variable"},
	{"negative autoStop", "daytona: {autoStop: -1m}\n", 1, 11, "/daytona/autoStop", "must not be negative"},
	{"daytona's unknown key", "daytona: {url: x}\n", 1, 11, "/daytona", "unknown key"},
	{"docker's unknown key", "docker: {hst: x}\n", 1, 10, "/docker", "unknown key"},
	{"plugin name", "plugins: {E2B: {path: x.wasm}}\n", 1, 16, "/plugins/E2B", "lower-case"},
	{"plugin without a path", "plugins:\n  e2b: {settings: {a: b}}\n", 2, 8, "/plugins/e2b", "path: e2b.wasm"},
	{"plugin's unknown key", "plugins:\n  e2b: {path: x, allowPluginDrivn: true}\n", 2, 18, "/plugins/e2b", `did you mean "allowPluginDriven"?`},
	{"credential's type", "plugins:\n  e2b:\n    path: x\n    credentials:\n      k: {type: file, name: A}\n", 5, 11, "/plugins/e2b/credentials/k/type", "must be process_env"},
	{"credential without a name", "plugins:\n  e2b:\n    path: x\n    credentials:\n      k: {type: process_env}\n", 5, 10, "/plugins/e2b/credentials/k", "must name a variable"},
	{"credential as text", "plugins:\n  e2b:\n    path: x\n    credentials: {k: s3cr3t-canary-value}\n", 4, 22, "/plugins/e2b/credentials/k", "must be a mapping of type, name"},
	{"value for a name", "plugins:\n  e2b:\n    path: x\n    credentials:\n      k: {type: process_env, name: 's3cr3t canary=value'}\n", 5, 30, "/plugins/e2b/credentials/k/name", "never a value"},
	{"origin without url", "plugins:\n  e2b:\n    path: x\n    origins: {api: {allowPrivate: true}}\n", 4, 20, "/plugins/e2b/origins/api", "must have a url"},
	{"number as setting", "plugins:\n  e2b:\n    path: x\n    settings: {n: 5}\n", 4, 19, "/plugins/e2b/settings/n", "must be text"},
	{"typo", "local:\n  allowNetwrok: true\n", 2, 3, "/local", `unknown key "allowNetwrok"; did you mean "allowNetwork"?`},
	{"case is not folded", "Local: {}\n", 1, 1, "", `did you mean "local"?`},
	{"misplaced", "allowNetwork: true\n", 1, 1, "", `it belongs under /local`},
	{"far off", "frobnicate: 1\n", 1, 1, "", `known: allowedProcessEnvironmentKeys, processEnvironmentBindings`},
	{"duplicate", "log: {}\nlog: {}\n", 2, 1, "/log", "is there twice"},
	{"list as text (PY-04)", "allowedProcessEnvironmentKeys: API_KEY\n", 1, 32, "/allowedProcessEnvironmentKeys", "must be a list"},
	{"number as name", "allowedProcessEnvironmentKeys: [A, 123]\n", 1, 36, "/allowedProcessEnvironmentKeys/1", "put it in quotes"},
	{"boolean as name", "processEnvironmentBindings: {A: true}\n", 1, 33, "/processEnvironmentBindings/A", "put it in quotes"},
	{"null as name", "processEnvironmentBindings:\n  A:\n", 2, 5, "/processEnvironmentBindings/A", "has no value"},
	{"number as key", "processEnvironmentBindings: {1: A}\n", 1, 30, "/processEnvironmentBindings", "in quotes"},
	{"null list", "hostPathRoots:\n", 1, 15, "/hostPathRoots", "has no value"},
	{"scalar for object", "local: yes\n", 1, 8, "/local", "must be a mapping of stateDir"},
	{"list at top", "- a\n", 1, 1, "", "must be a mapping of allowedProcessEnvironmentKeys"},
	{"quoted boolean", "local: {unsafe: \"true\"}\n", 1, 17, "/local/unsafe", "without quotes"},
	{"quoted optional boolean", "local: {killLeftovers: \"no\"}\n", 1, 24, "/local/killLeftovers", "without quotes"},
	{"null optional boolean", "local: {killLeftovers: }\n", 0, 0, "/local/killLeftovers", "write false"},
	{"yes is text in YAML 1.2", "local: {unsafe: yes}\n", 1, 17, "/local/unsafe", "must be true or false"},
	{"float", "limits: {live: 1.5}\n", 1, 16, "/limits/live", "whole number"},
	{"too large", "limits: {live: 99999999999999999999}\n", 1, 16, "/limits/live", "whole number"},
	{"negative", "limits: {live: -1}\n", 1, 10, "/limits/live", "negative"},
	{"duration", "limits: {execTimeout: 5}\n", 1, 23, "/limits/execTimeout", "duration"},
	{"negative duration", "limits: {execTimeout: -5s}\n", 1, 10, "/limits/execTimeout", "negative"},
	{"level", "log: {level: loud}\n", 1, 7, "/log/level", "must be one of [debug info warn error]"},
	{"floor", "redact: {minLength: 2}\n", 1, 10, "/redact/minLength", "between 4 and 64"},
	{"anchor", "hostPathRoots: &a [x]\n", 0, 0, "/hostPathRoots", "anchors and aliases"},
	{"merge key", "local:\n  <<: {unsafe: true}\n", 0, 0, "/local", "merge keys"},
	{"tag", "local: !!map {}\n", 0, 0, "/local", "tags"},
	{"two documents", "log: {}\n---\nlog: {}\n", 2, 1, "", "more than one document"},
	{"hexadecimal", "limits: {live: 0x10}\n", 1, 16, "/limits/live", "whole number"},
	{"octal", "limits: {live: 010}\n", 1, 16, "/limits/live", "whole number"},
	{"True is not true", "local: {unsafe: True}\n", 1, 17, "/local/unsafe", "must be true or false"},
	{"alias", "local: {stateDir: &a x}\nlog: {level: *a}\n", 0, 0, "/local/stateDir", "anchors and aliases"},
	{"syntax", "local: {unsafe: true\n", 1, 0, "", "not valid YAML"},
	{"conflict of grants", "allowedProcessEnvironmentKeys: [A]\nprocessEnvironmentBindings: {A: B}\n", 2, 1, "/processEnvironmentBindings", "A"},
	{"equals sign", "processEnvironmentBindings: {A: 'B=C'}\n", 1, 1, "/processEnvironmentBindings", ""},
	{"empty name", "allowedProcessEnvironmentKeys: ['']\n", 1, 1, "/allowedProcessEnvironmentKeys", ""},
	{"empty root", "hostPathRoots: ['']\n", 1, 17, "/hostPathRoots/0", "must name a directory"},
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range refused {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, err := config.Parse([]byte(tc.in))
			require.Error(t, err)
			assert.Equal(t, config.Config{}, c, "nothing of a refused file is used")
			var e *config.Error
			require.ErrorAs(t, err, &e)
			assert.Contains(t, e.Message, tc.message)
			if e.Message != "" && strings.HasPrefix(e.Message, "not valid YAML") {
				assert.Equal(t, "", e.Path)
			} else {
				assert.Equal(t, tc.path, e.Path)
			}
			if tc.line > 0 {
				assert.Equal(t, config.Position{Line: tc.line, Column: tc.col}, e.Position)
			} else {
				assert.Positive(t, e.Position.Line)
			}
		})
	}
}

// A value pasted where a name belongs must not come back in the message.
func TestPastedValuesAreNotEchoed(t *testing.T) {
	t.Parallel()
	const canary = "sk-canary/9f8e7d+secret=="
	for name, in := range map[string]string{
		"as key":             "'" + canary + "': 1\n",
		"as binding key":     "processEnvironmentBindings:\n  '" + canary + "': [1]\n",
		"as source":          "processEnvironmentBindings:\n  TOKEN: '" + canary + "'\n",
		"as allowed":         "allowedProcessEnvironmentKeys: ['" + canary + "']\n",
		"twice":              "processEnvironmentBindings: {'" + canary + "': A, '" + canary + "': B}\n",
		"as number":          "limits: {live: " + canary + "}\n",
		"as duration":        "limits: {execTimeout: '" + canary + "'}\n",
		"as level":           "log: {level: '" + canary + "'}\n",
		"near a syntax slip": "processEnvironmentBindings: {A: '" + canary + "'\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Parse([]byte(in))
			require.Error(t, err)
			for e := err; e != nil; e = errors.Unwrap(e) {
				assert.NotContains(t, e.Error(), canary)
				assert.NotContains(t, e.Error(), "9f8e7d")
			}
		})
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	_, err := config.Parse([]byte("#" + strings.Repeat("x", config.MaxBytes)))
	require.ErrorContains(t, err, "larger than")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	for _, tc := range refused {
		f.Add([]byte(tc.in))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse(data)
		if err != nil {
			var e *config.Error
			if !errors.As(err, &e) {
				t.Fatalf("not an *Error: %v", err)
			}
			if !reflect.DeepEqual(c, config.Config{}) {
				t.Fatal("a refused file left something behind")
			}
			return
		}
		if err := c.Grants().Validate(); err != nil {
			t.Fatalf("accepted grants do not validate: %v", err)
		}
	})
}

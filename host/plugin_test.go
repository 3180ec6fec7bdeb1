package host_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/internal/leaktest"
	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
	"github.com/sbxhost/sbxhost/plugins/examples/e2b/fake"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// e2bModule is the packed example plugin, built once.
var e2bModule = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "e2b-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "e2b.wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", out, "../plugins/examples/e2b")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if msg, err := build.CombinedOutput(); err != nil {
		return msg, err
	}
	module, err := os.ReadFile(out) //nolint:gosec // just built
	if err != nil {
		return nil, err
	}
	manifest, err := os.ReadFile("../plugins/examples/e2b/manifest.json")
	if err != nil {
		return nil, err
	}
	return plugin.Pack(module, manifest)
})

// guestView is everything that a plugin could see, and what it logged.
type guestView struct {
	corpus leaktest.Corpus
	mu     sync.Mutex
	logs   bytes.Buffer
	n      int
}

func (g *guestView) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.logs.Write(b)
}

func (g *guestView) trace(what string, data []byte) {
	g.mu.Lock()
	g.n++
	g.mu.Unlock()
	g.corpus.Add(what, data)
}

func (g *guestView) calls() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

// pluginEnv is a host with the sealed example plugin registered as "e2b", and
// the vendor's fake.
func pluginEnv(t *testing.T) (*env, *fakevendor.Vendor, *guestView, fakevendor.Hello) {
	t.Helper()
	module, err := e2bModule()
	require.NoError(t, err, "%s", module)
	v := fakevendor.New(t.TempDir())
	srv := v.Serve()
	hello := fake.Register(v, srv.URL)
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); v.CloseAll() })
	rt, err := plugin.NewRuntime(t.Context(), plugin.RuntimeConfig{CompileTimeout: 10 * time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rt.Close()) })
	lock := &plugin.Lock{}
	_, err = lock.Approve(module)
	require.NoError(t, err)
	g := &guestView{}
	cfg := plugin.Config{Module: module, Lock: lock, Settings: hello.Settings, Credentials: map[string]secret.Value{}, Origins: map[string]plugin.Origin{},
		Trace: g.trace, Logger: slog.New(slog.NewTextHandler(g, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for k, c := range hello.Credentials {
		cfg.Credentials[k] = secret.FromString(c)
	}
	for k, u := range hello.Origins {
		cfg.Origins[k] = plugin.Origin{URL: u, AllowPrivate: true}
	}
	p, err := plugin.Load(t.Context(), rt, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	e := newEnv(t, granted)
	require.NoError(t, e.RegisterPlugin("e2b", p))
	return e, v, g, hello
}

// at returns the member at a path of names in a JSON body, which may stand in a
// Connect envelope.
func at(t *testing.T, body []byte, path ...string) any {
	t.Helper()
	i := bytes.IndexByte(body, '{')
	require.GreaterOrEqual(t, i, 0)
	var v any
	require.NoError(t, json.Unmarshal(body[i:], &v))
	for _, name := range path {
		m, ok := v.(map[string]any)
		require.True(t, ok, "%v", path)
		v = m[name]
	}
	return v
}

// A command may end because of its input, before the vendor has answered for it.
func TestInputThatEndsACommandIsTaken(t *testing.T) {
	t.Parallel()
	e, v, _, _ := pluginEnv(t)
	s, err := e.Create(t.Context(), host.CreateRequest{Provider: "e2b", Manifest: protected()})
	require.NoError(t, err)
	p, err := s.Start(t.Context(), host.ExecRequest{Shell: "echo up; read line; exit 3", LiveStdin: true})
	require.NoError(t, err)
	for ev := range p.Events() {
		if string(ev.Data) == "up\n" {
			v.Inject(fakevendor.Fault{Kind: fakevendor.FaultSilent, Path: "SendInput", Times: 1})
			_, err := io.WriteString(p.Stdin(), "go\n")
			require.NoError(t, err)
		}
		if ev.Exit != nil {
			assert.Equal(t, 3, ev.Exit.ExitCode)
		}
	}
	_, err = io.WriteString(p.Stdin(), "late\n")
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.NoError(t, s.Close(t.Context()))
}

// TestReferencesThroughASealedPlugin is the whole way of a value: from the host's
// source to the exact place in the vendor's request, out again in a command's
// output, and at no time past the plugin's eyes.
func TestReferencesThroughASealedPlugin(t *testing.T) {
	t.Parallel()
	e, v, g, hello := pluginEnv(t)
	for _, info := range e.Providers() {
		if info.Name == "e2b" {
			assert.False(t, info.Trusted, "a plugin is never trusted")
		}
	}
	awkward := tokenCanary
	var canaries []leaktest.Canary
	canaries = append(canaries, leaktest.Known("value", awkward), leaktest.Known("credential", hello.Credentials["apiKey"]), leaktest.Known("request value", requestCanary))
	var visible leaktest.Corpus
	for _, transport := range []host.Transport{host.TransportCreate, host.TransportExec} {
		before := len(v.Requests())
		s, err := e.Create(t.Context(), host.CreateRequest{Provider: "e2b", Manifest: protected(), Transport: transport})
		require.NoError(t, err)
		p, err := s.Start(t.Context(), host.ExecRequest{Shell: `echo "token $TOKEN $USER_KEY"; read go; printf %s "$TOKEN" | base64; exit 3`, LiveStdin: true, Secrets: activation(map[string]string{"USER_KEY": requestCanary})})
		require.NoError(t, err)
		var out string
		var last *host.Result
		for ev := range p.Events() {
			out += string(ev.Data)
			if strings.HasSuffix(out, "\n") && !strings.Contains(out, "base64") && strings.Count(out, "\n") == 1 {
				// The command is waiting for this line: its output came live.
				_, err := io.WriteString(p.Stdin(), "go\n")
				require.NoError(t, err)
			}
			last = ev.Exit
			visible.Add("event", ev.Data)
		}
		require.NotNil(t, last)
		_, err = io.WriteString(p.Stdin(), "late\n")
		assert.ErrorIs(t, err, io.ErrClosedPipe, "input after the command's end")
		assert.Equal(t, host.Exited, last.Status)
		assert.Equal(t, 3, last.ExitCode)
		assert.Contains(t, out, "token [redacted:TOKEN] [redacted:USER_KEY]\n")
		visible.Add("result", fmt.Appendf(nil, "%+v", last))
		state, err := s.State(t.Context())
		require.NoError(t, err)
		doc, err := json.Marshal(state)
		require.NoError(t, err)
		visible.Add("state", doc)
		require.NoError(t, s.Close(t.Context()))

		// Where the value arrived, and where it did not.
		created, started := 0, 0
		for _, r := range v.Requests()[before:] {
			switch {
			case r.Method == http.MethodPost && r.URL == "/sandboxes":
				created++
				got := at(t, r.Body, "envVars", "TOKEN")
				if transport == host.TransportCreate {
					assert.Equal(t, awkward, got, "the exact value at the pointer")
				} else {
					assert.Nil(t, got)
				}
			case strings.HasSuffix(r.URL, "/process.Process/Start"):
				started++
				got := at(t, r.Body, "process", "envs", "TOKEN")
				if transport == host.TransportExec {
					assert.Equal(t, awkward, got, "the exact value at the pointer")
				} else {
					assert.Nil(t, got)
				}
				assert.Equal(t, requestCanary, at(t, r.Body, "process", "envs", "USER_KEY"))
			}
		}
		assert.Equal(t, 1, created)
		assert.Equal(t, 1, started)
	}
	assert.Empty(t, v.All())

	require.NotZero(t, g.calls())
	g.mu.Lock()
	g.corpus.Add("log", append([]byte("log\n"), g.logs.Bytes()...))
	g.mu.Unlock()
	leaktest.Scan(t, canaries, &g.corpus)
	leaktest.Scan(t, canaries, &visible)

	// The same scan over what the vendor got sees every one of them.
	var control leaktest.Corpus
	for _, r := range v.Requests() {
		control.AddValue("request", r)
		control.Add("body", r.Body)
	}
	hits, err := leaktest.Find(canaries, &control)
	require.NoError(t, err)
	found := map[string]bool{}
	for _, h := range hits {
		found[h.Canary] = true
	}
	assert.Len(t, found, len(canaries), "the scan must be known to see: %v", found)
}

// TestReferencesAreRefusedBeforePluginCode: a module that traps on any call,
// _initialize included, shows that refusing takes none of its code.
func TestReferencesAreRefusedBeforePluginCode(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../plugins/examples/e2b/manifest.json")
	require.NoError(t, err)
	trap := []byte("\x00asm\x01\x00\x00\x00" +
		"\x01\x09\x02\x60\x01\x7f\x01\x7f\x60\x00\x00" + // types (i32) -> i32 and () -> ()
		"\x03\x03\x02\x00\x01" + // one function of each
		"\x05\x03\x01\x00\x01" + // a page of memory
		"\x07\x26\x03\x06memory\x02\x00\x0bsbx_v1_call\x00\x00\x0b_initialize\x00\x01" +
		"\x0a\x09\x02\x03\x00\x00\x0b\x03\x00\x00\x0b") // both: unreachable
	for name, tc := range map[string]struct {
		change  func(string) string
		allowed bool
	}{
		"no protected transport": {func(m string) string {
			return strings.Replace(m, `"protectedTransport":{"create":["create"],"exec":["start"]}`, `"protectedTransport":{}`, 1)
		}, false},
		"plugin-driven": {func(m string) string { return strings.Replace(m, `"kind":"sealed"`, `"kind":"plugin-driven"`, 1) }, false},
		"sealed":        {func(m string) string { return m }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manifest := tc.change(string(doc))
			module, err := plugin.Pack(trap, []byte(manifest))
			require.NoError(t, err)
			lock := &plugin.Lock{}
			_, err = lock.Approve(module)
			require.NoError(t, err)
			rt, err := plugin.NewRuntime(t.Context(), plugin.RuntimeConfig{})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, rt.Close()) })
			p, err := plugin.Load(t.Context(), rt, plugin.Config{Module: module, Lock: lock, Credentials: map[string]secret.Value{"apiKey": secret.FromString("k3y-for-the-vendor")}})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, p.Close()) })
			e := newEnv(t, granted)
			require.NoError(t, e.RegisterPlugin("trap", p))
			_, err = e.Create(t.Context(), host.CreateRequest{Provider: "trap", Manifest: protected()})
			require.Error(t, err)
			if tc.allowed {
				// It ran, and trapped: the module does what it is here for.
				assert.Equal(t, provider.Internal, provider.CodeOf(err))
				return
			}
			code(t, provider.Unsupported, err)
			assert.Empty(t, e.source.lookups, "no value was read either")
			_, err = e.Create(t.Context(), host.CreateRequest{Provider: "trap", Manifest: ordinary()})
			assert.Equal(t, provider.Internal, provider.CodeOf(err), "without references it runs, and traps")
		})
	}
}

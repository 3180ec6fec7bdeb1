package examples_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/providertest"
	"github.com/sbxhost/sbxhost/secret"
)

// canary is the value that tests give to sandboxes. It has what an encoder could
// get wrong.
const canary = "c4nary-\"$'é\\n\n-token-value"

// canaryWord is the part of it that survives every encoding.
const canaryWord = "c4nary"

const (
	sessionA = "0123456789abcdef0123456789abcdef"
	sessionB = "fedcba9876543210fedcba9876543210"
	sessionC = "00000000000000000000000000000003"
)

// runtime compiles each module once for all tests, as a host process does.
var runtime *plugin.Runtime

func TestMain(m *testing.M) {
	rt, err := plugin.NewRuntime(context.Background(), plugin.RuntimeConfig{CompileTimeout: 10 * time.Minute})
	if err != nil {
		panic(err)
	}
	runtime = rt
	code := m.Run()
	if err := rt.Close(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// module builds an example with its Makefile and packs it, once for all tests.
func module(name string) func() ([]byte, error) {
	return sync.OnceValues(func() ([]byte, error) {
		dir, err := os.MkdirTemp("", name+"-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		raw := filepath.Join(dir, name+".raw.wasm")
		if msg, err := exec.Command("make", "-s", "-C", name, "OUT="+dir, raw).CombinedOutput(); err != nil {
			return msg, err
		}
		wasm, err := os.ReadFile(raw)
		if err != nil {
			return nil, err
		}
		manifest, err := os.ReadFile(filepath.Join(name, "manifest.json"))
		if err != nil {
			return nil, err
		}
		return plugin.Pack(wasm, manifest)
	})
}

// toolchain skips a test where the compilers that it needs are not installed. A
// complete run may leave nothing out.
func toolchain(t *testing.T, files ...string) {
	t.Helper()
	for _, f := range files {
		if _, err := os.Stat(f); err == nil || os.Getenv("CI") == "true" {
			continue
		}
		if _, err := exec.LookPath(f); err != nil {
			t.Skipf("%s is not here; .ci/setup says which packages have it", f)
		}
	}
}

// needs are the compilers of each example that is not in Go.
var needs = map[string][]string{"memory": {"clang-19"}, "flymachines": {"/usr/lib/rustlib/wasm32-unknown-unknown", "wasm-ld-14"}}

// rig is a vendor's fake, and what a plugin saw of it.
type rig struct {
	module []byte
	vendor *fakevendor.Vendor
	hello  fakevendor.Hello
	mu     sync.Mutex
	seen   bytes.Buffer
	logs   bytes.Buffer
}

// newRig starts a fake, if the example has one.
func newRig(t *testing.T, build func() ([]byte, error), register func(*fakevendor.Vendor, string) fakevendor.Hello) *rig {
	t.Helper()
	wasm, err := build()
	require.NoError(t, err, "building the example: %s", wasm)
	f := &rig{module: wasm}
	if register != nil {
		f.vendor = fakevendor.New(t.TempDir())
		srv := f.vendor.Serve()
		f.hello = register(f.vendor, srv.URL)
		f.hello.Control = srv.URL + "/_fake"
		t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); f.vendor.CloseAll() })
	}
	return f
}

// load approves and loads the module as a host process of its own would: with
// nothing but what is in the configuration.
func (f *rig) load(t providertest.TB) *plugin.Plugin {
	t.Helper()
	lock := &plugin.Lock{}
	_, err := lock.Approve(f.module)
	require.NoError(t, err)
	cfg := plugin.Config{
		Module: f.module, Lock: lock, Settings: f.hello.Settings, Credentials: map[string]secret.Value{}, Origins: map[string]plugin.Origin{},
		Logger: slog.New(slog.NewTextHandler(&locked{f: f}, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Trace: func(_ string, data []byte) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen.Write(data)
			f.seen.WriteByte('\n')
		},
	}
	for k, v := range f.hello.Credentials {
		cfg.Credentials[k] = secret.FromString(v)
	}
	for k, u := range f.hello.Origins {
		cfg.Origins[k] = plugin.Origin{URL: u, AllowPrivate: true}
	}
	p, err := plugin.Load(context.Background(), runtime, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

type locked struct{ f *rig }

func (l *locked) Write(b []byte) (int, error) {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	return l.f.logs.Write(b)
}

// sawNothing checks everything the plugin could see, and its logs, for the
// canary and the vendor's credentials and tokens.
func (f *rig) sawNothing(t *testing.T, alsoNot ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	require.NotZero(t, f.seen.Len(), "nothing was traced, so nothing was proved")
	needles := append([]string{canaryWord}, alsoNot...)
	for _, v := range f.hello.Credentials {
		needles = append(needles, v)
	}
	for _, n := range needles {
		if i := strings.Index(f.seen.String(), n); i >= 0 {
			t.Errorf("the plugin saw %d bytes of a secret at offset %d", len(n), i)
		}
		assert.NotContains(t, f.logs.String(), n)
	}
}

func createRequest(session string, protected map[string]string) provider.CreateRequest {
	q := provider.CreateRequest{
		SessionID: session, Name: provider.NamePrefix + session, Digest: "sha256:d", Root: "/workspace", Network: "default", Start: "idle",
		Labels: map[string]string{
			provider.LabelOwner: "o1", provider.LabelEpoch: "1", provider.LabelSession: session, provider.LabelAttempt: "a1", provider.LabelDigest: "sha256:d", provider.LabelProtected: "0",
		},
		Environment: map[string]string{"PLAIN": "literal"},
	}
	if len(protected) > 0 {
		values := map[string]secret.Value{}
		for k, v := range protected {
			values[k] = secret.FromString(v)
		}
		q.Transport, q.Protected = provider.TransportCreate, secret.NewEnv(values)
		q.ProtectedNames = q.Protected.Names()
		q.Labels[provider.LabelProtected] = "1"
	}
	return q
}

func run(t *testing.T, sb provider.Sandbox, req provider.ExecRequest) (provider.Exit, string, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	req.Stdout, req.Stderr = &stdout, &stderr
	if req.Env == nil {
		req.Env = map[string]string{}
	}
	if req.Stdin == "" {
		req.Stdin = provider.StdinNone
	}
	if req.ID == "" {
		req.ID = "exec-1"
	}
	p, err := sb.Exec(t.Context(), req)
	require.NoError(t, err)
	exit, err := p.Wait(t.Context())
	require.NoError(t, err)
	return exit, stdout.String(), stderr.String()
}

var discard = io.Discard

func refuseOnce(path string) fakevendor.Fault {
	return fakevendor.Fault{Kind: fakevendor.FaultStatus, Path: path, Times: 1, Arg: "401"}
}

func lostOnce(method, path string) fakevendor.Fault {
	return fakevendor.Fault{Kind: fakevendor.FaultLost, Method: method, Path: path, Times: 1}
}

package plugin_test

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

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/internal/hook"
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
	"github.com/sbxhost/sbxhost/plugins/examples/e2b/fake"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// e2bModule is the packed E2B example, built once.
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
	module, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	manifest, err := os.ReadFile("../plugins/examples/e2b/manifest.json")
	if err != nil {
		return nil, err
	}
	return plugin.Pack(module, manifest)
})

type e2bFixture struct {
	p      *plugin.Plugin
	vendor *fakevendor.Vendor
	mu     sync.Mutex
	seen   []byte // everything the guest could see
	logs   bytes.Buffer
}

func newE2B(t *testing.T, hooks ...*hook.Hooks) *e2bFixture {
	t.Helper()
	ctx := t.Context()
	for _, h := range hooks {
		ctx = hook.With(ctx, h)
	}
	module, err := e2bModule()
	require.NoError(t, err, "%s", module)
	f := &e2bFixture{vendor: fakevendor.New(t.TempDir())}
	srv := f.vendor.Serve()
	hello := fake.Register(f.vendor, srv.URL)
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); f.vendor.CloseAll() })
	rt, err := plugin.NewRuntime(t.Context(), plugin.RuntimeConfig{CompileTimeout: 10 * time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rt.Close()) })
	lock := &plugin.Lock{}
	_, err = lock.Approve(module)
	require.NoError(t, err)
	cfg := plugin.Config{
		Module: module, Lock: lock, Settings: hello.Settings, Credentials: map[string]secret.Value{}, Origins: map[string]plugin.Origin{},
		Logger: slog.New(slog.NewTextHandler(&f.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Trace: func(_ string, data []byte) {
			f.mu.Lock()
			f.seen = append(append(f.seen, data...), '\n')
			f.mu.Unlock()
		},
	}
	for k, v := range hello.Credentials {
		cfg.Credentials[k] = secret.FromString(v)
	}
	for k, u := range hello.Origins {
		cfg.Origins[k] = plugin.Origin{URL: u, AllowPrivate: true}
	}
	f.p, err = plugin.Load(ctx, rt, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.p.Close()) })
	t.Cleanup(f.vendor.CloseAll) // a test that failed may leave commands, for which closing waits
	return f
}

func createRequest(session string, protected map[string]secret.Value) provider.CreateRequest {
	q := provider.CreateRequest{
		SessionID: session, Name: provider.NamePrefix + session, Digest: "sha256:d", Root: "/workspace", Network: "default", Start: "idle",
		Labels: map[string]string{
			provider.LabelOwner: "o1", provider.LabelEpoch: "1", provider.LabelSession: session, provider.LabelAttempt: "a1", provider.LabelDigest: "sha256:d", provider.LabelProtected: "1",
		},
		Environment: map[string]string{"PLAIN": "literal"},
	}
	if len(protected) > 0 {
		q.Transport = provider.TransportCreate
		q.Protected = secret.NewEnv(protected)
		q.ProtectedNames = q.Protected.Names()
	}
	return q
}

const sessionA = "0123456789abcdef0123456789abcdef"

func TestSealedPluginEndToEnd(t *testing.T) {
	t.Parallel()
	const canary = "c4nary-\"$'é\n-token-value"
	f := newE2B(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // the first call compiles
	defer cancel()
	sb, err := f.p.Create(ctx, createRequest(sessionA, map[string]secret.Value{"TOKEN": secret.FromString(canary)}))
	require.NoError(t, err)
	all := f.vendor.All()
	require.Len(t, all, 1)
	assert.Equal(t, map[string]string{"PLAIN": "literal", "TOKEN": canary}, all[0].Env, "the fake must receive the exact value at the pointer")

	var stdout, stderr bytes.Buffer
	pr, err := sb.Exec(ctx, provider.ExecRequest{ID: "e1", Shell: `printf %s "$TOKEN"; echo oops >&2; exit 3`, Env: map[string]string{}, Stdout: &stdout, Stderr: &stderr, Stdin: provider.StdinNone})
	require.NoError(t, err)
	exit, err := pr.Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, provider.ExitExited, exit.Kind)
	assert.Equal(t, 3, exit.Code)
	assert.Equal(t, canary, stdout.String())
	assert.Equal(t, "oops\n", stderr.String())

	// live input
	stdout.Reset()
	pr, err = sb.Exec(ctx, provider.ExecRequest{ID: "e2", Args: []string{"cat"}, Env: map[string]string{}, Stdout: &stdout, Stderr: io.Discard, Stdin: provider.StdinLive})
	require.NoError(t, err)
	_, err = io.WriteString(pr.Stdin(), "hello\n")
	require.NoError(t, err)
	require.NoError(t, pr.Stdin().Close())
	exit, err = pr.Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, provider.ExitExited, exit.Kind)
	assert.Equal(t, "hello\n", stdout.String())

	// files
	require.NoError(t, sb.Files().Write(ctx, "a/b.txt", strings.NewReader("content "+canary), provider.WriteOptions{}))
	r, _, err := sb.Files().Open(ctx, "a/b.txt")
	require.NoError(t, err)
	back, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	assert.Equal(t, "content "+canary, string(back))
	_, _, err = sb.Files().Open(ctx, "missing")
	require.ErrorIs(t, err, provider.ErrNotFound)

	// kill
	pr, err = sb.Exec(ctx, provider.ExecRequest{ID: "e3", Args: []string{"sleep", "60"}, Env: map[string]string{}, Stdout: io.Discard, Stderr: io.Discard, Stdin: provider.StdinNone})
	require.NoError(t, err)
	require.NoError(t, pr.Kill(ctx, 100*time.Millisecond))
	exit, err = pr.Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, provider.ExitKilled, exit.Kind)

	list, err := f.p.List(ctx, provider.Query{Owner: "o1"})
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NoError(t, f.p.Destroy(ctx, sb.Ref()))
	require.NoError(t, f.p.Destroy(ctx, sb.Ref()))
	assert.Empty(t, f.vendor.All())

	f.mu.Lock()
	defer f.mu.Unlock()
	require.NotEmpty(t, f.seen)
	assert.NotContains(t, string(f.seen), "c4nary")
	assert.NotContains(t, string(f.seen), "e2b_fake_key")
	assert.NotContains(t, string(f.seen), "envd_token_for")
	assert.NotContains(t, f.logs.String(), "c4nary")
}

// A plugin that is slow to say how a command is called, as any is where the machine
// is busy, loses neither its input nor a signal to it.
func TestNameComesLate(t *testing.T) {
	t.Parallel()
	f := newE2B(t, &hook.Hooks{Import: func(op abi.Op, name string) (int64, bool) {
		if op == abi.OpExec && name == "checkpoint" {
			time.Sleep(2 * time.Second)
		}
		return 0, false
	}})
	t.Cleanup(f.vendor.CloseAll)                                    // commands end before the plugin is closed
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // the first call compiles
	defer cancel()
	sb, err := f.p.Create(ctx, createRequest(sessionA, map[string]secret.Value{"TOKEN": secret.FromString("a-token-value")}))
	require.NoError(t, err)
	var stdout bytes.Buffer
	pr, err := sb.Exec(ctx, provider.ExecRequest{ID: "e1", Args: []string{"cat"}, Env: map[string]string{}, Stdout: &stdout, Stderr: io.Discard, Stdin: provider.StdinLive})
	require.NoError(t, err)
	_, err = io.WriteString(pr.Stdin(), "hello\n")
	require.NoError(t, err)
	require.NoError(t, pr.Stdin().Close())
	_, err = pr.Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, "hello\n", stdout.String())

	pr, err = sb.Exec(ctx, provider.ExecRequest{ID: "e2", Args: []string{"sleep", "60"}, Env: map[string]string{}, Stdout: io.Discard, Stderr: io.Discard, Stdin: provider.StdinNone})
	require.NoError(t, err)
	require.NoError(t, pr.Kill(ctx, 0))
	exit, err := pr.Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, provider.ExitKilled, exit.Kind)
}

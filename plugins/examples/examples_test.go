package examples_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

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
	rt, err := plugin.NewRuntime(context.Background(), plugin.RuntimeConfig{})
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

// unproven are the checks that a vendor makes impossible, with the reasons.
func (f *rig) unproven() map[string]string {
	out := map[string]string{"files/escape-link": "a fake's folder is on this machine, and where links of a vendor's sandbox lead is the vendor's matter"}
	in, err := plugin.Inspect(f.module)
	if err != nil {
		panic(err)
	}
	for op, checks := range needs {
		if slices.Contains(in.Operations, op) {
			continue
		}
		for _, c := range checks {
			out[c] = "it needs the operation " + op + ", which the plugin does not declare"
		}
	}
	maps.Copy(out, f.hello.Unproven)
	delete(out, "volume/output") // what is written here fits one answer
	return out
}

// needs are the checks that use an operation without being about it.
var needs = map[string][]string{
	"write": {"lifecycle/open", "create/replaces", "destroy/others", "exec/not-executable", "files/exact", "files/replace", "files/names", "files/mode",
		"files/failed-write", "files/atomic", "files/list", "files/stat", "files/remove", "files/shared", "files/context", "files/errors", "pause/cycle", "goroutines/none-left", "cancel/others"},
	"read":     {"create/root", "exec/once", "files/escape-dotdot"},
	"stat":     {"lifecycle/gone-sandbox", "files/mode", "files/stat", "files/errors", "files/remove", "cancel/others"},
	"list_dir": {"env/elsewhere", "files/list", "files/failed-write"},
	"mkdir":    {"exec/dir", "files/mkdir", "files/list", "files/remove"},
	"remove":   {"files/remove"},
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

// commands are those of a shell. The fakes have no root file system of their
// own, so the working directory's real path is cut to the sandbox's. (It is put
// together, for fakes replace the root's name in a command line.)
func commands() providertest.Commands {
	c := providertest.ShellCommands("/bin/sh")
	c.Dir = func() providertest.Command {
		return providertest.Command{Args: []string{"/bin/sh", "-c", `w=work; w=${w}space; pwd | sed "s|^.*/$w|/$w|"`}}
	}
	return c
}

var discard = io.Discard

func refuseOnce(path string) fakevendor.Fault {
	return fakevendor.Fault{Kind: fakevendor.FaultStatus, Path: path, Times: 1, Arg: "401"}
}

func lostOnce(path string) fakevendor.Fault {
	return fakevendor.Fault{Kind: fakevendor.FaultLost, Path: path, Times: 1}
}

package scaffold_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
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
	"github.com/sbxhost/sbxhost/plugin/scaffold"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

const (
	canary  = "c4nary-\"$'é\n-token-value"
	session = "0123456789abcdef0123456789abcdef"
)

// offline is an environment without a module proxy: a newcomer may have no
// network.
func offline() []string {
	return append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=mod", "GOSUMDB=off")
}

// tryOut approves and loads the plugin, and uses it against its fake.
func tryOut(t *testing.T, dir string) {
	packed, err := os.ReadFile(filepath.Join(dir, "demo.wasm"))
	require.NoError(t, err)
	hello := startFake(t, filepath.Join(dir, "build/fake"))

	rt, err := plugin.NewRuntime(t.Context(), plugin.RuntimeConfig{CompileTimeout: 10 * time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rt.Close()) })
	lock := &plugin.Lock{}
	_, err = lock.Approve(packed)
	require.NoError(t, err)
	var mu sync.Mutex
	var seen bytes.Buffer
	p, err := plugin.Load(t.Context(), rt, plugin.Config{
		Module: packed, Lock: lock, Settings: hello.Settings,
		Credentials: map[string]secret.Value{"apiKey": secret.FromString(hello.Credentials["apiKey"])},
		Origins:     map[string]plugin.Origin{"api": {URL: hello.Origins["api"], AllowPrivate: true}},
		Trace: func(_ string, data []byte) {
			mu.Lock()
			defer mu.Unlock()
			seen.Write(data)
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })

	ctx := t.Context()
	sb, err := p.Create(ctx, createRequest(session, canary))
	require.NoError(t, err)
	var stdout, stderr bytes.Buffer
	pr, err := sb.Exec(ctx, provider.ExecRequest{
		ID: "e1", Shell: `printf %s "$TOKEN$EXTRA"; printf %s "$TOKEN" >&2; exit 3`, Env: map[string]string{"EXTRA": "x"},
		Secrets: secret.NewEnv(map[string]secret.Value{"OTHER": secret.FromString(canary)}),
		Stdin:   provider.StdinNone, Stdout: &stdout, Stderr: &stderr,
	})
	require.NoError(t, err)
	exit, err := pr.Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, provider.ExitExited, exit.Kind)
	assert.Equal(t, 3, exit.Code)
	assert.Equal(t, canary+"x", stdout.String(), "the value arrives exactly, and past the plugin")
	assert.Equal(t, canary, stderr.String())

	// Three make two pages.
	for i, s := range []string{"1", "2"} {
		_, err := p.Create(ctx, createRequest(strings.Repeat(s, 32), ""))
		require.NoError(t, err, "box %d", i)
	}
	list, err := p.List(ctx, provider.Query{Owner: "o1"})
	require.NoError(t, err)
	assert.Len(t, list, 3)
	for _, r := range list {
		require.NoError(t, p.Destroy(ctx, r.Ref))
	}
	require.NoError(t, p.Destroy(ctx, sb.Ref()), "one that is gone is success")
	list, err = p.List(ctx, provider.Query{Owner: "o1"})
	require.NoError(t, err)
	assert.Empty(t, list)

	mu.Lock()
	defer mu.Unlock()
	require.NotZero(t, seen.Len())
	assert.NotContains(t, seen.String(), "c4nary")
	assert.NotContains(t, seen.String(), hello.Credentials["apiKey"])
}

func createRequest(session, value string) provider.CreateRequest {
	q := provider.CreateRequest{
		SessionID: session, Name: provider.NamePrefix + session, Digest: "sha256:d", Root: "/workspace", Network: "default", Start: "idle",
		Labels: map[string]string{
			provider.LabelOwner: "o1", provider.LabelEpoch: "1", provider.LabelSession: session, provider.LabelAttempt: "a" + session[:4],
			provider.LabelDigest: "sha256:d", provider.LabelProtected: "0",
		},
		Environment: map[string]string{"PLAIN": "literal"},
	}
	if value != "" {
		q.Transport, q.Protected = provider.TransportCreate, secret.NewEnv(map[string]secret.Value{"TOKEN": secret.FromString(value)})
		q.ProtectedNames, q.Labels[provider.LabelProtected] = q.Protected.Names(), "1"
	}
	return q
}

// startFake runs the executable fake until the test ends.
func startFake(t *testing.T, exe string) fakevendor.Hello {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, exe)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		assert.NoError(t, stdin.Close())
		assert.NoError(t, cmd.Wait(), "the fake ends with its input")
		cancel()
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, err)
	var hello fakevendor.Hello
	require.NoError(t, json.Unmarshal(line, &hello))
	return hello
}

func TestScaffoldRefuses(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(full, "precious"), nil, 0o600))
	for name, tc := range map[string]struct{ dir, name, lang, want string }{
		"unknown language":   {filepath.Join(t.TempDir(), "a"), "demo", "cobol", "unknown language"},
		"name with a slash":  {filepath.Join(t.TempDir(), "b"), "a/b", "go", "cannot be a plugin's name"},
		"name with a quote":  {filepath.Join(t.TempDir(), "c"), `a"b`, "go", "cannot be a plugin's name"},
		"name of a built-in": {filepath.Join(t.TempDir(), "d"), "docker", "go", "cannot be a plugin's name"},
		"folder not empty":   {full, "demo", "go", "is not empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := scaffold.Write(tc.dir, tc.name, tc.lang, scaffold.Options{Command: "sbxhost"})
			require.ErrorContains(t, err, tc.want)
			if tc.dir != full {
				_, err := os.Stat(tc.dir)
				assert.True(t, errors.Is(err, fs.ErrNotExist), "a refused name must leave nothing")
			}
		})
	}
	list, err := os.ReadDir(full)
	require.NoError(t, err)
	assert.Len(t, list, 1)
}

// The copy of the kit claims the Go version that the module needs.
func TestKitGoVersion(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(mod), "\ngo ")
	version, _, _ := strings.Cut(rest, "\n")
	dir := filepath.Join(t.TempDir(), "demo")
	_, err = scaffold.Write(dir, "demo", "go", scaffold.Options{Source: "../.."})
	require.NoError(t, err)
	repo, err := filepath.Abs("../..")
	require.NoError(t, err)
	makefile, err := os.ReadFile(filepath.Join(dir, "Makefile"))
	require.NoError(t, err)
	assert.Contains(t, string(makefile), "SBXHOST ?= go run -C "+repo+" ./cmd/sbxhost\n")
	for _, name := range []string{"go.mod", "kit/go.mod"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Contains(t, string(got), "\ngo "+version+"\n")
	}
}

// What runs under go test is what go run makes: a binary that will be gone.
func TestCommandFindsTheSources(t *testing.T) {
	repo, err := filepath.Abs("../..")
	require.NoError(t, err)
	assert.Equal(t, "go run -C "+repo+" ./cmd/sbxhost", scaffold.Command())
	t.Setenv("SBXHOST_SRC", "/somewhere/a b")
	assert.Equal(t, "go run -C '/somewhere/a b' ./cmd/sbxhost", scaffold.Command())
}

// What a newcomer does first: new, make, make test, with nothing changed. Between
// the two the plugin is used by hand.
func TestNewMakeMakeTest(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the whole conformance kit for each language")
	}
	sbxhost := filepath.Join(t.TempDir(), "sbxhost")
	msg, err := exec.Command("go", "build", "-o", sbxhost, "../../cmd/sbxhost").CombinedOutput()
	require.NoError(t, err, "%s", msg)
	for _, lang := range scaffold.Languages() {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			for _, file := range map[string][]string{"c": {"/usr/bin/clang-19"}, "rust": {"/usr/lib/rustlib/wasm32-unknown-unknown", "/usr/bin/wasm-ld-14"}}[lang] {
				if _, err := os.Stat(file); err != nil && os.Getenv("CI") != "true" {
					t.Skipf("%s is not here; .ci/setup says which packages have it", file)
				}
			}
			parent := t.TempDir()
			dir := filepath.Join(parent, "demo")
			begin := exec.Command(sbxhost, "plugin", "new", "demo", "--lang", lang)
			begin.Dir = parent
			msg, err := begin.CombinedOutput()
			require.NoError(t, err, "%s", msg)
			for _, name := range []string{"Makefile", "README.md", "manifest.json", "fake/main.go", "go.mod"} {
				assert.FileExists(t, filepath.Join(dir, name))
			}
			run := func(targets ...string) string {
				cmd := exec.Command("make", append([]string{"-C", dir}, targets...)...)
				cmd.Env = offline()
				msg, err := cmd.CombinedOutput()
				require.NoError(t, err, "make %v: %s", targets, msg)
				return string(msg)
			}
			run()
			run("build/fake")
			tryOut(t, dir)
			assert.Contains(t, run("test"), " 0 failed", "the kit must have run")
		})
	}
}

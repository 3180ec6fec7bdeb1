package readme_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/daytona"
	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/ledger/bolt"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
	"github.com/sbxhost/sbxhost/secret"
)

// openHost returns a host that remembers in the file path what it made. Close the
// host before the ledger.
func openHost(path string) (*host.Host, ledger.Ledger, error) {
	led, err := bolt.Open(path, bolt.Options{}) // its folder must be there
	if err != nil {
		return nil, nil, err
	}
	h, err := host.New(host.Options{
		ID:     "myapp-1", // of this host alone, and the same at every start
		Ledger: led,
		Grants: grants.Set{ProcessEnvironmentBindings: map[string]string{"API_TOKEN": "MYAPP_TOKEN"}},
		Logger: slog.Default(),
	})
	if err != nil {
		return nil, nil, errors.Join(err, led.Close())
	}
	return h, led, nil
}

// addDocker needs an engine; the error says which was asked, what is wrong with it
// and what to do.
func addDocker(ctx context.Context, h *host.Host) error {
	p, err := docker.New(ctx, docker.Options{Image: "python:3.13-slim"}) // where a manifest names none
	if err != nil {
		return err
	}
	return h.RegisterTrusted("docker", p)
}

// addDaytona needs an API key. New sends no request, so it is Check that says
// whether service and key can be used.
func addDaytona(ctx context.Context, h *host.Host, apiURL, key string) error {
	p, err := daytona.New(daytona.Options{APIURL: apiURL, APIKey: secret.FromString(key)}) // "" is the hosted service
	if err != nil {
		return err
	}
	account, err := p.Check(ctx)
	if err != nil {
		return err
	}
	if len(account.Missing) > 0 {
		return fmt.Errorf("the key may not %v", account.Missing)
	}
	return h.RegisterTrusted("daytona", p)
}

// takeUp goes on with what an earlier process left. manifests holds the current
// manifest of each session that has references.
func takeUp(ctx context.Context, h *host.Host, manifests map[string]manifest.Manifest) error {
	report, err := h.Reconcile(ctx)
	if err != nil {
		return err
	}
	for _, p := range report.Providers {
		if p.Code != "" {
			slog.Warn("cannot be listed now, nothing of it was touched", "provider", p.Provider, "code", p.Code)
		}
		for _, id := range slices.Concat(p.Waiting, p.Stopped) {
			state, err := h.StoredState(ctx, id)
			if err != nil {
				return err
			}
			req := host.ResumeRequest{State: state, Provider: p.Provider}
			if m, ok := manifests[id]; ok {
				req.Manifest = &m
			}
			_, err = h.Resume(ctx, req) // h.Session(id) finds it from now on
			var left *host.RetirementError
			switch {
			case errors.As(err, &left): // it works; what it replaced is tried again
				slog.Warn("the previous sandbox is still there", "session", id, "code", left.Code)
			case err != nil: // it goes on waiting; h.Discard(ctx, id) gives it up
				slog.Error("cannot be resumed", "session", id, "error", err)
			}
		}
	}
	return nil
}

// leave ends the process without its sandboxes: Close alone would destroy them.
func leave(ctx context.Context, h *host.Host, led ledger.Ledger) error {
	var errs []error
	for _, s := range h.Sessions() {
		_, err := s.Detach(ctx)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, h.Close(ctx), led.Close())...)
}

var function = regexp.MustCompile(`(?s)<!-- example: (\w+) -->\n` + "```go\n(.*?)```")

// The Go functions in docs/embedding.md are the ones above, word for word.
func TestEmbeddingExamplesAreTheTestedOnes(t *testing.T) {
	t.Parallel()
	const file = "embedding_test.go"
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, source, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	functions := map[string]string{}
	for _, d := range parsed.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Doc != nil {
			functions[fn.Name.Name] = string(source[fset.Position(fn.Doc.Pos()).Offset:fset.Position(fn.End()).Offset]) + "\n"
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "embedding.md"))
	require.NoError(t, err)
	var names []string
	for _, m := range function.FindAllStringSubmatch(string(page), -1) {
		names = append(names, m[1])
		assert.Equal(t, functions[m[1]], m[2], m[1])
	}
	assert.Equal(t, []string{"openHost", "addDocker", "addDaytona", "takeUp", "leave"}, names)
}

// What docs/embedding.md says happens when a process ends, or dies, and another one
// starts with the same ledger.
func TestEmbeddingOverRestarts(t *testing.T) {
	const canary = "s3cr3t-canary-4f7a"
	t.Setenv("MYAPP_TOKEN", canary)
	ctx, path, p := t.Context(), filepath.Join(t.TempDir(), "ledger.db"), fake.New(fake.Options{})
	start := func() (*host.Host, ledger.Ledger) {
		h, led, err := openHost(path)
		require.NoError(t, err)
		require.NoError(t, h.RegisterTrusted("docker", p))
		return h, led
	}
	read := func(h *host.Host, id string) {
		s, ok := h.Session(id)
		require.True(t, ok, "the session was not taken up")
		r, err := s.Exec(ctx, host.ExecRequest{Shell: `echo "$API_TOKEN ${#API_TOKEN}"`})
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("[redacted:API_TOKEN] %d\n", len(canary)), string(r.Stdout))
		data, err := s.ReadFile(ctx, "kept")
		require.NoError(t, err)
		assert.Equal(t, "kept", string(data.Data))
	}
	m := manifest.New()
	m.Environment = map[string]manifest.Entry{"API_TOKEN": {Reference: &manifest.Reference{Name: "MYAPP_TOKEN"}}}

	h, led := start()
	s, err := h.Create(ctx, host.CreateRequest{Provider: "docker", Manifest: m})
	require.NoError(t, err)
	require.NoError(t, s.WriteFile(ctx, "kept", []byte("kept"), host.WriteOptions{}))
	id, manifests := s.ID(), map[string]manifest.Manifest{s.ID(): m}
	read(h, id)
	require.NoError(t, leave(ctx, h, led))

	// It ended in order, and the next one dies without a word.
	h, led = start()
	require.NoError(t, takeUp(ctx, h, manifests))
	read(h, id)
	require.NoError(t, led.Close()) // what a dead process does; nobody closes the host

	h, led = start()
	require.NoError(t, takeUp(ctx, h, manifests))
	read(h, id)
	require.NoError(t, leave(ctx, h, led))

	// With a host that grants nothing any more it waits, until it is given up.
	led, err = bolt.Open(path, bolt.Options{MustExist: true})
	require.NoError(t, err)
	h, err = host.New(host.Options{ID: "myapp-1", Ledger: led})
	require.NoError(t, err)
	require.NoError(t, h.RegisterTrusted("docker", p))
	require.NoError(t, takeUp(ctx, h, manifests))
	_, ok := h.Session(id)
	assert.False(t, ok, "resumed without a grant")
	records, err := led.List(ctx, "myapp-1")
	require.NoError(t, err)
	assert.Len(t, records, 1)
	require.NoError(t, h.Discard(ctx, id))
	records, err = led.List(ctx, "myapp-1")
	require.NoError(t, err)
	assert.Empty(t, records)
	require.NoError(t, leave(ctx, h, led))
}

func TestEmbeddingProviders(t *testing.T) {
	h, led, err := openHost(filepath.Join(t.TempDir(), "ledger.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, leave(context.Background(), h, led)) })

	t.Setenv("DOCKER_HOST", "unix://"+filepath.ToSlash(filepath.Join(t.TempDir(), "none.sock")))
	err = addDocker(t.Context(), h)
	require.ErrorIs(t, err, provider.ErrUnavailable)
	assert.ErrorContains(t, err, "none.sock")

	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/api/api-keys/current", r.URL.Path)
		permissions := map[string]string{
			"Bearer dtn_full": `["write:sandboxes","delete:sandboxes"]`,
			"Bearer dtn_less": `["write:sandboxes"]`,
		}[r.Header.Get("Authorization")]
		_, _ = w.Write([]byte(`{"permissions":` + permissions + `}`))
	}))
	defer service.Close()
	assert.ErrorContains(t, addDaytona(t.Context(), h, service.URL+"/api", "dtn_less"), "delete:sandboxes")
	require.NoError(t, addDaytona(t.Context(), h, service.URL+"/api", "dtn_full"))
	assert.Len(t, h.Providers(), 1)
}

package local_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/stretchr/testify/require"
)

// session returns a fresh session id.
func session() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// request returns a complete create request.
func request(id string, mods ...func(*provider.CreateRequest)) provider.CreateRequest {
	r := provider.CreateRequest{
		SessionID: id, Name: provider.NamePrefix + id, Digest: "sha256:test", Root: "/workspace",
		Network: "none", Start: "idle",
		Labels: map[string]string{
			provider.LabelOwner: "owner", provider.LabelEpoch: "1", provider.LabelSession: id,
			provider.LabelAttempt: session(), provider.LabelDigest: "sha256:test", provider.LabelProtected: "0",
		},
	}
	for _, m := range mods {
		m(&r)
	}
	return r
}

func newProvider(t *testing.T, opts local.Options) *local.Provider {
	t.Helper()
	if opts.StateDir == "" {
		opts.StateDir = t.TempDir()
	}
	p, err := local.New(opts)
	require.NoError(t, err)
	return p
}

// create makes a sandbox that is destroyed with the test.
func create(t *testing.T, p *local.Provider, mods ...func(*provider.CreateRequest)) provider.Sandbox {
	t.Helper()
	sb, err := p.Create(t.Context(), request(session(), mods...))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Destroy(context.Background(), sb.Ref())) })
	return sb
}

type output struct {
	exit           provider.Exit
	stdout, stderr string
}

// start starts a shell script.
func start(t *testing.T, sb provider.Sandbox, script string, mods ...func(*provider.ExecRequest)) (provider.Process, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	var out, errs bytes.Buffer
	req := provider.ExecRequest{ID: "e" + session(), Shell: script, Stdout: &out, Stderr: &errs}
	for _, m := range mods {
		m(&req)
	}
	p, err := sb.Exec(t.Context(), req)
	require.NoError(t, err)
	return p, &out, &errs
}

// run runs a shell script to its end.
func run(t *testing.T, sb provider.Sandbox, script string, mods ...func(*provider.ExecRequest)) output {
	t.Helper()
	p, out, errs := start(t, sb, script, mods...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	exit, err := p.Wait(ctx)
	require.NoError(t, err)
	return output{exit, out.String(), errs.String()}
}

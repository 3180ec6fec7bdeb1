package local_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
	"github.com/stretchr/testify/require"
)

func TestFirst(t *testing.T) {
	t0 := time.Now()
	p, err := local.New(local.Options{StateDir: t.TempDir()})
	require.NoError(t, err)
	t.Log("new", time.Since(t0), p.Level(), p.Reasons())
	ctx := context.Background()
	t0 = time.Now()
	s, err := p.Create(ctx, provider.CreateRequest{SessionID: "0123", Digest: "d", Root: "/workspace", Network: "none"})
	require.NoError(t, err)
	t.Log("create", time.Since(t0))
	run := func(sh string) {
		var out, errb bytes.Buffer
		t0 = time.Now()
		proc, err := s.Exec(ctx, provider.ExecRequest{Shell: sh, Stdout: &out, Stderr: &errb,
			Protected: secret.NewEnv(map[string]secret.Value{"TOK": secret.FromString("canary-1")})})
		require.NoError(t, err)
		e, err := proc.Wait(ctx)
		t.Log(time.Since(t0), e, err, out.String(), errb.String())
	}
	run(`echo token $TOK`)
	run(`id; ls -la / /workspace /dev /etc; env; cat /proc/1/environ; cat /proc/self/status | grep -E "Cap|NoNew|Secc"; mount; ip a; cat /proc/self/limits`)
	for range 5 {
		run("true")
	}
	t0 = time.Now()
	require.NoError(t, p.Destroy(ctx, s.Ref()))
	t.Log("destroy", time.Since(t0))
}

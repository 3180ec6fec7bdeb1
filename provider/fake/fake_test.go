package fake_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
)

func newRequest() provider.CreateRequest {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	id := hex.EncodeToString(b)
	return provider.CreateRequest{
		SessionID: id, Name: provider.NamePrefix + id, Digest: "sha256:1", Root: "/workspace",
		Network: "none", Start: "idle",
		Labels: map[string]string{provider.LabelOwner: "owner", provider.LabelEpoch: "1", provider.LabelSession: id,
			provider.LabelAttempt: "a", provider.LabelDigest: "sha256:1", provider.LabelProtected: "0"},
	}
}

type result struct {
	provider.Exit
	stdout, stderr string
}

func create(t *testing.T, p *fake.Provider, req provider.CreateRequest) provider.Sandbox {
	t.Helper()
	sb, err := p.Create(t.Context(), req)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Destroy(context.Background(), sb.Ref())) })
	return sb
}

func exec(t *testing.T, sb provider.Sandbox, req provider.ExecRequest) result {
	t.Helper()
	var out, errs bytes.Buffer
	if req.ID == "" {
		req.ID = "exec"
	}
	req.Stdout, req.Stderr = &out, &errs
	proc, err := sb.Exec(t.Context(), req)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exit, err := proc.Wait(ctx)
	require.NoError(t, err)
	return result{exit, out.String(), errs.String()}
}

func TestShell(t *testing.T) {
	t.Parallel()
	p := fake.New(fake.Options{})
	sb := create(t, p, newRequest())
	for _, tt := range []struct {
		name, script   string
		code           int
		stdout, stderr string
	}{
		{"sequence", "echo a; echo b\necho c", 0, "a\nb\nc\n", ""},
		{"and", "true && echo yes; false && echo no; echo $?", 0, "yes\n1\n", ""},
		{"or", "false || echo yes; true || echo no", 0, "yes\n", ""},
		{"variables", `echo "v=$V ${V} ${#V}" $V '$V'`, 0, "v=a  b a  b 4 a  b $V\n", ""},
		{"quotes", `echo "a \"b\" \n" 'c"d' e\ f ""`, 0, "a \"b\" \\n c\"d e f \n", ""},
		{"exit", "exit 7; echo never", 7, "", ""},
		{"last code", "false", 1, "", ""},
		{"not found", "nothing", 127, "", "fake: nothing: not found\n"},
		{"redirect", "echo one > f; echo two >> f; cat f", 0, "one\ntwo\n", ""},
		{"comment", "echo a # b; echo c\necho d", 0, "a\nd\n", ""},
		{"pipe", "echo a | cat", 2, "", "fake shell: this needs a real shell; see fake.Shell for what is understood\n"},
		{"background", "sleep 1 & echo", 2, "", "fake shell: this needs a real shell; see fake.Shell for what is understood\n"},
		{"substitution", "echo $(true)", 2, "", "fake shell: this needs a real shell; see fake.Shell for what is understood\n"},
		{"assignment", "A=1 env", 2, "", "fake shell: this needs a real shell; see fake.Shell for what is understood\n"},
		{"glob", "echo *", 2, "", "fake shell: this needs a real shell; see fake.Shell for what is understood\n"},
		{"unclosed", "echo 'a", 2, "", "fake shell: syntax error\n"},
		{"dangling", "echo a &&", 2, "", "fake shell: syntax error\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := exec(t, sb, provider.ExecRequest{Shell: tt.script, Env: map[string]string{"V": "a  b"}})
			require.Equal(t, provider.ExitExited, r.Kind)
			require.Equal(t, tt.code, r.Code)
			require.Equal(t, tt.stdout, r.stdout)
			require.Equal(t, tt.stderr, r.stderr)
		})
	}
}

package fake_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
	"github.com/sbxhost/sbxhost/secret"
)

const canary = "canary-0f3e9a"

func canaryEnv(names ...string) secret.Env {
	m := map[string]secret.Value{}
	for _, n := range names {
		m[n] = secret.FromString(canary)
	}
	return secret.NewEnv(m)
}

func protect(r provider.CreateRequest, t provider.Transport) provider.CreateRequest {
	r.Transport, r.ProtectedNames = t, []string{"TOKEN"}
	r.Labels[provider.LabelProtected] = "1"
	if t == provider.TransportCreate {
		r.Protected = canaryEnv("TOKEN")
	}
	return r
}

// With the exec transport values reach the process and no record; with create
// they are in the record's environment.
func TestRecordAndDelivery(t *testing.T) {
	t.Parallel()
	value := secret.FromString(canary)
	for _, tt := range []struct {
		transport provider.Transport
		places    []string
	}{
		{provider.TransportExec, nil},
		{provider.TransportCreate, []string{"environment.TOKEN"}},
	} {
		t.Run(string(tt.transport), func(t *testing.T) {
			t.Parallel()
			p := fake.New(fake.Options{})
			sb := create(t, p, protect(newRequest(), tt.transport))
			req := provider.ExecRequest{ID: "e1", Args: []string{"true"}, Secrets: canaryEnv("KEY"), Env: map[string]string{"LEVEL": "debug"}}
			if tt.transport == provider.TransportExec {
				req.Protected = canaryEnv("TOKEN")
			}
			exec(t, sb, req)
			exec(t, sb, provider.ExecRequest{ID: "e2", Args: []string{"true"}})

			got := p.Execs()
			require.Len(t, got, 2)
			require.Equal(t, "e1", got[0].Exec)
			require.True(t, got[0].Got("TOKEN", value))
			require.True(t, got[0].Got("KEY", value))
			require.False(t, got[0].Got("LEVEL", value))
			require.Equal(t, []string{"KEY"}, got[0].Secrets)
			require.False(t, got[1].Has("KEY"))
			require.Equal(t, tt.transport == provider.TransportCreate, got[1].Has("TOKEN"))

			rec, ok := p.Record(sb.Ref())
			require.True(t, ok)
			require.Equal(t, tt.places, rec.Find(value))
			require.Equal(t, []string{"exec 1 env.LEVEL"}, rec.Find(secret.FromString("debug")))
			require.Nil(t, rec.Find(secret.Value{}))
			require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
			_, ok = p.Record(sb.Ref())
			require.True(t, ok, "a record stays after Destroy")
		})
	}
}

// Nothing that a test may print contains a value.
func TestPrintsNoValue(t *testing.T) {
	t.Parallel()
	p := fake.New(fake.Options{Commands: map[string]fake.Command{
		"show": func(_ context.Context, proc *fake.Proc) int {
			_, _ = fmt.Fprintf(proc.Stdout(), "%+v %#v %v", proc, proc, proc.Env())
			return 0
		},
	}})
	req := protect(newRequest(), provider.TransportCreate)
	sb := create(t, p, req)
	r := exec(t, sb, provider.ExecRequest{Args: []string{"show"}, Secrets: canaryEnv("KEY")})
	rec, _ := p.Record(sb.Ref())
	listed, err := p.List(t.Context(), provider.Query{})
	require.NoError(t, err)
	_, conflict := p.Create(t.Context(), func() provider.CreateRequest {
		r := req
		r.Digest = "sha256:2"
		return r
	}())
	require.Error(t, conflict)
	for _, v := range []any{r.stdout, p, p.Calls(), p.Execs(), p.Execs()[0], rec, &rec, sb, sb.Ref(), listed, conflict, p.Running(sb.Ref())} {
		for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
			require.NotContains(t, fmt.Sprintf(format, v), canary)
		}
		data, _ := json.Marshal(v)
		require.NotContains(t, string(data), canary)
	}
}

func TestCallsAndHooks(t *testing.T) {
	t.Parallel()
	p := fake.New(fake.Options{})
	sb := create(t, p, newRequest())
	exec(t, sb, provider.ExecRequest{ID: "e", Args: []string{"true"}, Env: map[string]string{"B": "1", "A": "2"}, Secrets: canaryEnv("KEY")})
	calls := p.Calls()
	require.Equal(t, fake.Call{Method: fake.MethodExec, Ref: sb.Ref().ID, Session: calls[0].Session, Exec: "e", Env: []string{"A", "B"},
		Secrets: []string{"KEY"}, Done: true}, calls[1])
	p.Forget()
	require.Empty(t, p.Calls())

	p.SetHooks(fake.Fail(fake.MethodList, provider.Unavailable))
	_, err := p.List(t.Context(), provider.Query{})
	require.ErrorIs(t, err, provider.ErrUnavailable)
	require.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
	require.Equal(t, 1, p.Count(fake.MethodList))
	require.Equal(t, provider.Unavailable, p.Calls()[0].Code)

	// The answer of a create is lost: the sandbox is there.
	p.SetHooks(fake.Drop(fake.MethodCreate, provider.Lost))
	req := newRequest()
	_, err = p.Create(t.Context(), req)
	require.ErrorIs(t, err, provider.ErrLost)
	require.Equal(t, provider.AppliedUnknown, provider.AppliedOf(err))
	p.SetHooks(fake.Hooks{})
	found, err := p.List(t.Context(), provider.Query{Session: req.SessionID})
	require.NoError(t, err)
	require.Len(t, found, 1)

	p.SetHooks(fake.Hang(fake.MethodDestroy))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Destroy(ctx, found[0].Ref), provider.ErrDeadlineExceeded)
	p.SetHooks(fake.Hooks{})
	require.NoError(t, p.Destroy(t.Context(), found[0].Ref))
}

func TestCommandsOfTheEmbedder(t *testing.T) {
	t.Parallel()
	p := fake.New(fake.Options{
		Commands: map[string]fake.Command{"true": func(_ context.Context, proc *fake.Proc) int {
			v, _ := proc.Getenv("TOKEN")
			require.NoError(t, proc.WriteFile("out/length", []byte(fmt.Sprint(len(v)))))
			return 42
		}},
		Shell: func(_ context.Context, proc *fake.Proc) int {
			_, _ = io.WriteString(proc.Stdout(), "my shell: "+proc.Args[2])
			return 0
		},
	})
	sb := create(t, p, newRequest())
	require.Equal(t, 42, exec(t, sb, provider.ExecRequest{Args: []string{"true"}, Secrets: canaryEnv("TOKEN")}).Code)
	require.Equal(t, "my shell: a | b", exec(t, sb, provider.ExecRequest{Shell: "a | b"}).stdout)
	r, _, err := sb.Files().Open(t.Context(), "out/length")
	require.NoError(t, err)
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "13", string(data))
}

func TestPlantAndStates(t *testing.T) {
	t.Parallel()
	p := fake.New(fake.Options{})
	ref := p.Plant("somebody-elses", map[string]string{"team": "x"})
	listed, err := p.List(t.Context(), provider.Query{})
	require.NoError(t, err)
	require.Empty(t, listed, "a sandbox without an owner label is not ours")
	_, err = p.Open(t.Context(), ref)
	require.NoError(t, err)
	sb := create(t, p, newRequest())
	require.True(t, p.SetState(sb.Ref(), provider.StateStopped))
	listed, err = p.List(t.Context(), provider.Query{})
	require.NoError(t, err)
	require.Equal(t, provider.StateStopped, listed[0].State)
	_, err = sb.Exec(t.Context(), provider.ExecRequest{ID: "e", Args: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard})
	require.ErrorIs(t, err, provider.ErrFailedPrecondition)
	require.True(t, p.SetState(sb.Ref(), provider.StateGone))
	_, err = p.Open(t.Context(), sb.Ref())
	require.ErrorIs(t, err, provider.ErrNotFound)
	require.False(t, p.SetState(provider.Ref{ID: "none"}, provider.StateGone))
}

// A paused sandbox makes no progress.
func TestPauseStopsOutput(t *testing.T) {
	t.Parallel()
	p := fake.New(fake.Options{})
	sb := create(t, p, newRequest())
	var out bytes.Buffer
	proc, err := sb.Exec(t.Context(), provider.ExecRequest{ID: "e", Args: []string{"cat"}, Stdin: provider.StdinLive, Stdout: &out, Stderr: io.Discard})
	require.NoError(t, err)
	require.NoError(t, sb.(provider.Pauser).Pause(t.Context()))
	_, err = io.WriteString(proc.Stdin(), "hello")
	require.NoError(t, err)
	require.NoError(t, proc.Stdin().Close())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = proc.Wait(ctx)
	require.ErrorIs(t, err, provider.ErrDeadlineExceeded)
	require.NoError(t, sb.(provider.Pauser).Resume(t.Context()))
	exit, err := proc.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 0, exit.Code)
	require.Equal(t, "hello", out.String())
}

func TestSharedWorkspace(t *testing.T) {
	t.Parallel()
	p := fake.New(fake.Options{Describe: func(d *provider.Description) { d.Features.SharedWorkspace = true }})
	req := newRequest()
	first := create(t, p, req)
	exec(t, first, provider.ExecRequest{Shell: "echo kept > f"})
	ref := first.Ref()
	req.Replaces, req.Name = &ref, provider.ReplacementName(req.SessionID, "attempt2")
	req.Labels[provider.LabelAttempt] = "attempt2"
	second := create(t, p, req)
	require.NotEqual(t, ref.ID, second.Ref().ID)
	require.NoError(t, p.Destroy(t.Context(), ref))
	require.Equal(t, "kept\n", exec(t, second, provider.ExecRequest{Shell: "cat f"}).stdout)
}

func TestTTLByClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	p := fake.New(fake.Options{Clock: func() time.Time { return now }})
	req := newRequest()
	req.TTL = time.Minute
	sb := create(t, p, req)
	_, err := sb.Status(t.Context())
	require.NoError(t, err)
	now = now.Add(time.Minute)
	_, err = sb.Status(t.Context())
	require.ErrorIs(t, err, provider.ErrNotFound)
}

func TestOptionalInterfaces(t *testing.T) {
	t.Parallel()
	for mask := range 16 {
		p := fake.New(fake.Options{NoPorts: mask&1 != 0, NoPauser: mask&2 != 0, NoArchiver: mask&4 != 0, NoLogs: mask&8 != 0})
		sb := create(t, p, newRequest())
		_, ports := sb.(provider.Ports)
		_, pauser := sb.(provider.Pauser)
		_, archiver := sb.(provider.Archiver)
		_, logs := sb.(provider.Logs)
		require.Equal(t, []bool{mask&1 == 0, mask&2 == 0, mask&4 == 0, mask&8 == 0}, []bool{ports, pauser, archiver, logs}, "mask %d", mask)
	}
}

func TestInvalidDescriptionPanics(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { fake.New(fake.Options{Describe: func(d *provider.Description) { d.Name = "" }}) })
}

package fault_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
	"github.com/sbxhost/sbxhost/provider/providertest/fault"
)

func request(n int) provider.CreateRequest {
	id := fmt.Sprintf("%032x", n)
	return provider.CreateRequest{SessionID: id, Name: provider.NamePrefix + id, Digest: "sha256:00", Root: "/workspace",
		Network: "none", Start: "idle", Ports: []int{80},
		Labels: map[string]string{provider.LabelOwner: "owner", provider.LabelEpoch: "e", provider.LabelSession: id,
			provider.LabelAttempt: id, provider.LabelDigest: "sha256:00", provider.LabelProtected: "0"}}
}

func create(t *testing.T, p provider.Provider, n int) provider.Sandbox {
	t.Helper()
	sb, err := p.Create(t.Context(), request(n))
	require.NoError(t, err)
	return sb
}

func start(t *testing.T, sb provider.Sandbox, req provider.ExecRequest) provider.Process {
	t.Helper()
	req.ID, req.Stdout, req.Stderr = fmt.Sprint("e", time.Now().UnixNano()), io.Discard, io.Discard
	proc, err := sb.Exec(t.Context(), req)
	require.NoError(t, err)
	return proc
}

// calls makes one call of each method. prepare runs without faults and returns
// it; the sandbox has a file "f".
var calls = map[fault.Method]func(t *testing.T, p provider.Provider, sb provider.Sandbox) func(context.Context) error{
	fault.Create: func(_ *testing.T, p provider.Provider, _ provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error { _, err := p.Create(ctx, request(2)); return err }
	},
	fault.Open: func(_ *testing.T, p provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error { _, err := p.Open(ctx, sb.Ref()); return err }
	},
	fault.List: func(_ *testing.T, p provider.Provider, _ provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error { _, err := p.List(ctx, provider.Query{}); return err }
	},
	fault.Destroy: func(_ *testing.T, p provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error { return p.Destroy(ctx, sb.Ref()) }
	},
	fault.Exec: func(_ *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := sb.Exec(ctx, provider.ExecRequest{ID: "e", Args: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard})
			return err
		}
	},
	fault.Status: func(_ *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error { _, err := sb.Status(ctx); return err }
	},
	fault.Stdin: func(t *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		proc := start(t, sb, provider.ExecRequest{Args: []string{"cat"}, Stdin: provider.StdinLive})
		return func(context.Context) error {
			_, err := proc.Stdin().Write([]byte("x"))
			return err
		}
	},
	fault.Signal: withProcess(func(ctx context.Context, proc provider.Process) error { return proc.Signal(ctx, "CONT") }),
	fault.Kill:   withProcess(func(ctx context.Context, proc provider.Process) error { return proc.Kill(ctx, 0) }),
	fault.Resize: withProcess(func(ctx context.Context, proc provider.Process) error {
		return proc.(provider.Resizer).Resize(ctx, 80, 25)
	}),
	fault.Wait: func(t *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		proc := start(t, sb, provider.ExecRequest{Args: []string{"true"}})
		return func(ctx context.Context) error { _, err := proc.Wait(ctx); return err }
	},
	fault.FileOpen: func(_ *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error {
			r, _, err := sb.Files().Open(ctx, "f")
			if err == nil {
				err = r.Close()
			}
			return err
		}
	},
	fault.FileRead: func(t *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error {
			r, _, err := sb.Files().Open(ctx, "f")
			require.NoError(t, err)
			defer func() { _ = r.Close() }()
			_, err = r.Read(make([]byte, 1))
			return err
		}
	},
	fault.FileWrite: func(_ *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error {
			return sb.Files().Write(ctx, "g", strings.NewReader("content"), provider.WriteOptions{})
		}
	},
	fault.FileList: func(_ *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error { _, err := sb.Files().List(ctx, ""); return err }
	},
	fault.FileStat: func(_ *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error { _, err := sb.Files().Stat(ctx, "f"); return err }
	},
	fault.FileRemove: func(_ *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error { return sb.Files().Remove(ctx, "f", false) }
	},
	fault.FileMkdir: func(_ *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error { return sb.Files().Mkdir(ctx, "d", 0o755) }
	},
	fault.Port: func(_ *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error { _, err := sb.(provider.Ports).Port(ctx, 80); return err }
	},
	fault.Pause: func(_ *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return sb.(provider.Pauser).Pause
	},
	fault.Resume: func(_ *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return sb.(provider.Pauser).Resume
	},
	fault.Export: func(_ *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error { return sb.(provider.Archiver).Export(ctx, io.Discard) }
	},
	fault.Import: func(t *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		var tar bytes.Buffer
		require.NoError(t, sb.(provider.Archiver).Export(t.Context(), &tar))
		return func(ctx context.Context) error { return sb.(provider.Archiver).Import(ctx, &tar) }
	},
	fault.Logs: func(_ *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		return func(ctx context.Context) error { return sb.(provider.Logs).Logs(ctx, io.Discard) }
	},
}

func withProcess(f func(context.Context, provider.Process) error) func(*testing.T, provider.Provider, provider.Sandbox) func(context.Context) error {
	return func(t *testing.T, _ provider.Provider, sb provider.Sandbox) func(context.Context) error {
		proc := start(t, sb, provider.ExecRequest{Args: []string{"sleep", "86400"}, TTY: true, Cols: 1, Rows: 1})
		return func(ctx context.Context) error { return f(ctx, proc) }
	}
}

// Each method, broken in each way: what the caller gets, and what the provider
// behind was asked.
func TestKinds(t *testing.T) {
	t.Parallel()
	want := map[fault.Kind]struct {
		code    provider.Code // "" for success
		applied provider.Applied
		asked   int
	}{
		fault.Fail:      {provider.ResourceExhausted, provider.AppliedNo, 0},
		fault.Lose:      {provider.ResourceExhausted, provider.AppliedUnknown, 0},
		fault.Drop:      {provider.ResourceExhausted, provider.AppliedUnknown, 1},
		fault.Hang:      {provider.DeadlineExceeded, provider.AppliedUnknown, 0},
		fault.Stall:     {provider.DeadlineExceeded, provider.AppliedUnknown, 1},
		fault.Delay:     {"", "", 1},
		fault.Late:      {"", "", 1},
		fault.Linger:    {"", "", 1},
		fault.Duplicate: {"", "", 2},
		fault.Stale:     {"", "", 1},
	}
	require.Len(t, want, len(fault.Kinds()))
	require.Len(t, calls, len(fault.Methods()))
	for _, m := range fault.Methods() {
		for _, k := range fault.Kinds() {
			t.Run(string(m)+"/"+string(k), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					p := fault.New(fake.New(fake.Options{}))
					sb := create(t, p, 1)
					require.NoError(t, sb.Files().Write(t.Context(), "f", strings.NewReader("abc"), provider.WriteOptions{}))
					call := calls[m](t, p, sb)
					asked := 0
					p.Watch(func(got fault.Method, at fault.Point) {
						if got == m && at == fault.Before {
							asked++
						}
					})
					p.Set(fault.Rule{Method: m, Kind: k, Code: provider.ResourceExhausted})
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if m == fault.Stdin && (k == fault.Hang || k == fault.Stall) {
						go func() { <-ctx.Done(); p.Clear() }() // a write has no context of its own
					}
					err := call(ctx)
					w := want[k]
					if k == fault.Stale && m == fault.List {
						w.asked = 0
					}
					if m == fault.Stdin && w.code == provider.DeadlineExceeded {
						w.code = provider.Unavailable
					}
					if m == fault.FileRemove && k == fault.Duplicate {
						w.code, w.applied = provider.NotFound, provider.AppliedNo // the second one finds nothing
					}
					assert.Equal(t, w.code, provider.CodeOf(err), "%v", err)
					if w.code != "" {
						assert.Equal(t, w.applied, provider.AppliedOf(err))
					}
					assert.Equal(t, w.asked, asked, "how often the provider was asked")
					p.Clear()
					require.NoError(t, p.Destroy(context.Background(), sb.Ref()))
				})
			})
		}
	}
}

func TestCounting(t *testing.T) {
	t.Parallel()
	p := fault.New(fake.New(fake.Options{}), fault.Rule{Method: fault.Open, Kind: fault.Fail, From: 2, Times: 2})
	sb := create(t, p, 1)
	var got []bool
	for range 5 {
		_, err := p.Open(t.Context(), sb.Ref())
		got = append(got, err == nil)
	}
	assert.Equal(t, []bool{true, false, false, true, true}, got)
	assert.Equal(t, 5, p.Count(fault.Open))
	assert.Equal(t, 2, p.Hits())
	assert.Equal(t, fault.Call{Method: fault.Create}, p.Calls()[0])
	assert.Equal(t, fault.Call{Method: fault.Open, Kind: fault.Fail}, p.Calls()[2])

	p.Set(fault.Rule{Kind: fault.Fail, Times: -1}) // everything, from now on
	assert.Zero(t, p.Count(fault.Open))
	for range 2 {
		_, err := p.List(t.Context(), provider.Query{})
		require.ErrorIs(t, err, provider.ErrUnavailable)
		_, err = sb.Status(t.Context())
		require.ErrorIs(t, err, provider.ErrUnavailable, "a sandbox made before is broken too")
	}
	assert.Equal(t, "fake", p.Describe().Name)
	p.Clear()
	_, err := sb.Status(t.Context())
	require.NoError(t, err)
}

func TestStaleList(t *testing.T) {
	t.Parallel()
	p := fault.New(fake.New(fake.Options{}))
	q := provider.Query{Owner: "owner"}
	list := func(q provider.Query) int {
		got, err := p.List(t.Context(), q)
		require.NoError(t, err)
		return len(got)
	}
	a := create(t, p, 1)
	require.Equal(t, 1, list(q))
	p.Set(fault.Rule{Method: fault.List, Kind: fault.Stale, Times: -1})
	create(t, p, 2)
	require.NoError(t, p.Destroy(t.Context(), a.Ref()))
	create(t, p, 3)
	assert.Equal(t, 1, list(q), "what was listed last")
	assert.Zero(t, list(provider.Query{Session: request(2).SessionID}), "never asked before")
	p.Clear()
	assert.Equal(t, 2, list(q))
}

// A late create is done although nobody waits any more.
func TestLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := fake.New(fake.Options{})
		p := fault.New(inner, fault.Rule{Method: fault.Create, Kind: fault.Late, Delay: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan struct{})
		go func() {
			_, err := p.Create(ctx, request(1))
			assert.NoError(t, err)
			close(answered)
		}()
		cancel()
		time.Sleep(59 * time.Minute)
		assert.Zero(t, inner.Count(fake.MethodCreate))
		<-answered
		list, err := inner.List(context.Background(), provider.Query{})
		require.NoError(t, err)
		assert.Len(t, list, 1)
	})
}

func TestDuplicatesCarryTheirContent(t *testing.T) {
	t.Parallel()
	p := fault.New(fake.New(fake.Options{}))
	sb := create(t, p, 1)
	p.Set(fault.Rule{Kind: fault.Duplicate, Times: -1})
	require.NoError(t, sb.Files().Write(t.Context(), "f", strings.NewReader("content"), provider.WriteOptions{}))
	r, _, err := sb.Files().Open(t.Context(), "f")
	require.NoError(t, err)
	p.Clear()
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "content", string(data))
	require.NoError(t, r.Close())

	p.Set(fault.Rule{Kind: fault.Duplicate, Times: -1})
	var tar bytes.Buffer
	require.NoError(t, sb.(provider.Archiver).Export(t.Context(), &tar))
	other := create(t, p, 2)
	require.NoError(t, other.(provider.Archiver).Import(t.Context(), &tar))
	// The first delivery has the output, and the process is that of the second.
	out, in := io.Pipe()
	proc, err := other.Exec(t.Context(), provider.ExecRequest{ID: "e", Args: []string{"cat", "f"}, Stdout: in, Stderr: io.Discard})
	require.NoError(t, err)
	content := make([]byte, len("content"))
	_, err = io.ReadFull(out, content)
	require.NoError(t, err)
	assert.Equal(t, "content", string(content))
	_, err = proc.Wait(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Destroy(t.Context(), other.Ref()))
}

// A wrapped sandbox has the optional interfaces of the one behind, and no other.
func TestOptionalInterfaces(t *testing.T) {
	t.Parallel()
	for bits := range 16 {
		without := func(b int) bool { return bits&b == 0 }
		p := fault.New(fake.New(fake.Options{NoPorts: without(1), NoPauser: without(2), NoArchiver: without(4), NoLogs: without(8)}))
		made := create(t, p, 1)
		opened, err := p.Open(t.Context(), made.Ref())
		require.NoError(t, err)
		for _, sb := range []provider.Sandbox{made, opened} {
			_, ports := sb.(provider.Ports)
			_, pauser := sb.(provider.Pauser)
			_, archiver := sb.(provider.Archiver)
			_, logs := sb.(provider.Logs)
			assert.Equal(t, []bool{!without(1), !without(2), !without(4), !without(8)}, []bool{ports, pauser, archiver, logs}, "%04b", bits)
		}
	}
	p := fault.New(fake.New(fake.Options{}))
	plain := start(t, create(t, p, 1), provider.ExecRequest{Args: []string{"true"}})
	assert.Nil(t, plain.Stdin())
}

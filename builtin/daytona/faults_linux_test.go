package daytona_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/daytona"
	"github.com/sbxhost/sbxhost/internal/daytonatest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

func protected(tr provider.Transport, env map[string]string) func(*provider.CreateRequest) {
	return func(r *provider.CreateRequest) {
		r.Transport = tr
		for k := range env {
			r.ProtectedNames = append(r.ProtectedNames, k)
		}
		if tr == provider.TransportCreate {
			r.Protected = secrets(env)
		}
	}
}

func secrets(env map[string]string) secret.Env {
	m := map[string]secret.Value{}
	for k, v := range env {
		m[k] = secret.FromString(v)
	}
	return secret.NewEnv(m)
}

// buffer is a writer that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func script(text string, mods ...func(*provider.ExecRequest)) provider.ExecRequest {
	r := provider.ExecRequest{ID: hexID(8), Shell: text, Stdout: io.Discard, Stderr: io.Discard}
	for _, m := range mods {
		m(&r)
	}
	return r
}

// started starts a command with this timeout, or a longer one: on a busy machine a
// short one is over before there is anything to end.
func started(t *testing.T, sb provider.Sandbox, req provider.ExecRequest, timeout time.Duration) (p provider.Process, began time.Time) {
	t.Helper()
	for ; ; timeout *= 4 {
		req.Timeout, began = timeout, time.Now()
		p, err := sb.Exec(t.Context(), req)
		if provider.CodeOf(err) == provider.DeadlineExceeded && provider.AppliedOf(err) == provider.AppliedNo && timeout < 10*time.Second {
			continue
		}
		require.NoError(t, err)
		return p, began
	}
}

// run runs a script to its end.
func run(t *testing.T, sb provider.Sandbox, req provider.ExecRequest) (provider.Exit, string) {
	t.Helper()
	out := &buffer{}
	req.Stdout = out
	p, err := sb.Exec(t.Context(), req)
	require.NoError(t, err)
	exit, err := p.Wait(t.Context())
	require.NoError(t, err)
	return exit, out.String()
}

func create(t *testing.T, p provider.Provider, mods ...func(*provider.CreateRequest)) provider.Sandbox {
	t.Helper()
	sb, err := p.Create(t.Context(), request(mods...))
	require.NoError(t, err)
	return sb
}

// quick makes calls that get no answer end soon.
func quick(o *daytona.Options) {
	o.CallTimeout, o.CreateTimeout, o.DestroyTimeout = time.Second, 6*time.Second, 3*time.Second
}

// alive lists what the service has of a session, past its API.
func alive(srv *daytonatest.Server, session string) []string {
	var out []string
	for _, sb := range srv.Sandboxes() {
		if strings.Contains(sb.Name, session) && !sb.Destroyed && sb.State != "destroying" {
			out = append(out, sb.ID+" "+sb.State)
		}
	}
	return out
}

func typed(t *testing.T, err error, what string) {
	t.Helper()
	var pe *provider.Error
	require.ErrorAs(t, err, &pe, what)
	assert.NotEmpty(t, pe.Code, what)
	assert.Contains(t, []provider.Applied{provider.AppliedNo, provider.AppliedYes, provider.AppliedUnknown}, pe.Applied, what)
}

// ops are the operations that a fault of any answer is tried on in each phase.
var (
	createOps  = []daytonatest.Op{daytonatest.OpCreate}
	execOps    = []daytonatest.Op{daytonatest.OpExecute}
	destroyOps = []daytonatest.Op{daytonatest.OpDelete}
	fileOps    = []daytonatest.Op{daytonatest.OpExecute, daytonatest.OpFileBulkUp, daytonatest.OpFileDownload}
)

// on limits a fault to a phase's operations, and says whether it makes sense
// there.
func on(k daytonatest.KindInfo, ops []daytonatest.Op) ([]daytonatest.Op, bool) {
	if k.On == nil {
		return ops, true
	}
	var both []daytonatest.Op
	for _, o := range ops {
		if slices.Contains(k.On, o) {
			both = append(both, o)
		}
	}
	return both, len(both) > 0
}

// faultOf is a fault with what makes it bite, and end.
func faultOf(kind daytonatest.Kind) daytonatest.Fault {
	f := daytonatest.Fault{Kind: kind}
	switch kind {
	case daytonatest.Slow:
		f.Delay = 100 * time.Millisecond
	case daytonatest.Redirect, daytonatest.ForeignToolboxURL:
		f.Location = "http://127.0.0.1:9/stolen"
	case daytonatest.StaleList, daytonatest.FlappingList, daytonatest.InvisibleCreate:
		f.Delay = 500 * time.Millisecond
	case daytonatest.SlowStart:
		f.Delay = 7 * time.Second // longer than a create may take
	case daytonatest.RateLimited, daytonatest.Conflict:
		f.Times = 2
	}
	return f
}

// TestFaults is the fault matrix: whatever the service does, no sandbox is
// orphaned or doubled, no command runs twice or is called a success without its
// exit code, no file is half there, and every error is typed.
func TestFaults(t *testing.T) {
	t.Parallel()
	// Not as parallel subtests: they would wait for a processor each, and most of
	// this is waiting.
	var wg sync.WaitGroup
	defer wg.Wait()
	turn := make(chan struct{}, 10) // sandboxes are real processes
	for _, k := range daytonatest.Kinds() {
		fault := faultOf(k.Kind)
		for phase, ops := range map[string][]daytonatest.Op{"create": append(createOps, daytonatest.OpList), "exec": execOps, "destroy": append(destroyOps, daytonatest.OpList), "files": fileOps} {
			at, ok := on(k, ops)
			if !ok {
				continue
			}
			fault := fault
			fault.On = at
			wg.Go(func() {
				turn <- struct{}{}
				defer func() { <-turn }()
				t.Run(fmt.Sprintf("%s/%s", k.Kind, phase), func(t *testing.T) {
					srv := daytonatest.New(t, daytonatest.Options{})
					p := newProvider(t, srv, quick)
					switch phase {
					case "create":
						faultyCreate(t, srv, p, fault)
					case "exec":
						faultyExec(t, srv, p, fault)
					case "destroy":
						faultyDestroy(t, srv, p, fault)
					case "files":
						faultyFiles(t, srv, p, fault)
					}
				})
			})
		}
	}
}

// prepared makes a sandbox with time enough, and opens it with the provider under
// test.
func prepared(t *testing.T, srv *daytonatest.Server, p *daytona.Provider) provider.Sandbox {
	t.Helper()
	ref := create(t, newProvider(t, srv)).Ref()
	var sb provider.Sandbox
	require.Eventually(t, func() bool {
		var err error
		sb, err = p.Open(t.Context(), ref)
		return err == nil
	}, 30*time.Second, time.Millisecond)
	return sb
}

func faultyCreate(t *testing.T, srv *daytonatest.Server, p *daytona.Provider, f daytonatest.Fault) {
	inj := srv.Inject(f)
	var noted []provider.Ref
	req := request(func(r *provider.CreateRequest) {
		r.Checkpoint = func(ref provider.Ref) error { noted = append(noted, ref); return nil }
	})
	if f.Kind == daytonatest.BuildFails {
		req.Image = "debian:12"
	}
	sb, err := p.Create(t.Context(), req)
	if slices.Contains(f.On, daytonatest.OpCreate) {
		// On a busy machine what comes before may run out of its time already.
		for end := time.Now().Add(30 * time.Second); err != nil && srv.Count(daytonatest.OpCreate) == 0 && time.Now().Before(end); {
			sb, err = p.Create(t.Context(), req)
		}
		assert.Eventually(t, func() bool { return inj.Hits() > 0 }, 30*time.Second, time.Millisecond, "the fault did not happen")
	}
	there := alive(srv, req.SessionID)
	assert.LessOrEqual(t, len(there), 1, "doubled: %v", there)
	if err != nil {
		typed(t, err, "create")
		if provider.AppliedOf(err) == provider.AppliedNo {
			assert.Empty(t, there, "%v says that nothing is left", err)
		}
	} else {
		exit, _ := run(t, sb, script("exit 3"))
		assert.Equal(t, 3, exit.Code)
	}
	srv.Heal()
	// What is left is found and destroyed, by the list or the checkpoint.
	require.Eventually(t, func() bool {
		found, err := p.List(t.Context(), provider.Query{Owner: "owner-a", Session: req.SessionID})
		if err != nil {
			return false
		}
		for _, r := range found {
			noted = append(noted, r.Ref)
		}
		for _, ref := range noted {
			_ = p.Destroy(t.Context(), ref)
		}
		return len(alive(srv, req.SessionID)) == 0
	}, 30*time.Second, 50*time.Millisecond, "orphaned: %v", alive(srv, req.SessionID))
	assert.LessOrEqual(t, srv.Count(daytonatest.OpCreate), 3, "create was repeated blindly")
}

func faultyExec(t *testing.T, srv *daytonatest.Server, p *daytona.Provider, f daytonatest.Fault) {
	sb := prepared(t, srv, p)
	id := sb.Ref().ID
	inj := srv.Inject(f)
	out := &buffer{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	proc, err := sb.Exec(ctx, script(`[ "$LITERAL" = x ] || echo without its environment; echo once >> count; echo output; exit 0`, func(r *provider.ExecRequest) {
		r.Timeout, r.Stdout, r.Env = 2*time.Second, out, map[string]string{"LITERAL": "x"}
	}))
	var exit provider.Exit
	if err == nil {
		exit, err = proc.Wait(ctx)
		require.NoError(t, err, "Wait must end by itself")
	} else {
		typed(t, err, "exec")
		exit.Kind = "error"
	}
	assert.Less(t, time.Since(began), 40*time.Second)
	assert.NotZero(t, inj.Hits(), "the fault did not happen")
	srv.Heal()
	// A request that is still on its way has time to arrive.
	time.Sleep(300 * time.Millisecond)
	content, _ := srv.ReadFile(id, "/workspace/count")
	n := strings.Count(string(content), "once\n")
	assert.LessOrEqual(t, n, 1, "the command ran twice")
	for _, r := range srv.Requests() {
		assert.True(t, r.Op != daytonatest.OpExecute || r.Chunked, "a command whose request can be sent again by a proxy")
	}
	switch {
	case exit.Kind == provider.ExitExited:
		assert.Equal(t, 0, exit.Code)
		assert.Equal(t, 1, n, "success without having run")
		assert.Equal(t, "output\n", out.String(), "success without its output")
	case err != nil && provider.AppliedOf(err) == provider.AppliedNo:
		assert.Equal(t, 0, n, "%v says that nothing was started", err)
	}
	require.Eventually(t, func() bool { return p.Destroy(t.Context(), sb.Ref()) == nil }, 30*time.Second, time.Millisecond)
}

func faultyDestroy(t *testing.T, srv *daytonatest.Server, p *daytona.Provider, f daytonatest.Fault) {
	sb, other := prepared(t, srv, p), prepared(t, srv, p)
	srv.Inject(f)
	err := p.Destroy(t.Context(), sb.Ref())
	info, there := srv.Sandbox(sb.Ref().ID)
	if err == nil {
		assert.True(t, !there || info.Destroyed, "Destroy says gone; the service says %s", info.State)
	} else {
		typed(t, err, "destroy")
	}
	srv.Heal()
	if f.Kind != daytonatest.StuckDestroying { // for ever
		require.Eventually(t, func() bool { return p.Destroy(t.Context(), sb.Ref()) == nil }, 30*time.Second, time.Millisecond)
		info, there = srv.Sandbox(sb.Ref().ID)
		assert.True(t, !there || info.Destroyed)
	} else {
		require.Error(t, err, "a sandbox that stays in destroying is not gone")
	}
	exit, _ := run(t, other, script("exit 4"))
	assert.Equal(t, 4, exit.Code, "the other one was touched")
	require.Eventually(t, func() bool { return p.Destroy(t.Context(), other.Ref()) == nil }, 30*time.Second, time.Millisecond)
}

func faultyFiles(t *testing.T, srv *daytonatest.Server, p *daytona.Provider, f daytonatest.Fault) {
	sb := prepared(t, srv, p)
	old, fresh := strings.Repeat("old ", 50_000), strings.Repeat("fresh ", 50_000)
	require.NoError(t, sb.Files().Write(t.Context(), "f", strings.NewReader(old), provider.WriteOptions{}))
	srv.Inject(f)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	err := sb.Files().Write(ctx, "f", strings.NewReader(fresh), provider.WriteOptions{})
	if err != nil {
		typed(t, err, "write")
	}
	content, readErr := srv.ReadFile(sb.Ref().ID, "/workspace/f")
	require.NoError(t, readErr)
	assert.Contains(t, []string{old, fresh}, string(content), "a file half written")
	if err == nil {
		assert.Equal(t, fresh, string(content), "success without having written")
	}
	got, err := readFile(ctx, sb, "f")
	if err != nil {
		typed(t, err, "read")
	} else {
		// One that was given up may have come to its end since.
		later, readErr := srv.ReadFile(sb.Ref().ID, "/workspace/f")
		require.NoError(t, readErr)
		assert.Contains(t, []int{len(content), len(later)}, len(got), "a short read without an error")
	}
	srv.Heal()
	require.Eventually(t, func() bool { return p.Destroy(t.Context(), sb.Ref()) == nil }, 30*time.Second, time.Millisecond)
}

func readFile(ctx context.Context, sb provider.Sandbox, name string) ([]byte, error) {
	r, _, err := sb.Files().Open(ctx, name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

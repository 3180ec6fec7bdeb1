package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/ledger/bolt"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
)

// resources counts what a process can leak.
func resources(t *testing.T) (goroutines, files int) {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		names = nil // only Linux tells
	}
	return runtime.NumGoroutine(), len(names)
}

// A hundred goroutines create, execute, resume one and the same session, close
// and reconcile, on a ledger on disk. In the end there is one sandbox per live
// session, one replacement was made at a time, and nothing is left over. It is not
// parallel to other tests: it counts what the process has.
func TestConcurrency(t *testing.T) {
	ctx := context.Background()
	// The runtime's own poller comes with the first file and stays.
	first, err := bolt.Open(filepath.Join(t.TempDir(), "first.db"), bolt.Options{})
	require.NoError(t, err)
	require.NoError(t, first.Close())
	goroutines, files := resources(t)
	led, err := bolt.Open(filepath.Join(t.TempDir(), "ledger.db"), bolt.Options{})
	require.NoError(t, err)
	h, err := host.New(host.Options{ID: "owner", Ledger: led, Grants: tokenGrant(), Source: newSource(map[string]string{"HOST_TOKEN": tokenCanary})})
	require.NoError(t, err)
	p := fake.New(fake.Options{})
	building := &oneReplacement{Provider: p, now: map[string]int{}}
	require.NoError(t, h.RegisterTrusted("fake", building))
	m := protected()
	shared, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m})
	require.NoError(t, err)
	state, err := shared.State(ctx)
	require.NoError(t, err)

	var state1 atomic.Pointer[[]byte]
	state1.Store(&state)
	var resumed, conflicts atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range 100 {
		wg.Go(func() {
			<-start
			switch i % 4 {
			case 0: // resume the same session, from whatever state is the latest known
				s, err := h.Resume(ctx, host.ResumeRequest{State: *state1.Load(), Provider: "fake", Manifest: &m})
				if err != nil {
					// Somebody was faster, and the state is not the latest any more.
					assert.Equal(t, provider.Conflict, provider.CodeOf(err), "%v", err)
					conflicts.Add(1)
					return
				}
				resumed.Add(1)
				if next, err := s.State(ctx); err == nil {
					state1.Store(&next)
				}
				_, _ = s.Exec(ctx, host.ExecRequest{Args: []string{"true"}}) // it may be replaced meanwhile
			case 1, 2:
				s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m, Key: fmt.Sprint(i % 9)})
				if !assert.NoError(t, err) {
					return
				}
				_, err = s.Exec(ctx, host.ExecRequest{Args: []string{"true"}})
				if err != nil {
					assert.Contains(t, []provider.Code{provider.FailedPrecondition, provider.Canceled}, provider.CodeOf(err), "%v", err)
				}
				if i%3 == 0 {
					assert.NoError(t, s.Close(ctx))
				}
			case 3:
				r, err := h.Reconcile(ctx)
				if assert.NoError(t, err) {
					assert.Empty(t, r.Providers[0].Unproven)
					assert.Empty(t, r.Providers[0].Destroyed, "reconcile took something from somebody")
				}
			}
		})
	}
	close(start)
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		buf := make([]byte, 1<<20)
		t.Fatalf("a deadlock:\n%s", buf[:runtime.Stack(buf, true)])
	}
	t.Log(resumed.Load(), "resumed,", conflicts.Load(), "came too late,", building.made.Load(), "replacements")
	assert.GreaterOrEqual(t, resumed.Load(), building.made.Load())
	assert.Zero(t, building.twice.Load(), "two replacements of one session at a time")

	list, err := p.List(ctx, provider.Query{Owner: "owner"})
	require.NoError(t, err)
	live, there := map[string]int{}, map[string]int{}
	for _, s := range h.Sessions() {
		live[s.ID()]++
	}
	for _, x := range list {
		there[x.Labels[provider.LabelSession]]++
	}
	assert.Equal(t, live, there)
	require.NoError(t, h.Close(ctx))
	records, err := led.List(ctx, "owner")
	require.NoError(t, err)
	assert.Empty(t, records)
	require.NoError(t, led.Close())
	var g, f int
	left := func() bool { // not on a goroutine of its own, which would count
		g, f = resources(t)
		return g <= goroutines && f <= files
	}
	for until := time.Now().Add(30 * time.Second); !left() && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	// Fewer are no fault: one that an earlier test started may have been ending then.
	assert.LessOrEqual(t, g, goroutines, "goroutines are left")
	assert.LessOrEqual(t, f, files, "files are left")
}

// oneReplacement notices replacements of one session that are made at once.
type oneReplacement struct {
	provider.Provider
	mu          sync.Mutex
	now         map[string]int
	made, twice atomic.Int64
}

func (p *oneReplacement) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	if req.Replaces != nil {
		p.made.Add(1)
		p.mu.Lock()
		if p.now[req.SessionID]++; p.now[req.SessionID] > 1 {
			p.twice.Add(1)
		}
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			p.now[req.SessionID]--
			p.mu.Unlock()
		}()
	}
	return p.Provider.Create(ctx, req)
}

// Limits hold whatever happens at the same time.
func TestQuotasAreReservedAtomically(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	e := newEnv(t, func(s *setup) { s.host.Limits = host.Limits{Live: 7, Pending: 5, Execs: 3} })
	var live, most atomic.Int64
	e.fake.SetHooks(fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
		if c.Method == fake.MethodCreate {
			n := live.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
		}
		return nil
	}, After: func(_ context.Context, c fake.Call, _ error) error {
		if c.Method == fake.MethodCreate {
			live.Add(-1)
		}
		return nil
	}})
	var wg sync.WaitGroup
	var made atomic.Int64
	for range 100 {
		wg.Go(func() {
			_, err := e.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
			if err == nil {
				made.Add(1)
				return
			}
			assert.ErrorIs(t, err, provider.ErrResourceExhausted)
			assert.Regexp(t, `Limits\.(Live|Pending)`, err.Error())
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, most.Load(), int64(5))
	assert.LessOrEqual(t, made.Load(), int64(7))
	for made.Load() < 7 {
		e.create(t, ordinary())
		made.Add(1)
	}
	_, err := e.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	code(t, provider.ResourceExhausted, err)
	assert.Len(t, e.Sessions(), 7)

	s := e.Sessions()[0]
	var running []*host.Process
	for range 3 {
		proc, err := s.Start(ctx, host.ExecRequest{Args: []string{"sleep", "600"}})
		require.NoError(t, err)
		running = append(running, proc)
	}
	_, err = s.Exec(ctx, host.ExecRequest{Args: []string{"true"}})
	code(t, provider.ResourceExhausted, err)
	require.ErrorContains(t, err, "Limits.Execs")
	require.NoError(t, running[0].Kill(ctx))
	_, err = running[0].Wait(ctx)
	require.NoError(t, err)
	run(t, s, "true")
	require.NoError(t, s.Close(ctx))
	e.create(t, ordinary()) // the slot is free again
}

// many makes n sessions, each with a reference.
func many(t testing.TB, h *host.Host, n int) {
	t.Helper()
	m := protected()
	for range n {
		if _, err := h.Create(context.Background(), host.CreateRequest{Provider: "fake", Manifest: m}); err != nil {
			t.Fatal(err)
		}
	}
}

// large returns a host on the in-memory provider, which takes no memory of its
// own for what it was asked.
func large(t testing.TB, led ledger.Ledger) (*host.Host, *fake.Provider) {
	t.Helper()
	h, err := host.New(host.Options{ID: "owner", Ledger: led, Grants: tokenGrant(), Source: newSource(map[string]string{"HOST_TOKEN": tokenCanary})})
	require.NoError(t, err)
	p := fake.New(fake.Options{})
	require.NoError(t, h.RegisterTrusted("fake", p))
	return h, p
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// perSession measures the heap that n sessions take, with that of the in-memory
// provider, and its ledger.
func perSession(t testing.TB, n int) float64 {
	t.Helper()
	before := heap()
	h, p := large(t, ledger.Memory())
	many(t, h, n)
	p.Forget()
	used := float64(heap()-before) / float64(n)
	if err := h.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(p)
	return used
}

// A session takes at most 16 KiB of memory, provider and ledger included.
func TestMemoryPerSession(t *testing.T) {
	used := perSession(t, 2000)
	t.Logf("%.1f KiB per session", used/1024)
	assert.Less(t, used, float64(16<<10))
}

// Reconcile looks at ten thousand sessions in a moment, whether they are live,
// wait, or are to be removed.
func TestReconcileOfMany(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 1000
	}
	ctx := context.Background()
	led := ledger.Memory()
	h, p := large(t, led)
	m := protected()
	m.Lifetime.TTL = 24 * time.Hour
	for range n {
		_, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m})
		require.NoError(t, err)
	}
	timed := func(what string, h *host.Host) host.ProviderReport {
		began := time.Now()
		r, err := h.Reconcile(ctx)
		took := time.Since(began)
		require.NoError(t, err)
		t.Log(what, took)
		assert.Less(t, took, 20*time.Second, what) // a moment is two seconds; machines are busy
		return r.Providers[0]
	}
	assert.Len(t, timed("live", h).Live, n)
	next, err := host.New(host.Options{ID: "owner", Ledger: led})
	require.NoError(t, err)
	require.NoError(t, next.RegisterTrusted("fake", p))
	assert.Len(t, timed("waiting", next).Waiting, n)
	assert.Len(t, timed("waiting", next).Waiting, n)
	over, err := host.New(host.Options{ID: "owner", Ledger: led, Clock: func() time.Time { return time.Now().Add(25 * time.Hour) }})
	require.NoError(t, err)
	require.NoError(t, over.RegisterTrusted("fake", p))
	assert.Len(t, timed("over", over).Destroyed, n)
	require.NoError(t, over.Close(ctx))
	require.NoError(t, next.Close(ctx))
	require.NoError(t, h.Close(ctx))
}

// The figures that are promised: what a session takes, what reconcile takes, and
// what host and durable ledger add to a create.
func BenchmarkSessions(b *testing.B) {
	ctx := context.Background()
	b.Run("memory of 10000", func(b *testing.B) {
		for b.Loop() {
			b.ReportMetric(perSession(b, 10_000), "bytes/session")
		}
	})
	b.Run("reconcile 10000", func(b *testing.B) {
		h, p := large(b, ledger.Memory())
		many(b, h, 10_000)
		for b.Loop() {
			p.Forget()
			if _, err := h.Reconcile(ctx); err != nil {
				b.Fatal(err)
			}
		}
		if err := h.Close(ctx); err != nil {
			b.Fatal(err)
		}
	})
	for _, kind := range []string{"memory", "bolt"} {
		b.Run("create on "+kind, func(b *testing.B) {
			led := ledger.Memory()
			if kind == "bolt" {
				var err error
				if led, err = bolt.Open(filepath.Join(b.TempDir(), "ledger.db"), bolt.Options{}); err != nil {
					b.Fatal(err)
				}
			}
			h, p := large(b, led)
			m := protected()
			sessions := make([]*host.Session, 0, 1<<12)
			for b.Loop() {
				s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m})
				if err != nil {
					b.Fatal(err)
				}
				if sessions = append(sessions, s); len(sessions) == cap(sessions) {
					b.StopTimer()
					closeAll(b, sessions)
					sessions = sessions[:0]
					p.Forget()
					b.StartTimer()
				}
			}
			closeAll(b, sessions)
			if err := led.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func closeAll(b *testing.B, sessions []*host.Session) {
	b.Helper()
	for _, s := range sessions {
		if err := s.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

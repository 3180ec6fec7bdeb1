package host_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
	"github.com/sbxhost/sbxhost/provider/providertest/fault"
)

// detached makes a session in an earlier life, and lets go of it.
func (l *lives) detached(t *testing.T, m manifest.Manifest) (s *host.Session, state []byte) {
	t.Helper()
	h := l.next(t)
	s, err := h.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: m})
	require.NoError(t, err)
	state, err = s.Detach(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Close(t.Context()))
	return s, state
}

// A session whose replacement fails while a reconcile is at work on the session
// keeps its sandbox.
func TestReconcileDuringAResumeThatFails(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLives(fake.Options{})
	m := protected()
	s, state := l.detached(t, m)
	resume := func(h *host.Host) error {
		_, err := h.Resume(ctx, host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
		return err
	}
	// An earlier replacement, which failed and could not be removed.
	l.faults.Set(fault.Rule{Method: fault.Create, Kind: fault.Drop, Code: provider.Internal}, fault.Rule{Method: fault.Destroy, Kind: fault.Fail})
	require.Error(t, resume(l.next(t)))
	l.faults.Clear()
	require.Len(t, l.ids(t), 2)

	h := l.next(t)
	asked, goOn, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	fail := sync.OnceFunc(func() { close(goOn); <-over })
	l.fake.SetHooks(fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
		switch c.Method {
		case fake.MethodCreate:
			close(asked)
			<-goOn
			return &provider.Error{Code: provider.Unavailable, Op: "create", Applied: provider.AppliedNo}
		case fake.MethodDestroy:
			fail() // in the midst of the reconcile
		}
		return nil
	}})
	go func() {
		defer close(over)
		assert.Error(t, resume(h))
	}()
	<-asked
	r := reconcile(t, h)
	assert.Equal(t, []string{s.ID()}, r.Live, "it is being resumed")
	fail()
	l.fake.SetHooks(fake.Hooks{})
	assert.Contains(t, l.ids(t), s.Info().Sandbox, "it was given up for a replacement that failed")

	r = reconcile(t, h)
	assert.Equal(t, []string{s.ID()}, r.Waiting)
	assert.Equal(t, []string{s.Info().Sandbox}, l.ids(t))
	require.NoError(t, resume(h))
	require.NoError(t, h.Close(ctx))
}

// sessionHook calls a function once a session's records were read.
type sessionHook struct {
	ledger.Ledger
	mu sync.Mutex
	f  func()
}

func (h *sessionHook) once(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.f = f
}

func (h *sessionHook) Session(ctx context.Context, session string) ([]ledger.Record, error) {
	out, err := h.Ledger.Session(ctx, session)
	h.mu.Lock()
	f := h.f
	h.f = nil
	h.mu.Unlock()
	if f != nil {
		f()
	}
	return out, err
}

// What a reconcile read of a session before it had it to itself is out of date:
// a replacement that was complete since then is not taken for one that is not.
func TestReconcileReadsAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLives(fake.Options{})
	m := protected()
	s, state := l.detached(t, m)
	hook := &sessionHook{Ledger: l.led}
	h := l.next(t, func(o *host.Options) { o.Ledger = hook })
	asked, goOn, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	l.fake.SetHooks(beforeFirst(fake.MethodCreate, func() { close(asked); <-goOn }))
	go func() {
		defer close(over)
		s2, err := h.Resume(ctx, host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
		if assert.NoError(t, err) {
			_, err = s2.Detach(ctx)
			assert.NoError(t, err)
		}
	}()
	<-asked
	hook.once(func() { close(goOn); <-over })
	r := reconcile(t, h)
	assert.NotContains(t, r.Destroyed, provider.NamePrefix+s.ID())
	require.Len(t, l.ids(t), 1, "the replacement is gone")
	require.Len(t, l.records(t), 1)
	assert.Equal(t, ledger.Created, l.records(t)[0].Phase)
	assert.Equal(t, []string{s.ID()}, reconcile(t, h).Waiting)
	require.NoError(t, h.Discard(ctx, s.ID()))
	require.NoError(t, h.Close(ctx))
}

// A session that is being discarded is not resumed, whoever was first to look at
// its record.
func TestResumeDuringADiscard(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]manifest.Manifest{"attached": ordinary(), "replaced": protected()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				l := newLives(fake.Options{})
				s, state := l.detached(t, m)
				h := l.next(t)
				resumed := make(chan error, 1)
				var first atomic.Bool
				l.fake.SetHooks(fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
					if c.Method == fake.MethodList && first.CompareAndSwap(false, true) {
						go func() {
							_, err := h.Resume(ctx, host.ResumeRequest{State: state, Provider: "fake", Manifest: &m, DiscardWorkspace: true})
							resumed <- err
						}()
						synctest.Wait() // until it can go no further
					}
					return nil
				}})
				require.NoError(t, h.Discard(ctx, s.ID()))
				code(t, provider.NotFound, <-resumed)
				assert.Empty(t, h.Sessions())
				assert.Empty(t, l.ids(t))
				assert.Empty(t, l.records(t))
				require.NoError(t, h.Close(ctx))
			})
		})
	}
}

// A session that is resumed at the end of its idle time, and detached again, has
// a new idle time.
func TestResumedAtTheEndOfItsIdleTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := newLives(fake.Options{})
		h := l.next(t)
		m := ordinary()
		m.Lifetime.Idle = 10 * time.Minute
		s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m})
		require.NoError(t, err)
		state, err := s.Detach(ctx)
		require.NoError(t, err)
		time.Sleep(10*time.Minute - time.Second)
		l.faults.Set(fault.Rule{Method: fault.Open, Kind: fault.Delay, Delay: 10 * time.Second}) // beyond the end
		s, err = h.Resume(ctx, host.ResumeRequest{State: state})
		require.NoError(t, err)
		_, err = s.Detach(ctx)
		require.NoError(t, err)
		time.Sleep(9 * time.Minute)
		assert.Equal(t, []string{s.Info().Sandbox}, l.ids(t))
		time.Sleep(2 * time.Minute)
		assert.Empty(t, l.ids(t))
		require.NoError(t, h.Close(ctx))
	})
}

// A key stands for the session that waits, also when a replacement of it failed
// and left something.
func TestKeyOfASessionWithAFailedReplacement(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLives(fake.Options{})
	h := l.next(t)
	m := protected()
	req := host.CreateRequest{Provider: "fake", Manifest: m, Key: "key"}
	s, err := h.Create(ctx, req)
	require.NoError(t, err)
	state, err := s.Detach(ctx)
	require.NoError(t, err)
	h = l.next(t)
	l.faults.Set(fault.Rule{Method: fault.Create, Kind: fault.Lose})
	_, err = h.Resume(ctx, host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
	require.Error(t, err)
	l.faults.Clear()
	require.Len(t, l.records(t), 2)

	h = l.next(t)
	_, err = h.Create(ctx, req)
	code(t, provider.FailedPrecondition, err)
	require.ErrorContains(t, err, s.ID())
	assert.Len(t, l.ids(t), 1, "the key has two sandboxes")
	require.NoError(t, h.Close(ctx))
}

// failingPuts is a ledger that cannot be written for a while.
type failingPuts struct {
	ledger.Ledger
	mu  sync.Mutex
	err error
}

func (f *failingPuts) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failingPuts) Put(ctx context.Context, r ledger.Record) error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.Ledger.Put(ctx, r)
}

// A removal that neither provider nor ledger would take is tried again all the
// same.
func TestCloseWhenLedgerAndProviderFail(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLives(fake.Options{})
	led := &failingPuts{Ledger: l.led}
	h := l.next(t, func(o *host.Options) { o.Ledger = led })
	s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	require.NoError(t, err)
	led.set(provider.Errorf(provider.Unavailable, "ledger", "the disk is full"))
	l.faults.Set(fault.Rule{Method: fault.Destroy, Kind: fault.Fail})
	code(t, provider.Unavailable, s.Close(ctx))
	led.set(nil)
	l.faults.Clear()
	require.Equal(t, ledger.Created, l.records(t)[0].Phase)
	s2, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	require.NoError(t, err)
	assert.Equal(t, []string{s2.Info().Sandbox}, l.ids(t), "the next create tries again")

	// Unless somebody took it up meanwhile.
	state, err := s2.Detach(ctx)
	require.NoError(t, err)
	led.set(provider.Errorf(provider.Unavailable, "ledger", "the disk is full"))
	l.faults.Set(fault.Rule{Method: fault.Destroy, Kind: fault.Fail})
	require.Error(t, h.Discard(ctx, s2.ID()))
	led.set(nil)
	l.faults.Clear()
	s3, err := h.Resume(ctx, host.ResumeRequest{State: state})
	require.NoError(t, err)
	_, err = h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	require.NoError(t, err)
	run(t, s3, "true")
	_, err = s3.Detach(ctx)
	require.NoError(t, err)
	_, err = h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	require.NoError(t, err)
	assert.Contains(t, l.ids(t), s2.Info().Sandbox)
	require.NoError(t, h.Close(ctx))
}

// usurped shows one sandbox with another owner's labels, as when ours was removed
// and another one has its name.
type usurped struct{ provider.Provider }

func (p usurped) List(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
	owner := q.Owner
	q.Owner = ""
	list, err := p.Provider.List(ctx, q)
	for i := range list {
		list[i].Labels[provider.LabelOwner] = "owner2"
	}
	return slices.DeleteFunc(list, func(x provider.Resource) bool {
		return owner != "" && x.Labels[provider.LabelOwner] != owner
	}), err
}

// A sandbox that has the place of ours is not attached to.
func TestResumeOfWhatIsAnothers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLives(fake.Options{})
	s, state := l.detached(t, ordinary())
	h, err := host.New(host.Options{ID: "owner", Ledger: l.led})
	require.NoError(t, err)
	require.NoError(t, h.RegisterTrusted("fake", usurped{l.fake}))
	l.fake.Forget()
	_, err = h.Resume(ctx, host.ResumeRequest{State: state})
	code(t, provider.NotFound, err)
	assert.Zero(t, l.fake.Count(fake.MethodOpen))
	require.Error(t, h.Discard(ctx, s.ID()))
	_, err = h.Reconcile(ctx)
	require.NoError(t, err)
	require.NoError(t, h.Close(ctx))
	assert.Zero(t, l.fake.Count(fake.MethodDestroy))
	_, ok := l.fake.Record(provider.Ref{ID: s.Info().Sandbox})
	assert.True(t, ok, "it was touched")
}

// A file that nobody closes does not keep a session from ending.
func TestOpenFileDoesNotKeepASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLives(fake.Options{Describe: func(d *provider.Description) { d.Features.TTL = provider.SupportNone }})
		h := l.next(t)
		for _, ttl := range []time.Duration{0, time.Minute} {
			m := ordinary()
			m.Lifetime.TTL = ttl
			s, err := h.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: m})
			require.NoError(t, err)
			require.NoError(t, s.WriteFile(t.Context(), "f", []byte("text"), host.WriteOptions{}))
			f, err := s.Open(t.Context(), "f")
			require.NoError(t, err)
			if ttl == 0 {
				short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				require.NoError(t, s.Close(short))
			}
			time.Sleep(2 * time.Minute)
			assert.Empty(t, l.ids(t), "it outlived its end")
			assert.Empty(t, h.Sessions())
			_, err = f.ReadAt(make([]byte, 1), 0)
			require.Error(t, err)
			require.NoError(t, f.Close())
		}
		require.NoError(t, h.Close(t.Context()))
	})
}

// A lifetime that ends while a replacement is being made ends the session
// afterwards, if the replacement fails.
func TestLifetimeEndsDuringAResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := newLives(fake.Options{Describe: func(d *provider.Description) { d.Features.TTL = provider.SupportNone }})
		h := l.next(t)
		m := protected()
		m.Lifetime.TTL = time.Minute
		s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m})
		require.NoError(t, err)
		state, err := s.State(ctx)
		require.NoError(t, err)
		l.fake.SetHooks(fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
			if c.Method == fake.MethodCreate {
				time.Sleep(10 * time.Minute)
				return &provider.Error{Code: provider.Unavailable, Op: "create", Applied: provider.AppliedNo}
			}
			return nil
		}})
		_, err = h.Resume(ctx, host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
		require.Error(t, err)
		l.fake.SetHooks(fake.Hooks{})
		time.Sleep(10 * time.Minute)
		assert.Empty(t, l.ids(t), "it outlived its end")
		assert.Empty(t, h.Sessions())
		require.NoError(t, h.Close(ctx))
	})
}

// What a resume and a detach change of a session is in the ledger for the next
// process: how long it may idle, and since when.
func TestLifetimeInTheLedger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := newLives(fake.Options{})
		h := l.next(t)
		m := ordinary()
		s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		state, err := s.Detach(ctx)
		require.NoError(t, err)
		assert.True(t, l.records(t)[0].UpdatedAt.Equal(time.Now()), "it was used until now")
		m.Lifetime.Idle = 20 * time.Minute
		_, err = h.Resume(ctx, host.ResumeRequest{State: state, Manifest: &m})
		require.NoError(t, err)
		assert.Equal(t, m.Lifetime.Idle, l.records(t)[0].Idle)
		require.NoError(t, h.Close(ctx))
	})
}

// A create that left nothing leaves no record: nothing may still come of it.
func TestNothingIsLeftOfAFailedCreate(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]fault.Rule{
		"nothing was done":            {Method: fault.Create, Kind: fault.Fail},
		"what was done was destroyed": {Method: fault.Create, Kind: fault.Drop, Code: provider.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLives(fake.Options{})
			h := l.next(t)
			l.faults.Set(rule)
			_, err := h.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary()})
			require.Error(t, err)
			assert.Empty(t, l.ids(t))
			assert.Empty(t, l.records(t))
			require.NoError(t, h.Close(t.Context()))
		})
	}
}

// deafOnce is a ledger that does not take the first record of a phase.
type deafOnce struct {
	ledger.Ledger
	phase ledger.Phase
	first atomic.Bool
}

func (d *deafOnce) Put(ctx context.Context, r ledger.Record) error {
	if r.Phase == d.phase && d.first.CompareAndSwap(false, true) {
		return provider.Errorf(provider.Unavailable, "ledger", "the disk is full")
	}
	return d.Ledger.Put(ctx, r)
}

// A previous sandbox that cannot be seen is not retired, and written down as one
// that is to go, also when the first attempt to write that failed.
func TestRetirementIsWrittenDown(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLives(fake.Options{})
	m := protected()
	s, state := l.detached(t, m)
	h, err := host.New(host.Options{ID: "owner", Ledger: &deafOnce{Ledger: l.led, phase: ledger.Retiring}, Grants: tokenGrant(),
		Source: newSource(map[string]string{"HOST_TOKEN": tokenCanary})})
	require.NoError(t, err)
	require.NoError(t, h.RegisterTrusted("fake", hides{l.fake, s.Info().Sandbox}))
	_, err = h.Resume(ctx, host.ResumeRequest{State: state, Provider: "fake", Manifest: &m, DiscardWorkspace: true})
	require.ErrorAs(t, err, new(*host.RetirementError))
	for _, rec := range l.records(t) {
		if rec.Ref.ID == s.Info().Sandbox {
			assert.Equal(t, ledger.Retiring, rec.Phase)
			assert.Equal(t, string(provider.Unavailable), rec.LastError)
		}
	}
	require.Len(t, l.records(t), 2)
	require.NoError(t, h.Close(ctx))
}

package host_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
	"github.com/sbxhost/sbxhost/provider/providertest/fault"
)

// lives are hosts of one owner, one after the other, on one ledger and one
// provider.
type lives struct {
	led    ledger.Ledger
	fake   *fake.Provider
	faults *fault.Provider
}

func newLives(o fake.Options) *lives {
	f := fake.New(o)
	return &lives{led: ledger.Memory(), fake: f, faults: fault.New(f)}
}

// next is the next one. It is closed by the test's end, or left as by a crash.
func (l *lives) next(t *testing.T, with ...func(*host.Options)) *host.Host {
	t.Helper()
	o := host.Options{ID: "owner", Ledger: l.led, Grants: tokenGrant(), Source: newSource(map[string]string{"HOST_TOKEN": tokenCanary})}
	for _, f := range with {
		f(&o)
	}
	h, err := host.New(o)
	require.NoError(t, err)
	require.NoError(t, h.RegisterTrusted("fake", l.faults))
	return h
}

func (l *lives) ids(t *testing.T) []string {
	t.Helper()
	list, err := l.fake.List(context.Background(), provider.Query{Owner: "owner"})
	require.NoError(t, err)
	out := []string{}
	for _, x := range list {
		out = append(out, x.Ref.ID)
	}
	return out
}

func (l *lives) records(t *testing.T) []ledger.Record {
	t.Helper()
	records, err := l.led.List(context.Background(), "owner")
	require.NoError(t, err)
	return records
}

func reconcile(t *testing.T, h *host.Host) host.ProviderReport {
	t.Helper()
	r, err := h.Reconcile(context.Background())
	require.NoError(t, err)
	require.Len(t, r.Providers, 1)
	return r.Providers[0]
}

func clockAt(offset time.Duration) func(*host.Options) {
	return func(o *host.Options) { o.Clock = func() time.Time { return time.Now().Add(offset) } }
}

func TestStoredState(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLives(fake.Options{})
	h := l.next(t)
	m := protected()
	s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m, Key: "key"})
	require.NoError(t, err)
	state, err := s.State(ctx)
	require.NoError(t, err)
	_, err = h.StoredState(ctx, s.ID())
	code(t, provider.Conflict, err)
	code(t, provider.Conflict, h.Discard(ctx, s.ID()))

	// The process dies after a Resume whose new state nobody kept.
	_, err = h.Resume(ctx, host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
	require.NoError(t, err)
	h = l.next(t)
	require.Equal(t, []string{s.ID()}, reconcile(t, h).Waiting)
	_, err = h.Resume(ctx, host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
	code(t, provider.Conflict, err)
	require.ErrorContains(t, err, "StoredState")
	stored, err := h.StoredState(ctx, s.ID())
	require.NoError(t, err)
	noCanary(t, string(stored))
	s, err = h.Resume(ctx, host.ResumeRequest{State: stored, Provider: "fake", Manifest: &m})
	require.NoError(t, err)
	live, err := s.State(ctx)
	require.NoError(t, err)
	require.NoError(t, l.led.Put(ctx, l.records(t)[0]))
	_, err = s.Detach(ctx)
	require.NoError(t, err)
	stored, err = h.StoredState(ctx, s.ID())
	require.NoError(t, err)
	assert.JSONEq(t, string(live), string(stored), "it is what the session itself gave")

	// Or it is given up.
	_, err = h.StoredState(ctx, "nobody")
	code(t, provider.InvalidArgument, err)
	_, err = h.StoredState(ctx, "0123456789abcdef0123456789abcdef")
	code(t, provider.NotFound, err)
	require.NoError(t, h.Discard(ctx, "0123456789abcdef0123456789abcdef"))
	l.faults.Set(fault.Rule{Method: fault.Destroy, Kind: fault.Drop})
	err = h.Discard(ctx, s.ID())
	var le *host.LifecycleError
	require.ErrorAs(t, err, &le)
	assert.Equal(t, s.ID(), le.Facts["session"])
	require.NoError(t, h.Discard(ctx, s.ID()))
	assert.Empty(t, l.ids(t))
	assert.Empty(t, l.records(t))
	_, err = h.StoredState(ctx, s.ID())
	code(t, provider.NotFound, err)
	require.NoError(t, h.Close(ctx))
}

// A host whose process died does not make an idle lifetime end early: the ledger
// knows, roughly, when the session was used.
func TestIdleSurvivesACrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := newLives(fake.Options{})
		h := l.next(t)
		m := ordinary()
		m.Lifetime.Idle = 20 * time.Minute
		s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m})
		require.NoError(t, err)
		for range 12 { // two hours
			time.Sleep(10 * time.Minute)
			_, err := s.Exec(ctx, host.ExecRequest{Args: []string{"true"}})
			require.NoError(t, err)
		}
		time.Sleep(6 * time.Minute) // until the ledger was told
		h2 := l.next(t)
		r2 := reconcile(t, h2)
		assert.Equal(t, []string{s.ID()}, r2.Waiting, "it was used six minutes ago: %+v", r2)
		h3 := l.next(t, clockAt(26*time.Minute))
		assert.Equal(t, []string{s.Info().Sandbox}, reconcile(t, h3).Destroyed)
		for _, x := range []*host.Host{h3, h2, h} {
			require.NoError(t, x.Close(ctx))
		}
	})
}

// What is being made while a reconcile reads the ledger is nobody else's to take.
func TestReconcileDoesNotTakeWhatIsBeingMade(t *testing.T) {
	t.Parallel()
	for _, detach := range []bool{false, true} {
		ctx := context.Background()
		l := newLives(fake.Options{})
		asked, goOn, made := make(chan struct{}), make(chan struct{}), make(chan struct{})
		hook := &listHook{Ledger: l.led}
		h := l.next(t, func(o *host.Options) { o.Ledger = hook })
		l.fake.SetHooks(beforeFirst(fake.MethodCreate, func() { close(asked); <-goOn }))
		var s *host.Session
		go func() {
			defer close(made)
			var err error
			s, err = h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
			assert.NoError(t, err)
		}()
		<-asked
		hook.set(func() {
			close(goOn)
			<-made
			if detach {
				_, err := s.Detach(ctx)
				assert.NoError(t, err)
			}
		})
		r := reconcile(t, h)
		hook.set(nil)
		assert.Empty(t, r.Destroyed)
		assert.Empty(t, r.Unproven)
		assert.Equal(t, []string{s.Info().Sandbox}, l.ids(t), "detach %v", detach)
		assert.Equal(t, ledger.Created, l.records(t)[0].Phase)
		if detach {
			require.NoError(t, h.Discard(ctx, s.ID()))
		}
		require.NoError(t, h.Close(ctx))
	}
}

// listHook calls a function once a list was read.
type listHook struct {
	ledger.Ledger
	mu sync.Mutex
	f  func()
}

func (h *listHook) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.f = f
}

func (h *listHook) List(ctx context.Context, owner string) ([]ledger.Record, error) {
	out, err := h.Ledger.List(ctx, owner)
	h.mu.Lock()
	f := h.f
	h.mu.Unlock()
	if f != nil {
		f()
	}
	return out, err
}

// Between commit and retirement a session has two sandboxes. The older one goes
// only when the newer one is known to be there.
func TestOfTwoTheOneThatIsThereIsKept(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tt := range []string{"both are there", "the newer one is gone", "the newer one cannot be seen", "the clock went back"} {
		t.Run(tt, func(t *testing.T) {
			t.Parallel()
			l := newLives(fake.Options{})
			h := l.next(t)
			m := protected()
			s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m})
			require.NoError(t, err)
			state, err := s.State(ctx)
			require.NoError(t, err)
			if tt == "the clock went back" {
				_, err := s.Detach(ctx)
				require.NoError(t, err)
				h = l.next(t, clockAt(-time.Hour))
			}
			old := l.records(t)[0]
			l.faults.Set(fault.Rule{Method: fault.Destroy, Kind: fault.Fail})
			s2, err := h.Resume(ctx, host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
			require.ErrorAs(t, err, new(*host.RetirementError))
			// As if the process had died before it said so.
			require.NoError(t, l.led.Delete(ctx, old.Attempt))
			old.Phase, old.LastError = ledger.Created, ""
			require.NoError(t, l.led.Put(ctx, old))
			previous, replacement := s.Info().Sandbox, s2.Info().Sandbox
			l.faults.Clear()

			h = l.next(t)
			switch tt {
			case "the newer one is gone":
				require.NoError(t, l.fake.Destroy(ctx, provider.Ref{ID: replacement}))
				r := reconcile(t, h)
				assert.Equal(t, []string{s.ID()}, r.Waiting)
				assert.Equal(t, []string{previous}, l.ids(t))
			case "the newer one cannot be seen":
				require.NoError(t, h.Close(ctx))
				h, err = host.New(host.Options{ID: "owner", Ledger: l.led})
				require.NoError(t, err)
				require.NoError(t, h.RegisterTrusted("fake", hides{l.fake, replacement}))
				r := reconcile(t, h)
				assert.Equal(t, []string{s.ID()}, r.Pending)
				assert.Len(t, l.ids(t), 2, "nothing is destroyed on a guess")
			default:
				r := reconcile(t, h)
				assert.Equal(t, []string{s.ID()}, r.Waiting)
				assert.Equal(t, []string{previous}, r.Destroyed)
				assert.Equal(t, []string{replacement}, l.ids(t))
			}
			require.NoError(t, h.Close(ctx))
		})
	}
}

// hides does not list one sandbox.
type hides struct {
	provider.Provider
	id string
}

func (p hides) List(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
	list, err := p.Provider.List(ctx, q)
	return slices.DeleteFunc(list, func(x provider.Resource) bool { return x.Ref.ID == p.id }), err
}

// What looks like a sandbox that is to be removed, and differs in one label, is
// not it, even when the real one is gone.
func TestLookAlikesAreLeftAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for label, other := range map[string]string{
		provider.LabelOwner: "owner2", provider.LabelEpoch: "0123456789abcdef", provider.LabelSession: "0123456789abcdef0123456789abcdef",
		provider.LabelAttempt: "another", provider.LabelDigest: "sha256:00", provider.LabelProtected: "1", "missing": "",
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			l := newLives(fake.Options{})
			h := l.next(t)
			s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
			require.NoError(t, err)
			l.faults.Set(fault.Rule{Method: fault.Destroy, Kind: fault.Fail})
			require.Error(t, s.Close(ctx))
			ref := provider.Ref{ID: s.Info().Sandbox}
			rec, ok := l.fake.Record(ref)
			require.True(t, ok)
			labels := rec.Labels()
			if labels[label] = other; other == "" {
				delete(labels, label)
				delete(labels, provider.LabelAttempt)
			}
			alike := l.fake.Plant(provider.NamePrefix+s.ID(), labels)
			require.NoError(t, l.fake.Destroy(ctx, ref))

			h = l.next(t)
			r := reconcile(t, h)
			assert.Equal(t, []string{s.ID()}, r.Gone)
			assert.Empty(t, r.Destroyed)
			_, err = h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
			require.NoError(t, err)
			for _, c := range l.fake.Calls() {
				assert.NotEqual(t, alike.ID, c.Ref, "it was touched: %s", c.Method)
			}
			_, err = l.fake.Open(ctx, alike)
			require.NoError(t, err, "it was touched")
			require.NoError(t, h.Close(ctx))
			_, err = l.fake.Open(ctx, alike)
			require.NoError(t, err, "it was touched")
		})
	}
}

// A session that is being closed when its process dies is closed by the next.
func TestCloseIsAnIntent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLives(fake.Options{})
	h := l.next(t)
	s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	require.NoError(t, err)
	end, ended := make(chan struct{}), make(chan struct{})
	l.fake.SetHooks(fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
		if c.Method == fake.MethodExec {
			<-end // nothing of this process comes back before
		}
		return nil
	}})
	go func() {
		defer close(ended)
		_, _ = s.Exec(ctx, host.ExecRequest{Args: []string{"true"}})
	}()
	require.Eventually(t, func() bool { return l.fake.Count(fake.MethodExec) == 1 }, 30*time.Second, time.Millisecond)
	over, cancel := context.WithCancel(ctx)
	cancel() // a moment later the host has given up the provider, and Close would succeed
	require.Error(t, s.Close(over))
	h = l.next(t)
	r := reconcile(t, h)
	assert.Equal(t, []string{s.Info().Sandbox}, r.Destroyed)
	assert.Empty(t, l.ids(t))
	require.NoError(t, h.Close(ctx))
	close(end)
	<-ended
}

// A ref that holds a value is refused, and does not get into the ledger on the way
// to its sandbox's removal.
func TestNoValueInTheLedgerByWayOfARef(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, destroy := range []fault.Kind{fault.Delay, fault.Fail} {
		l := newLives(fake.Options{Hooks: fake.Hooks{}})
		seen := &puts{Ledger: l.led}
		h, err := host.New(host.Options{ID: "owner", Ledger: seen, Grants: tokenGrant(), Source: newSource(map[string]string{"HOST_TOKEN": tokenCanary})})
		require.NoError(t, err)
		p := fault.New(leakyRef{l.fake})
		require.NoError(t, h.RegisterTrusted("fake", p))
		p.Set(fault.Rule{Method: fault.Destroy, Kind: destroy})
		_, err = h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: protected()})
		require.Error(t, err)
		noCanary(t, err.Error())
		for _, doc := range seen.all() {
			noCanary(t, doc)
		}
		p.Clear()
		reconcile(t, h)
		assert.Empty(t, l.ids(t))
		assert.Empty(t, l.records(t))
		require.NoError(t, h.Close(ctx))
	}
}

// puts keeps what was written.
type puts struct {
	ledger.Ledger
	mu   sync.Mutex
	docs []string
}

func (p *puts) Put(ctx context.Context, r ledger.Record) error {
	doc, err := json.Marshal(r)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.docs = append(p.docs, string(doc))
	p.mu.Unlock()
	return p.Ledger.Put(ctx, r)
}

func (p *puts) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.docs...)
}

// leakyRef puts a value into the refs it returns.
type leakyRef struct{ provider.Provider }

func (p leakyRef) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	req.Checkpoint = nil
	sb, err := p.Provider.Create(ctx, req)
	return leakySandbox{sb}, err
}

type leakySandbox struct{ provider.Sandbox }

func (s leakySandbox) Ref() provider.Ref {
	r := s.Sandbox.Ref()
	r.Data = json.RawMessage(`{"token":"` + tokenCanary + `"}`)
	return r
}

// What a list could not confirm is not destroyed, in whichever way it is tried.
func TestNothingIsDestroyedWithoutAList(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLives(fake.Options{})
	h := l.next(t)
	s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	require.NoError(t, err)
	l.faults.Set(fault.Rule{Method: fault.Destroy, Kind: fault.Fail})
	require.Error(t, s.Close(ctx))
	l.faults.Set(fault.Rule{Method: fault.List, Kind: fault.Fail, Times: -1})
	s2, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	require.NoError(t, err)
	code(t, provider.Unavailable, h.Discard(ctx, s.ID()))
	assert.Equal(t, provider.Unavailable, reconcile(t, h).Code)
	assert.Contains(t, l.ids(t), s.Info().Sandbox)
	l.faults.Clear()
	require.NoError(t, s2.Close(ctx))
	_, err = h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	require.NoError(t, err)
	assert.NotContains(t, l.ids(t), s.Info().Sandbox, "the next create tries again")
	require.NoError(t, h.Close(ctx))

	// One that never lists can only be believed: it returned the ref itself.
	never := newLives(fake.Options{NoList: true})
	h = never.next(t)
	s, err = h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	require.NoError(t, err)
	never.faults.Set(fault.Rule{Method: fault.Destroy, Kind: fault.Fail})
	require.Error(t, s.Close(ctx))
	r := reconcile(t, h)
	assert.Equal(t, provider.Unsupported, r.Code, "it says so")
	assert.Equal(t, []string{s.ID()}, r.Pending)
	assert.Len(t, never.records(t), 1)
	require.NoError(t, h.Discard(ctx, s.ID()))
	assert.Empty(t, never.records(t))
	require.NoError(t, h.Close(ctx))
}

// Where sandboxes end with the process that made them, the next one finds the
// files, and goes on with a new sandbox.
func TestStoppedSandboxIsReplaced(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLives(fake.Options{Describe: func(d *provider.Description) { d.Survives = false }})
	h := l.next(t)
	s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	require.NoError(t, err)
	require.NoError(t, s.WriteFile(ctx, "data", []byte("kept"), host.WriteOptions{}))
	require.True(t, l.fake.SetState(provider.Ref{ID: s.Info().Sandbox}, provider.StateStopped))

	h = l.next(t)
	r := reconcile(t, h)
	assert.Equal(t, []string{s.ID()}, r.Stopped)
	assert.Empty(t, r.Waiting)
	state, err := h.StoredState(ctx, s.ID())
	require.NoError(t, err)
	s2, err := h.Resume(ctx, host.ResumeRequest{State: state})
	require.NoError(t, err)
	assert.Equal(t, s.ID(), s2.ID())
	assert.Equal(t, []string{s2.Info().Sandbox}, l.ids(t))
	assert.NotEqual(t, s.Info().Sandbox, s2.Info().Sandbox)
	d, err := s2.ReadFile(ctx, "data")
	require.NoError(t, err)
	assert.Equal(t, "kept", string(d.Data))
	run(t, s2, "true")
	require.NoError(t, h.Close(ctx))
}

func TestReconcileEvery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := newLives(fake.Options{Describe: func(d *provider.Description) { d.Features.TTL = provider.SupportNone }})
		h := l.next(t)
		m := ordinary()
		m.Lifetime.TTL = time.Hour
		s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m})
		require.NoError(t, err)
		h = l.next(t) // the one before is dead, or so it seems
		var mu sync.Mutex
		var reports []host.ProviderReport
		ended := make(chan error, 1)
		go func() {
			ended <- h.ReconcileEvery(ctx, 10*time.Minute, func(r host.Report, err error) {
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				reports = append(reports, r.Providers[0])
			})
		}()
		time.Sleep(35 * time.Minute)
		mu.Lock()
		require.Len(t, reports, 4, "at once, and at every interval")
		assert.Equal(t, []string{s.ID()}, reports[3].Waiting)
		mu.Unlock()
		time.Sleep(time.Hour)
		assert.Empty(t, l.ids(t), "its lifetime ended")
		require.NoError(t, h.Close(ctx))
		require.NoError(t, <-ended)

		h = l.next(t)
		ctx2, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, h.ReconcileEvery(ctx2, time.Minute, nil), context.Canceled)
		code(t, provider.InvalidArgument, h.ReconcileEvery(ctx, 0, nil))
		require.NoError(t, h.Close(ctx))
	})
}

package host_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
)

func TestClose(t *testing.T) {
	t.Parallel()
	t.Run("destroys, once, and forgets", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		require.NoError(t, s.Close(t.Context()))
		require.NoError(t, s.Close(t.Context()))
		assert.Equal(t, 1, e.fake.Count(fake.MethodDestroy))
		e.empty(t)
		_, ok := e.Session(s.ID())
		assert.False(t, ok)
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
		code(t, provider.FailedPrecondition, err)
		require.ErrorContains(t, err, "is closed", "not that its references are not covered")
		_, err = s.State(t.Context())
		require.Error(t, err, "a closed session's references are not covered any more")
		_, err = s.Detach(t.Context())
		require.Error(t, err)
	})
	t.Run("PY-38 JU-40 a failed close does every step again", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		e.fake.SetHooks(failWith(fake.MethodDestroy, &provider.Error{Code: provider.Unavailable, Message: tokenCanary}))
		for i := range 2 {
			err := s.Close(t.Context())
			var le *host.LifecycleError
			require.ErrorAs(t, err, &le)
			assert.Equal(t, s.Info().Sandbox, le.Facts["sandbox"])
			noCanary(t, fmt.Sprintf("%+v", err))
			assert.Equal(t, i+1, e.fake.Count(fake.MethodDestroy))
		}
		e.fake.SetHooks(fake.Hooks{})
		require.NoError(t, s.Close(t.Context()))
		assert.Equal(t, 3, e.fake.Count(fake.MethodDestroy))
		require.NoError(t, s.Close(t.Context()))
		assert.Equal(t, 3, e.fake.Count(fake.MethodDestroy))
		e.empty(t)
	})
	t.Run("JU-42 a sandbox that is gone already", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		require.NoError(t, e.fake.Destroy(t.Context(), provider.Ref{ID: s.Info().Sandbox}))
		require.NoError(t, s.Close(t.Context()))
		require.NoError(t, s.Close(t.Context()))
	})
	t.Run("stops what runs, and waits for it", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		p, err := s.Start(t.Context(), host.ExecRequest{Args: []string{"sleep", "600"}})
		require.NoError(t, err)
		require.NoError(t, s.Close(t.Context()))
		r, err := p.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, host.Killed, r.Status)
	})
	t.Run("PY-36 a start in flight is waited for, a later one refused", func(t *testing.T) {
		t.Parallel()
		// A second after the end of its session a start is given up: the clock stands
		// still meanwhile.
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t)
			s := e.create(t, ordinary())
			release := make(chan struct{})
			e.fake.SetHooks(fake.Hooks{After: func(_ context.Context, c fake.Call, _ error) error {
				if c.Method == fake.MethodExec {
					<-release
				}
				return nil
			}})
			execErr, closed := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := s.Exec(context.Background(), host.ExecRequest{Args: []string{"sleep", "1"}})
				execErr <- err
			}()
			synctest.Wait()
			require.Equal(t, 1, e.fake.Count(fake.MethodExec), "it is in flight")
			go func() { closed <- s.Close(context.Background()) }()
			synctest.Wait()
			_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
			code(t, provider.FailedPrecondition, err)
			assert.Zero(t, e.fake.Count(fake.MethodDestroy), "not destroyed under a start in flight")
			close(release)
			require.NoError(t, <-closed)
			t.Log("killed or refused; either is right:", <-execErr)
			assert.Equal(t, 1, e.fake.Count(fake.MethodDestroy))
		})
	})
	t.Run("a reader that never reads does not hold it up", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.host.Limits.Output = 100 })
		s := e.create(t, ordinary())
		_, err := s.Start(t.Context(), host.ExecRequest{Args: []string{"spam", "900000000"}})
		require.NoError(t, err)
		require.NoError(t, s.Close(t.Context()))
	})
	t.Run("many at once destroy once", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		errs := make(chan error, 20)
		for range 20 {
			go func() { errs <- s.Close(t.Context()) }()
		}
		for range 20 {
			assert.NoError(t, <-errs)
		}
		assert.Equal(t, 1, e.fake.Count(fake.MethodDestroy))
	})
	t.Run("a caller that gives up can come back", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t)
			s := e.create(t, ordinary())
			e.fake.SetHooks(fake.Hang(fake.MethodDestroy))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, s.Close(ctx), context.DeadlineExceeded)
			e.fake.SetHooks(fake.Hooks{})
			require.NoError(t, s.Close(t.Context()))
		})
	})
}

func TestHostClose(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for range 5 {
		e.create(t, ordinary())
	}
	kept := e.create(t, ordinary())
	_, err := kept.Detach(t.Context())
	require.NoError(t, err)
	require.NoError(t, e.Host.Close(t.Context()))
	assert.Equal(t, 5, e.fake.Count(fake.MethodDestroy))
	_, err = e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	code(t, provider.FailedPrecondition, err)
	code(t, provider.FailedPrecondition, e.Register("late", e.fake))

	t.Run("cancels what is being made when its context ends", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t)
			e.fake.SetHooks(fake.Hang(fake.MethodCreate))
			made := make(chan error, 1)
			go func() {
				_, err := e.Create(context.Background(), host.CreateRequest{Provider: "fake", Manifest: ordinary()})
				made <- err
			}()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.NoError(t, e.Host.Close(ctx))
			require.ErrorIs(t, <-made, context.Canceled)
		})
	})
}

func TestLifetimes(t *testing.T) {
	t.Parallel()
	noTTL := describe(func(d *provider.Description) { d.Features.TTL = provider.SupportNone })
	t.Run("TTL", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t, noTTL)
			m := ordinary()
			m.Lifetime.TTL = time.Hour
			s := e.create(t, m)
			assert.Equal(t, s.Info().CreatedAt.Add(time.Hour), s.Info().ExpiresAt)
			time.Sleep(59 * time.Minute)
			run(t, s, "true")
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			_, ok := e.Session(s.ID())
			assert.False(t, ok)
			e.empty(t)
		})
	})
	t.Run("idle counts from the last use, and not while in use", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t, noTTL)
			m := ordinary()
			m.Lifetime.Idle = 10 * time.Minute
			s := e.create(t, m)
			for range 3 {
				time.Sleep(9 * time.Minute)
				run(t, s, "true")
			}
			r, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"sleep", "3600"}, Timeout: 2 * time.Hour})
			require.NoError(t, err)
			assert.Equal(t, host.Exited, r.Status)
			time.Sleep(9 * time.Minute)
			_, ok := e.Session(s.ID())
			assert.True(t, ok)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			_, ok = e.Session(s.ID())
			assert.False(t, ok)
			e.empty(t)
		})
	})
	t.Run("of a detached sandbox", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t, noTTL)
			m := ordinary()
			m.Lifetime.TTL = time.Hour
			s := e.create(t, m)
			state, err := s.Detach(t.Context())
			require.NoError(t, err)
			time.Sleep(30 * time.Minute)
			s, err = e.Resume(t.Context(), host.ResumeRequest{State: state})
			require.NoError(t, err)
			_, err = s.Detach(t.Context())
			require.NoError(t, err)
			time.Sleep(31 * time.Minute)
			synctest.Wait()
			e.empty(t)
			_, err = e.Resume(t.Context(), host.ResumeRequest{State: state})
			code(t, provider.NotFound, err)
		})
	})
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	report := func(t *testing.T, e *env) host.ProviderReport {
		t.Helper()
		r, err := e.Reconcile(t.Context())
		require.NoError(t, err)
		require.Len(t, r.Providers, 1)
		return r.Providers[0]
	}
	// restarted is a host of the same owner, with the same ledger and provider.
	restarted := func(t *testing.T, e *env, led ledger.Ledger, clock func() time.Time) *env {
		t.Helper()
		h, err := host.New(host.Options{ID: "owner", Ledger: led, Source: e.source, Grants: tokenGrant(), Clock: clock})
		require.NoError(t, err)
		require.NoError(t, h.RegisterTrusted("fake", e.fake))
		t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
		return &env{Host: h, fake: e.fake, source: e.source}
	}
	durable := func(led ledger.Ledger) func(*setup) {
		return func(s *setup) { s.host.ID, s.host.Ledger, s.host.Grants = "owner", led, tokenGrant() }
	}
	t.Run("finishes what was left, keeps what is whole, touches nothing foreign, and changes nothing twice", func(t *testing.T) {
		t.Parallel()
		led := newLedger()
		e := newEnv(t, durable(led))
		keep := e.create(t, ordinary())
		keepProtected := e.create(t, protected())
		old := ordinary()
		old.Lifetime.TTL = time.Minute
		expired := e.create(t, old)
		vanished := e.create(t, ordinary())
		half := e.create(t, ordinary())
		for _, s := range []*host.Session{keep, keepProtected, expired, vanished, half} {
			_, err := s.Detach(t.Context())
			require.NoError(t, err)
		}
		recs, err := led.Session(t.Context(), half.ID())
		require.NoError(t, err)
		recs[0].Phase, recs[0].Ref = ledger.Intent, provider.Ref{}
		require.NoError(t, led.Delete(t.Context(), recs[0].Attempt))
		require.NoError(t, led.Put(t.Context(), recs[0]))
		require.NoError(t, e.fake.Destroy(t.Context(), provider.Ref{ID: vanished.Info().Sandbox}))
		labels := func(s *host.Session) map[string]string {
			r, ok := e.fake.Record(provider.Ref{ID: s.Info().Sandbox})
			require.True(t, ok)
			return r.Labels()
		}
		otherOwner, otherEpoch, missing, unknown := labels(half), labels(half), labels(half), labels(half)
		otherOwner[provider.LabelOwner] = "owner2"
		otherEpoch[provider.LabelEpoch] = "0"
		delete(missing, provider.LabelAttempt)
		unknown[provider.LabelAttempt] = "0123"
		foreign := []provider.Ref{e.fake.Plant("a", otherOwner), e.fake.Plant("b", otherEpoch), e.fake.Plant("c", missing), e.fake.Plant("d", unknown)}

		later := time.Now().Add(time.Hour)
		e2 := restarted(t, e, led, func() time.Time { return later })
		r := report(t, e2)
		assert.ElementsMatch(t, []string{keep.ID(), keepProtected.ID()}, r.Waiting)
		assert.ElementsMatch(t, []string{expired.Info().Sandbox, provider.NamePrefix + half.ID()}, r.Destroyed)
		assert.Equal(t, []string{vanished.ID()}, r.Gone)
		assert.Len(t, r.Unproven, 3)
		for _, f := range foreign {
			_, err := e.fake.Open(t.Context(), f)
			assert.NoError(t, err, "a foreign sandbox was touched")
		}
		again := report(t, e2)
		assert.ElementsMatch(t, r.Waiting, again.Waiting)
		assert.Empty(t, again.Destroyed)
		assert.Empty(t, again.Gone)
		assert.Empty(t, again.Pending)
		recs, err = led.List(t.Context(), "owner")
		require.NoError(t, err)
		assert.Len(t, recs, 2)
	})
	t.Run("a provider that cannot be listed is left alone", func(t *testing.T) {
		t.Parallel()
		led := newLedger()
		e := newEnv(t, durable(led))
		m := ordinary()
		m.Lifetime.TTL = time.Minute
		s := e.create(t, m)
		_, err := s.Detach(t.Context())
		require.NoError(t, err)
		later := time.Now().Add(time.Hour)
		e2 := restarted(t, e, led, func() time.Time { return later })
		e.fake.SetHooks(fake.Fail(fake.MethodList, provider.Unavailable))
		r := report(t, e2)
		assert.Equal(t, provider.Unavailable, r.Code)
		assert.Equal(t, []string{s.ID()}, r.Pending)
		assert.Zero(t, e.fake.Count(fake.MethodDestroy))
		e.fake.SetHooks(fake.Hooks{})
		assert.Len(t, report(t, e2).Destroyed, 1)
	})
	t.Run("not listed is not gone", func(t *testing.T) {
		t.Parallel()
		led := newLedger()
		e := newEnv(t, durable(led))
		s := e.create(t, ordinary())
		_, err := s.Detach(t.Context())
		require.NoError(t, err)
		h, err := host.New(host.Options{ID: "owner", Ledger: led})
		require.NoError(t, err)
		defer func() { assert.NoError(t, h.Close(t.Context())) }()
		require.NoError(t, h.RegisterTrusted("fake", staleList{e.fake}))
		r, err := h.Reconcile(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{s.ID()}, r.Providers[0].Pending)
		recs, err := led.List(t.Context(), "owner")
		require.NoError(t, err)
		require.Len(t, recs, 1)
		// Nor when it is to be removed.
		recs[0].Phase = ledger.Retiring
		require.NoError(t, led.Put(t.Context(), recs[0]))
		r, err = h.Reconcile(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{s.ID()}, r.Providers[0].Pending)
		recs, err = led.List(t.Context(), "owner")
		require.NoError(t, err)
		assert.Len(t, recs, 1)
	})
	t.Run("a sandbox whose create was not answered may still appear", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		e.fake.SetHooks(failWith(fake.MethodCreate, &provider.Error{Code: provider.DeadlineExceeded, Applied: provider.AppliedUnknown}))
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary()})
		require.Error(t, err)
		e.fake.SetHooks(fake.Hooks{})
		assert.Len(t, report(t, e).Pending, 1)
		assert.Len(t, report(t, e).Pending, 1)
	})
	t.Run("live sessions are not disturbed", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		r := report(t, e)
		assert.Equal(t, []string{s.ID()}, r.Live)
		assert.Empty(t, r.Unproven)
		run(t, s, "true")
	})
	t.Run("a failed close is finished", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		e.fake.SetHooks(fake.Fail(fake.MethodDestroy, provider.Unavailable))
		require.Error(t, s.Close(t.Context()))
		e.fake.SetHooks(fake.Hooks{})
		assert.Len(t, report(t, e).Destroyed, 1)
		e.empty(t)
	})
	t.Run("records of a provider that is not registered are kept", func(t *testing.T) {
		t.Parallel()
		led := newLedger()
		e := newEnv(t, durable(led))
		_, err := e.create(t, ordinary()).Detach(t.Context())
		require.NoError(t, err)
		h, err := host.New(host.Options{ID: "owner", Ledger: led})
		require.NoError(t, err)
		defer func() { assert.NoError(t, h.Close(t.Context())) }()
		r, err := h.Reconcile(t.Context())
		require.NoError(t, err)
		require.Len(t, r.Providers, 1)
		assert.Equal(t, provider.NotFound, r.Providers[0].Code)
		assert.Len(t, r.Providers[0].Pending, 1)
	})
}

// staleList lists nothing.
type staleList struct{ provider.Provider }

func (staleList) List(context.Context, provider.Query) ([]provider.Resource, error) { return nil, nil }

func TestCheckGrants(t *testing.T) {
	t.Parallel()
	e := newEnv(t, func(s *setup) {
		s.host.Grants = grants.Set{ProcessEnvironmentBindings: map[string]string{"TOKEN": "HOST_TOKEN", "GONE": "UNSET"}}
	}, describe(func(d *provider.Description) { d.RefusedDestinations = []string{"MANAGED"} }))
	m := protected()
	for _, k := range []string{"UNGRANTED", "MANAGED"} {
		m = with(m, k, ref("HOST_TOKEN"))
	}
	m = with(m, "GONE", ref("UNSET"))
	r, err := e.CheckGrants(t.Context(), host.CheckRequest{Manifest: m, Provider: "fake"})
	require.NoError(t, err)
	assert.False(t, r.OK)
	assert.True(t, r.Trusted)
	assert.Equal(t, "exec/memory", r.Transport)
	assert.NotEmpty(t, r.Exposure)
	got := map[string]host.ReferenceReport{}
	for _, ref := range r.References {
		got[ref.Destination] = ref
	}
	assert.Equal(t, host.ReferenceReport{Destination: "TOKEN", Source: "HOST_TOKEN", Granted: true, Set: host.Present, OK: true}, got["TOKEN"])
	assert.Equal(t, host.Absent, got["GONE"].Set)
	assert.Contains(t, got["GONE"].Reason, "UNSET")
	assert.False(t, got["UNGRANTED"].Granted)
	assert.Equal(t, host.PresenceUnknown, got["UNGRANTED"].Set)
	assert.Contains(t, got["UNGRANTED"].Reason, "--grant UNGRANTED=HOST_TOKEN")
	assert.Contains(t, got["MANAGED"].Reason, "provider")
	e.untouched(t)
	assert.Empty(t, e.source.lookups, "no value is read")
	assert.ElementsMatch(t, []string{"HOST_TOKEN", "UNSET"}, e.source.asked, "only what is granted is asked about")

	r, err = e.CheckGrants(t.Context(), host.CheckRequest{Manifest: protected()})
	require.NoError(t, err)
	assert.True(t, r.OK)
	e2 := newEnv(t, untrusted, granted)
	r, err = e2.CheckGrants(t.Context(), host.CheckRequest{Manifest: protected(), Provider: "fake"})
	require.NoError(t, err)
	assert.False(t, r.OK)
	assert.Contains(t, r.Reason, "untrusted")
}

package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// broken is a host on a provider that can be broken, with a bystander session and
// sandboxes that are almost ours.
type broken struct {
	*env
	faults  *fault.Provider
	led     ledger.Ledger
	other   *host.Session
	foreign []string
}

func newBroken(t *testing.T, opt func(*setup)) *broken {
	t.Helper()
	s := setup{}
	opt(&s)
	b := &broken{env: &env{fake: fake.New(s.fake)}, led: ledger.Memory()}
	b.faults = fault.New(b.fake)
	h, err := host.New(host.Options{ID: "owner", Ledger: b.led, Grants: tokenGrant(),
		Source: newSource(map[string]string{"HOST_TOKEN": tokenCanary})})
	require.NoError(t, err)
	b.Host = h
	require.NoError(t, h.RegisterTrusted("fake", b.faults))
	b.other = b.create(t, ordinary())
	r, _ := b.fake.Record(provider.Ref{ID: b.other.Info().Sandbox})
	for i, change := range []func(map[string]string){
		func(l map[string]string) { l[provider.LabelOwner] = "owner2" },
		func(l map[string]string) { l[provider.LabelEpoch] = "older" },
		func(l map[string]string) { delete(l, provider.LabelAttempt) },
		func(l map[string]string) { l[provider.LabelAttempt] = "another" },
	} {
		labels := r.Labels()
		change(labels)
		b.foreign = append(b.foreign, b.fake.Plant(fmt.Sprint("foreign ", i), labels).ID)
	}
	return b
}

// ours returns the listed sandboxes that are not foreign.
func (b *broken) ours(t *testing.T) []provider.Resource {
	t.Helper()
	list, err := b.fake.List(context.Background(), provider.Query{})
	require.NoError(t, err)
	return slices.DeleteFunc(list, func(r provider.Resource) bool { return slices.Contains(b.foreign, r.Ref.ID) })
}

// never checks what must hold at any moment, whatever is broken.
func (b *broken) never(t *testing.T) {
	t.Helper()
	committed := map[string]int{}
	for _, x := range b.ours(t) {
		rec, err := b.led.Get(context.Background(), x.Labels[provider.LabelAttempt])
		if assert.NoError(t, err, "the sandbox %s is orphaned", x.Ref.ID) && rec.Phase == ledger.Created {
			committed[rec.Session]++
		}
	}
	for session, n := range committed {
		// Two only while the previous one's removal is not in the ledger yet.
		assert.LessOrEqual(t, n, 1, "session %s has two sandboxes", session)
	}
}

// converged checks what must hold once faults have stopped.
func (b *broken) converged(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	r, err := b.Reconcile(ctx)
	require.NoError(t, err)
	assert.Empty(t, r.Providers[0].Pending, "deferred work is left")
	again, err := b.Reconcile(ctx)
	require.NoError(t, err)
	assert.Empty(t, again.Providers[0].Destroyed, "a second reconcile destroyed something")
	assert.Empty(t, again.Providers[0].Gone)
	want, got := []string{}, []string{}
	for _, s := range b.Sessions() {
		want = append(want, s.ID()+" "+s.Info().Sandbox)
	}
	for _, id := range r.Providers[0].Waiting {
		rec, err := b.led.Session(ctx, id)
		require.NoError(t, err)
		want = append(want, id+" "+rec[0].Ref.ID)
	}
	for _, x := range b.ours(t) {
		got = append(got, x.Labels[provider.LabelSession]+" "+x.Ref.ID)
	}
	assert.ElementsMatch(t, want, got, "one sandbox per session, and no other")
	records, err := b.led.List(ctx, "owner")
	require.NoError(t, err)
	assert.Len(t, records, len(got))
	for _, s := range b.Sessions() {
		res, err := s.Exec(ctx, host.ExecRequest{Args: []string{"true"}})
		if assert.NoError(t, err, "a live session does not work") {
			assert.Zero(t, res.ExitCode)
		}
	}
	for _, f := range b.foreign {
		_, err := b.fake.Open(ctx, provider.Ref{ID: f})
		assert.NoError(t, err, "a foreign sandbox was touched")
	}
}

// discardWaiting ends what nobody holds.
func (b *broken) discardWaiting() error {
	r, err := b.Reconcile(context.Background())
	for _, id := range r.Providers[0].Waiting {
		err = errors.Join(err, b.Discard(context.Background(), id))
	}
	return err
}

// typed checks that an error says what it is and shows no value.
func typed(t *testing.T, err error, masked bool) {
	t.Helper()
	if err == nil {
		return
	}
	assert.Contains(t, provider.Codes(), provider.CodeOf(err), "%v", err)
	noCanary(t, fmt.Sprintf("%v %+v %#v", err, err, err))
	var le *host.LifecycleError
	var pe *provider.Error
	var re *host.RetirementError
	if masked {
		assert.True(t, errors.As(err, &le) || errors.As(err, &re) || errors.As(err, &pe) && pe.Provider != "fault", "%T %v", err, err)
		return
	}
	assert.True(t, errors.As(err, &pe) || errors.As(err, &re), "%T %v", err, err)
}

// faultOps are the operations that are broken. prepare returns the operation;
// what it returns is called with the fault in force.
var faultOps = map[string]struct {
	opt     func(*setup)
	m       func() manifest.Manifest
	prepare func(t *testing.T, b *broken, m manifest.Manifest) func() error
}{
	"create":           {func(*setup) {}, ordinary, faultCreate},
	"create protected": {func(*setup) {}, protected, faultCreate},
	"resume attached":  {func(*setup) {}, ordinary, faultResume(true)},
	"resume moved":     {func(*setup) {}, protected, faultResume(false)},
	"resume detached":  {func(*setup) {}, protected, faultResume(true)},
	"resume shared":    {sharedWorkspace, protected, faultResume(false)},
	"close":            {func(*setup) {}, ordinary, faultClose},
	"close protected":  {func(*setup) {}, protected, faultClose},
}

func withFiles(m manifest.Manifest) manifest.Manifest {
	m.Files = map[string]manifest.File{"made": {Content: []byte("x")}}
	m.Resources.CPUs = 1 // for a look at the status
	return m
}

func faultCreate(t *testing.T, b *broken, m manifest.Manifest) func() error {
	t.Helper()
	return func() error {
		_, err := b.Create(context.Background(), host.CreateRequest{Provider: "fake", Manifest: m})
		return err
	}
}

func faultResume(detach bool) func(t *testing.T, b *broken, m manifest.Manifest) func() error {
	return func(t *testing.T, b *broken, m manifest.Manifest) func() error {
		t.Helper()
		s := b.create(t, m)
		state, err := s.State(context.Background())
		require.NoError(t, err)
		if detach {
			_, err = s.Detach(context.Background())
			require.NoError(t, err)
		}
		return func() error {
			s2, err := b.Resume(context.Background(), host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
			if re := (*host.RetirementError)(nil); err == nil || errors.As(err, &re) {
				require.NotNil(t, s2)
			}
			if _, ok := b.Session(s.ID()); !ok {
				assert.True(t, detach, "a live session was given up")
			}
			return err
		}
	}
}

func faultClose(t *testing.T, b *broken, m manifest.Manifest) func() error {
	t.Helper()
	s := b.create(t, m)
	_, err := s.Start(context.Background(), host.ExecRequest{Args: []string{"sleep", "86400"}, Timeout: 100 * time.Hour})
	require.NoError(t, err)
	return func() error { return s.Close(context.Background()) }
}

// TestFaultMatrix breaks every method in every way under every operation.
func TestFaultMatrix(t *testing.T) {
	t.Parallel()
	for name, op := range faultOps {
		for _, m := range fault.Methods() {
			t.Run(name+"/"+string(m), func(t *testing.T) {
				t.Parallel()
				hits := 0
				for _, k := range fault.Kinds() {
					for _, from := range []int{1, 2} {
						for _, times := range []int{1, -1} {
							if testing.Short() && (from == 2) != (times == 1) {
								continue
							}
							rule := fault.Rule{Method: m, Kind: k, From: from, Times: times}
							if k == fault.Late || k == fault.Linger {
								rule.Delay = 20 * time.Minute // longer than anybody waits
							}
							synctest.Test(t, func(t *testing.T) {
								b := newBroken(t, op.opt)
								mf := withFiles(op.m())
								do := op.prepare(t, b, mf)
								b.faults.Set(rule)
								err := do()
								hits += b.faults.Hits()
								typed(t, err, len(mf.Pairs()) > 0)
								b.never(t)
								b.faults.Clear()
								time.Sleep(time.Hour) // until nothing can come any more
								b.converged(t)
								assert.NoError(t, b.discardWaiting())
								assert.NoError(t, b.Host.Close(context.Background()))
								assert.Empty(t, b.ours(t))
								if t.Failed() {
									t.Logf("%s: %+v: %v", name, rule, err)
								}
							})
							if t.Failed() {
								return
							}
						}
					}
				}
				t.Log(hits, "calls broken")
			})
		}
	}
}

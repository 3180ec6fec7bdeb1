package host_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
)

func TestNew(t *testing.T) {
	t.Parallel()
	_, err := host.New(host.Options{Ledger: ledger.Memory()})
	code(t, provider.InvalidArgument, err)
	_, err = host.New(host.Options{Grants: grants.Set{ProcessEnvironmentBindings: map[string]string{"A=": "B"}}})
	code(t, provider.InvalidArgument, err)
	_, err = host.New(host.Options{HostPathRoots: []string{"/absent/directory"}})
	code(t, provider.InvalidArgument, err)
	_, err = host.New(host.Options{ID: "no spaces"})
	code(t, provider.InvalidArgument, err)
}

func TestRegister(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	code(t, provider.AlreadyExists, e.Register("fake", e.fake))
	code(t, provider.InvalidArgument, e.Register("", e.fake))
	code(t, provider.InvalidArgument, e.Register("Upper", e.fake))
	code(t, provider.InvalidArgument, e.Register("nil", nil))
	// A name that the provider reports has no weight.
	require.NoError(t, e.Register("other", fake.New(fake.Options{Name: "fake"})))
	p := e.Providers()
	require.Len(t, p, 2)
	assert.True(t, p[0].Trusted)
	assert.False(t, p[1].Trusted)
	_, err := e.Create(t.Context(), host.CreateRequest{Provider: "absent", Manifest: ordinary()})
	code(t, provider.NotFound, err)
	_, err = e.Create(t.Context(), host.CreateRequest{Manifest: ordinary()})
	code(t, provider.InvalidArgument, err)
}

func TestSetGrantsValidatesThenSwaps(t *testing.T) {
	t.Parallel()
	e := newEnv(t, granted)
	err := e.SetGrants(grants.Set{AllowedProcessEnvironmentKeys: []string{"TOKEN"}, ProcessEnvironmentBindings: map[string]string{"TOKEN": "ELSEWHERE"}})
	code(t, provider.InvalidArgument, err)
	e.create(t, protected())
	set := tokenGrant()
	require.NoError(t, e.SetGrants(set))
	set.ProcessEnvironmentBindings["TOKEN"] = "CHANGED" // the host has its own copy
	e.create(t, protected())
}

// What the provider is given, and in what order things happen.
func TestCreate(t *testing.T) {
	t.Parallel()
	t.Run("the intent is durable before the provider is asked, and holds no value", func(t *testing.T) {
		t.Parallel()
		led := newLedger()
		e := newEnv(t, granted, func(s *setup) {
			s.host.Ledger, s.host.ID = led, "owner"
			s.fake.Hooks = fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
				if c.Method != fake.MethodCreate {
					return nil
				}
				recs, err := led.List(context.Background(), "owner")
				if err != nil || len(recs) != 1 || recs[0].Phase != ledger.Intent || recs[0].Session != c.Session {
					return errors.New("no intent")
				}
				return nil
			}}
		})
		s := e.create(t, protected())
		recs, err := led.Session(t.Context(), s.ID())
		require.NoError(t, err)
		require.Len(t, recs, 1)
		r := recs[0]
		assert.Equal(t, ledger.Created, r.Phase)
		assert.Equal(t, s.Info().Sandbox, r.Ref.ID)
		assert.Equal(t, []string{"TOKEN"}, r.ProtectedNames)
		assert.True(t, r.Protected)
		noCanary(t, fmt.Sprintf("%+v %s", r, r.Manifest))
		require.NoError(t, s.Close(t.Context()))
		recs, err = led.List(t.Context(), "owner")
		require.NoError(t, err)
		assert.Empty(t, recs)
	})
	t.Run("labels, name and digest", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted, func(s *setup) { s.host.ID = "owner" })
		m := protected()
		m.Labels = map[string]string{"team": "core"}
		s := e.create(t, m)
		list, err := e.fake.List(t.Context(), provider.Query{Owner: "owner"})
		require.NoError(t, err)
		require.Len(t, list, 1)
		l := list[0].Labels
		assert.Equal(t, provider.NamePrefix+s.ID(), list[0].Name)
		assert.Equal(t, s.ID(), l[provider.LabelSession])
		assert.Equal(t, "1", l[provider.LabelProtected])
		assert.Equal(t, "core", l["team"])
		assert.Len(t, l[provider.LabelAttempt], 32)
		assert.NotEqual(t, s.ID(), l[provider.LabelAttempt])
	})
	t.Run("reserved labels are refused", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		m := ordinary()
		m.Labels = map[string]string{"sbxhost.owner": "me"}
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: m})
		code(t, provider.InvalidArgument, err)
		e.untouched(t)
	})
	t.Run("the default network is the provider's", func(t *testing.T) {
		t.Parallel()
		for _, n := range []string{"none", "default"} {
			e := newEnv(t, describe(func(d *provider.Description) { d.DefaultNetwork = n }))
			assert.Equal(t, n, e.create(t, ordinary()).Info().Network)
		}
	})
	t.Run("what the provider cannot honour is Unsupported before it is touched, all of it listed", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, describe(func(d *provider.Description) {
			d.Features = provider.Features{NetworkNone: provider.SupportEnforced}
		}))
		m := ordinary()
		m.Image, m.User, m.Network, m.Ports = "i", "u", manifest.NetworkDefault, []int{1}
		m.Resources = manifest.Resources{CPUs: 1, MemoryMiB: 1, PIDs: 1, DiskMiB: 1}
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: m})
		code(t, provider.Unsupported, err)
		for _, w := range []string{"image", "user", "network: default", "ports", "cpus", "memoryMiB", "pids", "diskMiB"} {
			assert.ErrorContains(t, err, w)
		}
		e.untouched(t)
	})
	t.Run("harmless misses are listed", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, describe(func(d *provider.Description) { d.Features.Image = provider.SupportUnenforced }))
		m := ordinary()
		m.Image, m.Resources.DiskMiB, m.Resources.PIDs = "ignored", 5, 5
		assert.Equal(t, []string{"image", "resources.diskMiB"}, e.create(t, m).Info().Unenforced)
	})
	t.Run("progress is passed on", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		var stages []provider.Stage
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary(), Progress: func(s provider.Stage) { stages = append(stages, s) }})
		require.NoError(t, err)
		assert.NotEmpty(t, stages)
	})
	t.Run("run-scoped grants replace the host's", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		set := tokenGrant()
		s, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: protected(), Grants: &set})
		require.NoError(t, err)
		set.ProcessEnvironmentBindings["TOKEN"] = "CHANGED"
		run(t, s, "true")
	})
	t.Run("values are read once", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		e.source.set("HOST_TOKEN", rotatedCanary)
		run(t, s, "true")
		run(t, s, "true")
		assert.Equal(t, []string{"HOST_TOKEN"}, e.source.lookups)
		assert.True(t, e.fake.Execs()[1].Got("TOKEN", value(tokenCanary)))
	})
}

func TestCreateFailures(t *testing.T) {
	t.Parallel()
	leaky := &provider.Error{Code: provider.PermissionDenied, Op: "create", Message: "vendor says " + tokenCanary, Subject: tokenCanary,
		Err: errors.New("cause " + tokenCanary), Applied: provider.AppliedUnknown}
	t.Run("JU-19 create fails echoing the secret", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		e.fake.SetHooks(failWith(fake.MethodCreate, leaky))
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: protected()})
		var le *host.LifecycleError
		require.ErrorAs(t, err, &le)
		assert.Equal(t, provider.PermissionDenied, le.Code)
		assert.Equal(t, "create", le.Operation)
		assert.Contains(t, le.Facts["name"], provider.NamePrefix)
		assert.NoError(t, errors.Unwrap(err))
		noCanary(t, fmt.Sprintf("%v %+v %#v", err, err, err))
	})
	t.Run("PY-34 a later step fails, and so does the removal", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		e.fake.SetHooks(fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
			if c.Method == fake.MethodWrite || c.Method == fake.MethodDestroy {
				return leaky
			}
			return nil
		}})
		m := protected()
		m.Files = map[string]manifest.File{"f": {Content: []byte("x")}}
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: m})
		var le *host.LifecycleError
		require.ErrorAs(t, err, &le)
		assert.Equal(t, "fake-000001", le.Facts["sandbox"])
		assert.NoError(t, errors.Unwrap(err))
		noCanary(t, fmt.Sprintf("%v %+v %#v", err, err, err))

		// JU-30: it is retried before the next create, on this provider.
		e.fake.SetHooks(fake.Hooks{})
		e.fake.Forget()
		e.create(t, ordinary())
		var order []fake.Method
		for _, c := range e.fake.Calls() {
			order = append(order, c.Method)
		}
		assert.Equal(t, []fake.Method{fake.MethodList, fake.MethodDestroy, fake.MethodCreate}, order)
		e.fake.Forget()
		e.create(t, ordinary())
		assert.Zero(t, e.fake.Count(fake.MethodDestroy), "once is enough")
	})
	t.Run("JU-28 removal fails once, and again is not tried by a create that is refused", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		e.fake.SetHooks(fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
			if c.Method == fake.MethodWrite || c.Method == fake.MethodDestroy {
				return leaky
			}
			return nil
		}})
		m := protected()
		m.Files = map[string]manifest.File{"f": {}}
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: m})
		require.Error(t, err)
		e.fake.SetHooks(fake.Hooks{})
		e.fake.Forget()
		_, err = e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: with(m, "X", ref("UNGRANTED"))})
		code(t, provider.NotGranted, err)
		e.untouched(t)
	})
	t.Run("a removal that hangs does not hold up the next create for long", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t)
			s := e.create(t, ordinary())
			e.fake.SetHooks(fake.Fail(fake.MethodDestroy, provider.Unavailable))
			require.Error(t, s.Close(t.Context()))
			e.fake.SetHooks(fake.Hang(fake.MethodDestroy))
			begun := time.Now()
			e.create(t, ordinary())
			assert.LessOrEqual(t, time.Since(begun), 10*time.Second+2*host.AnswerGrace)
			e.fake.SetHooks(fake.Hooks{})
		})
	})
	t.Run("a lost answer is adopted when the sandbox runs", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		e.fake.SetHooks(fake.Drop(fake.MethodCreate, provider.Unavailable))
		s := e.create(t, protected())
		assert.Equal(t, 1, e.fake.Count(fake.MethodCreate), "never blindly repeated")
		assert.Equal(t, "[redacted:TOKEN]\n", string(run(t, s, "printenv", "TOKEN").Stdout))
	})
	t.Run("a failed create that made something is cleaned up", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		e.fake.SetHooks(fake.Drop(fake.MethodCreate, provider.ResourceExhausted))
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary()})
		code(t, provider.ResourceExhausted, err)
		e.empty(t)
	})
	t.Run("a cancelled create leaves nothing", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		ctx, cancel := context.WithCancel(t.Context())
		e.fake.SetHooks(fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
			if c.Method == fake.MethodWrite {
				cancel()
			}
			return nil
		}})
		m := ordinary()
		m.Files = map[string]manifest.File{"f": {}}
		_, err := e.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m})
		require.ErrorIs(t, err, context.Canceled)
		e.empty(t)
	})
	t.Run("a provider that answers too late has its sandbox destroyed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t)
			release := make(chan struct{})
			e.fake.SetHooks(fake.Hooks{After: func(_ context.Context, c fake.Call, _ error) error {
				if c.Method == fake.MethodCreate {
					<-release
				}
				return nil
			}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := e.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: ordinary()})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			close(release)
			synctest.Wait()
			e.empty(t)
		})
	})
	t.Run("a panic of the provider is an error without its text", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		e.fake.SetHooks(fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
			if c.Method == fake.MethodCreate {
				panic(tokenCanary)
			}
			return nil
		}})
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: protected()})
		code(t, provider.Internal, err)
		noCanary(t, fmt.Sprintf("%+v", err))
	})
	for _, id := range []string{"PY-26 the binding step throws text", "JU-20 a source throws the secret"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, granted)
			e.source.onLookup(func(string) error { return fmt.Errorf("vault: %s: %w", tokenCanary, errors.New(tokenCanary)) })
			_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: protected()})
			code(t, provider.Unavailable, err)
			for ; err != nil; err = errors.Unwrap(err) {
				noCanary(t, fmt.Sprintf("%v %+v %#v", err, err, err))
			}
			e.untouched(t)
		})
	}
	t.Run("a ledger that cannot write refuses before the provider is touched", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.host.Ledger, s.host.ID = brokenLedger{newLedger()}, "owner" })
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary()})
		code(t, provider.Unavailable, err)
		e.untouched(t)
	})
	t.Run("a ref that holds a value is refused and the sandbox destroyed", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		p := refProvider{Provider: e.fake, ref: provider.Ref{ID: "id-" + tokenCanary}}
		require.NoError(t, e.RegisterTrusted("leaky", &p))
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "leaky", Manifest: protected()})
		code(t, provider.Internal, err)
		noCanary(t, fmt.Sprintf("%+v", err))
		assert.Equal(t, 1, p.destroyed)
	})
}

// empty asserts that the provider and the ledger hold nothing of ours.
func (e *env) empty(t *testing.T) {
	t.Helper()
	list, err := e.fake.List(t.Context(), provider.Query{Owner: e.ID()})
	require.NoError(t, err)
	assert.Empty(t, list)
}

// refProvider gives its sandboxes another ref.
type refProvider struct {
	provider.Provider
	ref       provider.Ref
	destroyed int
}

type refSandbox struct {
	provider.Sandbox
	ref provider.Ref
}

func (s refSandbox) Ref() provider.Ref { return s.ref }

func (p *refProvider) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	sb, err := p.Provider.Create(ctx, req)
	return refSandbox{sb, p.ref}, err
}

func (p *refProvider) Destroy(context.Context, provider.Ref) error {
	p.destroyed++
	return nil
}

func TestKey(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	req := host.CreateRequest{Provider: "fake", Manifest: ordinary(), Key: "key"}
	type answer struct {
		s   *host.Session
		err error
	}
	answers := make(chan answer, 20)
	for range 20 {
		go func() {
			s, err := e.Create(t.Context(), req)
			answers <- answer{s, err}
		}()
	}
	var s *host.Session
	for range 20 {
		a := <-answers
		require.NoError(t, a.err)
		if s == nil {
			s = a.s
		}
		assert.Same(t, s, a.s)
	}
	assert.Equal(t, 1, e.fake.Count(fake.MethodCreate))

	other := req
	other.Manifest = with(ordinary(), "A", manifest.Entry{Literal: "b"})
	_, err := e.Create(t.Context(), other)
	code(t, provider.Conflict, err)

	require.NoError(t, s.Close(t.Context()))
	s2, err := e.Create(t.Context(), req)
	require.NoError(t, err)
	assert.NotSame(t, s, s2, "the key is free again")

	t.Run("a failed create frees the key", func(t *testing.T) {
		e.fake.SetHooks(fake.Fail(fake.MethodCreate, provider.Unavailable))
		again := host.CreateRequest{Provider: "fake", Manifest: ordinary(), Key: "second"}
		_, err := e.Create(t.Context(), again)
		code(t, provider.Unavailable, err)
		e.fake.SetHooks(fake.Hooks{})
		_, err = e.Create(t.Context(), again)
		require.NoError(t, err)
	})
	t.Run("a key of a session that is not live here is not used twice", func(t *testing.T) {
		state, err := s2.Detach(t.Context())
		require.NoError(t, err)
		_, err = e.Create(t.Context(), req)
		code(t, provider.FailedPrecondition, err)
		assert.ErrorContains(t, err, s2.ID())
		s3, err := e.Resume(t.Context(), host.ResumeRequest{State: state})
		require.NoError(t, err)
		s4, err := e.Create(t.Context(), req)
		require.NoError(t, err)
		assert.Same(t, s3, s4, "once it was resumed it is the key's again")
		require.NoError(t, s4.Close(t.Context()))
		s5, err := e.Create(t.Context(), req)
		require.NoError(t, err)
		assert.NotSame(t, s4, s5)
	})
	_, err = e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary(), Key: "a\nb"})
	code(t, provider.InvalidArgument, err)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	t.Run("live sessions", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.host.Limits.Live = 5 })
		results := make(chan error, 20)
		for range 20 {
			go func() {
				_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary()})
				results <- err
			}()
		}
		made := 0
		for range 20 {
			if err := <-results; err == nil {
				made++
			} else {
				assert.ErrorIs(t, err, provider.ErrResourceExhausted)
			}
		}
		assert.Equal(t, 5, made)
		assert.Equal(t, 5, e.fake.Count(fake.MethodCreate), "refused before the provider is touched")
		require.NoError(t, e.Sessions()[0].Close(t.Context()))
		e.create(t, ordinary())
	})
	t.Run("pending creates", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.host.Limits.Pending = 1 })
		started, release := make(chan struct{}), make(chan struct{})
		e.fake.SetHooks(fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
			if c.Method == fake.MethodCreate {
				close(started)
				<-release
			}
			return nil
		}})
		done := make(chan error)
		go func() {
			_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary()})
			done <- err
		}()
		<-started
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary()})
		code(t, provider.ResourceExhausted, err)
		close(release)
		require.NoError(t, <-done)
	})
	t.Run("commands", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.host.Limits.Execs = 1 })
		s := e.create(t, ordinary())
		for range 20 {
			run(t, s, "true") // a slot is free by the time that Exec returns
		}
		p, err := s.Start(t.Context(), host.ExecRequest{Args: []string{"sleep", "600"}})
		require.NoError(t, err)
		_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
		code(t, provider.ResourceExhausted, err)
		require.NoError(t, p.Kill(t.Context()))
		run(t, s, "true")
	})
}

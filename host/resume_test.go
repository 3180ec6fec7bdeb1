package host_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
)

func sharedWorkspace(s *setup) {
	describe(func(d *provider.Description) { d.Features.SharedWorkspace = true })(s)
}

// resume resumes with the current manifest.
func (e *env) resume(t *testing.T, state []byte, m manifest.Manifest) (*host.Session, error) {
	t.Helper()
	return e.Resume(t.Context(), host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
}

// left returns the ids of the sandboxes that the provider has.
func (e *env) left(t *testing.T) []string {
	t.Helper()
	list, err := e.fake.List(t.Context(), provider.Query{})
	require.NoError(t, err)
	out := []string{}
	for _, r := range list {
		out = append(out, r.Ref.ID)
	}
	return out
}

// A protected session is resumed by a replacement.
func TestResumeProtected(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]func(*setup){"moved": func(*setup) {}, "shared": sharedWorkspace} {
		for _, live := range []bool{true, false} {
			t.Run(fmt.Sprintf("JU-01c rotation, workspace %s, live %v", name, live), func(t *testing.T) {
				t.Parallel()
				e := newEnv(t, granted, opt)
				m := protected()
				m.Files = map[string]manifest.File{"made": {Content: []byte("first")}, "deleted": {}}
				s := e.create(t, m)
				r, err := s.Exec(t.Context(), host.ExecRequest{Shell: `echo "$TOKEN" > secret; print changed > made`})
				require.NoError(t, err)
				require.Zero(t, r.ExitCode)
				require.NoError(t, s.Remove(t.Context(), "deleted", false))
				state, err := s.State(t.Context())
				require.NoError(t, err)
				if !live {
					state, err = s.Detach(t.Context())
					require.NoError(t, err)
				}
				e.source.set("HOST_TOKEN", rotatedCanary)
				previous := s.Info().Sandbox

				s2, err := e.resume(t, state, m)
				require.NoError(t, err)
				assert.Equal(t, s.ID(), s2.ID())
				assert.NotEqual(t, previous, s2.Info().Sandbox)
				assert.Equal(t, []string{s2.Info().Sandbox}, e.left(t), "the previous one is gone")
				assert.Equal(t, "[redacted:TOKEN]\n", string(run(t, s2, "printenv", "TOKEN").Stdout))
				execs := e.fake.Execs()
				assert.True(t, execs[len(execs)-1].Got("TOKEN", value(rotatedCanary)), "the value was read again")
				d, err := s2.ReadFile(t.Context(), "made")
				require.NoError(t, err)
				assert.Equal(t, "changed", string(d.Data))
				_, err = s2.Stat(t.Context(), "deleted")
				code(t, provider.NotFound, err)
				assert.Equal(t, 26, len(tokenCanary)+3)
				info, err := s2.Stat(t.Context(), "secret")
				require.NoError(t, err)
				assert.Equal(t, int64(len(tokenCanary)+1), info.Size, "the workspace moves unredacted")
				_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
				require.Error(t, err, "the old handle is dead")
				require.NoError(t, s.Close(t.Context()), "and closing it does no harm")
				run(t, s2, "true")
				got, ok := e.Session(s.ID())
				require.True(t, ok)
				assert.Same(t, s2, got)
				if live {
					d, err := s2.ReadFile(t.Context(), "secret")
					require.NoError(t, err)
					noCanary(t, string(d.Data)) // the old value stays known
				}
				state2, err := s2.State(t.Context())
				require.NoError(t, err)
				noCanary(t, string(state2))
				require.NoError(t, s2.Close(t.Context()))
				assert.Empty(t, e.left(t))
			})
		}
	}
	t.Run("concurrent resumes make one replacement", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t, granted)
			s := e.create(t, protected())
			state, err := s.Detach(t.Context())
			require.NoError(t, err)
			release := make(chan struct{})
			e.fake.SetHooks(fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
				if c.Method == fake.MethodCreate {
					<-release
				}
				return nil
			}})
			type answer struct {
				s   *host.Session
				err error
			}
			answers := make(chan answer, 10)
			m := protected()
			for range 10 {
				go func() {
					s, err := e.Resume(context.Background(), host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
					answers <- answer{s, err}
				}()
			}
			synctest.Wait() // all of them are under way: one that came later would have an old state
			assert.Equal(t, 2, e.fake.Count(fake.MethodCreate))
			_, err = e.Resume(t.Context(), host.ResumeRequest{State: state, Provider: "fake", Manifest: &m, Grants: &grants.Set{}})
			code(t, provider.Conflict, err)
			close(release)
			var first *host.Session
			for range 10 {
				a := <-answers
				require.NoError(t, a.err)
				if first == nil {
					first = a.s
				}
				assert.Same(t, first, a.s)
			}
			assert.Equal(t, 2, e.fake.Count(fake.MethodCreate))
			assert.Len(t, e.left(t), 1)
			_, err = e.Resume(t.Context(), host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
			code(t, provider.Conflict, err)
		})
	})
	t.Run("a replacement that fails leaves the previous one as it was", func(t *testing.T) {
		t.Parallel()
		for name, opt := range map[string]func(*setup){"moved": func(*setup) {}, "shared": sharedWorkspace} {
			for _, m := range []fake.Method{fake.MethodCreate, fake.MethodExport, fake.MethodImport, fake.MethodOpen, fake.MethodPause} {
				if name == "shared" && (m == fake.MethodExport || m == fake.MethodImport) || name == "moved" && m == fake.MethodPause {
					continue
				}
				e := newEnv(t, granted, opt)
				s := e.create(t, protected())
				previous := s.Info().Sandbox
				state, err := s.State(t.Context())
				require.NoError(t, err)
				e.fake.SetHooks(failWith(m, &provider.Error{Code: provider.ResourceExhausted, Message: tokenCanary}))
				_, err = e.resume(t, state, protected())
				var le *host.LifecycleError
				require.ErrorAs(t, err, &le, "%s %s", name, m)
				assert.Equal(t, provider.ResourceExhausted, le.Code)
				assert.Equal(t, previous, le.Facts["previous"])
				noCanary(t, fmt.Sprintf("%+v", err))
				e.fake.SetHooks(fake.Hooks{})
				assert.Equal(t, []string{previous}, e.left(t))
				got, ok := e.Session(s.ID())
				require.True(t, ok)
				assert.Same(t, s, got)
				assert.Equal(t, "hello\n", string(run(t, s, "printenv", "GREETING").Stdout), "it goes on")
				st, err := s.Status(t.Context())
				require.NoError(t, err)
				assert.Equal(t, provider.StateRunning, st.State)
			}
		}
	})
	t.Run("JU-10 the previous one cannot be removed", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		state, err := s.Detach(t.Context())
		require.NoError(t, err)
		e.fake.SetHooks(failWith(fake.MethodDestroy, &provider.Error{Code: provider.Unavailable, Message: tokenCanary}))
		s2, err := e.resume(t, state, protected())
		var re *host.RetirementError
		require.ErrorAs(t, err, &re)
		require.NotNil(t, s2, "the replacement is kept")
		assert.Equal(t, []string{s.Info().Sandbox}, re.Previous)
		assert.Equal(t, s2.Info().Sandbox, re.Replacement)
		assert.ErrorIs(t, err, provider.ErrUnavailable)
		noCanary(t, fmt.Sprintf("%v %+v", err, re))
		run(t, s2, "true")
		e.fake.SetHooks(fake.Hooks{})
		e.create(t, ordinary()) // the next create tries again
		assert.NotContains(t, e.left(t), s.Info().Sandbox)
	})
	t.Run("a provider that cannot move the workspace refuses before creating anything", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted, describe(func(d *provider.Description) { d.Features.WorkspaceMove = provider.SupportNone }))
		s := e.create(t, protected())
		require.NoError(t, s.WriteFile(t.Context(), "f", nil, host.WriteOptions{}))
		state, err := s.Detach(t.Context())
		require.NoError(t, err)
		_, err = e.resume(t, state, protected())
		code(t, provider.Unsupported, err)
		assert.Equal(t, 1, e.fake.Count(fake.MethodCreate))
		m := protected()
		s2, err := e.Resume(t.Context(), host.ResumeRequest{State: state, Provider: "fake", Manifest: &m, DiscardWorkspace: true})
		require.NoError(t, err)
		_, err = s2.Stat(t.Context(), "f")
		code(t, provider.NotFound, err)
	})
	t.Run("PY-24 the previous one is gone: refused before any source is read", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		state, err := s.Detach(t.Context())
		require.NoError(t, err)
		require.NoError(t, e.fake.Destroy(t.Context(), provider.Ref{ID: s.Info().Sandbox}))
		before := len(e.source.lookups)
		_, err = e.resume(t, state, protected())
		code(t, provider.FailedPrecondition, err)
		assert.Len(t, e.source.lookups, before)
		m := protected()
		_, err = e.Resume(t.Context(), host.ResumeRequest{State: state, Provider: "fake", Manifest: &m, DiscardWorkspace: true})
		require.NoError(t, err)
	})
	t.Run("JU-25 a source that fails is masked, nothing is made", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		state, err := s.Detach(t.Context())
		require.NoError(t, err)
		e.source.onLookup(func(string) error { return errors.New(tokenCanary) })
		e.fake.Forget()
		_, err = e.resume(t, state, protected())
		code(t, provider.Unavailable, err)
		noCanary(t, fmt.Sprintf("%+v", err))
		for _, c := range e.fake.Calls() {
			assert.Equal(t, fake.MethodList, c.Method)
		}
	})
	t.Run("current grants are needed", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		state, err := s.Detach(t.Context())
		require.NoError(t, err)
		require.NoError(t, e.SetGrants(grants.Set{}))
		_, err = e.resume(t, state, protected())
		code(t, provider.NotGranted, err)
		assert.Equal(t, 1, e.fake.Count(fake.MethodCreate))
	})
	t.Run("provider and manifest are needed from the caller", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		state, err := s.Detach(t.Context())
		require.NoError(t, err)
		e.fake.Forget()
		m := protected()
		for _, req := range []host.ResumeRequest{{State: state}, {State: state, Provider: "fake"}, {State: state, Manifest: &m}} {
			_, err = e.Resume(t.Context(), req)
			code(t, provider.InvalidArgument, err)
		}
		e.untouched(t)
	})
}

// A state says whose it claims to be; everything else in it is only compared.
func TestHostileState(t *testing.T) {
	t.Parallel()
	other := func(e *env) string {
		return e.fake.Plant("victim", map[string]string{provider.LabelOwner: "other", provider.LabelSession: "0123456789abcdef0123456789abcdef"}).ID
	}
	for name, c := range map[string]struct {
		edit func(*env, map[string]any)
		want provider.Code
	}{
		"another sandbox's ref": {func(e *env, d map[string]any) { d["sandbox"] = map[string]any{"id": other(e)} }, provider.Conflict},
		"another session's id":  {func(_ *env, d map[string]any) { d["sessionId"] = "0123456789abcdef0123456789abcdef" }, provider.NotFound},
		"another provider":      {func(_ *env, d map[string]any) { d["provider"] = "elsewhere" }, provider.Conflict},
		"another root":          {func(_ *env, d map[string]any) { d["manifest"].(map[string]any)["root"] = "/etc" }, provider.Conflict},
		"a grant":               {func(_ *env, d map[string]any) { d["allowedProcessEnvironmentKeys"] = []any{"A"} }, provider.InvalidArgument},
		"a grant inside": {func(_ *env, d map[string]any) {
			d["sandbox"].(map[string]any)["data"] = map[string]any{"process_environment_bindings": 1}
		}, provider.InvalidArgument},
		"an unknown field":          {func(_ *env, d map[string]any) { d["endpoint"] = "https://evil.example" }, provider.InvalidArgument},
		"another version":           {func(_ *env, d map[string]any) { d["version"] = 2 }, provider.InvalidArgument},
		"a session id that is none": {func(_ *env, d map[string]any) { d["sessionId"] = "../../x" }, provider.InvalidArgument},
		"a null protected":          {func(_ *env, d map[string]any) { d["protected"] = nil }, provider.InvalidArgument},
	} {
		for _, m := range []manifest.Manifest{ordinary(), protected()} {
			t.Run(fmt.Sprintf("%s, protected %v", name, len(m.Pairs()) > 0), func(t *testing.T) {
				t.Parallel()
				e := newEnv(t, granted)
				s := e.create(t, m)
				state, err := s.Detach(t.Context())
				require.NoError(t, err)
				state = edit(t, state, func(d map[string]any) { c.edit(e, d) })
				e.fake.Forget()
				req := host.ResumeRequest{State: state, Provider: "fake"}
				if len(m.Pairs()) > 0 {
					req.Manifest = &m
				}
				_, err = e.Resume(t.Context(), req)
				code(t, c.want, err)
				for _, call := range e.fake.Calls() {
					assert.Equal(t, fake.MethodList, call.Method, "nothing but a look at the labels")
				}
			})
		}
	}
	t.Run("no ledger record, but the labels prove it", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted, func(s *setup) { s.host.ID = "owner" })
		s := e.create(t, ordinary())
		sp := e.create(t, protected())
		state, err := s.Detach(t.Context())
		require.NoError(t, err)
		stateP, err := sp.Detach(t.Context())
		require.NoError(t, err)
		h, err := host.New(host.Options{ID: "owner", Source: e.source, Grants: tokenGrant()})
		require.NoError(t, err)
		defer func() { assert.NoError(t, h.Close(t.Context())) }()
		require.NoError(t, h.RegisterTrusted("fake", e.fake))
		s2, err := h.Resume(t.Context(), host.ResumeRequest{State: state})
		require.NoError(t, err)
		run(t, s2, "true")
		m := protected()
		s3, err := h.Resume(t.Context(), host.ResumeRequest{State: stateP, Provider: "fake", Manifest: &m})
		require.NoError(t, err)
		assert.NotEqual(t, sp.Info().Sandbox, s3.Info().Sandbox)
		assert.NotContains(t, e.left(t), sp.Info().Sandbox)

		// Turning the protected one into an ordinary one in both documents does
		// not help: its label says what it is.
		lie := edit(t, stateP, func(d map[string]any) { delete(environmentOf(d), "TOKEN"); d["protected"] = []any{} })
		h2, err := host.New(host.Options{ID: "owner"})
		require.NoError(t, err)
		defer func() { assert.NoError(t, h2.Close(t.Context())) }()
		require.NoError(t, h2.RegisterTrusted("fake", e.fake))
		o := ordinary()
		lie = edit(t, lie, func(d map[string]any) { d["sandbox"] = map[string]any{"id": s3.Info().Sandbox} })
		_, err = h2.Resume(t.Context(), host.ResumeRequest{State: lie, Provider: "fake", Manifest: &o})
		code(t, provider.Conflict, err)

		// Another owner proves nothing.
		h3, err := host.New(host.Options{ID: "somebody"})
		require.NoError(t, err)
		defer func() { assert.NoError(t, h3.Close(t.Context())) }()
		require.NoError(t, h3.RegisterTrusted("fake", e.fake))
		_, err = h3.Resume(t.Context(), host.ResumeRequest{State: state})
		code(t, provider.NotFound, err)
	})
	t.Run("a sandbox that is being removed is not resumed", func(t *testing.T) {
		t.Parallel()
		led := newLedger()
		e := newEnv(t, func(s *setup) { s.host.ID, s.host.Ledger = "owner", led })
		s := e.create(t, ordinary())
		state, err := s.State(t.Context())
		require.NoError(t, err)
		e.fake.SetHooks(fake.Fail(fake.MethodDestroy, provider.Unavailable))
		require.Error(t, s.Close(t.Context()))
		recs, err := led.Session(t.Context(), s.ID())
		require.NoError(t, err)
		require.Equal(t, ledger.Retiring, recs[0].Phase)
		assert.Equal(t, string(provider.Unavailable), recs[0].LastError)
		_, err = e.Resume(t.Context(), host.ResumeRequest{State: state})
		code(t, provider.NotFound, err)
	})
}

func FuzzState(f *testing.F) {
	h, err := host.New(host.Options{})
	if err != nil {
		f.Fatal(err)
	}
	p := fake.New(fake.Options{})
	if err := h.RegisterTrusted("fake", p); err != nil {
		f.Fatal(err)
	}
	s, err := h.Create(context.Background(), host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	if err != nil {
		f.Fatal(err)
	}
	state, err := s.State(context.Background())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = h.Close(context.Background()) })
	f.Add(state)
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"version":1}`))
	f.Add([]byte(`{"version":1,"sessionId":"0123456789abcdef0123456789abcdef","provider":"fake","manifest":{"version":1,"environment":[]},"protected":[],"sandbox":{"id":"x"}}`))
	f.Add([]byte(`{"manifest":{"environment":{"A":{"type":"process_env"}}}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := host.ParseState(data)
		if err != nil {
			if c := provider.CodeOf(err); c != provider.InvalidArgument {
				t.Fatalf("code %s", c)
			}
			return
		}
		// What is accepted is a valid manifest that survives a round trip.
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		doc, err := m.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := manifest.Parse(doc)
		if err != nil || again.Digest() != m.Digest() {
			t.Fatalf("round trip: %v", err)
		}
	})
}

// Once the replacement is in place there is no way back: a caller that gives up then
// gets it all the same, and the previous sandbox is retired.
func TestResumeGivenUpAtTheEnd(t *testing.T) {
	t.Parallel()
	e := newEnv(t, granted)
	m := protected()
	s := e.create(t, m)
	state, err := s.State(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	asked := false
	e.fake.SetHooks(fake.Hooks{Before: func(ctx context.Context, c fake.Call) error {
		if c.Method != fake.MethodDestroy {
			return nil
		}
		asked = true
		cancel()
		return ctx.Err()
	}})
	s2, err := e.Resume(ctx, host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
	require.NoError(t, err)
	assert.True(t, asked)
	assert.Equal(t, []string{s2.Info().Sandbox}, e.left(t), "the previous one is gone")
}

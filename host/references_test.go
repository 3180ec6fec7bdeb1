package host_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
)

// What a state and the current manifest declare must agree before anything of a
// provider, or any source, is touched.
func TestResumeMismatch(t *testing.T) {
	t.Parallel()
	literal := func(m map[string]any) { environmentOf(m)["TOKEN"] = "plain" }
	cases := []struct {
		name string
		made manifest.Manifest // the session's
		edit func(map[string]any)
		now  manifest.Manifest
	}{
		{"JR-01 trusted manifest adds a reference to an ordinary state", ordinary(), nil, protected()},
		{"JR-04 trusted manifest adds a reference to an ordinary entry", ordinary(), nil, with(ordinary(), "OTHER", ref("HOST_TOKEN"))},
		{"JR-07b trusted manifest points to another source", protected(), nil, with(protected(), "TOKEN", ref("OTHER_TOKEN"))},
		{"JR-08a state has a reference, manifest a literal", protected(), nil, with(protected(), "TOKEN", manifest.Entry{Literal: "plain"})},
		{"JR-08b state has a reference, manifest names another source", protected(),
			func(d map[string]any) {
				environmentOf(d)["TOKEN"] = map[string]any{"type": "process_env", "name": "ELSEWHERE"}
			}, protected()},
		{"JR-09a persisted manifest has no environment, trusted a reference", protected(),
			func(d map[string]any) { delete(d["manifest"].(map[string]any), "environment") }, protected()},
		{"JR-09a persisted environment is null", protected(),
			func(d map[string]any) { d["manifest"].(map[string]any)["environment"] = nil }, protected()},
		{"JR-09a persisted environment is an array", protected(),
			func(d map[string]any) { d["manifest"].(map[string]any)["environment"] = []any{} }, protected()},
		{"JU-01h restored reference was turned into a literal", protected(), literal, protected()},
		{"PY-15 a reference was removed", protected(), nil, ordinary()},
		{"PY-15 a reference was renamed", protected(), nil, with(ordinary(), "TOKEN2", ref("HOST_TOKEN"))},
		{"HO state and manifest both dropped the reference that the ledger knows", protected(),
			func(d map[string]any) { delete(environmentOf(d), "TOKEN"); d["protected"] = []any{} }, ordinary()},
		{"HO state and manifest both gained a reference that the ledger does not know", ordinary(),
			func(d map[string]any) {
				environmentOf(d)["TOKEN"] = map[string]any{"type": "process_env", "name": "HOST_TOKEN"}
				d["protected"] = []any{"TOKEN"}
			}, protected()},
		{"HO protected lists what the manifest does not", protected(), func(d map[string]any) { d["protected"] = []any{"OTHER", "TOKEN"} }, protected()},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, granted)
			s := e.create(t, c.made)
			state, err := s.Detach(t.Context())
			require.NoError(t, err)
			if c.edit != nil {
				state = edit(t, state, c.edit)
			}
			e.fake.Forget()
			before := len(e.source.lookups)

			all := grants.Set{ProcessEnvironmentBindings: map[string]string{"TOKEN": "HOST_TOKEN", "OTHER": "HOST_TOKEN", "TOKEN2": "HOST_TOKEN"}}
			_, err = e.Resume(t.Context(), host.ResumeRequest{State: state, Provider: "fake", Manifest: &c.now, Grants: &all})
			code(t, provider.Conflict, err)
			e.untouched(t)
			assert.Len(t, e.source.lookups, before, "a source was read")
		})
	}

	t.Run("JR-11 persisted mounts differ", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		e := newEnv(t, granted, func(s *setup) { s.host.HostPathRoots = []string{dir} },
			describe(func(d *provider.Description) { d.Features.PathGrants = provider.SupportEnforced }))
		s := e.create(t, protected())
		state, err := s.Detach(t.Context())
		require.NoError(t, err)
		e.fake.Forget()
		before := len(e.source.lookups)
		now := protected()
		now.PathGrants = []manifest.PathGrant{{Path: "/data", HostPath: dir, ReadOnly: true}}
		_, err = e.Resume(t.Context(), host.ResumeRequest{State: state, Provider: "fake", Manifest: &now})
		code(t, provider.Conflict, err)
		e.untouched(t)
		assert.Len(t, e.source.lookups, before)
	})
}

// A provider that is not trusted never sees anything of a manifest with
// references, whatever it declares and whoever granted what.
func TestUntrustedProviderIsNotTouched(t *testing.T) {
	t.Parallel()
	newUntrusted := func(t *testing.T) *env {
		t.Helper()
		// The fake declares both transports: that has no weight.
		return newEnv(t, untrusted, granted)
	}
	refused := func(t *testing.T, e *env, err error) {
		t.Helper()
		code(t, provider.Unsupported, err)
		assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
		e.untouched(t)
		e.source.unread(t)
	}
	for _, id := range []string{
		"JR-16 a provider that could bind by itself, with a grant",
		"JE-01 a reference whose source is set",
		"JY-01 create", "PY-42 a bound reference", "PY-44 create",
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			e := newUntrusted(t)
			set := tokenGrant()
			_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: protected(), Grants: &set})
			refused(t, e, err)
		})
	}
	resume := func(t *testing.T, state, now manifest.Manifest) {
		t.Helper()
		e := newUntrusted(t)
		s := e.create(t, ordinary())
		doc, err := s.Detach(t.Context())
		require.NoError(t, err)
		doc = edit(t, doc, func(d map[string]any) {
			raw, err := json.Marshal(state)
			require.NoError(t, err)
			var m any
			require.NoError(t, json.Unmarshal(raw, &m))
			d["manifest"] = m
			d["protected"] = names(state)
		})
		e.fake.Forget()
		_, err = e.Resume(t.Context(), host.ResumeRequest{State: doc, Provider: "fake", Manifest: &now})
		refused(t, e, err)
	}
	for _, c := range []struct {
		name       string
		state, now manifest.Manifest
	}{
		{"JR-02 state and manifest both have the reference", protected(), protected()},
		{"JR-05 only the state has the reference", protected(), ordinary()},
		{"JX-02 a record with a reference", protected(), protected()},
		{"JY-02 state with a reference", protected(), ordinary()},
		{"PY-43 state after a round trip", protected(), protected()},
		{"PY-44 resume", protected(), protected()},
		{"only the manifest has the reference", ordinary(), protected()},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			resume(t, c.state, c.now)
		})
	}
	for _, c := range []struct {
		name string
		op   func(*testing.T, *host.Session) error
	}{
		{"JR-17a serialise to detach", func(t *testing.T, s *host.Session) error { _, err := s.Detach(t.Context()); return err }},
		{"JR-17b serialise", func(t *testing.T, s *host.Session) error { _, err := s.State(t.Context()); return err }},
		{"JX-02 serialise after the manifest was swapped", func(t *testing.T, s *host.Session) error { _, err := s.State(t.Context()); return err }},
		{"JX-01 write a file after the manifest was swapped", func(t *testing.T, s *host.Session) error {
			return s.WriteFile(t.Context(), "f", []byte("x"), host.WriteOptions{})
		}},
		{"JY-03 run a command after the manifest was swapped", func(t *testing.T, s *host.Session) error {
			_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newUntrusted(t)
			s := e.create(t, ordinary())
			e.fake.Forget()
			host.SetManifest(s, protected())
			refused(t, e, c.op(t, s))
			host.SetManifest(s, ordinary())
		})
	}
}

func names(m manifest.Manifest) []string {
	out := []string{}
	for _, p := range m.Pairs() {
		out = append(out, p.Destination)
	}
	return out
}

func TestResumeOfAnOrdinarySession(t *testing.T) {
	t.Parallel()
	t.Run("JR-10 legacy state without environment, untrusted provider, literal from the manifest", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, untrusted)
		m := ordinary()
		m.Environment = nil
		s := e.create(t, m)
		state, err := s.Detach(t.Context())
		require.NoError(t, err)
		state = edit(t, state, func(d map[string]any) { delete(d["manifest"].(map[string]any), "environment") })
		e.fake.Forget()
		now := with(m, "GREETING", manifest.Entry{Literal: "from the trusted manifest"})
		s2, err := e.Resume(t.Context(), host.ResumeRequest{State: state, Manifest: &now})
		require.NoError(t, err)
		assert.Equal(t, 1, e.fake.Count(fake.MethodOpen))
		assert.Zero(t, e.fake.Count(fake.MethodCreate))
		assert.Equal(t, s.ID(), s2.ID())
		assert.Equal(t, "from the trusted manifest\n", string(run(t, s2, "printenv", "GREETING").Stdout))
	})
	t.Run("re-attaches to the same sandbox with its files", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		require.NoError(t, s.WriteFile(t.Context(), "kept", []byte("data"), host.WriteOptions{}))
		state, err := s.Detach(t.Context())
		require.NoError(t, err)
		_, live := e.Session(s.ID())
		assert.False(t, live)
		_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
		code(t, provider.FailedPrecondition, err)
		s2, err := e.Resume(t.Context(), host.ResumeRequest{State: state})
		require.NoError(t, err)
		d, err := s2.ReadFile(t.Context(), "kept")
		require.NoError(t, err)
		assert.Equal(t, "data", string(d.Data))
		assert.Equal(t, s.Info().Sandbox, s2.Info().Sandbox)
		again, err := e.Resume(t.Context(), host.ResumeRequest{State: state})
		require.NoError(t, err)
		assert.Same(t, s2, again, "a live session is returned as it is")
		other := with(ordinary(), "GREETING", manifest.Entry{Literal: "other"})
		_, err = e.Resume(t.Context(), host.ResumeRequest{State: state, Manifest: &other})
		code(t, provider.Conflict, err)
	})
	t.Run("a sandbox that is gone is NotFound and not made again", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		state, err := s.Detach(t.Context())
		require.NoError(t, err)
		require.NoError(t, e.fake.Destroy(t.Context(), provider.Ref{ID: s.Info().Sandbox}))
		_, err = e.Resume(t.Context(), host.ResumeRequest{State: state})
		code(t, provider.NotFound, err)
		assert.Equal(t, 1, e.fake.Count(fake.MethodCreate))
	})
	for _, c := range []struct {
		name string
		edit func(*manifest.Manifest)
	}{
		{"image", func(m *manifest.Manifest) { m.Image = "other" }},
		{"root", func(m *manifest.Manifest) { m.Root = "/other" }},
		{"ports", func(m *manifest.Manifest) { m.Ports = []int{1} }},
		{"network", func(m *manifest.Manifest) { m.Network = manifest.NetworkDefault }},
		{"resources", func(m *manifest.Manifest) { m.Resources.PIDs = 5 }},
	} {
		t.Run("refuses another "+c.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			s := e.create(t, ordinary())
			state, err := s.Detach(t.Context())
			require.NoError(t, err)
			e.fake.Forget()
			m := ordinary()
			c.edit(&m)
			_, err = e.Resume(t.Context(), host.ResumeRequest{State: state, Manifest: &m})
			code(t, provider.Conflict, err)
			e.untouched(t)
		})
	}
}

// The very error of an ordinary operation comes through.
func TestOrdinaryErrorsAreUntouched(t *testing.T) {
	t.Parallel()
	x := errors.New("error object X")
	fail := func(m fake.Method) fake.Hooks { return failWith(m, x) }
	t.Run("JR-12 a mutation throws X", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		e.fake.SetHooks(fail(fake.MethodWrite))
		err := s.WriteFile(t.Context(), "f", []byte("x"), host.WriteOptions{})
		assert.True(t, err == x, "%v", err)
	})
	t.Run("PY-40 the host has grants, the manifest has no reference", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		e.fake.SetHooks(fail(fake.MethodCreate))
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary()})
		assert.True(t, err == x, "%v", err)
	})
	t.Run("errors.As finds the provider's error", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		_, err := s.ReadFile(t.Context(), "absent")
		var pe *provider.Error
		require.ErrorAs(t, err, &pe)
		assert.Equal(t, provider.NotFound, pe.Code)
	})
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	plant := func(e *env, protectedLabel string) provider.Ref {
		return e.fake.Plant("theirs", map[string]string{
			provider.LabelOwner: "somebody-else", provider.LabelProtected: protectedLabel, provider.LabelSession: "s",
		})
	}
	t.Run("JR-18 PY-41 the injected sandbox has protected values", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		ref := plant(e, "1")
		_, err := e.Adopt(t.Context(), host.AdoptRequest{Provider: "fake", Ref: ref, Manifest: ordinary()})
		code(t, provider.Unsupported, err)
		for _, c := range e.fake.Calls() {
			assert.Equal(t, fake.MethodList, c.Method, "only its labels may be looked at")
		}
	})
	t.Run("JR-18 a session of this host's own with a reference", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		e.fake.Forget()
		_, err := e.Adopt(t.Context(), host.AdoptRequest{Provider: "fake", Ref: provider.Ref{ID: s.Info().Sandbox}, Manifest: ordinary()})
		code(t, provider.Unsupported, err)
		e.untouched(t)
	})
	for _, set := range []*grants.Set{nil, ptr(tokenGrant())} {
		t.Run("JR-19 an ordinary sandbox and a manifest with a reference", func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			if set != nil {
				require.NoError(t, e.SetGrants(*set))
			}
			ref := plant(e, "0")
			e.fake.Forget()
			_, err := e.Adopt(t.Context(), host.AdoptRequest{Provider: "fake", Ref: ref, Manifest: protected()})
			code(t, provider.Unsupported, err)
			e.untouched(t)
			e.source.unread(t)
		})
	}
	t.Run("an ordinary one works and stays its maker's", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		ref := plant(e, "0")
		s, err := e.Adopt(t.Context(), host.AdoptRequest{Provider: "fake", Ref: ref, Manifest: ordinary()})
		require.NoError(t, err)
		assert.Equal(t, "hello\n", string(run(t, s, "printenv", "GREETING").Stdout))
		_, err = s.State(t.Context())
		code(t, provider.FailedPrecondition, err)
		require.NoError(t, s.Close(t.Context()))
		assert.Zero(t, e.fake.Count(fake.MethodDestroy))
		_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
		code(t, provider.FailedPrecondition, err)
	})
	t.Run("this host's own is AlreadyExists", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		_, err := e.Adopt(t.Context(), host.AdoptRequest{Provider: "fake", Ref: provider.Ref{ID: s.Info().Sandbox}, Manifest: ordinary()})
		code(t, provider.AlreadyExists, err)
	})
}

func ptr[T any](v T) *T { return &v }

// No reference, manifest or earlier success carries authority.
func TestAuthority(t *testing.T) {
	t.Parallel()
	none := &grants.Set{AllowedProcessEnvironmentKeys: []string{}, ProcessEnvironmentBindings: map[string]string{}}
	refused := func(t *testing.T, e *env, lookups int, err error) {
		t.Helper()
		code(t, provider.NotGranted, err)
		var ge *grants.Error
		require.ErrorAs(t, err, &ge)
		e.untouched(t)
		assert.Len(t, e.source.lookups, lookups, "a value was read")
	}
	create := func(t *testing.T, e *env, m manifest.Manifest, set *grants.Set) error {
		t.Helper()
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: m, Grants: set})
		return err
	}
	t.Run("HO-01 the same reference value in another manifest", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		r := manifest.Entry{Reference: &manifest.Reference{Name: "HOST_TOKEN"}}
		a, b := with(ordinary(), "TOKEN", r), with(manifest.New(), "TOKEN", r)
		require.NoError(t, create(t, e, a, ptr(tokenGrant())))
		e.fake.Forget()
		refused(t, e, 1, create(t, e, b, nil))
	})
	t.Run("HO-02 the same reference under another destination", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		r := manifest.Entry{Reference: &manifest.Reference{Name: "HOST_TOKEN"}}
		err := create(t, e, with(with(manifest.New(), "TOKEN", r), "EXFIL", r), nil)
		refused(t, e, 0, err)
		assert.ErrorContains(t, err, "EXFIL")
		assert.NotContains(t, err.Error(), "TOKEN (from")
		require.NoError(t, create(t, e, with(manifest.New(), "TOKEN", r), nil))
	})
	t.Run("HO-03 references in a live session without a binding", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		e.fake.Forget()
		host.SetManifest(s, with(protected(), "SECOND", ref("OTHER")))
		_, err := s.State(t.Context())
		code(t, provider.NotGranted, err)
		assert.ErrorContains(t, err, "TOKEN")
		assert.ErrorContains(t, err, "SECOND")
		e.untouched(t)
		host.SetManifest(s, ordinary())
	})
	t.Run("HO-03 a changed manifest lists all references", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		e.fake.Forget()
		host.SetManifest(s, with(protected(), "SECOND", ref("OTHER")))
		_, err := s.State(t.Context())
		code(t, provider.NotGranted, err)
		assert.ErrorContains(t, err, "TOKEN")
		assert.ErrorContains(t, err, "SECOND")
		_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
		code(t, provider.NotGranted, err)
		e.untouched(t)
		host.SetManifest(s, protected())
	})
	t.Run("JM-04a the reference was deleted from a live session's manifest", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		m := with(protected(), "SECOND", ref("HOST_TOKEN"))
		set := grants.Set{ProcessEnvironmentBindings: map[string]string{"TOKEN": "HOST_TOKEN", "SECOND": "HOST_TOKEN"}}
		s, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: m, Grants: &set})
		require.NoError(t, err)
		host.SetManifest(s, protected())
		_, err = s.State(t.Context())
		code(t, provider.NotGranted, err)
		assert.ErrorContains(t, err, "SECOND")
		host.SetManifest(s, m)
	})
	t.Run("HO-04 a bare template serialises and stays unbound", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		doc, err := json.Marshal(protected())
		require.NoError(t, err)
		noCanary(t, string(doc))
		m, err := manifest.Parse(doc)
		require.NoError(t, err)
		refused(t, e, 0, create(t, e, m, nil))
	})
	t.Run("HO-05 a failed bind leaves no authority", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		set := tokenGrant()
		refused(t, e, 0, create(t, e, with(protected(), "SECOND", ref("OTHER")), &set))
		refused(t, e, 0, create(t, e, protected(), nil))
	})
	t.Run("HO-07 no form of copy carries authority", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		a := protected()
		require.NoError(t, create(t, e, a, ptr(tokenGrant())))
		doc, err := json.Marshal(a)
		require.NoError(t, err)
		parsed, err := manifest.Parse(doc)
		require.NoError(t, err)
		merged := ordinary()
		merged.Environment["TOKEN"] = a.Environment["TOKEN"]
		for form, m := range map[string]manifest.Manifest{"same": a, "clone": a.Clone(), "JSON": parsed, "merge": merged} {
			t.Log(form)
			e.fake.Forget()
			refused(t, e, 1, create(t, e, m, nil))
		}
	})
	t.Run("HO-11 grants reloaded between bind and create", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		e.source.onLookup(func(string) error { return e.SetGrants(grants.Set{}) })
		err := create(t, e, protected(), nil)
		refused(t, e, 1, err)
	})
	t.Run("HO-11 grants reloaded just before the provider is asked", func(t *testing.T) {
		t.Parallel()
		var e *env
		e = newEnv(t, granted, func(s *setup) {
			s.host.Ledger = putHook{Ledger: newLedger(), f: func() { _ = e.SetGrants(grants.Set{}) }}
			s.host.ID = "owner"
		})
		err := create(t, e, protected(), nil)
		// The intent is in the ledger before the provider is asked; the grants are
		// looked at once more before it is written.
		require.Error(t, err)
		e.untouched(t)
	})
	t.Run("HO-11 grants removed from under a live session, and given back", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		e.fake.Forget()
		require.NoError(t, e.SetGrants(grants.Set{}))
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
		code(t, provider.NotGranted, err)
		_, err = s.State(t.Context())
		code(t, provider.NotGranted, err)
		e.untouched(t)
		more := tokenGrant()
		more.AllowedProcessEnvironmentKeys = []string{"UNRELATED"}
		require.NoError(t, e.SetGrants(more))
		r := run(t, s, "printenv", "TOKEN")
		assert.Equal(t, "[redacted:TOKEN]\n", string(r.Stdout))
	})
	t.Run("HO-12 a second run without grants", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.host.Grants = tokenGrant() })
		m := protected()
		require.NoError(t, create(t, e, m, nil))
		e.fake.Forget()
		refused(t, e, 1, create(t, e, m, none))
	})
	t.Run("HO-12 the same key without grants", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		m := protected()
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: m, Key: "k"})
		require.NoError(t, err)
		e.fake.Forget()
		_, err = e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: m, Key: "k", Grants: none})
		refused(t, e, 1, err)
	})
	t.Run("JU-13 a reference without its grant names the pair and the remedy", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		err := create(t, e, protected(), nil)
		refused(t, e, 0, err)
		assert.ErrorContains(t, err, "TOKEN")
		assert.ErrorContains(t, err, "HOST_TOKEN")
		assert.ErrorContains(t, err, "processEnvironmentBindings")
	})
	t.Run("PY-17 the source is unset before create", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		e.source.unset("HOST_TOKEN")
		err := create(t, e, protected(), nil)
		code(t, provider.NotGranted, err)
		assert.ErrorContains(t, err, "HOST_TOKEN")
		e.untouched(t)
	})
	t.Run("a destination that the provider manages", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted, describe(func(d *provider.Description) { d.RefusedDestinations = []string{"TOKEN"} }))
		code(t, provider.Unsupported, create(t, e, protected(), nil))
		e.untouched(t)
		e.source.unread(t)
	})
	t.Run("a transport is never exchanged", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted, describe(func(d *provider.Description) { d.Transports = d.Transports[1:] }))
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: protected(), Transport: host.TransportExec})
		code(t, provider.Unsupported, err)
		e.untouched(t)
		s := e.create(t, protected())
		assert.Equal(t, "create/record", s.Transport())
	})
}

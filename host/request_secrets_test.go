package host_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
)

func required(names ...string) []grants.Requirement {
	var out []grants.Requirement
	for _, n := range names {
		out = append(out, grants.Requirement{Name: n})
	}
	return out
}

func TestRequestSecrets(t *testing.T) {
	t.Parallel()
	secrets := activation(map[string]string{"USER_KEY": requestCanary})
	t.Run("F1 L1 the active set reaches the command, exactly", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		r, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"printenv", "USER_KEY"}, Secrets: secrets})
		require.NoError(t, err)
		assert.Equal(t, "[redacted:USER_KEY]\n", string(r.Stdout))
		d := e.fake.Execs()[0]
		assert.Equal(t, []string{"USER_KEY"}, d.Secrets)
		assert.True(t, d.Got("USER_KEY", value(requestCanary)))
	})
	t.Run("F2 none: none", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		run(t, s, "true")
		assert.Empty(t, e.fake.Execs()[0].Secrets)
	})
	for _, id := range []string{"L3 a later command finds the variable gone", "B13 supplied nothing this time: not bound"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			s := e.create(t, ordinary())
			_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: secrets})
			require.NoError(t, err)
			r := run(t, s, "printenv", "USER_KEY")
			assert.Equal(t, 1, r.ExitCode)
			assert.False(t, e.fake.Execs()[1].Has("USER_KEY"))
		})
	}
	t.Run("B1 A1 only what is declared and supplied", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		a := grants.Activate(required("USER_KEY"), grants.NewCarrier(map[string]string{"USER_KEY": requestCanary, "UNDECLARED": "x-undeclared-x"}))
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: a})
		require.NoError(t, err)
		assert.False(t, e.fake.Execs()[0].Has("UNDECLARED"))
	})
	t.Run("B6 a union is one activation", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		a := grants.Activate(append(required("USER_KEY"), required("SECOND")...), grants.NewCarrier(map[string]string{"USER_KEY": requestCanary, "SECOND": rotatedCanary}))
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: a})
		require.NoError(t, err)
		assert.Equal(t, []string{"SECOND", "USER_KEY"}, e.fake.Execs()[0].Secrets)
	})
	t.Run("B14 the disclosure has names and no value", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: secrets})
		require.NoError(t, err)
		recs := e.events.wait(t, 1, kind(host.KindGrant, "exec"))
		require.Len(t, recs, 1)
		assert.Equal(t, "USER_KEY", recs[0].Grant.Destination)
		assert.Empty(t, recs[0].Grant.Source)
		assert.True(t, recs[0].Grant.Allowed)
		noCanary(t, fmt.Sprintf("%+v %+v", recs[0], *recs[0].Grant))
	})
	t.Run("missing required names are listed, nothing starts", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		e.fake.Forget()
		a := grants.Activate(append(required("ONE", "TWO"), grants.Requirement{Name: "OPT", Optional: true}), grants.NewCarrier(nil))
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: a})
		code(t, provider.NotGranted, err)
		assert.ErrorContains(t, err, "ONE")
		assert.ErrorContains(t, err, "TWO")
		assert.NotContains(t, err.Error(), "OPT")
		e.untouched(t)
	})
	t.Run("colliding with a protected destination is an error", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		e.fake.Forget()
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: activation(map[string]string{"TOKEN": requestCanary})})
		code(t, provider.InvalidArgument, err)
		assert.ErrorContains(t, err, "TOKEN")
		noCanary(t, err.Error())
		e.untouched(t)
	})
	t.Run("reserved names", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, describe(func(d *provider.Description) { d.RefusedDestinations = []string{"MANAGED"} }))
		s := e.create(t, ordinary())
		e.fake.Forget()
		for _, n := range []string{"LD_PRELOAD", "BASH_ENV", "MANAGED", "A-B"} {
			_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: activation(map[string]string{n: requestCanary})})
			require.Error(t, err, n)
			noCanary(t, err.Error())
		}
		e.untouched(t)
	})
	t.Run("K5 the caller's value wins, the rest is kept", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.fake.Base = map[string]string{"USER_KEY": "inherited", "BENIGN": "kept"} })
		s := e.create(t, with(ordinary(), "USER_KEY", manifest.Entry{Literal: "literal"}))
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: secrets})
		require.NoError(t, err)
		d := e.fake.Execs()[0]
		assert.True(t, d.Got("USER_KEY", value(requestCanary)))
		assert.True(t, d.Got("BENIGN", value("kept")))
		assert.True(t, d.Got("GREETING", value("hello")))
	})
	t.Run("K7 the command is unchanged, and no record of the provider has the value", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"args", "a b", "$USER_KEY"}, Secrets: secrets})
		require.NoError(t, err)
		rec, ok := e.fake.Record(provider.Ref{ID: s.Info().Sandbox})
		require.True(t, ok)
		assert.Empty(t, rec.Find(value(requestCanary)))
		assert.NotEmpty(t, rec.Find(value("$USER_KEY")), "the argument is as it was given")
	})
	t.Run("K8 one token under two names", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		r, err := s.Exec(t.Context(), host.ExecRequest{Shell: `echo "$GITHUB_TOKEN $GH_TOKEN"`,
			Secrets: activation(map[string]string{"GITHUB_TOKEN": requestCanary, "GH_TOKEN": requestCanary})})
		require.NoError(t, err)
		assert.Equal(t, "[redacted:GH_TOKEN] [redacted:GH_TOKEN]\n", string(r.Stdout), "the first by name")
		d := e.fake.Execs()[0]
		assert.True(t, d.Got("GITHUB_TOKEN", value(requestCanary)) && d.Got("GH_TOKEN", value(requestCanary)))
	})
	t.Run("values stay armed for the session's life", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		_, err := s.Exec(t.Context(), host.ExecRequest{Shell: `echo "$USER_KEY" > f`, Secrets: secrets})
		require.NoError(t, err)
		_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: activation(map[string]string{"USER_KEY": rotatedCanary})})
		require.NoError(t, err)
		assert.Equal(t, "[redacted:USER_KEY]\n", string(run(t, s, "cat", "f").Stdout))
		d, err := s.ReadFile(t.Context(), "f")
		require.NoError(t, err)
		assert.True(t, d.Redacted())
		noCanary(t, string(d.Data))
	})
	t.Run("the limit of values is ResourceExhausted before anything starts", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.host.Limits.RequestSecrets = 3 })
		s := e.create(t, ordinary())
		for i := range 3 {
			a := activation(map[string]string{"K": fmt.Sprintf("value-number-%d-xyz", i)})
			for range 2 { // the same value again counts once
				_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: a})
				require.NoError(t, err)
			}
		}
		e.fake.Forget()
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: activation(map[string]string{"K": "one-value-too-many"})})
		code(t, provider.ResourceExhausted, err)
		e.untouched(t)
		_, err = host.New(host.Options{Limits: host.Limits{RequestSecrets: 1001}})
		code(t, provider.InvalidArgument, err)
	})
	t.Run("an unprotected session's errors are redacted once it saw a value", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: secrets})
		require.NoError(t, err)
		e.fake.SetHooks(failWith(fake.MethodStat, &provider.Error{Code: provider.NotFound, Message: "no " + requestCanary, Subject: requestCanary}))
		_, err = s.Stat(t.Context(), "x")
		code(t, provider.NotFound, err)
		noCanary(t, fmt.Sprintf("%v %+v %#v", err, err, err))
		assert.ErrorContains(t, err, "[redacted:USER_KEY]")
	})
	t.Run("a state whose ref holds a value fails closed", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		require.NoError(t, e.Register("leaky", &refProvider{Provider: e.fake, ref: provider.Ref{ID: "id-" + requestCanary}}))
		s, err := e.Create(t.Context(), host.CreateRequest{Provider: "leaky", Manifest: ordinary()})
		require.NoError(t, err)
		_, err = s.State(t.Context())
		require.NoError(t, err, "it is not known to be a value yet")
		_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: secrets})
		require.NoError(t, err)
		_, err = s.State(t.Context())
		code(t, provider.Internal, err)
		noCanary(t, fmt.Sprintf("%+v", err))
		noCanary(t, fmt.Sprintf("%+v", s.Info()))
	})
	t.Run("the caller's own maps are not kept and not changed", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		m := ordinary()
		m.Labels = map[string]string{"team": "core"}
		s := e.create(t, m)
		m.Environment["GREETING"] = manifest.Entry{Literal: "changed"}
		m.Labels["team"] = "changed"
		env := map[string]string{"A": "a"}
		r, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"printenv", "GREETING"}, Env: env})
		require.NoError(t, err)
		assert.Equal(t, "hello\n", string(r.Stdout))
		assert.Equal(t, map[string]string{"A": "a"}, env)
		info := s.Info()
		assert.Equal(t, "core", info.Labels["team"])
		info.Labels["team"] = "changed"
		assert.Equal(t, "core", s.Info().Labels["team"], "H3 H4 a copy, not an alias")
	})
}

// On a provider whose commands could read each other's environment, a command
// with request-scoped values runs alone.
func TestSharedTrust(t *testing.T) {
	t.Parallel()
	secrets := activation(map[string]string{"USER_KEY": requestCanary})
	withSecrets := host.ExecRequest{Args: []string{"true"}, Secrets: secrets}
	sandbox := func(s *host.Session) provider.Ref { return provider.Ref{ID: s.Info().Sandbox} }

	t.Run("what others left running is stopped first", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, sharesExecs)
		s := e.create(t, ordinary())
		run(t, s, "background", "sleep", "600")
		require.Len(t, e.fake.Running(sandbox(s)), 1)
		_, err := s.Exec(t.Context(), withSecrets)
		require.NoError(t, err)
		assert.Empty(t, e.fake.Running(sandbox(s)))
	})
	t.Run("what it leaves running is stopped when it ends", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, sharesExecs)
		s := e.create(t, ordinary())
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"background", "-setsid", "sleep", "600"}, Secrets: secrets})
		require.NoError(t, err)
		assert.Empty(t, e.fake.Running(sandbox(s)))
	})
	t.Run("another command is refused while it runs, and it while another runs", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, sharesExecs)
		s := e.create(t, ordinary())
		p, err := s.Start(t.Context(), host.ExecRequest{Args: []string{"sleep", "600"}, Secrets: secrets})
		require.NoError(t, err)
		_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
		code(t, provider.FailedPrecondition, err)
		require.NoError(t, p.Kill(t.Context()))
		run(t, s, "true")

		p, err = s.Start(t.Context(), host.ExecRequest{Args: []string{"sleep", "600"}})
		require.NoError(t, err)
		_, err = s.Exec(t.Context(), withSecrets)
		code(t, provider.FailedPrecondition, err)
		require.NoError(t, p.Kill(t.Context()))
		_, err = s.Exec(t.Context(), withSecrets)
		require.NoError(t, err)
	})
	t.Run("a provider that cannot stop them refuses", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, sharesExecs, describe(func(d *provider.Description) { d.Exec.Kill = provider.KillProcess }))
		s := e.create(t, ordinary())
		run(t, s, "background", "sleep", "600")
		e.fake.Forget()
		_, err := s.Exec(t.Context(), withSecrets)
		code(t, provider.FailedPrecondition, err)
		assert.Zero(t, e.fake.Count(fake.MethodExec))
		_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
		require.NoError(t, err, "without values nothing is in the way")
	})
	t.Run("a kill that is not confirmed refuses, and is tried again", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, sharesExecs)
		s := e.create(t, ordinary())
		run(t, s, "background", "sleep", "600")
		e.fake.SetHooks(fake.Fail(fake.MethodKill, provider.Unavailable))
		_, err := s.Exec(t.Context(), withSecrets)
		code(t, provider.FailedPrecondition, err)
		e.fake.SetHooks(fake.Hooks{})
		_, err = s.Exec(t.Context(), withSecrets)
		require.NoError(t, err)
		assert.Empty(t, e.fake.Running(sandbox(s)))
	})
	t.Run("a sandbox with a past that nobody knows refuses", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, sharesExecs)
		s := e.create(t, ordinary())
		state, err := s.Detach(t.Context())
		require.NoError(t, err)
		s, err = e.Resume(t.Context(), host.ResumeRequest{State: state})
		require.NoError(t, err)
		_, err = s.Exec(t.Context(), withSecrets)
		code(t, provider.FailedPrecondition, err)
		state, err = s.Detach(t.Context())
		require.NoError(t, err)
		s, err = e.Resume(t.Context(), host.ResumeRequest{State: state, SharedTrust: true})
		require.NoError(t, err)
		_, err = s.Exec(t.Context(), withSecrets)
		require.NoError(t, err)
	})
	for name, opts := range map[string]func(*setup){"a provider that isolates them": func(*setup) {}, "SharedTrust": sharesExecs} {
		t.Run("nothing is in the way with "+name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, opts)
			s, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary(), SharedTrust: name == "SharedTrust"})
			require.NoError(t, err)
			run(t, s, "background", "sleep", "600")
			_, err = s.Exec(t.Context(), withSecrets)
			require.NoError(t, err)
			assert.Len(t, e.fake.Running(sandbox(s)), 1)
		})
	}
	t.Run("a provider without a structured channel is Unsupported and runs nothing", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.fake.NoSecrets = true })
		s := e.create(t, ordinary())
		_, err := s.Exec(t.Context(), withSecrets)
		code(t, provider.Unsupported, err)
		assert.Empty(t, e.fake.Execs())
	})
}

// A value that a caller supplied is in nothing that describes the run.
func TestRequestSecretSurfaces(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.create(t, ordinary())
	secrets := activation(map[string]string{"USER_KEY": requestCanary})
	req := host.ExecRequest{Shell: `echo "$USER_KEY"`, Secrets: secrets}
	r, err := s.Exec(t.Context(), req)
	require.NoError(t, err)
	state, err := s.State(t.Context())
	require.NoError(t, err)
	surfaces := map[string]string{
		"S1 the request as printed": fmt.Sprintf("%v %+v %#v", req, req, req),
		"S1 the result":             fmt.Sprintf("%+v %s", *r, r.Stdout),
		"S2 the state":              string(state),
	}
	recs := e.events.wait(t, 2, func(host.Record) bool { return true })
	require.NotEmpty(t, recs, "S3 the journal is not empty")
	surfaces["S3 the journal"] = fmt.Sprintf("%+v", recs)
	for name, text := range surfaces {
		t.Run(name, func(t *testing.T) { noCanary(t, text) })
	}
	t.Run("S5 records have the allow-listed fields only", func(t *testing.T) {
		for _, rec := range recs {
			for _, secretish := range []string{"echo", "USER_KEY\"", "hello"} {
				assert.False(t, strings.Contains(rec.Reason+rec.Path+rec.Exec, secretish))
			}
		}
	})
}

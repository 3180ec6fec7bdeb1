package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// source is a grants.Source whose values change, and which says when it was asked.
type source struct {
	mu     sync.Mutex
	values map[string]string
	reads  int
}

func (s *source) set(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[name] = value
}

func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *source) Lookup(_ context.Context, name string) (secret.Value, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	v, ok := s.values[name]
	return secret.FromString(v), ok, nil
}

func (s *source) Present(_ context.Context, name string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.values[name]
	return ok, nil
}

// world is a host on the test engine, with faults.
type world struct {
	*host.Host
	t      *testing.T
	id     string
	engine *faulty
	p      *docker.Provider
	source *source
	ledger ledger.Ledger
	token  string // the value in force
}

func newWorld(t *testing.T) *world {
	t.Helper()
	o := options(t)
	c, err := docker.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	w := &world{t: t, id: "world-" + randomHex(6), engine: newFaulty(c), ledger: ledger.Memory(), token: "tok3n-" + randomHex(12)}
	w.source = &source{values: map[string]string{"HOST_TOKEN": w.token}}
	w.p, err = docker.NewWithEngine(t.Context(), w.engine, o)
	require.NoError(t, err)
	patient(w.p)
	w.Host = w.host(w.p)
	t.Cleanup(w.clean)
	return w
}

// host is a host with the world's ledger and owner.
func (w *world) host(p provider.Provider) *host.Host {
	h, err := host.New(host.Options{ID: w.id, Ledger: w.ledger, Source: w.source,
		Grants: grants.Set{ProcessEnvironmentBindings: map[string]string{"TOKEN": "HOST_TOKEN"}}})
	require.NoError(w.t, err)
	require.NoError(w.t, h.RegisterTrusted("docker", p))
	return h
}

// clean closes everything and checks that nothing of this owner's is left.
func (w *world) clean() {
	w.engine.heal()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	assert.NoError(w.t, w.Close(ctx))
	list, err := w.p.List(ctx, provider.Query{Owner: w.id})
	assert.NoError(w.t, err)
	for _, r := range list {
		assert.NoError(w.t, w.p.Destroy(ctx, r.Ref))
	}
	mine := filters.NewArgs(filters.Arg("label", provider.LabelOwner+"="+w.id))
	containers, err := w.engine.Engine.ContainerList(ctx, container.ListOptions{All: true, Filters: mine})
	assert.NoError(w.t, err)
	assert.Empty(w.t, containers, "containers are left")
	volumes, err := w.engine.Engine.VolumeList(ctx, volume.ListOptions{Filters: mine})
	assert.NoError(w.t, err)
	assert.Empty(w.t, volumes.Volumes, "volumes are left")
}

func ordinary() manifest.Manifest {
	m := manifest.New()
	m.Network = manifest.NetworkNone
	m.Environment = map[string]manifest.Entry{"GREETING": {Literal: "hello"}}
	return m
}

func protected() manifest.Manifest {
	m := ordinary()
	m.Environment["TOKEN"] = manifest.Entry{Reference: &manifest.Reference{Name: "HOST_TOKEN"}}
	return m
}

func (w *world) make(m manifest.Manifest) (*host.Session, error) {
	return w.Create(w.t.Context(), host.CreateRequest{Provider: "docker", Manifest: m})
}

func (w *world) create(m manifest.Manifest) *host.Session {
	w.t.Helper()
	s, err := w.make(m)
	require.NoError(w.t, err)
	return s
}

func (w *world) state(s *host.Session) []byte {
	w.t.Helper()
	b, err := s.State(w.t.Context())
	require.NoError(w.t, err)
	return b
}

func (w *world) resume(state []byte, m manifest.Manifest, mods ...func(*host.ResumeRequest)) (*host.Session, error) {
	req := host.ResumeRequest{State: state, Provider: "docker", Manifest: &m}
	for _, f := range mods {
		f(&req)
	}
	return w.Resume(w.t.Context(), req)
}

func (w *world) shell(s *host.Session, script string) string {
	w.t.Helper()
	r, err := s.Exec(w.t.Context(), host.ExecRequest{Shell: script})
	require.NoError(w.t, err)
	return string(r.Stdout)
}

// sandboxes are the names of what the provider lists.
func (w *world) sandboxes() []string {
	w.t.Helper()
	list, err := w.p.List(w.t.Context(), provider.Query{Owner: w.id})
	require.NoError(w.t, err)
	out := []string{}
	for _, r := range list {
		out = append(out, r.Ref.ID)
	}
	return out
}

func (w *world) volumes() []string {
	w.t.Helper()
	list, err := w.engine.Engine.VolumeList(w.t.Context(), volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", provider.LabelOwner+"="+w.id))})
	require.NoError(w.t, err)
	out := []string{}
	for _, v := range list.Volumes {
		out = append(out, v.Name)
	}
	return out
}

// echo is an engine's error that repeats the value.
func (w *world) echo() error { return errors.New("engine: cannot do it with TOKEN=" + w.token) }

// masked checks the error of a protected operation: typed, and without the value
// or any cause.
func (w *world) masked(err error, facts ...string) {
	w.t.Helper()
	require.Error(w.t, err)
	var le *host.LifecycleError
	require.ErrorAs(w.t, err, &le, "%v", err)
	assert.NoError(w.t, errors.Unwrap(le), "a cause")
	doc, jerr := json.Marshal(le)
	require.NoError(w.t, jerr)
	for _, text := range []string{err.Error(), string(doc)} {
		assert.NotContains(w.t, text, w.token)
		assert.NotContains(w.t, text, "engine: cannot")
	}
	for _, f := range facts {
		assert.Contains(w.t, string(doc), f)
	}
}

// A protected session is resumed by a replacement on the same volume: rotation, the
// files, and nothing left of the previous one.
func TestResumeReplaces_JU01_PY18_HO(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := protected()
	m.Files = map[string]manifest.File{"made": {Content: []byte("first")}, "deleted": {Content: []byte("x")}}
	w.engine.reset()
	s := w.create(m)
	t.Run("JU-01a the value is in no argument", func(t *testing.T) {
		assert.NotContains(t, string(w.engine.everything()), w.token)
	})
	w.shell(s, `echo changed > made; rm deleted; echo $(printf %s "$TOKEN" | wc -c) > length; printf 'a\0b' > bytes; mkdir -p deep/er; ln -s ../made deep/link`)
	first := s.Info().Sandbox
	state := w.state(s)
	reads := w.source.count()
	old := w.token
	w.token = "rotated-" + randomHex(12)
	w.source.set("HOST_TOKEN", w.token)

	s2, err := w.resume(state, m)
	require.NoError(t, err)
	assert.Equal(t, s.ID(), s2.ID())
	assert.NotEqual(t, first, s2.Info().Sandbox)
	t.Run("JU-01c rotation", func(t *testing.T) {
		assert.Equal(t, "[redacted:TOKEN] hello\n", w.shell(s2, `echo "$TOKEN $GREETING"`))
		assert.Equal(t, "same\n", w.shell(s2, `test "$(printf %s "$TOKEN" | md5sum)" != "`+old+`" && echo same`))
	})
	t.Run("JU-11 the workspace is there, exactly", func(t *testing.T) {
		assert.Equal(t, "changed\n", w.shell(s2, "cat made"))
		assert.Equal(t, "changed\n", w.shell(s2, "cat deep/link"))
		assert.Equal(t, "3\n", w.shell(s2, "wc -c < bytes"))
		_, err := s2.Stat(t.Context(), "deleted")
		assert.ErrorIs(t, err, provider.ErrNotFound, "the manifest's files were written again")
	})
	t.Run("JU-01f the value is in no argument of an exec", func(t *testing.T) {
		w.engine.reset()
		w.shell(s2, "true")
		assert.Positive(t, w.engine.asked("ContainerExecCreate"))
		assert.NotContains(t, string(w.engine.everything()), w.token)
	})
	t.Run("JU-01g the state holds no value", func(t *testing.T) {
		b := w.state(s2)
		assert.NotContains(t, string(b), w.token)
		assert.NotContains(t, string(b), old)
	})
	t.Run("PY-18 one look-up, and the network is kept", func(t *testing.T) {
		assert.Equal(t, reads+1, w.source.count())
		info, err := api(t).ContainerInspect(t.Context(), s2.Info().Sandbox)
		require.NoError(t, err)
		assert.EqualValues(t, "none", info.HostConfig.NetworkMode)
	})
	t.Run("the previous one is gone, the volume stays", func(t *testing.T) {
		assert.Equal(t, []string{s2.Info().Sandbox}, w.sandboxes())
		assert.Contains(t, w.volumes(), first)
	})
	// And again: the volume outlives a second replacement.
	s3, err := w.resume(w.state(s2), m)
	require.NoError(t, err)
	assert.Equal(t, "changed\n", w.shell(s3, "cat made"))
	assert.Equal(t, []string{s3.Info().Sandbox}, w.sandboxes())
	require.NoError(t, s3.Close(t.Context()))
	assert.Empty(t, w.sandboxes())
	assert.Empty(t, w.volumes(), "the volume goes with the last one")
}

// What must be refused before the engine is asked for anything.
func TestRefusedBeforeTheEngine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := protected()
	s := w.create(m)
	state := w.state(s)
	refused := func(name string, code provider.Code, f func() error) {
		t.Run(name, func(t *testing.T) {
			w.engine.reset()
			reads := w.source.count()
			err := f()
			require.Error(t, err)
			assert.Equal(t, code, provider.CodeOf(err), err)
			assert.Zero(t, w.engine.asked(), "the engine was asked")
			assert.Equal(t, reads, w.source.count(), "a source was read")
		})
	}
	with := func(key string, e manifest.Entry) manifest.Manifest {
		m := m.Clone()
		m.Environment[key] = e
		return m
	}
	ref := func(name string) manifest.Entry {
		return manifest.Entry{Reference: &manifest.Reference{Name: name}}
	}
	makes := func(m manifest.Manifest) func() error {
		return func() error { _, err := w.make(m); return err }
	}
	refused("JU-13 a reference without a grant", provider.NotGranted, makes(with("OTHER", ref("HOST_OTHER"))))
	refused("HO-02 the same reference under another destination", provider.NotGranted, makes(with("EXFIL", ref("HOST_TOKEN"))))
	for id, name := range map[string]string{"JU-14a": "LD_PRELOAD", "JU-14b": "LD_LIBRARY_PATH", "JU-14c": "LD_AUDIT"} {
		refused(id+" "+name, provider.InvalidArgument, makes(with(name, ref("HOST_TOKEN"))))
	}
	refused("JU-01h, JR-08a the reference was turned into a literal", provider.Conflict, func() error {
		_, err := w.resume(state, with("TOKEN", manifest.Entry{Literal: "x"}))
		return err
	})
	refused("JR-07b, JR-08b another source", provider.Conflict, func() error {
		_, err := w.resume(state, with("TOKEN", ref("HOST_OTHER")))
		return err
	})
	refused("forged sandbox in the state", provider.Conflict, func() error {
		_, err := w.resume([]byte(strings.ReplaceAll(string(state), s.Info().Sandbox, "sbxhost-"+strings.Repeat("0", 32))), m)
		return err
	})
	refused("JU-17 a dashed destination in the state", provider.InvalidArgument, func() error {
		_, err := w.resume([]byte(strings.ReplaceAll(string(state), "TOKEN\"", "TO-KEN\"")), m)
		return err
	})
	refused("HO-12 another host of the same provider without the grant", provider.NotGranted, func() error {
		h, err := host.New(host.Options{ID: "other-" + w.id, Source: w.source})
		require.NoError(t, err)
		require.NoError(t, h.RegisterTrusted("docker", w.p))
		_, err = h.Create(t.Context(), host.CreateRequest{Provider: "docker", Manifest: m})
		return err
	})
	plain := w.create(ordinary())
	plainState := w.state(plain)
	refused("JR-01, JR-04 an ordinary state, and the manifest adds a reference", provider.Conflict, func() error {
		_, err := w.resume(plainState, m)
		return err
	})
	refused("JR-09a a state without an environment", provider.Conflict, func() error {
		var doc map[string]any
		require.NoError(t, json.Unmarshal(state, &doc))
		delete(doc["manifest"].(map[string]any), "environment")
		edited, err := json.Marshal(doc)
		require.NoError(t, err)
		_, err = w.resume(edited, m)
		return err
	})
	refused("JR-18 the sandbox to adopt has a reference", provider.Unsupported, func() error {
		_, err := w.Adopt(t.Context(), host.AdoptRequest{Provider: "docker", Ref: provider.Ref{ID: s.Info().Sandbox}, Manifest: ordinary()})
		return err
	})
	refused("JR-19 the sandbox to adopt is ordinary, the manifest is not", provider.Unsupported, func() error {
		_, err := w.Adopt(t.Context(), host.AdoptRequest{Provider: "docker", Ref: provider.Ref{ID: plain.Info().Sandbox}, Manifest: m})
		return err
	})

	// The same engine behind a provider that is not trusted, with the grant.
	granted := grants.Set{ProcessEnvironmentBindings: map[string]string{"TOKEN": "HOST_TOKEN"}}
	untrusted, err := host.New(host.Options{ID: w.id, Ledger: w.ledger, Source: w.source, Grants: granted})
	require.NoError(t, err)
	require.NoError(t, untrusted.Register("docker", w.p))
	refused("JR-16 not trusted, a reference and its grant", provider.Unsupported, func() error {
		_, err := untrusted.Create(t.Context(), host.CreateRequest{Provider: "docker", Manifest: m})
		return err
	})
	for id, now := range map[string]manifest.Manifest{"JR-02 in state and manifest": m, "JR-05 in the state alone": ordinary()} {
		refused(id+", not trusted", provider.Unsupported, func() error {
			_, err := untrusted.Resume(t.Context(), host.ResumeRequest{State: state, Provider: "docker", Manifest: &now})
			return err
		})
	}

	dir := t.TempDir()
	mounts, err := host.New(host.Options{ID: w.id, Ledger: w.ledger, Source: w.source, Grants: granted, HostPathRoots: []string{dir}})
	require.NoError(t, err)
	require.NoError(t, mounts.RegisterTrusted("docker", w.p))
	refused("JR-11 other mounts", provider.Conflict, func() error {
		now := m.Clone()
		now.PathGrants = []manifest.PathGrant{{Path: "/data", HostPath: dir, ReadOnly: true}}
		_, err := mounts.Resume(t.Context(), host.ResumeRequest{State: state, Provider: "docker", Manifest: &now})
		return err
	})

	ungranted, err := host.New(host.Options{ID: "none-" + w.id, Source: w.source})
	require.NoError(t, err)
	require.NoError(t, ungranted.RegisterTrusted("docker", w.p))
	for id, other := range map[string]manifest.Manifest{
		"HO-01 the very same reference elsewhere": m,
		"HO-07 a copy of the manifest":            m.Clone(),
	} {
		refused(id, provider.NotGranted, func() error {
			_, err := ungranted.Create(t.Context(), host.CreateRequest{Provider: "docker", Manifest: other})
			return err
		})
	}
	refused("HO-05 a bind that fails leaves no authority", provider.NotGranted, func() error {
		_, _ = w.make(with("OTHER", ref("HOST_OTHER")))
		_, err := ungranted.Create(t.Context(), host.CreateRequest{Provider: "docker", Manifest: m})
		return err
	})
	require.NoError(t, w.SetGrants(grants.Set{}))
	refused("HO-11 the grant was taken away", provider.NotGranted, makes(m))
	require.NoError(t, w.SetGrants(granted))

	t.Run("a session of another host is not found", func(t *testing.T) {
		h, err := host.New(host.Options{ID: "other-" + w.id, Source: w.source,
			Grants: grants.Set{ProcessEnvironmentBindings: map[string]string{"TOKEN": "HOST_TOKEN"}}})
		require.NoError(t, err)
		require.NoError(t, h.RegisterTrusted("docker", w.p))
		w.engine.reset()
		_, err = h.Resume(t.Context(), host.ResumeRequest{State: state, Provider: "docker", Manifest: &m})
		assert.ErrorIs(t, err, provider.ErrNotFound)
		assert.Zero(t, w.engine.asked())
	})
}

// A replacement that fails leaves the previous sandbox as it was: running, with its
// files, its processes and its name.
func TestFailedReplacementLeavesThePreviousOne_JU34_PY31(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := protected()
	s := w.create(m)
	p, err := s.Start(t.Context(), host.ExecRequest{Shell: `echo kept > f; while :; do echo beat >> beats; sleep 0.1; done`})
	require.NoError(t, err)
	_ = p
	// Before it is paused for the first time.
	w.shell(s, "until test -s f; do sleep 0.1; done")
	state, first := w.state(s), s.Info().Sandbox
	for name, fault := range map[string]func(){
		"create refused":      func() { w.engine.failBefore("ContainerCreate", once(1, w.echo())) },
		"create's answer":     func() { w.engine.failAfter("ContainerCreate", once(1, errBroken)) },
		"start refused":       func() { w.engine.failBefore("ContainerStart", once(1, w.echo())) },
		"image gone":          func() { w.engine.failBefore("ImageInspect", once(1, w.echo())) },
		"volume refused":      func() { w.engine.failBefore("VolumeCreate", once(1, w.echo())) },
		"supervisor unproven": func() { w.engine.failBefore("CopyFromContainer", once(1, w.echo())) },
	} {
		t.Run(name, func(t *testing.T) {
			fault()
			_, err := w.resume(state, m)
			w.engine.heal()
			w.masked(err, first)
			_, rerr := w.Reconcile(t.Context())
			require.NoError(t, rerr)
			assert.Equal(t, []string{first}, w.sandboxes())
			assert.Equal(t, []string{first}, w.volumes())
			st, err := w.p.Open(t.Context(), provider.Ref{ID: first})
			require.NoError(t, err)
			status, err := st.Status(t.Context())
			require.NoError(t, err)
			assert.Equal(t, provider.StateRunning, status.State)
			assert.Equal(t, "kept\n", w.shell(s, "rm -f beats; cat f"))
			assert.Eventually(t, func() bool { return strings.Contains(w.shell(s, "cat beats 2>/dev/null"), "beat") }, time.Minute, 100*time.Millisecond,
				"its processes do not go on")
		})
	}
	t.Run("JU-34 clean-up fails too", func(t *testing.T) {
		w.engine.failBefore("ContainerStart", once(1, w.echo()))
		w.engine.failBefore("ContainerRemove", func(string) error { return w.echo() })
		_, err := w.resume(state, m)
		w.engine.heal()
		w.masked(err, first, provider.NamePrefix+s.ID()+"-")
		assert.Len(t, w.sandboxes(), 2, "what could not be removed is still listed")
		_, err = w.Reconcile(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{first}, w.sandboxes())
		assert.Equal(t, "kept\n", w.shell(s, "cat f"))
	})
}

// The replacement works and the previous one cannot be removed: the session goes on,
// the error says what is left, and the removal is tried again until it works.
func TestRetirementFails_JU10(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := protected()
	s := w.create(m)
	w.shell(s, "echo kept > f")
	first := s.Info().Sandbox
	w.engine.failBefore("ContainerRemove", once(1, w.echo()))
	s2, err := w.resume(w.state(s), m)
	require.NotNil(t, s2)
	var re *host.RetirementError
	require.ErrorAs(t, err, &re)
	assert.Equal(t, []string{first}, re.Previous)
	assert.Equal(t, s2.Info().Sandbox, re.Replacement)
	assert.NotContains(t, err.Error(), w.token)
	assert.Equal(t, "kept\n", w.shell(s2, "cat f"))
	assert.Len(t, w.sandboxes(), 2)
	// The next create tries again.
	other := w.create(ordinary())
	assert.ElementsMatch(t, []string{s2.Info().Sandbox, other.Info().Sandbox}, w.sandboxes())
	assert.Equal(t, "kept\n", w.shell(s2, "cat f"), "the volume went with the previous one")
	require.NoError(t, s2.Close(t.Context()))
	assert.NotContains(t, w.volumes(), first)
}

// The previous sandbox may be in any state.
func TestPreviousInAnyState_PY19_PY25_PY30_PY32(t *testing.T) {
	t.Parallel()
	cli := api(t)
	for name, do := range map[string]func(t *testing.T, name string){
		"PY-19 stopped": func(t *testing.T, name string) {
			killContainer(t, name)
		},
		"paused": func(t *testing.T, name string) {
			// A busy machine's runtime may give up freezing.
			require.Eventually(t, func() bool { return cli.ContainerPause(t.Context(), name) == nil }, time.Minute, 100*time.Millisecond)
		},
		"PY-25 PY-30 vanished": func(t *testing.T, name string) {
			require.NoError(t, cli.ContainerRemove(t.Context(), name, container.RemoveOptions{Force: true, RemoveVolumes: true}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m := protected()
			s := w.create(m)
			w.shell(s, "echo kept > f")
			first := s.Info().Sandbox
			state, err := s.Detach(t.Context())
			require.NoError(t, err)
			do(t, first)
			sb, err := w.p.Open(t.Context(), provider.Ref{ID: first})
			require.NoError(t, err)
			st, err := sb.Status(t.Context())
			require.NoError(t, err)
			assert.NotEqual(t, provider.StateRunning, st.State)

			// A replacement that fails changes nothing of that.
			w.engine.failBefore("ContainerStart", once(1, w.echo()))
			_, err = w.resume(state, m)
			w.engine.heal()
			w.masked(err)
			assert.Equal(t, []string{first}, w.volumes())
			again, err := sb.Status(t.Context())
			require.NoError(t, err)
			assert.Equal(t, st.State, again.State)

			s2, err := w.resume(state, m)
			require.NoError(t, err)
			assert.Equal(t, "kept\n", w.shell(s2, "cat f"))
			assert.Equal(t, []string{s2.Info().Sandbox}, w.sandboxes())
			require.NoError(t, s2.Close(t.Context()))
			assert.Empty(t, w.sandboxes())
			assert.Empty(t, w.volumes())
		})
	}
	t.Run("PY-24 vanished with its volume", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		m := protected()
		s := w.create(m)
		first := s.Info().Sandbox
		state, err := s.Detach(t.Context())
		require.NoError(t, err)
		require.NoError(t, cli.ContainerRemove(t.Context(), first, container.RemoveOptions{Force: true}))
		require.NoError(t, cli.VolumeRemove(t.Context(), first, false))
		w.engine.reset()
		_, err = w.resume(state, m)
		assert.ErrorIs(t, err, provider.ErrFailedPrecondition)
		assert.Zero(t, w.engine.asked())
		s2, err := w.resume(state, m, func(r *host.ResumeRequest) { r.DiscardWorkspace = true })
		require.NoError(t, err)
		assert.Empty(t, w.shell(s2, "ls"))
	})
}

// DiscardWorkspace begins with an empty root, and the previous volume goes.
func TestDiscardWorkspace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := protected()
	m.Files = map[string]manifest.File{"made": {Content: []byte("first\n")}}
	s := w.create(m)
	w.shell(s, "echo changed > made; echo x > other")
	first := s.Info().Sandbox
	s2, err := w.resume(w.state(s), m, func(r *host.ResumeRequest) { r.DiscardWorkspace = true })
	require.NoError(t, err)
	assert.Equal(t, "made\n", w.shell(s2, "ls"))
	assert.Equal(t, "first\n", w.shell(s2, "cat made"))
	assert.Equal(t, []string{s2.Info().Sandbox}, w.volumes(), "the volume of "+first+" is left")
}

// While the replacement is made, the previous one is paused.
func TestPreviousIsPausedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := protected()
	s := w.create(m)
	first := s.Info().Sandbox
	var state provider.State
	w.engine.failBefore("ContainerStart", func(string) error {
		sb, err := w.p.Open(context.Background(), provider.Ref{ID: first})
		if err == nil {
			var st provider.Status
			st, err = sb.Status(context.Background())
			state = st.State
		}
		return err
	})
	_, err := w.resume(w.state(s), m)
	require.NoError(t, err)
	assert.Equal(t, provider.StatePaused, state)
}

// A runtime that could not freeze the previous one, as on a busy machine, is asked
// again; one that never can ends the resume, and the previous one goes on.
func TestPauseIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := protected()
	s := w.create(m)
	first := s.Info().Sandbox
	busy := errors.New("Error response from daemon: Cannot pause container 0123: OCI runtime pause failed: unable to freeze: unknown")
	w.engine.failBefore("ContainerPause", func(string) error { return busy })
	_, err := w.resume(w.state(s), m)
	assert.Equal(t, provider.Unavailable, provider.CodeOf(err), "%v", err)
	assert.Equal(t, []string{first}, w.sandboxes())
	w.shell(s, "echo goes on")
	w.engine.failBefore("ContainerPause", once(3, busy))
	s2, err := w.resume(w.state(s), m)
	require.NoError(t, err)
	assert.NotEqual(t, first, s2.Info().Sandbox)
}

// Two processes' hosts: an ordinary session goes on where it was.
func TestOrdinarySessionIsAttached_JU45(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.create(ordinary())
	w.shell(s, `echo kept > f; setsid sh -c 'while :; do echo beat >> beats; sleep 0.1; done' >/dev/null 2>&1 &`)
	state, err := s.Detach(t.Context())
	require.NoError(t, err)
	second, err := docker.NewWithEngine(t.Context(), w.engine, options(t))
	require.NoError(t, err)
	h := w.host(second)
	w.engine.reset()
	s2, err := h.Resume(t.Context(), host.ResumeRequest{State: state})
	require.NoError(t, err)
	assert.Equal(t, s.Info().Sandbox, s2.Info().Sandbox)
	assert.Zero(t, w.engine.asked("ContainerCreate"))
	r, err := s2.Exec(t.Context(), host.ExecRequest{Shell: `cat f; echo "$GREETING"; rm -f beats; until test -s beats; do sleep 0.1; done; head -n1 beats`, Timeout: time.Minute})
	require.NoError(t, err)
	assert.Equal(t, "kept\nhello\nbeat\n", string(r.Stdout), "the background process was ended")
	require.NoError(t, s2.Close(t.Context()))
}

// A replacement gets the workspace of its own owner's sandbox and of no other, whatever
// the request names.
func TestReplacesAnothersSandbox(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	first := request()
	sb, err := p.Create(t.Context(), first)
	require.NoError(t, err)
	t.Cleanup(func() { destroy(t, p, sb.Ref()) })
	ref := sb.Ref()
	theirs := request(func(r *provider.CreateRequest) {
		r.SessionID, r.Name = first.SessionID, provider.ReplacementName(first.SessionID, r.Labels[provider.LabelAttempt])
		r.Labels[provider.LabelSession] = first.SessionID
		r.Replaces = &ref
	})
	_, err = p.Create(t.Context(), theirs)
	wantProblem(t, err, provider.NotFound, "the workspace of the sandbox to be replaced is not there")
	_, err = api(t).ContainerInspect(t.Context(), theirs.Name)
	require.Error(t, err)
	assert.Equal(t, "still\n", run(t, sb, shell("echo still")).stdout)
}

package docker_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/provider"
)

// What a failed create made is removed, or remembered and removed later.
func TestFailedCreateIsCleanedUp(t *testing.T) {
	t.Parallel()
	t.Run("JU-19 the start fails and repeats the value", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.engine.failBefore("ContainerStart", once(1, w.echo()))
		_, err := w.make(protected())
		w.masked(err)
		assert.Empty(t, w.sandboxes())
		assert.Empty(t, w.volumes())
	})
	t.Run("JU-28 removing the volume fails once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.engine.failBefore("ContainerStart", once(1, w.echo()))
		// Both the provider's own clean-up and the host's after it.
		w.engine.failBefore("VolumeRemove", once(2, w.echo()))
		_, err := w.make(protected())
		w.masked(err)
		left := w.sandboxes()
		require.Len(t, left, 1)
		s := w.create(protected())
		assert.Equal(t, []string{s.Info().Sandbox}, w.sandboxes(), "the next create tries again")
		assert.Equal(t, []string{s.Info().Sandbox}, w.volumes())
	})
	t.Run("JU-30 PY-31 removing the container fails once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.engine.failBefore("ContainerStart", once(1, w.echo()))
		w.engine.failBefore("ContainerRemove", once(2, w.echo()))
		_, err := w.make(ordinary())
		require.Error(t, err)
		assert.ErrorContains(t, err, "cannot do it", "an ordinary session keeps the engine's text")
		require.Len(t, w.sandboxes(), 1)
		s := w.create(ordinary())
		assert.Equal(t, []string{s.Info().Sandbox}, w.sandboxes())
		require.NoError(t, s.Close(t.Context()))
		assert.Empty(t, w.volumes())
	})
	t.Run("JU-33 PY-34 everything fails", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for _, m := range []string{"ContainerStart", "ContainerRemove", "VolumeRemove"} {
			w.engine.failBefore(m, func(string) error { return w.echo() })
		}
		_, err := w.make(protected())
		left := w.sandboxes()
		require.Len(t, left, 1)
		w.masked(err, left[0])
		w.engine.heal()
		_, err = w.Reconcile(t.Context())
		require.NoError(t, err)
		assert.Empty(t, w.sandboxes())
		assert.Empty(t, w.volumes())
	})
	t.Run("JU-50 an image that cannot be pulled", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		m := ordinary()
		m.Image = "sbxhost-test:missing"
		_, err := w.make(m)
		require.Error(t, err)
		assert.ErrorContains(t, err, "sbxhost-test:missing")
		assert.ErrorIs(t, err, provider.ErrNotFound)
		assert.Empty(t, w.sandboxes())
	})
	t.Run("PY-17 the source is unset: refused before the image is looked up", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		delete(w.source.values, "HOST_TOKEN")
		w.engine.reset()
		_, err := w.make(protected())
		assert.ErrorIs(t, err, provider.ErrNotGranted)
		assert.Zero(t, w.engine.asked("ImageInspect", "ContainerCreate", "VolumeCreate"))
	})
}

// An answer that got lost is settled by looking: one sandbox, adopted or removed.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"ContainerCreate", "ContainerStart", "VolumeCreate"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.engine.failAfter(method, once(1, errBroken))
			_, err := w.make(ordinary())
			require.Error(t, err)
			assert.ErrorIs(t, err, provider.ErrUnavailable)
			assert.Empty(t, w.sandboxes())
			assert.Empty(t, w.volumes())
		})
	}
	t.Run("of every removal", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		s := w.create(ordinary())
		w.engine.failAfter("ContainerRemove", once(1, errBroken))
		require.Error(t, s.Close(t.Context()))
		w.engine.failAfter("VolumeRemove", once(1, errBroken))
		require.Error(t, s.Close(t.Context()))
		require.NoError(t, s.Close(t.Context()))
		assert.Empty(t, w.sandboxes())
	})
}

// A create that is given up while the engine still works on it leaves nothing: what
// comes late is removed, and until that is certain the error says so.
func TestGivenUpCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		late    bool
		applied provider.Applied
	}{"the answer comes": {false, provider.AppliedNo}, "the answer comes late": {true, provider.AppliedUnknown}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req := request()
			req.Labels[provider.LabelOwner] = w.id
			gaveUp := make(chan struct{})
			if c.late {
				docker.SetLatePatience(w.p, time.Second)
			}
			w.engine.failBefore("ContainerCreate", func(name string) error {
				if name != req.Name {
					return nil // of the supervisor's
				}
				cancel()
				if !c.late {
					time.Sleep(300 * time.Millisecond) // the engine is slow
					return nil
				}
				select {
				case <-gaveUp:
					return nil
				case <-time.After(time.Minute):
					return errors.New("the create waits for the engine")
				}
			})
			made := make(chan struct{})
			w.engine.failAfter("ContainerCreate", func(name string) error {
				if name == req.Name {
					close(made)
				}
				return nil
			})
			_, err := w.p.Create(ctx, req)
			close(gaveUp)
			assert.ErrorIs(t, err, provider.ErrCanceled)
			assert.Equal(t, c.applied, provider.AppliedOf(err))
			select {
			case <-made: // whatever is to come has come
			case <-time.After(time.Minute):
				t.Fatal("the engine was not asked")
			}
			assert.Eventually(t, func() bool { return len(w.sandboxes()) == 0 && len(w.volumes()) == 0 },
				time.Minute, 100*time.Millisecond, "something is left")
			// Nor a volume that the engine made by itself, without labels.
			all, err := api(t).VolumeList(t.Context(), volume.ListOptions{Filters: filters.NewArgs(filters.Arg("name", req.Name))})
			require.NoError(t, err)
			assert.Empty(t, all.Volumes)
			asked := slices.DeleteFunc(w.engine.list("ContainerCreate"), func(c string) bool { return !strings.HasSuffix(c, req.Name) })
			assert.Len(t, asked, 1)
		})
	}
}

// A create that fails does not remove what another process made of the session
// meanwhile.
func TestFailedCreateSparesAnothersSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := newProvider(t)
	req := request()
	req.Labels[provider.LabelOwner] = w.id
	w.engine.failAfter("VolumeCreate", func(name string) error {
		if name != req.Name {
			return nil // of the supervisor's, at the same time
		}
		theirs := req
		theirs.Labels = maps.Clone(req.Labels)
		theirs.Labels[provider.LabelAttempt] = randomHex(16)
		if _, err := other.Create(t.Context(), theirs); err != nil {
			return err
		}
		return errBroken
	})
	_, err := w.p.Create(t.Context(), req)
	assert.ErrorIs(t, err, provider.ErrUnavailable)
	assert.Equal(t, provider.AppliedUnknown, provider.AppliedOf(err))
	sb, err := other.Open(t.Context(), provider.Ref{ID: req.Name})
	require.NoError(t, err, "it was removed")
	assert.Equal(t, "works\n", run(t, sb, shell("echo works")).stdout)
	assert.Equal(t, []string{req.Name}, w.volumes())
}

// The owner's network goes with its last sandbox: a removal that fails is an error,
// and is tried again with the sandbox, which is listed until then.
func TestNetworkGoesWithTheLastSandbox(t *testing.T) {
	t.Parallel()
	onNetwork := func(w *world) provider.CreateRequest {
		return request(func(r *provider.CreateRequest) { r.Network, r.Labels[provider.LabelOwner] = "default", w.id })
	}
	made := func(t *testing.T) (w *world, ref provider.Ref, networks func() int) {
		w = newWorld(t)
		sb, err := w.p.Create(t.Context(), onNetwork(w))
		require.NoError(t, err)
		networks = func() int {
			list, err := api(t).NetworkList(t.Context(), network.ListOptions{Filters: filters.NewArgs(filters.Arg("label", provider.LabelOwner+"="+w.id))})
			require.NoError(t, err)
			return len(list)
		}
		require.Equal(t, 1, networks())
		return w, sb.Ref(), networks
	}
	t.Run("the removal fails once", func(t *testing.T) {
		t.Parallel()
		w, ref, networks := made(t)
		w.engine.failBefore("NetworkRemove", once(1, errBroken))
		err := w.p.Destroy(t.Context(), ref)
		assert.ErrorIs(t, err, provider.ErrUnavailable)
		assert.Equal(t, provider.AppliedUnknown, provider.AppliedOf(err))
		assert.Equal(t, []string{ref.ID}, w.sandboxes(), "what is left is still listed")
		require.NoError(t, w.p.Destroy(t.Context(), ref))
		assert.Zero(t, networks())
		assert.Empty(t, w.sandboxes())
	})
	t.Run("the container vanished", func(t *testing.T) {
		t.Parallel()
		w, ref, networks := made(t)
		require.NoError(t, api(t).ContainerRemove(t.Context(), ref.ID, container.RemoveOptions{Force: true}))
		require.NoError(t, w.p.Destroy(t.Context(), ref))
		assert.Zero(t, networks())
	})
	t.Run("the create fails while it is being made", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		asked, refused, made := make(chan struct{}), make(chan struct{}), make(chan struct{})
		w.engine.failBefore("ImageInspect", func(string) error { <-asked; close(refused); return w.echo() })
		w.engine.failBefore("NetworkCreate", func(string) error {
			close(asked)
			<-refused
			time.Sleep(200 * time.Millisecond) // the engine is slow
			return nil
		})
		w.engine.failAfter("NetworkCreate", func(string) error { close(made); return nil })
		_, err := w.p.Create(t.Context(), onNetwork(w))
		assert.ErrorContains(t, err, "cannot do it")
		<-made
		list, err := api(t).NetworkList(t.Context(), network.ListOptions{Filters: filters.NewArgs(filters.Arg("label", provider.LabelOwner+"="+w.id))})
		require.NoError(t, err)
		assert.Empty(t, list, "the network is left")
	})
	t.Run("somebody else is on it", func(t *testing.T) {
		t.Parallel()
		w, ref, networks := made(t)
		w.engine.failBefore("NetworkRemove", once(1, forbidden{}))
		require.NoError(t, w.p.Destroy(t.Context(), ref), "an engine forbids it while something is on the network")
		assert.Equal(t, 1, networks())
		sb, err := w.p.Create(t.Context(), onNetwork(w))
		require.NoError(t, err)
		require.NoError(t, w.p.Destroy(t.Context(), sb.Ref()))
		assert.Zero(t, networks())
	})
}

// The last two sandboxes of an owner that go at the same time leave no network: one of
// them still sees the other there, and that one must not think that it is looked after.
func TestNetworkGoesWithTheLastTwo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var refs []provider.Ref
	for range 2 {
		sb, err := w.p.Create(t.Context(), request(func(r *provider.CreateRequest) {
			r.Network, r.Labels[provider.LabelOwner] = "default", w.id
		}))
		require.NoError(t, err)
		refs = append(refs, sb.Ref())
	}
	// The first has looked who is on the network, when the second has gone from it.
	looked, removed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.engine.failAfter("ContainerListOn", func(string) error {
		once.Do(func() {
			close(looked)
			select {
			case <-removed:
				time.Sleep(200 * time.Millisecond) // it asks itself now
			case <-time.After(time.Minute):
			}
		})
		return nil
	})
	first := make(chan error, 1)
	go func() { first <- w.p.Destroy(t.Context(), refs[0]) }()
	<-looked
	w.engine.failAfter("ContainerRemove", func(string) error { close(removed); return nil })
	assert.NoError(t, w.p.Destroy(t.Context(), refs[1]))
	assert.NoError(t, <-first)
	list, err := api(t).NetworkList(t.Context(), network.ListOptions{Filters: filters.NewArgs(filters.Arg("label", provider.LabelOwner+"="+w.id))})
	require.NoError(t, err)
	assert.Empty(t, list, "the network is left")
}

// forbidden is how an engine refuses to remove a network that is in use.
type forbidden struct{}

func (forbidden) Error() string { return "Error response from daemon: network has active endpoints" }
func (forbidden) Forbidden()    {}

// Whatever answers as an engine: an answer without what it must have is an error,
// and destroys or adopts nothing.
func TestIncompleteAnswers(t *testing.T) {
	t.Parallel()
	o := options(t)
	c, err := docker.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	e := &hollow{faulty: newFaulty(c)}
	p, err := docker.NewWithEngine(t.Context(), e, o)
	require.NoError(t, err)
	sb := create(t, p)
	for _, answer := range []string{`{}`, `{"Id":"x","Name":"/` + sb.Ref().ID + `"}`, `{"Id":"x","State":{}}`, `{"Config":{},"State":null}`} {
		e.answer(answer)
		_, err = p.Open(t.Context(), sb.Ref())
		wantProblem(t, err, provider.Internal, "incomplete")
		_, err = sb.Status(t.Context())
		wantProblem(t, err, provider.Internal, "incomplete")
		wantProblem(t, p.Destroy(t.Context(), sb.Ref()), provider.Internal, "incomplete")
		req := request()
		_, err = p.Create(t.Context(), req)
		wantProblem(t, err, provider.Internal, "incomplete")
		e.answer("")
		destroy(t, p, provider.Ref{ID: req.Name})
	}
	assert.Equal(t, "there\n", run(t, sb, shell("echo there")).stdout)
}

// hollow is an engine whose descriptions of containers are the test's.
type hollow struct {
	*faulty
	mu   sync.Mutex
	json string
}

func (h *hollow) answer(json string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.json = json
}

func (h *hollow) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	h.mu.Lock()
	text := h.json
	h.mu.Unlock()
	if text == "" {
		return h.faulty.ContainerInspect(ctx, id)
	}
	var r container.InspectResponse
	err := json.Unmarshal([]byte(text), &r)
	return r, err
}

// Closing converges, however often a part of it fails.
func TestCloseConverges(t *testing.T) {
	t.Parallel()
	t.Run("JU-40 removal fails twice", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		s := w.create(protected())
		w.engine.failBefore("ContainerRemove", once(2, w.echo()))
		for range 2 {
			w.masked(s.Close(t.Context()), s.Info().Sandbox)
		}
		require.NoError(t, s.Close(t.Context()))
		assert.Empty(t, w.sandboxes())
		assert.Empty(t, w.volumes())
	})
	t.Run("JU-41 PY-33 removing the volume fails", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		s := w.create(protected())
		w.engine.failBefore("VolumeRemove", once(1, w.echo()))
		w.masked(s.Close(t.Context()), s.Info().Sandbox)
		_, err := api(t).ContainerInspect(t.Context(), s.Info().Sandbox)
		assert.Error(t, err, "the container is gone")
		assert.Len(t, w.sandboxes(), 1, "what is left is still listed")
		require.NoError(t, s.Close(t.Context()))
		assert.Empty(t, w.sandboxes())
		assert.Empty(t, w.volumes())
	})
	t.Run("JU-42 PY-32 somebody removed it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		s := w.create(protected())
		name := s.Info().Sandbox
		require.NoError(t, api(t).ContainerRemove(t.Context(), name, container.RemoveOptions{Force: true}))
		require.NoError(t, api(t).VolumeRemove(t.Context(), name, false))
		require.NoError(t, s.Close(t.Context()))
		require.NoError(t, s.Close(t.Context()))
	})
	t.Run("PY-38 a replacement's volume cannot be removed at first", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		m := protected()
		s := w.create(m)
		s2, err := w.resume(w.state(s), m)
		require.NoError(t, err)
		for n := 1; n <= 2; n++ {
			w.engine.failBefore("VolumeRemove", once(1, w.echo()))
			w.masked(s2.Close(t.Context()), s2.Info().Sandbox)
			assert.NotEmpty(t, w.sandboxes())
		}
		w.engine.heal()
		require.NoError(t, s2.Close(t.Context()))
		assert.Empty(t, w.sandboxes())
		assert.Empty(t, w.volumes())
	})
}

// What is named and labelled almost like ours is never touched.
func TestForeignThingsAreLeftAlone(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	cli := api(t)
	good := request()
	without := func(label string) map[string]string {
		m := map[string]string{}
		for k, v := range good.Labels {
			if k != label {
				m[k] = v
			}
		}
		m["sbxhost.docker.kind"] = "sandbox"
		return m
	}
	foreign := map[string]map[string]string{
		"no labels":              nil,
		"no attempt":             without(provider.LabelAttempt),
		"no owner":               without(provider.LabelOwner),
		"no kind of ours":        func() map[string]string { m := without(""); delete(m, "sbxhost.docker.kind"); return m }(),
		"another session's name": func() map[string]string { m := without(""); m[provider.LabelSession] = randomHex(16); return m }(),
	}
	for what, labels := range foreign {
		t.Run(what, func(t *testing.T) {
			req := request()
			if labels != nil && labels[provider.LabelSession] == good.SessionID {
				labels[provider.LabelSession] = req.SessionID
			}
			made, err := cli.ContainerCreate(t.Context(), &container.Config{Image: busyboxImage(t), Cmd: []string{"sleep", "300"}, Labels: labels},
				&container.HostConfig{NetworkMode: "none"}, nil, nil, req.Name)
			require.NoError(t, err)
			defer func() {
				require.NoError(t, cli.ContainerRemove(context.WithoutCancel(t.Context()), made.ID, container.RemoveOptions{Force: true}))
			}()
			_, err = p.Open(t.Context(), provider.Ref{ID: req.Name})
			assert.ErrorIs(t, err, provider.ErrNotFound)
			err = p.Destroy(t.Context(), provider.Ref{ID: req.Name})
			wantProblem(t, err, provider.PermissionDenied, "does not carry our labels")
			_, err = p.Create(t.Context(), req)
			wantProblem(t, err, provider.AlreadyExists, "not ours")
			list, err := p.List(t.Context(), provider.Query{})
			require.NoError(t, err)
			for _, r := range list {
				assert.NotEqual(t, req.Name, r.Name)
			}
			_, err = cli.ContainerInspect(t.Context(), made.ID)
			assert.NoError(t, err, "it was removed")
			_, err = cli.VolumeInspect(t.Context(), req.Name)
			assert.Error(t, err, "a volume is left")
		})
	}
	t.Run("a volume", func(t *testing.T) {
		req := request()
		_, err := cli.VolumeCreate(t.Context(), volume.CreateOptions{Name: req.Name, Labels: map[string]string{provider.LabelSession: req.SessionID}})
		require.NoError(t, err)
		defer func() { require.NoError(t, cli.VolumeRemove(context.WithoutCancel(t.Context()), req.Name, false)) }()
		_, err = p.Create(t.Context(), req)
		wantProblem(t, err, provider.Conflict, "volume", "not ours")
		require.NoError(t, p.Destroy(t.Context(), provider.Ref{ID: req.Name}))
		_, err = cli.VolumeInspect(t.Context(), req.Name)
		assert.NoError(t, err, "it was removed")
	})
	t.Run("a name that begins like a container's id", func(t *testing.T) {
		sb := create(t, p)
		info, err := cli.ContainerInspect(t.Context(), sb.Ref().ID)
		require.NoError(t, err)
		require.NoError(t, p.Destroy(t.Context(), provider.Ref{ID: info.ID}))
		require.NoError(t, p.Destroy(t.Context(), provider.Ref{ID: info.ID[:12]}))
		_, err = p.Open(t.Context(), provider.Ref{ID: info.ID})
		assert.ErrorIs(t, err, provider.ErrNotFound)
		_, err = sb.Status(t.Context())
		assert.NoError(t, err)
	})
	t.Run("a container that uses our volume", func(t *testing.T) {
		sb, err := p.Create(t.Context(), request())
		require.NoError(t, err)
		name := sb.Ref().ID
		made, err := cli.ContainerCreate(t.Context(), &container.Config{Image: busyboxImage(t), Cmd: []string{"sleep", "300"}},
			&container.HostConfig{NetworkMode: "none", Binds: []string{name + ":/data"}}, nil, nil, "")
		require.NoError(t, err)
		require.NoError(t, p.Destroy(t.Context(), provider.Ref{ID: name}))
		_, err = cli.ContainerInspect(t.Context(), made.ID)
		assert.NoError(t, err)
		require.NoError(t, cli.ContainerRemove(t.Context(), made.ID, container.RemoveOptions{Force: true}))
		destroy(t, p, provider.Ref{ID: name})
		_, err = cli.VolumeInspect(t.Context(), name)
		assert.Error(t, err)
	})
}

// A supervisor's volume that somebody changed starts nothing.
func TestChangedSupervisorStartsNothing(t *testing.T) {
	shim := t.TempDir() + "/shim"
	b := slurp(t, selfShim(t))
	own := b + "\x00" + randomHex(8) // another build, with a volume of its own
	writeFile(t, shim, own)
	p := newProvider(t, func(x *optionsType) { x.ShimPath = shim })
	sb := create(t, p) // its volume is there now
	cli := api(t)
	info, err := cli.ContainerInspect(t.Context(), sb.Ref().ID)
	require.NoError(t, err)
	var vol string
	for _, m := range info.Mounts {
		if m.Destination == "/.sbx" {
			vol = m.Name
			assert.False(t, m.RW, "the supervisor can be written to from inside")
		}
	}
	require.NotEmpty(t, vol)
	t.Cleanup(func() {
		ctx := context.Background()
		destroy(t, p, sb.Ref())
		require.NoError(t, cli.ContainerRemove(ctx, vol, container.RemoveOptions{Force: true}))
		require.NoError(t, cli.VolumeRemove(ctx, vol, false))
	})
	for what, content := range map[string]string{"another program": strings.Repeat("x", len(own)), "another last byte": own[:len(own)-1] + "\x01"} {
		putFile(t, vol, "/.sbx", "shim", content, 0o111)
		req := request()
		_, err := p.Create(t.Context(), req)
		wantProblem(t, err, provider.FailedPrecondition, "somebody changed it", "docker volume rm "+vol)
		_, ierr := cli.ContainerInspect(t.Context(), req.Name)
		require.Error(t, ierr, what)
	}
	putFile(t, vol, "/.sbx", "shim", own, 0o4111)
	_, err = p.Create(t.Context(), request())
	wantProblem(t, err, provider.FailedPrecondition)
	putFile(t, vol, "/.sbx", "shim", own, 0o111)
	create(t, p)

	// What an interrupted first time left is completed.
	putFile(t, vol, "/.sbx", "shim", b, 0o111)
	fresh := newProvider(t, func(x *optionsType) { x.ShimPath = shim })
	create(t, fresh)
}

// Several processes that meet an engine without this supervisor at the same time: one
// puts it there and the others wait for it. Another copy would take it away from under
// a container that is about to start.
func TestFirstUseAtTheSameTime(t *testing.T) {
	t.Parallel()
	shim := t.TempDir() + "/shim"
	writeFile(t, shim, slurp(t, selfShim(t))+"\x00"+randomHex(8))
	o := options(t)
	o.ShimPath = shim
	cli := api(t)
	var engines []*faulty
	var wg sync.WaitGroup
	for range 5 {
		e := newFaulty(cli)
		engines = append(engines, e)
		p, err := docker.NewWithEngine(t.Context(), e, o)
		require.NoError(t, err)
		docker.SetPutPatience(p, 5*time.Minute) // none has died
		wg.Go(func() {
			sb, err := p.Create(t.Context(), request())
			if assert.NoError(t, err) {
				assert.NoError(t, p.Destroy(t.Context(), sb.Ref()))
			}
		})
	}
	wg.Wait()
	puts, keeper := 0, ""
	for _, e := range engines {
		puts += e.asked("CopyToContainer")
		for _, c := range e.list("ContainerCreate") {
			if _, name, _ := strings.Cut(c, " "); strings.HasPrefix(name, "sbxhost-supervisor-") {
				keeper = name
			}
		}
	}
	assert.Equal(t, 1, puts)
	require.NotEmpty(t, keeper)
	require.NoError(t, cli.ContainerRemove(t.Context(), keeper, container.RemoveOptions{Force: true}))
	require.NoError(t, cli.VolumeRemove(t.Context(), keeper, false))
}

// What is put there takes its time: this process's own is nobody else's delay, and of
// another one that does not come to an end it is said so, not that somebody changed
// something.
func TestSlowFirstUse(t *testing.T) {
	t.Parallel()
	fresh := func(t *testing.T) (*faulty, *docker.Provider, string) {
		shim := t.TempDir() + "/shim"
		program := slurp(t, selfShim(t)) + "\x00" + randomHex(8)
		writeFile(t, shim, program)
		o := options(t)
		o.ShimPath = shim
		e := newFaulty(api(t))
		p, err := docker.NewWithEngine(t.Context(), e, o)
		require.NoError(t, err)
		docker.SetPutPatience(p, 300*time.Millisecond)
		name := fmt.Sprintf("sbxhost-supervisor-%x", sha256.Sum256([]byte(program)))[:len("sbxhost-supervisor-")+32]
		t.Cleanup(func() {
			_ = api(t).ContainerRemove(context.WithoutCancel(t.Context()), name, container.RemoveOptions{Force: true})
			assert.NoError(t, api(t).VolumeRemove(context.WithoutCancel(t.Context()), name, true))
		})
		return e, p, name
	}
	t.Run("its own image", func(t *testing.T) {
		t.Parallel()
		e, p, name := fresh(t)
		missing := once(1, fmt.Errorf("no such image: %w", cerrdefs.ErrNotFound))
		e.failBefore("ContainerCreate", func(n string) error {
			if n == name {
				return missing(n)
			}
			return nil
		})
		e.failBefore("ImageImport", func(string) error { time.Sleep(600 * time.Millisecond); return nil })
		sb, err := p.Create(t.Context(), request())
		require.NoError(t, err)
		assert.Equal(t, 1, e.asked("ImageImport"))
		assert.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	})
	t.Run("its own engine", func(t *testing.T) {
		t.Parallel()
		e, p, name := fresh(t)
		slow := true
		e.failBefore("ContainerInspect", func(n string) error {
			if n == name && slow { // one look at a time
				slow = false
				time.Sleep(600 * time.Millisecond)
			}
			return nil
		})
		sb, err := p.Create(t.Context(), request())
		require.NoError(t, err)
		assert.False(t, slow)
		assert.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	})
	t.Run("another's name", func(t *testing.T) {
		t.Parallel()
		e, p, name := fresh(t)
		e.failBefore("ContainerCreate", func(n string) error {
			if n == name {
				return fmt.Errorf("the name is in use: %w", cerrdefs.ErrConflict)
			}
			return nil
		})
		_, err := p.Create(t.Context(), request())
		wantProblem(t, err, provider.Unavailable, "another process", "try again")
		assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
	})
	// Whoever finds it waits, and no longer than it may; the next one goes on from there.
	t.Run("another that died", func(t *testing.T) {
		t.Parallel()
		e, p, name := fresh(t)
		e.failBefore("CopyToContainer", once(1, errBroken))
		_, err := p.Create(t.Context(), request())
		require.Error(t, err)
		_, err = api(t).ContainerInspect(t.Context(), name)
		require.NoError(t, err, "the keeper is there and empty")
		docker.SetPutPatience(p, time.Hour)
		one, stop := context.WithCancel(t.Context())
		first, looks := make(chan error, 1), e.asked("CopyFromContainer")
		go func() {
			_, err := p.Create(one, request())
			first <- err
		}()
		// At its second look it has seen what the first one said.
		require.Eventually(t, func() bool { return e.asked("CopyFromContainer") > looks+1 }, time.Minute, time.Millisecond)
		waiting := time.Now()
		two, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err = p.Create(two, request())
		assert.ErrorIs(t, err, provider.ErrDeadlineExceeded, "it waits for the one that waits")
		assert.Empty(t, first)
		stop()
		assert.ErrorIs(t, <-first, provider.ErrCanceled)
		docker.SetPutPatience(p, time.Since(waiting)) // which is over, counted from the first
		looked := e.asked("CopyFromContainer")
		sb, err := p.Create(t.Context(), request())
		require.NoError(t, err)
		assert.LessOrEqual(t, e.asked("CopyFromContainer")-looked, 3, "it goes on from where the one before was: missing, put, read back")
		assert.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	})
}

// A name that is taken and shows nothing yet is another process's, which has only begun:
// what it made, the workspace of the same name included, is left to it.
func TestNameTakenAndNotShown(t *testing.T) {
	t.Parallel()
	cli := api(t)
	e := newFaulty(cli)
	p, err := docker.NewWithEngine(t.Context(), e, options(t))
	require.NoError(t, err)
	req := request()
	e.failBefore("ContainerCreate", func(name string) error {
		if name == req.Name { // and not the supervisor's, where that is not there yet
			return fmt.Errorf("the name is in use: %w", cerrdefs.ErrConflict)
		}
		return nil
	})
	_, err = p.Create(t.Context(), req)
	wantProblem(t, err, provider.Conflict, "another process makes this sandbox")
	assert.Zero(t, e.asked("VolumeRemove", "ContainerRemove"))
	require.NoError(t, cli.VolumeRemove(t.Context(), req.Name, false))
}

// An error of an engine that says what is full, and how to go on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, method := range []string{"VolumeCreate", "ContainerCreate", "ContainerStart"} {
		w.engine.failBefore(method, once(1, errors.New("Error response from daemon: mkdir /var/lib/docker/x: no space left on device")))
		_, err := w.make(ordinary())
		require.Error(t, err)
		assert.ErrorIs(t, err, provider.ErrResourceExhausted, method)
		assert.ErrorContains(t, err, "disk is full")
		assert.ErrorContains(t, err, "docker system df")
		w.engine.heal()
	}
	w.engine.failBefore("ContainerStart", once(1, errors.New("driver failed programming external connectivity: Bind for 127.0.0.1:80 failed: port is already allocated")))
	_, err := w.make(ordinary())
	assert.ErrorIs(t, err, provider.ErrResourceExhausted)
	assert.ErrorContains(t, err, "taken")
	assert.Empty(t, w.sandboxes())
	assert.Empty(t, w.volumes())
}

// JU-48: a path grant is mounted as it says, and file access stays in the root.
func TestPathGrants_JU48(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	dir := t.TempDir()
	writeFile(t, dir+"/f", "from the host")
	require.NoError(t, chmodUp(dir))
	sb := create(t, p, func(r *provider.CreateRequest) {
		r.Mounts = []provider.PathGrant{{Path: "/grant,ro=\"x\"", HostPath: dir, ReadOnly: true}, {Path: "/open", HostPath: dir}}
	})
	info, err := api(t).ContainerInspect(t.Context(), sb.Ref().ID)
	require.NoError(t, err)
	for _, m := range info.HostConfig.Mounts {
		if m.ReadOnly && m.BindOptions != nil {
			assert.True(t, m.BindOptions.NonRecursive, "what is mounted below a read-only grant can be written")
		}
	}
	got := run(t, sb, shell(`cat '/grant,ro="x"/f'; touch '/grant,ro="x"/g' 2>/dev/null || echo " refused"; echo written > /open/h`))
	assert.Equal(t, "from the host refused\n", got.stdout)
	assert.Equal(t, "written\n", slurp(t, dir+"/h"))
	_, err = sb.Files().Stat(t.Context(), "../open/f")
	assert.ErrorIs(t, err, provider.ErrPermissionDenied)
}

package daytona_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/daytona"
	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/internal/daytonatest"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// source is a grants.Source whose values change.
type source struct {
	mu     sync.Mutex
	values map[string]string
}

func (s *source) set(v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values["HOST_TOKEN"] = v
}

func (s *source) Lookup(_ context.Context, name string) (secret.Value, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.values[name]
	return secret.FromString(v), ok, nil
}

func (s *source) Present(_ context.Context, name string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.values[name]
	return ok, nil
}

// world is a host on a fake service.
type world struct {
	*host.Host
	t      *testing.T
	srv    *daytonatest.Server
	source *source
	ledger ledger.Ledger
	token  string
	mods   []func(*daytona.Options)
	opts   host.Options // beside what every world has
	later  atomic.Int64 // how far the host's clock is ahead
}

func newWorld(t *testing.T, mods ...func(*daytona.Options)) *world {
	t.Helper()
	return worldWith(t, host.Options{}, mods...)
}

func worldWith(t *testing.T, opts host.Options, mods ...func(*daytona.Options)) *world {
	t.Helper()
	w := &world{t: t, srv: daytonatest.New(t, daytonatest.Options{}), ledger: ledger.Memory(), token: "canary-" + hexID(12), opts: opts, mods: mods}
	w.source = &source{values: map[string]string{"HOST_TOKEN": w.token}}
	w.Host = w.host()
	t.Cleanup(func() {
		w.srv.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		assert.NoError(t, w.Close(ctx))
		for _, sb := range w.srv.Sandboxes() {
			assert.True(t, sb.Destroyed, "%s is left: %s", sb.Name, sb.State)
		}
	})
	return w
}

// host is a host with the world's ledger and owner, as after a restart.
func (w *world) host() *host.Host {
	o := w.opts
	o.ID, o.Ledger, o.Source = "owner-a", w.ledger, w.source
	o.Grants = grants.Set{ProcessEnvironmentBindings: map[string]string{"TOKEN": "HOST_TOKEN"}}
	o.Clock = func() time.Time { return time.Now().Add(time.Duration(w.later.Load())) }
	h, err := host.New(o)
	require.NoError(w.t, err)
	require.NoError(w.t, h.RegisterTrusted("daytona", newProvider(w.t, w.srv, w.mods...)))
	return h
}

func withReference() manifest.Manifest {
	m := manifest.New()
	m.Environment = map[string]manifest.Entry{"TOKEN": {Reference: &manifest.Reference{Name: "HOST_TOKEN"}}}
	return m
}

func (w *world) create(tr host.Transport) *host.Session {
	w.t.Helper()
	s, err := w.Create(w.t.Context(), host.CreateRequest{Provider: "daytona", Manifest: withReference(), Transport: tr})
	require.NoError(w.t, err)
	return s
}

func (w *world) live() []daytonatest.SandboxInfo {
	var out []daytonatest.SandboxInfo
	for _, sb := range w.srv.Sandboxes() {
		if !sb.Destroyed && sb.State != "destroying" {
			out = append(out, sb)
		}
	}
	return out
}

func (w *world) resume(h *host.Host, state []byte) (*host.Session, error) {
	m := withReference()
	return h.Resume(w.t.Context(), host.ResumeRequest{State: state, Provider: "daytona", Manifest: &m})
}

func TestHostSessionKeepsValuesToItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.create("")
	assert.Equal(t, "exec/envs", s.Transport())
	r, err := s.Exec(t.Context(), host.ExecRequest{Shell: `echo "token is $TOKEN, length ${#TOKEN}"`})
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("token is [redacted:TOKEN], length %d\n", len(w.token)), string(r.Stdout))
	state, err := s.State(t.Context())
	require.NoError(t, err)
	assert.NotContains(t, string(state), w.token)
	assert.NotContains(t, string(state), w.srv.Key())
	assert.NotContains(t, string(state), w.srv.URL())
	assert.Empty(t, w.srv.Find([]byte(w.token)))
	_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"/no/such/command"}})
	require.Error(t, err)
	assert.NotContains(t, fmt.Sprintf("%+v", err), w.token)
}

func TestResumeMovesTheWorkspace(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"running": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.create("")
			require.NoError(t, s.WriteFile(t.Context(), "d/file", []byte("content \x00\xff"), host.WriteOptions{}))
			first := w.live()[0].ID
			state, err := s.Detach(t.Context())
			require.NoError(t, err)
			if stopped {
				p := newProvider(t, w.srv)
				sb, err := p.Open(t.Context(), provider.Ref{ID: first})
				require.NoError(t, err)
				require.NoError(t, sb.(provider.Pauser).Pause(t.Context()))
			}
			rotated := "canary-" + hexID(12)
			w.source.set(rotated)
			s, err = w.resume(w.Host, state)
			require.NoError(t, err)
			live := w.live()
			require.Len(t, live, 1, "the previous one is retired")
			assert.NotEqual(t, first, live[0].ID)
			data, err := s.ReadFile(t.Context(), "d/file")
			require.NoError(t, err)
			assert.Equal(t, "content \x00\xff", string(data.Data))
			r, err := s.Exec(t.Context(), host.ExecRequest{Shell: `printf %s "$TOKEN" | wc -c; test "$TOKEN" != ` + w.token})
			require.NoError(t, err)
			assert.Equal(t, 0, r.ExitCode)
			assert.Empty(t, w.srv.Find([]byte(rotated)))
			assert.Empty(t, w.srv.Find([]byte(w.token)))
		})
	}
}

func TestFailedResumeLeavesThePreviousAsItWas(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]daytonatest.Fault{
		"replacement fails to start": {Kind: daytonatest.CreateFails, Times: 1},
		"upload fails":               {Kind: daytonatest.ServerError, On: []daytonatest.Op{daytonatest.OpFileBulkUp}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.create("")
			require.NoError(t, s.WriteFile(t.Context(), "file", []byte("content"), host.WriteOptions{}))
			first := w.live()[0].ID
			state, err := s.Detach(t.Context())
			require.NoError(t, err)
			p := newProvider(t, w.srv)
			sb, err := p.Open(t.Context(), provider.Ref{ID: first})
			require.NoError(t, err)
			require.NoError(t, sb.(provider.Pauser).Pause(t.Context()))
			w.srv.Inject(f)
			_, err = w.resume(w.Host, state)
			require.Error(t, err)
			var le *host.LifecycleError
			require.ErrorAs(t, err, &le)
			live := w.live()
			require.Len(t, live, 1)
			assert.Equal(t, first, live[0].ID)
			// A host waits only a second for an export that it gave up.
			require.Eventually(t, func() bool { i, _ := w.srv.Sandbox(first); return i.State == "stopped" }, 30*time.Second, 10*time.Millisecond,
				"it was started for the move, and is put back")
			w.srv.Heal()
			s, err = w.resume(w.Host, state)
			require.NoError(t, err)
			data, err := s.ReadFile(t.Context(), "file")
			require.NoError(t, err)
			assert.Equal(t, "content", string(data.Data))
		})
	}
}

// A state that was tampered with leads no request and no value anywhere, and
// deletes nothing that is not ours.
func TestTamperedState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address := evil(t)
	s := w.create("")
	mine := w.live()[0].ID
	other, err := w.Create(t.Context(), host.CreateRequest{Provider: "daytona", Manifest: manifest.New()})
	require.NoError(t, err)
	theirs := foreign(t, w.srv, "somebody-elses", map[string]string{"team": "core"})
	t.Cleanup(func() {
		for _, sb := range w.live() {
			if sb.ID == theirs {
				assert.Equal(t, "started", sb.State)
			}
		}
	})
	state, err := s.Detach(t.Context())
	require.NoError(t, err)
	var otherID string
	for _, sb := range w.live() {
		if sb.Labels[provider.LabelSession] == other.ID() {
			otherID = sb.ID
		}
	}
	require.NotEmpty(t, otherID)
	tamper := func(change func(m map[string]any)) []byte {
		var m map[string]any
		require.NoError(t, json.Unmarshal(state, &m))
		change(m)
		out, err := json.Marshal(m)
		require.NoError(t, err)
		return out
	}
	sandbox := func(v map[string]any) func(map[string]any) {
		return func(m map[string]any) { m["sandbox"] = v }
	}
	for name, st := range map[string][]byte{
		"another session's":   tamper(sandbox(map[string]any{"id": otherID})),
		"somebody else's":     tamper(sandbox(map[string]any{"id": theirs})),
		"an address as an id": tamper(sandbox(map[string]any{"id": address})),
		"a field more":        tamper(func(m map[string]any) { m["apiUrl"] = address }),
		"another session":     tamper(func(m map[string]any) { m["sessionId"] = hexID(16) }),
	} {
		_, err := w.resume(w.Host, st)
		require.Error(t, err, name)
		assert.Len(t, w.live(), 3, "%s: something was deleted or made", name)
	}
	assert.Empty(t, w.srv.Find([]byte(w.token)))
	// With the right id the rest of it is not looked at: settings come from the
	// configuration, and the evil server hears nothing.
	_, err = w.resume(w.Host, tamper(sandbox(map[string]any{"id": mine, "data": map[string]any{"apiUrl": address, "toolboxProxyUrl": address, "apiKey": "x"}})))
	require.NoError(t, err)
	assert.Len(t, w.live(), 3)
	deleteForeign(t, w.srv, theirs)
}

// The create transport's exposure is said before, and in the record of each
// disclosure.
func TestCreateTransportIsSaidToExpose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.create(host.TransportCreate)
	assert.Equal(t, "create", s.Transport())
	assert.NotEmpty(t, w.srv.Find([]byte(w.token)))
	r, err := s.Exec(t.Context(), host.ExecRequest{Shell: `echo "$TOKEN"`})
	require.NoError(t, err)
	assert.Equal(t, "[redacted:TOKEN]\n", string(r.Stdout))
}

// zeros is a long reader that takes no memory.
type zeros struct{ n int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.n <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.n)
	clear(p[:n])
	z.n -= n
	return int(n), nil
}

// Files and archives of 100 MB pass with bounded memory. The service's part of it
// runs in the same process, so only what grows with the size would be seen: it
// streams too. Not parallel: the heap is the whole process's.
func TestLargeStreamsTakeLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("moves hundreds of megabytes; not with -short")
	}
	const size = 100 << 20
	srv := daytonatest.New(t, daytonatest.Options{})
	p := newProvider(t, srv)
	from, to := create(t, p), create(t, p)
	watch := watchHeap(t)
	require.NoError(t, from.Files().Write(t.Context(), "big", &zeros{size}, provider.WriteOptions{}))
	r, info, err := from.Files().Open(t.Context(), "big")
	require.NoError(t, err)
	n, err := io.Copy(io.Discard, r)
	require.NoError(t, errors.Join(err, r.Close()))
	assert.EqualValues(t, size, n)
	assert.EqualValues(t, size, info.Size)
	pr, pw := io.Pipe()
	go func() { _ = pw.CloseWithError(from.(provider.Archiver).Export(t.Context(), pw)) }()
	require.NoError(t, to.(provider.Archiver).Import(t.Context(), pr))
	moved, err := to.Files().Stat(t.Context(), "big")
	require.NoError(t, err)
	assert.EqualValues(t, size, moved.Size)
	grew := watch()
	t.Logf("the heap grew by %d MiB while files and an archive of %d MiB passed", grew>>20, size>>20)
	assert.Less(t, grew, int64(96<<20), "bytes of heap for 100 MB")
}

// watchHeap returns the most that the live heap grew.
func watchHeap(t *testing.T) func() int64 {
	read := func() int64 {
		s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(s)
		return int64(s[0].Value.Uint64())
	}
	runtime.GC()
	base, peak := read(), int64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				peak = max(peak, read()-base)
			}
		}
	}()
	return func() int64 { close(stop); <-done; return peak }
}

func TestArchiveIsJudgedBeforeItIsUnpacked(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	sb := create(t, newProvider(t, srv))
	run(t, sb, script("ln -s /tmp outside; mkdir real"))
	for name, entries := range map[string][]tar.Header{
		"behind a link of the root":     {{Name: "good", Typeflag: tar.TypeReg}, {Name: "outside/evil", Typeflag: tar.TypeReg}},
		"a hard link out of it":         {{Name: "good", Typeflag: tar.TypeReg}, {Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}},
		"a hard link to a link's place": {{Name: "good", Typeflag: tar.TypeReg}, {Name: "h", Typeflag: tar.TypeLink, Linkname: "outside/x"}},
	} {
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		for _, h := range entries {
			require.NoError(t, tw.WriteHeader(&h))
		}
		require.NoError(t, tw.Close())
		err := sb.(provider.Archiver).Import(t.Context(), &b)
		require.ErrorIs(t, err, provider.ErrPermissionDenied, name)
		_, err = srv.ReadFile(sb.Ref().ID, "/workspace/good")
		require.Error(t, err, "%s: a part was unpacked", name)
	}
	err := sb.(provider.Archiver).Import(t.Context(), strings.NewReader("no archive at all, but long enough to be read as one"))
	require.Error(t, err)
}

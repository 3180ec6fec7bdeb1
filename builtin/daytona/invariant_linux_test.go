package daytona_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/daytona"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/internal/daytonatest"
	"github.com/sbxhost/sbxhost/provider"
)

// hostPhase is one operation of a host that a fault is tried on.
type hostPhase struct {
	name string
	// main are the operations that a fault of any answer strikes; all are those
	// that a fault with operations of its own may strike.
	main, all []daytonatest.Op
	do        func(s *faulty) error
}

var hostPhases = []hostPhase{
	{"exec", execOps, []daytonatest.Op{daytonatest.OpExecute, daytonatest.OpFileDownload, daytonatest.OpPTYConnect}, (*faulty).exec},
	{"create", createOps, []daytonatest.Op{daytonatest.OpCreate, daytonatest.OpExecute, daytonatest.OpList}, (*faulty).createAnother},
	{"resume, replacing", createOps, []daytonatest.Op{daytonatest.OpCreate, daytonatest.OpExecute, daytonatest.OpFileBulkUp, daytonatest.OpFileDownload, daytonatest.OpList}, (*faulty).resumeIt},
	{"resume, retiring", destroyOps, destroyOps, (*faulty).resumeIt},
	{"close", destroyOps, append([]daytonatest.Op{daytonatest.OpList}, destroyOps...), (*faulty).closeIt},
	{"reconcile", []daytonatest.Op{daytonatest.OpList}, []daytonatest.Op{daytonatest.OpList, daytonatest.OpGet}, (*faulty).reconcile},
}

// faulty is a world in which a fault is tried: with a session that it is tried on,
// one that is not concerned, and a sandbox of somebody else.
type faulty struct {
	*world
	t       *testing.T // of the phase
	kind    daytonatest.Kind
	session *host.Session // tried on
	other   *host.Session
	theirs  string
}

// TestInvariantUnderFaults tries every fault under every operation of a host.
// When it is over, and what was left is reconciled, there is exactly one sandbox
// for each live session, none is orphaned, nothing foreign was touched, and
// reconciling again changes nothing.
func TestInvariantUnderFaults(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	defer wg.Wait()
	turn := make(chan struct{}, 8)
	for i, k := range daytonatest.Kinds() {
		if testing.Short() && i%4 != 0 {
			continue // TestFaults has every fault at the provider; here, all without -short
		}
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			t.Run(string(k.Kind), func(t *testing.T) { invariant(t, k) })
		})
	}
}

func invariant(t *testing.T, k daytonatest.KindInfo) {
	f := faultOf(k.Kind)
	// Where something never comes, nobody waits long for it.
	hangs := slices.Contains([]daytonatest.Kind{daytonatest.Hang, daytonatest.HangAfter, daytonatest.SlowStart, daytonatest.UnknownState, daytonatest.StuckDestroying}, k.Kind)
	w := newWorld(t, func(o *daytona.Options) {
		o.DestroyTimeout = 3 * time.Second
		if hangs {
			o.CallTimeout, o.CreateTimeout = 2*time.Second, 6*time.Second
		}
	})
	if k.Kind == daytonatest.StuckDestroying {
		f.Delay = 4 * time.Second
	}
	s := &faulty{world: w, kind: k.Kind, theirs: somebodyElses(t, w.srv)}
	t.Cleanup(func() {
		info, _ := w.srv.Sandbox(s.theirs)
		assert.Equal(t, "started", info.State, "a foreign sandbox was touched")
		deleteForeign(t, w.srv, s.theirs)
	})
	s.t = t
	s.other = s.made()
	tried := 0
	for _, ph := range hostPhases {
		f := f
		if f.On = k.On; k.On == nil {
			f.On = ph.main
		} else if !slices.ContainsFunc(k.On, func(o daytonatest.Op) bool { return slices.Contains(ph.all, o) }) {
			continue
		}
		tried++
		if !t.Run(ph.name, func(t *testing.T) {
			s.t = t
			if s.session == nil {
				s.session = s.made()
				s.keep()
			}
			inj := w.srv.Inject(f)
			err := ph.do(s)
			if k.On == nil && (err == nil || !hangs) {
				assert.NotZero(t, inj.Hits(), "the fault did not happen")
			}
			s.typed(err)
			s.converge()
		}) {
			return
		}
	}
	// Nothing is ever downloaded in bulk.
	assert.Equal(t, k.Kind != daytonatest.NoBoundary, tried > 0, "the fault is tried nowhere")
	// What was left of it all goes, and what was not concerned works.
	r, err := s.other.Exec(t.Context(), host.ExecRequest{Shell: "exit 4"})
	require.NoError(t, err)
	assert.Equal(t, 4, r.ExitCode)
	report, err := w.Reconcile(t.Context())
	require.NoError(t, err)
	// Nobody waits long for a sandbox to be gone; on a busy machine it takes longer.
	for _, id := range report.Providers[0].Waiting {
		eventually(t, func() error { return w.Discard(t.Context(), id) })
	}
	for _, x := range w.Sessions() {
		eventually(t, func() error { return x.Close(t.Context()) })
	}
}

// eventually calls f until it succeeds.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		require.True(t, time.Now().Before(end), "%v", err)
	}
}

// somebodyElses makes a sandbox of another host, just like ours.
func somebodyElses(t *testing.T, srv *daytonatest.Server) string {
	t.Helper()
	req := request(func(r *provider.CreateRequest) {
		r.Labels[provider.LabelOwner], r.Labels["sbxhost.daytona.root"] = "owner-b", "/workspace"
	})
	id := foreign(t, srv, req.Name, req.Labels)
	require.Eventually(t, func() bool { i, _ := srv.Sandbox(id); return i.State == "started" }, 30*time.Second, time.Millisecond)
	return id
}

func (s *faulty) typed(err error) {
	s.t.Helper()
	if err == nil {
		return
	}
	assert.Contains(s.t, provider.Codes(), provider.CodeOf(err), "%v", err)
	var le *host.LifecycleError
	var re *host.RetirementError
	assert.True(s.t, errors.As(err, &le) || errors.As(err, &re), "%T %v", err, err)
	for e := err; e != nil; e = errors.Unwrap(e) {
		text := fmt.Sprintf("%v %+v %#v", e, e, e)
		assert.NotContains(s.t, text, s.token)
		assert.NotContains(s.t, text, s.srv.Key())
	}
}

// made makes a session; who does not wait long may need several tries.
func (s *faulty) made() (out *host.Session) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var err error
		out, err = s.Create(s.t.Context(), host.CreateRequest{Provider: "daytona", Manifest: withReference()})
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	return out
}

// keep writes what must survive everything.
func (s *faulty) keep() {
	require.NoError(s.t, s.session.WriteFile(s.t.Context(), "kept", []byte("content"), host.WriteOptions{}))
}

func (s *faulty) exec() error {
	sandbox := s.session.Info().Sandbox
	tty := s.kind == daytonatest.PTYAbnormal || s.kind == daytonatest.PTYRefused
	req := host.ExecRequest{Shell: `[ -n "$TOKEN" ] || echo without its values; echo once >> count; echo output`, TTY: tty, Timeout: 3 * time.Second}
	if tty {
		req.Cols, req.Rows = 80, 24
	}
	r, err := s.session.Exec(s.t.Context(), req)
	// Past the API: the command's file may come late, when its answer was early.
	content, readErr := s.srv.ReadFile(sandbox, "/workspace/count")
	n := strings.Count(string(content), "once")
	assert.LessOrEqual(s.t, n, 1, "the command ran more than once")
	switch {
	case err == nil && r.Status == provider.ExitExited && r.ExitCode == 0:
		assert.Equal(s.t, 1, n, "success without having run: %v", readErr)
		assert.Equal(s.t, "output", strings.TrimSpace(string(r.Stdout)))
	case err != nil && provider.AppliedOf(err) == provider.AppliedNo:
		assert.Zero(s.t, n, "%v says that nothing was started", err)
	}
	return err
}

func (s *faulty) createAnother() error {
	m := withReference()
	if s.kind == daytonatest.BuildFails {
		m.Image = "debian:12"
	}
	c, err := s.Create(s.t.Context(), host.CreateRequest{Provider: "daytona", Manifest: m})
	if err == nil {
		s.session = c // its predecessor stays, live
		s.srv.Heal()
		s.keep()
	}
	return err
}

func (s *faulty) resumeIt() error {
	state, err := s.session.State(s.t.Context())
	require.NoError(s.t, err)
	c, err := s.resume(s.Host, state)
	var re *host.RetirementError
	if err == nil || errors.As(err, &re) {
		require.NotNil(s.t, c)
		s.session = c
	} else {
		live, ok := s.Session(s.session.ID())
		require.True(s.t, ok, "a session was given up for a replacement that failed: %v", err)
		s.session = live
	}
	s.srv.Heal()
	data, readErr := s.session.ReadFile(s.t.Context(), "kept")
	require.NoError(s.t, readErr, "after %v", err)
	assert.Equal(s.t, "content", string(data.Data))
	return err
}

func (s *faulty) closeIt() error {
	err := s.session.Close(s.t.Context())
	s.session = nil
	return err
}

// reconcile is done by a host that was started anew, and knows no ids.
func (s *faulty) reconcile() error {
	id := s.session.ID()
	_, err := s.session.Detach(s.t.Context())
	require.NoError(s.t, err)
	s.session = nil
	h := s.host()
	before := len(s.live())
	report, err := h.Reconcile(s.t.Context())
	assert.Len(s.t, s.live(), before, "reconcile destroyed or made something: %+v", report)
	records, listErr := s.ledger.Session(s.t.Context(), id)
	require.NoError(s.t, listErr)
	assert.Len(s.t, records, 1, "what cannot be listed was forgotten: %+v", report)
	s.srv.Heal()
	assert.NoError(s.t, h.Close(s.t.Context()))
	return err
}

// converge lets the fault and an hour pass, reconciles, and checks the invariant.
func (s *faulty) converge() {
	s.t.Helper()
	s.srv.Heal()
	s.later.Add(int64(time.Hour))
	var report host.Report
	require.Eventually(s.t, func() bool {
		var err error
		report, err = s.Reconcile(s.t.Context())
		return err == nil && report.Providers[0].Code == "" && len(report.Providers[0].Pending) == 0
	}, 30*time.Second, 20*time.Millisecond, "reconcile does not come to an end")
	assert.Empty(s.t, report.Providers[0].Unproven)
	var again host.Report
	require.Eventually(s.t, func() bool {
		var err error
		if again, err = s.Reconcile(s.t.Context()); err != nil {
			return false
		}
		if len(again.Providers[0].Destroyed)+len(again.Providers[0].Gone) > 0 {
			s.t.Errorf("a second reconcile changes something: %+v", again)
		}
		return again.Providers[0].Code == "" && len(again.Providers[0].Pending) == 0 // else it was not answered in time
	}, 30*time.Second, 20*time.Millisecond)
	want, got := append([]string{}, again.Providers[0].Waiting...), []string{}
	for _, x := range s.Sessions() {
		want = append(want, x.ID())
		assert.True(s.t, slices.ContainsFunc(s.live(), func(i daytonatest.SandboxInfo) bool { return i.ID == x.Info().Sandbox }), "a live session's sandbox is gone")
	}
	for _, x := range s.live() {
		if x.ID != s.theirs {
			got = append(got, x.Labels[provider.LabelSession])
		}
	}
	assert.ElementsMatch(s.t, want, got, "one sandbox for each session, and no other")
	records, err := s.ledger.List(s.t.Context(), "owner-a")
	require.NoError(s.t, err)
	assert.Len(s.t, records, len(got))
}

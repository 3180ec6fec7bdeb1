//go:build linux

package crashtest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// The test binary is also the process that is killed.
const (
	targetVariable = "SBXHOST_CRASH_TARGET"
	dirVariable    = "SBXHOST_CRASH_DIR"
	killVariable   = "SBXHOST_CRASH_KILL"
	seedVariable   = "SBXHOST_CRASH_SEED"
	// timeVariable makes the random test run for so long, and the matrix of every
	// provider leave out no step.
	timeVariable = "SBXHOST_CRASH_TIME"
)

func TestMain(m *testing.M) {
	name := os.Getenv(targetVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := play(targets[name]); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func play(t target) error {
	kill, _ := strconv.Atoi(os.Getenv(killVariable))
	s := &steps{kill: kill}
	w, err := newWorld(t, os.Getenv(dirVariable), s)
	if err != nil {
		return err
	}
	if seed := os.Getenv(seedVariable); seed != "" {
		n, err := strconv.ParseUint(seed, 10, 64)
		if err != nil {
			return err
		}
		return w.randomLife(rand.New(rand.NewPCG(n, 1)))
	}
	if err := w.life(); err != nil {
		return err
	}
	w.note(entry{Op: "end", N: s.n})
	return nil
}

func options(led ledger.Ledger, owner string) host.Options {
	return host.Options{ID: owner, Ledger: led, Source: source(),
		Grants: grants.Set{ProcessEnvironmentBindings: map[string]string{"TOKEN": "HOST_TOKEN"}}}
}

// start starts the process. What it prints is the answer of wait.
func start(t *testing.T, name, dir string, env ...string) (cmd *exec.Cmd, wait func() (string, error)) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, targetVariable+"="+name, dirVariable+"="+dir)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	return cmd, func() (string, error) {
		err := cmd.Wait()
		return out.String(), err
	}
}

// killed reports whether a process ended by SIGKILL.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	st, ok := exit.Sys().(syscall.WaitStatus)
	return ok && st.Signaled() && st.Signal() == syscall.SIGKILL
}

// TestEveryStep kills the process at each of its steps, for each provider.
func TestEveryStep(t *testing.T) {
	t.Parallel()
	for name, tg := range targets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tg.need != nil {
				tg.need(t)
			}
			// A life that nobody ends tells how many steps there are.
			dir := t.TempDir()
			_, wait := start(t, name, dir)
			out, err := wait()
			require.NoError(t, err, out)
			j := readJournal(t, dir)
			require.NotZero(t, j.steps)
			t.Logf("%d steps", j.steps)
			if name != "docker" { // whose workspaces are the engine's
				assert.True(t, holdsBelow(t, filepath.Join(dir, "sandboxes")), "a command put a value there; whoever looks for values must find it")
			}
			checkAfter(t, name, dir, j)
			if name == "disk" {
				require.GreaterOrEqual(t, j.steps, 200, "the life is too short to tell much")
			}
			every := tg.every
			switch {
			case os.Getenv(timeVariable) != "":
				every = 1
			case testing.Short():
				every *= 16
			}
			var deaths atomic.Int64
			t.Cleanup(func() { // once all have ended
				t.Log(deaths.Load(), "deaths")
				if name == "disk" && every == 1 {
					assert.GreaterOrEqual(t, deaths.Load(), int64(200))
				}
			})
			for n := 1; n <= j.steps; n += every {
				t.Run(fmt.Sprintf("step %03d", n), func(t *testing.T) {
					t.Parallel()
					dir := t.TempDir()
					_, wait := start(t, name, dir, fmt.Sprint(killVariable, "=", n))
					out, err := wait()
					j := readJournal(t, dir)
					switch {
					case killed(err):
						deaths.Add(1)
						t.Log("killed", j.step)
					case err == nil && j.steps > 0 && j.steps < n:
						t.Log("this life was over before, after", j.steps, "steps")
					default:
						t.Fatalf("it ended by itself: %v: %s", err, out)
					}
					if tg.quiet != nil {
						tg.quiet(t, dir)
					}
					checkAfter(t, name, dir, j)
				})
			}
		})
	}
}

// TestAnyMoment kills the process at moments that nobody chose, in lives that
// nobody chose, each going on with what the one before left.
func TestAnyMoment(t *testing.T) {
	t.Parallel()
	length := 2 * time.Second
	if v := os.Getenv(timeVariable); v != "" {
		var err error
		length, err = time.ParseDuration(v)
		require.NoError(t, err)
	}
	seed := uint64(time.Now().UnixNano())
	names := []string{"disk", "shared", "local"}
	if os.Getenv(timeVariable) != "" {
		names = append(names, "docker") // its lives are long
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tg := targets[name]
			if tg.need != nil {
				tg.need(t)
			}
			r := rand.New(rand.NewPCG(seed, 2))
			t.Log("seed", seed)
			lives := 0
			for until := time.Now().Add(length); time.Now().Before(until) && !t.Failed(); {
				dir := t.TempDir()
				for range 1 + r.IntN(3) {
					cmd, wait := start(t, name, dir, fmt.Sprint(seedVariable, "=", r.Uint64()))
					time.Sleep(20*time.Millisecond + time.Duration(r.Int64N(int64(tg.moment)))) // not to wait for anything
					_ = cmd.Process.Kill()
					out, err := wait()
					require.True(t, killed(err), "it ended by itself: %v: %s", err, out)
					lives++
				}
				if tg.quiet != nil {
					tg.quiet(t, dir)
				}
				if exists(ledgerPath(dir)) && exists(journalPath(dir)) {
					checkAfter(t, name, dir, readJournal(t, dir))
				}
			}
			t.Log(lives, "lives")
		})
	}
}

// session is what the journal says of one.
type session struct {
	id      string
	text    string   // what was written last
	maybe   []string // what may have been written, or may yet be
	closing bool
	closed  bool
}

type journal struct {
	sessions map[string]*session // by id
	steps    int
	step     string
}

func readJournal(t *testing.T, dir string) journal {
	t.Helper()
	f, err := os.Open(journalPath(dir))
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	j := journal{sessions: map[string]*session{}}
	tags := map[string]*session{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e entry
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		s := tags[e.Tag]
		switch e.Op {
		case "create":
			if e.Done {
				s = &session{id: e.ID}
				tags[e.Tag], j.sessions[e.ID] = s, s
			}
		case "write":
			if e.Done {
				s.text = e.Text
				s.maybe = slices.DeleteFunc(s.maybe, func(m string) bool { return m == e.Text })
			} else {
				s.maybe = append(s.maybe, e.Text)
			}
		case "close":
			s.closing, s.closed = true, e.Done
		case "step":
			j.step = fmt.Sprintf("at step %d, %s", e.N, e.Text)
		case "end":
			j.steps = e.N
		}
	}
	return j
}

// check is the life after death: the same ledger and provider, in this process.
type check struct {
	t     *testing.T
	tg    target
	p     provider.Provider
	led   ledger.Ledger
	j     journal
	owner string
}

func checkAfter(t *testing.T, name, dir string, j journal) {
	t.Helper()
	ctx := t.Context()
	if !exists(ledgerPath(dir)) {
		require.Empty(t, j.sessions, "the ledger is gone")
		return
	}
	noValue(t, dir)
	led, err := openLedger(dir)
	require.NoError(t, err, "the ledger is damaged")
	defer func() { assert.NoError(t, led.Close()) }()
	p, err := targets[name].open(dir, func(string) {})
	require.NoError(t, err)
	c := &check{t: t, tg: targets[name], p: p, led: led, j: j, owner: ownerOf(dir)}

	c.recorded()
	foreign := c.plant(ctx)
	h := c.host(0)
	first := c.reconcile(h)
	c.settled(first, foreign)
	// Again: nothing changes.
	before := c.everything(dir)
	second := c.reconcile(h)
	assert.Empty(t, second.Destroyed, "the second time")
	assert.Empty(t, second.Gone, "the second time")
	assert.Equal(t, []any{first.Waiting, first.Stopped, first.Pending, first.Unproven},
		[]any{second.Waiting, second.Stopped, second.Pending, second.Unproven})
	assert.Equal(t, before, c.everything(dir), "the second time")
	require.NoError(t, h.Close(ctx))

	// What was never seen is given up once it can no longer come.
	h = c.host(20 * time.Minute)
	last := c.reconcile(h)
	assert.Empty(t, last.Pending, "in the end")
	c.settled(last, foreign)
	c.agree(foreign)
	c.use(h)
	require.NoError(t, h.Close(ctx))
	left, err := p.List(ctx, provider.Query{})
	require.NoError(t, err)
	assert.ElementsMatch(t, foreign, ids(left), "what is not ours is there, and nothing else")
	records, err := led.List(ctx, c.owner)
	require.NoError(t, err)
	assert.Empty(t, records)
	for _, id := range foreign {
		assert.NoError(t, p.Destroy(ctx, provider.Ref{ID: id}))
	}
	noValue(t, dir)
}

func ids(list []provider.Resource) []string {
	out := []string{}
	for _, x := range list {
		out = append(out, x.Ref.ID)
	}
	return out
}

func (c *check) host(later time.Duration) *host.Host {
	o := options(c.led, c.owner)
	o.Clock = func() time.Time { return time.Now().Add(later) }
	h, err := host.New(o)
	require.NoError(c.t, err)
	require.NoError(c.t, h.RegisterTrusted("p", c.p))
	return h
}

func (c *check) reconcile(h *host.Host) host.ProviderReport {
	r, err := h.Reconcile(c.t.Context())
	require.NoError(c.t, err)
	require.Len(c.t, r.Providers, 1)
	require.Empty(c.t, r.Providers[0].Code)
	return r.Providers[0]
}

// recorded: at any moment, every sandbox of ours has a record: the intent came
// first.
func (c *check) recorded() {
	list, err := c.p.List(c.t.Context(), provider.Query{Owner: c.owner})
	require.NoError(c.t, err)
	for _, x := range list {
		r, err := c.led.Get(c.t.Context(), x.Labels[provider.LabelAttempt])
		require.NoError(c.t, err, "the sandbox %s is orphaned", x.Ref.ID)
		assert.Equal(c.t, r.Session, x.Labels[provider.LabelSession])
	}
}

// plant adds sandboxes that are almost ours. It returns their ids.
func (c *check) plant(ctx context.Context) []string {
	list, err := c.p.List(ctx, provider.Query{Owner: c.owner})
	require.NoError(c.t, err)
	if len(list) == 0 {
		return []string{}
	}
	slices.SortFunc(list, func(a, b provider.Resource) int { return strings.Compare(a.Ref.ID, b.Ref.ID) })
	like := list[len(list)-1]
	var out []string
	for i, change := range []map[string]string{
		{provider.LabelOwner: c.owner + "2"},
		{provider.LabelEpoch: "0123456789abcdef"},
		{provider.LabelAttempt: strings.Repeat("e", 32)},
		{provider.LabelOwner: c.owner + "-someone", provider.LabelSession: ownSession(c.owner)},
		{provider.LabelAttempt: ""},
		{provider.LabelOwner: ""},
	} {
		labels := map[string]string{}
		for k, v := range like.Labels {
			labels[k] = v
		}
		for k, v := range change {
			if labels[k] = v; v == "" {
				delete(labels, k)
			}
		}
		if id := c.plantOne(ctx, i, like.Name, labels); id != "" {
			out = append(out, id)
		}
	}
	return out
}

// ownSession is a session id that belongs to an owner alone.
func ownSession(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:16])
}

// plantOne adds one sandbox. What has not all labels, or is a second one of a
// session, the contract has no word for; only disk can be made to have it.
func (c *check) plantOne(ctx context.Context, i int, name string, labels map[string]string) string {
	if d, ok := c.p.(*disk); ok {
		b := box{ID: fmt.Sprint("foreign-", i), Name: name, Digest: labels[provider.LabelDigest], Volume: fmt.Sprint("foreign-", i),
			Labels: labels, State: provider.StateRunning, CreatedAt: time.Now()}
		require.NoError(c.t, os.MkdirAll(d.volume(b.Volume), 0o700))
		require.NoError(c.t, d.put(b))
		return b.ID
	}
	if labels[provider.LabelOwner] != c.owner+"-someone" {
		return ""
	}
	session := labels[provider.LabelSession]
	labels[provider.LabelProtected] = "0"
	sb, err := c.p.Create(ctx, provider.CreateRequest{SessionID: session, Name: provider.NamePrefix + session,
		Digest: labels[provider.LabelDigest], Labels: labels, Root: "/workspace", Network: "none", Start: "idle"})
	require.NoError(c.t, err)
	return sb.Ref().ID
}

// settled: what the report says is what the journal expects.
func (c *check) settled(r host.ProviderReport, foreign []string) {
	there := slices.Concat(r.Waiting, r.Stopped)
	list, err := c.p.List(c.t.Context(), provider.Query{Owner: c.owner})
	require.NoError(c.t, err)
	count := map[string]int{}
	for _, x := range list {
		if !slices.Contains(foreign, x.Ref.ID) {
			count[x.Labels[provider.LabelSession]]++
		}
	}
	for id, n := range count {
		assert.Equal(c.t, 1, n, "the session %s has %d sandboxes", id, n)
		assert.Contains(c.t, there, id, "a sandbox of no session is left")
	}
	for id, s := range c.j.sessions {
		switch {
		case s.closed:
			assert.NotContains(c.t, there, id, "a closed session is still there")
		case !s.closing:
			assert.Contains(c.t, there, id, "a live session is lost")
			assert.Equal(c.t, 1, count[id])
		}
	}
	for _, f := range foreign {
		_, err := c.p.Open(c.t.Context(), provider.Ref{ID: f})
		assert.NoError(c.t, err, "the foreign sandbox %s was touched", f)
	}
}

// agree: ledger and provider know exactly the same.
func (c *check) agree(foreign []string) {
	records, err := c.led.List(c.t.Context(), c.owner)
	require.NoError(c.t, err)
	known := []string{}
	for _, r := range records {
		assert.Equal(c.t, ledger.Created, r.Phase)
		known = append(known, r.Ref.ID)
	}
	list, err := c.p.List(c.t.Context(), provider.Query{})
	require.NoError(c.t, err)
	assert.ElementsMatch(c.t, append(known, foreign...), ids(list))
}

// use: each session goes on, with its files, and can be closed.
func (c *check) use(h *host.Host) {
	ctx := c.t.Context()
	records, err := c.led.List(ctx, c.owner)
	require.NoError(c.t, err)
	for i, rec := range records {
		if s := c.j.sessions[rec.Session]; s == nil && i%2 == 0 {
			// A create that was committed and never answered.
			require.NoError(c.t, h.Discard(ctx, rec.Session))
			continue
		}
		state, err := h.StoredState(ctx, rec.Session)
		require.NoError(c.t, err)
		assert.NotContains(c.t, string(state), canary)
		m := ordinary()
		if rec.Protected {
			m = protected()
		}
		s, err := h.Resume(ctx, host.ResumeRequest{State: state, Provider: "p", Manifest: &m})
		require.NoError(c.t, err)
		assert.Equal(c.t, "made", c.read(s, "made"))
		if known := c.j.sessions[rec.Session]; known != nil {
			allowed := []string{known.text}
			if len(known.maybe) > 0 {
				// A command that was cut short may also have left its file empty.
				allowed = append(append(allowed, known.maybe...), "")
			}
			assert.Contains(c.t, allowed, c.read(s, "data"), "the workspace is not intact")
		}
		if _, err := s.Exec(ctx, c.tg.write("data", "after")); assert.NoError(c.t, err) {
			assert.Equal(c.t, "after", c.read(s, "data"))
		}
		require.NoError(c.t, s.Close(ctx))
	}
}

// read returns a file's content, "" when it is not there.
func (c *check) read(s *host.Session, path string) string {
	d, err := s.ReadFile(c.t.Context(), path)
	if provider.CodeOf(err) == provider.NotFound {
		return ""
	}
	require.NoError(c.t, err)
	return string(d.Data)
}

// everything is all that a second reconcile could change.
func (c *check) everything(dir string) []string {
	records, err := c.led.List(c.t.Context(), c.owner)
	require.NoError(c.t, err)
	out := []string{}
	for _, r := range records {
		doc, err := ledger.EncodeRecord(r)
		require.NoError(c.t, err)
		out = append(out, string(doc))
	}
	if !exists(filepath.Join(dir, "sandboxes")) {
		return out
	}
	err = filepath.WalkDir(filepath.Join(dir, "sandboxes"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		out = append(out, path+": "+string(data))
		return err
	})
	require.NoError(c.t, err)
	return out
}

// noValue: the ledger holds no value, and neither does the journal of this test.
func noValue(t *testing.T, dir string) {
	t.Helper()
	assert.False(t, holds(t, ledgerPath(dir)), "the ledger holds a value")
	assert.False(t, holds(t, journalPath(dir)))
}

func holds(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(f)
	require.NoError(t, err)
	return bytes.Contains(data, []byte(canary))
}

func holdsBelow(t *testing.T, dir string) bool {
	t.Helper()
	found := false
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && holds(t, path) {
			found = true
		}
		return err
	}))
	return found
}

package daytona_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/daytona"
	"github.com/sbxhost/sbxhost/internal/daytonatest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// What stands between us and the service: load balancers, proxies, and
// connections that lead nowhere.

// between answers requests itself, while it is asked to, or changes answers.
type between struct {
	mu sync.Mutex
	f  func(r *http.Request, body []byte) *http.Response // nil: passed on
	g  func(answer []byte) []byte
}

func (b *between) set(f func(r *http.Request, body []byte) *http.Response) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.f = f
}

func (b *between) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	f, g := b.f, b.g
	b.mu.Unlock()
	if f != nil {
		var body []byte
		if r.Body != nil {
			var err error
			if body, err = io.ReadAll(r.Body); err != nil {
				return nil, err
			}
			r = r.Clone(r.Context())
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		if p := f(r, body); p != nil {
			return p, nil
		}
	}
	p, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || g == nil {
		return p, err
	}
	data, err := io.ReadAll(p.Body)
	_ = p.Body.Close()
	data = g(data)
	p.Body, p.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	p.Header.Del("Content-Length")
	return p, err
}

func reply(status int, kind, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

// notOfTheService are answers with status 404 that say nothing of a sandbox.
var notOfTheService = map[string][2]string{
	"load balancer":     {"text/html", "<html><head><title>404 Not Found</title></head></html>\n"},
	"nothing":           {"", ""},
	"wrong address":     {"application/json", `{"message":"Cannot GET /api/v2/sandbox/x","error":"Not Found","statusCode":404}`},
	"JSON of something": {"application/json", `{"status":"missing"}`},
}

// A 404 that is not the service's own is not a sandbox that is gone: it would be
// forgotten, and run for ever.
func TestOnlyTheServiceSaysThatASandboxIsGone(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	at := &between{}
	p := newProvider(t, srv, func(o *daytona.Options) { o.Transport = at })
	sb := create(t, p)
	for name, answer := range notOfTheService {
		at.set(func(r *http.Request, _ []byte) *http.Response {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/sandbox") {
				return nil // the list itself works
			}
			return reply(404, answer[0], answer[1])
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		require.ErrorIs(t, p.Destroy(ctx, sb.Ref()), provider.ErrUnavailable, "%s: it is there", name)
		_, err := p.Open(ctx, sb.Ref())
		require.ErrorIs(t, err, provider.ErrUnavailable, name)
		_, err = p.List(ctx, provider.Query{Owner: "owner-a"})
		require.ErrorIs(t, err, provider.ErrUnavailable, "%s: what cannot be asked for is not absent", name)
		st, err := sb.Status(ctx)
		require.ErrorIs(t, err, provider.ErrUnavailable, name)
		assert.Equal(t, provider.StateUnknown, st.State, name)
		cancel()
	}
	at.set(nil)
	require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	_, err := p.Open(t.Context(), sb.Ref())
	require.ErrorIs(t, err, provider.ErrNotFound, "the service's own 404 says so")
}

// The ledger keeps a sandbox while something else than the service answers.
func TestReconcileDuringAnOutageForgetsNothing(t *testing.T) {
	t.Parallel()
	at := &between{}
	w := newWorld(t, func(o *daytona.Options) { o.Transport = at })
	s := w.create("")
	_, err := s.Detach(t.Context())
	require.NoError(t, err)
	h := w.host() // of the next process, which knows no ids
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	for name, answer := range notOfTheService {
		for _, all := range []bool{true, false} { // false: the list is answered, and empty
			at.set(func(r *http.Request, _ []byte) *http.Response {
				if !all && strings.HasSuffix(r.URL.Path, "/sandbox") {
					return reply(200, "application/json", `{"items":[],"nextCursor":null}`)
				}
				return reply(404, answer[0], answer[1])
			})
			report, err := h.Reconcile(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []string{s.ID()}, report.Providers[0].Pending, "%s: %+v", name, report)
		}
	}
	at.set(nil)
	report, err := w.Reconcile(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{s.ID()}, report.Providers[0].Waiting)
	require.NoError(t, w.Discard(t.Context(), s.ID()))
}

// Who answers with what was sent must not bring the key into an error: net/http
// repeats what it cannot read.
func TestEchoOfTheKeyIsNotRepeated(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err == nil {
					_, _ = fmt.Fprintf(c, "%s\r\n\r\n", r.Header.Get("Authorization"))
				}
			}()
		}
	}()
	key := "dtn_canary" + hexID(16)
	url := "http://" + l.Addr().String()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	q.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(q)
	if err == nil {
		_ = resp.Body.Close()
	}
	require.ErrorContains(t, err, key, "control: the library repeats it")

	p, err := daytona.New(daytona.Options{APIURL: url + "/api", APIKey: secret.FromString(key), CallTimeout: time.Minute})
	require.NoError(t, err)
	_, err1 := p.Check(t.Context())
	_, err2 := p.List(t.Context(), provider.Query{Owner: "owner-a"})
	_, err3 := p.Open(t.Context(), provider.Ref{ID: "abc"})
	for _, err := range []error{err1, err2, err3} {
		require.ErrorIs(t, err, provider.ErrUnavailable)
		for e := err; e != nil; e = errors.Unwrap(e) {
			assert.NotContains(t, fmt.Sprintf("%v %+v %#v", e, e, e), key)
		}
	}
}

// A 408 before the deadline is a proxy's, which knows nothing of the command.
func TestTimeoutOfAProxyIsNotTheCommands(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	sb := create(t, newProvider(t, srv))
	inj := srv.Inject(daytonatest.Fault{Kind: daytonatest.ServerErrorAfter, Status: http.StatusRequestTimeout, On: execOps, Times: 1})
	exit, _ := run(t, sb, script("echo once >> count", func(r *provider.ExecRequest) { r.Timeout = time.Minute }))
	assert.Equal(t, provider.ExitLost, exit.Kind)
	assert.Equal(t, 1, inj.Hits())
	content, err := srv.ReadFile(sb.Ref().ID, "/workspace/count")
	require.NoError(t, err)
	assert.Equal(t, "once\n", string(content))
}

// far is longer than anything here may take, and shorter than what it would take
// to wait for transfers that stand still.
const far = 25 * time.Second

func TestDeadlineHoldsWhenOutputDoesNotCome(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	sb := create(t, newProvider(t, srv))
	inj := srv.Inject(daytonatest.Fault{Kind: daytonatest.Hang, On: []daytonatest.Op{daytonatest.OpFileDownload}})
	p, began := started(t, sb, script("sleep 300"), 500*time.Millisecond)
	exit, err := p.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, provider.ExitTimedOut, exit.Kind)
	assert.Less(t, time.Since(began), far)
	assert.NotZero(t, inj.Hits())
	// And what has no output waits for none.
	began = time.Now()
	exit, _ = run(t, sb, script("exit 3"))
	assert.Equal(t, provider.Exit{Kind: provider.ExitExited, Code: 3, LeftRunning: -1}, exit)
	assert.Less(t, time.Since(began), far)
}

func TestDeadlineHoldsWhileInputIsSent(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	sb := create(t, newProvider(t, srv))
	srv.Inject(daytonatest.Fault{Kind: daytonatest.Hang, On: []daytonatest.Op{daytonatest.OpFileBulkUp}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, began := started(t, sb, script("sleep 300", func(r *provider.ExecRequest) { r.Stdin = provider.StdinLive }), time.Second)
	wrote := make(chan error, 1)
	go func() {
		_, err := p.Stdin().Write(make([]byte, 64<<10))
		wrote <- err
	}()
	exit, err := p.Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, provider.ExitTimedOut, exit.Kind)
	require.Error(t, <-wrote)
	assert.Less(t, time.Since(began), far)
}

// A signal that was sent is not an end that was seen.
func TestSignalIsNoEnd(t *testing.T) {
	t.Parallel()
	for _, tty := range []bool{false, true} {
		t.Run(fmt.Sprintf("tty %v", tty), func(t *testing.T) {
			t.Parallel()
			srv := daytonatest.New(t, daytonatest.Options{})
			sb := create(t, newProvider(t, srv))
			srv.Inject(daytonatest.Fault{Kind: daytonatest.PTYAbnormal})
			out := &buffer{}
			p, err := sb.Exec(t.Context(), script(`trap "" USR1; echo on; read x; exit 0`, func(r *provider.ExecRequest) {
				r.Stdout, r.TTY, r.Stdin, r.Cols, r.Rows = out, tty, provider.StdinLive, 80, 24
				if !tty {
					r.Cols, r.Rows = 0, 0
				}
			}))
			require.NoError(t, err)
			require.Eventually(t, func() bool { return strings.Contains(out.String(), "on") }, 30*time.Second, 5*time.Millisecond)
			require.NoError(t, p.Signal(t.Context(), "USR1"))
			if tty {
				_, err = io.WriteString(p.Stdin(), "x\n")
				require.NoError(t, err)
			} else {
				srv.CutConnections(sb.Ref().ID)
			}
			exit, err := p.Wait(t.Context())
			require.NoError(t, err)
			assert.Equal(t, provider.ExitLost, exit.Kind)
			assert.Equal(t, -1, exit.Code)
		})
	}
}

var ownTag = regexp.MustCompile(`/tmp/\.sbxhost/([0-9a-f]{16})\.run`)

// A marker without content is that of a command which is about to begin: nobody
// may say that it was not started.
func TestMarkerWithoutContentIsNoProof(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	at := &between{}
	sb := create(t, newProvider(t, srv, func(o *daytona.Options) { o.Transport = at }))
	var begun atomic.Bool
	at.set(func(r *http.Request, body []byte) *http.Response {
		tag := ownTag.FindSubmatch(body)
		if tag == nil || !bytes.Contains(body, []byte("echo about to begin")) || begun.Swap(true) {
			return nil
		}
		q, err := http.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), strings.NewReader(`{"command":": >/tmp/.sbxhost/`+string(tag[1])+`.run"}`))
		if err == nil {
			q.Header = r.Header.Clone()
			var p *http.Response
			if p, err = http.DefaultTransport.RoundTrip(q); err == nil {
				_ = p.Body.Close()
			}
		}
		assert.NoError(t, err)
		return reply(502, "", "")
	})
	_, err := sb.Exec(t.Context(), script("echo about to begin"))
	require.ErrorIs(t, err, provider.ErrLost)
	assert.Equal(t, provider.AppliedUnknown, provider.AppliedOf(err))
	assert.True(t, begun.Load())
}

func TestTerminalThatDoesNotConnect(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]daytonatest.Fault{
		"connection": {Kind: daytonatest.Hang, On: []daytonatest.Op{daytonatest.OpPTYConnect}},
		"terminal":   {Kind: daytonatest.Hang, On: []daytonatest.Op{daytonatest.OpPTYCreate}},
		"values":     {Kind: daytonatest.Hang, On: execOps, After: 1, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := daytonatest.New(t, daytonatest.Options{})
			sb := create(t, newProvider(t, srv, func(o *daytona.Options) { o.CallTimeout = 2 * time.Second }))
			inj := srv.Inject(f)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			_, err := sb.Exec(ctx, script("touch started", func(r *provider.ExecRequest) {
				r.TTY, r.Stdin, r.Cols, r.Rows, r.Timeout = true, provider.StdinLive, 80, 24, 2*time.Second
			}))
			require.Error(t, err)
			typed(t, err, name)
			assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
			assert.Less(t, time.Since(began), far)
			assert.NotZero(t, inj.Hits())
			_, err = srv.ReadFile(sb.Ref().ID, "/workspace/started")
			assert.Error(t, err)
		})
	}
}

// A script that was ended before its last line leaves no word, and is no success.
func TestFilesNeedTheLastWord(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	at := &between{}
	sb := create(t, newProvider(t, srv, func(o *daytona.Options) { o.Transport = at }))
	f := sb.Files()
	require.NoError(t, f.Write(t.Context(), "f", strings.NewReader("x"), provider.WriteOptions{}))
	at.mu.Lock()
	at.g = func(answer []byte) []byte { return bytes.Replace(answer, []byte(`\ndone\n`), []byte(`\n\n`), 1) }
	at.mu.Unlock()
	require.ErrorIs(t, f.Write(t.Context(), "f", strings.NewReader("y"), provider.WriteOptions{}), provider.ErrUnavailable)
	require.ErrorIs(t, f.Mkdir(t.Context(), "d", 0o755), provider.ErrUnavailable)
	require.ErrorIs(t, f.Remove(t.Context(), "f", false), provider.ErrUnavailable)
}

// A sandbox that the service does not find yet is not gone.
func TestNewSandboxIsNotGone(t *testing.T) {
	t.Parallel()
	for _, conflict := range []bool{false, true} {
		srv := daytonatest.New(t, daytonatest.Options{})
		p := newProvider(t, srv)
		srv.Inject(daytonatest.Fault{Kind: daytonatest.InvisibleCreate, Delay: 700 * time.Millisecond})
		if conflict {
			srv.Inject(daytonatest.Fault{Kind: daytonatest.Conflict, On: destroyOps, Times: 1})
		}
		req := request(func(r *provider.CreateRequest) {
			r.Checkpoint = func(ref provider.Ref) error {
				// Who was told of it may want it gone at once.
				require.NoError(t, p.Destroy(t.Context(), ref))
				info, _ := srv.Sandbox(ref.ID)
				assert.True(t, info.Destroyed, "Destroy says gone; the service says %s", info.State)
				return errors.New("not recorded")
			}
		})
		_, err := p.Create(t.Context(), req)
		require.Error(t, err)
		assert.Empty(t, alive(srv, req.SessionID))
		req = request(func(r *provider.CreateRequest) {
			r.Checkpoint = func(provider.Ref) error { return errors.New("not recorded") }
		})
		_, err = p.Create(t.Context(), req)
		require.Error(t, err)
		assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
		assert.Empty(t, alive(srv, req.SessionID))
	}
}

// slowNews delivers the first 404 that a GET gets after a create only when the
// sandbox is not new any more.
type slowNews struct{ made, told atomic.Bool }

func (s *slowNews) RoundTrip(r *http.Request) (*http.Response, error) {
	p, err := http.DefaultTransport.RoundTrip(r)
	switch {
	case err != nil:
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/sandbox"):
		s.made.Store(true)
	case r.Method == http.MethodGet && p.StatusCode == http.StatusNotFound && s.made.Load() && !s.told.Swap(true):
		time.Sleep(5500 * time.Millisecond)
	}
	return p, err
}

// What counts is how new a sandbox was when it was asked for, not when the answer
// came.
func TestNewSandboxIsNotGoneWhenTheAnswerIsLate(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	news := &slowNews{}
	p := newProvider(t, srv, func(o *daytona.Options) { o.Transport = news })
	srv.Inject(daytonatest.Fault{Kind: daytonatest.InvisibleCreate, Delay: 4 * time.Second})
	req := request(func(r *provider.CreateRequest) {
		r.Checkpoint = func(provider.Ref) error { return errors.New("not recorded") }
	})
	_, err := p.Create(t.Context(), req)
	require.Error(t, err)
	assert.True(t, news.told.Load())
	assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
	assert.Empty(t, alive(srv, req.SessionID))
}

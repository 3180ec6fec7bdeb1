package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	e := newEnv(t, granted)
	s, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: protected(), Principal: "alice"})
	require.NoError(t, err)
	_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"printenv", "TOKEN"}, ID: "x1"})
	require.NoError(t, err)
	_, err = s.ReadFile(t.Context(), "absent")
	require.Error(t, err)
	require.NoError(t, s.Close(t.Context()))

	find := func(k host.Kind, op string) host.Record {
		t.Helper()
		return e.events.wait(t, 1, kind(k, op))[0]
	}
	r := find(host.KindCreate, "create")
	assert.Equal(t, s.ID(), r.Session)
	assert.Equal(t, "alice", r.Principal)
	assert.Equal(t, "exec/memory", r.Transport)
	assert.Empty(t, r.Code)
	assert.Positive(t, r.Duration)
	r = find(host.KindExec, "exec")
	assert.Equal(t, "x1", r.Exec)
	assert.Equal(t, host.Exited, r.Status)
	assert.Zero(t, *r.ExitCode)
	assert.Equal(t, map[string]int64{"TOKEN": 1}, r.Counts)
	r = find(host.KindFile, "read")
	assert.Equal(t, provider.NotFound, r.Code)
	assert.Equal(t, "absent", r.Path)
	find(host.KindClose, "close")

	t.Run("disclosures", func(t *testing.T) {
		r := find(host.KindGrant, "resolve")
		assert.Equal(t, host.Disclosure{Action: "resolve", Allowed: true, Destination: "TOKEN", Source: "HOST_TOKEN", Exposure: "the process alone", Reason: "granted"}, *r.Grant)
		r = find(host.KindGrant, "exec")
		assert.Equal(t, "hand-over", r.Grant.Action)
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: with(protected(), "OTHER", ref("a pasted value? "+tokenCanary))})
		require.Error(t, err)
		denied := e.events.wait(t, 2, func(r host.Record) bool { return r.Grant != nil && !r.Grant.Allowed })
		assert.Equal(t, "OTHER", denied[0].Grant.Destination)
		assert.Equal(t, "<unusual name>", denied[0].Grant.Source)
		assert.Equal(t, "not granted", denied[0].Grant.Reason)
		noCanary(t, err.Error())
	})
	t.Run("no record repeats a value that a caller put in a free field", func(t *testing.T) {
		e := newEnv(t, granted)
		s, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: protected(), Principal: tokenCanary})
		require.NoError(t, err)
		_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, ID: tokenCanary})
		require.NoError(t, err)
		e.events.wait(t, 1, kind(host.KindExec, ""))
		for _, r := range e.events.all() {
			doc, err := json.Marshal(r)
			require.NoError(t, err)
			noCanary(t, string(doc))
		}
	})
	t.Run("with the create transport the hand-over is at creation", func(t *testing.T) {
		e := newEnv(t, granted)
		_, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: protected(), Transport: host.TransportCreate})
		require.NoError(t, err)
		r := e.events.wait(t, 1, kind(host.KindGrant, "create"))[0]
		assert.Equal(t, "hand-over", r.Grant.Action)
	})
}

// What a sink does never changes an operation.
func TestSinkFaults(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	sinks := map[string]host.Sink{
		"panics": sinkFunc(func(host.Record) { panic("sink") }),
		"blocks": sinkFunc(func(host.Record) { <-block }),
		"fails":  host.JSONLines(failingWriter{}),
		"full":   host.Channel(make(chan host.Record)),
	}
	for name, sink := range sinks {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, func(s *setup) { s.host.Sinks = []host.Sink{sink} })
			s := e.create(t, ordinary())
			begun := time.Now()
			for range 1200 { // more than any queue holds
				_, _ = s.Stat(t.Context(), "")
			}
			require.NoError(t, s.Close(t.Context()))
			assert.Less(t, time.Since(begun), 2*time.Minute)
			if name == "blocks" {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				require.NoError(t, e.Host.Close(ctx))
				close(block)
			}
		})
	}
	t.Run("what was dropped is counted", func(t *testing.T) {
		t.Parallel()
		gate, rec := make(chan struct{}), &recorder{}
		e := newEnv(t, func(s *setup) {
			s.host.Sinks = []host.Sink{sinkFunc(func(r host.Record) { <-gate; rec.Emit(r) })}
		})
		s := e.create(t, ordinary())
		for range 2000 {
			_, _ = s.Stat(t.Context(), "")
		}
		close(gate)
		// What is lost is told with the next record, and after the last one there is none:
		// the second that comes out makes room for it.
		rec.wait(t, 2, func(host.Record) bool { return true })
		require.NoError(t, e.Host.Close(t.Context()))
		var got, dropped int64
		for _, r := range rec.all() {
			got++
			dropped += r.Dropped
		}
		assert.Positive(t, dropped)
		assert.Equal(t, int64(2002), got+dropped, "create, 2,000 stats, close")
	})
}

type sinkFunc func(host.Record)

func (f sinkFunc) Emit(r host.Record) { f(r) }

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestSinks(t *testing.T) {
	t.Parallel()
	t.Run("JSON lines", func(t *testing.T) {
		t.Parallel()
		var b bytes.Buffer
		e := newEnv(t, func(s *setup) { s.host.Sinks = []host.Sink{host.JSONLines(&b)} })
		e.create(t, ordinary())
		require.NoError(t, e.Host.Close(t.Context()))
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		require.Len(t, lines, 2)
		var r host.Record
		require.NoError(t, json.Unmarshal([]byte(lines[0]), &r))
		assert.Equal(t, host.KindCreate, r.Kind)
	})
	t.Run("channel", func(t *testing.T) {
		t.Parallel()
		c := make(chan host.Record, 10)
		e := newEnv(t, func(s *setup) { s.host.Sinks = []host.Sink{host.Channel(c)} })
		e.create(t, ordinary())
		assert.Equal(t, host.KindCreate, (<-c).Kind)
	})
	t.Run("slog", func(t *testing.T) {
		t.Parallel()
		var b bytes.Buffer
		e := newEnv(t, granted, func(s *setup) { s.host.Logger = slog.New(slog.NewTextHandler(&b, nil)) })
		s := e.create(t, protected())
		run(t, s, "printenv", "TOKEN")
		_, _ = s.Stat(t.Context(), "absent")
		require.NoError(t, e.Host.Close(t.Context()))
		assert.Contains(t, b.String(), `msg="sbxhost create"`)
		assert.Contains(t, b.String(), "level=WARN")
		assert.Contains(t, b.String(), "grant.destination=TOKEN")
		noCanary(t, b.String())
	})
	t.Run("HTTP POST, batched, tried again, bounded", func(t *testing.T) {
		t.Parallel()
		// What waits at the end has five seconds: the clock stands still meanwhile, which
		// it would not with a network.
		synctest.Test(t, func(t *testing.T) {
			var bodies []string
			fails := 1
			client := &http.Client{Transport: transport(func(w http.ResponseWriter, r *http.Request) {
				if fails > 0 {
					fails--
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				b, _ := io.ReadAll(r.Body)
				bodies = append(bodies, r.Header.Get("Authorization")+r.Header.Get("Content-Type")+string(b))
			})}
			sink, err := host.HTTPPost("http://records.example", host.HTTPPostOptions{Client: client, Batch: 2, Interval: time.Hour, Header: http.Header{"Authorization": {"Bearer x"}}})
			require.NoError(t, err)
			e := newEnv(t, func(s *setup) { s.host.Sinks = []host.Sink{sink} })
			s := e.create(t, ordinary())
			_, _ = s.Stat(t.Context(), "")
			require.NoError(t, e.Host.Close(t.Context()))
			require.Len(t, bodies, 2, "a full batch, and what was left at the end")
			assert.Equal(t, 2, strings.Count(bodies[0], "\n"))
			assert.Equal(t, 1, strings.Count(bodies[1], "\n"))
			assert.True(t, strings.HasPrefix(bodies[0], "Bearer xapplication/x-ndjson{"))
		})
		// With one, a full batch has as long as it takes.
		got := make(chan string, 1)
		srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			got <- r.Header.Get("Authorization") + string(b)
		}))
		defer srv.Close()
		client := srv.Client()
		defer client.CloseIdleConnections()
		sink, err := host.HTTPPost(srv.URL, host.HTTPPostOptions{Client: client, Batch: 1, Header: http.Header{"Authorization": {"Bearer x"}}})
		require.NoError(t, err)
		sink.Emit(host.Record{Kind: host.KindCreate})
		require.Len(t, got, 1)
		assert.Regexp(t, `^Bearer x\{.*"kind":"create".*\}\n$`, <-got)
		_, err = host.HTTPPost("ftp://x", host.HTTPPostOptions{})
		code(t, provider.InvalidArgument, err)
	})
}

// transport is a server without a network.
type transport http.HandlerFunc

func (s transport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s(w, r)
	return w.Result(), nil
}

func TestSpans(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	e := newEnv(t, granted, func(s *setup) { s.host.Tracer = tp.Tracer("test") })
	s := e.create(t, protected())
	run(t, s, "printenv", "TOKEN")
	e.fake.SetHooks(failWith(fake.MethodStat, &provider.Error{Code: provider.Unavailable, Message: tokenCanary}))
	_, err := s.Stat(t.Context(), tokenCanary)
	require.Error(t, err)
	e.fake.SetHooks(fake.Hooks{})
	require.NoError(t, s.Close(t.Context()))
	var ops []string
	text := ""
	for _, sp := range spans.Ended() {
		ops = append(ops, sp.Name())
		for _, a := range sp.Attributes() {
			text += string(a.Key) + "=" + a.Value.String() + " "
		}
		text += sp.Status().Description
		assert.Empty(t, sp.Events(), "no error texts")
	}
	assert.Equal(t, []string{"sbxhost.create", "sbxhost.exec", "sbxhost.stat", "sbxhost.close"}, ops)
	assert.Contains(t, text, "sbxhost.session="+s.ID())
	assert.Contains(t, text, "sbxhost.count.TOKEN=1")
	assert.Contains(t, text, "sbxhost.path=[redacted:TOKEN]")
	assert.NotContains(t, text, "printenv", "arguments are no attributes")
	t.Run("S4 nothing of a value", func(t *testing.T) { noCanary(t, text) })
}

// What goes in and comes out, secret or not, is in no event, log record or span: they
// are made of names, ids, codes and counts.
func TestRecordsHoldNoContent(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	var log bytes.Buffer // of one goroutine, which ends with the host
	e := newEnv(t, granted, func(s *setup) {
		s.host.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
		s.host.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	m := with(protected(), "LITERAL", manifest.Entry{Literal: "plain-literal"})
	m.Files = map[string]manifest.File{"f": {Content: []byte("plain-manifest-file")}}
	s := e.create(t, m)
	r, err := s.Exec(t.Context(), host.ExecRequest{Shell: "echo plain-argument; cat; exit 3", ID: "named",
		Env: map[string]string{"OWN": "plain-own-env"}, Stdin: strings.NewReader("plain-input")})
	require.NoError(t, err)
	require.Contains(t, string(r.Stdout), "plain-argument", "the control: it ran")
	_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"plain-missing-command"}})
	require.Error(t, err)
	require.NoError(t, s.WriteFile(t.Context(), "out", []byte("plain-written"), host.WriteOptions{}))
	d, err := s.ReadFile(t.Context(), "out")
	require.NoError(t, err)
	require.Equal(t, "plain-written", string(d.Data))
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, e.Close(t.Context())) // every record is out

	seen := log.String()
	for _, r := range e.events.all() {
		doc, err := json.Marshal(r)
		require.NoError(t, err)
		seen += string(doc)
	}
	for _, sp := range spans.Ended() {
		assert.Empty(t, sp.Events(), "what an event of a span holds is not looked at")
		seen += sp.Name() + sp.Status().Description
		for _, a := range sp.Attributes() {
			seen += string(a.Key) + "=" + a.Value.String() + " "
		}
	}
	require.Contains(t, seen, "named", "the control: what is allowed is there")
	assert.NotContains(t, seen, "plain-")
}

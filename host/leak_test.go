package host_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
	"github.com/sbxhost/sbxhost/redact"
)

// surfaces is everything that a run showed to anybody.
type surfaces struct {
	t     *testing.T
	texts map[string]string
}

func (s *surfaces) add(name, text string) { s.texts[name] += text + "\n" }

func (s *surfaces) err(name string, err error) {
	for i := 0; err != nil; i++ {
		s.add("errors/"+name, fmt.Sprintf("%v|%+v|%#v|%s|%q", err, err, err, err, err))
		if doc, e := json.Marshal(err); e == nil {
			s.add("errors/"+name, string(doc))
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				s.err(name, e)
			}
			return
		}
		err = errors.Unwrap(err)
	}
}

func (s *surfaces) value(name string, v any) {
	s.add("values/"+name, fmt.Sprintf("%v|%+v|%#v", v, v, v))
	doc, err := json.Marshal(v)
	if err == nil {
		s.add("values/"+name, string(doc))
	}
}

// hits returns the surfaces that show a value, raw or encoded.
func (s *surfaces) hits(values ...string) []string {
	var out []string
	for name, text := range s.texts {
		for _, v := range values {
			for _, form := range []string{v, base64.StdEncoding.EncodeToString([]byte(v)), hex.EncodeToString([]byte(v)), strings.ToUpper(hex.EncodeToString([]byte(v)))} {
				if strings.Contains(text, form) {
					out = append(out, name)
				}
			}
		}
	}
	return out
}

// everything drives a host through its operations, successful and failing, on a
// provider that repeats what it knows wherever it can.
func everything(t *testing.T, redaction redact.Options) *surfaces {
	t.Helper()
	out := &surfaces{t: t, texts: map[string]string{}}
	ctx := context.Background()
	led := newLedger()
	var log bytes.Buffer
	spans := tracetest.NewSpanRecorder()
	e := newEnv(t, granted, func(s *setup) {
		s.host.ID, s.host.Ledger, s.host.Redact = "owner", led, redaction
		s.host.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s.host.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("t")
	})
	secrets := activation(map[string]string{"USER_KEY": requestCanary})

	for _, m := range []manifest.Manifest{ordinary(), protected()} {
		kind := fmt.Sprint(len(m.Pairs()))
		// A provider repeats what it was given for this session.
		given, rotated := requestCanary, requestCanary
		if len(m.Pairs()) > 0 {
			given, rotated = tokenCanary, rotatedCanary
		}
		echo := &provider.Error{Code: provider.Unavailable, Op: given, Provider: given, Subject: requestCanary,
			Message: "said " + given + " and " + requestCanary, Remedy: given,
			Err: fmt.Errorf("cause %s: %w", rotated, errors.New(requestCanary))}
		m.Files = map[string]manifest.File{"f": {Content: []byte("x")}}
		e.source.set("HOST_TOKEN", tokenCanary)
		s, err := e.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m, Principal: "p"})
		require.NoError(t, err)
		script := `echo "$TOKEN $USER_KEY"; write-stderr "$USER_KEY"; echo "$TOKEN $USER_KEY" > f; echo x > "$USER_KEY"; exit 3`
		for _, req := range []host.ExecRequest{{Shell: script, Secrets: secrets}, {Args: []string{"printenv", "TOKEN"}}, {Args: []string{"env"}, Secrets: secrets}, {Args: []string{"absent" + requestCanary}}} {
			out.add("values/request", fmt.Sprintf("%v|%+v|%#v", req.Secrets, req.Secrets, req.Secrets))
			r, err := s.Exec(ctx, req)
			out.err("exec"+kind, err)
			if r != nil {
				out.value("result", *r)
				out.add("output", string(r.Stdout)+string(r.Stderr))
			}
		}
		p, err := s.Start(ctx, host.ExecRequest{Shell: script, Secrets: secrets})
		require.NoError(t, err)
		for ev := range p.Events() {
			out.value("event", ev)
			out.add("output", string(ev.Data))
		}
		d, err := s.ReadFile(ctx, "f")
		require.NoError(t, err)
		out.add("files", string(d.Data))
		out.value("file", d)
		f, err := s.Open(ctx, "f")
		require.NoError(t, err)
		b, err := io.ReadAll(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		out.add("files", string(b))
		l, err := s.List(ctx, "")
		require.NoError(t, err)
		out.value("list", l)
		out.value("info", s.Info())
		out.value("unmaskable", s.Unmaskable())
		out.value("session", s)
		st, err := s.Status(ctx)
		require.NoError(t, err)
		out.value("status", st)
		state, err := s.State(ctx)
		require.NoError(t, err)
		out.add("state", string(state))

		for _, method := range []fake.Method{fake.MethodCreate, fake.MethodOpen, fake.MethodList, fake.MethodDestroy, fake.MethodExec, fake.MethodStatus,
			fake.MethodWait, fake.MethodRead, fake.MethodWrite, fake.MethodReadDir, fake.MethodStat, fake.MethodRemove, fake.MethodMkdir,
			fake.MethodPort, fake.MethodPause, fake.MethodExport, fake.MethodImport} {
			e.fake.SetHooks(failWith(method, echo))
			name := string(method) + kind
			_, err := s.Exec(ctx, host.ExecRequest{Args: []string{"true"}, Secrets: secrets})
			out.err(name, err)
			_, err = s.ReadFile(ctx, requestCanary)
			out.err(name, err)
			out.err(name, s.WriteFile(ctx, requestCanary, nil, host.WriteOptions{}))
			_, err = s.List(ctx, requestCanary)
			out.err(name, err)
			_, err = s.Stat(ctx, requestCanary)
			out.err(name, err)
			out.err(name, s.Remove(ctx, requestCanary, true))
			out.err(name, s.Mkdir(ctx, requestCanary, 0))
			_, err = s.Status(ctx)
			out.err(name, err)
			_, err = s.Port(ctx, 1)
			out.err(name, err)
			out.err(name, s.Pause(ctx))
			out.err(name, s.Unpause(ctx))
			out.err(name, s.Export(ctx, io.Discard, host.ExportOptions{Unredacted: true}))
			if len(m.Pairs()) > 0 {
				e.source.set("HOST_TOKEN", rotatedCanary)
				c, err := e.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m})
				out.err("create"+name, err)
				if c != nil {
					out.err("close"+name, c.Close(ctx))
				}
				s2, err := e.Resume(ctx, host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
				out.err("resume"+name, err)
				if s2 != nil {
					s = s2
					state, err = s.State(ctx)
					require.NoError(t, err)
					out.add("state", string(state))
					// The replacement has seen no request-scoped value unless
					// its predecessor was live, which it was.
				}
			}
			rep, err := e.Reconcile(ctx)
			out.err("reconcile"+name, err)
			out.value("report", rep)
		}
		e.fake.SetHooks(failWith(fake.MethodDestroy, echo))
		out.err("close"+kind, s.Close(ctx))
		e.fake.SetHooks(fake.Hooks{})
	}
	recs, err := led.List(ctx, "owner")
	require.NoError(t, err)
	out.value("ledger", recs)
	for _, r := range recs {
		out.add("ledger", string(r.Manifest))
	}
	out.err("host close", e.Host.Close(ctx))
	out.add("log", log.String())
	for _, r := range e.events.all() {
		out.value("records", r)
		if r.Grant != nil {
			out.value("records", *r.Grant)
		}
	}
	for _, sp := range spans.Ended() {
		out.add("spans", fmt.Sprintf("%v %v %v %v", sp.Name(), sp.Attributes(), sp.Status(), sp.Events()))
	}
	out.value("host", e.Host)
	return out
}

// Nothing that a host shows holds a value; and the same look at the same run
// with redaction off finds them, so that it is known to see.
func TestLeaks(t *testing.T) {
	t.Parallel()
	s := everything(t, redact.Options{})
	assert.Empty(t, s.hits(tokenCanary, rotatedCanary, requestCanary))
	for _, name := range []string{"output", "files", "state", "log", "spans", "ledger", "values/records", "values/report"} {
		assert.NotEmpty(t, s.texts[name], "%s was not looked at", name)
	}
	assert.Contains(t, s.texts["output"], "[redacted:TOKEN]")

	t.Run("control", func(t *testing.T) {
		t.Parallel()
		s := everything(t, redact.Options{Off: true})
		found := strings.Join(s.hits(tokenCanary, rotatedCanary, requestCanary), " ")
		for _, name := range []string{"output", "files", "values/list", "log", "spans", "values/records", "errors/"} {
			assert.Contains(t, found, name, "the scan is blind there")
		}
		// These never depended on redaction.
		for _, name := range []string{"state", "ledger", "values/info", "values/host", "values/session"} {
			assert.NotContains(t, strings.Fields(found), name)
		}
	})
}

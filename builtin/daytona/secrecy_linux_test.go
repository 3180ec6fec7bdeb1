package daytona_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sbxhost/sbxhost/builtin/daytona"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/internal/daytonatest"
	"github.com/sbxhost/sbxhost/internal/leaktest"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

// records gathers what a host tells the world, until it is closed.
type records struct {
	log, events buffer
	spans       *tracetest.SpanRecorder
	logger      *slog.Logger
	tracer      *trace.TracerProvider
	sink        host.Sink
}

func newRecords() *records {
	r := &records{spans: tracetest.NewSpanRecorder()}
	r.logger = slog.New(slog.NewJSONHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.tracer = trace.NewTracerProvider(trace.WithSpanProcessor(r.spans))
	r.sink = host.JSONLines(&r.events)
	return r
}

// addTo adds them to a corpus, disclosure records by themselves too.
func (r *records) addTo(t *testing.T, c *leaktest.Corpus) (disclosures int) {
	t.Helper()
	c.Add("log", []byte(r.log.String()))
	for line := range strings.Lines(r.events.String()) {
		var rec host.Record
		require.NoError(t, json.Unmarshal([]byte(line), &rec))
		c.Add("event", []byte(line))
		if rec.Kind == host.KindGrant {
			disclosures++
			c.Add("disclosure", []byte(line))
		}
	}
	for _, s := range r.spans.Ended() {
		c.Add("span", fmt.Appendf(nil, "%s %v %v %v %v", s.Name(), s.Attributes(), s.Events(), s.Status(), s.Resource()))
	}
	return disclosures
}

// TestKeyIsInNoRecord drives a host through all of a session's life, on a service
// that works, refuses, and repeats what was sent to it, and then looks for the API
// key, in every form, in everything that was said or kept.
func TestKeyIsInNoRecord(t *testing.T) {
	t.Parallel()
	rec, at, c := newRecords(), &between{}, &leaktest.Corpus{}
	w := worldWith(t, host.Options{Logger: rec.logger, Tracer: rec.tracer.Tracer("t"), Sinks: []host.Sink{rec.sink}},
		func(o *daytona.Options) { o.Transport = at })
	key := w.srv.Key()
	failed := func(what string, err error) {
		assert.Error(t, err, what)
		c.AddError("error of "+what, err)
	}
	ctx := t.Context()
	plain := manifest.New()
	plain.Ports = []int{8080}
	for name, m := range map[string]manifest.Manifest{"unprotected": plain, "protected": withReference()} {
		s, err := w.Create(ctx, host.CreateRequest{Provider: "daytona", Manifest: m})
		require.NoError(t, err)
		use := func(expected bool) {
			check := func(what string, err error) {
				switch {
				case !expected:
					failed(name+" "+what, err)
				case err != nil:
					t.Errorf("%s: %s: %v", name, what, err)
				}
			}
			r, err := s.Exec(ctx, host.ExecRequest{Shell: "env; cat /proc/*/environ /proc/*/cmdline; echo $0 >&2; true"})
			check("exec", err)
			if r != nil {
				c.AddValue("result", *r)
			}
			check("write", s.WriteFile(ctx, "f", []byte("x"), host.WriteOptions{}))
			d, err := s.ReadFile(ctx, "f")
			check("read", err)
			c.AddValue("file", d)
			st, err := s.Status(ctx)
			check("status", err)
			c.AddValue("status", st)
			if len(m.Ports) > 0 {
				_, err = s.Port(ctx, 8080) // its address is a secret of the caller's
				check("port", err)
			}
		}
		use(true)
		for i, echo := range []string{`{"statusCode":400,"message":"bad header KEY","error":"KEY","code":"KEY"}`, `KEY`, `<html>KEY</html>`, `{"message":["KEY"],"error":{"header":"KEY"}}`} {
			for _, status := range []int{400, 401, 403, 404, 500} {
				at.set(func(r *http.Request, _ []byte) *http.Response {
					return reply(status, "application/json", strings.ReplaceAll(echo, "KEY", r.Header.Get("Authorization")))
				})
				_, err := w.Create(ctx, host.CreateRequest{Provider: "daytona", Manifest: m})
				failed(name+" create", err)
				if i > 0 || status != 403 && status != 500 {
					continue
				}
				use(false)
				report, err := w.Reconcile(ctx)
				require.NoError(t, err)
				c.AddValue("report", report)
			}
		}
		at.set(nil)
		for _, kind := range []daytonatest.Kind{daytonatest.Unauthorized, daytonatest.Drop, daytonatest.Garbage} {
			w.srv.Inject(daytonatest.Fault{Kind: kind})
			_, err = s.Status(ctx)
			failed(name+" status", err)
			w.srv.Heal()
		}
		c.AddValue("info", s.Info())
		state, err := s.Detach(ctx)
		require.NoError(t, err)
		c.Add("state", state)
		s, err = w.Resume(ctx, host.ResumeRequest{State: state, Provider: "daytona", Manifest: &m})
		require.NoError(t, err)
		require.NoError(t, s.Close(ctx))
	}
	kept, err := w.ledger.List(ctx, "owner-a")
	require.NoError(t, err)
	c.AddValue("ledger", kept)
	for _, r := range w.srv.Records() {
		c.Add("the service's record "+string(r.Kind)+" "+r.Name, r.Data)
	}
	require.NoError(t, w.Host.Close(context.Background())) // the records are complete
	assert.NotZero(t, rec.addTo(t, c), "there are disclosure records")
	assert.NotEmpty(t, rec.spans.Ended())
	canaries := []leaktest.Canary{leaktest.Known("API key", key)}
	leaktest.Scan(t, canaries, c)

	// Control: in each of these places the key would have been seen.
	rec.logger.Info("control", "key", key)
	_, span := rec.tracer.Tracer("t").Start(ctx, "control")
	span.SetAttributes(attribute.String("key", key))
	span.End()
	rec.sink.Emit(host.Record{Kind: host.KindGrant, Grant: &host.Disclosure{Reason: key}})
	control := &leaktest.Corpus{}
	rec.addTo(t, control)
	control.AddError("error", fmt.Errorf("control: %w", errors.New(key)))
	control.Add("state", bytes.Join([][]byte{[]byte(`{"key":"`), []byte(key), []byte(`"}`)}, nil))
	control.AddValue("result", host.Result{Stdout: []byte(key)})
	control.AddValue("ledger", []provider.Ref{{ID: key}})
	hits, err := leaktest.Find(canaries, control)
	require.NoError(t, err)
	for _, place := range []string{"log", "event", "disclosure", "span", "error", "state", "result", "ledger"} {
		assert.Condition(t, func() bool {
			for _, h := range hits {
				if strings.HasPrefix(h.Where, place) {
					return true
				}
			}
			return false
		}, "control: the scan does not see %s", place)
	}
}

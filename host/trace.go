package host

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sbxhost/sbxhost/redact"
)

// traced is one operation on its way to becoming an event, a log record and a
// span, all from the same Record.
type traced struct {
	h        *Host
	span     trace.Span
	begun    time.Time
	ended    atomic.Bool
	redactor *redact.Redactor

	record                                  Record
	principal, session, provider, transport string
}

// trace begins an operation. The span has no attributes until its end, when
// everything about it is known and redacted.
func (h *Host) trace(ctx context.Context, kind Kind, op string) (context.Context, *traced) {
	ctx, span := h.tracer.Start(ctx, "sbxhost."+op)
	return ctx, &traced{h: h, span: span, begun: time.Now(), record: Record{Kind: kind, Operation: op, Host: h.id}}
}

func (t *traced) end(err error) {
	if t.ended.Swap(true) {
		return
	}
	if t.h.events.idle() && !t.span.IsRecording() {
		t.span.End()
		return
	}
	r := t.record
	r.Time, r.Duration = t.h.clock(), time.Since(t.begun)
	r.Principal, r.Session, r.Provider, r.Transport = t.principal, t.session, t.provider, t.transport
	if err != nil {
		r.Code, r.Applied = codeOf(err), appliedOf(err)
	}
	r = r.clean(t.redactor)
	t.h.events.emit(r, nil)
	t.span.SetAttributes(attributes(r)...)
	if r.Code != "" {
		t.span.SetStatus(codes.Error, string(r.Code))
	}
	t.span.End()
}

// attributes are a cleaned record's fields.
func attributes(r Record) []attribute.KeyValue {
	var out []attribute.KeyValue
	text := func(key, v string) {
		if v != "" {
			out = append(out, attribute.String("sbxhost."+key, v))
		}
	}
	text("kind", string(r.Kind))
	text("host", r.Host)
	text("principal", r.Principal)
	text("session", r.Session)
	text("provider", r.Provider)
	text("transport", r.Transport)
	text("exec", r.Exec)
	text("path", r.Path)
	text("code", string(r.Code))
	text("applied", string(r.Applied))
	text("status", string(r.Status))
	text("reason", r.Reason)
	if r.ExitCode != nil {
		out = append(out, attribute.Int("sbxhost.exit_code", *r.ExitCode))
	}
	if len(r.Names) > 0 {
		out = append(out, attribute.StringSlice("sbxhost.names", r.Names))
	}
	for _, k := range slices.Sorted(maps.Keys(r.Counts)) {
		out = append(out, attribute.Int64("sbxhost.count."+k, r.Counts[k]))
	}
	return out
}

func cloneCounts(m map[string]int64) map[string]int64 { return maps.Clone(m) }

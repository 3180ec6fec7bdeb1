package redact

import (
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
)

// Handler returns a slog.Handler that masks every record before next sees it:
// the message, and keys and values of all attributes, groups and LogValuers
// resolved. Attributes given to With are masked when a record is handled, so
// that secrets added later are masked in them too.
func (r *Redactor) Handler(next slog.Handler) slog.Handler {
	return &handler{r: r, next: next}
}

type handler struct {
	r     *Redactor
	next  slog.Handler
	scope []scope // what With and WithGroup gave, in order
}

// scope is a group's name, or attributes.
type scope struct {
	group string
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, rec slog.Record) error {
	masked := slog.NewRecord(rec.Time, rec.Level, h.r.String(rec.Message), rec.PC)
	attrs := make([]slog.Attr, 0, rec.NumAttrs())
	rec.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, h.r.attr(a))
		return true
	})
	for _, s := range slices.Backward(h.scope) {
		if s.group == "" {
			outer := make([]slog.Attr, 0, len(s.attrs)+len(attrs))
			for _, a := range s.attrs {
				outer = append(outer, h.r.attr(a))
			}
			attrs = append(outer, attrs...)
		} else if len(attrs) > 0 {
			attrs = []slog.Attr{{Key: h.r.String(s.group), Value: slog.GroupValue(attrs...)}}
		}
	}
	masked.AddAttrs(attrs...)
	if err := h.next.Handle(ctx, masked); err != nil {
		return h.r.Error(err)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	return h.with(scope{attrs: slices.Clone(attrs)})
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.with(scope{group: name})
}

func (h *handler) with(s scope) slog.Handler {
	return &handler{r: h.r, next: h.next, scope: append(slices.Clip(h.scope), s)}
}

// ReplaceAttr masks one attribute. It has the shape of
// slog.HandlerOptions.ReplaceAttr, for those who cannot wrap the handler; it
// does not see the names of groups.
func (r *Redactor) ReplaceAttr(_ []string, a slog.Attr) slog.Attr { return r.attr(a) }

func (r *Redactor) attr(a slog.Attr) slog.Attr {
	return slog.Attr{Key: r.String(a.Key), Value: r.value(a.Value)}
}

func (r *Redactor) value(v slog.Value) slog.Value {
	v = v.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(r.String(v.String()))
	case slog.KindGroup:
		group := v.Group()
		out := make([]slog.Attr, len(group))
		for i, a := range group {
			out[i] = r.attr(a)
		}
		return slog.GroupValue(out...)
	case slog.KindAny:
		return r.anyValue(v.Any())
	default: // numbers, booleans, times: kept unless their digits are a secret
		if text := v.String(); len(r.Contains([]byte(text))) > 0 {
			return slog.StringValue(r.String(text))
		}
		return v
	}
}

func (r *Redactor) anyValue(v any) (out slog.Value) {
	defer func() {
		// A value that panics while it prints itself is not worth a process,
		// and the panic's text is not safe to show.
		if recover() != nil {
			out = slog.StringValue(fmt.Sprintf("[%T: cannot be printed]", v))
		}
	}()
	switch v := v.(type) {
	case nil:
		return slog.AnyValue(nil)
	case slog.Level:
		return slog.AnyValue(v)
	case *slog.Source:
		if v == nil {
			return slog.AnyValue(nil)
		}
		s := *v
		s.Function, s.File = r.String(s.Function), r.String(s.File)
		return slog.AnyValue(&s)
	case error:
		return slog.StringValue(r.String(v.Error()))
	case []byte:
		return slog.StringValue(r.String(string(v)))
	}
	m := masked{}
	if doc, err := json.Marshal(v); err == nil {
		if m.json, err = r.JSON(doc); err != nil {
			m.json = nil
		}
	}
	switch v := v.(type) {
	case encoding.TextMarshaler:
		if text, err := v.MarshalText(); err == nil {
			m.text = r.String(string(text))
			break
		}
		m.text = string(m.json)
	case fmt.Stringer:
		m.text = r.String(v.String())
	default:
		m.text = string(m.json)
	}
	if m.text == "" {
		m.text = r.String(fmt.Sprintf("%+v", v))
	}
	if m.json == nil {
		m.json = quote(m.text)
	}
	return slog.AnyValue(m)
}

// masked stands in for a value of unknown type: whatever way a handler prints
// it, only masked text comes out.
type masked struct {
	text string
	json []byte
}

// MarshalJSON returns the masked JSON.
func (m masked) MarshalJSON() ([]byte, error) { return m.json, nil }

// MarshalText returns the masked text.
func (m masked) MarshalText() ([]byte, error) { return []byte(m.text), nil }

// String returns the masked text.
func (m masked) String() string { return m.text }

// Format writes the masked text for every verb and flag.
func (m masked) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, m.text) }

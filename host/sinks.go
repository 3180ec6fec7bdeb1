package host

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// JSONLines returns a sink that writes one JSON object and a newline per record.
// A write that fails loses its record.
func JSONLines(w io.Writer) Sink { return &jsonLines{enc: json.NewEncoder(w)} }

type jsonLines struct {
	mu  sync.Mutex // the same sink may stand behind several hosts
	enc *json.Encoder
}

func (j *jsonLines) Emit(r Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.enc.Encode(r)
}

// Channel returns a sink that sends records to c. It never waits: a record that
// c has no room for is lost. c is not closed.
func Channel(c chan<- Record) Sink { return channel{c} }

type channel struct{ c chan<- Record }

func (s channel) Emit(r Record) {
	select {
	case s.c <- r:
	default:
	}
}

// Slog returns a sink that logs records: failures at level Warn, refused
// disclosures and unmaskable values too, all else at Info.
func Slog(l *slog.Logger) Sink { return slogSink{l} }

type slogSink struct{ l *slog.Logger }

func (s slogSink) Emit(r Record) {
	level := slog.LevelInfo
	if r.Code != "" || r.Kind == KindRedaction || r.Grant != nil && !r.Grant.Allowed {
		level = slog.LevelWarn
	}
	s.l.LogAttrs(context.Background(), level, "sbxhost "+string(r.Kind), logAttrs(r)...)
}

func logAttrs(r Record) []slog.Attr {
	var out []slog.Attr
	text := func(key, v string) {
		if v != "" {
			out = append(out, slog.String(key, v))
		}
	}
	text("operation", r.Operation)
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
		out = append(out, slog.Int("exitCode", *r.ExitCode))
	}
	if r.Duration > 0 {
		out = append(out, slog.Duration("duration", r.Duration))
	}
	if len(r.Names) > 0 {
		out = append(out, slog.Any("names", r.Names))
	}
	for _, k := range slices.Sorted(maps.Keys(r.Counts)) {
		out = append(out, slog.Int64("count."+k, r.Counts[k]))
	}
	if g := r.Grant; g != nil {
		out = append(out, slog.Group("grant", slog.String("action", g.Action), slog.Bool("allowed", g.Allowed),
			slog.String("destination", g.Destination), slog.String("source", g.Source), slog.String("reason", g.Reason)))
	}
	if r.Dropped > 0 {
		out = append(out, slog.Int64("dropped", r.Dropped))
	}
	return out
}

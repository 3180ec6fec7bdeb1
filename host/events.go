package host

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/redact"
)

// Kind is what a record is about.
type Kind string

// The kinds of record.
const (
	KindCreate    Kind = "create"
	KindResume    Kind = "resume"
	KindExec      Kind = "exec"
	KindFile      Kind = "file"
	KindClose     Kind = "close"
	KindRetire    Kind = "retire"
	KindReconcile Kind = "reconcile"
	KindRedaction Kind = "redaction" // a value that cannot be masked
	KindGrant     Kind = "grant"     // a disclosure record
)

// Record is one event. Its fields are the allow-list from which events, log
// records and spans are built: names, ids, codes and counts, never a value, an
// argument, output or content. Every string has passed the session's redactor.
type Record struct {
	Time      time.Time        `json:"time"`
	Kind      Kind             `json:"kind"`
	Operation string           `json:"operation,omitempty"`
	Host      string           `json:"host,omitempty"`
	Principal string           `json:"principal,omitempty"`
	Session   string           `json:"session,omitempty"`
	Provider  string           `json:"provider,omitempty"`
	Transport string           `json:"transport,omitempty"`
	Exec      string           `json:"exec,omitempty"`
	Path      string           `json:"path,omitempty"`
	Code      provider.Code    `json:"code,omitempty"`    // "" means success
	Applied   provider.Applied `json:"applied,omitempty"` // with a code
	Status    ExitKind         `json:"status,omitempty"`
	ExitCode  *int             `json:"exitCode,omitempty"`
	Duration  time.Duration    `json:"duration,omitempty"`
	Counts    map[string]int64 `json:"counts,omitempty"` // redactions by name; reconcile totals
	Names     []string         `json:"names,omitempty"`  // names of secrets
	Reason    string           `json:"reason,omitempty"`
	Grant     *Disclosure      `json:"grant,omitempty"` // with KindGrant
	// Dropped counts the records that this sink lost just before this one
	// because it was too slow.
	Dropped int64 `json:"dropped,omitempty"`
}

// clean returns the record with every free string redacted. Fields that can
// only hold host-made values are left as they are.
func (r Record) clean(red *redact.Redactor) Record {
	if red == nil {
		return r
	}
	for _, s := range []*string{&r.Principal, &r.Exec, &r.Path, &r.Reason} {
		if *s != "" {
			*s = red.String(*s)
		}
	}
	r.Names = slices.Clone(r.Names)
	for i := range r.Names {
		r.Names[i] = red.String(r.Names[i])
	}
	if r.Grant != nil {
		g := *r.Grant
		g.Destination, g.Source, g.Reason = red.String(g.Destination), red.String(g.Source), red.String(g.Reason)
		g.Exposure = red.String(g.Exposure)
		r.Grant = &g
	}
	return r
}

// Sink receives records. Emit is called from one goroutine per sink, in order.
// It may block; when the queue in front of it is full, records are dropped and
// counted. What it does never changes the result of an operation.
//
// A sink that also has Flush(context.Context) is flushed by Host.Close.
type Sink interface {
	Emit(Record)
}

const sinkQueue = 1024

// emitter hands records to the sinks without ever waiting for one.
type emitter struct {
	queues []*queue
}

func newEmitter(sinks []Sink, logger *slog.Logger) *emitter {
	e := &emitter{}
	for _, s := range sinks {
		if s != nil {
			e.queues = append(e.queues, newQueue(s))
		}
	}
	if logger != nil {
		e.queues = append(e.queues, newQueue(Slog(logger)))
	}
	return e
}

// idle reports that nobody listens.
func (e *emitter) idle() bool { return len(e.queues) == 0 }

// emit redacts a record and queues it.
func (e *emitter) emit(r Record, red *redact.Redactor) {
	if e.idle() {
		return
	}
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	r = r.clean(red)
	for _, q := range e.queues {
		q.put(r)
	}
}

// close delivers what is queued, for as long as ctx allows.
func (e *emitter) close(ctx context.Context) {
	for _, q := range e.queues {
		q.close()
	}
	for _, q := range e.queues {
		select {
		case <-q.done:
		case <-ctx.Done():
			return
		}
	}
}

// queue stands in front of one sink.
type queue struct {
	sink    Sink
	done    chan struct{}
	dropped atomic.Int64

	mu      sync.Mutex
	closed  bool
	records chan Record
	end     chan struct{}
}

func newQueue(s Sink) *queue {
	q := &queue{sink: s, records: make(chan Record, sinkQueue), done: make(chan struct{}), end: make(chan struct{})}
	go q.run()
	return q
}

func (q *queue) put(r Record) {
	select {
	case q.records <- r:
	default:
		q.dropped.Add(1)
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.end)
	}
}

func (q *queue) run() {
	defer close(q.done)
	for {
		select {
		case r := <-q.records:
			q.deliver(r)
		case <-q.end:
			for {
				select {
				case r := <-q.records:
					q.deliver(r)
					continue
				default:
				}
				break
			}
			q.flush()
			return
		}
	}
}

func (q *queue) deliver(r Record) {
	defer func() { _ = recover() }() // a sink's panic is its own affair
	if r.Dropped = q.dropped.Swap(0); r.Counts != nil || r.Names != nil {
		r.Counts, r.Names = cloneCounts(r.Counts), slices.Clone(r.Names)
	}
	q.sink.Emit(r)
}

func (q *queue) flush() {
	defer func() { _ = recover() }()
	if f, ok := q.sink.(interface{ Flush(context.Context) }); ok {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		f.Flush(ctx)
	}
}

package host

import (
	"time"

	"github.com/sbxhost/sbxhost/provider"
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
	KindRedaction Kind = "redaction"
	KindGrant     Kind = "grant" // a disclosure record
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
	Names     []string         `json:"names,omitempty"`  // secret names
	Reason    string           `json:"reason,omitempty"`
	Grant     *Disclosure      `json:"grant,omitempty"` // with KindGrant
}

// Disclosure says that a value was, or was not, handed on.
type Disclosure struct {
	// Action is "resolve" when a source was read, "hand-over" when the value
	// was given to the provider.
	Action      string `json:"action"`
	Allowed     bool   `json:"allowed"`
	Destination string `json:"destination"`
	Source      string `json:"source"` // as grants.DisplaySource shows it; "" for a request-scoped value
	Transport   string `json:"transport,omitempty"`
	Exposure    string `json:"exposure,omitempty"`
	Reason      string `json:"reason"`
}

// Sink receives records. Emit is called from one goroutine per sink, in order;
// it may block, and then records are dropped and counted once the queue is
// full.
type Sink interface {
	Emit(Record)
}

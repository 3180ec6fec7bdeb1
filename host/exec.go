package host

import (
	"context"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/redact"
)

// ExecRequest asks for one command. Exactly one of Args and Shell is set.
type ExecRequest struct {
	// Args is the program and its arguments, run without a shell.
	Args []string
	// Shell is run by the sandbox's "sh -c", unaltered.
	Shell string
	// Dir is relative to the manifest's root, or absolute. "": the root.
	Dir string
	// User to run as, where the provider can. "": the session's.
	User string
	// ID is the caller's idempotency key within the session: a second request
	// with the same ID attaches to the first command, which never runs twice;
	// with another command it is Conflict. "": a random one.
	ID string
	// Env holds literals for this command only. A name must be an identifier
	// and not a protected destination.
	Env map[string]string
	// Secrets holds request-scoped values for this command only. They win over
	// the manifest's literals, and Env wins over them.
	//
	// Commands that share a workspace share trust. Where a provider's processes
	// could read each other's environment, what other commands left running is
	// stopped first, a command that is still running is an error, and what this
	// command leaves running is stopped when it ends; unless
	// CreateRequest.SharedTrust is set.
	Secrets grants.Activation
	// Stdin is copied to the command. nil: the command reads end of file. When
	// reading it fails the command is stopped: Killed, with a Notice. Where the
	// provider takes the whole input beforehand, it is not started.
	Stdin io.Reader
	// LiveStdin gives the command an input that Process.Stdin writes. Only with
	// Start, and not together with Stdin.
	LiveStdin bool
	// TTY gives the command a terminal of Cols × Rows character cells.
	TTY        bool
	Cols, Rows uint16
	// Timeout after which the whole process tree is stopped. 0: the default of
	// Limits.ExecTimeout.
	Timeout time.Duration
	// MaxOutput is how many redacted bytes per stream are kept in Result; head
	// and tail are kept around a marker with the exact number left out. 0: the
	// default of Limits.Output. Negative: no limit.
	MaxOutput int64
}

// ExitKind is how a command ended.
type ExitKind = provider.ExitKind

// The kinds of end.
const (
	Exited   = provider.ExitExited
	Signaled = provider.ExitSignaled
	TimedOut = provider.ExitTimedOut
	Killed   = provider.ExitKilled
	Lost     = provider.ExitLost
)

// Result is how a command ended and what it printed, redacted.
type Result struct {
	// ID of the command within its session.
	ID string `json:"id"`
	// Status is how it ended.
	Status ExitKind `json:"status"`
	// ExitCode with Status Exited; -1 otherwise.
	ExitCode int `json:"exitCode"`
	// Signal is the name without "SIG", when a signal ended the command.
	Signal string `json:"signal,omitempty"`
	// TimedOut is the same as Status == TimedOut.
	TimedOut bool `json:"timedOut"`
	// DeathConfirmed says that the provider confirmed the end of what the host
	// had to stop. It is true for a command that ended by itself.
	DeathConfirmed bool `json:"deathConfirmed"`
	// LeftRunning counts descendants that outlived the command; -1 unknown.
	LeftRunning int `json:"leftRunning"`

	Stdout    []byte    `json:"stdout"`
	Stderr    []byte    `json:"stderr"`
	Truncated Truncated `json:"truncated"`
	// Merged: stderr arrived on stdout.
	Merged bool `json:"merged"`

	// Redactions counts what was replaced, by name.
	Redactions map[string]int64 `json:"redactions,omitempty"`
	// Unmaskable lists values in force that cannot be redacted, and why.
	Unmaskable []redact.Refused `json:"unmaskable,omitempty"`

	// Duration from the request to the end.
	Duration time.Duration `json:"duration"`
	// Notice says what happened, when the host had to stop the command.
	Notice string `json:"notice,omitempty"`
}

// Truncated says which streams lost their middle.
type Truncated struct {
	Stdout bool `json:"stdout"`
	Stderr bool `json:"stderr"`
}

// clone returns a copy whose maps and lists are its own; the output is shared.
func (r *Result) clone() *Result {
	c := *r
	c.Redactions, c.Unmaskable = maps.Clone(r.Redactions), slices.Clone(r.Unmaskable)
	return &c
}

// Exec runs a command and waits for it. A command that exits with any code, is
// ended by a signal, or is stopped at its deadline is no error: see
// Result.Status. Nothing is ever run twice.
//
// Errors: InvalidArgument, Unsupported, NotGranted (references, or required
// Secrets that were not supplied), Conflict for an ID, ResourceExhausted,
// FailedPrecondition; NotFound and PermissionDenied for a program that does not
// exist or cannot be executed; Lost, together with a Result, when the stream
// broke and nobody knows how the command ended. Cancelling ctx stops the
// command's whole tree and returns its output so far together with the error.
func (s *Session) Exec(ctx context.Context, req ExecRequest) (*Result, error) {
	if req.LiveStdin {
		return nil, invalid("exec", "liveStdin needs Start", "give Stdin, or use Start")
	}
	e, first, err := s.launch(ctx, req, false)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.done:
		return e.outcome()
	case <-ctx.Done():
	}
	if first {
		e.stop(stopCanceled, execGrace)
		<-e.done // within the time that supervise allows a provider
	}
	cause := s.boundary.err("exec", &provider.Error{Code: provider.CodeOf(ctx.Err()), Op: "exec",
		Message: "the caller gave up", Applied: provider.AppliedYes})
	if !first {
		return nil, cause
	}
	r, _ := e.outcome()
	return r, cause
}

// Start starts a command and returns while it runs. ctx covers the start only.
// The output is to be read from Process.Events, or Wait is to be called: until
// either happens, a command that prints a lot waits. Errors are those of Exec.
func (s *Session) Start(ctx context.Context, req ExecRequest) (*Process, error) {
	e, _, err := s.launch(ctx, req, true)
	if err != nil {
		return nil, err
	}
	return &Process{e: e}, nil
}

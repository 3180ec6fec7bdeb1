package host

import (
	"io"
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
	// Stdin is copied to the command. nil: the command reads end of file.
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

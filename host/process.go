package host

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/sbxhost/sbxhost/provider"
)

// The names of the output streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Event is a piece of output, or the end of a command.
type Event struct {
	// Stream is Stdout or Stderr; "" for the end.
	Stream string `json:"stream,omitempty"`
	// Offset of Data in the redacted stream, in bytes. It is where the last
	// event of the stream ended, unless output was dropped before this reader
	// came.
	Offset int64 `json:"offset"`
	// Data is redacted output. The receiver owns it.
	Data []byte `json:"data,omitempty"`
	// Exit is set in the one terminal event, the last one. Its output is shared
	// and must not be changed.
	Exit *Result `json:"exit,omitempty"`
}

// Process is a command that was started. It is safe for concurrent use. It needs
// no closing: the command ends by itself, at its deadline, or with its session.
type Process struct{ e *execution }

// Format implements fmt.Formatter: the command's id, whatever the verb. Printing
// reads none of the fields that change.
func (p *Process) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "host.Process["+p.e.id+"]") }

// ID identifies the command within its session.
func (p *Process) ID() string { return p.e.id }

// Events yields the output and then exactly one terminal event. A command waits
// for a reader that falls behind by more than what is kept, so that a reader
// sees everything; leaving the loop lets the command run on unhindered. Each
// call begins at the beginning, of what is still kept.
func (p *Process) Events() iter.Seq[Event] { return p.EventsFrom(0, 0) }

// EventsFrom is Events from the given offsets of the two redacted streams, for a
// reader that comes back.
func (p *Process) EventsFrom(stdout, stderr int64) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		t := p.e.transcript
		r := t.attach(stdout, stderr)
		defer t.detach(r)
		for {
			ev := t.next(r)
			if !yield(ev) || ev.Exit != nil {
				return
			}
		}
	}
}

// Stdin returns the command's input with ExecRequest.LiveStdin, else nil.
// Closing it is the command's end of file.
func (p *Process) Stdin() io.WriteCloser { return p.e.stdin }

// Signal sends a signal by its POSIX name without "SIG" to the command.
// FailedPrecondition when it has ended, Unsupported where the provider cannot.
func (p *Process) Signal(ctx context.Context, name string) error {
	ended := p.e.proc == nil // of another caller's start that failed
	select {
	case <-p.e.done:
		ended = true
	default:
	}
	if ended {
		return refusal(provider.FailedPrecondition, "signal", "the command "+p.e.id+" has ended", "")
	}
	p.e.signalled(name)
	return p.e.proc.Signal(ctx, name)
}

// Kill stops the command and its whole tree and waits for the end. An ended
// command is success. The Result says whether death was confirmed.
func (p *Process) Kill(ctx context.Context) error {
	p.e.stop(stopKilled, execGrace)
	select {
	case <-p.e.done:
		return nil
	case <-ctx.Done():
		return p.e.s.boundary.err("kill", &provider.Error{Code: provider.CodeOf(ctx.Err()), Op: "kill",
			Message: "gave up waiting for the command's end", Applied: provider.AppliedYes})
	}
}

// Resize sets the size of the command's terminal in character cells.
// Unsupported without a TTY.
func (p *Process) Resize(ctx context.Context, cols, rows uint16) error {
	r, ok := p.e.proc.(provider.Resizer)
	if !ok || !p.e.tty {
		return refusal(provider.Unsupported, "resize", "the command has no terminal", "start it with TTY")
	}
	return r.Resize(ctx, cols, rows)
}

// Wait blocks until the command has ended and returns how, as Exec does. A
// cancelled ctx abandons this wait only; the command goes on.
func (p *Process) Wait(ctx context.Context) (*Result, error) {
	p.e.transcript.drain()
	select {
	case <-p.e.done:
		return p.e.outcome()
	case <-ctx.Done():
		return nil, refusal(provider.CodeOf(ctx.Err()), "wait", "gave up waiting; the command goes on", "")
	}
}

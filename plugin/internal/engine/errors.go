package engine

import (
	"context"
	"fmt"
	"time"
)

// FuelExhausted says that a call did more work than its budget allows.
type FuelExhausted struct{ Budget int64 }

func (e *FuelExhausted) Error() string {
	return fmt.Sprintf("plugin used up its fuel (%d units): it computes too long or never ends; raise the fuel limit if the work is legitimate", e.Budget)
}

// Deadline says that a call took longer than it may. Timeout is the engine's
// own limit, or zero if the caller's context ended the call.
type Deadline struct{ Timeout time.Duration }

func (e *Deadline) Error() string {
	if e.Timeout == 0 {
		return "plugin call stopped: the caller's deadline passed"
	}
	return fmt.Sprintf("plugin call stopped: it took longer than %v", e.Timeout)
}

// Unwrap makes errors.Is(err, context.DeadlineExceeded) hold.
func (e *Deadline) Unwrap() error { return context.DeadlineExceeded }

// Canceled says that the caller's context was cancelled.
type Canceled struct{}

func (e *Canceled) Error() string { return "plugin call stopped: the caller cancelled it" }

// Unwrap makes errors.Is(err, context.Canceled) hold.
func (e *Canceled) Unwrap() error { return context.Canceled }

// Trap says that the module itself failed. Kind is the engine's name of it,
// such as "unreachable" (which is also how a Go or Rust panic ends) or "integer
// divide by zero". Trace is the stack of function names, chosen by the plugin;
// it is not part of the message.
type Trap struct{ Kind, Trace string }

func (e *Trap) Error() string {
	return fmt.Sprintf("plugin trapped: %s; see the plugin's log for what it wrote before", e.Kind)
}

// GuestExit says that the module called proc_exit, whatever the code: a reactor
// must return, and an exited instance is gone.
type GuestExit struct{ Code uint32 }

func (e *GuestExit) Error() string {
	return fmt.Sprintf("plugin exited with code %d instead of returning; remove os.Exit or exit calls", e.Code)
}

// LimitExceeded says which limit the module ran into.
type LimitExceeded struct {
	Which string
	Limit uint64
}

func (e *LimitExceeded) Error() string {
	return fmt.Sprintf("plugin exceeded its limit on %s (%d)", e.Which, e.Limit)
}

// ABIViolation says that the module used the interface in a way no correct
// module does.
type ABIViolation struct{ What string }

func (e *ABIViolation) Error() string { return "plugin broke the ABI: " + e.What }

// HostBug says that a host function failed in a way that is not the module's
// fault. Value is the panic's text and Stack the host's stack; both may hold
// anything the host function handled, so neither is part of the message.
type HostBug struct {
	Function string
	Value    string
	Stack    []byte
}

func (e *HostBug) Error() string {
	return fmt.Sprintf("host function %s failed inside the host; this is a bug of the host, not of the plugin", e.Function)
}

// Closed says that the engine or the pool is closed.
type Closed struct{ What string }

func (e *Closed) Error() string { return e.What + " is closed" }

// InitError wraps what went wrong while a plugin was being prepared: in its
// start function, in _initialize, or in a warm-up call.
type InitError struct {
	Step string
	Err  error
}

func (e *InitError) Error() string { return fmt.Sprintf("plugin %s failed: %v", e.Step, e.Err) }

// Unwrap gives the typed reason.
func (e *InitError) Unwrap() error { return e.Err }

package plugin

import (
	"context"
	"errors"
	"strings"

	"github.com/sbxhost/sbxhost/plugin/internal/egress"
	"github.com/sbxhost/sbxhost/plugin/internal/engine"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
	"github.com/sbxhost/sbxhost/provider"
)

// What can be wrong with a plugin, as causes of a *provider.Error.
type (
	// PluginTrap: the module executed an invalid operation.
	PluginTrap = engine.Trap
	// FuelExhausted: it computed longer than one call may.
	FuelExhausted = engine.FuelExhausted
	// Deadline: the call took longer than it may.
	Deadline = engine.Deadline
	// Canceled: the caller gave up.
	Canceled = engine.Canceled
	// LimitExceeded: a limit on memory, depth, output or the like.
	LimitExceeded = engine.LimitExceeded
	// ABIViolation: it used the interface in a way no correct module does.
	ABIViolation = engine.ABIViolation
	// HostBug: a host function failed; not the plugin's fault.
	HostBug = engine.HostBug
	// Denied: the approved manifest or a rule of the host forbids what it asked
	// for.
	Denied = egress.Denied
	// ManifestError lists what is wrong with a plugin manifest.
	ManifestError = spec.Error
	// ImportError lists every import that the host does not offer.
	ImportError = wasmfile.ImportError
	// ModuleError says where a module is malformed.
	ModuleError = wasmfile.Error
	// ModuleLimit says which static limit a module is over.
	ModuleLimit = wasmfile.LimitError
)

// PluginPanic says that the module ended itself: a language-level panic, or
// exit.
type PluginPanic struct{ Err error }

// Error describes the end.
func (e *PluginPanic) Error() string { return "plugin panicked: " + e.Err.Error() }

// Unwrap returns the trap or exit.
func (e *PluginPanic) Unwrap() error { return e.Err }

// failed turns the end of a call into a *provider.Error.
func (p *Plugin) failed(op string, err error, applied provider.Applied) *provider.Error {
	out := &provider.Error{Code: provider.Internal, Op: op, Provider: p.m.Name, Message: "the plugin failed", Applied: applied, Err: err}
	var (
		fuel   *engine.FuelExhausted
		limit  *engine.LimitExceeded
		exit   *engine.GuestExit
		trap   *engine.Trap
		denied *egress.Denied
		closed *engine.Closed
		compil *engine.CompileError
	)
	switch {
	case errors.As(err, &denied):
		out.Code, out.Message = provider.PermissionDenied, "the plugin asked for something that is not approved"
	case errors.Is(err, context.Canceled):
		out.Code, out.Message = provider.Canceled, "the operation was cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		out.Code, out.Message = provider.DeadlineExceeded, "the plugin took too long"
	case errors.As(err, &fuel), errors.As(err, &limit):
		out.Code, out.Message = provider.ResourceExhausted, "the plugin went over a limit"
	case errors.As(err, &exit):
		out.Err = &PluginPanic{Err: err}
	case errors.As(err, &trap) && strings.Contains(trap.Kind, "unreachable"):
		// A panic of Go, Rust or C ends in this instruction.
		out.Err = &PluginPanic{Err: err}
	case errors.As(err, &closed):
		out.Code, out.Message = provider.FailedPrecondition, "the plugin is closed"
	case errors.As(err, &compil):
		out.Code, out.Message = provider.InvalidArgument, "the plugin's module is not valid"
	}
	return out
}

// refused returns an error for something that was not attempted.
func (p *Plugin) refused(code provider.Code, op, message string) *provider.Error {
	return &provider.Error{Code: code, Op: op, Provider: p.m.Name, Message: message, Applied: provider.AppliedNo}
}

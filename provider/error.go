package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Code classifies an error. The set is closed; switch on it.
type Code string

const (
	InvalidArgument    Code = "InvalidArgument"    // the request can never work
	NotFound           Code = "NotFound"           // the thing named is not there
	AlreadyExists      Code = "AlreadyExists"      // the thing to be made is there
	Conflict           Code = "Conflict"           // same key, different content; or a concurrent change
	NotGranted         Code = "NotGranted"         // a grant, or its source, is missing
	PermissionDenied   Code = "PermissionDenied"   // the provider or the system refused
	Unsupported        Code = "Unsupported"        // this provider cannot
	FailedPrecondition Code = "FailedPrecondition" // not in this state
	ResourceExhausted  Code = "ResourceExhausted"  // a limit or quota
	Unavailable        Code = "Unavailable"        // not now
	DeadlineExceeded   Code = "DeadlineExceeded"   // took too long
	Canceled           Code = "Canceled"           // the caller gave up
	Lost               Code = "Lost"               // the outcome cannot be known
	Internal           Code = "Internal"           // a fault of ours or the provider's
)

// Codes lists every code.
func Codes() []Code {
	return []Code{InvalidArgument, NotFound, AlreadyExists, Conflict, NotGranted,
		PermissionDenied, Unsupported, FailedPrecondition, ResourceExhausted,
		Unavailable, DeadlineExceeded, Canceled, Lost, Internal}
}

// Retryable reports whether the same request may work later. It says nothing
// about whether repeating it is safe: see Error.Applied.
func (c Code) Retryable() bool {
	switch c {
	case Unavailable, ResourceExhausted, DeadlineExceeded, Conflict:
		return true
	}
	return false
}

// Error makes a Code usable as a target of errors.Is.
func (c Code) Error() string { return string(c) }

// Sentinels for errors.Is. They are the codes themselves.
var (
	ErrInvalidArgument    error = InvalidArgument
	ErrNotFound           error = NotFound
	ErrAlreadyExists      error = AlreadyExists
	ErrConflict           error = Conflict
	ErrNotGranted         error = NotGranted
	ErrPermissionDenied   error = PermissionDenied
	ErrUnsupported        error = Unsupported
	ErrFailedPrecondition error = FailedPrecondition
	ErrResourceExhausted  error = ResourceExhausted
	ErrUnavailable        error = Unavailable
	ErrDeadlineExceeded   error = DeadlineExceeded
	ErrCanceled           error = Canceled
	ErrLost               error = Lost
	ErrInternal           error = Internal
)

// Applied says whether the action of a failed call may have happened. It is a
// fact of the call, not of the code.
type Applied string

const (
	AppliedUnknown Applied = "unknown" // the zero value is read as unknown
	AppliedNo      Applied = "no"
	AppliedYes     Applied = "yes"
)

// Error is what every provider method returns.
type Error struct {
	Code     Code
	Op       string // "create", "exec", "files.write" …
	Provider string
	Subject  string // what it was about: a sandbox id, a path, an image
	Message  string // lower case, what failed
	Remedy   string // what to do next; may be empty
	Applied  Applied
	Err      error // cause inside the trust domain; may be nil
}

// Error returns "op subject: message: cause; remedy".
func (e *Error) Error() string {
	var b strings.Builder
	if e.Provider != "" {
		b.WriteString(e.Provider + ": ")
	}
	if e.Op != "" {
		b.WriteString(e.Op)
		if e.Subject != "" {
			b.WriteString(" " + e.Subject)
		}
		b.WriteString(": ")
	}
	if e.Message != "" {
		b.WriteString(e.Message)
	} else {
		b.WriteString(string(e.Code))
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches the error's Code, and the context errors that correspond to
// Canceled and DeadlineExceeded.
func (e *Error) Is(target error) bool {
	switch target {
	case error(e.Code):
		return true
	case context.Canceled:
		return e.Code == Canceled
	case context.DeadlineExceeded:
		return e.Code == DeadlineExceeded
	}
	return false
}

// Errorf returns an Error with a formatted message. Arguments must not hold
// values.
func Errorf(code Code, op, format string, args ...any) *Error {
	return &Error{Code: code, Op: op, Message: fmt.Sprintf(format, args...), Applied: AppliedUnknown}
}

// CodeOf returns err's code: that of the outermost *Error or Code in its tree,
// Canceled or DeadlineExceeded for context errors, "" for nil, else Internal.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var pe *Error
	if errors.As(err, &pe) {
		return pe.Code
	}
	var coded interface{ ErrorCode() Code }
	if errors.As(err, &coded) {
		return coded.ErrorCode()
	}
	var c Code
	if errors.As(err, &c) {
		return c
	}
	switch {
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceeded
	}
	return Internal
}

// AppliedOf returns whether the failed action may have happened, unknown when
// err does not say.
func AppliedOf(err error) Applied {
	var pe *Error
	if errors.As(err, &pe) && pe.Applied != "" {
		return pe.Applied
	}
	return AppliedUnknown
}

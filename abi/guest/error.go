package guest

import (
	"errors"
	"strconv"

	"github.com/sbxhost/sbxhost/abi"
)

// Code is one of the host's closed set of error codes.
type Code string

// The codes; their meaning is that of the provider contract.
const (
	InvalidArgument    Code = "InvalidArgument"
	NotFound           Code = "NotFound"
	AlreadyExists      Code = "AlreadyExists"
	Conflict           Code = "Conflict"
	PermissionDenied   Code = "PermissionDenied"
	Unsupported        Code = "Unsupported"
	FailedPrecondition Code = "FailedPrecondition"
	ResourceExhausted  Code = "ResourceExhausted"
	Unavailable        Code = "Unavailable"
	DeadlineExceeded   Code = "DeadlineExceeded"
	Canceled           Code = "Canceled"
	Lost               Code = "Lost"
	Internal           Code = "Internal"
)

// Error is what an operation fails with.
type Error struct {
	Code    Code
	Message string // lower case, what failed and on what
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Fail returns an Error.
func Fail(code Code, message string) error { return &Error{Code: code, Message: message} }

// StatusError returns nil for a 2xx answer, else an Error whose code follows
// from the HTTP status. what names the action, for the message.
func StatusError(what string, status int) error {
	code := Internal
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == 400 || status == 422:
		code = InvalidArgument
	case status == 401 || status == 403:
		code = PermissionDenied
	case status == 404 || status == 410:
		code = NotFound
	case status == 408 || status == 504:
		code = DeadlineExceeded
	case status == 409:
		code = Conflict
	case status == 402 || status == 429:
		code = ResourceExhausted
	case status >= 500:
		code = Unavailable
	case status >= 300 && status < 400:
		return Fail(Internal, what+": the vendor answered with a redirect ("+strconv.Itoa(status)+"), which is never followed")
	}
	return Fail(code, what+": the vendor answered "+strconv.Itoa(status))
}

// document turns any error into the one sent to the host.
func document(err error) abi.ErrorDocument {
	var e *Error
	if errors.As(err, &e) {
		return abi.ErrorDocument{Code: string(e.Code), Message: e.Message}
	}
	var no abi.Errno
	if errors.As(err, &no) {
		return abi.ErrorDocument{Code: string(errnoCode(no)), Message: err.Error()}
	}
	return abi.ErrorDocument{Code: string(Internal), Message: err.Error()}
}

func errnoCode(e abi.Errno) Code {
	switch e {
	case abi.ErrnoCanceled:
		return Canceled
	case abi.ErrnoDeadline:
		return DeadlineExceeded
	case abi.ErrnoNetwork, abi.ErrnoAgain:
		return Unavailable
	case abi.ErrnoTruncated:
		return Lost
	case abi.ErrnoDenied, abi.ErrnoBadf:
		return PermissionDenied
	case abi.ErrnoTooLarge, abi.ErrnoLimit:
		return ResourceExhausted
	case abi.ErrnoUnsupported:
		return Unsupported
	}
	return Internal
}

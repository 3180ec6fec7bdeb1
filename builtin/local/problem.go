package local

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/sbxhost/sbxhost/provider"
)

// detail gives the embedded field a name that does not hide the Error method.
type detail = provider.Error

// fault builds a *provider.Error.
type fault struct{ detail }

// problem starts an error of this provider. Until applied says otherwise nothing
// was done.
func problem(code provider.Code, op, subject, message string) *fault {
	return &fault{detail{Code: code, Op: op, Provider: "local", Subject: subject, Message: message, Applied: provider.AppliedNo}}
}

func (f *fault) cause(err error) *fault            { f.Err = err; return f }
func (f *fault) remedy(text string) *fault         { f.Remedy = text; return f }
func (f *fault) applied(a provider.Applied) *fault { f.Applied = a; return f }

// Unwrap hands out the provider.Error, which is what callers look for.
func (f *fault) Unwrap() error { return &f.detail }
func (f *fault) Error() string { return f.detail.Error() }

func ctxProblem(op, subject string, err error, a provider.Applied) error {
	code := provider.Canceled
	if errors.Is(err, context.DeadlineExceeded) {
		code = provider.DeadlineExceeded
	}
	return problem(code, op, subject, "the caller gave up").applied(a)
}

// ours puts this provider's name on a general error.
func ours(err error) error {
	var pe *provider.Error
	if errors.As(err, &pe) {
		pe.Provider = "local"
	}
	return err
}

func itoa(n int) string { return strconv.Itoa(n) }

func joinReasons(r []string) string { return strings.Join(r, "; ") }

package daytona

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

const providerName = "daytona"

// detail gives the embedded field a name that does not hide the Error method.
type detail = provider.Error

// fault builds a *provider.Error.
type fault struct{ detail }

// problem starts an error of this provider. Until applied says otherwise nothing
// was done.
func problem(code provider.Code, op, subject, message string) *fault {
	return &fault{detail{Code: code, Op: op, Provider: providerName, Subject: subject, Message: message, Applied: provider.AppliedNo}}
}

func (f *fault) cause(err error) *fault            { f.Err = err; return f }
func (f *fault) remedy(text string) *fault         { f.Remedy = text; return f }
func (f *fault) applied(a provider.Applied) *fault { f.Applied = a; return f }

// Unwrap hands out the provider.Error, which is what callers look for.
func (f *fault) Unwrap() error { return &f.detail }
func (f *fault) Error() string { return f.detail.Error() }

// ours puts this provider's name on a general error.
func ours(err error) error {
	var pe *provider.Error
	if errors.As(err, &pe) {
		pe.Provider = providerName
	}
	return err
}

func ctxProblem(op, subject string, err error, a provider.Applied) *fault {
	code := provider.Canceled
	if errors.Is(err, context.DeadlineExceeded) {
		code = provider.DeadlineExceeded
	}
	return problem(code, op, subject, "the caller gave up").applied(a)
}

// callError is a request that did not succeed. It holds neither the address,
// which may hold a token, nor anything that was sent.
type callError struct {
	status  int    // 0: no answer
	code    string // the service's own, if any
	message string // the service's text, one line, bounded; "" when it must not be shown
	what    string // ours, without a status
	unsent  bool   // nothing of the request's body left this machine
	timeout bool
	after   time.Duration // the service wants us to wait so long
	// stray: the answer is not the API's, or not about what was asked for; its 404
	// does not say that a sandbox is gone.
	stray bool
	err   error // network errors, without addresses of the API
}

func (e *callError) Error() string {
	switch {
	case e.status != 0 && e.message != "":
		return fmt.Sprintf("status %d: %s", e.status, e.message)
	case e.status != 0:
		return fmt.Sprintf("status %d", e.status)
	case e.err != nil:
		return e.what + ": " + e.err.Error()
	}
	return e.what
}

func (e *callError) Unwrap() error { return e.err }

// refused reports whether the service answered that it did not do it.
func (e *callError) refused() bool {
	return e.unsent || e.status >= 300 && e.status < 500 && e.status != http.StatusRequestTimeout
}

// statusOf returns the status that the service answered with, or 0.
func statusOf(err error) int {
	var e *callError
	if errors.As(err, &e) {
		return e.status
	}
	return 0
}

func says(err error, text string) bool {
	var e *callError
	return errors.As(err, &e) && strings.Contains(strings.ToLower(e.message), text)
}

// serviceProblem turns an error of the client into ours. lost says whether the
// action may have happened when the answer does not tell.
func serviceProblem(ctx context.Context, op, subject string, err error, lost provider.Applied) *fault {
	var f *fault
	if errors.As(err, &f) {
		return f
	}
	var e *callError
	if errors.As(err, &e) && e.refused() {
		lost = provider.AppliedNo
	}
	if ctx.Err() != nil {
		return ctxProblem(op, subject, ctx.Err(), lost)
	}
	if e == nil {
		return problem(provider.Internal, op, subject, "the request failed").cause(err).applied(lost)
	}
	f = statusProblem(op, subject, e)
	return f.cause(e).applied(lost)
}

func statusProblem(op, subject string, e *callError) *fault {
	text := strings.ToLower(e.message)
	switch {
	case e.status == 0 && e.timeout:
		return problem(provider.DeadlineExceeded, op, subject, "the service did not answer in time")
	case e.status == 0:
		return problem(provider.Unavailable, op, subject, "the service cannot be reached, or its answer was lost").
			remedy("see whether " + SettingAPIURL + " is right and the service is up")
	case e.status < 300:
		return problem(provider.Unavailable, op, subject, "the service's answer cannot be understood").
			remedy("see whether " + SettingAPIURL + " leads to a Daytona API")
	case e.status < 400:
		return problem(provider.PermissionDenied, op, subject, "the service wants to send the request elsewhere; it was not followed").
			remedy("set " + SettingAPIURL + " to the address of the API itself")
	}
	switch e.status {
	case http.StatusUnauthorized:
		return problem(provider.PermissionDenied, op, subject, "the API key was refused").
			remedy("set " + SettingAPIKey + " to a source with a valid key")
	case http.StatusForbidden:
		if strings.Contains(text, "limit") || strings.Contains(text, "quota") {
			return problem(provider.ResourceExhausted, op, subject, "a limit of the organization is reached").
				remedy("destroy sandboxes that are not needed, or have the limit raised")
		}
		return problem(provider.PermissionDenied, op, subject, "the API key may not do this").
			remedy("use a key with the permissions that sbxhost doctor names")
	case http.StatusNotFound:
		if e.stray {
			return problem(provider.Unavailable, op, subject, "what answered is not the service's API").
				remedy("see whether " + SettingAPIURL + " leads to a Daytona API, and the service is up")
		}
		if strings.Contains(text, "region") {
			return problem(provider.InvalidArgument, op, subject, "the service has no such region").remedy("correct " + SettingTarget)
		}
		return problem(provider.NotFound, op, subject, "it is not there")
	case http.StatusConflict:
		return problem(provider.Conflict, op, subject, "the service refuses while something else goes on").remedy("try again")
	case http.StatusUnprocessableEntity:
		return problem(provider.Unsupported, op, subject, "the service cannot do this")
	case http.StatusTooManyRequests:
		return problem(provider.ResourceExhausted, op, subject, "too many requests").remedy("try again later")
	case http.StatusRequestTimeout:
		return problem(provider.DeadlineExceeded, op, subject, "the service gave up")
	case http.StatusBadRequest:
		if strings.Contains(text, "container ip") {
			return problem(provider.FailedPrecondition, op, subject, "the sandbox does not run").remedy("resume it first")
		}
		return problem(provider.InvalidArgument, op, subject, "the service refused the request")
	}
	if e.status >= 500 {
		return problem(provider.Unavailable, op, subject, "the service failed").remedy("try again later")
	}
	return problem(provider.Internal, op, subject, "the service refused")
}

package host

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/sbxhost/sbxhost/provider"
)

// LifecycleError is the error of an operation on a protected session. It holds
// only what the host itself recorded: no cause, no provider text, no output.
// errors.Is works through the code, for provider.ErrNotFound and the like and
// for context.Canceled and context.DeadlineExceeded.
type LifecycleError struct {
	Provider  string            `json:"provider"`
	Operation string            `json:"operation"`
	Code      provider.Code     `json:"code"`
	Applied   provider.Applied  `json:"applied"` // whether the action may have happened
	Facts     map[string]string `json:"facts,omitempty"`
}

// Error returns "operation on provider: Code (applied: …; fact=…)".
func (e *LifecycleError) Error() string {
	var b strings.Builder
	b.WriteString(e.Operation + " on " + e.Provider + ": " + string(e.Code) + " (applied: " + string(e.Applied))
	for _, k := range slices.Sorted(maps.Keys(e.Facts)) {
		b.WriteString("; " + k + "=" + e.Facts[k])
	}
	b.WriteString("); details are withheld because the session holds protected values")
	return b.String()
}

// ErrorCode returns the code, for provider.CodeOf.
func (e *LifecycleError) ErrorCode() provider.Code { return e.Code }

// Is matches the code and the context error that corresponds to it.
func (e *LifecycleError) Is(target error) bool { return codeIs(e.Code, target) }

// codeIs reports whether target is code or its context error.
func codeIs(code provider.Code, target error) bool {
	if c, ok := target.(provider.Code); ok { //nolint:errorlint // this is what errors.Is calls
		return c == code
	}
	return code == provider.Canceled && target == context.Canceled || //nolint:errorlint // as above
		code == provider.DeadlineExceeded && target == context.DeadlineExceeded //nolint:errorlint // as above
}

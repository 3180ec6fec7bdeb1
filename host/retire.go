package host

import (
	"strings"

	"github.com/sbxhost/sbxhost/provider"
)

// RetirementError says that a replacement works but the previous sandbox could
// not be removed. Resume returns it together with the session. The ledger keeps
// the previous sandbox, and its removal is tried again at every create, resume
// and reconcile.
type RetirementError struct {
	Provider    string        `json:"provider"`
	Session     string        `json:"session"`
	Code        provider.Code `json:"code"`
	Previous    []string      `json:"previous"`    // ids of what is left
	Replacement string        `json:"replacement"` // id of what replaced it
}

// Error names the session, the previous sandboxes and the replacement.
func (e *RetirementError) Error() string {
	return "resume " + e.Session + " on " + e.Provider + ": " + string(e.Code) +
		": the replacement " + e.Replacement + " works, but the previous sandbox " +
		strings.Join(e.Previous, ", ") + " could not be removed; it will be tried again"
}

// ErrorCode returns the code, for provider.CodeOf.
func (e *RetirementError) ErrorCode() provider.Code { return e.Code }

// Is matches the code and the context error that corresponds to it.
func (e *RetirementError) Is(target error) bool { return codeIs(e.Code, target) }

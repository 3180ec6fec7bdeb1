package host

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/redact"
)

// boundary is where a provider's errors and texts leave its trust domain. It is
// made when an operation starts, and whether it masks is decided then.
type boundary struct {
	provider  string
	protected bool
	redactor  *redact.Redactor
	// armed says that the redactor knows a value. An unprotected session that
	// never saw a request-scoped secret keeps its provider's errors untouched.
	armed atomic.Bool

	mu    sync.Mutex
	facts map[string]string
}

func newBoundary(providerName string, protected bool, r *redact.Redactor) *boundary {
	b := &boundary{provider: providerName, protected: protected, redactor: r}
	b.armed.Store(protected)
	return b
}

// fact records something the host itself knows, for LifecycleError.Facts.
func (b *boundary) fact(key, value string) {
	if !b.protected || value == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.facts == nil {
		b.facts = map[string]string{}
	}
	b.facts[key] = value
}

// lifecycle returns an error with the facts so far.
func (b *boundary) lifecycle(op string, code provider.Code, applied provider.Applied) *LifecycleError {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &LifecycleError{Provider: b.provider, Operation: op, Code: code, Applied: applied, Facts: maps.Clone(b.facts)}
}

// err turns an error of the provider into what the caller may see.
func (b *boundary) err(op string, err error) error {
	if err == nil {
		return nil
	}
	//nolint:errorlint // a masked error nested in anything else is masked again
	if _, masked := err.(*LifecycleError); masked {
		return err
	}
	code, applied := codeOf(err), appliedOf(err)
	if b.protected {
		return b.lifecycle(op, code, applied)
	}
	if !b.armed.Load() {
		return err
	}
	// A fresh error: the cause may hold in a field what its text does not show.
	return &provider.Error{Code: code, Op: op, Provider: b.provider, Message: b.redactor.String(err.Error()), Applied: applied}
}

// text redacts a provider's text.
func (b *boundary) text(s string) string {
	if s == "" {
		return s
	}
	return b.redactor.String(s)
}

// codeOf is provider.CodeOf for errors of providers that may lie: a code is a
// string, and only those of the closed set pass.
func codeOf(err error) provider.Code {
	code := provider.CodeOf(err)
	if code == "" || slices.Contains(provider.Codes(), code) {
		return code
	}
	return provider.Internal
}

func appliedOf(err error) provider.Applied {
	a := provider.AppliedOf(err)
	var le *LifecycleError
	if errors.As(err, &le) {
		a = le.Applied
	}
	switch a {
	case provider.AppliedNo, provider.AppliedYes:
		return a
	}
	return provider.AppliedUnknown
}

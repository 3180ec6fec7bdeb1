package redact

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// Error returns an error whose text is err's, masked. errors.Is gives the
// answers that err would give. Nothing else of err can be reached: it is not
// unwrapped, so errors.As finds no type of it, and no verb prints it. It returns
// nil for nil.
func (r *Redactor) Error(err error) error {
	if err == nil {
		return nil
	}
	return &maskedError{text: r.String(err.Error()), is: func(target error) bool { return errors.Is(err, target) }}
}

type maskedError struct {
	text string
	is   func(error) bool
}

// Error returns the masked text.
func (e *maskedError) Error() string { return e.text }

// Is reports what the original error reports.
func (e *maskedError) Is(target error) bool { return e.is(target) }

// Format writes the masked text for every verb and flag.
func (e *maskedError) Format(f fmt.State, verb rune) {
	if verb == 'q' {
		_, _ = fmt.Fprintf(f, "%q", e.text)
		return
	}
	_, _ = io.WriteString(f, e.text)
}

// LogValue is the masked text.
func (e *maskedError) LogValue() slog.Value { return slog.StringValue(e.text) }

// MarshalText returns the masked text.
func (e *maskedError) MarshalText() ([]byte, error) { return []byte(e.text), nil }

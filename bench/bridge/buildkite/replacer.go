// Package benchbridge gives the benchmarks Buildkite's streaming redactor, which
// lies in an internal folder of its module. Go lets a module import such a folder
// when its own path lies beside it, which is why this module is named as it is.
// Nothing but the benchmarks uses it, and no code of Buildkite's is copied.
package benchbridge

import (
	"io"

	"github.com/buildkite/agent/v3/internal/replacer"
)

// NewRedactor returns Buildkite's replacer, set up as its agent does it: every
// needle becomes "[REDACTED]". Call flush after the last write.
func NewRedactor(w io.Writer, needles []string) (_ io.Writer, flush func() error) {
	r := replacer.New(w, needles, func([]byte) []byte { return []byte("[REDACTED]") })
	return r, r.Flush
}

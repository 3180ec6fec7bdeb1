package host

import (
	"context"
	"io"

	"github.com/sbxhost/sbxhost/provider"
)

// ExportOptions for Session.Export.
type ExportOptions struct {
	// Unredacted permits exporting the files of a session with protected or
	// request-scoped values. An archive cannot be redacted.
	Unredacted bool
}

// Export writes the files under the root as an uncompressed POSIX tar archive,
// names relative to the root. It may be retried. Unsupported when the provider
// cannot, and for a session that has seen values unless Unredacted is set.
func (s *Session) Export(ctx context.Context, w io.Writer, opts ExportOptions) error {
	const op = "export"
	if s.boundary.armed.Load() && !opts.Unredacted {
		return refusal(provider.Unsupported, op, "an archive cannot be redacted, and this session has seen protected values", "read the files one by one, or set Unredacted")
	}
	a, ok := optional[provider.Archiver](s.sandbox)
	if !ok {
		return refusal(provider.Unsupported, op, "provider "+s.reg.name+" cannot export files", "")
	}
	return s.file(ctx, op, "", func(ctx context.Context) error {
		out := &gate{w: w}
		defer out.leave() // it is the caller's again
		return s.boundary.err(op, boundedErr(ctx, 0, op, func(ctx context.Context) error { return a.Export(ctx, out) }))
	})
}

package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/sbxhost/sbxhost/provider"
)

// FileInfo describes a file in the sandbox. Names are redacted; sizes are those
// in the sandbox.
type FileInfo = provider.FileInfo

// FileData is a file's redacted content.
type FileData struct {
	Data []byte `json:"data"`
	// Redactions counts what was replaced, by name. Empty: the data is exact.
	Redactions map[string]int64 `json:"redactions,omitempty"`
}

// Redacted reports whether anything was replaced.
func (d FileData) Redacted() bool { return len(d.Redactions) > 0 }

// WriteOptions for Session.WriteFile.
type WriteOptions struct {
	// Mode holds the permission bits. 0: 0644, or those of the existing file.
	Mode fs.FileMode
	// AllowMarkers permits data that contains this session's redaction markers.
	// Without it such data is refused: reading, editing and writing back a file
	// would replace the secret in it by the marker.
	AllowMarkers bool
}

// Paths of all file operations are POSIX paths relative to the manifest's root.
// A path that leads out of the root, also through a symbolic link, is
// PermissionDenied.

// ReadFile returns a file's redacted content. ResourceExhausted when it is
// larger than Limits.File: use Open. It may be retried.
func (s *Session) ReadFile(ctx context.Context, path string) (FileData, error) {
	var out FileData
	err := s.file(ctx, "read", path, func(ctx context.Context) error {
		r, _, err := s.sandbox.Files().Open(ctx, path)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		limit := s.h.limits.File
		data, err := io.ReadAll(io.LimitReader(r, limit))
		if err != nil {
			return err
		}
		if int64(len(data)) == limit {
			switch _, err := io.ReadFull(r, make([]byte, 1)); {
			case err == nil:
				return refusal(provider.ResourceExhausted, "read", fmt.Sprintf("the file is larger than %d bytes", limit), "use Open, or raise Limits.File")
			case err != io.EOF: // whether this is all of it is not known
				return err
			}
		}
		masked, hits := s.redactor.Bytes(data)
		out = FileData{Data: masked, Redactions: hits}
		return nil
	})
	return out, err
}

// WriteFile replaces a file's content atomically, making missing parent
// directories. It may be retried. FailedPrecondition when data contains a
// redaction marker of this session and AllowMarkers is not set.
func (s *Session) WriteFile(ctx context.Context, path string, data []byte, opts WriteOptions) error {
	if !opts.AllowMarkers {
		if names := s.redactor.ContainsMarker(data); len(names) > 0 {
			return refusal(provider.FailedPrecondition, "write",
				"the data contains the redaction marker of "+strings.Join(names, ", ")+", which would be stored in place of the secret",
				"edit the file in the sandbox, or set AllowMarkers")
		}
	}
	return s.file(ctx, "write", path, func(ctx context.Context) error {
		return s.sandbox.Files().Write(ctx, path, bytes.NewReader(data), provider.WriteOptions{Mode: opts.Mode.Perm()})
	})
}

// List returns the entries of a directory sorted by name in the sandbox. It may
// be retried.
func (s *Session) List(ctx context.Context, path string) ([]FileInfo, error) {
	var out []FileInfo
	err := s.file(ctx, "list", path, func(ctx context.Context) (err error) {
		out, err = s.sandbox.Files().List(ctx, path)
		return err
	})
	return out, err
}

// Stat describes a file without following a final symbolic link. It may be
// retried.
func (s *Session) Stat(ctx context.Context, path string) (FileInfo, error) {
	var out FileInfo
	err := s.file(ctx, "stat", path, func(ctx context.Context) (err error) {
		out, err = s.sandbox.Files().Stat(ctx, path)
		return err
	})
	return out, err
}

// Remove removes a file, a symbolic link, or an empty directory; with recursive
// a whole tree. An absent path is NotFound.
func (s *Session) Remove(ctx context.Context, path string, recursive bool) error {
	return s.file(ctx, "remove", path, func(ctx context.Context) error {
		return s.sandbox.Files().Remove(ctx, path, recursive)
	})
}

// Mkdir makes a directory and its missing parents. An existing one is success.
func (s *Session) Mkdir(ctx context.Context, path string, mode fs.FileMode) error {
	return s.file(ctx, "mkdir", path, func(ctx context.Context) error {
		return s.sandbox.Files().Mkdir(ctx, path, mode)
	})
}

// file runs one file operation as an operation of the session.
func (s *Session) file(ctx context.Context, op, path string, f func(context.Context) error) error {
	ctx, done, err := s.use(ctx, op)
	if err != nil {
		return err
	}
	defer done()
	ctx, tr := s.trace(ctx, KindFile, op)
	tr.record.Path = path
	err = f(ctx)
	tr.end(err)
	return err
}

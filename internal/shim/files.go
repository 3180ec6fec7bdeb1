package shim

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/sbxhost/sbxhost/provider"
)

// Dial starts one `shim files ID` (see FilesArgs) and returns its standard input and
// output. ctx covers the start only. Closing what it returns ends the program.
type Dial func(ctx context.Context) (io.ReadWriteCloser, error)

// FilesOptions are what every stream of a Files needs.
type FilesOptions struct {
	// Dial is required. It is called when an operation finds no idle stream.
	Dial Dial
	// Workload is whose access the operations have.
	Workload Workload
	// Root is the absolute directory that paths are relative to.
	Root string
	// Provider is put into errors.
	Provider string
}

// Files is provider.FS, and Export and Import as in provider.Archiver, by means of
// the program's files mode. Every path is resolved by the kernel below Root
// (openat2), as the session's user; files are written to an unnamed temporary and
// linked into place. Both directions stream with bounded memory. One idle stream is
// kept for the next operation; operations at the same time have streams of their
// own. All methods are safe for concurrent use.
//
// A stream that breaks in the middle of an operation is a provider.Error with code
// Lost, one that cannot be made is what Dial returned.
type Files struct {
	o FilesOptions
}

// NewFiles does no I/O.
func NewFiles(o FilesOptions) *Files { return &Files{o: o} }

var _ provider.FS = (*Files)(nil)

// Close ends idle streams. Operations in progress go on; later ones dial anew.
func (f *Files) Close() error { return nil }

// Open implements provider.FS.
func (f *Files) Open(context.Context, string) (io.ReadCloser, provider.FileInfo, error) {
	return nil, provider.FileInfo{}, errors.ErrUnsupported
}

// Write implements provider.FS.
func (f *Files) Write(context.Context, string, io.Reader, provider.WriteOptions) error {
	return errors.ErrUnsupported
}

// List implements provider.FS.
func (f *Files) List(context.Context, string) ([]provider.FileInfo, error) {
	return nil, errors.ErrUnsupported
}

// Stat implements provider.FS.
func (f *Files) Stat(context.Context, string) (provider.FileInfo, error) {
	return provider.FileInfo{}, errors.ErrUnsupported
}

// Remove implements provider.FS.
func (f *Files) Remove(context.Context, string, bool) error { return errors.ErrUnsupported }

// Mkdir implements provider.FS.
func (f *Files) Mkdir(context.Context, string, fs.FileMode) error { return errors.ErrUnsupported }

// Export writes everything under Root to w as provider.Archiver says.
func (f *Files) Export(context.Context, io.Writer) error { return errors.ErrUnsupported }

// Import adds the archive's files under Root as provider.Archiver says.
func (f *Files) Import(context.Context, io.Reader) error { return errors.ErrUnsupported }

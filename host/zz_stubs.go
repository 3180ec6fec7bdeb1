package host

import (
	"context"
	"io"
	"io/fs"
	"log/slog"

	"github.com/sbxhost/sbxhost/provider"
)

type File struct{}
type flight struct{}

func Slog(*slog.Logger) Sink                                                  { return nil }
func (h *Host) Resume(ctx context.Context, r ResumeRequest) (*Session, error) { return nil, nil }
func (h *Host) Adopt(ctx context.Context, r AdoptRequest) (*Session, error)   { return nil, nil }
func (h *Host) Reconcile(ctx context.Context) (Report, error)                 { return Report{}, nil }
func (h *Host) CheckGrants(ctx context.Context, r CheckRequest) (GrantReport, error) {
	return GrantReport{}, nil
}

func (s *Session) ReadFile(ctx context.Context, path string) (FileData, error) {
	return FileData{}, nil
}
func (s *Session) WriteFile(ctx context.Context, path string, data []byte, o WriteOptions) error {
	return nil
}
func (s *Session) Open(ctx context.Context, path string) (*File, error)           { return nil, nil }
func (s *Session) List(ctx context.Context, path string) ([]FileInfo, error)      { return nil, nil }
func (s *Session) Stat(ctx context.Context, path string) (FileInfo, error)        { return FileInfo{}, nil }
func (s *Session) Remove(ctx context.Context, path string, recursive bool) error  { return nil }
func (s *Session) Mkdir(ctx context.Context, path string, mode fs.FileMode) error { return nil }
func (s *Session) Export(ctx context.Context, w io.Writer, o ExportOptions) error { return nil }
func (s *Session) State(ctx context.Context) ([]byte, error)                      { return nil, nil }
func (s *Session) Port(ctx context.Context, port int) (provider.Endpoint, error) {
	return provider.Endpoint{}, nil
}
func (s *Session) Pause(ctx context.Context) error   { return nil }
func (s *Session) Unpause(ctx context.Context) error { return nil }

func (f *File) Read(b []byte) (int, error)              { return 0, io.EOF }
func (f *File) ReadAt(b []byte, off int64) (int, error) { return 0, io.EOF }
func (f *File) Info() FileInfo                          { return FileInfo{} }
func (f *File) Redactions() map[string]int64            { return nil }
func (f *File) Close() error                            { return nil }

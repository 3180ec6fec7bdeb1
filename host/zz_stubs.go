package host

import (
	"context"
	"io"
	"io/fs"
	"iter"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/redact"
)

type Host struct{}
type Session struct{}
type Process struct{}
type File struct{}

func New(Options) (*Host, error)                                              { return nil, nil }
func (h *Host) RegisterTrusted(name string, p provider.Provider) error        { return nil }
func (h *Host) Register(name string, p provider.Provider) error               { return nil }
func (h *Host) SetGrants(grants.Set) error                                    { return nil }
func (h *Host) ID() string                                                    { return "" }
func (h *Host) Providers() []ProviderInfo                                     { return nil }
func (h *Host) Create(ctx context.Context, r CreateRequest) (*Session, error) { return nil, nil }
func (h *Host) Resume(ctx context.Context, r ResumeRequest) (*Session, error) { return nil, nil }
func (h *Host) Adopt(ctx context.Context, r AdoptRequest) (*Session, error)   { return nil, nil }
func (h *Host) Session(id string) (*Session, bool)                            { return nil, false }
func (h *Host) Sessions() []*Session                                          { return nil }
func (h *Host) Reconcile(ctx context.Context) (Report, error)                 { return Report{}, nil }
func (h *Host) Close(ctx context.Context) error                               { return nil }
func (h *Host) CheckGrants(ctx context.Context, r CheckRequest) (GrantReport, error) {
	return GrantReport{}, nil
}

func (s *Session) ID() string                                                 { return "" }
func (s *Session) Provider() string                                           { return "" }
func (s *Session) Transport() string                                          { return "" }
func (s *Session) Info() Info                                                 { return Info{} }
func (s *Session) Unmaskable() []redact.Refused                               { return nil }
func (s *Session) Exec(ctx context.Context, r ExecRequest) (*Result, error)   { return nil, nil }
func (s *Session) Start(ctx context.Context, r ExecRequest) (*Process, error) { return nil, nil }
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
func (s *Session) Detach(ctx context.Context) ([]byte, error)                     { return nil, nil }
func (s *Session) Close(ctx context.Context) error                                { return nil }
func (s *Session) Status(ctx context.Context) (provider.Status, error)            { return provider.Status{}, nil }
func (s *Session) Port(ctx context.Context, port int) (provider.Endpoint, error) {
	return provider.Endpoint{}, nil
}
func (s *Session) Pause(ctx context.Context) error   { return nil }
func (s *Session) Unpause(ctx context.Context) error { return nil }

func (p *Process) ID() string                                          { return "" }
func (p *Process) Events() iter.Seq[Event]                             { return nil }
func (p *Process) EventsFrom(stdout, stderr int64) iter.Seq[Event]     { return nil }
func (p *Process) Stdin() io.WriteCloser                               { return nil }
func (p *Process) Signal(ctx context.Context, name string) error       { return nil }
func (p *Process) Kill(ctx context.Context) error                      { return nil }
func (p *Process) Resize(ctx context.Context, cols, rows uint16) error { return nil }
func (p *Process) Wait(ctx context.Context) (*Result, error)           { return nil, nil }

func (f *File) Read(b []byte) (int, error)              { return 0, io.EOF }
func (f *File) ReadAt(b []byte, off int64) (int, error) { return 0, io.EOF }
func (f *File) Info() FileInfo                          { return FileInfo{} }
func (f *File) Redactions() map[string]int64            { return nil }
func (f *File) Close() error                            { return nil }

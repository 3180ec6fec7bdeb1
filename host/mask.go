package host

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// maskedSandbox sends every error and every name that a sandbox returns through
// a boundary.
type maskedSandbox struct {
	inner provider.Sandbox
	b     *boundary
}

func (m maskedSandbox) unwrap() provider.Sandbox { return m.inner }

func (m maskedSandbox) Ref() provider.Ref { return m.inner.Ref() }

func (m maskedSandbox) Exec(ctx context.Context, req provider.ExecRequest) (provider.Process, error) {
	p, err := m.inner.Exec(ctx, req)
	if err != nil {
		return nil, m.b.err("exec", err)
	}
	return maskedProcess{inner: p, b: m.b}, nil
}

func (m maskedSandbox) Files() provider.FS { return maskedFS{inner: m.inner.Files(), b: m.b} }

func (m maskedSandbox) Status(ctx context.Context) (provider.Status, error) {
	st, err := m.inner.Status(ctx)
	if err != nil {
		return provider.Status{State: provider.StateUnknown}, m.b.err("status", err)
	}
	st.Reason, st.Unenforced = m.b.text(st.Reason), slices.Clone(st.Unenforced) // the provider's own otherwise
	for i, u := range st.Unenforced {
		st.Unenforced[i] = m.b.text(u)
	}
	return st, nil
}

// signalName is what a signal may be called, for it is shown as it is.
var signalName = regexp.MustCompile(`^[A-Z][A-Z0-9+-]{1,15}$`)

// maskedProcess is the Process of maskedSandbox.
type maskedProcess struct {
	inner provider.Process
	b     *boundary
}

func (m maskedProcess) Stdin() io.WriteCloser {
	w := m.inner.Stdin()
	if w == nil {
		return nil
	}
	return maskedWriter{inner: w, b: m.b}
}

func (m maskedProcess) Signal(ctx context.Context, name string) error {
	return m.b.err("signal", m.inner.Signal(ctx, name))
}

func (m maskedProcess) Kill(ctx context.Context, grace time.Duration) error {
	return m.b.err("kill", m.inner.Kill(ctx, grace))
}

func (m maskedProcess) Wait(ctx context.Context) (provider.Exit, error) {
	exit, err := m.inner.Wait(ctx)
	if !signalName.MatchString(exit.Signal) {
		exit.Signal = ""
	}
	return exit, m.b.err("exec", err)
}

func (m maskedProcess) Resize(ctx context.Context, cols, rows uint16) error {
	r, ok := m.inner.(provider.Resizer)
	if !ok {
		return &provider.Error{Code: provider.Unsupported, Op: "resize", Message: "the command has no terminal", Applied: provider.AppliedNo}
	}
	return m.b.err("resize", r.Resize(ctx, cols, rows))
}

// maskedWriter is a command's input.
type maskedWriter struct {
	inner io.WriteCloser
	b     *boundary
}

func (m maskedWriter) Write(p []byte) (int, error) {
	n, err := m.inner.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		return n, io.ErrClosedPipe // the command has ended, or its input was closed: nothing of the provider's
	}
	return n, m.b.err("stdin", err)
}

func (m maskedWriter) Close() error { return m.b.err("stdin", m.inner.Close()) }

// maskedReader is a file's content.
type maskedReader struct {
	inner io.ReadCloser
	b     *boundary
}

func (m maskedReader) Read(p []byte) (int, error) {
	n, err := m.inner.Read(p)
	if err == nil || err == io.EOF { // what is around it is the provider's
		return n, err
	}
	return n, m.b.err("read", err)
}

func (m maskedReader) Close() error { return m.b.err("read", m.inner.Close()) }

// maskedFS is the FS of maskedSandbox. The content of a file is not redacted
// here but by its reader, which must see it whole.
type maskedFS struct {
	inner provider.FS
	b     *boundary
}

func (m maskedFS) Open(ctx context.Context, path string) (io.ReadCloser, provider.FileInfo, error) {
	r, info, err := m.inner.Open(ctx, path)
	if err != nil {
		return nil, provider.FileInfo{}, m.b.err("open", err)
	}
	return maskedReader{inner: r, b: m.b}, m.info(info), nil
}

func (m maskedFS) Write(ctx context.Context, path string, content io.Reader, opts provider.WriteOptions) error {
	return m.b.err("write", m.inner.Write(ctx, path, content, opts))
}

func (m maskedFS) List(ctx context.Context, path string) ([]provider.FileInfo, error) {
	infos, err := m.inner.List(ctx, path)
	if err != nil {
		return nil, m.b.err("list", err)
	}
	infos = slices.Clone(infos) // the provider may keep its own
	for i := range infos {
		infos[i] = m.info(infos[i])
	}
	return infos, nil
}

func (m maskedFS) Stat(ctx context.Context, path string) (provider.FileInfo, error) {
	info, err := m.inner.Stat(ctx, path)
	if err != nil {
		return provider.FileInfo{}, m.b.err("stat", err)
	}
	return m.info(info), nil
}

func (m maskedFS) Remove(ctx context.Context, path string, recursive bool) error {
	return m.b.err("remove", m.inner.Remove(ctx, path, recursive))
}

func (m maskedFS) Mkdir(ctx context.Context, path string, mode fs.FileMode) error {
	return m.b.err("mkdir", m.inner.Mkdir(ctx, path, mode))
}

func (m maskedFS) info(i provider.FileInfo) provider.FileInfo {
	i.Name, i.Path, i.Target = m.b.text(i.Name), m.b.text(i.Path), m.b.text(i.Target)
	return i
}

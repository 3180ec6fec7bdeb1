package fault

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// sandbox breaks the calls of a sandbox.
type sandbox struct {
	p     *Provider
	inner provider.Sandbox
}

// Format implements fmt.Formatter: a fixed word, whatever the verb.
func (s sandbox) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "fault.Sandbox") }

// Ref implements provider.Sandbox. It is never broken.
func (s sandbox) Ref() provider.Ref { return s.inner.Ref() }

func (s sandbox) Exec(ctx context.Context, req provider.ExecRequest) (provider.Process, error) {
	times := 0
	return invoke(ctx, s.p, Exec, nil, func(ctx context.Context) (provider.Process, error) {
		again := req
		if times++; times > 1 {
			// The first delivery has the input and the writers.
			again.Stdout, again.Stderr = io.Discard, io.Discard
			if req.Input != nil {
				again.Input = bytes.NewReader(nil)
			}
		}
		proc, err := s.inner.Exec(ctx, again)
		if err != nil || proc == nil {
			return nil, err
		}
		return process{s.p, proc}.face(), nil
	})
}

func (s sandbox) Files() provider.FS { return files{s.p, s.inner.Files()} }

func (s sandbox) Status(ctx context.Context) (provider.Status, error) {
	return invoke(ctx, s.p, Status, nil, s.inner.Status)
}

// process breaks the calls of a process.
type process struct {
	p     *Provider
	inner provider.Process
}

// Format implements fmt.Formatter: a fixed word, whatever the verb.
func (x process) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "fault.Process") }

// face is the process with the optional interface, if it has it.
func (x process) face() provider.Process {
	if r, ok := x.inner.(provider.Resizer); ok {
		return resizable{x, r}
	}
	return x
}

func (x process) Stdin() io.WriteCloser {
	w := x.inner.Stdin()
	if w == nil {
		return nil
	}
	return input{x.p, w}
}

func (x process) Signal(ctx context.Context, name string) error {
	return invokeErr(ctx, x.p, Signal, func(ctx context.Context) error { return x.inner.Signal(ctx, name) })
}

func (x process) Kill(ctx context.Context, grace time.Duration) error {
	return invokeErr(ctx, x.p, Kill, func(ctx context.Context) error { return x.inner.Kill(ctx, grace) })
}

func (x process) Wait(ctx context.Context) (provider.Exit, error) {
	return invoke(ctx, x.p, Wait, nil, x.inner.Wait)
}

// resizable is a process with a terminal.
type resizable struct {
	process
	resizer provider.Resizer
}

func (x resizable) Resize(ctx context.Context, cols, rows uint16) error {
	return invokeErr(ctx, x.p, Resize, func(ctx context.Context) error { return x.resizer.Resize(ctx, cols, rows) })
}

// input breaks a command's input. Its writes have no context: those that hang do
// so until the rules change.
type input struct {
	p     *Provider
	inner io.WriteCloser
}

func (i input) Write(b []byte) (int, error) {
	return invoke(context.Background(), i.p, Stdin, nil, func(context.Context) (int, error) { return i.inner.Write(b) })
}

func (i input) Close() error { return i.inner.Close() }

// files breaks file operations.
type files struct {
	p     *Provider
	inner provider.FS
}

type opened struct {
	r    io.ReadCloser
	info provider.FileInfo
}

func (f files) Open(ctx context.Context, path string) (io.ReadCloser, provider.FileInfo, error) {
	o, err := invoke(ctx, f.p, FileOpen, func(o opened) { _ = o.r.Close() }, func(ctx context.Context) (opened, error) {
		r, info, err := f.inner.Open(ctx, path)
		return opened{r, info}, err
	})
	if err != nil {
		return nil, provider.FileInfo{}, err
	}
	return reader{f.p, o.r, ctx}, o.info, nil
}

// reader breaks the reading of an opened file.
type reader struct {
	p     *Provider
	inner io.ReadCloser
	ctx   context.Context
}

func (r reader) Read(b []byte) (int, error) {
	n, err := invoke(r.ctx, r.p, FileRead, nil, func(context.Context) (int, error) { return r.inner.Read(b) })
	return n, err
}

func (r reader) Close() error { return r.inner.Close() }

func (f files) Write(ctx context.Context, path string, content io.Reader, opts provider.WriteOptions) error {
	again := repeatable(content)
	return invokeErr(ctx, f.p, FileWrite, func(ctx context.Context) error {
		return f.inner.Write(ctx, path, again(), opts)
	})
}

func (f files) List(ctx context.Context, path string) ([]provider.FileInfo, error) {
	return invoke(ctx, f.p, FileList, nil, func(ctx context.Context) ([]provider.FileInfo, error) { return f.inner.List(ctx, path) })
}

func (f files) Stat(ctx context.Context, path string) (provider.FileInfo, error) {
	return invoke(ctx, f.p, FileStat, nil, func(ctx context.Context) (provider.FileInfo, error) { return f.inner.Stat(ctx, path) })
}

func (f files) Remove(ctx context.Context, path string, recursive bool) error {
	return invokeErr(ctx, f.p, FileRemove, func(ctx context.Context) error { return f.inner.Remove(ctx, path, recursive) })
}

func (f files) Mkdir(ctx context.Context, path string, mode fs.FileMode) error {
	return invokeErr(ctx, f.p, FileMkdir, func(ctx context.Context) error { return f.inner.Mkdir(ctx, path, mode) })
}

// repeatable lets a request's content be delivered twice: what the first
// delivery read, the second one reads again.
func repeatable(r io.Reader) func() io.Reader {
	var seen bytes.Buffer
	first := true
	return func() io.Reader {
		if first {
			first = false
			return io.TeeReader(r, &seen)
		}
		return io.MultiReader(bytes.NewReader(bytes.Clone(seen.Bytes())), r)
	}
}

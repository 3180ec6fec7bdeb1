package plugin

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
	"github.com/sbxhost/sbxhost/provider"
)

// fileTimeout bounds one transfer.
const fileTimeout = time.Hour

// Files gives access to the files under the root.
func (h *sandboxHandle) Files() provider.FS { return files{h} }

type files struct{ h *sandboxHandle }

func (f files) call(op abi.Op, file *egress.File) (*egress.Call, *call, abi.Raw, string) {
	st := f.h.st
	net := f.h.p.broker.Call(egress.CallConfig{Op: op, Session: st.net, File: file})
	ref, sandbox := st.snapshot()
	return net, &call{net: net, scan: st.net.Find, checkpoint: st.checkpoint(net)}, ref, sandbox
}

// Open reads a file; its content comes from the host, never from the plugin.
func (f files) Open(ctx context.Context, name string) (io.ReadCloser, provider.FileInfo, error) {
	const op = "files.open"
	p := f.h.p
	abs, err := f.h.within(op, name)
	if err != nil {
		return nil, provider.FileInfo{}, err
	}
	if !p.m.Has("read") {
		return nil, provider.FileInfo{}, p.refused(provider.Unsupported, op, "the plugin cannot read files")
	}
	pr, pw := io.Pipe()
	first := &firstWrite{w: pw, seen: make(chan struct{})}
	net, c, ref, sandbox := f.call(abi.OpRead, &egress.File{Path: abs, Sink: first})
	if p.m.Kind == "plugin-driven" {
		c.emit = func(stream int32, data []byte) error {
			if stream != 3 {
				return &egress.Failure{Errno: abi.ErrnoInvalid, Detail: "no such stream"}
			}
			if _, err := first.Write(data); err != nil {
				return &egress.Failure{Errno: abi.ErrnoIo, Detail: "the caller stopped reading"}
			}
			return nil
		}
	}
	run, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	var reply abi.ReadReply
	go func() {
		defer net.Close()
		req := abi.PathRequest{Session: f.h.st.session, Config: p.settings(), Ref: ref, Sandbox: sandbox, Path: abs}
		err := p.run(run, op, abi.OpRead, &req, &reply, c, fileTimeout)
		if err == nil && p.m.Kind != "plugin-driven" && (net.Truncated() || !net.Delivered()) {
			err = p.failed(op, &ABIViolation{What: "read ended without the file's content"}, provider.AppliedNo)
		}
		done <- err
		_ = pw.CloseWithError(err) // nil is the content's end; never fails
	}()
	// A caller that gave up may not be reading any more.
	context.AfterFunc(ctx, func() { _ = pw.CloseWithError(ctx.Err()) })
	info := provider.FileInfo{Name: path.Base(abs), Path: strings.TrimPrefix(path.Clean("/"+name), "/"), Mode: 0o644}
	select {
	case <-first.seen:
		info.Size = max(net.ContentLength(), 0)
	case err := <-done:
		if err != nil {
			cancel()
			return nil, provider.FileInfo{}, err
		}
		info.Size = reply.Size
		if reply.Mode > 0 {
			info.Mode = fs.FileMode(reply.Mode) & fs.ModePerm //nolint:gosec // masked
		}
	}
	return &fileReader{PipeReader: pr, cancel: cancel, ctx: ctx, p: p}, info, nil
}

// firstWrite tells when the first byte arrives, so that Open can report that a
// file is not there.
type firstWrite struct {
	w    io.Writer
	once sync.Once
	seen chan struct{}
}

func (f *firstWrite) Write(b []byte) (int, error) {
	f.once.Do(func() { close(f.seen) })
	return f.w.Write(b)
}

type fileReader struct {
	*io.PipeReader
	cancel context.CancelFunc
	ctx    context.Context // the contract: ctx covers the whole read
	p      *Plugin
}

func (r *fileReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, r.p.failed("files.open", err, provider.AppliedNo)
	}
	return r.PipeReader.Read(b)
}

// Close ends the transfer.
func (r *fileReader) Close() error {
	r.cancel()
	return r.PipeReader.Close()
}

// Write sends a file's content from the host to the vendor.
func (f files) Write(ctx context.Context, name string, content io.Reader, opts provider.WriteOptions) error {
	const op = "files.write"
	abs, err := f.h.within(op, name)
	if err != nil {
		return err
	}
	mode := opts.Mode
	if mode == 0 {
		mode = 0o644
	}
	watched := &watchedReader{r: content}
	net, c, ref, sandbox := f.call(abi.OpWrite, &egress.File{Path: abs, Mode: mode, Content: watched, Size: -1})
	defer net.Close()
	req := abi.WriteRequest{Session: f.h.st.session, Config: f.h.p.settings(), Ref: ref, Sandbox: sandbox, Path: abs, Mode: int64(mode.Perm()), Size: -1}
	if err := f.h.p.run(ctx, op, abi.OpWrite, &req, &abi.Empty{}, c, fileTimeout); err != nil {
		return err
	}
	if net.Applied() != provider.AppliedYes && f.h.p.createsRemotely() {
		return f.h.p.failed(op, &ABIViolation{What: "write ended without sending the content"}, net.Applied())
	}
	if watched.failed() {
		return f.h.p.failed(op, errors.New("reading the content failed"), provider.AppliedUnknown)
	}
	return nil
}

// watchedReader remembers that its source failed.
type watchedReader struct {
	r   io.Reader
	mu  sync.Mutex
	err error
}

func (w *watchedReader) Read(b []byte) (int, error) {
	n, err := w.r.Read(b)
	if err != nil && err != io.EOF { // around it, it is no end
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
	}
	return n, err
}

func (w *watchedReader) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

func (f files) info(e abi.Entry, dir string) provider.FileInfo {
	mode := fs.FileMode(e.Mode) & fs.ModePerm //nolint:gosec // masked
	switch e.Type {
	case "dir":
		mode |= fs.ModeDir
	case "symlink":
		mode |= fs.ModeSymlink
	case "file":
	default:
		mode |= fs.ModeIrregular
	}
	if mode.IsDir() {
		e.Size = 0
	}
	return provider.FileInfo{Name: e.Name, Path: path.Join(dir, e.Name), Size: e.Size, Mode: mode, ModTime: time.Unix(e.ModTime, 0), Target: e.Target}
}

// List returns a directory's entries.
func (f files) List(ctx context.Context, name string) ([]provider.FileInfo, error) {
	const op = "files.list"
	abs, err := f.h.within(op, name)
	if err != nil {
		return nil, err
	}
	net, c, ref, sandbox := f.call(abi.OpListDir, &egress.File{Path: abs})
	defer net.Close()
	var reply abi.ListDirReply
	req := abi.PathRequest{Session: f.h.st.session, Config: f.h.p.settings(), Ref: ref, Sandbox: sandbox, Path: abs}
	if err := f.h.p.run(ctx, op, abi.OpListDir, &req, &reply, c, 0); err != nil {
		return nil, err
	}
	rel := strings.TrimPrefix(path.Clean("/"+name), "/")
	out := make([]provider.FileInfo, 0, len(reply.Entries))
	for _, e := range reply.Entries {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
			return nil, f.h.p.failed(op, &ABIViolation{What: "a directory entry's name is not a plain name"}, provider.AppliedNo)
		}
		out = append(out, f.info(e, rel))
	}
	slices.SortFunc(out, func(a, b provider.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Stat describes a file.
func (f files) Stat(ctx context.Context, name string) (provider.FileInfo, error) {
	const op = "files.stat"
	abs, err := f.h.within(op, name)
	if err != nil {
		return provider.FileInfo{}, err
	}
	net, c, ref, sandbox := f.call(abi.OpStat, &egress.File{Path: abs})
	defer net.Close()
	var reply abi.StatReply
	req := abi.PathRequest{Session: f.h.st.session, Config: f.h.p.settings(), Ref: ref, Sandbox: sandbox, Path: abs}
	if err := f.h.p.run(ctx, op, abi.OpStat, &req, &reply, c, 0); err != nil {
		return provider.FileInfo{}, err
	}
	rel := strings.TrimPrefix(path.Clean("/"+name), "/")
	reply.Entry.Name = path.Base(abs)
	info := f.info(reply.Entry, path.Dir(rel))
	info.Path = rel
	return info, nil
}

// Remove removes a file or a directory.
func (f files) Remove(ctx context.Context, name string, recursive bool) error {
	const op = "files.remove"
	abs, err := f.h.within(op, name)
	if err != nil {
		return err
	}
	if path.Clean("/"+name) == "/" {
		return f.h.p.refused(provider.InvalidArgument, op, "the root itself cannot be removed")
	}
	net, c, ref, sandbox := f.call(abi.OpRemove, &egress.File{Path: abs})
	defer net.Close()
	req := abi.RemoveRequest{Session: f.h.st.session, Config: f.h.p.settings(), Ref: ref, Sandbox: sandbox, Path: abs, Recursive: recursive}
	return f.h.p.run(ctx, op, abi.OpRemove, &req, &abi.Empty{}, c, 0)
}

// Mkdir makes a directory and its missing parents.
func (f files) Mkdir(ctx context.Context, name string, mode fs.FileMode) error {
	const op = "files.mkdir"
	abs, err := f.h.within(op, name)
	if err != nil {
		return err
	}
	net, c, ref, sandbox := f.call(abi.OpMkdir, &egress.File{Path: abs, Mode: mode})
	defer net.Close()
	req := abi.MkdirRequest{Session: f.h.st.session, Config: f.h.p.settings(), Ref: ref, Sandbox: sandbox, Path: abs, Mode: int64(mode.Perm())}
	return f.h.p.run(ctx, op, abi.OpMkdir, &req, &abi.Empty{}, c, 0)
}

package shim

import (
	"context"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim/beneath"
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/sbxhost/sbxhost/provider"
)

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
// kept for a few seconds for the next operation; operations at the same time have
// streams of their own. All methods are safe for concurrent use.
//
// Errors are provider.Error. A stream that breaks in the middle of an operation is
// Lost; one that cannot be made is what Dial returned, or Unavailable around it.
type Files struct {
	o    FilesOptions
	pool streamPool
}

// NewFiles does no I/O.
func NewFiles(o FilesOptions) *Files { return &Files{o: o} }

var _ provider.FS = (*Files)(nil)

// Close ends idle streams. Operations in progress go on; later ones dial anew.
func (f *Files) Close() error {
	f.pool.drop()
	return nil
}

// call runs one operation on a stream. read says that it changes nothing: then it is
// tried again on a fresh stream when an idle one turns out to be dead.
func (f *Files) call(ctx context.Context, op, name string, read bool, do func(*fileStream) error) error {
	p := filesProblem{f.o.Provider, op, name, read}
	for {
		st, err := f.stream(ctx, p)
		if err != nil {
			return err
		}
		reused := st.used
		st.used = true
		stop := context.AfterFunc(ctx, st.close)
		err = do(st)
		stopped := !stop() // then somebody closes the stream
		if stopped && err != nil {
			st.close()
			return p.context(ctx)
		}
		if !stopped && (err == nil || !st.broken) {
			f.pool.put(st)
		} else {
			st.close()
			if err != nil && reused && read && st.silent {
				continue
			}
		}
		return p.of(err)
	}
}

// clean makes a path relative and clean, or says why it cannot be.
func (f *Files) clean(op, name string, read bool) (string, error) {
	c, err := beneath.Clean(name)
	if err == nil && len(c) > wire.MaxPath {
		return "", filesProblem{f.o.Provider, op, "", read}.fault(wire.FileFault{Kind: wire.FaultErrno, Errno: eNAMETOOLONG})
	}
	if err != nil {
		return "", filesProblem{f.o.Provider, op, name, read}.path(err)
	}
	return c, nil
}

func (f *Files) invalid(op, name, what string) error {
	return &provider.Error{Code: provider.InvalidArgument, Op: op, Provider: f.o.Provider, Subject: name, Message: what, Applied: provider.AppliedNo}
}

// Open implements provider.FS.
func (f *Files) Open(ctx context.Context, name string) (io.ReadCloser, provider.FileInfo, error) {
	const op = "files.open"
	c, err := f.clean(op, name, true)
	if err != nil {
		return nil, provider.FileInfo{}, err
	}
	p := filesProblem{f.o.Provider, op, name, true}
	for {
		st, err := f.stream(ctx, p)
		if err != nil {
			return nil, provider.FileInfo{}, err
		}
		reused := st.used
		st.used = true
		r := &fileReader{ctx: ctx, f: f, st: st, problem: p}
		r.stop = context.AfterFunc(ctx, st.close)
		info, err := st.ask(wire.Append(nil, wire.FileOpen, []byte(c)))
		if err == nil {
			return r, fileInfoOf(c, info), nil
		}
		stopped := !r.stop()
		switch {
		case stopped:
			st.close()
			return nil, provider.FileInfo{}, p.context(ctx)
		case !st.broken:
			f.pool.put(st)
		default:
			st.close()
			if reused && st.silent {
				continue
			}
		}
		return nil, provider.FileInfo{}, p.of(err)
	}
}

// fileReader is the content of one opened file.
type fileReader struct {
	ctx     context.Context // the contract: ctx covers the whole read
	f       *Files
	st      *fileStream // nil once it was given back
	stop    func() bool
	problem filesProblem
	rest    []byte
	err     error
}

// Read must not be called at the same time as itself or Close.
func (r *fileReader) Read(b []byte) (int, error) {
	// What has arrived already does not count: to cancel is to be heard at once. The
	// rest of the answer is still to come, so nobody else may have the stream.
	if r.err == nil && r.ctx.Err() != nil {
		st := r.st
		r.st, r.rest, r.err = nil, nil, r.problem.context(r.ctx)
		r.stop()
		st.close()
	}
	for len(r.rest) == 0 && r.err == nil && len(b) > 0 {
		fr, err := r.st.next()
		switch {
		case err != nil:
			r.err = err
		case fr.Type == wire.FileData:
			r.rest = fr.Payload
		case fr.Type == wire.FileDone:
			r.err = io.EOF
		default:
			r.err = r.st.failure(fr)
		}
		if r.err != nil {
			if r.end(); r.err != io.EOF {
				if r.ctx.Err() != nil {
					r.err = r.problem.context(r.ctx)
				} else {
					r.err = r.problem.of(r.err)
				}
			}
		}
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// end gives the stream back after its answer.
func (r *fileReader) end() {
	st := r.st
	r.st = nil
	if r.stop() && !st.broken {
		r.f.pool.put(st)
	} else {
		st.close()
	}
}

// Close ends the read. What was not read is not waited for.
func (r *fileReader) Close() error {
	if r.st == nil {
		return nil
	}
	st := r.st
	r.st, r.rest, r.err = nil, nil, fs.ErrClosed
	if !r.stop() || st.send(wire.Append(nil, wire.FileCancel, nil)) != nil {
		st.close()
		return nil
	}
	// The answer is behind what is on its way already: a moment's worth, or not
	// worth waiting for.
	go func() {
		late := time.AfterFunc(time.Second, st.close)
		for {
			fr, err := st.next()
			if err != nil || fr.Type != wire.FileData {
				if late.Stop() && err == nil && (fr.Type == wire.FileDone || fr.Type == wire.FileFailed) {
					r.f.pool.put(st)
				} else {
					st.close()
				}
				return
			}
		}
	}()
	return nil
}

// Write implements provider.FS.
func (f *Files) Write(ctx context.Context, name string, content io.Reader, opts provider.WriteOptions) error {
	const op = "files.write"
	c, err := f.clean(op, name, false)
	if err != nil {
		return err
	}
	if c == "." {
		return f.invalid(op, name, "the root is a directory")
	}
	if opts.Mode&^fs.ModePerm != 0 {
		return f.invalid(op, name, "only permission bits can be set")
	}
	return f.call(ctx, op, name, false, func(st *fileStream) error {
		b := wire.Append(nil, wire.FileWrite, binaryMode(opts.Mode, c))
		if err := st.send(b); err != nil {
			return err
		}
		return st.upload(func(chunk func([]byte) error) error { return copyChunks(ctx, content, chunk) })
	})
}

func binaryMode(mode fs.FileMode, name string) []byte {
	m := uint32(mode.Perm())
	return append([]byte{0, 0, byte(m >> 8), byte(m)}, name...)
}

// copyChunks hands r on in chunks.
func copyChunks(ctx context.Context, r io.Reader, chunk func([]byte) error) error {
	buf := make([]byte, wire.MaxChunk)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(buf)
		if n > 0 {
			if err := chunk(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF { // around it, it is no end
			return nil
		}
		if err != nil {
			return &sourceError{err}
		}
	}
}

// sourceError is what the caller's own reader or writer returned.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return "the caller's stream failed: " + e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// List implements provider.FS.
func (f *Files) List(ctx context.Context, name string) ([]provider.FileInfo, error) {
	const op = "files.list"
	c, err := f.clean(op, name, true)
	if err != nil {
		return nil, err
	}
	var out []provider.FileInfo
	err = f.call(ctx, op, name, true, func(st *fileStream) error {
		out = []provider.FileInfo{}
		if err := st.send(wire.Append(nil, wire.FileList, []byte(c))); err != nil {
			return err
		}
		for {
			fr, err := st.next()
			if err != nil {
				return err
			}
			switch fr.Type {
			case wire.FileDone:
				return nil
			case wire.FileInfo:
				i, err := wire.ParseInfo(fr.Payload)
				if err != nil || i.Name == "" || i.Name == "." || i.Name == ".." || strings.Contains(i.Name, "/") {
					return st.fail(wire.ErrProtocol)
				}
				out = append(out, fileInfoOf(path.Join(c, i.Name), i))
			default:
				return st.failure(fr)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b provider.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Stat implements provider.FS.
func (f *Files) Stat(ctx context.Context, name string) (provider.FileInfo, error) {
	const op = "files.stat"
	c, err := f.clean(op, name, true)
	if err != nil {
		return provider.FileInfo{}, err
	}
	var info provider.FileInfo
	err = f.call(ctx, op, name, true, func(st *fileStream) error {
		i, err := st.ask(wire.Append(nil, wire.FileStat, []byte(c)))
		if err != nil {
			return err
		}
		info = fileInfoOf(c, i)
		return st.done()
	})
	return info, err
}

// Remove implements provider.FS.
func (f *Files) Remove(ctx context.Context, name string, recursive bool) error {
	const op = "files.remove"
	c, err := f.clean(op, name, false)
	if err != nil {
		return err
	}
	if c == "." {
		return f.invalid(op, name, "the root cannot be removed")
	}
	flag := byte(0)
	if recursive {
		flag = 1
	}
	return f.call(ctx, op, name, false, func(st *fileStream) error {
		if err := st.send(wire.Append(nil, wire.FileRemove, append([]byte{flag}, c...))); err != nil {
			return err
		}
		return st.done()
	})
}

// Mkdir implements provider.FS.
func (f *Files) Mkdir(ctx context.Context, name string, mode fs.FileMode) error {
	const op = "files.mkdir"
	c, err := f.clean(op, name, false)
	if err != nil {
		return err
	}
	if mode&^fs.ModePerm != 0 {
		return f.invalid(op, name, "only permission bits can be set")
	}
	if mode == 0 {
		mode = 0o755
	}
	return f.call(ctx, op, name, false, func(st *fileStream) error {
		if err := st.send(wire.Append(nil, wire.FileMkdir, binaryMode(mode, c))); err != nil {
			return err
		}
		return st.done()
	})
}

// fileInfoOf turns what the program says of a file into the contract's words.
func fileInfoOf(name string, w wire.Info) provider.FileInfo {
	mode := fs.FileMode(w.Mode & 0o777)
	switch w.Mode & typeMask {
	case typeDir:
		mode |= fs.ModeDir
	case typeLink:
		mode |= fs.ModeSymlink
	case typeFIFO:
		mode |= fs.ModeNamedPipe
	case typeSocket:
		mode |= fs.ModeSocket
	case typeBlock:
		mode |= fs.ModeDevice
	case typeChar:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	for bit, m := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if w.Mode&bit != 0 {
			mode |= m
		}
	}
	i := provider.FileInfo{Name: path.Base(name), Path: name, Mode: mode, Target: w.Target, ModTime: time.Unix(w.Sec, int64(w.Nsec))}
	if mode.IsRegular() || mode&fs.ModeSymlink != 0 {
		i.Size = int64(w.Size)
	}
	return i
}

// File types of Linux, in st_mode.
const (
	typeMask   = 0o170000
	typeFIFO   = 0o010000
	typeChar   = 0o020000
	typeDir    = 0o040000
	typeBlock  = 0o060000
	typeFile   = 0o100000
	typeLink   = 0o120000
	typeSocket = 0o140000
)

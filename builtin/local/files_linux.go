package local

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim/beneath"
	"github.com/sbxhost/sbxhost/provider"
	"golang.org/x/sys/unix"
)

// files is the host's access to a sandbox's workspace, by package beneath: no link
// leads out of it and no pipe holds us. As root every operation runs with the file
// system identity of the sandbox's user.
type files struct{ s *sandbox }

// Files implements provider.Sandbox.
func (s *sandbox) Files() provider.FS { return &files{s} }

// with runs f with the workspace's descriptor, as the sandbox's user.
func (fsys *files) with(ctx context.Context, op, name string, f func(root int) error) error {
	if err := ctx.Err(); err != nil {
		return ctxProblem(op, name, err, provider.AppliedNo)
	}
	root, err := fsys.s.openRoot()
	if err != nil {
		return fileProblem(op, name, err)
	}
	defer func() { _ = root.Close() }()
	raw := int(root.Fd())
	err = fsys.s.asUser(func() error { return f(raw) })
	if err == nil {
		return nil
	}
	var pe *provider.Error
	if errors.As(err, &pe) {
		return err
	}
	if cerr := ctx.Err(); cerr != nil {
		return ctxProblem(op, name, cerr, provider.AppliedUnknown)
	}
	return fileProblem(op, name, err)
}

// openRoot returns a descriptor of the workspace that the caller closes.
func (s *sandbox) openRoot() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root != nil {
		fd, err := unix.FcntlInt(s.root.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), "workspace"), nil
		}
		if !errors.Is(err, unix.EBADF) {
			return nil, err
		}
	}
	fd, err := unix.Open(path.Join(s.work, workspaceDir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "workspace"), nil
}

// asUser runs f with the file system identity of the sandbox's user. A thread
// whose identity cannot be restored is not used again.
func (s *sandbox) asUser(f func() error) error {
	if !s.p.root || s.record.UID == 0 {
		return f()
	}
	runtime.LockOSThread()
	id := int(s.record.UID)
	_ = unix.Setfsgid(id)
	_ = unix.Setfsuid(id)
	defer func() {
		_ = unix.Setfsuid(os.Geteuid())
		_ = unix.Setfsgid(os.Getegid())
		if now, _ := unix.SetfsuidRetUid(-1); now == os.Geteuid() {
			runtime.UnlockOSThread()
		}
	}()
	if now, _ := unix.SetfsuidRetUid(-1); now != id {
		return unix.EPERM
	}
	return f()
}

// clean checks a path and makes it relative and clean.
func clean(op, name string) (string, error) {
	c, err := beneath.Clean(name)
	if err != nil {
		return "", fileProblem(op, name, err)
	}
	return c, nil
}

// Open implements provider.FS.
func (fsys *files) Open(ctx context.Context, name string) (io.ReadCloser, provider.FileInfo, error) {
	const op = "files.open"
	c, err := clean(op, name)
	if err != nil {
		return nil, provider.FileInfo{}, err
	}
	var f *os.File
	var info provider.FileInfo
	err = fsys.with(ctx, op, name, func(root int) error {
		fd, st, err := beneath.Open(root, c)
		if err != nil {
			return err
		}
		f, info = os.NewFile(uintptr(fd), "file"), fileInfo(c, &st, "")
		return nil
	})
	if err != nil {
		return nil, provider.FileInfo{}, err
	}
	return &fileReader{ctx: ctx, f: f, name: name}, info, nil
}

type fileReader struct {
	ctx  context.Context // the contract: ctx covers the whole read
	f    *os.File
	name string
}

func (r *fileReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, ctxProblem("files.open", r.name, err, provider.AppliedNo)
	}
	n, err := r.f.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fileProblem("files.open", r.name, err)
	}
	return n, err
}

func (r *fileReader) Close() error { return r.f.Close() }

// Write implements provider.FS.
func (fsys *files) Write(ctx context.Context, name string, content io.Reader, opts provider.WriteOptions) error {
	const op = "files.write"
	c, err := clean(op, name)
	if err != nil {
		return err
	}
	if c == "." {
		return problem(provider.InvalidArgument, op, name, "the root is a directory")
	}
	if opts.Mode&^fs.ModePerm != 0 {
		return problem(provider.InvalidArgument, op, name, "only permission bits can be set")
	}
	return fsys.with(ctx, op, name, func(root int) error {
		p, err := beneath.Create(root, c, uint32(opts.Mode))
		if err != nil {
			return err
		}
		defer p.Abort()
		if _, err := io.Copy(p, &ctxReader{ctx, content}); err != nil {
			return err
		}
		return p.Commit(nil)
	})
}

type ctxReader struct {
	ctx context.Context // lives for one call
	r   io.Reader
}

func (r *ctxReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// List implements provider.FS.
func (fsys *files) List(ctx context.Context, name string) ([]provider.FileInfo, error) {
	const op = "files.list"
	c, err := clean(op, name)
	if err != nil {
		return nil, err
	}
	out := []provider.FileInfo{}
	err = fsys.with(ctx, op, name, func(root int) error {
		return beneath.List(root, c, func(e beneath.Entry) error {
			out = append(out, fileInfo(path.Join(c, e.Name), &e.Stat, e.Target))
			return ctx.Err()
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b provider.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Stat implements provider.FS.
func (fsys *files) Stat(ctx context.Context, name string) (provider.FileInfo, error) {
	const op = "files.stat"
	c, err := clean(op, name)
	if err != nil {
		return provider.FileInfo{}, err
	}
	var info provider.FileInfo
	err = fsys.with(ctx, op, name, func(root int) error {
		st, target, err := beneath.Stat(root, c)
		if err == nil {
			info = fileInfo(c, &st, target)
		}
		return err
	})
	return info, err
}

// Remove implements provider.FS.
func (fsys *files) Remove(ctx context.Context, name string, recursive bool) error {
	const op = "files.remove"
	c, err := clean(op, name)
	if err != nil {
		return err
	}
	if c == "." {
		return problem(provider.InvalidArgument, op, name, "the root cannot be removed")
	}
	return fsys.with(ctx, op, name, func(root int) error { return beneath.Remove(root, c, recursive) })
}

// Mkdir implements provider.FS.
func (fsys *files) Mkdir(ctx context.Context, name string, mode fs.FileMode) error {
	const op = "files.mkdir"
	c, err := clean(op, name)
	if err != nil {
		return err
	}
	if mode&^fs.ModePerm != 0 {
		return problem(provider.InvalidArgument, op, name, "only permission bits can be set")
	}
	if mode == 0 {
		mode = 0o755
	}
	return fsys.with(ctx, op, name, func(root int) error { return beneath.Mkdir(root, c, uint32(mode)) })
}

func fileInfo(name string, st *unix.Stat_t, target string) provider.FileInfo {
	mode := fs.FileMode(st.Mode & 0o777)
	for _, m := range []struct {
		kind uint32
		mode fs.FileMode
	}{
		{unix.S_IFDIR, fs.ModeDir},
		{unix.S_IFLNK, fs.ModeSymlink},
		{unix.S_IFIFO, fs.ModeNamedPipe},
		{unix.S_IFSOCK, fs.ModeSocket},
		{unix.S_IFBLK, fs.ModeDevice},
		{unix.S_IFCHR, fs.ModeDevice | fs.ModeCharDevice},
	} {
		if st.Mode&unix.S_IFMT == m.kind {
			mode |= m.mode
		}
	}
	for _, m := range []struct {
		bit  uint32
		mode fs.FileMode
	}{{unix.S_ISUID, fs.ModeSetuid}, {unix.S_ISGID, fs.ModeSetgid}, {unix.S_ISVTX, fs.ModeSticky}} {
		if st.Mode&m.bit != 0 {
			mode |= m.mode
		}
	}
	i := provider.FileInfo{
		Name: path.Base(name), Path: name, Mode: mode, Target: target,
		ModTime: time.Unix(st.Mtim.Unix()),
	}
	if mode.IsRegular() || mode&fs.ModeSymlink != 0 {
		i.Size = st.Size
	}
	return i
}

// fileProblem classifies an error of the file system.
func fileProblem(op, name string, err error) error {
	var pe *provider.Error
	if errors.As(err, &pe) {
		return err
	}
	code, what := provider.Internal, "the file system failed"
	if at, ok := errors.AsType[*beneath.PathError](err); ok {
		name, err = at.Path, at.Err
	}
	errno, _ := errors.AsType[unix.Errno](err)
	switch {
	case errors.Is(err, beneath.ErrDirectory), errors.Is(err, beneath.ErrSpecial):
		return problem(provider.FailedPrecondition, op, name, err.Error())
	case errors.Is(err, beneath.ErrNUL):
		return problem(provider.InvalidArgument, op, "", err.Error())
	case errors.Is(err, beneath.ErrAbsolute):
		return problem(provider.PermissionDenied, op, name, err.Error()).remedy("give it relative to the root")
	case errors.Is(err, beneath.ErrOutside):
		return problem(provider.PermissionDenied, op, name, err.Error())
	case errors.Is(err, beneath.ErrRoot):
		return problem(provider.InvalidArgument, op, name, err.Error())
	case errors.Is(err, beneath.ErrDepth):
		return problem(provider.ResourceExhausted, op, name, err.Error()).remedy("remove what nests deeper than 256 directories")
	case errno == 0:
		return problem(code, op, name, "reading or writing failed").cause(err).applied(provider.AppliedUnknown)
	}
	switch errno {
	case unix.ENOENT:
		code, what = provider.NotFound, "not found"
	case unix.EXDEV:
		code, what = provider.PermissionDenied, "leads out of the root"
	case unix.ELOOP:
		code, what = provider.PermissionDenied, "leads through too many, or forbidden, links"
	case unix.EACCES, unix.EPERM, unix.EROFS:
		code, what = provider.PermissionDenied, "permission denied"
	case unix.ENOTDIR:
		code, what = provider.FailedPrecondition, "a part of the path is not a directory"
	case unix.EISDIR:
		code, what = provider.FailedPrecondition, "is a directory"
	case unix.ENOTEMPTY, unix.EEXIST:
		code, what = provider.FailedPrecondition, "the directory is not empty"
	case unix.EBUSY, unix.ETXTBSY:
		code, what = provider.FailedPrecondition, "is in use"
	case unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EMLINK:
		return problem(provider.ResourceExhausted, op, name, "no space, memory or descriptors left").cause(errno).
			remedy("free some of it in the sandbox and on the host, and see the limits of the process (ulimit -n)").applied(provider.AppliedUnknown)
	case unix.ENAMETOOLONG, unix.EINVAL, unix.EILSEQ:
		code, what = provider.InvalidArgument, "not a usable name"
	}
	return problem(code, op, name, what).cause(errno).applied(provider.AppliedUnknown)
}

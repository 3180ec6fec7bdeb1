package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"golang.org/x/sys/unix"
)

// files is the host's access to a sandbox's workspace. Every path is resolved by
// the kernel below the workspace (openat2), so that no link, whenever it is put
// there, leads out; nothing but regular files and directories is ever opened, so
// that a pipe cannot hold us; and as root every operation runs with the file
// system identity of the sandbox's user.
type files struct{ s *sandbox }

// Files implements provider.Sandbox.
func (s *sandbox) Files() provider.FS { return &files{s} }

const (
	maxLinks    = 40
	resolveSafe = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS
)

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
	switch {
	case strings.IndexByte(name, 0) >= 0:
		return "", problem(provider.InvalidArgument, op, "", "a path contains a NUL byte")
	case path.IsAbs(name):
		return "", problem(provider.PermissionDenied, op, name, "the path is absolute").remedy("give it relative to the root")
	}
	c := path.Clean(name)
	if c == ".." || strings.HasPrefix(c, "../") {
		return "", problem(provider.PermissionDenied, op, name, "the path leads out of the root")
	}
	return c, nil
}

// beneath opens a path below root. The kernel refuses what leads out of it.
func beneath(root int, name string, flags int, mode uint32) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Mode: uint64(mode), Resolve: resolveSafe}
	if name == "" {
		name = "."
	}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(root, name, &how)
		if (err == unix.EAGAIN || err == unix.EINTR) && tries < 100 {
			continue // something was renamed meanwhile
		}
		return fd, err
	}
}

// reopen opens for real what an O_PATH descriptor names.
func reopen(fd, flags int) (int, error) {
	return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), flags|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
}

var errDirectory = errors.New("is a directory")
var errSpecial = errors.New("is neither a regular file nor a directory")

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
		p, err := beneath(root, c, unix.O_PATH, 0)
		if err != nil {
			return err
		}
		defer unix.Close(p)
		var st unix.Stat_t
		if err := unix.Fstat(p, &st); err != nil {
			return err
		}
		if err := regular(&st); err != nil {
			return err
		}
		fd, err := reopen(p, unix.O_RDONLY)
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

func regular(st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return errDirectory
	}
	return errSpecial
}

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
		c, old, err := finalName(root, c)
		if err != nil {
			return err
		}
		mode := uint32(opts.Mode.Perm())
		if mode == 0 {
			if mode = 0o644; old != nil {
				mode = old.Mode & 0o777
			}
		}
		dir, err := makeDirs(root, path.Dir(c), 0o755)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		return replace(dir, path.Base(c), mode, func(w io.Writer) error {
			_, err := io.Copy(w, &ctxReader{ctx, content})
			return err
		})
	})
}

// finalName follows a symbolic link that a file to be written is, within the
// root, and returns what is there.
func finalName(root int, name string) (string, *unix.Stat_t, error) {
	for range maxLinks {
		fd, err := beneath(root, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
		if errors.Is(err, unix.ENOENT) {
			return name, nil, nil
		}
		if err != nil {
			return "", nil, err
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		target := ""
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			target, err = readlink(fd, "")
		}
		_ = unix.Close(fd)
		if err != nil {
			return "", nil, err
		}
		if target == "" {
			return name, &st, regular(&st)
		}
		if path.IsAbs(target) {
			return "", nil, unix.EXDEV
		}
		next := path.Join(path.Dir(name), target)
		if next == ".." || strings.HasPrefix(next, "../") {
			return "", nil, unix.EXDEV
		}
		name = next
	}
	return "", nil, unix.ELOOP
}

// replace puts a new file in the place of name, whole or not at all.
func replace(dir int, name string, mode uint32, fill func(io.Writer) error) error {
	var r [8]byte
	_, _ = rand.Read(r[:])
	tmp := ".sbxhost-" + hex.EncodeToString(r[:])
	self := "/proc/self/fd/" + strconv.Itoa(dir)
	named := false
	fd, err := unix.Open(self, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == unix.EOPNOTSUPP || err == unix.EISDIR || err == unix.ENOENT || err == unix.EINVAL {
		named = true
		fd, err = unix.Openat(dir, tmp, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "file")
	defer func() { _ = f.Close() }()
	remove := func(err error) error {
		_ = unix.Unlinkat(dir, tmp, 0)
		return err
	}
	if err := fill(f); err != nil {
		if named {
			return remove(err)
		}
		return err
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		if named {
			return remove(err)
		}
		return err
	}
	if !named {
		if err := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), dir, tmp, unix.AT_SYMLINK_FOLLOW); err != nil {
			return err
		}
	}
	if err := unix.Renameat(dir, tmp, dir, name); err != nil {
		return remove(err)
	}
	return nil
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

// makeDirs opens a directory, making what is missing of it. The descriptor is an
// O_PATH one.
func makeDirs(root int, name string, mode uint32) (int, error) {
	fd, err := beneath(root, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	at, err := makeDirs(root, path.Dir(name), 0o755)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	err = unix.Mkdirat(at, path.Base(name), 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	made := err == nil
	fd, err = beneath(root, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil || !made {
		return fd, err
	}
	// The umask of the host is not the sandbox's affair. By descriptor: the name
	// may be somebody's link by now.
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
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
		p, err := beneath(root, c, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(p)
		fd, err := reopen(p, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		names, err := readNames(fd)
		if err != nil {
			return err
		}
		slices.Sort(names)
		for _, n := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			var st unix.Stat_t
			if err := unix.Fstatat(fd, n, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				if err == unix.ENOENT {
					continue
				}
				return err
			}
			target := ""
			if st.Mode&unix.S_IFMT == unix.S_IFLNK {
				target, _ = readlink(fd, n)
			}
			out = append(out, fileInfo(path.Join(c, n), &st, target))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
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
		fd, err := beneath(root, c, unix.O_PATH|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		target := ""
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			if target, err = readlink(fd, ""); err != nil {
				return err
			}
		}
		info = fileInfo(c, &st, target)
		return nil
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
	return fsys.with(ctx, op, name, func(root int) error {
		dir, err := beneath(root, path.Dir(c), unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		base := path.Base(c)
		var st unix.Stat_t
		if err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		switch {
		case st.Mode&unix.S_IFMT != unix.S_IFDIR:
			return unix.Unlinkat(dir, base, 0)
		case recursive:
			return removeTree(dir, base)
		}
		return unix.Unlinkat(dir, base, unix.AT_REMOVEDIR)
	})
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
	return fsys.with(ctx, op, name, func(root int) error {
		fd, err := makeDirs(root, c, uint32(mode))
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
}

func readlink(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
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
	errno, _ := errors.AsType[unix.Errno](err)
	switch {
	case errors.Is(err, errDirectory):
		return problem(provider.FailedPrecondition, op, name, "is a directory")
	case errors.Is(err, errSpecial):
		return problem(provider.FailedPrecondition, op, name, "is neither a regular file nor a directory")
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
		code, what = provider.ResourceExhausted, "no space or descriptors left"
	case unix.ENAMETOOLONG, unix.EINVAL, unix.EILSEQ:
		code, what = provider.InvalidArgument, "not a usable name"
	}
	return problem(code, op, name, what).cause(errno).applied(provider.AppliedUnknown)
}

func fdFile(fd int) *os.File { return os.NewFile(uintptr(fd), "file") }

package local

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"golang.org/x/sys/unix"
)

// maxArchiveDepth bounds how deep a tree may be that is exported.
const maxArchiveDepth = 256

// Export implements provider.Archiver: directories, regular files and symbolic
// links with their permissions and times. Pipes, sockets and devices are left
// out; a hard link becomes a file of its own. What the sandbox's user made
// unreadable is exported too: its permissions are lifted while it is read, as its
// owner could do, and put back.
func (s *sandbox) Export(ctx context.Context, w io.Writer) error {
	fsys := &files{s}
	tw := tar.NewWriter(w)
	err := fsys.with(ctx, "export", "", func(root int) error {
		var st unix.Stat_t
		if err := unix.Fstat(root, &st); err != nil {
			return err
		}
		fd, restore, err := readable(root, &st)
		if err != nil {
			return err
		}
		defer restore()
		defer unix.Close(fd)
		return exportDir(ctx, tw, fd, "", 0)
	})
	if err != nil {
		return err
	}
	if err := tw.Close(); err != nil {
		return problem(provider.Internal, "export", s.record.ID, "the archive cannot be written").cause(err)
	}
	return nil
}

func exportDir(ctx context.Context, tw *tar.Writer, dir int, prefix string, depth int) error {
	if depth > maxArchiveDepth {
		return problem(provider.ResourceExhausted, "export", "", "the tree is too deep").remedy("remove what nests deeper than " + itoa(maxArchiveDepth) + " directories")
	}
	names, err := readNames(dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := exportEntry(ctx, tw, dir, n, path.Join(prefix, n), depth); err != nil {
			return err
		}
	}
	return nil
}

func exportEntry(ctx context.Context, tw *tar.Writer, dir int, base, name string, depth int) error {
	p, err := unix.Openat(dir, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	defer unix.Close(p)
	var st unix.Stat_t
	if err := unix.Fstat(p, &st); err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(st.Mode & 0o777), ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		fd, restore, err := readable(p, &st)
		if err != nil {
			return fileProblem("export", name, err)
		}
		defer restore()
		defer unix.Close(fd)
		return exportDir(ctx, tw, fd, name, depth+1)
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = readlink(p, ""); err != nil {
			return err
		}
		return tw.WriteHeader(h)
	case unix.S_IFREG:
		fd, restore, err := readable(p, &st)
		if err != nil {
			return fileProblem("export", name, err)
		}
		restore() // what is open stays readable
		f := fdFile(fd)
		defer func() { _ = f.Close() }()
		h.Typeflag, h.Size = tar.TypeReg, st.Size
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		n, err := io.Copy(tw, io.LimitReader(&ctxReader{ctx, f}, st.Size))
		if err == nil && n < st.Size {
			_, err = io.CopyN(tw, zeros{}, st.Size-n) // it shrank meanwhile
		}
		return err
	}
	return nil
}

// readable opens the file or directory behind fd for reading. Where its owner's
// permissions forbid that, or entering the directory, and we act as its owner,
// they are lifted until restore is called.
func readable(fd int, st *unix.Stat_t) (opened int, restore func(), err error) {
	flags, need := unix.O_RDONLY, uint32(0o400)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		flags, need = unix.O_RDONLY|unix.O_DIRECTORY, 0o500
	}
	restore = func() {}
	if mode := st.Mode & 0o7777; mode&need != need {
		// By the descriptor: the name could be another file by now.
		self := "/proc/self/fd/" + strconv.Itoa(fd)
		if unix.Chmod(self, mode|need) == nil { // else somebody else's; opening it tells
			restore = func() { _ = unix.Chmod(self, mode) }
		}
	}
	opened, err = reopen(fd, flags)
	if err != nil {
		restore()
		return -1, nil, err
	}
	return opened, restore, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Import implements provider.Archiver. Links are put there as they are, wherever
// they point: nothing here follows one out of the root.
func (s *sandbox) Import(ctx context.Context, r io.Reader) error {
	fsys := &files{s}
	tr := tar.NewReader(&ctxReader{ctx, r})
	type dirMode struct {
		name string
		mode uint32
		time time.Time
	}
	var dirs []dirMode
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if cerr := ctx.Err(); cerr != nil {
				return ctxProblem("import", s.record.ID, cerr, provider.AppliedYes)
			}
			return problem(provider.InvalidArgument, "import", s.record.ID, "the archive is malformed").cause(err).applied(provider.AppliedUnknown)
		}
		name, err := clean("import", strings.TrimSuffix(h.Name, "/"))
		if err != nil {
			return err
		}
		mode := uint32(h.Mode & 0o777)
		err = fsys.with(ctx, "import", name, func(root int) error {
			if name == "." {
				return nil
			}
			switch h.Typeflag {
			case tar.TypeDir:
				fd, err := makeDirs(root, name, 0o700)
				if err != nil {
					return err
				}
				dirs = append(dirs, dirMode{name, mode, h.ModTime})
				return unix.Close(fd)
			case tar.TypeReg, tar.TypeSymlink, tar.TypeLink:
			default:
				return nil // nothing that a workspace could use
			}
			at, err := makeDirs(root, path.Dir(name), 0o755)
			if err != nil {
				return err
			}
			defer unix.Close(at)
			base := path.Base(name)
			if h.Typeflag == tar.TypeReg {
				if err := replace(at, base, mode, func(w io.Writer) error {
					_, err := io.Copy(w, tr) //nolint:gosec // not compressed; the caller bounds the stream
					return err
				}); err != nil {
					return err
				}
				return setTime(at, base, h.ModTime)
			}
			if err := unix.Unlinkat(at, base, 0); err != nil && err != unix.ENOENT {
				return err
			}
			if h.Typeflag == tar.TypeSymlink {
				if err := unix.Symlinkat(h.Linkname, at, base); err != nil {
					return err
				}
				return setTime(at, base, h.ModTime)
			}
			target, err := clean("import", h.Linkname)
			if err != nil {
				return err
			}
			old, err := beneath(root, target, unix.O_PATH|unix.O_NOFOLLOW, 0)
			if err != nil {
				return err
			}
			defer unix.Close(old)
			return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(old), at, base, unix.AT_SYMLINK_FOLLOW)
		})
		if err != nil {
			return err
		}
	}
	// Directories last: one without write permission could not be filled, and
	// filling one changes its time.
	slices.Reverse(dirs)
	for _, d := range dirs {
		err := fsys.with(ctx, "import", d.name, func(root int) error {
			fd, err := beneath(root, d.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			self := "/proc/self/fd/" + strconv.Itoa(fd)
			if err := unix.Chmod(self, d.mode); err != nil {
				return err
			}
			t := unix.NsecToTimespec(d.time.UnixNano())
			return unix.UtimesNanoAt(unix.AT_FDCWD, self, []unix.Timespec{t, t}, 0)
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func setTime(dir int, name string, t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	return unix.UtimesNanoAt(dir, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

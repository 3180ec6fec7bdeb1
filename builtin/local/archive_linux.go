package local

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim/beneath"
	"github.com/sbxhost/sbxhost/provider"
	"golang.org/x/sys/unix"
)

// Export implements provider.Archiver: directories, regular files and symbolic
// links with their permissions and times. Pipes, sockets and devices are left
// out; a hard link becomes a file of its own. What the sandbox's user made
// unreadable is exported too: its permissions are lifted while it is read, as its
// owner could do, and put back.
func (s *sandbox) Export(ctx context.Context, w io.Writer) error {
	fsys := &files{s}
	tw := tar.NewWriter(w)
	err := fsys.with(ctx, "export", "", func(root int) error {
		return beneath.Walk(root, func(e beneath.Entry, fd int) error { return exportEntry(ctx, tw, e, fd) })
	})
	if err != nil {
		return err
	}
	if err := tw.Close(); err != nil {
		return problem(provider.Internal, "export", s.record.ID, "the archive cannot be written").cause(err)
	}
	return nil
}

func exportEntry(ctx context.Context, tw *tar.Writer, e beneath.Entry, fd int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h := &tar.Header{Name: e.Name, Mode: int64(e.Stat.Mode & 0o777), ModTime: time.Unix(e.Stat.Mtim.Unix()), Format: tar.FormatPAX}
	switch e.Stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, e.Name+"/"
		return tw.WriteHeader(h)
	case unix.S_IFLNK:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
		return tw.WriteHeader(h)
	}
	h.Typeflag, h.Size = tar.TypeReg, e.Stat.Size
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(tw, io.LimitReader(&ctxReader{ctx, descriptor(fd)}, h.Size))
	if err == nil && n < h.Size {
		_, err = io.CopyN(tw, zeros{}, h.Size-n) // it shrank meanwhile
	}
	return err
}

// descriptor reads what somebody else closes.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(d), p)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
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
		time unix.Timespec
	}
	var dirs []dirMode
	for {
		h, err := tr.Next()
		if err == io.EOF { // around it, it is no end
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
			mtime := unix.NsecToTimespec(h.ModTime.UnixNano())
			switch h.Typeflag {
			case tar.TypeDir:
				dirs = append(dirs, dirMode{name, mode, mtime})
				return beneath.Mkdir(root, name, 0o700)
			case tar.TypeSymlink:
				return beneath.Symlink(root, name, h.Linkname, mtime)
			case tar.TypeLink:
				target, err := clean("import", h.Linkname)
				if err != nil {
					return err
				}
				return beneath.Link(root, name, target)
			case tar.TypeReg:
				f, err := beneath.Replace(root, name, mode)
				if err != nil {
					return err
				}
				defer f.Abort()
				if _, err := io.Copy(f, tr); err != nil { //nolint:gosec // not compressed; the caller bounds the stream
					return err
				}
				return f.Commit(&mtime)
			}
			return nil // nothing that a workspace could use
		})
		if err != nil {
			return err
		}
	}
	// Directories last: one without write permission could not be filled, and
	// filling one changes its time.
	slices.Reverse(dirs)
	for _, d := range dirs {
		err := fsys.with(ctx, "import", d.name, func(root int) error { return beneath.SetDir(root, d.name, d.mode, d.time) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

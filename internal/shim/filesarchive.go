package shim

import (
	"archive/tar"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim/beneath"
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/sbxhost/sbxhost/provider"
)

// Export writes everything under Root to w as provider.Archiver says: directories,
// regular files and symbolic links with their permissions and times. Pipes, sockets
// and devices are left out; a hard link becomes a file of its own.
func (f *Files) Export(ctx context.Context, w io.Writer) error {
	tw := tar.NewWriter(w)
	err := f.call(ctx, "export", "", false, func(st *fileStream) error {
		if err := st.send(wire.Append(nil, wire.FileExport, nil)); err != nil {
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
				if err := st.exportEntry(tw, fr); err != nil {
					return err
				}
			default:
				return st.failure(fr)
			}
		}
	})
	if err != nil {
		return err
	}
	if err := tw.Close(); err != nil {
		return filesProblem{f.o.Provider, "export", "", true}.of(&sourceError{err})
	}
	return nil
}

// exportEntry writes one entry with its content.
func (st *fileStream) exportEntry(tw *tar.Writer, fr wire.Frame) error {
	i, err := wire.ParseInfo(fr.Payload)
	if err != nil {
		return st.fail(err)
	}
	if c, err := beneath.Clean(i.Name); err != nil || c != i.Name || c == "." {
		return st.fail(wire.ErrProtocol)
	}
	h := &tar.Header{Name: i.Name, Mode: int64(i.Mode & 0o777), ModTime: time.Unix(i.Sec, int64(i.Nsec)), Format: tar.FormatPAX}
	switch i.Mode & typeMask {
	case typeDir:
		h.Typeflag, h.Name = tar.TypeDir, i.Name+"/"
	case typeLink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, i.Target
	case typeFile:
		h.Typeflag, h.Size = tar.TypeReg, int64(i.Size)
	default:
		return st.fail(wire.ErrProtocol)
	}
	// A writer that fails leaves the rest on its way: that stream is not used again.
	own := func(err error) error { st.broken = true; return &sourceError{err} }
	if err := tw.WriteHeader(h); err != nil {
		return own(err)
	}
	for left := h.Size; left > 0; {
		fr, err := st.next()
		if err != nil {
			return err
		}
		if fr.Type != wire.FileData || int64(len(fr.Payload)) > left {
			return st.failure(fr)
		}
		left -= int64(len(fr.Payload))
		if _, err := tw.Write(fr.Payload); err != nil {
			return own(err)
		}
	}
	return nil
}

// Import adds the archive's files under Root as provider.Archiver says. Links are
// put there as they are, wherever they point: nothing here follows one out of the
// root. Other kinds of entries are passed over.
func (f *Files) Import(ctx context.Context, r io.Reader) error {
	const op = "import"
	return f.call(ctx, op, "", false, func(st *fileStream) error {
		if err := st.send(wire.Append(nil, wire.FileImport, nil)); err != nil {
			return err
		}
		return st.endUpload(f.importEntries(ctx, st, tar.NewReader(&ctxReader{ctx, r})))
	})
}

func (f *Files) importEntries(ctx context.Context, st *fileStream, tr *tar.Reader) error {
	var dirs []wire.Info
	buf := make([]byte, wire.MaxChunk)
	var b []byte
	for {
		h, err := tr.Next()
		if err == io.EOF { // around it, it is no end
			break
		}
		if err != nil {
			return f.malformed(err)
		}
		name, err := f.clean("import", strings.TrimSuffix(h.Name, "/"), false)
		if err != nil {
			return err
		}
		i := wire.Info{Mode: uint32(h.Mode & 0o777), Name: name, Sec: h.ModTime.Unix(), Nsec: uint32(h.ModTime.Nanosecond())}
		if name == "." {
			continue
		}
		switch h.Typeflag {
		case tar.TypeDir:
			i.Mode |= typeDir
			dirs = append(dirs, i)
		case tar.TypeReg:
			i.Mode |= typeFile
			i.Size = uint64(h.Size)
		case tar.TypeSymlink:
			i.Mode |= typeLink
			i.Target = h.Linkname
		case tar.TypeLink:
			i.Mode |= typeFile
			if i.Target, err = f.clean("import", h.Linkname, false); err != nil {
				return err
			}
			if i.Target == "." || i.Target == name {
				return f.invalid("import", name, "a hard link to itself or to the root")
			}
		default:
			continue // nothing that a workspace could use
		}
		if len(i.Target) > wire.MaxPath || strings.IndexByte(i.Target, 0) >= 0 || (i.Target == "" && h.Typeflag == tar.TypeSymlink) {
			return f.invalid("import", name, "a link's target is not usable")
		}
		if err := st.sendUpload(wire.AppendInfo(nil, wire.FileEntry, i)); err != nil {
			return err
		}
		for left := i.Size; left > 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := tr.Read(buf[:min(uint64(len(buf)), left)])
			if n > 0 {
				left -= uint64(n)
				b = wire.Append(b[:0], wire.FileChunk, buf[:n])
				if err := st.sendUpload(b); err != nil {
					return err
				}
			}
			if err != nil && left > 0 {
				return f.malformed(err)
			}
		}
	}
	// Directories last: one without write permission could not be filled, and
	// filling one changes its time.
	slices.Reverse(dirs)
	for _, d := range dirs {
		d.Final = true
		if err := st.sendUpload(wire.AppendInfo(nil, wire.FileEntry, d)); err != nil {
			return err
		}
	}
	return nil
}

func (f *Files) malformed(err error) error {
	return &provider.Error{
		Code: provider.InvalidArgument, Op: "import", Provider: f.o.Provider,
		Message: "the archive is malformed", Applied: provider.AppliedUnknown, Err: err,
	}
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

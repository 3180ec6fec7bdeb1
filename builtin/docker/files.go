package docker

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/sbxhost/sbxhost/provider"
)

// Files implements provider.Sandbox: by the supervisor, as the session's user.
func (s *sandbox) Files() provider.FS {
	if s.files == nil {
		return noFiles{s}
	}
	return s.files
}

// Import implements provider.Archiver.
func (s *sandbox) Import(ctx context.Context, r io.Reader) error {
	if s.files == nil {
		return noFiles{s}.no("import")
	}
	return s.files.Import(ctx, r)
}

// Export implements provider.Archiver. Of a sandbox that does not run the engine
// itself makes the archive: nothing in it can play tricks with links then.
func (s *sandbox) Export(ctx context.Context, w io.Writer) error {
	if err := ctx.Err(); err != nil {
		return ctxProblem("export", s.name, err, provider.AppliedNo)
	}
	info, err := s.inspect(ctx, "export")
	if err != nil {
		return err
	}
	if info.State.Running && !info.State.Paused {
		if s.files == nil {
			return noFiles{s}.no("export")
		}
		return s.files.Export(ctx, w)
	}
	root := s.labels[labelRoot]
	r, st, err := s.p.e.CopyFromContainer(ctx, s.id, root)
	if err != nil {
		return s.problem(ctx, "export", err, provider.AppliedNo)
	}
	defer func() { _ = r.Close() }()
	if !st.Mode.IsDir() {
		return problem(provider.FailedPrecondition, "export", s.name, "the root is no directory")
	}
	if err := rebase(w, r, path.Base(root)); err != nil {
		return s.problem(ctx, "export", err, provider.AppliedNo)
	}
	return nil
}

// rebase copies an archive with names relative to base.
func rebase(w io.Writer, r io.Reader, base string) error {
	tr, tw := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := tr.Next()
		if err == io.EOF { // around it, it is no end
			return tw.Close()
		}
		if err != nil {
			return err
		}
		name, ok := strings.CutPrefix(h.Name, base+"/")
		if !ok || name == "" {
			continue
		}
		out := &tar.Header{Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode & 0o777, ModTime: h.ModTime, Format: tar.FormatPAX}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeDir, tar.TypeSymlink:
		case tar.TypeLink:
			if out.Linkname, ok = strings.CutPrefix(h.Linkname, base+"/"); !ok {
				continue
			}
		default:
			continue // nothing that a workspace could use
		}
		if err := tw.WriteHeader(out); err != nil {
			return err
		}
		if _, err := io.Copy(tw, tr); err != nil { //nolint:gosec // not compressed; as long as the header says
			return err
		}
	}
}

func randomID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// noFiles is the file access of a sandbox that has no supervisor to do it.
type noFiles struct{ s *sandbox }

func (n noFiles) no(op string) error {
	if n.s.p.shim != nil {
		return n.s.live(op)
	}
	return problem(provider.Unsupported, op, n.s.name, "without a supervisor files are not reached").remedy("set " + SettingShimPath)
}

func (n noFiles) Open(context.Context, string) (io.ReadCloser, provider.FileInfo, error) {
	return nil, provider.FileInfo{}, n.no("files.open")
}

func (n noFiles) Write(context.Context, string, io.Reader, provider.WriteOptions) error {
	return n.no("files.write")
}
func (n noFiles) List(context.Context, string) ([]provider.FileInfo, error) {
	return nil, n.no("files.list")
}
func (n noFiles) Stat(context.Context, string) (provider.FileInfo, error) {
	return provider.FileInfo{}, n.no("files.stat")
}
func (n noFiles) Remove(context.Context, string, bool) error       { return n.no("files.remove") }
func (n noFiles) Mkdir(context.Context, string, fs.FileMode) error { return n.no("files.mkdir") }

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Ports    = (*sandbox)(nil)
	_ provider.Pauser   = (*sandbox)(nil)
	_ provider.Archiver = (*sandbox)(nil)
	_ provider.Logs     = (*sandbox)(nil)
	_ provider.Resizer  = (*process)(nil)
)

package fake

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/sbxhost/sbxhost/provider"
)

// fileAccess implements provider.FS over the sandbox's tree.
type fileAccess struct{ sb *sandbox }

// within runs act on the root directory, with the tree locked.
func within[T any](ctx context.Context, f fileAccess, m Method, p string, act func(t *tree, root *node) (T, error)) (T, error) {
	call := f.sb.call(m)
	call.Path = p
	return invoke(ctx, f.sb.p, call, func() (T, error) {
		var none T
		if err := f.sb.usable(string(m)); err != nil {
			return none, err
		}
		if strings.ContainsRune(p, 0) {
			return none, failure(provider.InvalidArgument, string(m), "", "the path holds a NUL", provider.AppliedNo)
		}
		t := f.sb.files
		t.mu.Lock()
		defer t.mu.Unlock()
		root, err := t.base()
		if err != nil {
			return none, fileError(string(m), p, err)
		}
		out, err := act(t, root)
		if err != nil {
			return none, fileError(string(m), p, err)
		}
		return out, nil
	})
}

func fileError(op, p string, err error) error {
	var pe *provider.Error
	if errors.As(err, &pe) {
		return err
	}
	code, message := provider.Internal, "file system error"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code, message = provider.NotFound, "no such file or directory"
	case errors.Is(err, errEscape):
		code, message = provider.PermissionDenied, "the path leads out of the sandbox's root"
	case errors.Is(err, fs.ErrExist):
		code, message = provider.AlreadyExists, "something else is there"
	case errors.Is(err, errNotEmpty):
		code, message = provider.FailedPrecondition, "the directory is not empty"
	case errors.Is(err, errNotDir):
		code, message = provider.FailedPrecondition, "not a directory"
	case errors.Is(err, errLoop):
		code, message = provider.FailedPrecondition, "too many symbolic links"
	case errors.Is(err, fs.ErrInvalid):
		code, message = provider.FailedPrecondition, "it is a directory"
	}
	return failure(code, op, p, message, provider.AppliedNo)
}

func describe(p, name string, n *node) provider.FileInfo {
	return provider.FileInfo{Name: name, Path: p, Size: int64(len(n.data)), Mode: n.mode, ModTime: n.mod, Target: n.target}
}

func relative(p string) string {
	p = path.Clean("/" + p)
	if p == "/" {
		return "."
	}
	return p[1:]
}

// Open implements provider.FS. The reader gives the file as it was.
func (f fileAccess) Open(ctx context.Context, p string) (io.ReadCloser, provider.FileInfo, error) {
	type opened struct {
		r    io.ReadCloser
		info provider.FileInfo
	}
	o, err := within(ctx, f, MethodRead, p, func(t *tree, root *node) (opened, error) {
		s, err := t.look(root, p, true, true)
		switch {
		case err != nil:
			return opened{}, err
		case s.node == nil:
			return opened{}, fs.ErrNotExist
		case s.node.dir():
			return opened{}, fs.ErrInvalid
		}
		rel := relative(p)
		return opened{&reader{ctx: ctx, r: bytes.NewReader(s.node.data)}, describe(rel, path.Base(rel), s.node)}, nil
	})
	return o.r, o.info, err
}

// reader reads a file while ctx lasts.
type reader struct {
	ctx context.Context
	r   *bytes.Reader
}

func (r *reader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, contextError(r.ctx, string(MethodRead), provider.AppliedNo)
	}
	return r.r.Read(b)
}

func (r *reader) Close() error { return nil }

// Write implements provider.FS.
func (f fileAccess) Write(ctx context.Context, p string, content io.Reader, opts provider.WriteOptions) error {
	// The content is complete before the tree changes: nobody sees half a file.
	data, readErr := io.ReadAll(&contextReader{ctx, content})
	_, err := within(ctx, f, MethodWrite, p, func(t *tree, root *node) (struct{}, error) {
		if readErr != nil {
			return struct{}{}, failure(provider.InvalidArgument, string(MethodWrite), p,
				"the content could not be read", provider.AppliedNo)
		}
		rel := path.Clean(p)
		if path.IsAbs(rel) || rel == ".." || strings.HasPrefix(rel, "../") {
			return struct{}{}, errEscape
		}
		if dir := path.Dir(rel); dir != "." {
			if _, err := t.mkdirAll(root, root, dir, 0o755); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, t.put(root, rel, data, opts.Mode, true)
	})
	return err
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// List implements provider.FS.
func (f fileAccess) List(ctx context.Context, p string) ([]provider.FileInfo, error) {
	return within(ctx, f, MethodReadDir, p, func(t *tree, root *node) ([]provider.FileInfo, error) {
		s, err := t.look(root, p, true, true)
		switch {
		case err != nil:
			return nil, err
		case s.node == nil:
			return nil, fs.ErrNotExist
		case !s.node.dir():
			return nil, errNotDir
		}
		out := []provider.FileInfo{}
		for _, name := range s.node.names() {
			out = append(out, describe(path.Join(relative(p), name), name, s.node.children[name]))
		}
		return out, nil
	})
}

// Stat implements provider.FS.
func (f fileAccess) Stat(ctx context.Context, p string) (provider.FileInfo, error) {
	return within(ctx, f, MethodStat, p, func(t *tree, root *node) (provider.FileInfo, error) {
		s, err := t.look(root, p, true, false)
		switch {
		case err != nil:
			return provider.FileInfo{}, err
		case s.node == nil:
			return provider.FileInfo{}, fs.ErrNotExist
		}
		rel := relative(p)
		return describe(rel, path.Base(rel), s.node), nil
	})
}

// Remove implements provider.FS.
func (f fileAccess) Remove(ctx context.Context, p string, recursive bool) error {
	_, err := within(ctx, f, MethodRemove, p, func(t *tree, root *node) (struct{}, error) {
		s, err := t.look(root, p, true, false)
		if err != nil {
			return struct{}{}, err
		}
		if s.node == root {
			return struct{}{}, failure(provider.InvalidArgument, string(MethodRemove), p,
				"the root itself cannot be removed", provider.AppliedNo)
		}
		return struct{}{}, t.remove(root, p, true, recursive)
	})
	return err
}

// Mkdir implements provider.FS.
func (f fileAccess) Mkdir(ctx context.Context, p string, mode fs.FileMode) error {
	_, err := within(ctx, f, MethodMkdir, p, func(t *tree, root *node) (struct{}, error) {
		if mode == 0 {
			mode = 0o755
		}
		_, err := t.mkdirBeneath(root, p, mode)
		return struct{}{}, err
	})
	return err
}

func (t *tree) mkdirBeneath(root *node, p string, mode fs.FileMode) (*node, error) {
	// The look-up catches what a cleaned path would hide: a link in the middle.
	if path.IsAbs(p) {
		return nil, errEscape
	}
	return t.mkdirAll(root, root, p, mode)
}

// Export implements provider.Archiver.
func (o archiver) Export(ctx context.Context, w io.Writer) error {
	f := fileAccess(o)
	_, err := invoke(ctx, o.sb.p, o.sb.call(MethodExport), func() (struct{}, error) {
		if _, err := o.sb.p.find("export", o.sb.ref()); err != nil {
			return struct{}{}, err
		}
		f.sb.files.mu.Lock()
		root, err := f.sb.files.base()
		var entries []entry
		if err == nil {
			entries = flatten(root, "")
		}
		f.sb.files.mu.Unlock()
		if err != nil {
			return struct{}{}, fileError("export", "", err)
		}
		return struct{}{}, writeTar(ctx, w, entries)
	})
	return err
}

type entry struct {
	path string
	node node // copied: the tree may change while the archive is written
}

func flatten(dir *node, at string) []entry {
	var out []entry
	for _, name := range dir.names() {
		n := dir.children[name]
		p := path.Join(at, name)
		out = append(out, entry{p, node{mode: n.mode, data: n.data, target: n.target, mod: n.mod}})
		if n.dir() {
			out = append(out, flatten(n, p)...)
		}
	}
	return out
}

func writeTar(ctx context.Context, w io.Writer, entries []entry) error {
	tw := tar.NewWriter(w)
	for _, e := range entries {
		if ctx.Err() != nil {
			return contextError(ctx, "export", provider.AppliedNo)
		}
		h := &tar.Header{Name: e.path, Mode: int64(e.node.mode.Perm()), ModTime: e.node.mod, Format: tar.FormatPAX}
		switch {
		case e.node.dir():
			h.Typeflag, h.Name = tar.TypeDir, e.path+"/"
		case e.node.link():
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.node.target
		default:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(e.node.data))
		}
		err := tw.WriteHeader(h)
		if err == nil {
			_, err = tw.Write(e.node.data)
		}
		if err != nil {
			return failure(provider.Internal, "export", "", "the caller's writer failed", provider.AppliedNo)
		}
	}
	if err := tw.Close(); err != nil {
		return failure(provider.Internal, "export", "", "the caller's writer failed", provider.AppliedNo)
	}
	return nil
}

// Import implements provider.Archiver. The whole archive is read and judged
// before anything is written.
func (o archiver) Import(ctx context.Context, r io.Reader) error {
	f := fileAccess(o)
	type item struct {
		header *tar.Header
		data   []byte
	}
	var items []item
	tr := tar.NewReader(&contextReader{ctx, r})
	var bad error
	for {
		h, err := tr.Next()
		if err == io.EOF { // around it, it is no end
			break
		}
		if err != nil {
			bad = failure(provider.InvalidArgument, "import", "", "not a tar archive", provider.AppliedNo)
			break
		}
		name := path.Clean(h.Name)
		if path.IsAbs(h.Name) || name == ".." || strings.HasPrefix(name, "../") {
			bad = failure(provider.PermissionDenied, "import", "", "an entry leads out of the sandbox's root", provider.AppliedNo)
			break
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			bad = failure(provider.InvalidArgument, "import", "", "the archive is truncated", provider.AppliedNo)
			break
		}
		items = append(items, item{h, data})
	}
	_, err := within(ctx, f, MethodImport, "", func(t *tree, root *node) (struct{}, error) {
		if bad != nil {
			return struct{}{}, bad
		}
		// Judge and write in a copy, so that a refused archive changes nothing.
		work := clone(root)
		for _, it := range items {
			name := path.Clean(it.header.Name)
			perm := fs.FileMode(it.header.Mode).Perm()
			if dir := path.Dir(name); dir != "." {
				if _, err := t.mkdirAll(work, work, dir, 0o755); err != nil {
					return struct{}{}, err
				}
			}
			var err error
			switch it.header.Typeflag {
			case tar.TypeDir:
				_, err = t.mkdirAll(work, work, name, perm)
			case tar.TypeReg:
				err = t.put(work, name, it.data, perm, true)
			case tar.TypeSymlink:
				var s spot
				if s, err = t.look(work, name, true, false); err == nil && s.name != "." {
					s.dir.children[s.name] = &node{mode: fs.ModeSymlink | 0o777, target: it.header.Linkname, mod: t.now()}
				}
			default:
				err = failure(provider.InvalidArgument, "import", name, "an entry is neither file, directory nor symbolic link", provider.AppliedNo)
			}
			if err != nil {
				return struct{}{}, err
			}
		}
		root.children = work.children
		return struct{}{}, nil
	})
	return err
}

func clone(n *node) *node {
	out := *n
	if n.dir() {
		out.children = make(map[string]*node, len(n.children))
		for name, c := range n.children {
			out.children[name] = clone(c)
		}
	}
	return &out
}

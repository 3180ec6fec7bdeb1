package host

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

// maxHostFiles is how many files a manifest's host directories may hold in all.
const maxHostFiles = 10_000

// hostRoots are the directories that manifests may name host paths under. Each
// is held open, so that what it means does not change while the host runs.
type hostRoots struct {
	roots []hostRoot
}

type hostRoot struct {
	dir  string // absolute, symbolic links resolved
	root *os.Root
}

func openHostRoots(dirs []string) (*hostRoots, error) {
	out := &hostRoots{}
	for _, dir := range dirs {
		abs, err := filepath.Abs(dir)
		if err == nil {
			abs, err = filepath.EvalSymlinks(abs)
		}
		var root *os.Root
		if err == nil {
			root, err = os.OpenRoot(abs)
		}
		if err != nil {
			out.close()
			return nil, invalid("new", "host path root "+dir+" cannot be opened: "+reason(err), "name a directory that exists, or take it out of hostPathRoots")
		}
		out.roots = append(out.roots, hostRoot{dir: abs, root: root})
	}
	return out, nil
}

func (r *hostRoots) close() {
	for _, root := range r.roots {
		_ = root.root.Close()
	}
}

// find returns the root that name lies under, and the rest of the path.
func (r *hostRoots) find(name string) (hostRoot, string, error) {
	if len(r.roots) == 0 {
		return hostRoot{}, "", errors.New("host paths are not allowed here; add a directory above it to the host's hostPathRoots")
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return hostRoot{}, "", errors.New("the host path cannot be made absolute")
	}
	for _, root := range r.roots {
		rel, err := filepath.Rel(root.dir, abs)
		if err == nil && filepath.IsLocal(rel) {
			return root, rel, nil
		}
	}
	return hostRoot{}, "", errors.New("the host path is not under a directory of the host's hostPathRoots")
}

// open opens a path beneath its root without following any symbolic link, the
// last one included. Devices, pipes and sockets are refused.
func (r *hostRoots) open(name string) (*os.File, error) {
	root, rel, err := r.find(name)
	if err != nil {
		return nil, err
	}
	return openBeneath(root.root, rel)
}

// openBeneath opens rel component by component. Each is looked at before and
// after it is opened, so that a link put there in between is seen.
func openBeneath(root *os.Root, rel string) (*os.File, error) {
	parts := strings.Split(filepath.ToSlash(filepath.Clean(rel)), "/")
	dir, owned := root, false
	defer func() {
		if owned {
			_ = dir.Close()
		}
	}()
	for _, part := range parts[:len(parts)-1] {
		before, err := dir.Lstat(part)
		if err != nil {
			return nil, errors.New(reason(err))
		}
		if !before.IsDir() {
			return nil, errors.New("a part of the path is not a directory; symbolic links are not followed")
		}
		next, err := dir.OpenRoot(part)
		if err != nil {
			return nil, errors.New(reason(err))
		}
		if owned {
			_ = dir.Close()
		}
		dir, owned = next, true
		after, err := next.Stat(".")
		if err != nil || !os.SameFile(before, after) {
			return nil, errors.New("the path changed while it was opened")
		}
	}
	last := parts[len(parts)-1]
	before, err := dir.Lstat(last)
	if err != nil {
		return nil, errors.New(reason(err))
	}
	if !before.Mode().IsRegular() && !before.IsDir() {
		return nil, errors.New("it is neither a file nor a directory; symbolic links are not followed")
	}
	f, err := dir.OpenFile(last, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.New(reason(err))
	}
	after, err := f.Stat()
	if err != nil || !os.SameFile(before, after) {
		_ = f.Close()
		return nil, errors.New("the path changed while it was opened")
	}
	return f, nil
}

// reason returns why a system call failed, without the path.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// plannedFile is one file or directory to be put into a sandbox.
type plannedFile struct {
	path    string // relative to root
	dir     bool
	mode    fs.FileMode
	content []byte // literal content
	host    string // or the host path, opened again when it is copied
}

// files lists what a manifest wants written, parents before children. Host
// directories are walked now, so that what is wrong with them is said before
// the provider is touched.
func (r *hostRoots) files(op string, m manifest.Manifest) ([]plannedFile, error) {
	var out []plannedFile
	walked := 0
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		f := m.Files[name]
		if f.HostPath == "" {
			out = append(out, plannedFile{path: path.Clean(name), mode: f.Mode, content: f.Content})
			continue
		}
		err := r.walk(f.HostPath, path.Clean(name), f.Mode, func(p plannedFile) error {
			if walked++; walked > maxHostFiles {
				return errors.New("the host paths hold more than 10,000 files")
			}
			out = append(out, p)
			return nil
		})
		if err != nil {
			return nil, invalid(op, "files: "+name+": "+err.Error(), "")
		}
	}
	return out, nil
}

func (r *hostRoots) walk(hostPath, sandboxPath string, mode fs.FileMode, add func(plannedFile) error) error {
	f, err := r.open(hostPath)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return errors.New(reason(err))
	}
	if !info.IsDir() {
		if mode == 0 {
			mode = info.Mode().Perm()
		}
		return add(plannedFile{path: sandboxPath, mode: mode, host: hostPath})
	}
	if err := add(plannedFile{path: sandboxPath, mode: info.Mode().Perm(), dir: true}); err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	if err != nil {
		return errors.New(reason(err))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := r.walk(filepath.Join(hostPath, e.Name()), path.Join(sandboxPath, e.Name()), 0, add); err != nil {
			return errors.New(strings.TrimPrefix(e.Name()+": "+err.Error(), ": "))
		}
	}
	return nil
}

// reader opens the file's content.
func (f plannedFile) reader(r *hostRoots) (io.ReadCloser, error) {
	if f.host == "" {
		return io.NopCloser(strings.NewReader(string(f.content))), nil
	}
	return r.open(f.host)
}

// mounts checks a manifest's path grants.
func (r *hostRoots) mounts(op string, m manifest.Manifest) ([]provider.PathGrant, error) {
	var out []provider.PathGrant
	for _, g := range m.PathGrants {
		f, err := r.open(g.HostPath)
		if err != nil {
			return nil, invalid(op, "pathGrants: "+g.Path+": "+err.Error(), "")
		}
		_ = f.Close()
		root, rel, err := r.find(g.HostPath)
		if err != nil {
			return nil, invalid(op, "pathGrants: "+g.Path+": "+err.Error(), "")
		}
		out = append(out, provider.PathGrant{Path: g.Path, HostPath: filepath.Join(root.dir, rel), ReadOnly: g.ReadOnly})
	}
	return out, nil
}

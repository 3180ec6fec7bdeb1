package fake

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Errors of the tree; the file access translates them into codes.
var (
	errEscape   = errors.New("leads out of the root")
	errNotDir   = errors.New("not a directory")
	errNotEmpty = errors.New("directory not empty")
	errLoop     = errors.New("too many symbolic links")
)

// maxLinks bounds the symbolic links followed in one look-up, as Linux does.
const maxLinks = 40

// node is a file, directory or symbolic link.
type node struct {
	mode     fs.FileMode // type and permission bits
	data     []byte      // of a file; never changed in place, so readers may keep it
	target   string      // of a symbolic link
	children map[string]*node
	mod      time.Time
}

func (n *node) dir() bool  { return n.mode.IsDir() }
func (n *node) link() bool { return n.mode&fs.ModeSymlink != 0 }

// tree is the whole file system of one sandbox; the root of the manifest is a
// directory in it, so that something lies outside to escape to.
type tree struct {
	mu   sync.Mutex
	top  *node
	now  func() time.Time
	root string
}

func newTree(root string, now func() time.Time) *tree {
	t := &tree{now: now, root: root}
	t.top = t.newDir(0o755)
	_, _ = t.mkdirAll(t.top, t.top, "etc", 0o755)
	_ = t.writeAll("/etc/outside", []byte("outside the root\n"), 0o644)
	_, _ = t.mkdirAll(t.top, t.top, strings.TrimPrefix(root, "/"), 0o755)
	return t
}

func (t *tree) newDir(perm fs.FileMode) *node {
	return &node{mode: fs.ModeDir | perm&fs.ModePerm, children: map[string]*node{}, mod: t.now()}
}

// base returns the directory of the manifest's root. The workload may have
// removed it.
func (t *tree) base() (*node, error) {
	n := t.top
	for _, part := range split(t.root) {
		n = n.children[part]
		if n == nil || !n.dir() {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

// split returns the components of p, without "" and ".". ".." is kept.
func split(p string) []string {
	return slices.DeleteFunc(strings.Split(p, "/"), func(s string) bool { return s == "" || s == "." })
}

// spot is a place in the tree: a name in a directory, and what is there now.
type spot struct {
	dir  *node
	name string
	node *node // nil when nothing is there
}

// look resolves p from the directory at. Beneath says that neither p nor a link
// may leave at, as openat2(RESOLVE_BENEATH) does: an absolute link is refused
// even when it leads back. Otherwise ".." above the top stays at the top.
func (t *tree) look(at *node, p string, beneath, follow bool) (spot, error) {
	if path.IsAbs(p) {
		if beneath {
			return spot{}, errEscape
		}
		at = t.top
	}
	stack := []*node{at} // the directories from the start to here
	if !beneath && at != t.top {
		stack = t.stackTo(at)
	}
	parts, links := split(p), 0
	here := spot{dir: at, name: ".", node: at}
	for len(parts) > 0 {
		part := parts[0]
		parts = parts[1:]
		dir := stack[len(stack)-1]
		if part == ".." {
			if len(stack) == 1 {
				if beneath {
					return spot{}, errEscape
				}
				continue
			}
			stack = stack[:len(stack)-1]
			dir = stack[len(stack)-1]
			here = spot{dir: dir, name: ".", node: dir}
			continue
		}
		n := dir.children[part]
		here = spot{dir: dir, name: part, node: n}
		last := len(parts) == 0
		switch {
		case n == nil && last:
			return here, nil
		case n == nil:
			return spot{}, fs.ErrNotExist
		case n.link() && (!last || follow):
			if links++; links > maxLinks {
				return spot{}, errLoop
			}
			if path.IsAbs(n.target) {
				if beneath {
					return spot{}, errEscape
				}
				stack = []*node{t.top}
			}
			parts = append(split(n.target), parts...)
			here = spot{dir: stack[len(stack)-1], name: ".", node: stack[len(stack)-1]}
		case n.dir():
			stack = append(stack, n)
		case !last:
			return spot{}, errNotDir
		}
	}
	return here, nil
}

// stackTo finds the directories that lead to n, for "..".
func (t *tree) stackTo(n *node) []*node {
	var find func(stack []*node) []*node
	find = func(stack []*node) []*node {
		last := stack[len(stack)-1]
		if last == n {
			return stack
		}
		for _, c := range last.children {
			if c.dir() {
				if s := find(append(slices.Clone(stack), c)); s != nil {
					return s
				}
			}
		}
		return nil
	}
	if s := find([]*node{t.top}); s != nil {
		return s
	}
	return []*node{t.top, n} // removed meanwhile: its ".." is the top
}

// mkdirAll makes p and its parents under at, never through a link that leaves
// the tree below at when at is not the top.
func (t *tree) mkdirAll(at, start *node, p string, perm fs.FileMode) (*node, error) {
	cur := start
	beneath := at != t.top
	done := ""
	for _, part := range split(p) {
		done = path.Join(done, part)
		s, err := t.look(start, done, beneath, true)
		if err != nil {
			return nil, err
		}
		if s.node == nil {
			s.node = t.newDir(perm)
			s.dir.children[s.name] = s.node
			s.dir.mod = t.now()
		}
		if !s.node.dir() {
			return nil, errNotDir
		}
		cur = s.node
	}
	return cur, nil
}

// writeAll puts data at p, an absolute path of the whole tree, making parents.
// It is what commands use.
func (t *tree) writeAll(p string, data []byte, perm fs.FileMode) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if dir := path.Dir(p); dir != "/" {
		if _, err := t.mkdirAll(t.top, t.top, strings.TrimPrefix(dir, "/"), 0o755); err != nil {
			return err
		}
	}
	return t.put(t.top, p, data, perm, false)
}

// put writes a file at p from at; the parents exist. perm 0 keeps the existing
// file's bits, or means 0644.
func (t *tree) put(at *node, p string, data []byte, perm fs.FileMode, beneath bool) error {
	s, err := t.look(at, p, beneath, true)
	if err != nil {
		return err
	}
	if s.node != nil && s.node.dir() {
		return fs.ErrInvalid
	}
	if perm == 0 {
		perm = 0o644
		if s.node != nil {
			perm = s.node.mode.Perm()
		}
	}
	s.dir.children[s.name] = &node{mode: perm.Perm(), data: data, mod: t.now()}
	s.dir.mod = t.now()
	return nil
}

// symlink makes a link at p, an absolute path of the whole tree.
func (t *tree) symlink(target, p string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.look(t.top, p, false, false)
	if err != nil {
		return err
	}
	if s.node != nil {
		return fs.ErrExist
	}
	s.dir.children[s.name] = &node{mode: fs.ModeSymlink | 0o777, target: target, mod: t.now()}
	return nil
}

// read returns the bytes of a regular file at p, an absolute path of the whole
// tree. The caller must not change them.
func (t *tree) read(p string) ([]byte, fs.FileMode, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.look(t.top, p, false, true)
	switch {
	case err != nil:
		return nil, 0, err
	case s.node == nil:
		return nil, 0, fs.ErrNotExist
	case s.node.dir():
		return nil, s.node.mode, fs.ErrInvalid
	}
	return s.node.data, s.node.mode, nil
}

// remove removes p under at.
func (t *tree) remove(at *node, p string, beneath, recursive bool) error {
	s, err := t.look(at, p, beneath, false)
	switch {
	case err != nil:
		return err
	case s.node == nil:
		return fs.ErrNotExist
	case s.node == at || s.name == ".":
		return fs.ErrInvalid
	case s.node.dir() && len(s.node.children) > 0 && !recursive:
		return errNotEmpty
	}
	delete(s.dir.children, s.name)
	s.dir.mod = t.now()
	return nil
}

// names lists a directory's entries, sorted.
func (n *node) names() []string { return slices.Sorted(maps.Keys(n.children)) }

package cache

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Workspace is the private directory through which checked code reaches the
// compiler, and new code comes from it. Use it from one goroutine at a time.
type Workspace struct {
	cache *Cache
	dir   string
}

// Workspace makes one, of mode 0700.
func (c *Cache) Workspace() (*Workspace, error) {
	dir, err := os.MkdirTemp("", "sbxhost-plugin-code-")
	if err != nil {
		return nil, fmt.Errorf("make private code directory: %w", err)
	}
	st, err := os.Lstat(dir)
	if err == nil {
		err = private(st)
	}
	if err != nil {
		_ = os.Remove(dir)
		return nil, fmt.Errorf("private code directory: %w", err)
	}
	return &Workspace{cache: c, dir: dir}, nil
}

// Dir is what to give the compiler as its cache directory.
func (w *Workspace) Dir() string { return w.dir }

// Close removes the directory.
func (w *Workspace) Close() error { return os.RemoveAll(w.dir) }

// Compile calls run, which compiles the module with the compiler whose cache
// directory is Dir. If there is an entry for it that checks, the compiler finds
// it there; otherwise what the compiler leaves there becomes an entry. Failing
// to store is not an error: the next process compiles again.
func (w *Workspace) Compile(rewriter string, module []byte, run func() error) error {
	sum := sha256.Sum256(module)
	defer w.clear()
	if inner, content, ok := w.cache.load(rewriter, sum); ok && w.plant(inner, content) == nil {
		if err := run(); err == nil {
			w.cache.hits.Add(1)
			return nil
		}
		// What checks but cannot be used says nothing about the module.
		w.cache.rejected.Add(1)
	}
	w.clear()
	if err := run(); err != nil {
		return err
	}
	w.cache.misses.Add(1)
	if inner, content, err := w.collect(); err == nil {
		_ = w.cache.store(rewriter, sum, inner, content)
	}
	return nil
}

// plant puts content where the compiler will look. Only into a directory that
// the compiler has made itself: its name holds the compiler's version, so code
// of another version is not found.
func (w *Workspace) plant(inner string, content []byte) error {
	sub, base := filepath.Split(filepath.FromSlash(inner))
	if !filepath.IsLocal(inner) || base == "" {
		return errors.New("not a local name")
	}
	st, err := os.Lstat(filepath.Join(w.dir, sub))
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return errors.New("not a directory")
	}
	return os.WriteFile(filepath.Join(w.dir, sub, base), content, 0o600)
}

var errNotOne = errors.New("the compiler left another number of files than one")

// collect reads the one file the compiler left.
func (w *Workspace) collect() (inner string, content []byte, err error) {
	n := 0
	err = w.each(func(root *os.Root, name string) error {
		n++
		inner = name
		content, err = root.ReadFile(name)
		return err
	})
	if err == nil && n != 1 {
		err = errNotOne
	}
	return inner, content, err
}

// clear removes all files, so that nothing is found that was not planted now.
func (w *Workspace) clear() {
	_ = w.each(func(root *os.Root, name string) error { return root.Remove(name) })
}

// each visits the files below the directory, never leaving it.
func (w *Workspace) each(visit func(root *os.Root, name string) error) error {
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return visit(root, name)
	})
}

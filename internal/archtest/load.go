// Package archtest checks the module's structure: which package may import
// which, who may reveal a secret, what must be documented.
//
// It reads syntax only, of every file whatever its build constraints, so that a
// violation in a file for another system is found too.
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is one Go module's source, parsed.
type Module struct {
	Path     string // as go.mod says
	Dir      string
	Fset     *token.FileSet
	Packages map[string]*Package // by folder relative to Dir, with slashes
}

// Package is one folder.
type Package struct {
	Dir   string // relative to the module, "." for its root
	Name  string
	Files []*File
}

// File is one Go file.
type File struct {
	Path    string // relative to the module
	Test    bool   // a _test.go file
	Syntax  *ast.File
	Imports []string
}

// Violation is one broken rule.
type Violation struct {
	Where string // file:line, or a package
	What  string
}

// String returns "where: what".
func (v Violation) String() string { return v.Where + ": " + v.What }

// Load parses the module in dir. Nested modules, testdata, vendor and folders
// that start with "." or "_" are left out.
func Load(dir string) (*Module, error) {
	m := &Module{Dir: dir, Fset: token.NewFileSet(), Packages: map[string]*Package{}}
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("load module: %w", err)
	}
	for line := range strings.Lines(string(gomod)) {
		if rest, ok := strings.CutPrefix(line, "module "); ok {
			m.Path = strings.TrimSpace(rest)
		}
	}
	if m.Path == "" {
		return nil, fmt.Errorf("load module: no module line in %s/go.mod", dir)
	}
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p == dir {
				return nil
			}
			name := d.Name()
			if name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		return m.add(p)
	})
	if err != nil {
		return nil, fmt.Errorf("load module: %w", err)
	}
	return m, nil
}

func (m *Module) add(file string) error {
	rel, err := filepath.Rel(m.Dir, file)
	if err != nil {
		return err
	}
	rel = filepath.ToSlash(rel)
	syntax, err := parser.ParseFile(m.Fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := &File{Path: rel, Test: strings.HasSuffix(rel, "_test.go"), Syntax: syntax}
	for _, spec := range syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		f.Imports = append(f.Imports, p)
	}
	dir := path.Dir(rel)
	pkg := m.Packages[dir]
	if pkg == nil {
		pkg = &Package{Dir: dir}
		m.Packages[dir] = pkg
	}
	if !f.Test || pkg.Name == "" {
		pkg.Name = strings.TrimSuffix(syntax.Name.Name, "_test")
	}
	pkg.Files = append(pkg.Files, f)
	return nil
}

// Dirs returns the packages' folders, sorted.
func (m *Module) Dirs() []string {
	dirs := make([]string, 0, len(m.Packages))
	for d := range m.Packages {
		dirs = append(dirs, d)
	}
	slices.Sort(dirs)
	return dirs
}

// local returns the folder of an import path of this module.
func (m *Module) local(importPath string) (string, bool) {
	if importPath == m.Path {
		return ".", true
	}
	return strings.CutPrefix(importPath, m.Path+"/")
}

// position formats a node's place relative to the module.
func (m *Module) position(f *File, n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.Path, m.Fset.Position(n.Pos()).Line)
}

// in reports whether dir is root or below it.
func in(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }

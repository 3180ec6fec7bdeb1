package archtest

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// vague names say nothing about what is inside.
var vague = []string{"util", "utils", "helper", "helpers", "common", "misc", "shared", "types", "base", "lib"}

// Names finds packages and files whose name says nothing.
func (m *Module) Names() []Violation {
	var out []Violation
	for _, dir := range m.Dirs() {
		pkg := m.Packages[dir]
		if slices.Contains(vague, pkg.Name) || (dir != "." && slices.Contains(vague, path.Base(dir))) {
			out = append(out, Violation{dir, "package " + pkg.Name + ": name it for what it does"})
		}
		for _, f := range pkg.Files {
			base := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.Path), ".go"), "_test")
			if slices.Contains(vague, base) {
				out = append(out, Violation{f.Path, "name the file for its subject"})
			}
		}
	}
	return out
}

// Docs finds exported declarations without a comment, and packages without one,
// outside internal/, cmd/ and examples.
func (m *Module) Docs() []Violation {
	var out []Violation
	for _, dir := range m.Dirs() {
		if in(dir, "internal") || in(dir, "cmd") || in(dir, "plugins") || strings.Contains(dir, "/internal/") {
			continue
		}
		documented, hasCode := false, false
		var at *File
		for _, f := range m.Packages[dir].Files {
			if f.Test {
				continue
			}
			hasCode = true
			at = f
			if f.Syntax.Doc != nil {
				documented = true
			}
			if ast.IsGenerated(f.Syntax) {
				continue
			}
			for _, decl := range f.Syntax.Decls {
				out = append(out, m.undocumented(f, decl)...)
			}
		}
		if hasCode && !documented {
			out = append(out, Violation{at.Path, "package " + m.Packages[dir].Name + " has no package comment"})
		}
	}
	return out
}

func (m *Module) undocumented(f *File, decl ast.Decl) []Violation {
	var out []Violation
	missing := func(n ast.Node, what string) {
		out = append(out, Violation{m.position(f, n), what + " has no comment"})
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() || d.Doc != nil {
			break
		}
		name := d.Name.Name
		if d.Recv != nil {
			recv := receiver(d.Recv)
			if !ast.IsExported(recv) {
				break
			}
			name = recv + "." + name
		}
		missing(d, name)
	case *ast.GenDecl:
		for i, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
					missing(s, s.Name.Name)
				}
			case *ast.ValueSpec:
				// A group's comment covers its members; a lone trailing comment
				// covers one.
				if s.Doc != nil || s.Comment != nil || d.Doc != nil {
					continue
				}
				if d.Tok == token.CONST {
					if _, typed := s.Type.(*ast.Ident); typed || (i > 0 && len(s.Values) == 0) {
						continue // a value of an enumeration: its type says what it is
					}
				}
				for _, n := range s.Names {
					if n.IsExported() {
						missing(n, n.Name)
					}
				}
			}
		}
	}
	return out
}

func receiver(fields *ast.FieldList) string {
	t := fields.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

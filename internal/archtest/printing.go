package archtest

import (
	"go/ast"
	"slices"
	"strings"
)

// held are methods by which a type is known that callers get as an interface: a
// sandbox, a process, a ledger.
var held = [][]string{{"Ref", "Exec", "Files"}, {"Wait", "Kill", "Signal"}, {"Put", "Session", "Delete"}}

// Printing finds types which callers hold and package fmt would print by reading
// their fields: those that have a lock, without it, so a data race with whoever has
// it, and a crash where it walks a map that is being written; and what is behind
// an interface of ours, whatever is in it. A method Format keeps it out, and with
// it what a field added later would show. What host puts around a provider's never
// leaves it.
func (m *Module) Printing() []Violation {
	var out []Violation
	for _, dir := range m.Dirs() {
		if in(dir, "internal") || in(dir, "cmd") || in(dir, "plugins") || strings.Contains(dir, "/internal/") {
			continue
		}
		methods := map[string]map[string]bool{} // by type
		for _, f := range m.Packages[dir].Files {
			for _, decl := range f.Syntax.Decls {
				if d, ok := decl.(*ast.FuncDecl); ok && d.Recv != nil && !f.Test {
					of := receiver(d.Recv)
					if methods[of] == nil {
						methods[of] = map[string]bool{}
					}
					methods[of][d.Name.Name] = true
				}
			}
		}
		for _, f := range m.Packages[dir].Files {
			if f.Test {
				continue
			}
			ast.Inspect(f.Syntax, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				has := methods[spec.Name.Name]
				if s, ok := spec.Type.(*ast.StructType); ok && !has["Format"] && (spec.Name.IsExported() && locks(s) || isHeld(has) && dir != "host") {
					out = append(out, Violation{m.position(f, spec), spec.Name.Name + " has no method Format: callers that print it read its fields, and without a lock"})
				}
				return false
			})
		}
	}
	return out
}

func isHeld(methods map[string]bool) bool {
	return slices.ContainsFunc(held, func(names []string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !methods[n] })
	})
}

// locks reports whether a field is something of package sync or sync/atomic.
func locks(s *ast.StructType) bool {
	for _, field := range s.Fields.List {
		t := field.Type
		if x, ok := t.(*ast.IndexExpr); ok { // atomic.Pointer[T]
			t = x.X
		}
		if sel, ok := t.(*ast.SelectorExpr); ok {
			if pkg, ok := sel.X.(*ast.Ident); ok && (pkg.Name == "sync" || pkg.Name == "atomic") {
				return true
			}
		}
	}
	return false
}

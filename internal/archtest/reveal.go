package archtest

import (
	"go/ast"
	"go/token"
	"strings"
)

// reveal is the method's name, spelled so that this file passes its own check.
const reveal = "Rev" + "eal"

// revealAllowed are the folders whose code may call secret.Value.Reveal: what
// hands a value to its approved destination.
var revealAllowed = []string{
	"builtin",
	"plugin",
	"provider/fake",
	"provider/providertest",
}

// revealFunctions are single functions elsewhere that may.
var revealFunctions = map[string]string{
	"redact": "AddEnv",
}

// Reveals finds uses of Reveal outside the allowed places, as a call, a method
// value or a method expression. It goes by name alone, which is stricter than by
// type: nothing else in the module may be called Reveal, and no interface or
// reflective call can hide one.
func (m *Module) Reveals() []Violation {
	var out []Violation
	for _, dir := range m.Dirs() {
		if mayReveal(dir) {
			continue
		}
		for _, f := range m.Packages[dir].Files {
			if f.Test {
				continue
			}
			for _, decl := range f.Syntax.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok {
					if name, ok := revealFunctions[dir]; ok && fn.Name.Name == name {
						continue
					}
					if fn.Name.Name == reveal && dir != "secret" {
						out = append(out, Violation{m.position(f, fn), "only secret.Value has a method Reveal"})
					}
				}
				ast.Inspect(decl, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.SelectorExpr:
						if n.Sel.Name == reveal {
							out = append(out, Violation{m.position(f, n), "Reveal may not be used here: only builtin/*, plugin, provider/fake, provider/providertest and redact.AddEnv see values"})
						}
					case *ast.BasicLit:
						if n.Kind == token.STRING && strings.Trim(n.Value, "\"`") == reveal {
							out = append(out, Violation{m.position(f, n), "Reveal may not be reached by name"})
						}
					case *ast.InterfaceType:
						for _, method := range n.Methods.List {
							for _, name := range method.Names {
								if name.Name == reveal {
									out = append(out, Violation{m.position(f, name), "no interface may have a method Reveal"})
								}
							}
						}
					}
					return true
				})
			}
		}
	}
	return out
}

func mayReveal(dir string) bool {
	for _, a := range revealAllowed {
		if in(dir, a) {
			return true
		}
	}
	return false
}

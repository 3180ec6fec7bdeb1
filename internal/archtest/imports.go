package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// A room is a part of the module with its place in the one-way order.
type room struct {
	root  string
	layer int
}

// rooms, most specific first. A package may import only lower layers and its
// own room; internal packages have no layer of their own and count as what they
// import.
var rooms = []room{
	{"secret", 0},
	{"manifest", 0},
	{"grants", 1},
	{"redact", 1},
	{"provider", 2},
	{"ledger", 3},
	{"builtin", 3},
	{"plugin", 3},
	{"host", 4},
	{"server", 5},
	{"mcp", 5},
	{"cmd", 6},
	{"plugins", 6}, // examples
	{"abi", 0},
}

// narrower lists what a room may import of this module where that is less than
// its layer allows.
var narrower = map[string][]string{
	"redact": {"secret"},
	"secret": {},
}

// core packages are compiled by every embedder.
var core = []string{"manifest", "secret", "grants", "redact", "provider", "ledger", "host", "abi", "plugin"}

// coreExternal is what core packages may depend on beside the standard library.
var coreExternal = []string{
	"github.com/tetratelabs/wazero",
	"go.opentelemetry.io/otel",
	"golang.org/x/sys",
}

// coreExternalDenied are parts of the allowed modules' paths that are not API.
var coreExternalDenied = []string{
	"go.opentelemetry.io/otel/sdk",
	"go.opentelemetry.io/otel/exporters",
}

// coreExceptions are packages inside core rooms with a further dependency: the
// conformance kit is for tests, and ledger/bolt is a choice an embedder makes.
var coreExceptions = map[string][]string{
	"provider/providertest": {"github.com/stretchr/testify", "go.uber.org/goleak"},
	"ledger/bolt":           {"go.etcd.io/bbolt"},
}

func roomOf(dir string) (room, bool) {
	for _, r := range rooms {
		if in(dir, r.root) {
			return r, true
		}
	}
	return room{}, false
}

// Imports checks the one-way order and the dependencies of core packages. Test
// files are free.
func (m *Module) Imports() []Violation {
	var out []Violation
	for _, dir := range m.Dirs() {
		r, ok := roomOf(dir)
		if !ok {
			if dir != "." && !in(dir, "internal") {
				out = append(out, Violation{dir, "a new room: give it a layer in internal/archtest"})
			}
			continue
		}
		for _, dep := range m.closure(dir) {
			if local, ok := m.local(dep.path); ok {
				if why := refused(r, local); why != "" {
					out = append(out, Violation{dir, fmt.Sprintf("imports %s%s: %s", local, dep.via(), why)})
				}
				continue
			}
			if slices.Contains(core, r.root) && external(dep.path) && !coreMayUse(dir, dep.path) {
				out = append(out, Violation{dir, fmt.Sprintf("imports %s%s: a core package depends on the standard library, wazero, the OpenTelemetry API and golang.org/x/sys only", dep.path, dep.via())})
			}
		}
	}
	return out
}

func refused(r room, dep string) string {
	d, ok := roomOf(dep)
	if !ok {
		return "" // internal
	}
	if d.root == r.root {
		return ""
	}
	if allowed, ok := narrower[r.root]; ok && !slices.Contains(allowed, d.root) {
		return r.root + " may import only " + fmt.Sprint(allowed)
	}
	if d.root == "abi" { // a leaf: data types of the wire
		return ""
	}
	if d.layer >= r.layer {
		return "imports go one way: " + d.root + " is above or beside " + r.root
	}
	return ""
}

func external(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return strings.Contains(first, ".")
}

func coreMayUse(dir, importPath string) bool {
	for pkg, extra := range coreExceptions {
		if in(dir, pkg) && slices.ContainsFunc(extra, func(e string) bool { return in(importPath, e) }) {
			return true
		}
	}
	if slices.ContainsFunc(coreExternalDenied, func(e string) bool { return in(importPath, e) }) {
		return false
	}
	return slices.ContainsFunc(coreExternal, func(e string) bool { return in(importPath, e) })
}

// A dependency is an import reached from a package directly, or through
// internal packages.
type dependency struct {
	path    string
	through []string
}

func (d dependency) via() string {
	if len(d.through) == 0 {
		return ""
	}
	return " (through " + strings.Join(d.through, ", ") + ")"
}

// closure lists what dir's non-test files import, looking through packages under
// internal/.
func (m *Module) closure(dir string) []dependency {
	var out []dependency
	seen := map[string]bool{}
	var visit func(dir string, through []string)
	visit = func(dir string, through []string) {
		pkg := m.Packages[dir]
		if pkg == nil {
			return
		}
		for _, f := range pkg.Files {
			if f.Test {
				continue
			}
			for _, imp := range f.Imports {
				if seen[imp] {
					continue
				}
				seen[imp] = true
				if local, ok := m.local(imp); ok && in(local, "internal") {
					visit(local, append(slices.Clone(through), local))
					continue
				}
				out = append(out, dependency{imp, through})
			}
		}
	}
	visit(dir, nil)
	return out
}

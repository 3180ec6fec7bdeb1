package wasmfile

import (
	"fmt"
	"strings"
)

// Offer is one function a module may import.
type Offer struct {
	Module, Name string
	Type         FuncType
}

// Unmet is one import that the host does not offer.
type Unmet struct {
	Module, Name string
	Want         FuncType
	// Hint says what to do about it; may be empty.
	Hint string
}

// ImportError lists every import of a module that is not offered.
type ImportError struct{ Unmet []Unmet }

func (e *ImportError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "wasm module needs %d imports that the host does not offer:", len(e.Unmet))
	for _, u := range e.Unmet {
		fmt.Fprintf(&b, "\n  %s.%s %s", u.Module, u.Name, u.Want)
		if u.Hint != "" {
			b.WriteString(": " + u.Hint)
		}
	}
	return b.String()
}

// CheckImports returns an *ImportError naming all imports that are not among
// the offers with exactly that type, or nil. Hint may be nil; it is asked about
// an import for which this package has no hint of its own.
func (m *Module) CheckImports(offers []Offer, hint func(module, name string) string) error {
	known := make(map[[2]string]FuncType, len(offers))
	modules := map[string]bool{}
	for _, o := range offers {
		known[[2]string{o.Module, o.Name}] = o.Type
		modules[o.Module] = true
	}
	var unmet []Unmet
	for _, im := range m.Imports {
		want := m.Types[im.Type]
		have, ok := known[[2]string{im.Module, im.Name}]
		if ok && have.Equal(want) {
			continue
		}
		u := Unmet{Module: im.Module, Name: im.Name, Want: want}
		if ok {
			u.Hint = "is offered with another type, " + have.String()
		} else {
			u.Hint = importHint(im.Module, im.Name)
			if u.Hint == "" && hint != nil {
				u.Hint = hint(im.Module, im.Name)
			}
			if u.Hint == "" && modules[im.Module] {
				u.Hint = "unknown function of a known module"
			}
		}
		unmet = append(unmet, u)
	}
	if unmet != nil {
		return &ImportError{Unmet: unmet}
	}
	return nil
}

// importHint knows what toolchains import by default and how to avoid it.
func importHint(module, name string) string {
	switch {
	case module == "env" && name == "abort":
		return "AssemblyScript's abort: compile with --use abort="
	case module == "env" && strings.HasPrefix(name, "emscripten_"), module == "env" && strings.HasPrefix(name, "__syscall"):
		return "Emscripten's runtime: build with clang --target=wasm32 or wasm32-wasi instead"
	case module == "env":
		return "an undefined symbol of the program: link its definition, or declare the right import module"
	case module == "gojs" || module == "go":
		return "Go for the browser: build with GOOS=wasip1 -buildmode=c-shared"
	case module == "wasi_snapshot_preview1" && strings.HasPrefix(name, "sock_"):
		return "plugins have no sockets: use the host's HTTP functions"
	case module == "wasi_snapshot_preview1" && strings.HasPrefix(name, "path_"):
		return "plugins have no files"
	case module == "wasi_snapshot_preview1":
		return "not part of the offered subset of WASI preview 1"
	case module == "wasi_unstable":
		return "an older WASI: build for preview 1"
	case strings.HasPrefix(module, "wasi:"):
		return "WASI preview 2: build for preview 1 (wasip1)"
	case module == "__wbindgen_placeholder__" || strings.HasPrefix(module, "./"):
		return "wasm-bindgen: build without it"
	}
	return ""
}

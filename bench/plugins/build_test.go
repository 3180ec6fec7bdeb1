package plugins_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// built is where the guests are, for one run.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sbxhost-bench-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var builds sync.Map // name to func() (string, error)

func once(b *testing.B, name string, build func(out string) error) string {
	b.Helper()
	out := filepath.Join(built, name)
	f, _ := builds.LoadOrStore(name, sync.OnceValue(func() error { return build(out) }))
	if err := f.(func() error)(); err != nil {
		b.Fatalf("build %s: %v", name, err)
	}
	return out
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// goWasm builds a guest of ../guests and returns it.
func goWasm(b *testing.B, name string) []byte {
	b.Helper()
	wasm, err := os.ReadFile(goWasmFile(b, name))
	if err != nil {
		b.Fatal(err)
	}
	return wasm
}

// goWasmFile builds a guest, or with "name,tag" a variant of it.
func goWasmFile(b *testing.B, variant string) string {
	b.Helper()
	name, tag, _ := strings.Cut(variant, ",")
	return once(b, variant+".wasm", func(out string) error {
		cmd := exec.Command("go", "build", "-tags="+tag, "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", out, "../guests/"+name)
		cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
		return run(cmd)
	})
}

// goProgram builds a program of ../guests for this system.
func goProgram(b *testing.B, name string) string {
	b.Helper()
	return once(b, name, func(out string) error {
		return run(exec.Command("go", "build", "-ldflags=-s -w", "-trimpath", "-o", out, "../guests/"+name))
	})
}

// rustWasm builds ../guests/rust with the kit. It needs a rustc that has the
// wasm32 standard library, like Debian's (libstd-rust-dev-wasm32), and lld.
func rustWasm(b *testing.B) []byte {
	b.Helper()
	rustc, linker := "rustc", "rust-lld"
	if _, err := os.Stat("/usr/bin/rustc"); err == nil {
		rustc = "/usr/bin/rustc"
	}
	if p, err := exec.LookPath("wasm-ld-14"); err == nil {
		linker = p
	}
	if _, err := exec.LookPath(rustc); err != nil {
		b.Skip("not measured: no rustc; on Debian: apt-get install rustc libstd-rust-dev-wasm32 lld-14")
	}
	wasm, err := os.ReadFile(once(b, "rust.wasm", func(out string) error {
		flags := func(kind, name string, more ...string) []string {
			return append([]string{"--edition", "2021", "--target", "wasm32-unknown-unknown", "-O", "-C", "panic=abort", "-C", "linker=" + linker,
				"-C", "strip=symbols", "--crate-type", kind, "--crate-name", name}, more...)
		}
		if err := run(exec.Command(rustc, flags("rlib", "sbx", "--out-dir", built, "../../abi/rust/src/lib.rs")...)); err != nil {
			return err
		}
		return run(exec.Command(rustc, flags("cdylib", "echo", "--extern", "sbx="+filepath.Join(built, "libsbx.rlib"), "-o", out, "../guests/rust/lib.rs")...))
	}))
	if err != nil {
		b.Fatal(err)
	}
	return wasm
}

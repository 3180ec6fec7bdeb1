package scaffold

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Command returns how to call the program that runs now, again and from another
// folder, as shell words: by its name where the PATH leads to it, with go run in
// its own sources where it was started with that, else by its path. SBXHOST_SRC
// names the sources where they are not at or above the working directory.
func Command() string {
	exe, err := os.Executable()
	if err != nil {
		return "sbxhost"
	}
	if strings.Contains(filepath.ToSlash(exe), "/go-build") {
		// go run removes its binary when it ends.
		if src := sources(); src != "" {
			return fromSource(src)
		}
		return "sbxhost"
	}
	if found, err := exec.LookPath("sbxhost"); err == nil && same(found, exe) {
		return "sbxhost"
	}
	return quote(exe)
}

func fromSource(src string) string { return "go run -C " + quote(src) + " ./cmd/sbxhost" }

func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// sources finds a checkout of this module.
func sources() string {
	if src := os.Getenv("SBXHOST_SRC"); src != "" {
		return src
	}
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module "+modulePath+"\n") {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// quote writes a path as one shell word that make does not expand.
func quote(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+@:") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, "'", `'\''`), "$", "$$") + "'"
}

package hostile

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BuildProbe compiles the probe, static and without cgo, and returns its path in
// a directory that every user may enter. The file is removed at the end of the
// test.
func BuildProbe(tb testing.TB) string {
	tb.Helper()
	dir := openDir(tb, "")
	path := filepath.Join(dir, "probe")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/sbxhost/sbxhost/internal/hostile/cmd/probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("hostile: build the probe: %v\n%s", err, out)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		tb.Fatalf("hostile: %v", err)
	}
	return path
}

// openDir makes a directory below base ("" is the system's temporary directory)
// that everybody may read and write, so that no file permission stands between
// the probe and its goal.
func openDir(tb testing.TB, base string) string {
	tb.Helper()
	dir, err := os.MkdirTemp(base, "sbxhost-hostile-")
	if err != nil {
		tb.Fatalf("hostile: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		tb.Fatalf("hostile: %v", err)
	}
	return dir
}

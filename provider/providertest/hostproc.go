package providertest

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/sbxhost/sbxhost/provider"
)

// CountHostProcesses counts the processes of this machine whose command line
// contains marker. It is a Harness.Survivors for sandboxes whose processes the
// machine's /proc shows; without /proc it fails the check.
func CountHostProcesses(tb TB, _ provider.Sandbox, marker string) int {
	tb.Helper()
	n, err := hostArgv([]byte(marker))
	if err != nil {
		tb.Fatalf("cannot read /proc; give another Survivors in the harness")
	}
	return n
}

// hostArgv counts the command lines that contain needle. Zombies have none.
func hostArgv(needle []byte) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	if len(files) == 0 {
		return 0, os.ErrNotExist
	}
	n := 0
	for _, f := range files {
		// A process that has ended meanwhile is none.
		if data, err := os.ReadFile(f); err == nil && bytes.Contains(data, needle) {
			n++
		}
	}
	return n, nil
}

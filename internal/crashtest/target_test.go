//go:build linux

package crashtest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/ledger/bolt"
	"github.com/sbxhost/sbxhost/provider"
)

// target is a kind of provider to do it with.
type target struct {
	// open returns the provider that keeps its sandboxes under dir, or, for one
	// that has them elsewhere, in a name space of dir's own. step is called
	// inside its actions, where that is possible.
	open func(dir string, step func(string)) (provider.Provider, error)
	// write puts text in a file by a command, reveal the value of TOKEN.
	write  func(file, text string) host.ExecRequest
	reveal func(file string) host.ExecRequest
	// every is how many steps lie between two deaths in an ordinary run.
	every int
	// moment is the longest time that a process lives which is killed at any
	// moment. quiet, which may be nil, waits until what it asked for is done.
	moment time.Duration
	quiet  func(t *testing.T, dir string)
	// need skips or fails the test where there is no such provider; may be nil.
	need func(t *testing.T)
}

// targets by name. Another provider is one more entry.
var targets = map[string]target{
	"disk":   {open: openDisk(false), write: diskWrite, reveal: diskReveal, every: 1, moment: 400 * time.Millisecond},
	"shared": {open: openDisk(true), write: diskWrite, reveal: diskReveal, every: 1, moment: 400 * time.Millisecond},
	"local":  {open: openLocal, write: shellWrite, reveal: shellReveal, every: 4, moment: 400 * time.Millisecond},
	"docker": {open: openDocker, write: shellWrite, reveal: shellReveal, every: 80, moment: 6 * time.Second, quiet: engineQuiet, need: needEngine},
}

func openDisk(shared bool) func(string, func(string)) (provider.Provider, error) {
	return func(dir string, step func(string)) (provider.Provider, error) {
		return newDisk(filepath.Join(dir, "sandboxes"), shared, step)
	}
}

func diskWrite(file, text string) host.ExecRequest {
	return host.ExecRequest{Args: []string{"write", file, text}}
}

func diskReveal(file string) host.ExecRequest {
	return host.ExecRequest{Args: []string{"reveal", file, "TOKEN"}}
}

// openLocal opens the local provider at its strongest level. Its sandboxes end
// with their process: the next one finds them stopped, with their files.
func openLocal(dir string, _ func(string)) (provider.Provider, error) {
	return local.New(local.Options{StateDir: filepath.Join(dir, "sandboxes")})
}

func shellWrite(file, text string) host.ExecRequest {
	return host.ExecRequest{Args: []string{"sh", "-c", `printf %s "$2" >"$1"`, "sh", file, text}, Timeout: time.Minute}
}

func shellReveal(file string) host.ExecRequest {
	return host.ExecRequest{Args: []string{"sh", "-c", `printf %s "$TOKEN" >"$1"`, "sh", file}, Timeout: time.Minute}
}

// openLedger opens a directory's ledger. Who died may have been making a child, which
// holds the lock until it executes.
func openLedger(dir string) (ledger.Ledger, error) {
	return bolt.Open(ledgerPath(dir), bolt.Options{Wait: time.Minute})
}

// files are where a target and its ledger lie below a world's directory.
func ledgerPath(dir string) string  { return filepath.Join(dir, "ledger.db") }
func journalPath(dir string) string { return filepath.Join(dir, "journal") }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

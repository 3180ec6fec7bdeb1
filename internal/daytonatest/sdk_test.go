//go:build linux

package daytonatest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

// TestOfficialClient runs the official TypeScript client, unchanged, against the
// fake: a check from outside that both sides of our own tests agree with the
// world.
func TestOfficialClient(t *testing.T) {
	if testing.Short() {
		t.Skip("installs and runs the official client; not with -short")
	}
	modules := officialClients(t)
	for _, release := range []daytonatest.Release{daytonatest.ReleaseMeasured, daytonatest.ReleaseCurrent} {
		for _, sdk := range []string{"sdk-0.192", "sdk-0.218"} {
			t.Run(fmt.Sprintf("%s on release %s", sdk, release), func(t *testing.T) {
				s := daytonatest.New(t, daytonatest.Options{Release: release, Middleware: daytonatest.Validate(t).Handler})
				cmd := exec.CommandContext(t.Context(), "node", "testdata/sdk/check.mjs", sdk)
				cmd.WaitDelay = time.Second
				// v0.190 has no create-connect, which the newer client needs for terminals.
				pty := sdk == "sdk-0.192" || release == daytonatest.ReleaseCurrent
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "DAYTONA_API_URL=" + s.URL(), "DAYTONA_API_KEY=" + s.Key(),
					"CHECK_MODULES=" + modules, fmt.Sprintf("CHECK_PTY=%v", pty)}
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "the client failed:\n%s", out)
				for _, step := range []string{"create", "wait", "execute", "upload", "download", "files", "session", "list", "labels", "preview", "stop", "start", "delete", "done"} {
					assert.Contains(t, string(out), `"step":"`+step+`"`)
				}
				if pty {
					assert.Contains(t, string(out), `"step":"pty"`)
				}
				for _, sb := range s.Sandboxes() {
					assert.True(t, sb.Destroyed, "sandbox %s is left in state %s", sb.Name, sb.State)
				}
				for _, q := range s.Requests() {
					assert.NotEqual(t, daytonatest.OpUnknownToolbox, q.Op, "%s %s is not known to the fake", q.Method, q.Path)
				}
			})
		}
	}
}

// officialClients installs the clients of testdata/sdk once, outside the
// repository, and returns the directory.
func officialClients(t *testing.T) string {
	t.Helper()
	missing := func(format string, args ...any) {
		if os.Getenv("CI") == "true" {
			t.Fatalf(format, args...)
		}
		t.Skipf("NOT TESTED HERE: the official client against the fake: "+format, args...)
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing("%s is missing; on Debian: apt-get install nodejs npm", tool)
		}
	}
	lock, err := os.ReadFile("testdata/sdk/package-lock.json")
	require.NoError(t, err)
	manifest, err := os.ReadFile("testdata/sdk/package.json")
	require.NoError(t, err)
	sum := sha256.Sum256(append(lock, manifest...))
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "sbxhost-test", "daytona-sdk-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err == nil {
		return dir
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o755))
	work, err := os.MkdirTemp(filepath.Dir(dir), "installing-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	require.NoError(t, os.WriteFile(filepath.Join(work, "package-lock.json"), lock, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(work, "package.json"), manifest, 0o644))
	cmd := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = work
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Run(); err != nil {
		missing("npm ci failed: %v\n%s", err, strings.TrimSpace(out.String()))
	}
	t.Logf("installed the official clients in %s", time.Since(began).Round(time.Second))
	if err := os.Rename(work, dir); err != nil {
		_, there := os.Stat(filepath.Join(dir, "node_modules")) // another run was quicker
		require.NoError(t, there)
	}
	return dir
}

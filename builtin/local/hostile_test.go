//go:build linux

package local_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

// hostileUser is the ordinary user that the tests become when they run as root.
const hostileUser = 12345

// TestHostile puts a hostile program into a sandbox at every level, as root and
// as an ordinary user. Each of its attempts is a subtest. At level namespaces
// every one is refused; at level landlock those that succeed are exactly the ones
// that the description's open ends admit. internal/hostile has the control: the
// same program outside a sandbox.
func TestHostile(t *testing.T) {
	probe := hostile.BuildProbe(t)
	identities := []int{os.Getuid()}
	if os.Getuid() == 0 {
		identities = append(identities, hostileUser)
	}
	for _, level := range []string{"namespaces", "landlock"} {
		for _, uid := range identities {
			t.Run(fmt.Sprintf("%s/uid=%d", level, uid), func(t *testing.T) {
				testHostile(t, probe, level, uid)
			})
		}
	}
}

func testHostile(t *testing.T, probe, level string, uid int) {
	outside := hostile.NewOutside(t, probe, uid)
	report := runHostile(t, hostileJob{Probe: probe, Level: level, Config: outside.Config()}, uid)
	require.Empty(t, report.Failure)
	require.Equal(t, level, report.Isolation)

	open := openEnds(t, level, report.OpenEnds)
	names := attemptNames(t, probe)
	results := map[string]hostile.Result{}
	for _, r := range append(report.Results, report.Terminal...) {
		if have, ok := results[r.Name]; !ok || have.Outcome == hostile.Refused {
			results[r.Name] = r // an attempt with and without a terminal: the worse counts
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			r, ok := results[name]
			require.True(t, ok, "the probe did not report")
			if withinSandbox.MatchString(name) {
				assert.NotEqual(t, hostile.Error, r.Outcome, r.Detail)
				return
			}
			if end := open.covers(name); end != "" {
				// What is documented as open may be refused by more than we
				// promise, so only an attempt that says nothing is wrong.
				assert.NotEqual(t, hostile.Error, r.Outcome, r.Detail)
				return
			}
			assert.Equal(t, hostile.Refused, r.Outcome, "%s", r.Detail)
		})
	}
	open.allUsed(t, results)
	if level == "namespaces" {
		outside.Verify(t)
	}
	t.Run("other-exec-unharmed", func(t *testing.T) { assert.Empty(t, report.OtherExec) })
	t.Run("other-sandbox-unharmed", func(t *testing.T) { assert.Empty(t, report.OtherSandbox) })
	t.Run("works-afterwards", func(t *testing.T) { assert.Empty(t, report.Afterwards) })
}

// TestHostileControl runs the probe without isolation, through the same calls:
// what stops it elsewhere is the level and not the way it is run.
func TestHostileControl(t *testing.T) {
	t.Parallel()
	probe := hostile.BuildProbe(t)
	uid := os.Getuid()
	if uid == 0 {
		uid = hostileUser
	}
	outside := hostile.NewOutside(t, probe, uid)
	c := outside.Config()
	c.Only = []string{"canary-read", "canary-write", "canary-dotdot", "canary-symlink", "canary-hardlink", "canary-chmod",
		"file-host-dir", "file-host-dir-write", "process-host-environ", "process-host-kill", "process-host-prlimit", "process-host-cmdline",
		"unix-abstract", "unix-path", "tcp-host-loopback", "udp-host-loopback", "dns", "host-tty-open", "sysv-shm", "posix-mqueue", "posix-shm"}
	report := runHostile(t, hostileJob{Probe: probe, Level: "none", Config: c}, uid)
	require.Empty(t, report.Failure)
	require.Equal(t, "none", report.Isolation)
	require.Len(t, report.Results, len(c.Only))
	for _, r := range report.Results {
		t.Run(r.Name, func(t *testing.T) { assert.Equal(t, hostile.Succeeded, r.Outcome, r.Detail) })
	}
	assert.NotEmpty(t, outside.Contacts())
}

// withinSandbox are attempts that stay inside: commands of one sandbox are one
// user, share a workspace and so share trust, and may stop, slow and list each
// other, though not read each other's environment or memory. That signals to
// the supervisor do no harm is TestHostileToItsSupervisor.
var withinSandbox = regexp.MustCompile(`^process-other-exec-(cmdline|fd|kill|tgkill|sigqueue|pidfd-signal|fcntl-setown|renice|affinity|scheduler|ioprio|oom-adj)$|^process-(pid1|supervisor)-(kill|tgkill|sigqueue|pidfd-signal|fcntl-setown)$`)

// openEnd ties a documented open end to the attempts that show it.
type openEnd struct {
	says     *regexp.Regexp // matches one of Description.OpenEnds
	attempts []string       // patterns of attempt names
	// untested says why no attempt shows it.
	untested string
}

// landlockOpenEnds is what level landlock leaves open.
var landlockOpenEnds = []openEnd{
	{says: regexp.MustCompile(`kernel is shared`), untested: "no attempt is an attack on the kernel"},
	{says: regexp.MustCompile(`list of the host's processes`), attempts: []string{`process-(host|other-sandbox|other-exec)-(cmdline|fd)`}},
	{says: regexp.MustCompile(`/usr`), untested: "that they can be read is wanted"},
	{says: regexp.MustCompile(`workspace is at its host path`), untested: "a limit, not an opening"},
	{says: regexp.MustCompile(`SIGKILL`), untested: "the host process is not killed here"},
	{says: regexp.MustCompile(`Unix sockets`), untested: "a limit, not an opening"},
	{says: regexp.MustCompile(`names, sizes, owners`), attempts: []string{`canary-(stat|access|exec)`, `file-host-dir-(chdir|inotify)`}},
	{says: regexp.MustCompile(`mode, times`), attempts: []string{`canary-(chmod|chown|utimes|setxattr)`}},
	{says: regexp.MustCompile(`/proc/net`), attempts: []string{`host-interfaces`, `host-sockets-listed`}},
}

type ends []openEnd

// openEnds checks that description and table agree, one to one.
func openEnds(t *testing.T, level string, described []string) ends {
	t.Helper()
	if level == "namespaces" {
		return nil
	}
	for _, text := range described {
		n := 0
		for _, e := range landlockOpenEnds {
			if e.says.MatchString(text) {
				n++
			}
		}
		assert.Equal(t, 1, n, "an open end must be in the table once: %q", text)
	}
	for _, e := range landlockOpenEnds {
		assert.True(t, slices.ContainsFunc(described, e.says.MatchString), "not documented any more: %v", e.says)
	}
	return landlockOpenEnds
}

func (e ends) covers(attempt string) string {
	for _, end := range e {
		for _, pattern := range end.attempts {
			if regexp.MustCompile("^(" + pattern + ")$").MatchString(attempt) {
				return end.says.String()
			}
		}
	}
	return ""
}

// allUsed requires that every open end is shown by an attempt that succeeded:
// what is closed must not be documented as open.
func (e ends) allUsed(t *testing.T, results map[string]hostile.Result) {
	t.Helper()
	for _, end := range e {
		if end.untested != "" {
			continue
		}
		shown := false
		for name, r := range results {
			if (ends{end}).covers(name) != "" && r.Outcome == hostile.Succeeded {
				shown = true
			}
		}
		assert.True(t, shown, "documented as open, but no attempt succeeded: %v", end.says)
	}
}

func attemptNames(t *testing.T, probe string) []string {
	t.Helper()
	out, err := exec.Command(probe, "list").Output()
	require.NoError(t, err)
	names := strings.Fields(string(out))
	require.Greater(t, len(names), 300)
	return names
}

// runHostile runs a job in a process of its own, as uid; with level landlock
// that process is refused namespaces.
func runHostile(t *testing.T, job hostileJob, uid int) hostileReport {
	t.Helper()
	b, err := json.Marshal(job)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "hostile-job-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o711)) // as a sandbox with a user of its own needs
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{os.Args[0]}
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir,
		hostileJobVariable + "=" + string(b), "HOST_CANARY=canary", "HOST_TOKEN=canary"}
	if uid != os.Getuid() {
		require.NoError(t, os.Chown(dir, uid, uid))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	require.NoError(t, cmd.Run(), "%s\n%s", errOut.String(), out.String())
	var report hostileReport
	require.NoError(t, json.Unmarshal(out.Bytes(), &report), "%s\n%s", errOut.String(), out.String())
	return report
}

//go:build linux

package hostile_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

// unprivileged is an ordinary user that the tests use when they run as root.
const unprivileged = 12345

// runOutside runs the probe without any sandbox.
func runOutside(t *testing.T, probe string, uid int, c hostile.Config) map[string]hostile.Result {
	t.Helper()
	config, err := json.Marshal(c)
	require.NoError(t, err)
	cmd := exec.Command(probe, "run", string(config))
	cmd.Dir = c.Workspace
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOST_CANARY=1"}
	if os.Getuid() == 0 && uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	require.NoError(t, cmd.Run(), errOut.String())
	results := map[string]hostile.Result{}
	for line := range strings.Lines(out.String()) {
		var r hostile.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		require.NotContains(t, results, r.Name, "two attempts have one name")
		results[r.Name] = r
	}
	return results
}

// TestProbeSucceedsOutside is the control of every test that expects refusals:
// where nothing is in the way the probe reaches its goals. What even an ordinary
// user may not do outside is not in the list.
func TestProbeSucceedsOutside(t *testing.T) {
	t.Parallel()
	probe := hostile.BuildProbe(t)
	uid := os.Getuid()
	if uid == 0 {
		uid = unprivileged
	}
	outside := hostile.NewOutside(t, probe, uid)
	c := outside.Config()
	c.Workspace = c.HostDirs[0]
	c.CanaryVariables = []string{"HOST_CANARY"}
	expected := slices.Clone(mustSucceed)
	if scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err != nil || strings.TrimSpace(string(scope)) == "0" {
		expected = append(expected, mustSucceedWithPtrace...)
	} else {
		t.Log("ptrace is restricted here by Yama: its attempts have no control")
	}
	if namespacesWork(uid) {
		expected = append(expected, mustSucceedWithNamespaces...)
	} else {
		t.Log("user namespaces are refused here: their attempts have no control")
	}
	c.Only = expected
	results := runOutside(t, probe, uid, c)
	for _, name := range expected {
		t.Run(name, func(t *testing.T) {
			r, ok := results[name]
			require.True(t, ok, "no report")
			assert.Equal(t, hostile.Succeeded, r.Outcome, r.Detail)
		})
	}
	assert.NotEmpty(t, outside.Contacts(), "the listeners must see what reaches them")
}

// mustSucceed are attempts that an unconfined ordinary user carries out.
var mustSucceed = []string{
	"process-host-environ", "process-host-auxv", "process-host-maps", "process-host-fd",
	"process-host-root", "process-host-cwd", "process-host-exe", "process-host-ns",
	"process-host-kill", "process-host-tgkill", "process-host-sigqueue",
	"process-host-pidfd-signal", "process-host-fcntl-setown", "process-host-prlimit", "process-host-renice", "process-host-affinity",
	"process-host-scheduler", "process-host-ioprio", "process-host-oom-adj", "process-host-cmdline", "process-any-environ",
	"file-host-dir", "file-host-dir-chdir", "file-host-dir-write", "file-host-dir-inotify", "file-home",
	"canary-read", "canary-dotdot", "canary-dotdot-workspace", "canary-through-proc-self-root", "canary-through-proc-thread-self-root",
	"canary-through-proc-self-cwd", "canary-symlink", "canary-symlink-dir", "canary-hardlink", "canary-hardlink-symlink",
	"canary-rename-away", "canary-rename-over", "canary-write", "canary-path-fd", "canary-truncate", "canary-unlink", "canary-stat",
	"canary-access", "canary-chmod", "canary-chown", "canary-utimes", "canary-exec",
	"write-var-tmp",
	"socket-netlink-route", "socket-netlink-uevent", "socket-netlink-high-bits",
	"unix-abstract", "unix-abstract-high-bits", "unix-abstract-dgram", "unix-abstract-bind", "unix-path", "unix-path-symlink",
	"tcp-host-loopback", "udp-host-loopback", "dns", "host-sockets-listed",
	"ptrace-traceme", "no-new-privs-missing", "host-environment",
	"host-tty-open", "host-tty-list",
	"sysv-shm", "sysv-shm-list", "sysv-msg", "sysv-sem", "posix-mqueue", "posix-shm", "posix-shm-write",
}

// mustSucceedWithPtrace are those that Yama's ptrace_scope may refuse.
var mustSucceedWithPtrace = []string{
	"process-host-mem", "process-host-mem-write", "process-host-ptrace-attach", "process-host-ptrace-seize",
	"process-host-vm-readv", "process-host-vm-writev", "process-host-pidfd-getfd", "process-host-kcmp",
	"process-host-move-pages", "process-any-mem", "ptrace-child",
}

// mustSucceedWithNamespaces are those that containers and some distributions
// refuse to ordinary users.
var mustSucceedWithNamespaces = []string{
	"namespace-clone3-user", "namespace-nested-root", "namespace-unshare-user", "namespace-clone-user", "namespace-clone-user-high-bits",
}

// namespacesWork reports whether uid may make a user namespace.
func namespacesWork(uid int) bool {
	cmd := exec.Command("/proc/self/exe", "-test.list=^$")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	}
	return cmd.Run() == nil
}

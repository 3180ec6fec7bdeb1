package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// neededLandlock is the ABI from which the landlock level can be used: it scopes
// signals and abstract sockets.
const neededLandlock = 6

// systemChecks looks at what the kernel and this process's surroundings allow.
// None of them fails by itself: the local provider's own probe decides.
func systemChecks() []check {
	return []check{systemCheck(), namespaceCheck(), landlockCheck(), seccompCheck(), cgroupCheck(), pidsCheck()}
}

func systemCheck() check {
	var u unix.Utsname
	release := "unknown"
	if err := unix.Uname(&u); err == nil {
		release = unix.ByteSliceToString(u.Release[:])
	}
	who := "root"
	if uid := os.Geteuid(); uid != 0 {
		who = fmt.Sprintf("user %d", uid)
	}
	return check{"system", statusOK, "Linux " + release + ", as " + who, nil}
}

// namespaceCheck makes namespaces for real, in a process that ends at once.
func namespaceCheck() check {
	c := check{Name: "namespaces", Status: statusOK, Detail: "user, mount, pid, ipc, uts, cgroup and network namespaces can be made"}
	exe, err := os.Executable()
	if err != nil {
		c.Status, c.Detail = statusNote, "cannot be tried: "+err.Error()
		return c
	}
	cmd := exec.Command(exe, "version")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		c.Status, c.Detail = statusNote, "refused: "+plainError(err)
		c.Fix = namespaceFix()
	}
	return c
}

func namespaceFix() []string {
	var out []string
	if readNumber("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1 {
		out = append(out, "AppArmor restricts them: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a profile for sbxhost with \"userns,\"")
	}
	if readNumber("/proc/sys/kernel/unprivileged_userns_clone") == 0 {
		out = append(out, "sysctl kernel.unprivileged_userns_clone=1")
	}
	if readNumber("/proc/sys/user/max_user_namespaces") == 0 {
		out = append(out, "sysctl user.max_user_namespaces=15000")
	}
	if len(out) == 0 {
		out = append(out, "inside a container they are usually off: run sbxhost outside, or give the container the right to make them")
	}
	return out
}

func landlockCheck() check {
	c := check{Name: "landlock", Status: statusOK}
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errno == unix.ENOSYS:
		c.Status, c.Detail = statusNote, "not in this kernel"
		c.Fix = []string{"Linux 6.12 or newer has what the landlock level needs"}
	case errno == unix.EOPNOTSUPP:
		c.Status, c.Detail = statusNote, "built in but switched off"
		c.Fix = []string{"add landlock to the kernel's lsm= parameter"}
	case errno != 0:
		c.Status, c.Detail = statusNote, "refused: "+errno.Error()
	case abi < neededLandlock:
		c.Status, c.Detail = statusNote, fmt.Sprintf("ABI %d; the landlock level needs %d", abi, neededLandlock)
		c.Fix = []string{"Linux 6.12 or newer"}
	default:
		c.Detail = fmt.Sprintf("ABI %d", abi)
	}
	return c
}

func seccompCheck() check {
	actions, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil || !strings.Contains(string(actions), "errno") {
		return check{"seccomp", statusNote, "filters are not available", []string{"a kernel with CONFIG_SECCOMP_FILTER"}}
	}
	return check{"seccomp", statusOK, "filters are available", nil}
}

// cgroupCheck says whether memory and process limits can be put on a sandbox as
// a whole.
func cgroupCheck() check {
	c := check{Name: "cgroups", Status: statusOK}
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	version := "v2"
	if err != nil {
		version = "v1"
		if _, err := os.Stat("/sys/fs/cgroup/pids"); err != nil {
			c.Status, c.Detail = statusNote, "not mounted; memory limits are per process then"
			return c
		}
	}
	probe := "/sys/fs/cgroup"
	if version == "v1" {
		probe = "/sys/fs/cgroup/pids"
	}
	own := filepath.Join(probe, ownCgroup(version))
	switch {
	case version == "v2" && !strings.Contains(string(controllers), "memory"):
		c.Status, c.Detail = statusNote, "v2 without the memory controller; memory limits are per process then"
	case unix.Access(own, unix.W_OK) != nil:
		c.Status, c.Detail = statusNote, version+", not writable for this user; memory limits are per process then"
		c.Fix = []string{"run under systemd with Delegate=yes, or as root"}
	default:
		c.Detail = version + ", writable"
	}
	return c
}

func ownCgroup(version string) string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && ((version == "v2" && parts[0] == "0") || (version == "v1" && parts[1] == "pids")) {
			return parts[2]
		}
	}
	return ""
}

// pidsCheck looks for limits so low that sandboxes of 256 processes cannot work.
func pidsCheck() check {
	const wanted = 1024
	c := check{Name: "process limits", Status: statusOK}
	var lim unix.Rlimit
	limit := uint64(1) << 62
	what := ""
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &lim); err == nil && lim.Cur < limit {
		limit, what = lim.Cur, "RLIMIT_NPROC (ulimit -u)"
	}
	if n := readNumber("/proc/sys/kernel/pid_max"); n > 0 && uint64(n) < limit {
		limit, what = uint64(n), "kernel.pid_max"
	}
	if n := readNumber(filepath.Join("/sys/fs/cgroup", ownCgroup("v2"), "pids.max")); n > 0 && uint64(n) < limit {
		limit, what = uint64(n), "this control group's pids.max"
	}
	c.Detail = fmt.Sprintf("%d processes, by %s", limit, what)
	if what == "" {
		c.Detail = "no limit found"
	}
	if limit < wanted {
		c.Status = statusNote
		c.Fix = []string{fmt.Sprintf("raise it to %d or more: a sandbox may have 256 processes", wanted)}
	}
	return c
}

// readNumber reads a file with one number; -1 when there is none.
func readNumber(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// plainError is an error's cause without the path of our executable.
func plainError(err error) string {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

func privilegeAttempts() []attempt {
	return []attempt{
		identity("setuid-root", func() error { return call(unix.SYS_SETUID, 0) }),
		identity("setgid-root", func() error { return call(unix.SYS_SETGID, 0) }),
		identity("setresuid-root", func() error { return call(unix.SYS_SETRESUID, 0, 0, 0) }),
		identity("setreuid-other", func() error { return call(unix.SYS_SETREUID, 65534, 65534) }),
		identity("setresgid-root", func() error { return call(unix.SYS_SETRESGID, 0, 0, 0) }),
		{"setfsuid-root", func(*hostile.Config) hostile.Result {
			_, _ = callValue(unix.SYS_SETFSUID, 0)
			now, _ := callValue(unix.SYS_SETFSUID, ^uintptr(0))
			if now == 0 {
				return succeeded("file system uid is 0")
			}
			return refused("still %d", now)
		}},
		{"setgroups", func(*hostile.Config) hostile.Result {
			groups := [1]uint32{0}
			return judge(call(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&groups))), "joined group 0", unix.EINVAL)
		}},
		{"no-root-identity", func(*hostile.Config) hostile.Result {
			if os.Getuid() == 0 || os.Geteuid() == 0 || os.Getgid() == 0 || os.Getegid() == 0 {
				return succeeded("runs as uid %d gid %d", os.Getuid(), os.Getgid())
			}
			groups, _ := os.Getgroups()
			for _, g := range groups {
				if g == 0 {
					return succeeded("is in group 0")
				}
			}
			return refused("uid %d, gid %d, groups %v", os.Getuid(), os.Getgid(), groups)
		}},
		{"capabilities-held", func(*hostile.Config) hostile.Result {
			sets := []string{"CapInh", "CapPrm", "CapEff", "CapAmb"}
			if v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || v != 1 {
				sets = append(sets, "CapBnd") // worthless where nothing can be gained by execve
			}
			for _, set := range sets {
				v, err := statusField(os.Getpid(), set)
				if err != nil {
					return broken("%v", err)
				}
				if strings.Trim(v, "0") != "" {
					return succeeded("%s is %s", set, v)
				}
			}
			return refused("all sets are empty")
		}},
		{"capset-all", func(*hostile.Config) hostile.Result {
			hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			data := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
			return judge(unix.Capset(&hdr, &data[0]), "has CAP_SYS_ADMIN")
		}},
		{"ambient-raise", func(*hostile.Config) hostile.Result {
			return judge(unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_PTRACE, 0, 0), "raised")
		}},
		{"securebits", func(*hostile.Config) hostile.Result {
			bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
			if err != nil {
				return judge(err, "read")
			}
			return judge(unix.Prctl(unix.PR_SET_SECUREBITS, uintptr(bits), 0, 0, 0), "set")
		}},
		{"no-new-privs-missing", func(*hostile.Config) hostile.Result {
			v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
			if err != nil {
				return broken("%v", err)
			}
			if v != 1 {
				return succeeded("is not set")
			}
			if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) == nil {
				return succeeded("was cleared")
			}
			return refused("set, and cannot be cleared")
		}},
		{"seccomp-missing", func(*hostile.Config) hostile.Result {
			v, err := statusField(os.Getpid(), "Seccomp")
			if err != nil {
				return broken("%v", err)
			}
			if v != "2" {
				return succeeded("mode is %s", v)
			}
			return refused("filter in force")
		}},
		{"setuid-binary", setuidBinary},
		{"setuid-own-copy", func(*hostile.Config) hostile.Result {
			p := scratch("suid")
			if err := os.WriteFile(p, []byte("x"), 0o700); err != nil {
				return broken("%v", err)
			}
			defer func() { _ = os.Remove(p) }()
			if err := unix.Chown(p, 0, 0); errors.Is(err, unix.EINVAL) {
				return refused("no such id here (%v)", err)
			} else if err != nil {
				return judge(err, "chown to root")
			}
			return judge(unix.Chmod(p, 0o4755), "made a setuid root file")
		}},
		{"core-limit-raise", func(*hostile.Config) hostile.Result {
			var lim unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_CORE, &lim); err != nil {
				return broken("%v", err)
			}
			if lim.Max != 0 {
				return succeeded("core dumps may have %d bytes", lim.Max)
			}
			return judge(unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}), "raised")
		}},
		{"nice-below-zero", func(*hostile.Config) hostile.Result {
			return judge(unix.Setpriority(unix.PRIO_PROCESS, 0, -10), "raised its priority")
		}},
		{"realtime", func(*hostile.Config) hostile.Result {
			param := int32(1)
			return judge(call(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_FIFO, uintptr(unsafe.Pointer(&param))), "runs in real time")
		}},
		{"oom-adj-lower", func(*hostile.Config) hostile.Result {
			f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_WRONLY, 0)
			if err != nil {
				return judge(underlying(err), "opened")
			}
			_, err = f.WriteString("-1000")
			_ = f.Close()
			return judge(underlying(err), "protected from the OOM killer")
		}},
		{"host-environment", func(c *hostile.Config) hostile.Result {
			for _, name := range c.CanaryVariables {
				if _, ok := os.LookupEnv(name); ok {
					return succeeded("%s of the host is set here", name)
				}
			}
			if len(c.CanaryVariables) == 0 {
				return broken("no variable configured")
			}
			return refused("not set")
		}},
		{"inherited-descriptors", func(*hostile.Config) hostile.Result {
			if found := os.Getenv(envInherited); found != "" {
				return succeeded("%s", found)
			}
			return refused("0, 1 and 2 only, none of them a directory")
		}},
	}
}

// identity makes an attempt of a call that changes who the process is; nil from
// the call means that it did.
func identity(name string, try func() error) attempt {
	return attempt{name, func(*hostile.Config) hostile.Result {
		// EINVAL: the id does not exist in this user namespace.
		err := try()
		if errors.Is(err, unix.EINVAL) {
			return refused("no such id here (%v)", err)
		}
		return judge(err, name)
	}}
}

func statusField(pid int, name string) (string, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), name+":"); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", fmt.Errorf("no %s in status", name)
}

// setuidBinary starts setuid programs that wait for input and looks at the
// identity they got.
func setuidBinary(*hostile.Config) hostile.Result {
	for _, path := range []string{"/usr/bin/su", "/bin/su", "/usr/bin/passwd", "/usr/bin/chsh"} {
		st, err := os.Stat(path)
		if err != nil || st.Mode()&os.ModeSetuid == 0 {
			continue
		}
		cmd := exec.Command(path)
		in, err := cmd.StdinPipe()
		if err != nil {
			return broken("%v", err)
		}
		if err := cmd.Start(); err != nil {
			_ = in.Close()
			return judge(underlying(err), "started "+path)
		}
		got := ""
		for range 40 { // exec has happened when Start returns; the identity comes with it
			if v, err := statusField(cmd.Process.Pid, "Uid"); err == nil {
				got = v
				if f := strings.Fields(v); len(f) > 1 && f[1] == "0" {
					break
				}
			}
			time.Sleep(2 * time.Millisecond)
		}
		_ = cmd.Process.Kill()
		_ = in.Close()
		_ = cmd.Wait()
		if f := strings.Fields(got); len(f) > 1 && f[1] == "0" {
			return succeeded("%s runs with effective uid 0", path)
		}
		return refused("%s runs as %s", filepath.Base(path), got)
	}
	return refused("no setuid program to be seen")
}

// inheritedDescriptors describes what the process was given beside its standard
// streams, and standard streams that are directories. It must run before the
// program opens anything.
func inheritedDescriptors() string {
	var found []string
	for fd := range 1024 {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		dir := unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
		if fd <= 2 && !dir || flags&unix.FD_CLOEXEC != 0 {
			continue // the Go runtime's own descriptors are close-on-exec, inherited ones never are
		}
		link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil {
			link = "?"
		}
		found = append(found, fmt.Sprintf("%d=%s", fd, link))
	}
	return strings.Join(found, " ")
}

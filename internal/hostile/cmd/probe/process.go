//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

// processAttempts attack PID 1, the parent (the supervisor of this command) and
// the configured targets.
func processAttempts(c *hostile.Config) []attempt {
	tries := []struct {
		name string
		run  func(pid int) hostile.Result
	}{
		{"environ", func(pid int) hostile.Result { return readProc(pid, "environ") }},
		{"auxv", func(pid int) hostile.Result { return readProc(pid, "auxv") }},
		{"maps", func(pid int) hostile.Result { return readProc(pid, "maps") }},
		{"mem", func(pid int) hostile.Result { return openProc(pid, "mem") }},
		{"mem-write", func(pid int) hostile.Result {
			fd, err := unix.Open(procPath(pid, "mem"), unix.O_RDWR|unix.O_CLOEXEC, 0)
			_ = unix.Close(fd)
			return judge(err, "opened its memory for writing")
		}},
		{"fd", func(pid int) hostile.Result {
			entries, err := os.ReadDir(procPath(pid, "fd"))
			if err == nil && len(entries) == 0 {
				return refused("empty")
			}
			return judge(err, "listed its descriptors")
		}},
		{"fd-open", openDescriptors},
		{"root", func(pid int) hostile.Result { return openProc(pid, "root/") }},
		{"cwd", func(pid int) hostile.Result { return openProc(pid, "cwd/") }},
		{"exe", func(pid int) hostile.Result { return openProc(pid, "exe") }},
		{"ns", func(pid int) hostile.Result { return openProc(pid, "ns/mnt") }},
		{"ptrace-attach", func(pid int) hostile.Result {
			err := unix.PtraceAttach(pid)
			if err == nil {
				_ = unix.PtraceDetach(pid)
			}
			return judge(err, "attached")
		}},
		{"ptrace-seize", func(pid int) hostile.Result {
			err := unix.PtraceSeize(pid)
			if err == nil {
				_ = unix.PtraceDetach(pid)
			}
			return judge(err, "seized")
		}},
		{"vm-readv", func(pid int) hostile.Result { return vmRead(pid, false) }},
		{"vm-writev", func(pid int) hostile.Result { return vmRead(pid, true) }},
		{"pidfd-getfd", func(pid int) hostile.Result {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return judge(err, "pidfd_open")
			}
			got, err := unix.PidfdGetfd(fd, 0, 0)
			_ = unix.Close(got)
			return judge(err, "took its descriptor 0", unix.EBADF)
		}},
		{"kcmp", func(pid int) hostile.Result {
			return judge(call(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(pid), 1, 0, 0), "compared memory")
		}},
		{"kill", func(pid int) hostile.Result { return judge(unix.Kill(pid, unix.SIGURG), "signalled") }},
		{"tgkill", func(pid int) hostile.Result { return judge(unix.Tgkill(pid, pid, unix.SIGURG), "signalled") }},
		{"sigqueue", func(pid int) hostile.Result {
			info := [128]byte{0: byte(unix.SIGURG), 8: 0xff, 9: 0xff, 10: 0xff, 11: 0xff} // si_code = SI_QUEUE
			return judge(call(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(unix.SIGURG), uintptr(unsafe.Pointer(&info))), "signalled")
		}},
		{"pidfd-signal", func(pid int) hostile.Result {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return judge(err, "pidfd_open")
			}
			return judge(unix.PidfdSendSignal(fd, unix.SIGURG, nil, 0), "signalled")
		}},
		{"fcntl-setown", signalByDescriptor},
		{"prlimit", func(pid int) hostile.Result {
			var old unix.Rlimit
			if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old); err != nil {
				return judge(err, "read its limits")
			}
			return judge(unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil), "set its limits")
		}},
		{"renice", func(pid int) hostile.Result {
			return judge(unix.Setpriority(unix.PRIO_PROCESS, pid, 19), "changed its priority")
		}},
		{"affinity", func(pid int) hostile.Result {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(pid, &set); err != nil {
				return judge(err, "read its affinity")
			}
			return judge(unix.SchedSetaffinity(pid, &set), "set its affinity")
		}},
		{"scheduler", func(pid int) hostile.Result {
			param := int32(0)
			return judge(call(unix.SYS_SCHED_SETSCHEDULER, uintptr(pid), unix.SCHED_NORMAL, uintptr(unsafe.Pointer(&param))), "set its scheduler")
		}},
		{"ioprio", func(pid int) hostile.Result {
			const who, bestEffort7 = 1, 2<<13 | 7
			return judge(call(unix.SYS_IOPRIO_SET, who, uintptr(pid), bestEffort7), "set its I/O priority")
		}},
		{"oom-adj", func(pid int) hostile.Result {
			fd, err := unix.Open(procPath(pid, "oom_score_adj"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
			_ = unix.Close(fd)
			return judge(err, "opened its oom_score_adj for writing")
		}},
		{"setpgid", func(pid int) hostile.Result {
			// Past the check for being a child, which is what protects others.
			return judge(unix.Setpgid(pid, pid), "moved it to another group")
		}},
		{"move-pages", func(pid int) hostile.Result {
			addr := uintptr(0x400000)
			var status int32
			return judge(call(unix.SYS_MOVE_PAGES, uintptr(pid), 1, uintptr(unsafe.Pointer(&addr)), 0, uintptr(unsafe.Pointer(&status)), 0), "queried its pages")
		}},
	}
	all := append([]hostile.Target{{Name: "pid1", PID: 1}, {Name: "supervisor"}}, c.Targets...)
	var out []attempt
	for _, target := range all {
		for _, try := range tries {
			out = append(out, attempt{"process-" + target.Name + "-" + try.name, func(*hostile.Config) hostile.Result {
				pid, why := find(target)
				if pid == 0 {
					return refused("%s", why)
				}
				r := try.run(pid)
				r.Detail = fmt.Sprintf("pid %d: %s", pid, r.Detail)
				return r
			}})
		}
		if target.Name != "pid1" && target.Name != "supervisor" {
			out = append(out, attempt{"process-" + target.Name + "-cmdline", func(*hostile.Config) hostile.Result {
				pid, why := find(hostile.Target{Marker: target.Marker})
				if pid == 0 {
					return refused("%s", why)
				}
				return succeeded("pid %d is in the process list with its command line", pid)
			}})
		}
	}
	return append(out,
		attempt{"process-any-environ", anyProcess("environ")},
		attempt{"process-any-mem", anyProcess("mem")},
		attempt{"process-any-fd", anyProcess("fd/0")},
	)
}

func procPath(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// find returns the target's number as seen here, or 0 and why it cannot be
// attacked.
func find(t hostile.Target) (int, string) {
	switch {
	case t.Name == "pid1":
		return 1, ""
	case t.Name == "supervisor":
		pid, _ := strconv.Atoi(os.Getenv(envParent))
		return pid, "the parent is in another pid namespace"
	case t.PID != 0:
		line, err := os.ReadFile(procPath(t.PID, "cmdline"))
		if err == nil && !bytes.Contains(line, []byte(t.Marker)) {
			return 0, "that number is another process here"
		}
		return t.PID, "" // not readable: tried all the same
	}
	for _, pid := range visible() {
		line, err := os.ReadFile(procPath(pid, "cmdline"))
		if err == nil && bytes.Contains(line, []byte("\x00"+t.Marker+"\x00")) && !ours(pid) {
			return pid, ""
		}
	}
	return 0, "not in the process list"
}

// visible lists the processes that /proc shows.
func visible() []int {
	entries, _ := os.ReadDir("/proc")
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// ours reports whether pid is this process or the probe that started it.
func ours(pid int) bool { return pid == os.Getpid() || pid == os.Getppid() }

func openProc(pid int, name string) hostile.Result {
	fd, err := unix.Open(procPath(pid, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	_ = unix.Close(fd)
	return judge(err, "opened "+name)
}

func readProc(pid int, name string) hostile.Result {
	data, err := os.ReadFile(procPath(pid, name))
	if err == nil && len(data) == 0 {
		return refused("%s reads as empty", name)
	}
	return judge(err, fmt.Sprintf("read %d bytes of %s", len(data), name))
}

// openDescriptors reopens a descriptor of the target through /proc.
func openDescriptors(pid int) hostile.Result {
	for fd := range 64 {
		got, err := unix.Open(procPath(pid, "fd/"+strconv.Itoa(fd)), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err == nil {
			_ = unix.Close(got)
			return succeeded("opened descriptor %d", fd)
		}
	}
	return refused("none of 64 descriptors opened")
}

// anyProcess tries every process that can be seen and is not the probe's own.
func anyProcess(name string) func(*hostile.Config) hostile.Result {
	return func(*hostile.Config) hostile.Result {
		var got []string
		for _, pid := range visible() {
			if ours(pid) {
				continue
			}
			fd, err := unix.Open(procPath(pid, name), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
			if err != nil {
				continue
			}
			var b [1]byte
			if n, err := unix.Read(fd, b[:]); name != "environ" || n == 1 && err == nil {
				comm, _ := os.ReadFile(procPath(pid, "comm"))
				got = append(got, fmt.Sprintf("%d(%s)", pid, strings.TrimSpace(string(comm))))
			}
			_ = unix.Close(fd)
		}
		if len(got) > 0 {
			return succeeded("%s of %s", name, strings.Join(got, " "))
		}
		return refused("%s of none", name)
	}
}

// vmRead reads or writes the target's memory without ptrace. The address is a
// guess: EFAULT says that access was granted.
func vmRead(pid int, write bool) hostile.Result {
	var buf [8]byte
	local := []unix.Iovec{{Base: &buf[0], Len: 8}}
	remote := []unix.RemoteIovec{{Base: 0x10, Len: 8}}
	var err error
	if write {
		_, err = unix.ProcessVMWritev(pid, local, remote, 0)
	} else {
		_, err = unix.ProcessVMReadv(pid, local, remote, 0)
	}
	return judge(err, "memory", unix.EFAULT)
}

// signalByDescriptor lets the kernel send the signal: a pipe end whose owner is
// the target.
func signalByDescriptor(pid int) hostile.Result {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return broken("pipe: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETOWN, pid); err != nil {
		return judge(err, "set as owner")
	}
	owner, err := unix.FcntlInt(uintptr(p[0]), unix.F_GETOWN, 0)
	if err != nil || owner != pid {
		return refused("owner is %d (%v)", owner, err)
	}
	// Whether a signal would be delivered is decided at delivery and not
	// reported, so ask the same question with kill: the rules are one.
	return judge(unix.Kill(pid, unix.SIGURG), "signalled as owner")
}

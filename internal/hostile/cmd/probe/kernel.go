//go:build linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

// kernelAttempts call what reaches into the kernel itself. Arguments are such
// that the call fails after its permission check where it would do something.
func kernelAttempts() []attempt {
	simple := func(name string, nr uintptr, past []unix.Errno, args ...uintptr) attempt {
		return attempt{name, func(*hostile.Config) hostile.Result { return judge(call(nr, args...), name, past...) }}
	}
	errnos := func(e ...unix.Errno) []unix.Errno { return e }
	bad := ^uintptr(0)
	return []attempt{
		{"io-uring-setup", func(*hostile.Config) hostile.Result {
			var params [120]byte
			return judge(call(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params))), "made a ring")
		}},
		simple("io-uring-enter", unix.SYS_IO_URING_ENTER, errnos(unix.EBADF), bad, 0, 0, 0),
		simple("io-uring-register", unix.SYS_IO_URING_REGISTER, errnos(unix.EBADF, unix.EINVAL), bad, 0, 0, 0),
		{"bpf-map", func(*hostile.Config) hostile.Result {
			attr := [16]uint32{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1}
			return judge(call(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)), "made a map")
		}},
		{"bpf-prog", func(*hostile.Config) hostile.Result {
			var attr [128]byte
			attr[0] = unix.BPF_PROG_TYPE_SOCKET_FILTER
			return judge(call(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)), "loads programs", unix.EINVAL, unix.E2BIG, unix.EFAULT)
		}},
		{"perf-event-open", func(*hostile.Config) hostile.Result {
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
			_, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
			return judge(err, "opened an event")
		}},
		{"add-key", func(*hostile.Config) hostile.Result {
			_, err := unix.AddKey("user", "probe", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
			return judge(err, "added a key", unix.EDQUOT)
		}},
		{"request-key", func(*hostile.Config) hostile.Result {
			_, err := unix.RequestKey("user", "probe-no-such-key", "", unix.KEY_SPEC_PROCESS_KEYRING)
			return judge(err, "asked for a key", unix.ENOKEY)
		}},
		{"keyctl-session", func(*hostile.Config) hostile.Result {
			_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_SESSION_KEYRING, true)
			return judge(err, "has the user's keyring", unix.ENOKEY)
		}},
		simple("userfaultfd", unix.SYS_USERFAULTFD, nil, unix.O_CLOEXEC),
		simple("userfaultfd-user-mode", unix.SYS_USERFAULTFD, nil, unix.O_CLOEXEC|1),
		simple("kexec-load", unix.SYS_KEXEC_LOAD, errnos(unix.EINVAL, unix.EBUSY), 0, 1<<20, 0, 0),
		simple("init-module", unix.SYS_INIT_MODULE, errnos(unix.ENOEXEC, unix.EFAULT, unix.EINVAL), 0, 0, 0),
		simple("finit-module", unix.SYS_FINIT_MODULE, errnos(unix.EBADF, unix.EINVAL), bad, 0, 0),
		{"delete-module", func(*hostile.Config) hostile.Result {
			name := []byte("probe_no_such_module\x00")
			err := call(unix.SYS_DELETE_MODULE, uintptr(unsafe.Pointer(&name[0])), unix.O_NONBLOCK)
			if errors.Is(err, unix.ENOENT) {
				return succeeded("past the permission check (%v)", err)
			}
			return judge(err, "delete_module")
		}},
		simple("reboot", unix.SYS_REBOOT, errnos(unix.EINVAL), 0, 0, 0, 0),
		{"settimeofday", func(*hostile.Config) hostile.Result {
			// A time zone out of range, which is looked at after the permission.
			zone := [2]int32{1 << 20, 0}
			return judge(call(unix.SYS_SETTIMEOFDAY, 0, uintptr(unsafe.Pointer(&zone))), "settimeofday", unix.EINVAL)
		}},
		{"clock-adjtime", func(*hostile.Config) hostile.Result {
			// An offset that is out of range, which is looked at last.
			tx := unix.Timex{Modes: unix.ADJ_SETOFFSET, Time: unix.Timeval{Usec: -1}}
			_, err := unix.ClockAdjtime(unix.CLOCK_REALTIME, &tx)
			return judge(err, "clock_adjtime", unix.EINVAL)
		}},
		{"adjtimex", func(*hostile.Config) hostile.Result {
			tx := unix.Timex{Modes: unix.ADJ_TICK, Tick: 1} // out of range
			_, err := unix.Adjtimex(&tx)
			return judge(err, "adjtimex", unix.EINVAL)
		}},
		{"sethostname", func(*hostile.Config) hostile.Result {
			return judge(call(unix.SYS_SETHOSTNAME, 1, 4096), "sethostname", unix.EINVAL, unix.EFAULT)
		}},
		{"setdomainname", func(*hostile.Config) hostile.Result {
			return judge(call(unix.SYS_SETDOMAINNAME, 1, 4096), "setdomainname", unix.EINVAL, unix.EFAULT)
		}},
		{"swapon", func(*hostile.Config) hostile.Result {
			return judge(call(unix.SYS_SWAPON, 1, 0), "swapon", unix.EFAULT)
		}},
		{"acct", func(*hostile.Config) hostile.Result {
			return judge(call(unix.SYS_ACCT, 1), "acct", unix.EFAULT)
		}},
		{"syslog-read", func(*hostile.Config) hostile.Result {
			n, err := unix.Klogctl(10, nil) // size of the buffer
			if err != nil {
				return judge(err, "syslog")
			}
			buf := make([]byte, min(n, 4096))
			n, err = unix.Klogctl(3, buf)
			if err == nil && n == 0 {
				return refused("empty")
			}
			return judge(err, "read the kernel's log")
		}},
		{"fanotify-init", func(*hostile.Config) hostile.Result {
			_, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT, unix.O_RDONLY)
			return judge(err, "fanotify")
		}},
		{"ptrace-child", ptraceChild},
		{"ptrace-traceme", func(*hostile.Config) hostile.Result {
			return judge(call(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0, 0), "traceme")
		}},
	}
}

// ptraceChild traces a child of its own. Harmless by itself; a filter that
// refuses ptrace must not be open here, because a traced process can be made to
// change its system calls after the filter looked.
func ptraceChild(*hostile.Config) hostile.Result {
	exe, err := os.Executable()
	if err != nil {
		return broken("%v", err)
	}
	runtime.LockOSThread()
	cmd := exec.Command(exe, "list")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err = cmd.Start(); err == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return judge(underlying(err), "traced a child")
}

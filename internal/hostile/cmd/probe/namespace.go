//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

var namespaces = []struct {
	name string
	flag uintptr
}{
	{"user", unix.CLONE_NEWUSER}, {"mnt", unix.CLONE_NEWNS}, {"pid", unix.CLONE_NEWPID},
	{"net", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS},
	{"cgroup", unix.CLONE_NEWCGROUP}, {"time", unix.CLONE_NEWTIME},
}

// cloneArgs is struct clone_args.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

func namespaceAttempts() []attempt {
	list := []attempt{
		{"namespace-clone3-user", func(*hostile.Config) hostile.Result {
			args := cloneArgs{flags: unix.CLONE_NEWUSER, exitSignal: uint64(unix.SIGCHLD)}
			return judge(forkRaw(func() (uintptr, unix.Errno) {
				pid, _, no := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
				return pid, no
			}), "child in a new user namespace")
		}},
		{"namespace-clone3-into-cgroup", func(*hostile.Config) hostile.Result {
			fd, err := unix.Open("/sys/fs/cgroup", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge(err, "opened the cgroup root")
			}
			const intoCgroup = 0x200000000
			args := cloneArgs{flags: intoCgroup, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(fd)}
			return judge(forkRaw(func() (uintptr, unix.Errno) {
				pid, _, no := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
				return pid, no
			}), "child in another cgroup", unix.EBADF)
		}},
		{"namespace-nested-root", func(*hostile.Config) hostile.Result {
			// What "unshare -Ur" does: root in a namespace of one's own.
			exe, err := os.Executable()
			if err != nil {
				return broken("%v", err)
			}
			cmd := exec.Command(exe, "list")
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
			return judge(underlying(cmd.Run()), "ran as root of a nested namespace")
		}},
	}
	for _, ns := range namespaces {
		list = append(list,
			attempt{"namespace-unshare-" + ns.name, func(*hostile.Config) hostile.Result {
				runtime.LockOSThread()
				if ns.name == "user" || ns.name == "time" { // these two want a single thread
					return judge(forkRaw(func() (uintptr, unix.Errno) {
						return forkThen(unix.SYS_UNSHARE, ns.flag, 0)
					}), "in a new namespace")
				}
				return judge(unix.Unshare(int(ns.flag)), "in a new namespace")
			}},
			attempt{"namespace-clone-" + ns.name, func(*hostile.Config) hostile.Result {
				if ns.name == "time" {
					return refused("clone cannot make time namespaces")
				}
				return judge(forkRaw(func() (uintptr, unix.Errno) {
					pid, _, no := unix.RawSyscall6(unix.SYS_CLONE, ns.flag|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
					return pid, no
				}), "child in a new namespace")
			}},
			attempt{"namespace-setns-pid1-" + ns.name, func(*hostile.Config) hostile.Result { return enter(1, ns.name, ns.flag) }},
			attempt{"namespace-setns-supervisor-" + ns.name, func(*hostile.Config) hostile.Result {
				pid, _ := strconv.Atoi(os.Getenv(envParent))
				if pid == 0 {
					return refused("the parent is in another pid namespace")
				}
				return enter(pid, ns.name, ns.flag)
			}},
		)
	}
	return append(list,
		attempt{"namespace-setns-pidfd", func(*hostile.Config) hostile.Result {
			fd, err := unix.PidfdOpen(1, 0)
			if err != nil {
				return judge(err, "pidfd_open")
			}
			runtime.LockOSThread()
			return judge(unix.Setns(fd, unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWIPC), "joined the namespaces of PID 1")
		}},
		attempt{"namespace-clone-user-high-bits", func(*hostile.Config) hostile.Result {
			return judge(forkRaw(func() (uintptr, unix.Errno) {
				pid, _, no := unix.RawSyscall6(unix.SYS_CLONE, 1<<40|unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
				return pid, no
			}), "child in a new user namespace")
		}},
		attempt{"namespace-uid-map", func(*hostile.Config) hostile.Result {
			fd, err := unix.Open("/proc/self/uid_map", unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge(err, "opened")
			}
			_, err = unix.Write(fd, []byte("0 0 1\n"))
			return judge(err, "mapped root")
		}},
	)
}

// enter joins a namespace of another process.
func enter(pid int, name string, flag uintptr) hostile.Result {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return judge(err, "opened the namespace")
	}
	runtime.LockOSThread()
	// EINVAL: one's own user namespace, or too many threads; both come after the
	// permission to open, which is what should have been refused.
	return judge(unix.Setns(fd, int(flag)), "joined the namespace", unix.EINVAL, unix.EUSERS)
}

// forkRaw runs a fork-like call whose child exits at once, and reaps the child.
func forkRaw(fork func() (uintptr, unix.Errno)) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, no := fork()
	if no != 0 {
		return no
	}
	if pid == 0 {
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(int(pid), &ws, 0, nil)
		if err == unix.EINTR {
			continue
		}
		break
	}
	if code := ws.ExitStatus(); code > 0 {
		return unix.Errno(code)
	}
	return nil
}

// forkThen forks and makes one system call in the single-threaded child, which
// exits with its errno.
//
//go:norace
func forkThen(nr, a, b uintptr) (uintptr, unix.Errno) {
	pid, _, no := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if no != 0 || pid != 0 {
		return pid, no
	}
	_, _, no = unix.RawSyscall6(nr, a, b, 0, 0, 0, 0)
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(no), 0, 0)
	}
}

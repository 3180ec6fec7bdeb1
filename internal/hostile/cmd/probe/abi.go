//go:build linux

package main

import (
	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

// foreignABIAttempts make system calls by other doors than the one a filter for
// this architecture thinks of: the 32-bit gate and the x32 numbers of amd64.
// Where the kernel or the architecture has no such door they are refused by that.
func foreignABIAttempts() []attempt {
	const x32 = 0x40000000
	x32Call := func(name string, nr uintptr, args ...uintptr) attempt {
		return attempt{"x32-" + name, func(*hostile.Config) hostile.Result {
			if !foreignABIs {
				return refused("this architecture has no x32")
			}
			return judge(call(x32|nr, args...), name)
		}}
	}
	i386Call := func(name string, nr uintptr, past []unix.Errno, args ...uintptr) attempt {
		return attempt{"i386-" + name, func(*hostile.Config) hostile.Result {
			if !foreignABIs {
				return refused("this architecture has no 32-bit gate")
			}
			var a [5]uintptr
			copy(a[:], args)
			r := int32(int80(nr, a[0], a[1], a[2], a[3], a[4]))
			if r < 0 {
				return judge(unix.Errno(-r), name, past...)
			}
			return succeeded("%s returned %d", name, r)
		}}
	}
	return []attempt{
		x32Call("socket-vsock", unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		x32Call("unshare-mount", unix.SYS_UNSHARE, unix.CLONE_NEWNS),
		x32Call("unshare-uts", unix.SYS_UNSHARE, unix.CLONE_NEWUTS),
		i386Call("getpid", 20, nil),
		i386Call("unshare-mount", 310, nil, unix.CLONE_NEWNS),
		i386Call("socket-vsock", 359, nil, unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		i386Call("socket-netlink", 359, nil, unix.AF_NETLINK, unix.SOCK_RAW, 0),
		i386Call("ptrace-traceme", 26, nil, 0, 0, 0, 0),
		// Answers that come before the permission check: still past the filter.
		i386Call("mount", 21, []unix.Errno{unix.EFAULT, unix.ENOTBLK}, 1, 1, 1, 0, 0),
		i386Call("io-uring-setup", 425, []unix.Errno{unix.EFAULT}, 4, 1),
		i386Call("keyctl", 288, []unix.Errno{unix.ENOKEY}, 0, uintptr(0xfffffffd), 1),
	}
}

package local

import (
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// landlockABI asks the kernel; 0 is none.
func landlockABI() int {
	n, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0
	}
	return int(n)
}

// requiredABI is what LevelLandlock needs: scopes for signals and abstract
// sockets came with it.
const requiredABI = 6

const (
	accessRead = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_EXECUTE
	accessDev  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// handledFS are the rights that this kernel knows.
func handledFS(abi int) uint64 {
	switch {
	case abi <= 0:
		return 0
	case abi == 1:
		return 1<<13 - 1
	case abi == 2:
		return 1<<14 - 1 // refer
	case abi <= 4:
		return 1<<15 - 1 // truncate
	}
	return 1<<16 - 1 // ioctl of devices
}

// accessWrite is everything but making device nodes.
func accessWrite(abi int) uint64 {
	return handledFS(abi) &^ (unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK)
}

// jailDomain is a second net below the mount namespace, and what keeps execs from
// reading each other's memory and environment: the processes of two domains
// cannot trace each other.
func (p *Provider) jailDomain(r *record) wire.Landlock {
	if p.abi == 0 {
		return wire.Landlock{}
	}
	w := accessWrite(p.abi)
	l := wire.Landlock{FS: handledFS(p.abi), Rules: []wire.Rule{
		{Path: "/", Access: accessRead},
		{Path: r.Root, Access: w},
		{Path: "/tmp", Access: w},
		{Path: "/dev", Access: accessDev},
		{Path: "/dev/shm", Access: w},
		{Path: "/proc", Access: accessRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE},
	}}
	for _, m := range r.Mounts {
		if !m.ReadOnly {
			l.Rules = append(l.Rules, wire.Rule{Path: m.Path, Access: w})
		}
	}
	if r.Network == "default" {
		// The host's abstract sockets belong to its network namespace.
		l.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	return l
}

// bareDomain is all there is at LevelLandlock.
func (p *Provider) bareDomain(r *record, workspace, tmp string) wire.Landlock {
	w := accessWrite(p.abi)
	l := wire.Landlock{
		FS:     handledFS(p.abi),
		Scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL,
		Rules: []wire.Rule{
			{Path: workspace, Access: w},
			{Path: tmp, Access: w},
			{Path: "/proc", Access: accessRead},
			// Nothing of /dev/pts: the terminals there are the host's. A command's
			// own reaches it as /dev/tty and as its standard streams.
		},
	}
	if r.Network != "default" {
		l.Net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	for _, path := range append(append([]string(nil), systemPaths...), p.opts.ReadOnlyPaths...) {
		l.Rules = append(l.Rules, wire.Rule{Path: path, Access: accessRead})
	}
	for _, name := range append([]string{"group", "hosts", "nsswitch.conf", "passwd", "resolv.conf"}, etcPaths...) {
		l.Rules = append(l.Rules, wire.Rule{Path: "/etc/" + name, Access: accessRead})
	}
	for _, d := range devices {
		l.Rules = append(l.Rules, wire.Rule{Path: "/dev/" + d, Access: accessDev})
	}
	return l
}

//go:build linux

package main

import (
	"os"
	"syscall"
	"unsafe"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// confinement is what every command of this supervisor is put under. It is made
// once; each command enters a Landlock domain of its own from the one ruleset.
type confinement struct {
	landlock uintptr
	seccomp  *sockFprog
	program  []byte
	rlimits  []rlimit
	root     [6]uint32 // what a command of root keeps
}

func (s *supervisor) prepareConfinement() error {
	c := &s.confine
	c.landlock = noFD
	if l := s.cfg.Landlock; l.FS|l.Net|l.Scoped != 0 {
		fd, err := ruleset(l)
		if err != nil {
			return err
		}
		c.landlock = uintptr(fd)
	}
	if n := len(s.cfg.Seccomp); n > 0 {
		c.program = s.cfg.Seccomp
		c.seccomp = &sockFprog{n: uint16(n / 8), filter: unsafe.Pointer(unsafe.SliceData(c.program))}
	}
	for _, r := range s.cfg.Rlimits {
		c.rlimits = append(c.rlimits, rlimit{uintptr(r.Resource), [2]uint64{r.Soft, r.Hard}})
	}
	if s.cfg.PIDs > 0 {
		n := s.cfg.PIDs
		if s.cfg.Jail {
			n += ownThreads()
		}
		c.rlimits = append(c.rlimits, rlimit{unix.RLIMIT_NPROC, [2]uint64{n, n}})
	}
	if s.cfg.Unconfined {
		return nil
	}
	keep := uint64(0)
	if s.cfg.IDs == wire.IDUser {
		keep = s.cfg.Keep
	}
	if err := dropBounding(keep); err != nil {
		return err
	}
	if s.cfg.Jail {
		return s.filterOnce()
	}
	own := uint64(1)<<unix.CAP_KILL | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	if s.cfg.IDs == wire.IDUser {
		// One that no command has: it makes this process untraceable for a command
		// that is root too.
		own |= 1 << unix.CAP_SETPCAP
		keep &^= 1 << unix.CAP_SETPCAP
	}
	have, err := keepCaps(own | keep)
	if err != nil {
		return err
	}
	have &= keep
	c.root = [6]uint32{0: uint32(have), 1: uint32(have), 3: uint32(have >> 32), 4: uint32(have >> 32)}
	return nil
}

// filterOnce puts this thread, the only one that starts commands, under the
// seccomp program: they inherit it, and the kernel need not compile it for each.
// The program lets pass what the supervisor still does.
func (s *supervisor) filterOnce() error {
	c := &s.confine
	if c.seccomp == nil {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return step("no new privileges", err)
	}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(c.seccomp))); e != 0 {
		return step("seccomp", e)
	}
	c.seccomp, c.program = nil, nil
	return nil
}

// ownThreads is what this process adds to its user's count.
func ownThreads() uint64 {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/task", &st); err != nil || st.Nlink < 3 {
		return 8
	}
	return uint64(st.Nlink) - 2 //nolint:unconvert // 32 bits wide on arm64
}

// dropBounding empties the bounding set but for keep, and the ambient set, of this
// thread, which is the one that starts commands, where we may: without the
// capability for it there is nothing that could be gained either, for
// no-new-privileges holds for every command.
func dropBounding(keep uint64) error {
	for c := uintptr(0); c <= 63; c++ {
		if keep>>c&1 != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			if err == unix.EINVAL || err == unix.EPERM {
				break
			}
			return step("bounding set", err)
		}
	}
	return step("ambient set", unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
}

// keepCaps gives all capabilities up but those of the set, in every thread, and
// returns which of them we have.
func keepCaps(keep uint64) (have uint64, err error) {
	var data [2]unix.CapUserData
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&h, &data[0]); err != nil {
		return 0, step("capabilities", err)
	}
	if data[0].Permitted|data[1].Permitted == 0 {
		return 0, nil
	}
	for i := range data {
		mask := uint32(keep >> (32 * i))
		data[i].Permitted &= mask
		data[i].Effective = data[i].Permitted
		data[i].Inheritable = 0
	}
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&data[0])), 0)
	if e != 0 {
		return 0, step("capabilities", e)
	}
	return uint64(data[1].Permitted)<<32 | uint64(data[0].Permitted), nil
}

type landlockAttr struct{ fs, net, scoped uint64 }

type landlockPath struct {
	access uint64
	fd     int32
}

// fileAccess are the rights that mean something on a file that is no directory.
const fileAccess = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
	unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

func ruleset(l wire.Landlock) (int, error) {
	attr := landlockAttr{l.FS, l.Net, l.Scoped}
	size := unsafe.Sizeof(attr) // older kernels take a shorter record
	if l.Scoped == 0 {
		size = 16
		if l.Net == 0 {
			size = 8
		}
	}
	fd, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if e != 0 {
		return -1, step("landlock ruleset", e)
	}
	for _, r := range l.Rules {
		p, err := unix.Open(r.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			if os.IsNotExist(err) || err == unix.EACCES {
				continue // not there for the workload either
			}
			return -1, step("landlock rule "+r.Path, err)
		}
		var st unix.Stat_t
		access := r.Access & l.FS
		if err = unix.Fstat(p, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			access &= fileAccess
		}
		if err == nil && access != 0 {
			rule := landlockPath{access, int32(p)}
			if _, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, 1, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); e != 0 {
				err = e
			}
		}
		_ = unix.Close(p)
		if err != nil {
			return -1, step("landlock rule "+r.Path, err)
		}
	}
	return int(fd), nil
}

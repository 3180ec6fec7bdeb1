//go:build linux

package main

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// child is everything the new process needs between vfork and execve. It lives
// on the heap and holds no Go closure: the child may only make raw system calls
// and write to plain fields here (memory is shared until it executes).
type child struct {
	flags      uintptr
	stdio      [3]uintptr
	terminal   bool
	dir        *byte
	candidates []*byte // paths to try, in order
	search     bool    // they are those of PATH
	argv, envv []*byte // nil-terminated
	rlimits    []rlimit
	setIDs     bool
	uid, gid   uintptr
	groups     []uint32
	caps       *[6]uint32 // what it keeps; noCaps when nil
	landlock   uintptr    // ruleset descriptor, or noFD
	seccomp    *sockFprog
	confine    bool
	tagPath    *byte // nil: no tag wanted

	// What the child reports.
	stage  wire.Stage
	errno  uintptr
	tag    [48]byte
	tagLen uintptr
}

const noFD = ^uintptr(0)

type rlimit struct {
	resource uintptr
	limit    [2]uint64
}

type sockFprog struct {
	n      uint16
	_      [6]byte
	filter unsafe.Pointer
}

type capHeader struct {
	version uint32
	pid     int32
}

// Data the child passes to system calls by address; never written.
var (
	allSignals = ^uint64(0)
	noSignals  uint64
	defaultAct [4]uint64 // struct kernel_sigaction: SIG_DFL, no flags
	capV3      = capHeader{version: 0x20080522}
	noCaps     [6]uint32
)

// forking is the process a vfork has made and that has not executed yet. The
// kernel writes it (CLONE_PARENT_SETTID).
var forking int32

// forks counts them, so that a look at forking knows whether it is the same one.
var forks atomic.Int64

// stalled is the process that was killed because it had been stopped before it
// executed: something inside may do that, and the supervisor waits meanwhile.
var stalled int32

// lookEvery is how often a fork in progress is looked at.
const lookEvery = 100 * time.Millisecond

// watching: a look is due. One timer serves many forks, because a timer for each
// would cost as much as the fork.
var watching atomic.Bool

// watch looks at the fork in progress every now and then, until there were none
// for a while.
func watch() {
	if !watching.CompareAndSwap(false, true) {
		return
	}
	var look func()
	seen := forks.Load()
	look = func() {
		now := forks.Load()
		pid := atomic.LoadInt32(&forking)
		if p, ok := stat(int(pid)); pid > 0 && now == seen && ok && p.stopped {
			atomic.StoreInt32(&stalled, pid)
			_ = unix.Kill(int(pid), unix.SIGKILL)
		} else if pid == 0 && now == seen {
			watching.Store(false)
			if forks.Load() != now { // one began meanwhile
				watch()
			}
			return
		}
		seen = now
		time.AfterFunc(lookEvery, look)
	}
	time.AfterFunc(lookEvery, look)
}

//go:noescape
func rawVfork(trap, a1, a2, a3 uintptr) (r1, err uintptr)

// spawn starts c and returns its process id. On failure c.stage and c.errno say
// what went wrong, and a process may still have to be reaped.
func spawn(c *child) (pid int, ok bool) {
	forks.Add(1)
	watch()
	r, e := vforkExec(c)
	atomic.StoreInt32(&forking, 0)
	runtime.KeepAlive(c)
	if e == 0 && atomic.SwapInt32(&stalled, 0) == int32(r) {
		e = uintptr(unix.EAGAIN)
	}
	if e != 0 {
		c.stage, c.errno = wire.StageFork, e
		return 0, false
	}
	return int(r), c.errno == 0
}

// vforkExec must not grow the stack, allocate, or be preempted: the child runs
// on this stack and in this memory.
//
//go:norace
//go:nosplit
//go:noinline
func vforkExec(c *child) (pid, errno uintptr) {
	var saved uint64
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&allSignals)), uintptr(unsafe.Pointer(&saved)), 8, 0, 0)
	pid, errno = rawVfork(unix.SYS_CLONE, c.flags, 0, uintptr(unsafe.Pointer(&forking)))
	if errno == 0 && pid == 0 {
		runChild(c)
		for {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 127, 0, 0)
		}
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&saved)), 0, 8, 0, 0)
	return pid, errno
}

// runChild returns only when it failed.
//
//go:norace
//go:nosplit
//go:noinline
func runChild(c *child) {
	var e syscall.Errno
	// Handlers of the Go runtime must not run in here once signals are
	// unblocked, just before execve.
	for s := uintptr(1); s <= 64; s++ {
		if s != uintptr(unix.SIGKILL) && s != uintptr(unix.SIGSTOP) {
			syscall.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&defaultAct)), 0, 8, 0, 0)
		}
	}
	c.stage = wire.StageConfine
	if _, _, e = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); e != 0 {
		c.errno = uintptr(e)
		return
	}
	if c.tagPath != nil {
		n, _, e := syscall.RawSyscall6(unix.SYS_READLINKAT, atFDCWD, uintptr(unsafe.Pointer(c.tagPath)), uintptr(unsafe.Pointer(&c.tag)), uintptr(len(c.tag)), 0, 0)
		if e != 0 {
			c.errno = uintptr(e)
			return
		}
		c.tagLen = n
	}
	for i := uintptr(0); i < 3; i++ {
		if _, _, e = syscall.RawSyscall(unix.SYS_DUP3, c.stdio[i], i, 0); e != 0 {
			c.errno = uintptr(e)
			return
		}
	}
	if c.terminal {
		if _, _, e = syscall.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0); e != 0 {
			c.errno = uintptr(e)
			return
		}
	}
	// Everything of ours is close-on-exec already; this is the second net.
	syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 3, ^uintptr(0)>>32, unix.CLOSE_RANGE_CLOEXEC)
	for i := range c.rlimits {
		r := &c.rlimits[i]
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, r.resource, uintptr(unsafe.Pointer(&r.limit)), 0, 0, 0); e != 0 {
			c.errno = uintptr(e)
			return
		}
	}
	if c.setIDs {
		if _, _, e = syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(c.groups)), uintptr(unsafe.Pointer(unsafe.SliceData(c.groups))), 0); e == 0 {
			if _, _, e = syscall.RawSyscall(unix.SYS_SETRESGID, c.gid, c.gid, c.gid); e == 0 {
				_, _, e = syscall.RawSyscall(unix.SYS_SETRESUID, c.uid, c.uid, c.uid)
			}
		}
		if e != 0 {
			c.errno = uintptr(e)
			return
		}
	}
	if c.dir != nil {
		if _, _, e = syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(c.dir)), 0, 0); e != 0 {
			c.stage, c.errno = wire.StageDir, uintptr(e)
			return
		}
	}
	if c.confine {
		caps := &noCaps
		if c.caps != nil {
			caps = c.caps
		}
		if _, _, e = syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&capV3)), uintptr(unsafe.Pointer(caps)), 0); e != 0 {
			c.errno = uintptr(e)
			return
		}
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
			c.errno = uintptr(e)
			return
		}
	}
	if c.landlock != noFD {
		if _, _, e = syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, c.landlock, 0, 0); e != 0 {
			c.errno = uintptr(e)
			return
		}
	}
	if c.seccomp != nil {
		if _, _, e = syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(c.seccomp))); e != 0 {
			c.errno = uintptr(e)
			return
		}
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&noSignals)), 0, 8, 0, 0)
	// As execvp does: go on to the next directory when there is nothing to
	// execute, and remember that something was there.
	c.stage = wire.StageExec
	worst := uintptr(unix.ENOENT)
	for i := range c.candidates {
		_, _, e = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(c.candidates[i])), uintptr(unsafe.Pointer(&c.argv[0])), uintptr(unsafe.Pointer(&c.envv[0])))
		if e == unix.ENOENT || e == unix.ENOTDIR {
			continue
		}
		if e == unix.EACCES && c.search {
			// A directory of PATH that is closed to us holds nothing for us.
			if _, _, a := syscall.RawSyscall(unix.SYS_FACCESSAT, atFDCWD, uintptr(unsafe.Pointer(c.candidates[i])), 0); a == unix.EACCES {
				continue
			}
		}
		worst = uintptr(e)
		if e != unix.EACCES {
			break
		}
	}
	c.errno = worst
}

const atFDCWD = ^uintptr(99) // AT_FDCWD = -100

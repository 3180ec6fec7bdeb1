package local

import (
	"encoding/binary"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// programs keeps the assembled seccomp programs.
type programs struct {
	mu   sync.Mutex
	made map[filter][]byte
}

// filter says what a program has to make up for.
type filter struct {
	// bare: there are no namespaces. Sockets of the Unix family, System V IPC and
	// message queues, which would be the host's, are refused.
	bare bool
	// noInet refuses sockets of the Internet.
	noInet bool
	// sameUser: the command's user has processes outside the sandbox, in sight.
	// Limits and priorities of other processes are refused. Elsewhere they are
	// not, because libraries set the affinity of threads they start.
	sameUser bool
}

// get returns the program.
func (p *programs) get(k filter) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, ok := p.made[k]; ok {
		return b
	}
	if p.made == nil {
		p.made = map[filter][]byte{}
	}
	b := assemble(k)
	p.made[k] = b
	return b
}

// refused system calls: what reaches around the jail, what lets one process into
// another, and old or rare parts of the kernel that a command has no need of.
var refused = []uint32{
	// mounts, roots and namespaces
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, sysOpenTreeAttr,
	unix.SYS_SETNS, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	// other processes
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_KCMP,
	unix.SYS_PIDFD_GETFD, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,
	// system calls in disguise
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	// the kernel itself
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT, unix.SYS_LOOKUP_DCOOKIE,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_VHANGUP,
	unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_NFSSERVCTL,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME,
}

// hostIPC are system calls that reach objects of the IPC namespace.
var hostIPC = []uint32{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, unix.SYS_MQ_TIMEDSEND, unix.SYS_MQ_TIMEDRECEIVE, unix.SYS_MQ_NOTIFY, unix.SYS_MQ_GETSETATTR,
}

// ownOnly are system calls whose first argument is a process; 0 is the caller.
var ownOnly = []uint32{
	unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR,
}

// sysOpenTreeAttr has one number on every architecture.
const sysOpenTreeAttr = 467

// namespaceFlags of clone and unshare.
const namespaceFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// ioprioProcess is IOPRIO_WHO_PROCESS.
const ioprioProcess = 1

// Offsets in struct seccomp_data. Arguments are 64 bits wide; the low half comes
// first on the architectures we run on.
const (
	dataNr   = 0
	dataArch = 4
	dataArg0 = 16
	dataArg1 = 24
)

const (
	retAllow = unix.SECCOMP_RET_ALLOW
	retErrno = unix.SECCOMP_RET_ERRNO
)

// assembler collects instructions; all jumps are over a few following ones.
type assembler struct{ code []unix.SockFilter }

func (a *assembler) add(code uint16, jt, jf uint8, k uint32) {
	a.code = append(a.code, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
}

func (a *assembler) load(off uint32) { a.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, off) }
func (a *assembler) ret(k uint32)    { a.add(unix.BPF_RET|unix.BPF_K, 0, 0, k) }

// ifEqual runs then when the accumulator equals k. then must not fall through.
func (a *assembler) ifEqual(k uint32, then ...func()) {
	at := len(a.code)
	a.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 0, k)
	for _, f := range then {
		f()
	}
	a.code[at].Jf = uint8(len(a.code) - at - 1)
}

// assemble returns the program as struct sock_filter records.
func assemble(f filter) []byte {
	a := &assembler{}
	errno := func(e unix.Errno) func() { return func() { a.ret(retErrno | uint32(e)) } }
	allow := func() { a.ret(retAllow) }

	arch := uint32(unix.AUDIT_ARCH_X86_64)
	if runtime.GOARCH == "arm64" {
		arch = unix.AUDIT_ARCH_AARCH64
	}
	// System calls of another instruction set have other numbers.
	a.load(dataArch)
	a.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, arch)
	a.ret(retErrno | uint32(unix.ENOSYS))
	a.load(dataNr)
	// x32 numbers, which start at 1<<30, reach the same calls.
	a.add(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, 0, 1, 1<<30)
	a.ret(retErrno | uint32(unix.ENOSYS))

	// What every program does often comes first.
	for _, nr := range []uint32{unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_OPENAT, unix.SYS_MMAP, unix.SYS_FSTAT, unix.SYS_FUTEX} {
		a.ifEqual(nr, allow)
	}
	no := append(append([]uint32(nil), refused...), refusedHere...)
	// The limits of other processes could end the supervisor, or the host's.
	own := []uint32{unix.SYS_PRLIMIT64}
	if f.bare {
		no = append(no, hostIPC...)
	}
	if f.sameUser {
		own = append(own, ownOnly...)
	}
	for _, nr := range no {
		a.ifEqual(nr, errno(unix.EPERM))
	}
	for _, nr := range own {
		a.ifEqual(nr, func() {
			a.load(dataArg0)
			a.ifEqual(0, allow)
			a.ret(retErrno | uint32(unix.EPERM))
		})
	}
	if f.sameUser {
		for nr, process := range map[uint32]uint32{unix.SYS_SETPRIORITY: unix.PRIO_PROCESS, unix.SYS_IOPRIO_SET: ioprioProcess} {
			a.ifEqual(nr, func() {
				a.load(dataArg0)
				a.ifEqual(process, func() {
					a.load(dataArg1)
					a.ifEqual(0, allow)
					a.ret(retErrno | uint32(unix.EPERM))
				})
				a.ret(retErrno | uint32(unix.EPERM))
			})
		}
	}
	// Its flags are in memory, where no filter can look; libraries fall back to
	// clone.
	a.ifEqual(unix.SYS_CLONE3, errno(unix.ENOSYS))
	for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
		a.ifEqual(nr, func() {
			a.load(dataArg0)
			flags := uint32(namespaceFlags)
			if nr == unix.SYS_CLONE && !f.bare {
				// The supervisor is under this program too, and gives each exec a UTS
				// namespace. A command has no capability to make one, and cannot get
				// it together with a user namespace.
				flags &^= unix.CLONE_NEWUTS
			}
			if nr == unix.SYS_UNSHARE {
				flags |= unix.CLONE_NEWTIME // in clone the bit is part of the exit signal
			}
			a.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, 0, 1, flags)
			a.ret(retErrno | uint32(unix.EPERM))
			a.ret(retAllow)
		})
	}
	a.ifEqual(unix.SYS_SOCKET, func() {
		a.load(dataArg0)
		if !f.bare {
			a.ifEqual(unix.AF_UNIX, allow)
		}
		if !f.noInet {
			a.ifEqual(unix.AF_INET, allow)
			a.ifEqual(unix.AF_INET6, allow)
		}
		a.ret(retErrno | uint32(unix.EAFNOSUPPORT))
	})
	// A pair is connected to itself only.
	a.ifEqual(unix.SYS_SOCKETPAIR, func() {
		a.load(dataArg0)
		a.ifEqual(unix.AF_UNIX, allow)
		a.ret(retErrno | uint32(unix.EAFNOSUPPORT))
	})
	a.ifEqual(unix.SYS_IOCTL, func() {
		a.load(dataArg1)
		a.ifEqual(unix.TIOCSTI, errno(unix.EPERM)) // types into the terminal
		a.ifEqual(unix.TIOCLINUX, errno(unix.EPERM))
		a.ret(retAllow)
	})
	a.ret(retAllow)

	var b []byte
	for _, i := range a.code {
		b = binary.NativeEndian.AppendUint16(b, i.Code)
		b = append(b, i.Jt, i.Jf)
		b = binary.NativeEndian.AppendUint32(b, i.K)
	}
	return b
}

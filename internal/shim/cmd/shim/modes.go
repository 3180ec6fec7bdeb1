//go:build linux

package main

import (
	"os"
	"syscall"
	"unsafe"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// readSetup reads the first frame of a control socket and the descriptors that
// came with it.
func readSetup(fd int) (cfg wire.Config, passed []int, ok bool) {
	d := wire.Decoder{From: wire.FromHost}
	var oob [1024]byte
	for {
		n, oobn, flags, _, err := unix.Recvmsg(fd, readBuffer[:], oob[:], unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 || flags&unix.MSG_CTRUNC != 0 {
			return cfg, nil, false
		}
		passed = append(passed, rights(oob[:oobn])...)
		d.Feed(readBuffer[:n])
		f, complete, err := d.Next()
		if err != nil {
			return cfg, nil, false
		}
		if complete {
			ok = f.Type == wire.Setup && cfg.UnmarshalBinary(f.Payload) == nil && cfg.Jail
			return cfg, passed, ok
		}
	}
}

// runInit is PID 1 of a jail.
func runInit() {
	unix.CloseOnExec(controlFD)
	cfg, passed, ok := readSetup(controlFD)
	if !ok {
		os.Exit(125)
	}
	root, err := setupJail(&cfg, passed)
	s := newSupervisor(cfg, controlFD)
	if err == nil {
		err = s.prepareConfinement()
	}
	if err == nil {
		err = hide()
	}
	if err != nil {
		refuse(controlFD, err)
	}
	defaultSignals(true)
	go s.reap()
	if sendWithFD(controlFD, wire.AppendUint32(nil, wire.Ready, uint32(unix.Getpid())), root) != nil {
		os.Exit(125)
	}
	_ = unix.Close(root)
	s.loop()
}

func refuse(fd int, err error) {
	b := wire.AppendFailure(nil, wire.Failure{Stage: wire.StageJail, Errno: errnoOf(err), Detail: err.Error()})
	_, _ = unix.Write(fd, b)
	os.Exit(125)
}

// runExec watches over one command, as its subreaper.
func runExec(in, out int) {
	prestart(4)
	unix.CloseOnExec(in)
	unix.CloseOnExec(out)
	if hide() != nil || unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != nil {
		os.Exit(125)
	}
	_ = unix.SetNonblock(in, true)
	_ = unix.SetNonblock(out, true)
	s := newSupervisor(wire.Config{Unconfined: true}, -1)
	s.confine.landlock = noFD
	e := newExec(in, out)
	e.tied = in == out
	s.execs = append(s.execs, e)
	go s.reap()
	s.loop()
	os.Exit(0)
}

// hide makes this process unreadable to others of its user: its memory holds the
// environment of commands while they start.
func hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return &stepError{"hide", err}
	}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	return nil
}

// defaultSignals takes the Go runtime's handlers away. To PID 1 the kernel
// delivers nothing from inside that has no handler; others ignore what would end
// them. A fault of our own still ends us.
func defaultSignals(pid1 bool) {
	ignore := [4]uint64{1}
	for n := uintptr(1); n <= 64; n++ {
		s := syscall.Signal(n)
		if s == unix.SIGKILL || s == unix.SIGSTOP {
			continue
		}
		act := &defaultAct
		switch s {
		case unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGCHLD, unix.SIGURG, unix.SIGTRAP, unix.SIGSYS:
		default:
			if !pid1 {
				act = &ignore
			}
		}
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(act)), 0, 8, 0, 0)
	}
}

// stepError names the step that failed.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step }
func (e *stepError) Unwrap() error { return e.err }

func step(name string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{name, err}
}

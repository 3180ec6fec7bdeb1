//go:build linux

package main

import (
	"os"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// supervisor runs execs. Two goroutines touch it: the loop, which reads sockets
// and drives kills, and the reaper, which waits for children.
type supervisor struct {
	cfg     wire.Config
	confine confinement
	nullFD  int
	control int // a jail's control socket, or -1

	mu    sync.Mutex
	execs []*exec
	byPID map[int]*exec
	// idle: the reaper found no child and waits on childEvent.
	idle       bool
	childEvent int // eventfd, blocking
	wake       int // eventfd, polled by the loop
}

func newSupervisor(cfg wire.Config, control int) *supervisor {
	s := &supervisor{cfg: cfg, control: control, byPID: map[int]*exec{}}
	var err error
	if s.childEvent, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		os.Exit(125)
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		os.Exit(125)
	}
	if s.nullFD, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		os.Exit(125)
	}
	return s
}

func signalEvent(fd int) { _, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// tick is how often a kill in progress looks whether its tree is gone; a death
// is noticed at once by the reaper, the tick is for what is not our child.
const tick = 2 * time.Millisecond

// loop serves until there is nothing left to serve, then returns.
func (s *supervisor) loop() {
	var fds []unix.PollFd
	var owners []*exec
	for {
		s.mu.Lock()
		now := time.Now()
		timeout := -1
		for i := 0; i < len(s.execs); {
			e := s.execs[i]
			if d, ok := s.step(e, now); ok {
				if ms := int(d/time.Millisecond) + 1; timeout < 0 || ms < timeout {
					timeout = ms
				}
			}
			if e.done() {
				s.drop(i)
				continue
			}
			i++
		}
		if s.control < 0 && len(s.execs) == 0 {
			s.mu.Unlock()
			return
		}
		fds, owners = fds[:0], owners[:0]
		fds = append(fds, unix.PollFd{Fd: int32(s.wake), Events: unix.POLLIN})
		owners = append(owners, nil)
		if s.control >= 0 {
			fds = append(fds, unix.PollFd{Fd: int32(s.control), Events: unix.POLLIN})
			owners = append(owners, nil)
		}
		for _, e := range s.execs {
			fds, owners = e.pollFDs(fds, owners)
		}
		s.mu.Unlock()

		_, err := unix.Poll(fds, timeout)
		if err != nil {
			continue // EINTR
		}
		s.mu.Lock()
		for i := range fds {
			if fds[i].Revents == 0 {
				continue
			}
			switch {
			case owners[i] != nil:
				s.ready(owners[i], int(fds[i].Fd), fds[i].Revents)
			case int(fds[i].Fd) == s.wake:
				var b [8]byte
				_, _ = unix.Read(s.wake, b[:])
			default:
				if !s.acceptExec() {
					// The host is gone, and the whole jail goes with us.
					os.Exit(0)
				}
			}
		}
		s.mu.Unlock()
	}
}

// acceptExec takes one exec's socket from the control socket; false at its end.
func (s *supervisor) acceptExec() bool {
	var b [wire.HeaderSize]byte
	n, fds, err := receive(s.control, b[:])
	if err == unix.EAGAIN || err == unix.EINTR {
		return true
	}
	if err != nil || n != len(b) || wire.Type(b[0]) != wire.NewExec || len(fds) != 1 {
		return false
	}
	_ = unix.SetNonblock(fds[0], true)
	e := newExec(fds[0], fds[0])
	s.execs = append(s.execs, e)
	s.ready(e, e.in, unix.POLLIN) // what was written before is here already
	return true
}

func (s *supervisor) drop(i int) {
	e := s.execs[i]
	e.close()
	delete(s.byPID, e.pid)
	s.execs = append(s.execs[:i], s.execs[i+1:]...)
}

// receive reads bytes and descriptors. The descriptors are close-on-exec.
func receive(fd int, b []byte) (int, []int, error) {
	var oob [128]byte
	n, oobn, flags, _, err := unix.Recvmsg(fd, b, oob[:], unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return 0, nil, err
	}
	fds := rights(oob[:oobn])
	if flags&unix.MSG_CTRUNC != 0 {
		return n, fds, unix.EMSGSIZE
	}
	return n, fds, nil
}

// rights returns the descriptors of a control message.
func rights(oob []byte) []int {
	var fds []int
	if len(oob) == 0 {
		return nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		if got, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

//go:build linux

package main

import (
	"golang.org/x/sys/unix"
)

type death struct {
	pid    int
	status unix.WaitStatus
}

// reap waits for every child, also for the orphans that were handed to us, and
// reports the ends of commands. It never returns.
func (s *supervisor) reap() {
	var batch []death
	for {
		batch = batch[:0]
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		for err == nil && pid > 0 {
			batch = append(batch, death{pid, ws})
			if len(batch) == 256 {
				break
			}
			pid, err = unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		}
		none := err == unix.ECHILD
		s.mu.Lock()
		for _, d := range batch {
			if e := s.byPID[d.pid]; e != nil && !e.exited {
				s.commandEnded(e, d.status, none)
			}
		}
		if len(batch) > 0 && s.needsLoop() {
			signalEvent(s.wake)
		}
		wait := false
		if none && len(s.byPIDLive()) == 0 {
			s.idle, wait = true, true
		}
		s.mu.Unlock()
		if wait {
			var b [8]byte
			_, _ = unix.Read(s.childEvent, b[:])
		}
	}
}

// byPIDLive lists the commands that have not ended: while there is one, another
// wait will not say ECHILD for long.
func (s *supervisor) byPIDLive() []*exec {
	var live []*exec
	for _, e := range s.execs {
		if e.pid > 0 && !e.exited {
			live = append(live, e)
		}
	}
	return live
}

// childMade tells the reaper that there is something to wait for.
func (s *supervisor) childMade() {
	if s.idle {
		s.idle = false
		signalEvent(s.childEvent)
	}
}

// needsLoop reports whether a death may be news for the loop: a kill in
// progress, left-overs, an exec to be dropped.
func (s *supervisor) needsLoop() bool {
	for _, e := range s.execs {
		if e.exited || e.killing {
			return true
		}
	}
	return false
}

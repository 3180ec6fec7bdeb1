//go:build linux

package main

import (
	"encoding/binary"
	"strconv"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// What belongs to an exec is known by a mark that cannot be taken off: in a jail
// the UTS namespace its command was started in (nothing inside can change
// namespaces), else by descent from the supervisor, which is the subreaper of
// this one exec. Sessions, groups, names and environments mean nothing: a
// process changes those at will.

type process struct {
	pid, ppid int
	zombie    bool
	stopped   bool
	began     uint64 // ticks since boot; with the pid it names one process
}

// members lists the living processes of e.
func (s *supervisor) members(e *exec) []int {
	if !s.cfg.TagExecs {
		return descendants(unix.Getpid())
	}
	var out []int
	var b [64]byte
	for _, pid := range pids() {
		if pid == 1 {
			continue
		}
		n, err := unix.Readlink("/proc/"+strconv.Itoa(pid)+"/ns/uts", b[:])
		switch err {
		case nil:
			if string(b[:n]) == e.tag {
				out = append(out, pid)
			}
		case unix.EACCES, unix.EPERM:
			// It made itself unreadable, by running a program that it may
			// execute but not read. Then it belongs to whatever is killed.
			if p, ok := stat(pid); ok && !p.zombie {
				out = append(out, pid)
			}
		}
	}
	return out
}

func (s *supervisor) count(e *exec) int { return len(s.members(e)) }

// pids lists every process in sight.
func pids() []int {
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	buf := make([]byte, 16<<10)
	var out []int
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n <= 0 {
			return out
		}
		for off := 0; off < n; {
			reclen := int(binary.NativeEndian.Uint16(buf[off+16:]))
			name := buf[off+19 : off+reclen]
			pid := 0
			for _, c := range name {
				if c < '0' || c > '9' {
					if c != 0 {
						pid = 0
					}
					break
				}
				pid = pid*10 + int(c-'0')
			}
			if pid > 0 {
				out = append(out, pid)
			}
			off += reclen
		}
	}
}

// stat reads a process' parent and state.
func stat(pid int) (process, bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return process{}, false
	}
	defer unix.Close(fd)
	var b [512]byte
	n, err := unix.Read(fd, b[:])
	if err != nil || n <= 0 {
		return process{}, false
	}
	// "pid (name) S ppid …": the name may hold anything, so look from its end.
	i := n - 1
	for i > 0 && b[i] != ')' {
		i--
	}
	if i == 0 || i+4 >= n {
		return process{}, false
	}
	p := process{pid: pid, zombie: b[i+2] == 'Z' || b[i+2] == 'X', stopped: b[i+2] == 'T'}
	j := i + 4
	for ; j < n && b[j] >= '0' && b[j] <= '9'; j++ {
		p.ppid = p.ppid*10 + int(b[j]-'0')
	}
	for field := 4; j < n && field < 22; j++ {
		if b[j] == ' ' {
			field++
		}
	}
	for ; j < n && b[j] >= '0' && b[j] <= '9'; j++ {
		p.began = p.began*10 + uint64(b[j]-'0')
	}
	return p, true
}

// descendants lists the living processes below root. They are found from
// several readings until nothing new turns up, because a process may be handed
// to another parent between two.
func descendants(root int) []int { return below(processes(), root) }

// processes reads every process in sight.
func processes() []process {
	var table []process
	for _, pid := range pids() {
		if p, ok := stat(pid); ok {
			table = append(table, p)
		}
	}
	return table
}

// below lists the living processes of a table that descend from roots.
func below(table []process, roots ...int) []int {
	in := map[int]bool{}
	for _, r := range roots {
		in[r] = true
	}
	var out []int
	for grown := true; grown; {
		grown = false
		for _, p := range table {
			if !in[p.pid] && in[p.ppid] {
				in[p.pid] = true
				grown = true
				if !p.zombie {
					out = append(out, p.pid)
				}
			}
		}
	}
	return out
}

// beginKill starts, or hastens, the end of e's tree.
func (s *supervisor) beginKill(e *exec, grace time.Duration) {
	if !e.started || e.gone {
		return
	}
	if !e.exited {
		e.byUs = true
	}
	at := time.Now().Add(grace)
	if !e.killing || at.Before(e.killAt) {
		e.killAt = at
	}
	if !e.killing && grace > 0 {
		for _, pid := range s.members(e) {
			_ = unix.Kill(pid, unix.SIGTERM)
			_ = unix.Kill(pid, unix.SIGCONT) // a stopped process would not notice
		}
	}
	e.killing = true
	signalEvent(s.wake)
}

// giveUp is how long killed processes may take to die before the host is told
// that they did not.
const giveUp = 5 * time.Second

// step advances a kill or a relay; it returns when it wants to be called again.
func (s *supervisor) step(e *exec, now time.Time) (time.Duration, bool) {
	var next time.Duration
	again := false
	if e.relay != nil && e.exited && !e.told {
		if d, wait := e.relay.step(e, now); wait {
			next, again = d, true
		}
		s.tellExit(e)
	}
	if !e.killing {
		for ; e.kills > 0 && (e.gone || e.failed); e.kills-- {
			e.pending = wire.AppendUint32(e.pending, wire.Killed, 0)
		}
		if e.exited && e.told && !e.gone && s.count(e) == 0 {
			s.treeGone(e)
		}
		e.flush()
		return next, again
	}
	if now.Before(e.killAt) {
		if s.count(e) > 0 {
			return min(e.killAt.Sub(now), 10*time.Millisecond), true
		}
	} else {
		if e.swept.IsZero() {
			e.swept = now
		}
		if s.sweep(e) > 0 {
			if now.Sub(e.swept) < giveUp {
				return tick, true
			}
			s.answerKills(e, uint32(s.count(e)))
			return next, again
		}
	}
	s.treeGone(e)
	s.answerKills(e, 0)
	s.tellExit(e)
	return next, again
}

func (s *supervisor) answerKills(e *exec, left uint32) {
	for ; e.kills > 0; e.kills-- {
		e.pending = wire.AppendUint32(e.pending, wire.Killed, left)
	}
	e.killing, e.swept = false, time.Time{}
	e.flush()
}

// treeGone notes that nothing of e is left. The command itself may still have
// to be reaped.
func (s *supervisor) treeGone(e *exec) {
	if !e.exited {
		return
	}
	e.gone = true
	if e.told && e.left > 0 {
		e.pending = wire.Append(e.pending, wire.TreeGone, nil)
		e.left = 0
	}
}

func (s *supervisor) sweep(e *exec) int {
	return sweep(func() []int { return s.members(e) })
}

// sweep stops the members of a tree until nothing new appears in it, so that it
// cannot fork faster than it is killed, then kills all of it. It returns how many
// there were.
func sweep(members func() []int) int {
	handles := map[int]int{}
	defer func() {
		for _, fd := range handles {
			_ = unix.Close(fd)
		}
	}()
	for range 64 {
		fresh := 0
		for _, pid := range members() {
			if _, known := handles[pid]; known {
				continue
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				if err != unix.ESRCH { // no descriptor left: do without
					_ = unix.Kill(pid, unix.SIGKILL)
				}
				continue
			}
			handles[pid] = fd
			fresh++
			_ = unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
		}
		if fresh == 0 {
			break
		}
	}
	for _, fd := range handles {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	return len(handles)
}

//go:build linux

package main

import (
	"time"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// relay carries the command's streams as frames, where descriptors cannot be
// passed. The host may send Window bytes of input ahead; what was taken by the
// command is given back as credit, so that a control frame never waits behind
// input. Output is read only while little waits to be sent.
type relay struct {
	stdin    int // our end, or -1
	outs     [2]int
	terminal bool

	buffered []byte // input not written yet
	window   int    // what the host may still send
	ended    bool   // host's end of input
	credit   int    // taken, not given back yet

	exitAt time.Time
	floor  [2]int // bytes that were in the pipe when the command ended, at most
	cut    bool
}

// highWater is how much output may wait to be sent before no more is read.
const highWater = 256 << 10

// drainLimit is how long output is read after the command's end when something
// else still holds its streams.
const drainLimit = 250 * time.Millisecond

// terminalHolds is more than a terminal keeps of what was printed and not read.
const terminalHolds = 256 << 10

func newPipeRelay() (*relay, [3]int, error) {
	r := &relay{stdin: -1, outs: [2]int{-1, -1}, window: wire.Window}
	var ends [3]int
	var made []int
	for i := range ends {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			for _, fd := range made {
				_ = unix.Close(fd)
			}
			return nil, ends, err
		}
		made = append(made, p[0], p[1])
		if i == 0 {
			ends[0], r.stdin = p[0], p[1]
		} else {
			r.outs[i-1], ends[i] = p[0], p[1]
		}
	}
	for _, fd := range []int{r.stdin, r.outs[0], r.outs[1]} {
		_ = unix.SetNonblock(fd, true)
	}
	return r, ends, nil
}

func newTerminalRelay(master int) *relay {
	return &relay{stdin: master, outs: [2]int{master, -1}, terminal: true, window: wire.Window}
}

func (r *relay) close() {
	if r.terminal {
		return // the exec closes its terminal
	}
	for _, fd := range []int{r.stdin, r.outs[0], r.outs[1]} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (r *relay) owns(fd int) bool {
	return fd >= 0 && (fd == r.stdin || fd == r.outs[0] || fd == r.outs[1])
}

func (r *relay) pollFDs(e *exec, add func(int, int16)) {
	reading := len(e.pending) < highWater || e.broken
	if r.terminal {
		var ev int16
		if reading && r.outs[0] >= 0 {
			ev |= unix.POLLIN
		}
		if len(r.buffered) > 0 {
			ev |= unix.POLLOUT
		}
		if ev != 0 && r.outs[0] >= 0 {
			add(r.stdin, ev)
		}
		return
	}
	if r.stdin >= 0 && len(r.buffered) > 0 {
		add(r.stdin, unix.POLLOUT)
	}
	for _, fd := range r.outs {
		if fd >= 0 && reading {
			add(fd, unix.POLLIN)
		}
	}
}

func (r *relay) ready(e *exec, fd int, events int16) {
	if fd == r.stdin && events&(unix.POLLOUT|unix.POLLERR) != 0 {
		r.write(e)
	}
	for i, o := range r.outs {
		if fd == o && events&(unix.POLLIN|unix.POLLHUP|unix.POLLERR) != 0 {
			r.read(e, i)
		}
	}
	e.flush()
}

// read moves one chunk of stream i.
func (r *relay) read(e *exec, i int) int {
	n, err := unix.Read(r.outs[i], readBuffer[:])
	if err == unix.EAGAIN || err == unix.EINTR {
		if r.terminal && err == unix.EAGAIN {
			r.floor[i] = 0
		}
		return -1
	}
	if n <= 0 || err != nil { // end, or EIO of a terminal nobody holds
		if !r.terminal {
			_ = unix.Close(r.outs[i])
		}
		r.outs[i] = -1
		return 0
	}
	if !r.cut && !e.broken {
		t := wire.Stdout
		if i == 1 {
			t = wire.Stderr
		}
		e.pending = wire.Append(e.pending, t, readBuffer[:n])
	}
	r.floor[i] -= n
	clear(readBuffer[:n])
	return n
}

// input takes bytes of the host; false when it sent more than it may.
func (r *relay) input(p []byte) bool {
	if len(p) > r.window || r.ended {
		return false
	}
	r.window -= len(p)
	if r.stdin < 0 {
		r.credit += len(p) // nobody reads it
		return true
	}
	r.buffered = append(r.buffered, p...)
	return true
}

func (r *relay) inputEnd() bool {
	if r.ended {
		return false
	}
	r.ended = true
	if r.terminal {
		r.buffered = append(r.buffered, 4) // ^D
	}
	return true
}

// write moves input to the command and gives credit.
func (r *relay) write(e *exec) {
	for len(r.buffered) > 0 && r.stdin >= 0 {
		n, err := unix.Write(r.stdin, r.buffered)
		if err == unix.EAGAIN || err == unix.EINTR {
			break
		}
		if err != nil { // it does not read any more
			n = len(r.buffered)
			if !r.terminal {
				_ = unix.Close(r.stdin)
			}
			r.stdin = -1
		}
		clear(r.buffered[:n])
		r.buffered = r.buffered[n:]
		r.credit += n
	}
	if len(r.buffered) == 0 {
		r.buffered = nil
	}
	r.pump(e)
}

// pump closes the command's input at its end and returns credit.
func (r *relay) pump(e *exec) {
	if r.ended && len(r.buffered) == 0 && r.stdin >= 0 && !r.terminal {
		_ = unix.Close(r.stdin)
		r.stdin = -1
	}
	if r.credit > 0 && !r.ended {
		e.pending = wire.AppendUint32(e.pending, wire.Credit, uint32(r.credit))
		r.window += r.credit
		r.credit = 0
	}
}

// commandEnded notes how much output is certainly the command's own.
func (r *relay) commandEnded(now time.Time) {
	r.exitAt = now
	if r.terminal {
		// It does not tell all that it holds: it hands on a part at a time.
		r.floor[0] = terminalHolds
		return
	}
	for i, fd := range r.outs {
		if fd >= 0 {
			if n, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err == nil {
				r.floor[i] = n
			}
		}
	}
}

// step cuts the output off when the command ended long enough ago.
func (r *relay) step(e *exec, now time.Time) (time.Duration, bool) {
	if r.drained() {
		return 0, false
	}
	if wait := drainLimit - now.Sub(r.exitAt); wait > 0 {
		return wait, true
	}
	if r.terminal && r.floor[0] > 0 && len(e.pending) < highWater {
		r.read(e, 0) // which tells whether there is anything left
	}
	for i, fd := range r.outs {
		if fd >= 0 && r.floor[i] > 0 && !e.broken {
			return tick, true // the command's own output is not all out
		}
	}
	r.cut = true
	return 0, false
}

// drained reports whether all output that will be sent was read.
func (r *relay) drained() bool {
	return r.cut || (r.outs[0] < 0 && r.outs[1] < 0)
}

//go:build linux

package main

import (
	"strconv"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// imageCommand is the image's own command. It runs under a supervisor of its own,
// a child of PID 1, so that its daemons are handed to that one and not taken for
// orphans. PID 1 is to it what the host is to others. Its methods bear nil: there is
// none.
type imageCommand struct {
	pid    int // of its supervisor; 0 when that is dead
	sock   int // to its supervisor, or -1
	dec    wire.Decoder
	out    []byte // for its supervisor, not sent yet
	nonce  string // of who waits for the start
	asked  bool
	status wire.ImageStatus
	nullFD int
}

// startImageSupervisor makes the supervisor, which waits for a request.
func startImageSupervisor() (*imageCommand, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, step("socket pair", err)
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, step("open /dev/null", err)
	}
	c := &child{
		flags:      unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_PARENT_SETTID | uintptr(unix.SIGCHLD),
		landlock:   noFD,
		stdio:      [3]uintptr{uintptr(fds[1]), uintptr(null), uintptr(null)},
		argv:       pointers(terminated(shimPath, "image")),
		envv:       pointers(terminated(shimEnviron()...)),
		candidates: []*byte{cstring([]byte("/proc/self/exe"))},
	}
	pid, ok := spawn(c)
	_ = unix.Close(fds[1])
	if !ok {
		return nil, step("start the image's supervisor", unix.Errno(c.errno))
	}
	_ = unix.SetNonblock(fds[0], true)
	return &imageCommand{
		pid: pid, sock: fds[0], nullFD: null,
		dec:    wire.Decoder{From: wire.FromSupervisor},
		status: wire.ImageStatus{State: wire.ImageWaiting},
	}, nil
}

// terminated returns the strings with a NUL behind each, as pointers needs them.
func terminated(list ...string) [][]byte {
	var out [][]byte
	for _, s := range list {
		b := append([]byte(s), 0)
		out = append(out, b[:len(b)-1])
	}
	return out
}

func (c *imageCommand) state() wire.ImageStatus {
	if c == nil {
		return wire.ImageStatus{}
	}
	return c.status
}

func (c *imageCommand) running() bool { return c != nil && c.status.State == wire.ImageRunning }

// over: a stop need not wait for it any more.
func (c *imageCommand) over() bool { return !c.running() }

// start hands a request on. The supervisor judges it.
func (c *imageCommand) start(p *init1, nonce string, blob []byte, refuse func(string)) {
	switch {
	case c == nil:
		refuse(wire.RefuseMode)
		return
	case c.asked:
		refuse(wire.RefuseAgain)
		return
	}
	b, ok := wire.DecodeBlob(blob)
	clear(blob)
	if !ok || !startRequest(b) {
		clear(b)
		refuse(wire.RefuseArgs)
		return
	}
	c.asked, c.nonce = true, nonce
	// Input is empty; both outputs are the container's log.
	passed := unix.UnixRights(c.nullFD, 2, 2)
	err := unix.Sendmsg(c.sock, wire.Append(nil, wire.Passed, nil), passed, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if err != nil {
		clear(b)
		c.notStarted(p, wire.StageFork, errnoOf(err))
		return
	}
	c.out = b
	c.flush()
}

// startRequest reports whether b is what a start may be: setup, arguments,
// environment, perhaps a directory, go.
func startRequest(b []byte) bool {
	d := wire.Decoder{From: wire.FromHost}
	d.Feed(b)
	defer d.Wipe()
	want := []wire.Type{wire.Setup, wire.Args, wire.Env, wire.Go}
	for {
		f, ok, err := d.Next()
		if err != nil || (ok && len(want) == 0) {
			return false
		}
		if !ok {
			return len(want) == 0 && d.Buffered() == 0
		}
		if f.Type == wire.Dir && len(want) == 1 {
			continue // twice is the supervisor's to refuse
		}
		if f.Type != want[0] {
			return false
		}
		want = want[1:]
	}
}

func (c *imageCommand) notStarted(p *init1, stage wire.Stage, errno uint32) {
	if c.nonce != "" {
		p.answer(c.nonce, wire.VerbFailed, strconv.Itoa(int(stage)), strconv.FormatUint(uint64(errno), 10))
		c.nonce = ""
	}
	c.status.State = wire.ImageLost
}

func (c *imageCommand) signal(n byte) {
	c.out = wire.Append(c.out, wire.Signal, []byte{n})
	c.flush()
}

func (c *imageCommand) events() int16 {
	if len(c.out) > 0 {
		return unix.POLLIN | unix.POLLOUT
	}
	return unix.POLLIN
}

func (c *imageCommand) flush() {
	for len(c.out) > 0 && c.sock >= 0 {
		n, err := unix.SendmsgN(c.sock, c.out, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return // full, or its end will be read
		}
		clear(c.out[:n])
		c.out = c.out[n:]
	}
}

// ready reads what its supervisor says.
func (c *imageCommand) ready(p *init1) {
	c.flush()
	n, err := unix.Read(c.sock, readBuffer[:])
	if err == unix.EAGAIN || err == unix.EINTR {
		return
	}
	if err != nil || n <= 0 {
		c.closeSocket()
		return
	}
	c.dec.Feed(readBuffer[:n])
	for {
		f, ok, err := c.dec.Next()
		if err != nil {
			c.closeSocket()
			return
		}
		if !ok {
			return
		}
		switch f.Type {
		case wire.Ready:
			c.status.State = wire.ImageRunning
			if c.nonce != "" {
				p.answer(c.nonce, wire.VerbOK)
				c.nonce = ""
			}
		case wire.Failed:
			if fail, err := wire.ParseFailure(f.Payload); err == nil {
				c.notStarted(p, fail.Stage, fail.Errno)
			}
		case wire.Exit:
			if st, err := wire.ParseExit(f.Payload); err == nil {
				c.status = wire.ImageStatus{State: wire.ImageEnded, Code: st.Code, Signal: st.Signal}
			}
		}
	}
}

// closeSocket: the supervisor ends, and its tree with it, if it has not already.
func (c *imageCommand) closeSocket() {
	_ = unix.Close(c.sock)
	c.sock = -1
	clear(c.out)
	c.out = nil
}

// died: its supervisor was reaped. What it left is handed to us, as orphans.
func (c *imageCommand) died(p *init1) {
	for c.sock >= 0 { // what it said last
		c.ready(p)
		if c.sock >= 0 && !c.more() {
			c.closeSocket()
		}
	}
	c.pid = 0
	if c.nonce != "" {
		c.notStarted(p, wire.StageProtocol, uint32(unix.EPROTO))
	}
	if c.status.State == wire.ImageRunning || c.status.State == wire.ImageWaiting {
		c.status.State = wire.ImageLost
	}
}

// more reports whether something can be read.
func (c *imageCommand) more() bool {
	fds := []unix.PollFd{{Fd: int32(c.sock), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

//go:build linux

package main

import (
	"time"
	"unsafe"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// exec is one command and everything that came of it.
type exec struct {
	in, out int // frames; the same socket, or an engine's two pipes
	dec     wire.Decoder
	pending []byte // output frames not written yet
	hostEOF bool   // the host will say no more
	tied    bool   // the tree ends with the host, also after the exit frame
	broken  bool   // the host does not read any more

	// The request, until it was started.
	args, env, dir []byte
	seen           [256]bool
	cols, rows     uint16
	killRest       bool
	passed         []int

	started, failed bool
	pid             int
	tag             string
	terminal        int // master, or -1
	relay           *relay

	exited  bool
	status  wire.ExitStatus
	told    bool // the exit frame is on its way
	left    uint32
	gone    bool // nothing of the exec is left
	byUs    bool
	kills   int // unanswered kill frames
	killing bool
	killAt  time.Time // TERM until then, KILL after
	swept   time.Time // first KILL
}

func newExec(in, out int) *exec {
	return &exec{in: in, out: out, dec: wire.Decoder{From: wire.FromHost}, terminal: -1}
}

// done reports whether the exec can be forgotten.
func (e *exec) done() bool {
	if e.failed || (e.exited && e.told && e.gone) {
		return len(e.pending) == 0 || e.broken
	}
	// Left-overs go on by themselves; nobody can ask for anything any more.
	return !e.tied && e.exited && e.told && (e.hostEOF || e.broken) && !e.killing && e.relay == nil
}

func (e *exec) close() {
	if e.in > 2 {
		_ = unix.Close(e.in)
	}
	if e.out != e.in && e.out > 2 {
		_ = unix.Close(e.out)
	}
	for _, fd := range e.passed {
		_ = unix.Close(fd)
	}
	e.passed = nil
	if e.terminal >= 0 {
		_ = unix.Close(e.terminal)
		e.terminal = -1
	}
	if e.relay != nil {
		e.relay.close()
	}
	e.dec.Wipe()
}

func (e *exec) pollFDs(fds []unix.PollFd, owners []*exec) ([]unix.PollFd, []*exec) {
	add := func(fd int, events int16) {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: events})
		owners = append(owners, e)
	}
	same := e.in == e.out
	events := int16(0)
	if !e.hostEOF {
		events = unix.POLLIN
	}
	if same && len(e.pending) > 0 && !e.broken {
		events |= unix.POLLOUT
	}
	if events != 0 {
		add(e.in, events)
	}
	if !same && len(e.pending) > 0 && !e.broken {
		add(e.out, unix.POLLOUT)
	}
	if e.relay != nil {
		e.relay.pollFDs(e, add)
	}
	return fds, owners
}

// ready handles one descriptor's events.
func (s *supervisor) ready(e *exec, fd int, events int16) {
	if e.relay != nil && e.relay.owns(fd) {
		e.relay.ready(e, fd, events)
		return
	}
	if fd == e.out && events&(unix.POLLOUT|unix.POLLERR) != 0 {
		e.flush()
	}
	if fd == e.in && events&(unix.POLLIN|unix.POLLHUP|unix.POLLERR) != 0 {
		s.read(e)
	}
}

// readBuffer is used by the loop only.
var readBuffer [wire.MaxChunk]byte

func (s *supervisor) read(e *exec) {
	for range 16 { // be fair to other execs
		var n int
		var fds []int
		var err error
		if e.in == e.out {
			n, fds, err = receive(e.in, readBuffer[:])
		} else {
			n, err = unix.Read(e.in, readBuffer[:])
		}
		if err == unix.EAGAIN || err == unix.EINTR {
			break
		}
		if len(fds) > 0 {
			if len(e.passed) > 0 || e.started {
				for _, fd := range fds {
					_ = unix.Close(fd)
				}
				err = unix.EPROTO
			} else {
				e.passed = fds
			}
		}
		if err != nil || n == 0 {
			s.hostLeft(e)
			break
		}
		e.dec.Feed(readBuffer[:n])
		clear(readBuffer[:n])
		if !s.frames(e) {
			s.hostLeft(e)
			break
		}
		if n < len(readBuffer) {
			break
		}
	}
	if e.relay != nil {
		e.relay.write(e)
	}
	e.flush()
}

// hostLeft: the transport ended. Before the exit frame that kills the tree.
func (s *supervisor) hostLeft(e *exec) {
	e.hostEOF = true
	switch {
	case !e.started:
		e.failed, e.broken = true, true
	case !e.told || e.tied:
		e.broken = true
		s.beginKill(e, 0)
	}
}

// frames handles what was decoded; false ends the conversation.
func (s *supervisor) frames(e *exec) bool {
	for {
		f, ok, err := e.dec.Next()
		if err != nil {
			return false
		}
		if !ok {
			return true
		}
		if !s.frame(e, f) {
			return false
		}
	}
}

func (s *supervisor) frame(e *exec, f wire.Frame) bool {
	switch f.Type {
	case wire.Setup, wire.Passed, wire.Args, wire.Env, wire.Dir, wire.Terminal, wire.KillRest, wire.Go:
		// Each once, and only before the start.
		if e.started || e.failed || e.seen[f.Type] {
			return false
		}
		e.seen[f.Type] = true
	default:
		if e.failed {
			return true // sent before the host knew
		}
		if !e.started {
			return false
		}
	}
	switch f.Type {
	case wire.Setup:
		if s.cfg.Jail || s.cfg.UnmarshalBinary(f.Payload) != nil || s.cfg.Jail {
			return false
		}
		if err := s.prepareConfinement(); err != nil {
			e.fail(wire.StageConfine, errnoOf(err), err.Error())
		}
		// Not before: changing every thread, as above, needs a handler.
		defaultSignals(false)
	case wire.Passed:
	case wire.Args:
		e.args = append([]byte(nil), f.Payload...)
	case wire.Env:
		e.env = append([]byte(nil), f.Payload...)
	case wire.Dir:
		e.dir = append([]byte(nil), f.Payload...)
	case wire.Terminal:
		e.cols, e.rows = wire.Size(f.Payload)
	case wire.KillRest:
		e.killRest = true
	case wire.Go:
		return s.start(e)
	case wire.Input:
		return e.relay != nil && e.relay.input(f.Payload)
	case wire.InputEnd:
		return e.relay != nil && e.relay.inputEnd()
	case wire.Resize:
		cols, rows := wire.Size(f.Payload)
		e.resize(cols, rows)
	case wire.Signal:
		if n := f.Payload[0]; n >= 1 && n <= 64 && !e.exited {
			e.byUs = true
			_ = unix.Kill(e.pid, unix.Signal(n))
		}
	case wire.Kill:
		e.kills++
		s.beginKill(e, time.Duration(wire.Uint32(f.Payload))*time.Millisecond)
	default:
		return false
	}
	return true
}

func (e *exec) fail(stage wire.Stage, errno uint32, detail string) {
	e.failed = true
	e.pending = wire.AppendFailure(e.pending, wire.Failure{Stage: stage, Errno: errno, Detail: detail})
}

// start runs the request; false when it is malformed.
func (s *supervisor) start(e *exec) bool {
	if e.failed {
		return true
	}
	args, ok1 := wire.Strings(e.args)
	env, ok2 := wire.Strings(e.env)
	if !ok1 || !ok2 || len(args) == 0 || (e.seen[wire.Passed]) != (len(e.passed) > 0) {
		return false
	}
	if s.cfg.Jail == e.seen[wire.Setup] {
		return false
	}
	c := &child{
		flags:    unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_PARENT_SETTID | uintptr(unix.SIGCHLD),
		confine:  !s.cfg.Unconfined,
		landlock: s.confine.landlock,
		seccomp:  s.confine.seccomp,
		rlimits:  s.confine.rlimits,
		argv:     pointers(args),
		envv:     pointers(env),
	}
	if s.cfg.TagExecs {
		c.flags |= unix.CLONE_NEWUTS
		c.tagPath = tagPath
	}
	if !s.cfg.Jail && s.cfg.IDs == wire.IDSet {
		c.setIDs, c.uid, c.gid = true, uintptr(s.cfg.UID), uintptr(s.cfg.GID)
	}
	var who account
	if s.cfg.IDs == wire.IDUser && !s.cfg.Jail {
		var lost *stepError
		if who, lost = lookUp(s.cfg.User); lost != nil {
			e.fail(wire.StageUser, errnoOf(lost), lost.step)
			return true
		}
		c.setIDs, c.uid, c.gid, c.groups = true, uintptr(who.uid), uintptr(who.gid), who.groups
		if who.uid == 0 {
			c.caps = &s.confine.root
		}
		env = withHome(env, who.home)
		c.envv = pointers(env)
	}
	if len(e.dir) > 0 {
		c.dir = cstring(e.dir)
	}
	c.candidates, c.search = candidates(args[0], env)
	var childEnds []int
	if !s.streams(e, c, &who, &childEnds) {
		return true
	}
	pid, ok := spawn(c)
	for _, fd := range childEnds {
		_ = unix.Close(fd)
	}
	clear(e.env)
	e.args, e.env, e.dir = nil, nil, nil
	s.childMade()
	if !ok {
		e.fail(c.stage, uint32(c.errno), "")
		return true
	}
	e.started, e.pid, e.tag = true, pid, string(c.tag[:c.tagLen])
	// A tag that comes back belonged to an exec of which nothing is left.
	for _, o := range s.execs {
		if o != e && o.tag == e.tag && o.tag != "" {
			o.gone, o.tag = true, ""
		}
	}
	s.byPID[pid] = e
	ready := wire.AppendUint32(nil, wire.Ready, uint32(pid))
	if e.terminal >= 0 && e.relay == nil {
		// The host drives the terminal itself.
		if len(e.pending) == 0 && sendWithFD(e.out, ready, e.terminal) == nil {
			return true
		}
		e.broken = true
		s.beginKill(e, 0)
		return true
	}
	e.pending = append(e.pending, ready...)
	return true
}

var tagPath = cstring([]byte("/proc/self/ns/uts"))

// streams sets the command's standard streams up.
func (s *supervisor) streams(e *exec, c *child, who *account, childEnds *[]int) bool {
	for i := range c.stdio {
		c.stdio[i] = uintptr(s.nullFD)
	}
	switch {
	case e.seen[wire.Terminal]:
		if s.cfg.IDs == wire.IDUser {
			// Its owner is who opens it; giving it away later takes a capability
			// that we do not have.
			_ = unix.Setfsuid(int(who.uid))
		}
		master, slave, err := openTerminal(e.cols, e.rows)
		if s.cfg.IDs == wire.IDUser {
			_ = unix.Setfsuid(unix.Geteuid())
		}
		if err != nil {
			e.fail(wire.StageTerminal, errnoOf(err), "")
			return false
		}
		if s.cfg.IDs == wire.IDSet && !s.cfg.Jail {
			_ = unix.Fchown(slave, int(s.cfg.UID), int(s.cfg.GID))
		}
		*childEnds = append(*childEnds, slave)
		c.stdio = [3]uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}
		c.terminal = true
		e.terminal = master
		if !e.seen[wire.Passed] {
			e.relay = newTerminalRelay(master)
		} else {
			for _, fd := range e.passed {
				_ = unix.Close(fd)
			}
			e.passed = nil
		}
	case e.seen[wire.Passed]:
		if len(e.passed) != 3 {
			e.fail(wire.StageProtocol, uint32(unix.EINVAL), "")
			return false
		}
		for i, fd := range e.passed {
			c.stdio[i] = uintptr(fd)
		}
		*childEnds = append(*childEnds, e.passed...)
		e.passed = nil
	default:
		r, ends, err := newPipeRelay()
		if err != nil {
			e.fail(wire.StageFork, errnoOf(err), "")
			return false
		}
		for i, fd := range ends {
			c.stdio[i] = uintptr(fd)
		}
		*childEnds = append(*childEnds, ends[:]...)
		e.relay = r
	}
	return true
}

// commandEnded runs in the reaper when the command itself was reaped. none: the
// supervisor has no child left at all.
func (s *supervisor) commandEnded(e *exec, ws unix.WaitStatus, none bool) {
	e.exited = true
	if ws.Signaled() {
		e.status.Signal = byte(ws.Signal())
	} else {
		e.status.Code = byte(ws.ExitStatus())
	}
	if none || s.count(e) == 0 {
		e.gone = true
	} else if e.killRest && !e.killing {
		s.beginKill(e, 0)
	}
	if e.relay != nil {
		e.relay.commandEnded(time.Now())
		signalEvent(s.wake)
		return
	}
	s.tellExit(e)
}

// tellExit sends the exit frame, unless it has to wait for the left-overs to be
// killed or for output.
func (s *supervisor) tellExit(e *exec) {
	if e.told || !e.exited || (e.killRest && !e.gone) {
		return
	}
	if e.relay != nil && !e.relay.drained() {
		return
	}
	e.told = true
	if !e.gone {
		e.left = uint32(max(s.count(e), 1))
	}
	e.status.Left, e.status.ByUs = e.left, e.byUs
	e.pending = wire.AppendExit(e.pending, e.status)
	e.flush()
}

// flush writes what it can.
func (e *exec) flush() {
	for len(e.pending) > 0 && !e.broken {
		var n int
		var err error
		if e.in == e.out {
			n, err = unix.SendmsgN(e.out, e.pending, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		} else {
			n, err = unix.Write(e.out, e.pending)
		}
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN {
			return
		}
		if err != nil {
			e.broken = true
			return
		}
		e.pending = append(e.pending[:0], e.pending[n:]...)
	}
}

func sendWithFD(sock int, b []byte, fd int) error {
	_, err := unix.SendmsgN(sock, b, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
	return err
}

func cstring(b []byte) *byte {
	c := make([]byte, len(b)+1)
	copy(c, b)
	return &c[0]
}

// pointers returns a nil-terminated vector. The strings are NUL-terminated in
// the payload they came from.
func pointers(list [][]byte) []*byte {
	out := make([]*byte, len(list)+1)
	for i, b := range list {
		out[i] = unsafe.SliceData(b[:len(b):cap(b)])
	}
	return out
}

// withHome adds HOME to an environment that has none.
func withHome(env [][]byte, home string) [][]byte {
	for _, kv := range env {
		if len(kv) >= 5 && string(kv[:5]) == "HOME=" {
			return env
		}
	}
	b := append([]byte("HOME="+home), 0)
	return append(env, b[:len(b)-1])
}

const defaultPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// candidates lists the paths that execvp would try, and whether they are those of
// PATH. Relative directories in PATH are passed over.
func candidates(name []byte, env [][]byte) (paths []*byte, search bool) {
	for _, c := range name {
		if c == '/' {
			return []*byte{cstring(name)}, false
		}
	}
	if len(name) == 0 {
		return []*byte{cstring(nil)}, false
	}
	path := []byte(defaultPath)
	for _, kv := range env {
		if len(kv) >= 5 && string(kv[:5]) == "PATH=" {
			path = kv[5:]
		}
	}
	for start := 0; start <= len(path); {
		end := start
		for end < len(path) && path[end] != ':' {
			end++
		}
		if d := path[start:end]; len(d) > 0 && d[0] == '/' {
			p := append(append(append([]byte(nil), d...), '/'), name...)
			paths = append(paths, cstring(p))
		}
		start = end + 1
	}
	return paths, true
}

func errnoOf(err error) uint32 {
	for err != nil {
		if e, ok := err.(unix.Errno); ok {
			return uint32(e)
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			break
		}
		err = u.Unwrap()
	}
	return uint32(unix.EIO)
}

//go:build linux

package main

import (
	"os"
	"syscall"
	"unsafe"

	"github.com/sbxhost/sbxhost/internal/shim/beneath"
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// fileServer answers file operations, one after another. It stays root for signals
// and tracing, so that the user's own commands cannot reach it, and acts with the
// user's file system identity and capabilities.
type fileServer struct {
	dec  wire.Decoder
	root int
	out  []byte
	buf  []byte // of content
}

// errLeft: the host is gone, or does not keep to the protocol.
var errLeft = &stepError{"the host left", unix.EPIPE}

// errCanceled ends an operation that the host does not want any more.
var errCanceled = &stepError{"canceled", unix.ECANCELED}

func runFiles() {
	prestart(2)
	if hide() != nil {
		os.Exit(125)
	}
	unix.CloseOnExec(0)
	unix.CloseOnExec(1)
	s := &fileServer{dec: wire.Decoder{From: wire.FilesFromHost}, root: -1, buf: make([]byte, wire.MaxChunk)}
	if s.setup() != nil {
		os.Exit(125)
	}
	for {
		f, err := s.next()
		if err != nil {
			os.Exit(0)
		}
		if f.Type == wire.FileCancel {
			continue // it crossed the answer
		}
		err = s.serve(f)
		switch {
		case err == error(errLeft):
			os.Exit(125)
		case err == error(errAnswered):
			continue
		case err != nil:
			s.out = wire.AppendFault(s.out, faultOf(err))
		default:
			s.out = wire.Append(s.out, wire.FileDone, nil)
		}
		if s.flush() != nil {
			os.Exit(125)
		}
	}
}

// setup takes the first frame and becomes the user.
func (s *fileServer) setup() error {
	f, err := s.next()
	if err != nil {
		return err
	}
	var cfg wire.Config
	if f.Type != wire.Setup || cfg.UnmarshalBinary(f.Payload) != nil || cfg.IDs != wire.IDUser || cfg.Jail {
		return errLeft
	}
	err = become(&cfg)
	if err == nil {
		s.root, err = unix.Open(cfg.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		s.out = wire.AppendFault(s.out, wire.FileFault{Kind: wire.FaultSetup, Errno: errnoOf(err), Path: stepOf(err)})
		_ = s.flush()
		return err
	}
	s.out = wire.Append(s.out, wire.FileReady, nil)
	return s.flush()
}

func stepOf(err error) string {
	if e, ok := err.(*stepError); ok {
		return e.step
	}
	return "root"
}

// become takes on a user's file system identity, in every thread.
func become(cfg *wire.Config) error {
	who, lost := lookUp(cfg.User)
	if lost != nil {
		return lost
	}
	if unix.Geteuid() == 0 {
		groups := append([]uint32(nil), who.groups...)
		if _, _, e := syscall.AllThreadsSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0); e != 0 {
			return step("groups", e)
		}
		_, _, _ = syscall.AllThreadsSyscall(unix.SYS_SETFSGID, uintptr(who.gid), 0, 0)
		_, _, _ = syscall.AllThreadsSyscall(unix.SYS_SETFSUID, uintptr(who.uid), 0, 0)
	}
	// The call says nothing of its success but the identity in force.
	if now, _ := unix.SetfsuidRetUid(-1); now != int(who.uid) {
		return step("user", unix.EPERM)
	}
	if now, _ := unix.SetfsgidRetGid(-1); now != int(who.gid) {
		return step("group", unix.EPERM)
	}
	keep := uint64(0)
	if who.uid == 0 {
		keep = cfg.Keep &^ (1<<unix.CAP_KILL | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID)
	}
	// The marker stays with us: see supervisor.prepareConfinement. It opens nothing.
	if _, err := keepCaps(keep | 1<<unix.CAP_SETPCAP); err != nil {
		return err
	}
	return step("no new privileges", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

// next waits for the next frame.
func (s *fileServer) next() (wire.Frame, error) {
	for {
		f, ok, err := s.dec.Next()
		if err != nil {
			return f, errLeft
		}
		if ok {
			return f, nil
		}
		n, err := unix.Read(0, readBuffer[:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			wait(0, unix.POLLIN)
			continue
		case err != nil || n == 0:
			return f, errLeft
		}
		s.dec.Feed(readBuffer[:n])
	}
}

// canceled looks, without waiting, whether the host said something in the middle of
// our answer: that can only be a cancel.
func (s *fileServer) canceled() error {
	fds := []unix.PollFd{{Fd: 0, Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); s.dec.Buffered() == 0 && (err != nil || n == 0) {
		return nil
	}
	f, err := s.next()
	if err != nil || f.Type != wire.FileCancel {
		return errLeft
	}
	return errCanceled
}

func wait(fd int, events int16) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, -1)
}

// flush writes all of the answer so far; a slow reader is waited for.
func (s *fileServer) flush() error {
	for done := 0; done < len(s.out); {
		n, err := unix.Write(1, s.out[done:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			wait(1, unix.POLLOUT)
		case err != nil:
			return errLeft
		default:
			done += n
		}
	}
	s.out = s.out[:0]
	return nil
}

// say appends to the answer and sends it in good portions.
func (s *fileServer) say(b []byte) error {
	s.out = b
	if len(s.out) < wire.MaxChunk {
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	return s.canceled()
}

func (s *fileServer) serve(f wire.Frame) error {
	arg := f.Payload
	switch f.Type {
	case wire.FileOpen:
		return s.open(string(arg))
	case wire.FileWrite:
		return s.write(wire.Uint32(arg), string(arg[4:]))
	case wire.FileList:
		return s.list(string(arg))
	case wire.FileStat:
		return s.stat(string(arg))
	case wire.FileRemove:
		if arg[0] > 1 {
			return errLeft
		}
		name, err := beneath.Clean(string(arg[1:]))
		if err != nil {
			return err
		}
		return beneath.Remove(s.root, name, arg[0] == 1)
	case wire.FileMkdir:
		mode := wire.Uint32(arg)
		name, err := beneath.Clean(string(arg[4:]))
		if err != nil {
			return err
		}
		return beneath.Mkdir(s.root, name, mode&0o777)
	case wire.FileExport:
		return beneath.Walk(s.root, s.export)
	case wire.FileImport:
		return s.importAll()
	}
	return errLeft
}

func infoOf(name string, st *unix.Stat_t, target string) wire.Info {
	i := wire.Info{Mode: st.Mode, Name: name, Target: target}
	sec, nsec := st.Mtim.Unix()
	i.Sec, i.Nsec = sec, uint32(nsec)
	if m := st.Mode & unix.S_IFMT; m == unix.S_IFREG || m == unix.S_IFLNK {
		i.Size = uint64(max(st.Size, 0))
	}
	return i
}

func (s *fileServer) open(name string) error {
	name, err := beneath.Clean(name)
	if err != nil {
		return err
	}
	fd, st, err := beneath.Open(s.root, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := s.say(wire.AppendInfo(s.out, wire.FileInfo, infoOf(name, &st, ""))); err != nil {
		return err
	}
	for {
		n, err := unix.Read(fd, s.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		if err := s.say(wire.Append(s.out, wire.FileData, s.buf[:n])); err != nil {
			return err
		}
	}
}

func (s *fileServer) list(name string) error {
	name, err := beneath.Clean(name)
	if err != nil {
		return err
	}
	return beneath.List(s.root, name, func(e beneath.Entry) error {
		return s.say(wire.AppendInfo(s.out, wire.FileInfo, infoOf(e.Name, &e.Stat, e.Target)))
	})
}

func (s *fileServer) stat(name string) error {
	name, err := beneath.Clean(name)
	if err != nil {
		return err
	}
	st, target, err := beneath.Stat(s.root, name)
	if err != nil {
		return err
	}
	s.out = wire.AppendInfo(s.out, wire.FileInfo, infoOf(name, &st, target))
	return nil
}

// write takes the content, all of it also when it cannot be kept: the host is told
// at once, by our answer, and ends it.
func (s *fileServer) write(mode uint32, name string) error {
	name, err := beneath.Clean(name)
	var p *beneath.Pending
	if err == nil {
		p, err = beneath.Create(s.root, name, mode&0o777)
	}
	if err != nil {
		return s.refuseRest(err)
	}
	defer p.Abort()
	for {
		f, lost := s.next()
		if lost != nil {
			return lost
		}
		switch f.Type {
		case wire.FileChunk:
			if _, err := p.Write(f.Payload); err != nil {
				return s.refuseRest(err)
			}
		case wire.FileEnd:
			return p.Commit(nil)
		case wire.FileCancel:
			return errCanceled
		default:
			return errLeft
		}
	}
}

// refuseRest answers a failed write or import before its end, then passes over what
// is still on its way. It returns what the loop does not have to say any more.
func (s *fileServer) refuseRest(cause error) error {
	s.out = wire.AppendFault(s.out[:0], faultOf(cause))
	if s.flush() != nil {
		return errLeft
	}
	for {
		f, err := s.next()
		if err != nil {
			return err
		}
		switch f.Type {
		case wire.FileChunk, wire.FileEntry:
		case wire.FileEnd, wire.FileCancel:
			return errAnswered
		default:
			return errLeft
		}
	}
}

// errAnswered: the answer was sent already.
var errAnswered = &stepError{"answered", unix.EALREADY}

func (s *fileServer) export(e beneath.Entry, fd int) error {
	i := infoOf(e.Name, &e.Stat, e.Target)
	if fd < 0 {
		i.Size = 0
		return s.say(wire.AppendInfo(s.out, wire.FileInfo, i))
	}
	if err := s.say(wire.AppendInfo(s.out, wire.FileInfo, i)); err != nil {
		return err
	}
	for left := i.Size; left > 0; {
		b := s.buf[:min(uint64(len(s.buf)), left)]
		n, err := unix.Read(fd, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &beneath.PathError{Path: e.Name, Err: err}
		}
		if n == 0 { // it shrank meanwhile
			clear(b)
			n = len(b)
		}
		left -= uint64(n)
		if err := s.say(wire.Append(s.out, wire.FileData, b[:n])); err != nil {
			return err
		}
	}
	return nil
}

// importAll takes entries up to the end.
func (s *fileServer) importAll() error {
	for {
		f, err := s.next()
		if err != nil {
			return err
		}
		switch f.Type {
		case wire.FileEnd:
			return nil
		case wire.FileCancel:
			return errCanceled
		case wire.FileEntry:
		default:
			return errLeft
		}
		i, err := wire.ParseInfo(f.Payload)
		if err != nil {
			return errLeft
		}
		switch err := s.importEntry(i); err {
		case nil:
		case error(errLeft), error(errCanceled):
			return err
		default:
			return s.refuseRest(&beneath.PathError{Path: i.Name, Err: err})
		}
	}
}

func (s *fileServer) importEntry(i wire.Info) error {
	name, err := beneath.Clean(i.Name)
	if err != nil {
		return err
	}
	mode := i.Mode & 0o777
	mtime := unix.Timespec{Sec: i.Sec, Nsec: int64(i.Nsec)}
	switch m := i.Mode & unix.S_IFMT; {
	case m == unix.S_IFDIR && i.Final:
		err := beneath.SetDir(s.root, name, mode, mtime)
		if err == unix.ENOENT {
			err = nil // removed meanwhile
		}
		return err
	case m == unix.S_IFDIR:
		return beneath.Mkdir(s.root, name, 0o700)
	case m == unix.S_IFLNK:
		return beneath.Symlink(s.root, name, i.Target, mtime)
	case m == unix.S_IFREG && i.Target != "":
		old, err := beneath.Clean(i.Target)
		if err != nil {
			return err
		}
		return beneath.Link(s.root, name, old)
	case m != unix.S_IFREG:
		return errLeft
	}
	p, err := beneath.Replace(s.root, name, mode)
	if err != nil {
		return err
	}
	defer p.Abort()
	for left := i.Size; left > 0; {
		f, err := s.next()
		if err != nil {
			return err
		}
		switch {
		case f.Type == wire.FileCancel:
			return errCanceled
		case f.Type != wire.FileChunk || uint64(len(f.Payload)) > left:
			return errLeft
		}
		left -= uint64(len(f.Payload))
		if _, err := p.Write(f.Payload); err != nil {
			return err
		}
	}
	return p.Commit(&mtime)
}

// faultOf says why an operation failed.
func faultOf(err error) wire.FileFault {
	f := wire.FileFault{Kind: wire.FaultErrno}
	if p, ok := err.(*beneath.PathError); ok {
		f.Path, err = p.Path, p.Err
	}
	switch err {
	case beneath.ErrDirectory:
		f.Kind = wire.FaultDirectory
	case beneath.ErrSpecial:
		f.Kind = wire.FaultSpecial
	case beneath.ErrAbsolute:
		f.Kind = wire.FaultAbsolute
	case beneath.ErrOutside:
		f.Kind = wire.FaultOutside
	case beneath.ErrNUL:
		f.Kind = wire.FaultNUL
	case beneath.ErrRoot:
		f.Kind = wire.FaultRoot
	case beneath.ErrDepth:
		f.Kind = wire.FaultDepth
	case error(errCanceled):
		f.Kind = wire.FaultCanceled
	default:
		f.Errno = errnoOf(err)
	}
	return f
}

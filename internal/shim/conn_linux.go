package shim

import (
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// SocketPair returns a connected pair: the host's end, and the supervisor's,
// which is passed on as a descriptor.
func SocketPair() (*Socket, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	// Only our end may be non-blocking: the flag belongs to each end.
	_ = unix.SetNonblock(fds[1], false)
	f := os.NewFile(uintptr(fds[0]), "supervisor")
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		_ = unix.Close(fds[1])
		return nil, nil, err
	}
	return &Socket{f: f, raw: raw}, os.NewFile(uintptr(fds[1]), "supervisor end"), nil
}

// Socket is the host's end of a connection to a local supervisor.
type Socket struct {
	f   *os.File
	raw syscall.RawConn

	mu    sync.Mutex
	files []*os.File
}

// Read reads bytes and keeps descriptors that came with them for TakeFile.
func (s *Socket) Read(p []byte) (int, error) {
	var n, oobn int
	var err error
	var oob [64]byte
	rerr := s.raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, _, _, err = unix.Recvmsg(int(fd), p, oob[:], unix.MSG_CMSG_CLOEXEC)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	if rerr != nil {
		return 0, rerr
	}
	if err != nil {
		return 0, err
	}
	if oobn > 0 {
		msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return n, err
		}
		for i := range msgs {
			fds, err := unix.ParseUnixRights(&msgs[i])
			if err != nil {
				continue
			}
			s.mu.Lock()
			for _, fd := range fds {
				_ = unix.SetNonblock(fd, true)
				s.files = append(s.files, os.NewFile(uintptr(fd), "passed"))
			}
			s.mu.Unlock()
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Write writes all of p.
func (s *Socket) Write(p []byte) (int, error) { return s.send(p, nil) }

// WriteFiles implements FileConn.
func (s *Socket) WriteFiles(b []byte, files ...*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = rawFD(f)
	}
	_, err := s.send(b, unix.UnixRights(fds...))
	return err
}

func (s *Socket) send(p, oob []byte) (int, error) {
	done := 0
	for done < len(p) {
		var n int
		var err error
		werr := s.raw.Write(func(fd uintptr) bool {
			for {
				n, err = unix.SendmsgN(int(fd), p[done:], oob, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
				if err != unix.EINTR {
					return err != unix.EAGAIN
				}
			}
		})
		if werr != nil {
			return done, werr
		}
		if err != nil {
			return done, err
		}
		done += n
		oob = nil
	}
	return done, nil
}

// TakeFile implements FileConn.
func (s *Socket) TakeFile() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.files) == 0 {
		return nil
	}
	f := s.files[0]
	s.files = s.files[1:]
	return f
}

// Close closes the socket and descriptors nobody took.
func (s *Socket) Close() error {
	s.mu.Lock()
	for _, f := range s.files {
		_ = f.Close()
	}
	s.files = nil
	s.mu.Unlock()
	return s.f.Close()
}

// rawFD returns f's descriptor without making it blocking, as File.Fd would.
func rawFD(f *os.File) int {
	fd := -1
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(u uintptr) { fd = int(u) })
	}
	return fd
}

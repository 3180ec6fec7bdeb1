package shim

import (
	"os"

	"golang.org/x/sys/unix"
)

// buffered returns how many bytes can be read from a pipe without waiting.
func buffered(f *os.File) int {
	n := 0
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	return n
}

// readNow reads what is there, without waiting. more is false when that was nothing.
func readNow(f *os.File, b []byte) (n int, more bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, false
	}
	_ = raw.Read(func(fd uintptr) bool {
		for {
			if n, err = unix.Read(int(fd), b); err != unix.EINTR {
				return true
			}
		}
	})
	n = max(n, 0)
	return n, n > 0
}

func setSize(f *os.File, cols, rows uint16) error {
	var err error
	raw, rerr := f.SyscallConn()
	if rerr != nil {
		return rerr
	}
	rerr = raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows})
	})
	if rerr != nil {
		return rerr
	}
	return err
}

// pipes makes a command's streams; the command's ends block, ours do not.
func pipes(n int) (ours, theirs []*os.File, err error) {
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours)
			closeAll(theirs)
			return nil, nil, err
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	// os.Pipe makes both ends non-blocking, and that flag travels.
	for _, f := range theirs {
		_ = unix.SetNonblock(rawFD(f), false)
	}
	return ours, theirs, nil
}

// swapBlocking makes a block and b not.
func swapBlocking(a, b *os.File) {
	_ = unix.SetNonblock(rawFD(a), false)
	_ = unix.SetNonblock(rawFD(b), true)
}

//go:build linux

package main

import (
	"golang.org/x/sys/unix"
)

// openTerminal makes a pseudo-terminal of the given size. Both descriptors are
// close-on-exec; the master does not block.
func openTerminal(cols, rows uint16) (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, -1, err
	}
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err == nil {
		setSize(master, cols, rows)
		slave, err = openPeer(master)
	}
	if err != nil {
		_ = unix.Close(master)
		return -1, -1, err
	}
	return master, slave, nil
}

// openPeer opens the other end without a path.
func openPeer(master int) (int, error) {
	r, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		return -1, e
	}
	return int(r), nil
}

func setSize(fd int, cols, rows uint16) {
	_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows})
}

func (e *exec) resize(cols, rows uint16) {
	if e.terminal >= 0 {
		setSize(e.terminal, cols, rows)
	}
}

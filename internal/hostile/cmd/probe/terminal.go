//go:build linux

package main

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

// terminalAttempts attack terminals: the host's, and the one of this command
// when it has one.
func terminalAttempts() []attempt {
	own := func(name string, try func(fd uintptr) error) attempt {
		return attempt{name, func(*hostile.Config) hostile.Result {
			// Without a terminal the call must be refused before the kernel can
			// say ENOTTY, or fail with it: there is nothing to attack.
			err := try(0)
			if errors.Is(err, unix.ENOTTY) {
				return refused("no terminal")
			}
			return judge(err, name, unix.EIO, unix.EFAULT)
		}}
	}
	ch := byte('x')
	ioctl := func(fd uintptr, request uintptr, arg unsafe.Pointer) error {
		return call(unix.SYS_IOCTL, fd, request, uintptr(arg))
	}
	return []attempt{
		own("tiocsti", func(fd uintptr) error { return ioctl(fd, unix.TIOCSTI, unsafe.Pointer(&ch)) }),
		own("tiocsti-high-bits", func(fd uintptr) error { return ioctl(fd, 1<<32|unix.TIOCSTI, unsafe.Pointer(&ch)) }),
		own("tioclinux", func(fd uintptr) error {
			sub := byte(3)
			return ioctl(fd, 0x541C, unsafe.Pointer(&sub))
		}),
		own("tioccons", func(fd uintptr) error { return ioctl(fd, 0x541D, nil) }),
		{"tiocsctty-steal", func(c *hostile.Config) hostile.Result {
			return hostTTY(c, func(fd int) error { return unix.IoctlSetInt(fd, unix.TIOCSCTTY, 1) })
		}},
		{"host-tty-open", func(c *hostile.Config) hostile.Result {
			return hostTTY(c, func(int) error { return nil })
		}},
		{"host-tty-list", func(*hostile.Config) hostile.Result {
			entries, err := os.ReadDir("/dev/pts")
			n := 0
			for _, e := range entries {
				if e.Name() == "ptmx" {
					continue
				}
				// One's own terminal does not count.
				var st, mine unix.Stat_t
				if unix.Stat("/dev/pts/"+e.Name(), &st) == nil && unix.Fstat(0, &mine) == nil && st.Rdev == mine.Rdev && st.Ino == mine.Ino {
					continue
				}
				n++
			}
			if err == nil && n == 0 {
				return refused("none but its own")
			}
			return judge(underlying(err), "sees terminals")
		}},
	}
}

func hostTTY(c *hostile.Config, f func(fd int) error) hostile.Result {
	if c.HostTTY == "" {
		return broken("no terminal configured")
	}
	fd, err := unix.Open(c.HostTTY, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return judge(err, "opened", unix.EIO)
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != c.HostTTYDevice {
		return refused("another terminal of that path")
	}
	return judge(f(fd), "reached the host's terminal")
}

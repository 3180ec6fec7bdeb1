//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func ignoreBrokenPipe() { signal.Ignore(syscall.SIGPIPE) }

// writable waits until a stream takes more, so long at most, and reports whether it
// does. What is no file always does.
func writable(stream any, limit time.Duration) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return true
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLOUT}}
	for end := time.Now().Add(limit); ; {
		n, err := unix.Poll(fds, max(0, int(time.Until(end).Milliseconds())))
		if !errors.Is(err, unix.EINTR) {
			return n > 0 || err != nil
		}
	}
}

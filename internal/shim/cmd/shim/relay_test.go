//go:build linux

package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// What a command printed on its terminal before it ended is passed on, also when the
// supervisor comes to read it late, and whether or not something still holds it.
func TestTerminalIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		master, slave, err := openTerminal(80, 24)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		// More than is handed on at a time, and less than a terminal takes unread.
		printed := append(bytes.Repeat([]byte("0123456789abcde\n"), 400), "the end\n"...)
		if n, err := unix.Write(slave, printed); n != len(printed) {
			t.Fatal(n, err)
		}
		if !held {
			_ = unix.Close(slave)
		}
		e := newExec(ours[0], ours[0])
		e.terminal, e.relay = master, newTerminalRelay(master)
		e.relay.commandEnded(time.Now().Add(-time.Minute))
		d := wire.Decoder{From: wire.FromSupervisor}
		var got []byte
		for again := true; again; {
			if _, again = e.relay.step(e, time.Now()); again {
				var fds []unix.PollFd
				fds, _ = e.pollFDs(fds, nil)
				if n, _ := unix.Poll(fds, 2); n > 0 && fds[len(fds)-1].Revents != 0 && e.relay.owns(int(fds[len(fds)-1].Fd)) {
					e.relay.ready(e, master, fds[len(fds)-1].Revents)
				}
			}
			e.flush()
			buf := make([]byte, 64<<10)
			if n, err := unix.Read(ours[1], buf); err == nil {
				d.Feed(buf[:n])
			}
			for {
				f, ok, err := d.Next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				got = append(got, f.Payload...)
			}
		}
		if want := bytes.ReplaceAll(printed, []byte("\n"), []byte("\r\n")); !bytes.Equal(got, want) {
			t.Errorf("held %v: %d bytes of %d", held, len(got), len(want))
		}
		if held {
			_ = unix.Close(slave)
		}
		e.close()
		_ = unix.Close(ours[1])
	}
}

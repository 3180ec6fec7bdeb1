//go:build linux

package main

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

func resourceAttempts() []attempt {
	return []attempt{
		{"fork-bomb", func(c *hostile.Config) hostile.Result {
			if c.PIDs == 0 {
				return broken("no limit configured")
			}
			var pids []int
			defer func() {
				for _, pid := range pids {
					_ = unix.Kill(pid, unix.SIGKILL)
					_, _ = unix.Wait4(pid, nil, 0, nil)
				}
			}()
			for len(pids) <= c.PIDs {
				pid, no := forkThen(unix.SYS_PPOLL, 0, 0) // without a time limit
				if no != 0 {
					if no == unix.EAGAIN || no == unix.ENOMEM {
						return refused("%d children, then %v", len(pids), error(no))
					}
					return broken("fork: %v", error(no))
				}
				pids = append(pids, int(pid))
			}
			return succeeded("%d children with a limit of %d", len(pids), c.PIDs)
		}},
		{"thread-bomb", func(c *hostile.Config) hostile.Result {
			if c.PIDs == 0 {
				return broken("no limit configured")
			}
			// Tasks that share much, as threads do. Real threads would have to be
			// the Go runtime's, which dies when it cannot have one.
			var pids []int
			defer func() {
				for _, pid := range pids {
					_ = unix.Kill(pid, unix.SIGKILL)
					_, _ = unix.Wait4(pid, nil, unix.WALL, nil)
				}
			}()
			for len(pids) <= c.PIDs {
				pid, _, no := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_FILES|unix.CLONE_FS|unix.CLONE_SYSVSEM, 0, 0, 0, 0, 0)
				if no != 0 {
					if no == unix.EAGAIN || no == unix.ENOMEM {
						return refused("%d tasks, then %v", len(pids), error(no))
					}
					return broken("clone: %v", error(no))
				}
				if pid == 0 {
					for {
						_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
					}
				}
				pids = append(pids, int(pid))
			}
			return succeeded("%d tasks with a limit of %d", len(pids), c.PIDs)
		}},
		{"memory-bomb", func(c *hostile.Config) hostile.Result {
			if c.MemoryMiB == 0 {
				return broken("no limit configured")
			}
			const step = 8 << 20
			want := 2 * c.MemoryMiB << 20
			for got := 0; got < want; got += step {
				b, err := unix.Mmap(-1, 0, step, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
				if err != nil {
					return refused("%d MiB, then %v", got>>20, err)
				}
				for i := 0; i < len(b); i += 4096 {
					b[i] = 1
				}
			}
			return succeeded("%d MiB with a limit of %d", want>>20, c.MemoryMiB)
		}},
		{"fill-tmp", func(c *hostile.Config) hostile.Result {
			if c.TmpMiB == 0 {
				return broken("no limit configured")
			}
			return fill("/tmp/probe-fill", c.TmpMiB)
		}},
		{"fill-shm", func(c *hostile.Config) hostile.Result {
			if c.TmpMiB == 0 {
				return broken("no limit configured")
			}
			return fill("/dev/shm/probe-fill", c.TmpMiB)
		}},
		{"fill-root", func(c *hostile.Config) hostile.Result { return fill("/probe-fill", 16) }},
	}
}

// fill writes up to mib MiB to path.
func fill(path string, mib int) hostile.Result {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return judge(underlying(err), "created "+path)
	}
	defer func() { _ = f.Close(); _ = os.Remove(path) }()
	block := make([]byte, 1<<20)
	for i := range mib {
		if _, err := f.Write(block); err != nil {
			if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) || errors.Is(err, syscall.ENOMEM) {
				return refused("%d MiB, then %v", i, err)
			}
			return broken("write: %v", err)
		}
	}
	return succeeded("%d MiB written to %s", mib, path)
}

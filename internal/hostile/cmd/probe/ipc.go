//go:build linux

package main

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

func ipcAttempts() []attempt {
	return []attempt{
		{"sysv-shm", func(c *hostile.Config) hostile.Result {
			if c.ShmKey == 0 {
				return broken("no segment configured")
			}
			id, err := unix.SysvShmGet(c.ShmKey, 0, 0)
			if err != nil {
				return judge(err, "found the segment")
			}
			_, err = unix.SysvShmAttach(id, 0, unix.SHM_RDONLY)
			return judge(err, "attached the host's segment")
		}},
		{"sysv-shm-list", func(*hostile.Config) hostile.Result {
			var info [256]byte
			const shmInfo = 14
			_, err := callValue(unix.SYS_SHMCTL, 0, shmInfo, uintptr(unsafe.Pointer(&info)))
			used := *(*int32)(unsafe.Pointer(&info[0]))
			if err == nil && used == 0 {
				return refused("no segment in this namespace")
			}
			return judge(err, "sees the segments of the host")
		}},
		{"sysv-msg", func(c *hostile.Config) hostile.Result {
			if c.MsgKey == 0 {
				return broken("no queue configured")
			}
			return judge(call(unix.SYS_MSGGET, uintptr(c.MsgKey), 0), "found the host's queue")
		}},
		{"sysv-sem", func(c *hostile.Config) hostile.Result {
			if c.SemKey == 0 {
				return broken("no semaphores configured")
			}
			return judge(call(unix.SYS_SEMGET, uintptr(c.SemKey), 0, 0), "found the host's semaphores")
		}},
		{"posix-mqueue", func(c *hostile.Config) hostile.Result {
			if c.MQueue == "" {
				return broken("no queue configured")
			}
			name := append([]byte(c.MQueue), 0)
			return judge(call(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_RDONLY, 0, 0), "opened the host's queue")
		}},
		{"posix-shm", func(c *hostile.Config) hostile.Result {
			if c.ShmFile == "" {
				return broken("no file configured")
			}
			_, err := os.ReadFile("/dev/shm/" + c.ShmFile)
			return judge(underlying(err), "read the host's shared memory")
		}},
		{"posix-shm-write", func(c *hostile.Config) hostile.Result {
			if c.ShmFile == "" {
				return broken("no file configured")
			}
			fd, err := unix.Open("/dev/shm/"+c.ShmFile, unix.O_RDWR|unix.O_CLOEXEC, 0)
			_ = unix.Close(fd)
			return judge(err, "opened the host's shared memory for writing")
		}},
	}
}

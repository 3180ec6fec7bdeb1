//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

func deviceAttempts() []attempt {
	opens := func(name, path string, flags int) attempt {
		return attempt{name, func(*hostile.Config) hostile.Result {
			fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
			_ = unix.Close(fd)
			return judge(err, "opened "+path, unix.EBUSY, unix.EIO)
		}}
	}
	var list []attempt
	for _, dev := range []string{"mem", "kmem", "port", "kvm", "fuse", "net/tun", "loop-control", "uinput", "vhost-vsock", "vsock", "sda", "vda", "nvme0", "mapper/control", "snapshot", "hpet", "cuse", "input/event0", "console", "tty1", "ttyS0", "vcs", "watchdog"} {
		list = append(list, opens("device-"+strings.ReplaceAll(dev, "/", "-"), "/dev/"+dev, unix.O_RDWR))
	}
	list = append(list, opens("device-kmsg-read", "/dev/kmsg", unix.O_RDONLY), opens("device-kmsg-write", "/dev/kmsg", unix.O_WRONLY))
	for _, f := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname",
		"/proc/sys/vm/drop_caches", "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/yama/ptrace_scope",
		"/proc/sysrq-trigger", "/proc/mtrr", "/proc/self/setgroups",
		"/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/module/kernel/parameters/panic", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/release_agent",
	} {
		list = append(list, opens("write"+strings.ReplaceAll(f, "/", "-"), f, unix.O_WRONLY))
	}
	for _, f := range []string{"/proc/kcore", "/proc/kallsyms", "/proc/kpagecount", "/proc/kmsg", "/proc/timer_list", "/proc/slabinfo", "/proc/vmallocinfo", "/sys/kernel/debug", "/sys/kernel/security", "/sys/firmware/efi/efivars", "/sys/kernel/vmcoreinfo"} {
		list = append(list, attempt{"read" + strings.ReplaceAll(f, "/", "-"), func(*hostile.Config) hostile.Result {
			fd, err := unix.Open(f, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
			if err != nil {
				return judge(err, "opened")
			}
			defer func() { _ = unix.Close(fd) }()
			if f == "/proc/kallsyms" {
				// Readable by all, with zeroes for addresses.
				b := make([]byte, 4096)
				n, _ := unix.Read(fd, b)
				for line := range strings.Lines(string(b[:n])) {
					if addr, _, ok := strings.Cut(line, " "); ok && len(addr) == 16 && strings.Trim(addr, "0") != "" {
						return succeeded("kernel addresses: %s", strings.TrimSpace(line))
					}
				}
				return refused("no addresses")
			}
			if st, err := os.Stat(f); err == nil && st.IsDir() {
				entries, err := os.ReadDir(f)
				if err == nil && len(entries) == 0 {
					return refused("empty")
				}
				return judge(underlying(err), "listed")
			}
			var b [64]byte
			n, err := unix.Read(fd, b[:])
			if err == nil && n == 0 || err == unix.EAGAIN {
				return refused("nothing in it")
			}
			return judge(err, "read")
		}})
	}
	mknod := func(name string, mode uint32, dev uint64) attempt {
		return attempt{name, func(*hostile.Config) hostile.Result {
			p := scratch("node")
			if err := unix.Mknod(p, mode|0o600, int(dev)); err != nil {
				return judge(err, "mknod")
			}
			defer func() { _ = unix.Unlink(p) }()
			return succeeded("made a device node")
		}}
	}
	list = append(list,
		mknod("mknod-char-mem", unix.S_IFCHR, unix.Mkdev(1, 1)),
		mknod("mknod-char-kmsg", unix.S_IFCHR, unix.Mkdev(1, 11)),
		mknod("mknod-block", unix.S_IFBLK, unix.Mkdev(8, 0)),
		attempt{"write-proc-sys-kernel-ns_last_pid", func(*hostile.Config) hostile.Result {
			// Anybody may open it; the permission is asked for at the write, and the
			// number looked at after that.
			fd, err := unix.Open("/proc/sys/kernel/ns_last_pid", unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge(err, "opened")
			}
			_, err = unix.Write(fd, []byte("x"))
			return judge(err, "wrote", unix.EINVAL)
		}},
		attempt{"cgroup-leave", func(*hostile.Config) hostile.Result {
			return eachCgroup(func(dir string) hostile.Result {
				fd, err := unix.Open(filepath.Join(dir, "cgroup.procs"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
				_ = unix.Close(fd)
				return judge(err, "opened cgroup.procs of "+dir)
			})
		}},
		attempt{"cgroup-mkdir", func(*hostile.Config) hostile.Result {
			return eachCgroup(func(dir string) hostile.Result {
				p := filepath.Join(dir, "probe-planted")
				err := unix.Mkdir(p, 0o700)
				if err == nil {
					_ = unix.Rmdir(p)
				}
				return judge(err, "made "+p)
			})
		}},
		attempt{"cgroup-limits", func(*hostile.Config) hostile.Result {
			return eachCgroup(func(dir string) hostile.Result {
				for _, f := range []string{"pids.max", "memory.limit_in_bytes", "memory.max", "release_agent", "notify_on_release", "cgroup.kill"} {
					fd, err := unix.Open(filepath.Join(dir, f), unix.O_WRONLY|unix.O_CLOEXEC, 0)
					if err == nil {
						_ = unix.Close(fd)
						return succeeded("opened %s of %s", f, dir)
					}
				}
				return refused("none could be opened")
			})
		}},
	)
	return list
}

// eachCgroup tries every directory that could be one of the process's own
// cgroups or a parent.
func eachCgroup(f func(dir string) hostile.Result) hostile.Result {
	dirs := []string{"/sys/fs/cgroup"}
	if b, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(b)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(parts) != 3 {
				continue
			}
			for _, mount := range []string{"", "unified", parts[1], strings.TrimPrefix(parts[1], "name=")} {
				for p := parts[2]; ; p = filepath.Dir(p) {
					dirs = append(dirs, filepath.Join("/sys/fs/cgroup", mount, p))
					if p == "/" || p == "." {
						break
					}
				}
			}
		}
	}
	return each(dirs, "cgroup", f)
}

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

func fileAttempts() []attempt {
	list := []attempt{
		{"file-shadow", func(*hostile.Config) hostile.Result {
			data, err := os.ReadFile("/etc/shadow")
			if err == nil && !strings.Contains(string(data), ":") {
				return refused("a stand-in of %d bytes", len(data))
			}
			return judge(err, "read /etc/shadow")
		}},
		{"file-home", func(*hostile.Config) hostile.Result {
			for _, dir := range []string{"/root", "/home", "/var/lib/docker", "/var/lib/postgresql", "/var/log", "/srv", "/boot", "/run/user"} {
				if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
					return succeeded("listed %s: %d entries", dir, len(entries))
				}
			}
			return refused("none could be listed")
		}},
		{"file-host-dir", func(c *hostile.Config) hostile.Result {
			return each(c.HostDirs, "host directory", func(dir string) hostile.Result {
				_, err := os.ReadDir(dir)
				return judge(err, "listed "+dir)
			})
		}},
		{"file-host-dir-chdir", func(c *hostile.Config) hostile.Result {
			return each(c.HostDirs, "host directory", func(dir string) hostile.Result {
				return judge(unix.Chdir(dir), "entered "+dir)
			})
		}},
		{"file-host-dir-write", func(c *hostile.Config) hostile.Result {
			return each(c.HostDirs, "host directory", func(dir string) hostile.Result {
				return create(filepath.Join(dir, "planted"))
			})
		}},
		{"file-host-dir-inotify", func(c *hostile.Config) hostile.Result {
			return each(c.HostDirs, "host directory", func(dir string) hostile.Result {
				fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
				if err != nil {
					return judge(err, "inotify_init")
				}
				_, err = unix.InotifyAddWatch(fd, dir, unix.IN_ALL_EVENTS)
				return judge(err, "watches "+dir)
			})
		}},
		{"file-host-dir-fanotify", func(c *hostile.Config) hostile.Result {
			return each(c.HostDirs, "host directory", func(dir string) hostile.Result {
				fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID, unix.O_RDONLY)
				if err != nil {
					return judge(err, "fanotify_init")
				}
				return judge(unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN, unix.AT_FDCWD, dir), "watches "+dir)
			})
		}},
	}
	canary := func(name string, run func(path string) hostile.Result) {
		list = append(list, attempt{"canary-" + name, func(c *hostile.Config) hostile.Result {
			return each(c.CanaryFiles, "canary file", run)
		}})
	}
	canary("read", read)
	canary("dotdot", func(path string) hostile.Result { return read(strings.Repeat("../", 40) + path[1:]) })
	canary("dotdot-workspace", func(path string) hostile.Result {
		cwd, err := os.Getwd()
		if err != nil {
			return broken("getwd: %v", err)
		}
		return read(cwd + "/" + strings.Repeat("../", 40) + path[1:])
	})
	for _, root := range []string{"/proc/self/root", "/proc/thread-self/root", "/proc/1/root", "/proc/self/cwd/../../../../../../..", "/proc/1/cwd/../../../../.."} {
		canary("through"+strings.ReplaceAll(strings.ReplaceAll(root, "/..", ""), "/", "-"), func(path string) hostile.Result { return read(root + path) })
	}
	canary("through-supervisor-root", func(path string) hostile.Result {
		return read("/proc/" + os.Getenv(envParent) + "/root" + path)
	})
	canary("symlink", func(path string) hostile.Result {
		link := scratch("symlink")
		if err := os.Symlink(path, link); err != nil {
			return broken("symlink: %v", err)
		}
		return read(link)
	})
	canary("symlink-dir", func(path string) hostile.Result {
		link := scratch("symlink-dir")
		if err := os.Symlink(filepath.Dir(path), link); err != nil {
			return broken("symlink: %v", err)
		}
		return read(link + "/" + filepath.Base(path))
	})
	canary("hardlink", func(path string) hostile.Result {
		link := scratch("hardlink")
		if err := os.Link(path, link); err != nil {
			return judge(underlying(err), "linked")
		}
		return read(link)
	})
	canary("hardlink-symlink", func(path string) hostile.Result {
		link := scratch("hardlink-symlink")
		if err := os.Symlink(path, link); err != nil {
			return broken("symlink: %v", err)
		}
		to := scratch("hardlink-symlink-target")
		if err := unix.Linkat(unix.AT_FDCWD, link, unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW); err != nil {
			return judge(err, "linked")
		}
		return read(to)
	})
	canary("rename-away", func(path string) hostile.Result {
		to := scratch("stolen")
		err := unix.Rename(path, to)
		if err == nil {
			err = unix.Rename(to, path) // leaves it as it was
			return succeeded("moved it here (and back: %v)", err)
		}
		return judge(err, "moved it here")
	})
	canary("rename-over", func(path string) hostile.Result {
		from := scratch("replacement")
		if err := os.WriteFile(from, []byte("replaced"), 0o600); err != nil {
			return broken("%v", err)
		}
		dir := filepath.Dir(path) + "/planted-by-rename"
		err := unix.Rename(from, dir)
		if err == nil {
			_ = os.Remove(dir)
		}
		return judge(err, "moved a file beside it")
	})
	canary("write", func(path string) hostile.Result {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		_ = unix.Close(fd)
		return judge(err, "opened for writing")
	})
	canary("path-fd", func(path string) hostile.Result {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return judge(err, "O_PATH")
		}
		return read(fmt.Sprintf("/proc/self/fd/%d", fd))
	})
	canary("truncate", func(path string) hostile.Result {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return judge(err, "stat")
		}
		return judge(unix.Truncate(path, st.Size), "truncated to its own size")
	})
	canary("unlink", func(path string) hostile.Result {
		// Removing a name that is not there fails late: permission to look up
		// and to write the directory comes first, so ask the directory.
		return create(filepath.Dir(path) + "/planted-to-unlink")
	})
	canary("stat", func(path string) hostile.Result {
		var st unix.Stat_t
		return judge(unix.Stat(path, &st), "saw size, owner and times")
	})
	canary("access", func(path string) hostile.Result { return judge(unix.Access(path, unix.F_OK), "knows that it exists") })
	canary("chmod", func(path string) hostile.Result {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return judge(err, "stat")
		}
		return judge(unix.Chmod(path, st.Mode&0o7777), "set its mode")
	})
	canary("chown", func(path string) hostile.Result { return judge(unix.Chown(path, -1, os.Getegid()), "set its group") })
	canary("utimes", func(path string) hostile.Result {
		now := unix.NsecToTimeval(time.Now().UnixNano())
		return judge(unix.Utimes(path, []unix.Timeval{now, now}), "set its times")
	})
	canary("setxattr", func(path string) hostile.Result {
		err := unix.Setxattr(path, "user.probe", []byte("x"), 0)
		if err == nil {
			_ = unix.Removexattr(path, "user.probe")
		}
		return judge(err, "set an attribute")
	})
	canary("exec", func(path string) hostile.Result {
		return judge(unix.Faccessat2(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS), "may be executed")
	})
	canary("by-handle", byHandle)

	for _, dir := range []string{"/", "/usr", "/usr/bin", "/usr/lib", "/etc", "/bin", "/lib", "/dev", "/proc", "/sys", "/opt", "/var/tmp", "/run"} {
		list = append(list, attempt{"write" + strings.ReplaceAll(strings.TrimSuffix(dir, "/"), "/", "-") + rootName(dir), func(*hostile.Config) hostile.Result {
			return create(filepath.Join(dir, fmt.Sprintf("planted-by-probe-%d", os.Getpid())))
		}})
	}
	for _, file := range []string{"/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/etc/ld.so.preload", "/usr/bin/env", "/bin/sh", "/usr/lib/os-release"} {
		list = append(list, attempt{"overwrite" + strings.ReplaceAll(file, "/", "-"), func(*hostile.Config) hostile.Result {
			fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
			_ = unix.Close(fd)
			return judge(err, "opened for writing")
		}})
	}
	return list
}

func rootName(dir string) string {
	if dir == "/" {
		return "-root"
	}
	return ""
}

// scratch returns a fresh name in the directory the probe may write in.
func scratch(name string) string {
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	p := filepath.Join(dir, fmt.Sprintf(".probe-%d-%s-%d", os.Getpid(), name, time.Now().UnixNano()))
	return p
}

func read(path string) hostile.Result {
	data, err := os.ReadFile(path) //nolint:gosec // reading what it must not is its purpose
	return judge(underlying(err), fmt.Sprintf("read %d bytes of %s", len(data), path))
}

// create makes a file and takes it away again.
func create(path string) hostile.Result {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		_ = unix.Close(fd)
		_ = unix.Unlink(path)
	}
	return judge(err, "created "+path)
}

// underlying returns the errno in err, or err when there is none.
func underlying(err error) error {
	var no unix.Errno
	if errors.As(err, &no) {
		return no
	}
	return err
}

// byHandle opens by file handle, which ignores directories and mounts. Handles
// of what the probe may name are made by the kernel; the one of the file system's
// root is guessed.
func byHandle(path string) hostile.Result {
	cwd, err := unix.Open(".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return broken("open .: %v", err)
	}
	var last error = unix.EPERM
	for _, name := range []string{path, ".", "/"} {
		h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, name, 0)
		if err != nil {
			last = err
			continue
		}
		fd, err := unix.OpenByHandleAt(cwd, h, unix.O_RDONLY)
		if err == nil {
			_ = unix.Close(fd)
			return succeeded("opened %s by its handle", name)
		}
		last = err
	}
	guess := unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0})
	if fd, err := unix.OpenByHandleAt(cwd, guess, unix.O_RDONLY); err == nil {
		_ = unix.Close(fd)
		return succeeded("opened inode 2 by a guessed handle")
	}
	return judge(last, "opened by handle", unix.ESTALE)
}

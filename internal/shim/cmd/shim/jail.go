//go:build linux

package main

import (
	"os"
	"strconv"
	"strings"
	"unsafe"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// setupJail builds the private root and moves into it. It returns the
// workspace's directory, opened inside. passed are the mounts that the host made,
// because the workload's user could not reach their sources.
func setupJail(c *wire.Config, passed []int) (workspace int, err error) {
	if c.IDs == wire.IDMapSelf {
		if err := mapSelf(c); err != nil {
			return -1, err
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return -1, step("make mounts private", err)
	}
	trees := make([]int, len(c.Mounts))
	files := make([]bool, len(c.Mounts))
	for i, m := range c.Mounts {
		if m.Passed {
			if len(passed) == 0 {
				return -1, step("take "+m.Target, unix.EBADF)
			}
			trees[i], files[i] = passed[0], isFile(passed[0])
			passed = passed[1:]
			continue
		}
		trees[i], files[i], err = cloneTree(m)
		if err != nil {
			if m.Optional && trees[i] == -1 {
				continue
			}
			return -1, step("open "+m.Target, err)
		}
	}
	base := "/tmp"
	if _, err := os.Lstat(base); err != nil {
		base = "/usr"
	}
	if err := unix.Mount("tmpfs", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=16m"); err != nil {
		return -1, step("mount root", err)
	}
	if err := unix.Chdir(base); err != nil {
		return -1, step("enter root", err)
	}
	for _, d := range []string{"dev/pts", "dev/shm", "proc", "etc", "tmp"} {
		if err := mkdirs(d); err != nil {
			return -1, step("make "+d, err)
		}
	}
	for _, t := range c.Tmpfs {
		if err := mkdirs(t.Path); err != nil {
			return -1, step("make "+t.Path, err)
		}
		if err := unix.Mount("tmpfs", rel(t.Path), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, t.Options); err != nil {
			return -1, step("mount "+t.Path, err)
		}
	}
	for _, l := range c.Links {
		if err := mkdirs(parent(l.Path)); err != nil {
			return -1, step("make "+l.Path, err)
		}
		if err := unix.Symlink(l.Target, rel(l.Path)); err != nil {
			return -1, step("link "+l.Path, err)
		}
	}
	for _, f := range c.Files {
		if err := mkdirs(parent(f.Path)); err != nil {
			return -1, step("make "+f.Path, err)
		}
		if err := os.WriteFile(rel(f.Path), []byte(f.Content), 0o644); err != nil {
			return -1, step("write "+f.Path, err)
		}
	}
	for i, m := range c.Mounts {
		if trees[i] == -1 {
			continue
		}
		if err := attach(trees[i], files[i], m.Target); err != nil {
			return -1, step("mount "+m.Target, err)
		}
	}
	if err := unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return -1, step("mount /proc", err)
	}
	for _, m := range c.Masked {
		if err := mask(rel(m)); err != nil {
			return -1, step("mask "+m, err)
		}
	}
	if err := unix.Mount("devpts", "dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return -1, step("mount /dev/pts", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return -1, step("pivot root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return -1, step("leave the old root", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return -1, step("enter root", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attr); err != nil {
		return -1, step("make root read-only", err)
	}
	if c.Loopback {
		if err := loopback(); err != nil {
			return -1, err
		}
	}
	if c.Hostname != "" {
		if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
			return -1, step("set the host name", err)
		}
	}
	workspace, err = unix.Open(c.Root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	return workspace, step("open the workspace", err)
}

// cloneTree opens a detached copy of a mount source with its final attributes;
// -1 with an error when it is not there.
func cloneTree(m wire.Mount) (fd int, file bool, err error) {
	fd, err = unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, false, err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID}
	if m.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if m.NoDev {
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
	return fd, isFile(fd), err
}

func isFile(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR
}

func attach(tree int, file bool, target string) error {
	if file {
		if err := mkdirs(parent(target)); err != nil {
			return err
		}
		fd, err := unix.Open(rel(target), unix.O_CREAT|unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
		if err != nil {
			return err
		}
		_ = unix.Close(fd)
	} else if err := mkdirs(target); err != nil {
		return err
	}
	err := unix.MoveMount(tree, "", unix.AT_FDCWD, rel(target), unix.MOVE_MOUNT_F_EMPTY_PATH)
	_ = unix.Close(tree)
	return err
}

// mask makes a file read as empty.
func mask(path string) error {
	err := unix.Mount("dev/null", path, "", unix.MS_BIND, "")
	if err == unix.ENOENT {
		err = nil // not every kernel has it
	}
	return err
}

// rel turns an absolute path into one below the root under construction.
func rel(path string) string { return strings.TrimPrefix(path, "/") }

func parent(path string) string {
	p := rel(path)
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return "."
}

func mkdirs(path string) error { return os.MkdirAll(rel(path), 0o755) }

// mapSelf maps this process' user into its own user namespace. It works for a
// caller without any privilege, and for one that made itself unreadable, because
// executing this program made us readable again.
func mapSelf(c *wire.Config) error {
	for _, w := range [][2]string{
		{"/proc/self/setgroups", "deny"},
		{"/proc/self/uid_map", idLine(c.UID, c.HostUID)},
		{"/proc/self/gid_map", idLine(c.GID, c.HostGID)},
	} {
		fd, err := unix.Open(w[0], unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return step("open "+w[0], err)
		}
		_, err = unix.Write(fd, []byte(w[1]))
		_ = unix.Close(fd)
		if err != nil {
			return step("write "+w[0], err)
		}
	}
	return nil
}

func idLine(in, out uint32) string {
	return strconv.FormatUint(uint64(in), 10) + " " + strconv.FormatUint(uint64(out), 10) + " 1\n"
}

// loopback brings lo up.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return step("loopback socket", err)
	}
	defer unix.Close(fd)
	var req struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(req.name[:], "lo")
	req.flags = unix.IFF_UP
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&req))); e != 0 {
		return step("loopback up", e)
	}
	return nil
}

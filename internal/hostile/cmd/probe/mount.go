//go:build linux

package main

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

func mountAttempts() []attempt {
	// private makes what follows invisible to others, so that a probe that is
	// not confined leaves no mounts behind. Inside a sandbox both calls are
	// refused as well, which changes nothing.
	private := func() {
		runtime.LockOSThread()
		if unix.Unshare(unix.CLONE_NEWNS) == nil {
			_ = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
	}
	dir := func() string {
		d := scratch("mount")
		if os.Mkdir(d, 0o700) != nil {
			d = "/tmp"
		}
		return d
	}
	return []attempt{
		{"mount-tmpfs", func(*hostile.Config) hostile.Result {
			private()
			return judge(unix.Mount("none", dir(), "tmpfs", 0, ""), "mounted")
		}},
		{"mount-bind", func(*hostile.Config) hostile.Result {
			private()
			return judge(unix.Mount("/", dir(), "", unix.MS_BIND|unix.MS_REC, ""), "mounted")
		}},
		{"mount-proc", func(*hostile.Config) hostile.Result {
			private()
			return judge(unix.Mount("proc", dir(), "proc", 0, ""), "mounted")
		}},
		{"mount-sysfs", func(*hostile.Config) hostile.Result {
			private()
			return judge(unix.Mount("sysfs", dir(), "sysfs", 0, ""), "mounted")
		}},
		{"mount-cgroup", func(*hostile.Config) hostile.Result {
			private()
			return judge(unix.Mount("none", dir(), "cgroup2", 0, ""), "mounted")
		}},
		{"mount-devpts", func(*hostile.Config) hostile.Result {
			private()
			return judge(unix.Mount("devpts", dir(), "devpts", 0, "newinstance"), "mounted")
		}},
		{"mount-overlay", func(*hostile.Config) hostile.Result {
			private()
			return judge(unix.Mount("overlay", dir(), "overlay", 0, "lowerdir=/usr:/etc"), "mounted")
		}},
		{"mount-remount-usr", func(*hostile.Config) hostile.Result {
			private()
			return judge(unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, ""), "remounted writable", unix.EINVAL)
		}},
		{"mount-remount-root", func(*hostile.Config) hostile.Result {
			private()
			return judge(unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, ""), "remounted writable", unix.EINVAL)
		}},
		{"mount-propagation", func(*hostile.Config) hostile.Result {
			private()
			return judge(unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""), "changed propagation", unix.EINVAL)
		}},
		{"umount-proc", func(*hostile.Config) hostile.Result {
			private()
			return judge(unix.Unmount("/proc", unix.MNT_DETACH), "unmounted", unix.EINVAL)
		}},
		{"umount-root", func(*hostile.Config) hostile.Result {
			// A flag that does not exist: EINVAL comes before the permission
			// check, so use one that does and a path that is no mount point.
			private()
			return judge(unix.Unmount(dir(), 0), "unmounted", unix.EINVAL)
		}},
		{"pivot-root", func(*hostile.Config) hostile.Result {
			private()
			d := dir()
			return judge(unix.PivotRoot(d, d), "changed the root", unix.EINVAL, unix.EBUSY)
		}},
		{"chroot", func(*hostile.Config) hostile.Result {
			return judge(unix.Chroot("."), "changed the root")
		}},
		{"chroot-escape", func(c *hostile.Config) hostile.Result {
			// The old way out: a second chroot below an open directory.
			if err := unix.Chroot(dir()); err != nil {
				return judge(err, "first chroot")
			}
			for range 64 {
				_ = unix.Chdir("..")
			}
			return judge(unix.Chroot("."), "stepped out of the root")
		}},
		{"fsopen", func(*hostile.Config) hostile.Result {
			_, err := unix.Fsopen("tmpfs", 0)
			return judge(err, "fsopen")
		}},
		{"fspick", func(*hostile.Config) hostile.Result {
			_, err := unix.Fspick(unix.AT_FDCWD, "/", 0)
			return judge(err, "fspick")
		}},
		{"fsmount", func(*hostile.Config) hostile.Result {
			return judge(call(unix.SYS_FSMOUNT, ^uintptr(0), 0, 0), "fsmount", unix.EBADF, unix.EINVAL)
		}},
		{"open-tree-clone", func(*hostile.Config) hostile.Result {
			_, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE)
			return judge(err, "cloned the mount tree")
		}},
		{"move-mount", func(*hostile.Config) hostile.Result {
			private()
			return judge(unix.MoveMount(unix.AT_FDCWD, "/proc", unix.AT_FDCWD, dir(), 0), "moved", unix.EINVAL)
		}},
		{"mount-setattr", func(*hostile.Config) hostile.Result {
			private()
			attr := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
			return judge(unix.MountSetattr(unix.AT_FDCWD, "/usr", 0, &attr), "cleared read-only", unix.EINVAL)
		}},
	}
}

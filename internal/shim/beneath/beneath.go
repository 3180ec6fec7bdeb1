//go:build linux

package beneath

import (
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	maxLinks    = 40
	resolveSafe = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS
)

// openat opens a path below root. The kernel refuses what leads out of it.
func openat(root int, name string, flags int, mode uint32) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Mode: uint64(mode), Resolve: resolveSafe}
	if name == "" {
		name = "."
	}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(root, name, &how)
		if (err == unix.EAGAIN || err == unix.EINTR) && tries < 100 {
			continue // something was renamed meanwhile
		}
		return fd, err
	}
}

func self(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// reopen opens for real what an O_PATH descriptor names.
func reopen(fd, flags int) (int, error) {
	return unix.Open(self(fd), flags|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
}

func kind(st *unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

func regular(st *unix.Stat_t) error {
	switch kind(st) {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return ErrDirectory
	}
	return ErrSpecial
}

// Open opens a regular file for reading.
func Open(root int, name string) (fd int, st unix.Stat_t, err error) {
	p, err := openat(root, name, unix.O_PATH, 0)
	if err != nil {
		return -1, st, err
	}
	defer unix.Close(p)
	if err = unix.Fstat(p, &st); err == nil {
		err = regular(&st)
	}
	if err != nil {
		return -1, st, err
	}
	fd, err = reopen(p, unix.O_RDONLY)
	return fd, st, err
}

// Stat describes a file without following a final link, and returns the target of
// one.
func Stat(root int, name string) (st unix.Stat_t, target string, err error) {
	fd, err := openat(root, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return st, "", err
	}
	defer unix.Close(fd)
	if err = unix.Fstat(fd, &st); err == nil && kind(&st) == unix.S_IFLNK {
		target, err = readlink(fd, "")
	}
	return st, target, err
}

// Mkdir makes a directory with mode, and its missing parents with 0755. An existing
// one is success.
func Mkdir(root int, name string, mode uint32) error {
	fd, err := makeDirs(root, name, mode)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// makeDirs opens a directory, making what is missing of it. The descriptor is an
// O_PATH one.
func makeDirs(root int, name string, mode uint32) (int, error) {
	fd, err := openat(root, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != unix.ENOENT || name == "." {
		return fd, err
	}
	at, err := makeDirs(root, path.Dir(name), 0o755)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	err = unix.Mkdirat(at, path.Base(name), 0o700)
	if err != nil && err != unix.EEXIST {
		return -1, err
	}
	made := err == nil
	fd, err = openat(root, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil || !made {
		return fd, err
	}
	// The umask is not the sandbox's affair. By descriptor: the name may be
	// somebody's link by now.
	if err := unix.Chmod(self(fd), mode); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func readlink(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

package local

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// removeAll removes a directory tree that a hostile workload filled: without
// permissions, deeper than descriptors reach, with any kind of file. Nothing is
// followed.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	parent, err := unix.Open(filepath.Dir(dir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	return removeTree(parent, filepath.Base(dir))
}

// maxDepth is how many directories are open at once; what lies deeper is moved
// up first.
const maxDepth = 64

// removeTree removes name in the directory parent, whatever it is.
func removeTree(parent int, name string) error {
	err := unix.Unlinkat(parent, name, 0)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM):
		return err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	top, err := openDir(parent, name)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	moved := 0
	for {
		before := moved
		if err := empty(top, top, 0, &moved); err != nil {
			return err
		}
		if before == moved {
			break
		}
	}
	return ignoreAbsent(unix.Unlinkat(parent, name, unix.AT_REMOVEDIR))
}

// empty removes the entries of dir, which lies depth levels below top.
func empty(top, dir, depth int, moved *int) error {
	names, err := readNames(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		err := unix.Unlinkat(dir, name, 0)
		if err == nil || errors.Is(err, unix.ENOENT) {
			continue
		}
		if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
			return err
		}
		if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err == nil || errors.Is(err, unix.ENOENT) {
			continue
		}
		sub, err := openDir(dir, name)
		if err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			return err
		}
		if depth >= maxDepth {
			_ = unix.Close(sub)
			*moved++
			if err := unix.Renameat(dir, name, top, ".sbxhost-moved-"+strconv.Itoa(*moved)); err != nil {
				return err
			}
			continue
		}
		err = empty(top, sub, depth+1, moved)
		_ = unix.Close(sub)
		if err == nil {
			err = ignoreAbsent(unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openDir opens a directory and makes sure that it can be emptied.
func openDir(parent int, name string) (int, error) {
	// By way of a descriptor that needs no permission and follows no link.
	p, err := unix.Openat(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(p)
	self := "/proc/self/fd/" + strconv.Itoa(p)
	var st unix.Stat_t
	if err := unix.Fstat(p, &st); err == nil && st.Mode&0o700 != 0o700 {
		_ = unix.Chmod(self, 0o700)
	}
	return unix.Open(self, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

func readNames(dir int) ([]string, error) {
	fd, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "directory")
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return f.Readdirnames(-1)
}

func ignoreAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

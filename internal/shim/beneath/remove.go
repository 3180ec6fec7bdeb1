//go:build linux

package beneath

import (
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// Remove removes a file, a symbolic link or an empty directory; with recursive a
// whole tree.
func Remove(root int, name string, recursive bool) error {
	if name == "." {
		return ErrRoot
	}
	dir, err := openat(root, path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	base := path.Base(name)
	var st unix.Stat_t
	if err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch {
	case kind(&st) != unix.S_IFDIR:
		return unix.Unlinkat(dir, base, 0)
	case recursive:
		return RemoveTree(dir, base)
	}
	return unix.Unlinkat(dir, base, unix.AT_REMOVEDIR)
}

// maxDepth is how many directories are open at once; what lies deeper is moved up
// first.
const maxDepth = 64

// RemoveTree removes the entry name of the directory parent, whatever it is: without
// permissions, deeper than descriptors reach, with any kind of file. Nothing is
// followed. An absent one is success.
func RemoveTree(parent int, name string) error {
	err := unix.Unlinkat(parent, name, 0)
	switch {
	case err == nil, err == unix.ENOENT:
		return nil
	case err != unix.EISDIR && err != unix.EPERM:
		return err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err == nil || err == unix.ENOENT {
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
	for {
		list, err := readNames(dir)
		if err != nil && err != ErrDepth {
			return err
		}
		if err := removeEach(list, top, dir, depth, moved); err != nil || len(list) < maxNames {
			return err
		}
	}
}

// removeEach removes those entries of dir, a directory of empty.
func removeEach(list []string, top, dir, depth int, moved *int) error {
	for _, name := range list {
		err := unix.Unlinkat(dir, name, 0)
		if err == nil || err == unix.ENOENT {
			continue
		}
		if err != unix.EISDIR && err != unix.EPERM {
			return err
		}
		if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err == nil || err == unix.ENOENT {
			continue
		}
		sub, err := openDir(dir, name)
		if err != nil {
			if err == unix.ENOENT {
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
	var st unix.Stat_t
	if err := unix.Fstat(p, &st); err == nil && st.Mode&0o700 != 0o700 {
		_ = unix.Chmod(self(p), 0o700)
	}
	return unix.Open(self(p), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

func ignoreAbsent(err error) error {
	if err == unix.ENOENT {
		return nil
	}
	return err
}

//go:build linux

package beneath

import (
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// maxTreeDepth bounds how deep a tree may be that is walked.
const maxTreeDepth = 256

// Walk calls each for every directory, regular file and symbolic link below the
// root, directories before what is in them, names sorted; Entry.Name is relative to
// the root. Pipes, sockets and devices are left out. For a regular file fd is open
// for reading until each returns, else it is -1. What the user made unreadable is
// visited too: its permissions are lifted while it is read, as its owner could do,
// and put back. An error of the walk itself is a *PathError, or ErrDepth.
func Walk(root int, each func(e Entry, fd int) error) error {
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return err
	}
	fd, restore, err := readable(root, &st)
	if err != nil {
		return err
	}
	defer restore()
	defer unix.Close(fd)
	return walk(fd, "", 0, each)
}

func walk(dir int, prefix string, depth int, each func(Entry, int) error) error {
	if depth > maxTreeDepth {
		return ErrDepth
	}
	list, err := readNames(dir)
	if err != nil {
		return &PathError{prefix, err}
	}
	slices.Sort(list)
	for _, n := range list {
		if err := walkEntry(dir, n, path.Join(prefix, n), depth, each); err != nil {
			return err
		}
	}
	return nil
}

func walkEntry(dir int, base, name string, depth int, each func(Entry, int) error) error {
	p, err := unix.Openat(dir, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil // removed meanwhile
	}
	if err != nil {
		return &PathError{name, err}
	}
	defer unix.Close(p)
	e := Entry{Name: name}
	if err := unix.Fstat(p, &e.Stat); err != nil {
		return &PathError{name, err}
	}
	switch kind(&e.Stat) {
	case unix.S_IFDIR:
		if err := each(e, -1); err != nil {
			return err
		}
		fd, restore, err := readable(p, &e.Stat)
		if err != nil {
			return &PathError{name, err}
		}
		defer restore()
		defer unix.Close(fd)
		return walk(fd, name, depth+1, each)
	case unix.S_IFLNK:
		if e.Target, err = readlink(p, ""); err != nil {
			return &PathError{name, err}
		}
		return each(e, -1)
	case unix.S_IFREG:
		fd, restore, err := readable(p, &e.Stat)
		if err != nil {
			return &PathError{name, err}
		}
		restore() // what is open stays readable
		defer unix.Close(fd)
		return each(e, fd)
	}
	return nil
}

// readable opens the file or directory behind fd for reading. Where its owner's
// permissions forbid that, or entering the directory, and we act as its owner, they
// are lifted until restore is called.
func readable(fd int, st *unix.Stat_t) (opened int, restore func(), err error) {
	flags, need := unix.O_RDONLY, uint32(0o400)
	if kind(st) == unix.S_IFDIR {
		flags, need = unix.O_RDONLY|unix.O_DIRECTORY, 0o500
	}
	restore = func() {}
	if mode := st.Mode & 0o7777; mode&need != need {
		// By the descriptor: the name could be another file by now.
		if unix.Chmod(self(fd), mode|need) == nil { // else somebody else's; opening it tells
			restore = func() { _ = unix.Chmod(self(fd), mode) }
		}
	}
	opened, err = reopen(fd, flags)
	if err != nil {
		restore()
		return -1, nil, err
	}
	return opened, restore, nil
}

// Replace begins to put a new regular file in the place of name, which is not
// followed if it is a link.
func Replace(root int, name string, mode uint32) (*Pending, error) {
	if name == "." {
		return nil, ErrRoot
	}
	return create(root, name, mode)
}

// Symlink puts a symbolic link in the place of name, which may be a file or a link.
// Its target is not looked at: nothing here follows one out of the root.
func Symlink(root int, name, target string, mtime unix.Timespec) error {
	at, base, err := makeRoom(root, name)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := unix.Symlinkat(target, at, base); err != nil {
		return err
	}
	return unix.UtimesNanoAt(at, base, []unix.Timespec{mtime, mtime}, unix.AT_SYMLINK_NOFOLLOW)
}

// Link makes name another name of the file old, which is not followed if it is a
// link.
func Link(root int, name, old string) error {
	fd, err := openat(root, old, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if kind(&st) == unix.S_IFDIR {
		return ErrDirectory
	}
	at, base, err := makeRoom(root, name)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return unix.Linkat(unix.AT_FDCWD, self(fd), at, base, unix.AT_SYMLINK_FOLLOW)
}

// makeRoom opens the parent of name and removes the file or link that is there.
func makeRoom(root int, name string) (dir int, base string, err error) {
	if name == "." {
		return -1, "", ErrRoot
	}
	dir, err = makeDirs(root, path.Dir(name), 0o755)
	if err != nil {
		return -1, "", err
	}
	base = path.Base(name)
	if err := unix.Unlinkat(dir, base, 0); err != nil && err != unix.ENOENT {
		_ = unix.Close(dir)
		return -1, "", err
	}
	return dir, base, nil
}

// SetDir sets a directory's permissions and time.
func SetDir(root int, name string, mode uint32, mtime unix.Timespec) error {
	fd, err := openat(root, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Chmod(self(fd), mode); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, self(fd), []unix.Timespec{mtime, mtime}, 0)
}

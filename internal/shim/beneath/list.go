//go:build linux

package beneath

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Entry is one file of a directory.
type Entry struct {
	Name   string
	Stat   unix.Stat_t
	Target string // of a symbolic link
}

// List calls each for every entry of a directory, in no order.
func List(root int, name string, each func(Entry) error) error {
	p, err := openat(root, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(p)
	fd, err := reopen(p, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return names(fd, func(n string) error {
		e := Entry{Name: n}
		if err := unix.Fstatat(fd, n, &e.Stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			if err == unix.ENOENT {
				return nil // removed meanwhile
			}
			return err
		}
		if kind(&e.Stat) == unix.S_IFLNK {
			e.Target, _ = readlink(fd, n)
		}
		return each(e)
	})
}

// names calls each for every name in the directory fd but "." and "..", from its
// beginning.
func names(fd int, each func(string) error) error {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		for off := 0; off < n; {
			reclen := int(binary.NativeEndian.Uint16(buf[off+16:]))
			name := buf[off+19 : off+reclen]
			off += reclen
			for i, c := range name {
				if c == 0 {
					name = name[:i]
					break
				}
			}
			if s := string(name); s != "." && s != ".." {
				if err := each(s); err != nil {
					return err
				}
			}
		}
	}
}

// maxNames bounds what is kept of one directory. Only tests change it.
var maxNames = 1 << 20

// readNames returns the names in the directory fd; of more than maxNames that many,
// and ErrDepth.
func readNames(fd int) ([]string, error) {
	var out []string
	err := names(fd, func(n string) error {
		if len(out) == maxNames {
			return ErrDepth
		}
		out = append(out, n)
		return nil
	})
	return out, err
}

//go:build unix

package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// private refuses what others can read or write, or what is not ours.
func private(st fs.FileInfo) error {
	if !st.Mode().IsRegular() && !st.IsDir() {
		return errors.New("is not a regular file")
	}
	if perm := st.Mode().Perm(); perm&0o077 != 0 {
		return fmt.Errorf("has mode %#o, others have access; it must be 0600", perm)
	}
	if s, ok := st.Sys().(*syscall.Stat_t); !ok || int(s.Uid) != os.Geteuid() {
		return errors.New("belongs to another user")
	}
	return nil
}

func openNoFollow(path string) (*os.File, error) {
	// Non-blocking, so that a pipe put there does not hold us up.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		_ = f.Close()
		return nil, errors.New("not a regular file")
	}
	return f, nil
}

// syncDir makes a rename durable. Where it fails the entry may be lost in a
// crash, which costs one compilation.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

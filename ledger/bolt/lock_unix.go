//go:build unix

package bolt

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock takes the lock that bbolt takes again on the same open file, so that the
// file can be read before bbolt does.
func lock(f *os.File, path string, wait time.Duration) error {
	until := time.Now().Add(wait)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return cannotOpen(path, err)
		case !time.Now().Before(until):
			return inUse(path)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// exposed reports whether others than the owner may touch the file, as they must
// not.
func exposed(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }

// syncDir makes a new file's name durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

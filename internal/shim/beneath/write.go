//go:build linux

package beneath

import (
	"encoding/binary"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Pending is a file that is being written and is not in its place yet.
type Pending struct {
	dir, fd   int
	base, tmp string
	mode      uint32
	named     bool
}

// Create begins to replace the file name; missing parents are made with 0755. A
// mode of 0 is the existing file's, or 0644. Links in the place of name are
// followed within the root.
func Create(root int, name string, mode uint32) (*Pending, error) {
	if name == "." {
		return nil, ErrRoot
	}
	name, old, err := finalName(root, name)
	if err != nil {
		return nil, err
	}
	if mode == 0 {
		if mode = 0o644; old != nil {
			mode = old.Mode & 0o777
		}
	}
	return create(root, name, mode)
}

// create is Create for a name that is not followed.
func create(root int, name string, mode uint32) (*Pending, error) {
	dir, err := makeDirs(root, path.Dir(name), 0o755)
	if err != nil {
		return nil, err
	}
	p := &Pending{dir: dir, base: path.Base(name), tmp: temporaryName(), mode: mode}
	p.fd, err = unix.Open(self(dir), unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == unix.EOPNOTSUPP || err == unix.EISDIR || err == unix.ENOENT || err == unix.EINVAL {
		p.named = true
		p.fd, err = unix.Openat(dir, p.tmp, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	}
	if err != nil {
		_ = unix.Close(dir)
		return nil, err
	}
	return p, nil
}

// temporaryName is one that nobody else has. Should somebody guess it, nothing is
// lost but the write.
func temporaryName() string {
	var r [8]byte
	_, _ = unix.Getrandom(r[:], 0)
	return ".sbxhost-" + strconv.FormatUint(binary.NativeEndian.Uint64(r[:]), 16)
}

// Write appends b.
func (p *Pending) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.Write(p.fd, b[done:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// Abort drops what was written. It may be called after Commit.
func (p *Pending) Abort() {
	if p.fd < 0 {
		return
	}
	if p.named {
		_ = unix.Unlinkat(p.dir, p.tmp, 0)
	}
	_ = unix.Close(p.fd)
	_ = unix.Close(p.dir)
	p.fd = -1
}

// Commit puts the file in its place, whole or not at all. A nil time leaves it as
// it is.
func (p *Pending) Commit(mtime *unix.Timespec) error {
	err := unix.Fchmod(p.fd, p.mode)
	if err == nil && mtime != nil {
		err = unix.UtimesNanoAt(unix.AT_FDCWD, self(p.fd), []unix.Timespec{*mtime, *mtime}, 0)
	}
	if err == nil && !p.named {
		if err = unix.Linkat(unix.AT_FDCWD, self(p.fd), p.dir, p.tmp, unix.AT_SYMLINK_FOLLOW); err == nil {
			p.named = true
		}
	}
	if err == nil {
		err = unix.Renameat(p.dir, p.tmp, p.dir, p.base)
	}
	if err == nil {
		p.named = false
	}
	p.Abort()
	return err
}

// finalName follows a symbolic link that a file to be written is, within the root,
// and returns what is there.
func finalName(root int, name string) (string, *unix.Stat_t, error) {
	for range maxLinks {
		st, target, err := Stat(root, name)
		if err == unix.ENOENT {
			return name, nil, nil
		}
		if err != nil {
			return "", nil, err
		}
		if kind(&st) != unix.S_IFLNK {
			return name, &st, regular(&st)
		}
		if path.IsAbs(target) {
			return "", nil, unix.EXDEV
		}
		next := path.Join(path.Dir(name), target)
		if next == ".." || strings.HasPrefix(next, "../") {
			return "", nil, unix.EXDEV
		}
		name = next
	}
	return "", nil, unix.ELOOP
}

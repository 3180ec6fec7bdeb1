//go:build linux

package main

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// account is who a command is in a container.
type account struct {
	uid, gid uint32
	groups   []uint32
	home     string
}

// Files that say who is who. Both may be missing: a number needs neither.
const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

const (
	maxAccountID = 1<<31 - 1
	maxGroups    = 1024
	maxLineSize  = 256 << 10 // a longer line of these files is passed over
)

// lookUp resolves "user[:group]" as engines do: a number is always an id; with a
// group given, it is the only one; else the user's own and those that list the
// user. ENOENT: a name is not known.
func lookUp(spec string) (account, *stepError) {
	return resolve(spec, lines(passwdFile), lines(groupFile))
}

// lineSource calls each for every line of a file until it returns false.
type lineSource func(each func([]byte) bool) error

func resolve(spec string, passwd, groups lineSource) (account, *stepError) {
	a := account{home: "/"}
	user, group := []byte(spec), []byte(nil)
	explicit := false
	for i := range user {
		if user[i] == ':' {
			user, group, explicit = user[:i], user[i+1:], true
			break
		}
	}
	if explicit && (len(group) == 0 || bytes.IndexByte(group, ':') >= 0) {
		return a, &stepError{"group", unix.EINVAL}
	}
	if len(user) == 0 {
		user = []byte("0")
	}
	id, numeric := number(user)
	var name []byte
	found := false
	err := passwd(func(line []byte) bool {
		f := bytes.Split(line, []byte{':'})
		if len(f) < 7 {
			return true
		}
		uid, ok1 := number(f[2])
		gid, ok2 := number(f[3])
		if !ok1 || !ok2 || (numeric && uid != id) || (!numeric && !bytes.Equal(f[0], user)) {
			return true
		}
		found = true
		a.uid, a.gid = uid, gid
		name = append([]byte(nil), f[0]...)
		if len(f[5]) > 0 && f[5][0] == '/' {
			a.home = string(f[5])
		}
		return false
	})
	if err != nil {
		return a, &stepError{"user", err}
	}
	if !found {
		if !numeric {
			return a, &stepError{"user", unix.ENOENT}
		}
		a.uid = id
	}
	if !explicit && !found {
		return a, nil
	}
	gid, gnumeric := number(group)
	if explicit && gnumeric {
		a.gid = gid
		return a, nil
	}
	known := false
	err = groups(func(line []byte) bool {
		f := bytes.Split(line, []byte{':'})
		if len(f) < 4 {
			return true
		}
		g, ok := number(f[2])
		if !ok {
			return true
		}
		if explicit {
			if bytes.Equal(f[0], group) {
				a.gid, known = g, true
			}
			return !known
		}
		for _, m := range bytes.Split(f[3], []byte{','}) {
			if bytes.Equal(m, name) {
				a.groups = append(a.groups, g)
				break
			}
		}
		return len(a.groups) < maxGroups
	})
	if err == nil && explicit && !known {
		err = unix.ENOENT
	}
	if err != nil {
		return a, &stepError{"group", err}
	}
	return a, nil
}

// number reads a decimal id.
func number(b []byte) (uint32, bool) {
	if len(b) == 0 || len(b) > 10 {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return uint32(n), n <= maxAccountID
}

// lines reads a regular file. One that is not there has no lines.
func lines(path string) lineSource {
	return func(each func([]byte) bool) error {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err == unix.ENOENT || err == unix.ENOTDIR {
			return nil
		}
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return unix.EINVAL
		}
		return split(func(b []byte) (int, error) { return unix.Read(fd, b) }, make([]byte, maxLineSize), each)
	}
}

// split cuts what read returns, up to a zero count, into lines; one that does not
// fit into buf is passed over.
func split(read func([]byte) (int, error), buf []byte, each func([]byte) bool) error {
	have, skip := 0, false
	for {
		n, err := read(buf[have:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			if have > 0 && !skip {
				each(buf[:have])
			}
			return nil
		}
		have += n
		rest := buf[:have]
		for {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			if !skip && !each(rest[:i]) {
				return nil
			}
			skip, rest = false, rest[i+1:]
		}
		if skip || len(rest) == len(buf) {
			skip, rest = true, nil
		}
		have = copy(buf, rest)
	}
}

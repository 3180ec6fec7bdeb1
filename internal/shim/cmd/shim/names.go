//go:build linux

package main

import (
	"bytes"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// loopbackNames is what an engine writes into /etc/hosts of a container that has the
// loopback device alone.
const loopbackNames = `127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
ff00::0	ip6-mcastprefix
ff02::1	ip6-allnodes
ff02::2	ip6-allrouters
`

// nameLoopback writes /etc/hosts and /etc/hostname, which an engine leaves empty when
// it is told to make no network at all. Without the first, localhost has no address.
// What is not possible is left out: an image may have no /etc.
func nameLoopback() {
	var st unix.Stat_t
	var u unix.Utsname
	if unix.Lstat("/etc", &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || unix.Uname(&u) != nil {
		return
	}
	name, mounts := unix.ByteSliceToString(u.Nodename[:]), lines("/proc/self/mountinfo")
	fillEmpty("/etc/hosts", loopbackNames+"127.0.0.1\t"+name+"\n", mounts)
	fillEmpty("/etc/hostname", name+"\n", mounts)
}

// fillEmpty writes an empty file of the container's own. One that is mounted is not
// ours to write (an engine's, or a path grant, which is the host's), nor one that a
// link leads to; one with content is the image's choice.
func fillEmpty(path, content string, mounts lineSource) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > 0 || mounted(mounts, filepath.Dir(path), path) {
		return
	}
	_, _ = unix.Write(fd, []byte(content))
}

// mounted reports whether something is mounted at one of the places, or that cannot be
// told. See proc_pid_mountinfo(5): the fifth field is where.
func mounted(mounts lineSource, places ...string) bool {
	found, all := false, 0
	err := mounts(func(line []byte) bool {
		all++
		f := bytes.Fields(line)
		for _, p := range places {
			found = found || len(f) < 5 || string(f[4]) == p
		}
		return !found
	})
	return found || err != nil || all == 0
}

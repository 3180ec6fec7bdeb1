//go:build unix

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// ownPrivate reports whether a directory is this user's, and nobody else's.
func ownPrivate(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && info.Mode().Perm()&0o077 == 0
}

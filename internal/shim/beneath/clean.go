// Package beneath is file access below one directory that a hostile program fills
// and changes at the same time. Every path is resolved by the kernel below the
// directory's descriptor (openat2), so that no link, whenever it is put there, leads
// out; nothing but regular files and directories is ever opened, so that a pipe
// cannot hold the caller; whoever may read or write what is decided by the calling
// thread's file system identity.
//
// Names are relative POSIX paths as [Clean] returns them. Errors are unix.Errno or
// the package's own. It imports nothing that would make the in-sandbox supervisor
// large.
package beneath

import (
	"errors"
	"path"
	"strings"
)

// The errors that are no errno.
var (
	ErrDirectory = errors.New("is a directory")
	ErrSpecial   = errors.New("is neither a regular file nor a directory")
	ErrAbsolute  = errors.New("the path is absolute")
	ErrOutside   = errors.New("the path leads out of the root")
	ErrNUL       = errors.New("the path contains a NUL byte")
	ErrRoot      = errors.New("not with the root itself")
	ErrDepth     = errors.New("the tree is too deep, or one of its directories too large")
)

// PathError says which path below the root an error is about.
type PathError struct {
	Path string // "" for the root
	Err  error
}

func (e *PathError) Error() string { return e.Path + ": " + e.Err.Error() }
func (e *PathError) Unwrap() error { return e.Err }

// Clean checks a path and makes it relative and clean; the root is ".".
func Clean(name string) (string, error) {
	switch {
	case strings.IndexByte(name, 0) >= 0:
		return "", ErrNUL
	case path.IsAbs(name):
		return "", ErrAbsolute
	}
	c := path.Clean(name)
	if c == ".." || strings.HasPrefix(c, "../") {
		return "", ErrOutside
	}
	return c, nil
}

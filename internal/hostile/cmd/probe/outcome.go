//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

func refused(format string, args ...any) hostile.Result {
	return hostile.Result{Outcome: hostile.Refused, Detail: fmt.Sprintf(format, args...)}
}

func succeeded(format string, args ...any) hostile.Result {
	return hostile.Result{Outcome: hostile.Succeeded, Detail: fmt.Sprintf(format, args...)}
}

func broken(format string, args ...any) hostile.Result {
	return hostile.Result{Outcome: hostile.Error, Detail: fmt.Sprintf(format, args...)}
}

// refusals are the answers that mean "no". Anything else from a system call is
// either expected by the attempt, as proof that it got past the check, or a sign
// that the attempt was badly made.
var refusals = []unix.Errno{
	unix.EPERM, unix.EACCES, unix.ENOSYS, unix.ENOENT, unix.ESRCH, unix.EROFS,
	unix.ELOOP, unix.EXDEV, unix.ENOTDIR, unix.ENXIO, unix.ENODEV, unix.EOPNOTSUPP,
	unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT,
	unix.ECONNREFUSED, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL,
}

// judge turns the answer of a system call into a result. Errors in past mean
// that the call got beyond its permission check.
func judge(err error, goal string, past ...unix.Errno) hostile.Result {
	if err == nil {
		return succeeded("%s", goal)
	}
	var no unix.Errno
	if !errors.As(err, &no) {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return refused("%v", err)
		}
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			return refused("%v", err)
		}
		return broken("%s: %v", goal, err)
	}
	switch {
	case slices.Contains(past, no):
		return succeeded("%s: past the permission check (%v)", goal, err)
	case slices.Contains(refusals, no):
		return refused("%v", err)
	}
	return broken("%s: unexpected answer: %v", goal, err)
}

// call makes a raw system call.
func call(nr uintptr, args ...uintptr) error {
	_, err := callValue(nr, args...)
	return err
}

func callValue(nr uintptr, args ...uintptr) (uintptr, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, no := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if no != 0 {
		return r, no
	}
	return r, nil
}

// each runs f for all of items and reports the first that succeeds, else the
// first that is broken, else the last refusal.
func each[T any](items []T, what string, f func(T) hostile.Result) hostile.Result {
	if len(items) == 0 {
		return broken("no %s configured", what)
	}
	var last, bad hostile.Result
	for _, item := range items {
		r := f(item)
		switch r.Outcome {
		case hostile.Succeeded:
			return r
		case hostile.Error:
			bad = r
		case hostile.Refused:
			last = r
		}
	}
	if bad.Outcome != "" {
		return bad
	}
	return last
}

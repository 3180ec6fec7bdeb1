//go:build unix

package main

import "syscall"

// usableUmask keeps what we make accessible to ourselves. A stricter mask than
// that is the user's wish.
func usableUmask() { syscall.Umask(syscall.Umask(0o077) &^ 0o700) }

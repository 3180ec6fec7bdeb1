//go:build linux

package main

// foreignABIs says that int80 exists.
const foreignABIs = true

// int80 makes a system call through the 32-bit gate and returns its raw result.
//
//go:noescape
func int80(nr, a, b, c, d, e uintptr) uintptr

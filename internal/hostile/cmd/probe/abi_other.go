//go:build linux && !amd64

package main

const foreignABIs = false

func int80(_, _, _, _, _, _ uintptr) uintptr { panic("no 32-bit gate on this architecture") }

//go:build linux

// Command shim is the in-sandbox supervisor: one small static program that is
// PID 1 of a jail ("init") or of a container ("pid1"), or watches over one command
// ("exec").
//
//	shim init                          the control socket is descriptor 3
//	shim exec                          frames on descriptor 3, a socket
//	shim exec ID                       frames on standard input and output (an engine's exec)
//	shim files ID                      file operations on standard input and output
//	shim pid1 idle|image ROOT USER     PID 1 of a container, control lines on standard input and output
//	shim image                         the supervisor of the image's command: frames on descriptor 0, a socket
//
// Its own environment should be shim.Environ and nothing else: it tunes the
// collector to run only when memory really grew, because a collection starts
// threads and a sandbox at its process limit has none to give.
//
// It holds no value longer than it takes to start a command, prints nothing
// and opens no network connection.
package main

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const controlFD = 3

func main() {
	runtime.LockOSThread()
	if len(os.Args) < 2 {
		os.Exit(125)
	}
	unix.Umask(0o022)
	switch os.Args[1] {
	case "init":
		runInit()
	case "exec":
		in, out := controlFD, controlFD
		if len(os.Args) > 2 {
			in, out = 0, 1
		}
		runExec(in, out)
	case "image":
		runExec(0, 0)
	case "files":
		runFiles()
	case "pid1":
		runPID1(os.Args[2:])
	}
	os.Exit(125)
}

// prestart makes threads while they can still be made: at the process limit the
// runtime would die of not getting one.
func prestart(n int) {
	var ready, release = make(chan struct{}), make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			ready <- struct{}{}
			<-release
			runtime.UnlockOSThread()
		}()
	}
	for range n {
		<-ready
	}
	close(release)
}

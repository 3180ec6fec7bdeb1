//go:build linux

//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command probe tries to get out of a sandbox. See package hostile.
//
//	probe list             names of all attempts, one a line
//	probe run CONFIG       runs them; CONFIG is a hostile.Config as JSON; one Result a line
//	probe wait MARKER      a victim: prints "ready" and waits for the end of its input
//
// Every attempt runs in a process of its own, so that one that changes
// namespaces, loses its identity, hangs or is killed by a filter leaves the
// others alone.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

// attemptTimeout bounds one attempt. It is above every wait an attempt makes by
// itself.
const attemptTimeout = 2 * time.Minute

// Variables that carry the probe's own arguments to the process of an attempt.
const (
	envConfig    = "PROBE_CONFIG"
	envParent    = "PROBE_PARENT"    // the parent of the main process: the supervisor
	envInherited = "PROBE_INHERITED" // what was found in the main process's descriptors
)

// attempt is one named try.
type attempt struct {
	name string
	run  func(*hostile.Config) hostile.Result
}

func main() {
	inherited := inheritedDescriptors() // before anything here opens a descriptor
	if len(os.Args) < 2 {
		fail("usage: probe list | run CONFIG | wait MARKER")
	}
	switch os.Args[1] {
	case "list":
		for _, a := range attempts(&hostile.Config{Targets: []hostile.Target{{Name: "host"}, {Name: "other-exec"}, {Name: "other-sandbox"}}}) {
			fmt.Println(a.name)
		}
	case "wait":
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "run":
		if len(os.Args) != 3 {
			fail("usage: probe run CONFIG")
		}
		runAll(os.Args[2], inherited)
	case "one":
		var c hostile.Config
		if err := json.Unmarshal([]byte(os.Getenv(envConfig)), &c); err != nil {
			fail(err.Error())
		}
		for _, a := range attempts(&c) {
			if a.name == os.Args[2] {
				r := a.run(&c)
				r.Name = a.name
				emit(r)
				return
			}
		}
		fail("no such attempt: " + os.Args[2])
	case "spin": // a child of the fork and memory attempts
		time.Sleep(attemptTimeout)
	default:
		fail("unknown mode " + os.Args[1])
	}
}

func runAll(config, inherited string) {
	var c hostile.Config
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		fail("config: " + err.Error())
	}
	for _, a := range attempts(&c) {
		if len(c.Only) > 0 && !slices.Contains(c.Only, a.name) || len(c.Only) == 0 && slices.Contains(c.Skip, a.name) {
			continue
		}
		emit(runOne(a.name, config, inherited))
	}
}

// runOne runs one attempt in a child and returns its report, or what its death
// says.
func runOne(name, config, inherited string) hostile.Result {
	cmd := exec.Command("/proc/self/exe", "one", name)
	if exe, err := os.Executable(); err == nil {
		cmd.Path = exe
	}
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), envConfig+"="+config, envInherited+"="+inherited,
		fmt.Sprintf("%s=%d", envParent, os.Getppid()))
	cmd.Stdin = os.Stdin
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Start(); err != nil {
		return hostile.Result{Name: name, Outcome: hostile.Error, Detail: "start: " + err.Error()}
	}
	timer := time.AfterFunc(attemptTimeout, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	expired := !timer.Stop()
	var r hostile.Result
	line, _, _ := strings.Cut(out.String(), "\n")
	if json.Unmarshal([]byte(line), &r) == nil && r.Name == name {
		return r
	}
	r = hostile.Result{Name: name, Outcome: hostile.Error}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		switch {
		case expired:
			r.Detail = "no answer in time"
		case ws.Signal() == syscall.SIGSYS:
			r.Outcome, r.Detail = hostile.Refused, "killed by the system call filter"
		case ws.Signal() == syscall.SIGKILL && (name == "memory-bomb" || strings.HasPrefix(name, "fill-")):
			r.Outcome, r.Detail = hostile.Refused, "killed for its memory"
		default:
			r.Detail = "killed by " + ws.Signal().String()
		}
		return r
	}
	r.Detail = fmt.Sprintf("no report (%v): %.300s", err, errOut.String())
	if name == "memory-bomb" && outOfMemory(errOut.String()) {
		r.Outcome, r.Detail = hostile.Refused, "out of memory"
	}
	return r
}

// outOfMemory reports whether a Go program died for want of memory: which of its
// allocators ran dry first is chance, and each has its own words.
func outOfMemory(stderr string) bool {
	return strings.Contains(stderr, "out of memory") || strings.Contains(stderr, "cannot allocate memory")
}

func emit(r hostile.Result) {
	b, err := json.Marshal(r)
	if err != nil {
		fail(err.Error())
	}
	_, _ = os.Stdout.Write(append(b, '\n'))
}

func fail(message string) {
	_, _ = fmt.Fprintln(os.Stderr, "probe: "+message)
	os.Exit(2)
}

// attempts lists all of them; c decides only which processes are targets.
func attempts(c *hostile.Config) []attempt {
	return slices.Concat(
		processAttempts(c),
		fileAttempts(),
		namespaceAttempts(),
		mountAttempts(),
		socketAttempts(),
		kernelAttempts(),
		privilegeAttempts(),
		deviceAttempts(),
		ipcAttempts(),
		terminalAttempts(),
		foreignABIAttempts(),
		resourceAttempts(),
	)
}

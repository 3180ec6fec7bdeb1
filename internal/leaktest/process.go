//go:build linux

package leaktest

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// pollInterval is the pause between two looks at the process table. A process
// that lives shorter than a look takes may be missed.
const pollInterval = 500 * time.Microsecond

// Process is what was seen of one process.
type Process struct {
	PID     int
	Args    string // NUL-separated, as the kernel shows it
	Environ string // NUL-separated; empty when it could not be read
}

// Watcher samples the command line and environment of every process on the
// machine.
type Watcher struct {
	mu     sync.Mutex
	seen   map[Process]int
	looks  int
	stop   chan struct{}
	done   chan struct{}
	closed sync.Once
}

// Watch starts sampling until Stop, or the end of the test.
func Watch(tb testing.TB) *Watcher {
	tb.Helper()
	w := &Watcher{seen: map[Process]int{}, stop: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	tb.Cleanup(w.Stop)
	return w
}

// Stop ends the sampling. It may be called more than once.
func (w *Watcher) Stop() {
	w.closed.Do(func() { close(w.stop) })
	<-w.done
}

func (w *Watcher) run() {
	defer close(w.done)
	for {
		w.look()
		select {
		case <-w.stop:
			return
		case <-time.After(pollInterval):
		}
	}
}

func (w *Watcher) look() {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		args, err := os.ReadFile("/proc/" + name + "/cmdline")
		if err != nil || len(args) == 0 {
			continue // gone, or a thread of the kernel
		}
		// An execve between two reads would pair the arguments of one program with
		// the environment of the next; and the kernel, asked in the middle of one,
		// may take the environment for arguments. What two reads agree on is there.
		var environ []byte
		for range 3 {
			environ, _ = os.ReadFile("/proc/" + name + "/environ")
			again, err := os.ReadFile("/proc/" + name + "/cmdline")
			if err == nil && bytes.Equal(args, again) {
				break
			}
			environ = nil
			if err != nil || len(again) == 0 {
				break // gone
			}
			args = again
		}
		p := Process{PID: pid, Args: string(args), Environ: string(environ)}
		w.mu.Lock()
		w.seen[p]++
		w.mu.Unlock()
	}
	w.mu.Lock()
	w.looks++
	w.mu.Unlock()
}

// Seen returns every distinct state of every process seen so far.
func (w *Watcher) Seen() []Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]Process, 0, len(w.seen))
	for p := range w.seen {
		out = append(out, p)
	}
	return out
}

// Looks returns how often the table was read.
func (w *Watcher) Looks() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks
}

// AddTo adds the arguments of every process seen, and the environment of those
// that are not the workload.
func (w *Watcher) AddTo(c *Corpus, workload func(Process) bool) {
	for _, p := range w.Seen() {
		title, _, _ := strings.Cut(p.Args, "\x00")
		c.Add("arguments of process "+strconv.Itoa(p.PID)+" "+title, []byte(strings.ReplaceAll(p.Args, "\x00", " ")))
		c.Add("arguments of process "+strconv.Itoa(p.PID)+" "+title+" (raw)", []byte(p.Args))
		if !workload(p) {
			c.Add("environment of process "+strconv.Itoa(p.PID)+" "+title, []byte(p.Environ))
		}
	}
}

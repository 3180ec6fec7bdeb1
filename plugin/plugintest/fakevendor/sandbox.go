package fakevendor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Sandbox is a fake's sandbox: a folder and what it was created with.
type Sandbox struct {
	ID       string
	Name     string
	Labels   map[string]string
	Env      map[string]string
	Dir      string
	Created  time.Time
	Polls    int // how often its state was asked for
	mu       sync.Mutex
	commands map[string]*Command
}

// Format implements fmt.Formatter: its id, whatever the verb. Printing
// reads none of the fields that change.
func (s *Sandbox) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "fakevendor.Sandbox["+s.ID+"]")
}

// Create adds a sandbox.
func (v *Vendor) Create(prefix, name string, labels, env map[string]string) (*Sandbox, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.next++
	s := &Sandbox{ID: fmt.Sprintf("%s%04d", prefix, v.next), Name: name, Labels: labels, Env: env, Created: time.Now(), commands: map[string]*Command{}}
	s.Dir = filepath.Join(v.dir, s.ID)
	if err := os.MkdirAll(s.Path(Root), 0o755); err != nil { //nolint:gosec // a sandbox's own folder
		return nil, err
	}
	v.sandboxes[s.ID] = s
	return s, nil
}

// Get returns a sandbox.
func (v *Vendor) Get(id string) (*Sandbox, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.sandboxes[id]
	return s, ok
}

// All returns the sandboxes in the order of their ids.
func (v *Vendor) All() []*Sandbox {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]*Sandbox, 0, len(v.sandboxes))
	for _, s := range v.sandboxes {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *Sandbox) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Delete removes a sandbox and kills its commands.
func (v *Vendor) Delete(id string) bool {
	v.mu.Lock()
	s, ok := v.sandboxes[id]
	delete(v.sandboxes, id)
	v.mu.Unlock()
	if !ok {
		return false
	}
	s.mu.Lock()
	commands := s.commands
	s.commands = map[string]*Command{}
	s.mu.Unlock()
	for _, c := range commands {
		_ = c.Signal(syscall.SIGKILL) // it may have ended
		<-c.Done
	}
	_ = os.RemoveAll(s.Dir)
	return true
}

// CloseAll removes every sandbox.
func (v *Vendor) CloseAll() {
	for _, s := range v.All() {
		v.Delete(s.ID)
	}
}

// Root is the working directory that every sandbox has.
const Root = "/workspace"

// Localize rewrites a command line for vendors whose exec call has no field for
// the working directory: a fake has no root file system of its own, so Root
// stands for the sandbox's folder wherever the line names it.
func (s *Sandbox) Localize(line string) string { return strings.ReplaceAll(line, Root, s.Path(Root)) }

// Path returns where a path of the sandbox lies on this machine. The vendor's
// root is the sandbox's folder.
func (s *Sandbox) Path(p string) string {
	return filepath.Join(s.Dir, filepath.FromSlash(path.Clean("/"+p)))
}

// Command is a command that runs, or ran.
type Command struct {
	ID     string
	Cmd    *exec.Cmd
	Done   chan struct{}
	mu     sync.Mutex
	stdout []byte
	stderr []byte
	notify chan struct{}
	code   int
	signal string
}

// Format implements fmt.Formatter: its id, whatever the verb. Printing reads
// none of the fields that change.
func (c *Command) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "fakevendor.Command["+c.ID+"]")
}

// Start runs a command with exactly the given environment. Paths in dir are the
// sandbox's.
func (s *Sandbox) Start(id string, argv []string, dir string, env map[string]string, stdin bool) (*Command, func([]byte, bool) error, error) {
	work := s.Path(dir)
	if info, err := os.Stat(work); err != nil {
		return nil, nil, err
	} else if !info.IsDir() {
		return nil, nil, &fs.PathError{Op: "chdir", Path: dir, Err: syscall.ENOTDIR}
	}
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec // running commands is what a fake vendor is for
	cmd.Dir = work
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + work}
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	setGroup(cmd)
	c := &Command{ID: id, Cmd: cmd, Done: make(chan struct{}), notify: make(chan struct{}, 1)}
	out := &stream{c: c, buf: &c.stdout, exited: make(chan struct{})}
	errs := &stream{c: c, buf: &c.stderr, exited: out.exited}
	for _, w := range []*stream{out, errs} {
		if err := w.open(); err != nil {
			out.close()
			return nil, nil, err
		}
	}
	cmd.Stdout, cmd.Stderr = out.w, errs.w
	input := func([]byte, bool) error { return fmt.Errorf("no stdin") }
	if stdin {
		w, err := cmd.StdinPipe()
		if err != nil {
			out.close()
			errs.close()
			return nil, nil, err
		}
		input = func(b []byte, eof bool) error {
			if len(b) > 0 {
				if _, err := w.Write(b); err != nil {
					return err
				}
			}
			if eof {
				return w.Close()
			}
			return nil
		}
	}
	if err := cmd.Start(); err != nil {
		out.close()
		errs.close()
		return nil, nil, err
	}
	s.mu.Lock()
	s.commands[id] = c
	s.mu.Unlock()
	var reading sync.WaitGroup
	reading.Go(out.read)
	reading.Go(errs.read)
	go func() {
		_ = cmd.Wait() // its outcome is in ProcessState
		out.hurry()
		errs.hurry()
		close(out.exited)
		reading.Wait()
		c.mu.Lock()
		c.code, c.signal = outcome(cmd)
		c.mu.Unlock()
		close(c.Done)
		c.poke()
	}()
	return c, input, nil
}

// Look counts how often the sandbox's state was asked for.
func (s *Sandbox) Look() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Polls++
	return s.Polls
}

// Command returns a command by id.
func (s *Sandbox) Command(id string) (*Command, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.commands[id]
	return c, ok
}

// stream is one of a command's outputs.
type stream struct {
	c      *Command
	buf    *[]byte
	r, w   *os.File
	exited chan struct{} // closed when the command has exited
}

const (
	// leftBehind is how long what a command left running may keep an output open.
	leftBehind = time.Second
	// chatter bounds what it may still write in that time and after.
	chatter = 10 * time.Second
)

func (w *stream) open() (err error) {
	w.r, w.w, err = os.Pipe()
	return err
}

func (w *stream) close() {
	_ = w.r.Close()
	_ = w.w.Close()
}

// hurry gets read out of a wait that has no end.
func (w *stream) hurry() {
	if w.r.SetReadDeadline(time.Now()) != nil { // a system whose pipes have none
		time.AfterFunc(leftBehind, func() { _ = w.r.Close() })
	}
}

// read reads to the output's end, or for a moment after the command's. It gives
// nothing up that is in the pipe, however late it comes to look: on a busy machine
// that may be long after.
func (w *stream) read() {
	defer func() { _ = w.r.Close() }()
	_ = w.w.Close() // the command has its own
	buf := make([]byte, 32<<10)
	var exit time.Time
	for vain := 0; ; {
		n, err := w.r.Read(buf)
		if n > 0 {
			w.c.mu.Lock()
			*w.buf = append(*w.buf, buf[:n]...)
			w.c.mu.Unlock()
			w.c.poke()
			vain = 0
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			<-w.exited // about to be closed: see hurry
			vain++
		case err != nil:
			return
		}
		select {
		case <-w.exited:
		default:
			continue
		}
		now := time.Now()
		if exit.IsZero() {
			exit = now
		}
		// A read whose time is over before it begins does not look into the pipe, so
		// one says nothing.
		if over := now.Sub(exit); over > chatter || over >= leftBehind && vain > 3 {
			return
		}
		until := exit.Add(leftBehind)
		if least := now.Add(20 * time.Millisecond); until.Before(least) {
			until = least
		}
		_ = w.r.SetReadDeadline(until) // where there is none, hurry closes it
	}
}

func (c *Command) poke() {
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// Output returns copies of what was written so far.
func (c *Command) Output() (stdout, stderr []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.stdout), slices.Clone(c.stderr)
}

// Wait returns when there may be new output or the command has ended.
func (c *Command) Wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.notify:
	case <-c.Done:
	case <-t.C:
	}
}

// Settle waits until the command has ended, for d at most.
func (c *Command) Settle(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.Done:
	case <-t.C:
	}
}

// Ended reports how the command ended.
func (c *Command) Ended() (code int, signal string, ended bool) {
	select {
	case <-c.Done:
	default:
		return 0, "", false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.code, c.signal, true
}

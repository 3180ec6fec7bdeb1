package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/term"

	"github.com/sbxhost/sbxhost/ledger/bolt"
	"github.com/sbxhost/sbxhost/ledger/ledgertest"
)

// command is our own binary as sbxhost, in a home of its own.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	home := t.TempDir()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Args[0] = "sbxhost" // what TestMain looks at
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERM=xterm", "TMPDIR=" + os.TempDir(),
		"HOST_TOKEN=s3cr3t-canary-8c1f"}
	return cmd
}

// wait waits for the process and returns its exit code.
func wait(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	timer := time.AfterFunc(deadline, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	require.True(t, timer.Stop(), "did not end within %s", deadline)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	require.NoError(t, err)
	return 0
}

// newMark is an argument of sleep that no other process has.
func newMark() string { return fmt.Sprintf("%d.%09d", 7_000_000+os.Getpid(), marks.Add(1)) }

var marks atomic.Int64

// processes lists the processes whose command line holds the mark.
func processes(t *testing.T, mark string) []string {
	t.Helper()
	var out []string
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, d := range dirs {
		line, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if err == nil && bytes.Contains(line, []byte(mark)) {
			out = append(out, d)
		}
	}
	return out
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		signal syscall.Signal
		script string
	}{
		{"Ctrl-C", syscall.SIGINT, `echo ready; exec sleep MARK`},
		{"TERM", syscall.SIGTERM, `echo ready; exec sleep MARK`},
		{"a command that ignores TERM, with a child in its own session", syscall.SIGINT,
			`trap '' TERM INT; setsid sleep MARK & echo ready; while :; do sleep 1; done`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			mark := newMark()
			cmd := command(t, "run", "--secret", "HOST_TOKEN", "--", "sh", "-c", strings.ReplaceAll(tc.script, "MARK", mark))
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			var stderr screen
			cmd.Stderr = &stderr
			require.NoError(t, cmd.Start())
			line, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err, stderr.String())
			require.Equal(t, "ready\n", line)
			require.NotEmpty(t, processes(t, mark), "the command can be seen from here")

			require.NoError(t, cmd.Process.Signal(tc.signal))
			assert.Equal(t, exitInterrupted, wait(t, cmd), stderr.String())
			assert.Contains(t, stderr.String(), "interrupted")
			assert.Empty(t, processes(t, mark), "nothing of it is left")
		})
	}
}

// Output that cannot be written is our failure, unless its reader just left.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { _ = full.Close() }()
	for _, args := range [][]string{{"run", "--"}, {"run", "--json", "--"}} {
		cmd := command(t, append(args, "sh", "-c", "echo out; exit 0")...)
		cmd.Stdout = full
		var stderr screen
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Start())
		assert.Equal(t, exitFailed, wait(t, cmd))
		assert.Contains(t, stderr.String(), "no space left")
	}
}

// A mask that shuts us out of what we make is not kept.
func TestUmask(t *testing.T) {
	t.Parallel()
	cmd := command(t, "run", "--file", "plain:plain", "--", "cat", "plain")
	require.NoError(t, os.WriteFile(filepath.Join(cmd.Dir, "plain"), []byte("content"), 0o600))
	self := filepath.Join(cmd.Dir, "sbxhost") // what TestMain looks at
	require.NoError(t, os.Symlink(cmd.Path, self))
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	cmd.Path, cmd.Args = sh, append([]string{"sh", "-c", `umask 0777; exec "$0" "$@"`, self}, cmd.Args[1:]...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "content", string(out))
}

// A signal that was ignored when we were started, as by nohup, stays ignored.
func TestIgnoredSignals(t *testing.T) {
	t.Parallel()
	cmd := command(t, "run", "--", "sh", "-c", "echo ready; sleep 1; echo done")
	self := filepath.Join(cmd.Dir, "sbxhost") // what TestMain looks at
	require.NoError(t, os.Symlink(cmd.Path, self))
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	cmd.Path, cmd.Args = sh, append([]string{"sh", "-c", `trap '' HUP INT; exec "$0" "$@"`, self}, cmd.Args[1:]...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	line, err = lines.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "done\n", line)
	assert.Equal(t, 0, wait(t, cmd))
}

// stuck is a command that has more output than anybody takes, and a child that
// begins once it has written all of it. A run whose output nobody reads cannot come
// to an end, however long it is given.
const stuck = `trap '' TERM INT HUP; echo ready; head -c 200000 /dev/zero | tr '\0' y; while :; do sleep MARK; done`

// begun waits for the child of stuck.
func begun(t *testing.T, mark string, shown *screen) {
	t.Helper()
	child := []byte("sleep\x00" + mark + "\x00")
	for end := time.Now().Add(deadline); ; time.Sleep(10 * time.Millisecond) {
		for _, d := range processes(t, mark) {
			if line, err := os.ReadFile(filepath.Join(d, "cmdline")); err == nil && bytes.Equal(line, child) {
				return
			}
		}
		require.True(t, time.Now().Before(end), "the command did not get to its child: %s", shown)
	}
}

// interrupt sends a signal until the process has ended, and returns its exit code.
func interrupt(t *testing.T, cmd *exec.Cmd, signal syscall.Signal) int {
	t.Helper()
	ended := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		again := time.NewTicker(50 * time.Millisecond)
		defer again.Stop()
		for {
			_ = cmd.Process.Signal(signal) // it may have ended
			select {
			case <-again.C:
			case <-ended:
				return
			}
		}
	})
	defer sender.Wait()
	defer close(ended)
	return wait(t, cmd)
}

func TestSecondInterruptDoesNotWait(t *testing.T) {
	t.Parallel()
	// Two of the same, interrupted at the same time. Neither can come to an end, as
	// nobody reads its output: the first interrupt waits for that all the same, those
	// after it do not.
	begin := func(mark string) (cmd *exec.Cmd, out io.Reader, stderr *screen) {
		cmd = command(t, "run", "--", "sh", "-c", strings.ReplaceAll(stuck, "MARK", mark))
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		stderr = &screen{}
		cmd.Stderr = stderr
		require.NoError(t, cmd.Start())
		begun(t, mark, stderr)
		return cmd, out, stderr
	}
	waits, leaves := newMark(), newMark()
	patient, out, _ := begin(waits)
	hasty, _, stderr := begin(leaves)
	require.NoError(t, patient.Process.Signal(syscall.SIGINT))
	assert.Equal(t, exitInterrupted, interrupt(t, hasty, syscall.SIGINT))
	assert.Contains(t, stderr.String(), "interrupted again: not waiting for the clean-up")

	assert.NotEmpty(t, processes(t, waits), "the one that was interrupted once is still waiting")
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends when the program does
	assert.Equal(t, exitInterrupted, wait(t, patient))
	assert.Empty(t, processes(t, waits))
	// What the hasty one did not wait for ends after it.
	assert.Eventually(t, func() bool { return len(processes(t, leaves)) == 0 }, deadline, 10*time.Millisecond)
}

// Nor does it wait for a reader of what it says.
func TestSecondInterruptUnheard(t *testing.T) {
	t.Parallel()
	mark := newMark()
	cmd := command(t, "run", "--", "sh", "-c", strings.ReplaceAll(stuck, "MARK", mark))
	_, err := cmd.StdoutPipe() // read by nobody
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	begun(t, mark, &screen{})
	assert.Equal(t, exitInterrupted, interrupt(t, cmd, syscall.SIGINT))
	assert.Eventually(t, func() bool { return len(processes(t, mark)) == 0 }, deadline, 10*time.Millisecond)
}

// A reconcile that waits for an engine is ended by Ctrl-C; what it did not finish
// it says, and keeps.
func TestInterruptedReconcile(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "sbx") // a socket's path must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	silent, err := net.Listen("unix", filepath.Join(dir, "engine"))
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	asked := make(chan net.Conn, 1)
	go func() {
		c, err := silent.Accept()
		if err != nil {
			close(asked)
			return
		}
		asked <- c
	}()

	cmd := command(t, "reconcile")
	cmd.Env = append(cmd.Env, "DOCKER_HOST=unix://"+filepath.Join(dir, "engine"))
	runs := filepath.Join(cmd.Dir, ".local/state/sbxhost/run")
	require.NoError(t, os.MkdirAll(runs, 0o700))
	leave := func(owner string) {
		// A process that another test starts meanwhile would hold the lock until it
		// executes, and the run would look as if it went on.
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		l, err := bolt.Open(filepath.Join(runs, owner+ledgerExt), bolt.Options{})
		require.NoError(t, err)
		r := ledgertest.Record("s1", "a1")
		r.Owner, r.Provider = owner, "docker"
		require.NoError(t, l.Put(t.Context(), r))
		require.NoError(t, l.Close())
	}
	// More than one, as the engine is given up after a while, once for each.
	const many = 9
	for i := range many {
		leave(fmt.Sprintf("%s%02d", runOwner, i+1))
	}
	var stdout, stderr screen
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	select {
	case c, ok := <-asked:
		require.True(t, ok)
		defer func() { _ = c.Close() }()
	case <-time.After(deadline):
		t.Fatal("the engine was not asked")
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	assert.Equal(t, exitInterrupted, wait(t, cmd), stderr.String())
	assert.Contains(t, stdout.String(), runOwner+"01: session s1 on docker could not be removed")
	assert.Contains(t, stderr.String(), "sbxhost: interrupted\n")
	left, err := filepath.Glob(filepath.Join(runs, "*"+ledgerExt))
	require.NoError(t, err)
	assert.Len(t, left, many)
}

// A reader that goes away ends the command and the sandbox is removed.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	mark := newMark()
	cmd := command(t, "run", "--", "sh", "-c", `sleep `+mark+` & while :; do echo y; done`)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 2))
	require.NoError(t, err)
	require.NoError(t, out.Close())
	assert.Equal(t, exitBrokenPipe, wait(t, cmd))
	assert.Empty(t, processes(t, mark))
}

// The same with --json, whose one document nobody reads.
func TestBrokenPipeJSON(t *testing.T) {
	t.Parallel()
	cmd := command(t, "run", "--json", "--", "true")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	var stderr screen
	cmd.Stdout, cmd.Stderr = w, &stderr
	require.NoError(t, cmd.Start())
	require.NoError(t, w.Close())
	assert.Equal(t, exitBrokenPipe, wait(t, cmd))
	assert.Empty(t, stderr.String())
}

// The second signal does not wait, but the terminal is given back all the same.
func TestSecondInterruptRestoresTerminal(t *testing.T) {
	t.Parallel()
	mark := newMark()
	cmd := command(t, "run", "-it", "--", "sh", "-c", strings.ReplaceAll(stuck, "MARK", mark))
	tty, sub, err := pty.Open()
	require.NoError(t, err)
	defer func() { _ = tty.Close() }()
	before, err := term.GetState(int(tty.Fd())) // before the program can have changed it
	require.NoError(t, err)
	cmd.Stdin, cmd.Stderr = sub, sub
	_, err = cmd.StdoutPipe() // read by nobody
	require.NoError(t, err)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, sub.Close())
	out := &screen{}
	go func() { _, _ = io.Copy(out, tty) }() // ends with EIO when the program does
	begun(t, mark, out)
	raw, err := term.GetState(int(tty.Fd()))
	require.NoError(t, err)
	require.NotEqual(t, before, raw, "the terminal must be raw, or this test shows nothing")
	assert.Equal(t, exitInterrupted, interrupt(t, cmd, syscall.SIGTERM))
	out.wait(t, "interrupted again")
	after, err := term.GetState(int(tty.Fd()))
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

// Our own terminal that goes is the end of the input; a file whose disk fails is not,
// or half of it would be taken for the whole.
func TestInputThatFails(t *testing.T) {
	t.Parallel()
	fails := &os.PathError{Op: "read", Path: "/dev/stdin", Err: syscall.EIO}
	_, err := ours(iotest.ErrReader(fails)).Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.EIO)

	tty, sub, err := pty.Open()
	require.NoError(t, err)
	defer func() { _ = sub.Close() }()
	in := ours(sub)
	require.NoError(t, tty.Close())
	_, err = in.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// With -it the command has a terminal of our size that follows ours, keys reach
// it unchanged, and what it shows is redacted.
func TestTerminal(t *testing.T) {
	t.Parallel()
	cmd := command(t, "run", "-it", "--secret", "HOST_TOKEN", "--", "sh", "-c",
		`test -t 0 && test -t 1 && stty size; echo "token $HOST_TOKEN"; trap 'stty size' WINCH; trap 'echo got ctrl-c; exit 9' INT; echo ready; while :; do sleep 0.1; done`)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 101, Rows: 37})
	require.NoError(t, err)
	defer func() { _ = tty.Close() }()
	out := &screen{}
	go func() { _, _ = io.Copy(out, tty) }() // ends with EIO when the program does
	out.wait(t, "37 101")
	out.wait(t, "token [redacted:HOST_TOKEN]")
	out.wait(t, "ready")
	require.NoError(t, pty.Setsize(tty, &pty.Winsize{Cols: 90, Rows: 20}))
	out.wait(t, "20 90")
	_, err = tty.Write([]byte{3}) // Ctrl-C is the command's, not ours
	require.NoError(t, err)
	out.wait(t, "got ctrl-c")
	assert.Equal(t, 9, wait(t, cmd))
	assert.NotContains(t, out.String(), "canary")
}

// A program that fills the screen works: it is asked for at a prompt without a line
// end, of which even what could begin the secret appears while the command waits;
// it paints, follows our size, takes keys one by one and gives the terminal back;
// the secret that it shows is masked.
func TestFullScreen(t *testing.T) {
	t.Parallel()
	cmd := command(t, "run", "-it", "--secret", "HOST_TOKEN", "--", "sh", "-c",
		`printf 'line one\ntoken %s here\nlast line\n' "$HOST_TOKEN" >notes
		printf 'open the notes, s3c'; read answer
		busybox vi notes; echo "vi exited $?"; stty size; cat notes; echo the end`)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 101, Rows: 37})
	require.NoError(t, err)
	defer func() { _ = tty.Close() }()
	out := &screen{}
	go func() { _, _ = io.Copy(out, tty) }() // ends with EIO when the program does
	keys := func(s string) {
		_, err := tty.Write([]byte(s))
		require.NoError(t, err)
	}
	out.wait(t, "open the notes, s3c")
	keys("\r")
	out.wait(t, "token [redacted:HOST_TOKEN] here")
	out.wait(t, "\x1b[37;1H\x1b[K- notes") // the status line, the last of the screen
	require.NoError(t, pty.Setsize(tty, &pty.Winsize{Cols: 90, Rows: 20}))
	out.wait(t, "\x1b[20;1H\x1b[K- notes")
	keys("ihello ")
	out.wait(t, "hello line one")
	// An escape with a key close behind it is one key to vi: the next key has to
	// wait until the status line says that insertion has ended.
	keys("\x1b")
	out.wait(t, "- notes [Modified]")
	keys(":wq\r")
	out.wait(t, "vi exited 0")
	out.wait(t, "20 90")
	out.wait(t, "the end")
	assert.Equal(t, 0, wait(t, cmd))
	shown := out.String()
	assert.Contains(t, shown[strings.Index(shown, "20 90"):], "hello line one\r\ntoken [redacted:HOST_TOKEN] here\r\nlast line\r\n")
	assert.NotContains(t, shown, "canary")
}

package shim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/internal/shim/shimbin"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A stand-in for an engine's container: fresh pid, mount, ipc and uts namespaces, a
// read-only root of the host's own programs, the engine's capabilities, a pids
// cgroup. The engine's exec is a process that enters them from outside, so that it
// has no parent there.

// stageEnv makes the test's program something else than the tests.
const stageEnv = "SHIM_TEST_STAGE"

// runStage runs a part of the harness, or a hostile program, in a process of its own.
func runStage() {
	stage, arg := os.Getenv(stageEnv), os.Getenv("SHIM_TEST_ARG")
	switch stage {
	case "":
		return
	case "container":
		fatal(buildContainer(arg))
	case "enter":
		fatal(enterContainer(arg))
	default:
		hostileStage(stage)
	}
	os.Exit(99)
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		os.Exit(99)
	}
}

// boxOptions describe a container.
type boxOptions struct {
	Image  bool
	Root   string
	User   string
	PIDs   int
	Dir    string // made by start: where the root is put together
	Passwd string
	Group  string
	NoKill bool // without CAP_KILL
	Cgroup string
	Env    []string
}

const containerPasswd = `root:x:0:0:root:/root:/bin/sh
app:x:1000:1001:App:/workspace:/bin/sh
other:x:1002:1002::/nowhere:/bin/sh
broken line
`

const containerGroup = `root:x:0:
app:x:1001:
staff:x:50:app,other
wheel:x:51:root,app
`

// buildContainer runs in the fresh namespaces, as their PID 1, and becomes the shim.
func buildContainer(arg string) error {
	runtime.LockOSThread()
	var o boxOptions
	if err := json.Unmarshal([]byte(arg), &o); err != nil {
		return err
	}
	root := o.Dir
	for _, s := range []struct {
		what string
		do   func() error
	}{
		{"private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"root", func() error { return unix.Mount("tmpfs", root, "tmpfs", 0, "mode=0755") }},
		{"tree", func() error { return containerTree(root, o) }},
		{"chdir", func() error { return unix.Chdir(root) }},
		{"pivot", func() error { return unix.PivotRoot(".", ".") }},
		{"detach", func() error { return unix.Unmount(".", unix.MNT_DETACH) }},
		{"chdir", func() error { return unix.Chdir("/") }},
		{"read-only", func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "") }},
		{"confine", func() error { return engineConfinement(o.NoKill) }},
	} {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	args := shim.PID1Args(shim.PID1Options{Image: o.Image, Root: o.Root, User: o.User})
	return unix.Exec(shim.Path, args, append(shim.EngineEnviron(), o.Env...))
}

func containerTree(root string, o boxOptions) error {
	at := func(p string) string { return filepath.Join(root, p) }
	for _, d := range []string{"usr", "etc", "proc", "dev/pts", "dev/shm", "tmp", "workspace", ".sbx", "root"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			return err
		}
	}
	for _, l := range []string{"bin", "lib", "lib64", "sbin"} {
		target, err := os.Readlink("/" + l)
		if err != nil {
			continue
		}
		if err := os.Symlink(target, at(l)); err != nil {
			return err
		}
	}
	passwd, group := o.Passwd, o.Group
	if passwd == "" {
		passwd, group = containerPasswd, containerGroup
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for name, content := range map[string]string{"etc/passwd": passwd, "etc/group": group, "dev/null": "", "dev/zero": "", "dev/tty": "", "dev/urandom": "", "hostile": ""} {
		if err := os.WriteFile(at(name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	bin, _ := shimbin.Linux(runtime.GOARCH)
	if err := os.WriteFile(at(".sbx/shim"), bin, 0o755); err != nil {
		return err
	}
	for _, m := range []struct {
		from, to, kind string
		flags          uintptr
		data           string
	}{
		{"/usr", "usr", "", unix.MS_BIND | unix.MS_REC, ""},
		{"/dev/null", "dev/null", "", unix.MS_BIND, ""},
		{"/dev/zero", "dev/zero", "", unix.MS_BIND, ""},
		{"/dev/tty", "dev/tty", "", unix.MS_BIND, ""},
		{"/dev/urandom", "dev/urandom", "", unix.MS_BIND, ""},
		{self, "hostile", "", unix.MS_BIND, ""},
		{"devpts", "dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"},
		{"proc", "proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"tmpfs", "tmp", "tmpfs", unix.MS_NOSUID, "mode=1777"},
		{"tmpfs", "workspace", "tmpfs", unix.MS_NOSUID, "mode=0755"},
	} {
		if err := unix.Mount(m.from, at(m.to), m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
	}
	for _, ro := range []string{"usr", "hostile"} {
		if err := unix.Mount("", at(ro), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("protect %s: %w", ro, err)
		}
	}
	return os.Symlink("pts/ptmx", at("dev/ptmx"))
}

// engineConfinement is what an engine does to every process of the container.
func engineConfinement(noKill bool) error {
	var mask uint64
	for _, name := range shim.EngineCapabilities() {
		n, ok := map[string]uint{"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7, "SETPCAP": 8, "NET_BIND_SERVICE": 10}[name]
		if !ok {
			return errors.New("unknown capability " + name)
		}
		if name != "KILL" || !noKill {
			mask |= 1 << n
		}
	}
	for c := uintptr(0); c < 64; c++ {
		if mask>>c&1 == 0 {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
				break
			}
		}
	}
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: uint32(mask), Permitted: uint32(mask)}}
	// Neither no-new-privileges nor a limit on cores: what is seen of them inside is
	// the supervisors' doing.
	inf := ^uint64(0)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: inf, Max: inf}); err != nil {
		return err
	}
	if err := unix.Setgroups(nil); err != nil {
		return err
	}
	return unix.Capset(&h, &data[0])
}

// entry is one exec of the engine.
type entry struct {
	Args   []string
	Env    []string
	Cgroup string
	Held   bool // until descriptor 5 ends
}

// enterContainer runs in the container's pid namespace already; descriptor 3 is its
// mount namespace, 4 its ipc namespace.
func enterContainer(arg string) error {
	runtime.LockOSThread()
	var e entry
	if err := json.Unmarshal([]byte(arg), &e); err != nil {
		return err
	}
	if e.Cgroup != "" {
		if err := os.WriteFile(filepath.Join(e.Cgroup, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	for fd, kind := range map[int]int{3: unix.CLONE_NEWNS, 4: unix.CLONE_NEWIPC} {
		if err := unix.Setns(fd, kind); err != nil {
			return err
		}
		unix.CloseOnExec(fd)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := engineConfinement(false); err != nil {
		return err
	}
	if e.Held {
		var b [1]byte
		for {
			if _, err := unix.Read(5, b[:]); err != unix.EINTR {
				break
			}
		}
		unix.CloseOnExec(5)
	}
	return unix.Exec(e.Args[0], e.Args, e.Env)
}

// box is a running container.
type box struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     *os.File // the container's standard input
	out    *os.File
	log    *buffer
	cgroup string
	ended  chan struct{}
	err    error
}

// startBox starts a container and waits for its PID 1.
func startBox(t *testing.T, o boxOptions) (*box, *shim.Control) {
	t.Helper()
	b := launchBox(t, o)
	c := b.attach()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := c.Ping(ctx)
	require.NoError(t, err, "%s", b.log)
	require.Equal(t, shim.ProtocolVersion, p.Version)
	return b, c
}

func launchBox(t *testing.T, o boxOptions) *box {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes namespaces with several users")
	}
	o.Dir = t.TempDir()
	b := &box{t: t, log: &buffer{}, ended: make(chan struct{})}
	if o.PIDs > 0 {
		b.cgroup = pidsGroup(t, o.PIDs)
		o.Cgroup = b.cgroup
	}
	arg, err := json.Marshal(o)
	require.NoError(t, err)
	inR, inW, err := os.Pipe()
	require.NoError(t, err)
	outR, outW, err := os.Pipe()
	require.NoError(t, err)
	b.in, b.out = inW, outR
	b.cmd = exec.Command("/proc/self/exe")
	b.cmd.Env = append(os.Environ(), stageEnv+"=container", "SHIM_TEST_ARG="+string(arg))
	b.cmd.Stdin, b.cmd.Stdout, b.cmd.Stderr = inR, outW, b.log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS}
	err = b.cmd.Start()
	_ = inR.Close()
	_ = outW.Close()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("namespaces cannot be made here")
	}
	require.NoError(t, err)
	if b.cgroup != "" {
		require.NoError(t, os.WriteFile(filepath.Join(b.cgroup, "cgroup.procs"), []byte(strconv.Itoa(b.cmd.Process.Pid)), 0o644))
	}
	go func() {
		b.err = b.cmd.Wait()
		close(b.ended)
	}()
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		<-b.ended
		_ = b.in.Close()
		_ = b.out.Close()
	})
	return b
}

// wait waits for the container's end.
func (b *box) wait() {
	b.t.Helper()
	select {
	case <-b.ended:
	case <-time.After(time.Minute):
		b.t.Fatal("the container did not end")
	}
}

// pidsGroup makes a control group that limits processes.
func pidsGroup(t *testing.T, limit int) string {
	t.Helper()
	for _, parent := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir := filepath.Join(parent, fmt.Sprintf("sbxhost-shim-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(limit)), 0o644) != nil {
			_ = os.Remove(dir)
			continue
		}
		t.Cleanup(func() {
			for range 100 {
				if os.Remove(dir) == nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
		return dir
	}
	t.Skip("no pids control group can be made here")
	return ""
}

// rw is one attach.
type rw struct {
	io.Reader
	io.Writer
	close func() error
}

func (c *rw) Close() error { return c.close() }

// attach returns a Control over the container's standard streams, as an engine's
// attach: closing it leaves the streams themselves open.
func (b *box) attach() *shim.Control {
	r, w := io.Pipe()
	b.tee(w)
	c := shim.NewControl(&rw{r, b.in, r.Close})
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

var tees sync.Map // *box → *teeing

type teeing struct {
	mu  sync.Mutex
	out []*io.PipeWriter
}

// tee copies the container's output to everyone attached.
func (b *box) tee(w *io.PipeWriter) {
	v, loaded := tees.LoadOrStore(b, &teeing{})
	tt := v.(*teeing)
	tt.mu.Lock()
	tt.out = append(tt.out, w)
	tt.mu.Unlock()
	if loaded {
		return
	}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := b.out.Read(buf)
			tt.mu.Lock()
			for _, o := range tt.out {
				_, _ = o.Write(buf[:n])
				if err != nil {
					_ = o.Close()
				}
			}
			tt.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
}

// pid is PID 1 as the host sees it.
func (b *box) pid() int { return b.cmd.Process.Pid }

// engineExec starts a program in the container from outside.
func (b *box) engineExec(args []string) *engine {
	b.t.Helper()
	return b.enter(entry{Args: args, Env: shim.EngineEnviron(), Cgroup: b.cgroup})
}

// enter starts a program in the container. The files are its descriptors from 5 on,
// and closed here.
func (b *box) enter(what entry, files ...*os.File) *engine {
	b.t.Helper()
	arg, err := json.Marshal(what)
	require.NoError(b.t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), stageEnv+"=enter", "SHIM_TEST_ARG="+string(arg))
	in, err := cmd.StdinPipe()
	require.NoError(b.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b.t, err)
	errs := &buffer{}
	cmd.Stderr = errs
	ns := func(name string) *os.File {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", b.pid(), name))
		require.NoError(b.t, err)
		return f
	}
	pidns := ns("pid")
	cmd.ExtraFiles = append([]*os.File{ns("mnt"), ns("ipc")}, files...)
	started := make(chan error)
	go func() {
		// The thread is in two namespaces now; it ends with this goroutine.
		runtime.LockOSThread()
		err := unix.Setns(int(pidns.Fd()), unix.CLONE_NEWPID)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	require.NoError(b.t, <-started)
	_ = pidns.Close()
	for _, f := range cmd.ExtraFiles {
		_ = f.Close()
	}
	e := &engine{cmd, in, out}
	done := make(chan struct{})
	go func() { defer close(done); _, _ = cmd.Process.Wait() }()
	b.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		<-done
		_ = out.Close()
		if !b.t.Failed() {
			return
		}
		b.t.Logf("stderr of %v: %s", what.Args, errs)
	})
	return e
}

// exec runs a shell script in the container under a supervisor.
func (b *box) exec(id, user, script string, mods ...func(*shim.Request)) (*shim.Exec, *buffer, *engine) {
	b.t.Helper()
	x, out, e, err := b.tryExec(id, user, script, mods...)
	require.NoError(b.t, err)
	return x, out, e
}

func (b *box) tryExec(id, user, script string, mods ...func(*shim.Request)) (*shim.Exec, *buffer, *engine, error) {
	b.t.Helper()
	out := &buffer{}
	conf, err := shim.Workload{User: user}.Setup()
	require.NoError(b.t, err)
	req := shim.Request{
		Setup: conf, Args: []string{"/bin/sh", "-c", script},
		Env:    [][]byte{[]byte("PATH=/usr/bin:/bin"), []byte("TOKEN=canary-value")},
		Stdout: out, Stderr: out,
	}
	for _, m := range mods {
		m(&req)
	}
	e := b.engineExec(shim.ExecArgs(id))
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	x, err := shim.Start(ctx, e, req)
	return x, out, e, err
}

// inside lists the processes of the container, as the host sees them, whose command
// line holds text.
func (b *box) inside(text string) []int {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", b.pid()))
	require.NoError(b.t, err)
	var out []int
	for _, pid := range processes(b.t, text) {
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err == nil && ns == own {
			if running(pid) {
				out = append(out, pid)
			}
		}
	}
	return out
}

// everything lists every living process of the container but PID 1.
func (b *box) everything() []int {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", b.pid()))
	require.NoError(b.t, err)
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(b.t, err)
	var out []int
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		require.NoError(b.t, err)
		if ns, err := os.Readlink(d + "/ns/pid"); err == nil && ns == own && pid != b.pid() {
			if running(pid) {
				out = append(out, pid)
			}
		}
	}
	return out
}

// running reports whether a process is neither gone nor dead, whether it waits to be
// reaped or is being reaped.
func running(pid int) bool {
	st := statusLine(pid, "State:")
	return st != "" && st[0] != 'Z' && st[0] != 'X'
}

func statusLine(pid int, key string) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	for _, l := range bytes.Split(b, []byte{'\n'}) {
		if rest, ok := bytes.CutPrefix(l, []byte(key)); ok {
			return strings.TrimSpace(string(rest))
		}
	}
	return ""
}

func (b *box) gone(what string, f func() []int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return len(f()) == 0 }, 30*time.Second, 5*time.Millisecond, what)
}

// hostileStage is a program that a workload might be.
func hostileStage(name string) {
	switch name {
	case "fork-bomb":
		forkBomb()
	case "pretend":
		// A name that, read carelessly, says that there is no parent, and the
		// command line of another exec's supervisor.
		path := fmt.Sprintf("/tmp/%d) S 0 0 0", os.Getpid()%1000)
		fatal(os.Symlink("/hostile", path))
		fatal(unix.Exec(path, shim.ExecArgs("target"), []string{stageEnv + "=pause"}))
	case "pause":
		time.Sleep(time.Hour)
	}
}

// forkBomb forks as fast as it can, for ever, each time with a session of its own,
// and ignores TERM. It makes raw system calls only.
func forkBomb() {
	runtime.LockOSThread()
	ignore := [4]uint64{1}
	syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGTERM), uintptr(ptr(&ignore)), 0, 8, 0, 0)
	_, _ = os.Stdout.WriteString("bombing\n")
	for {
		r, _, e := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if e != 0 {
			syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		} else if r == 0 {
			syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
		}
	}
}

func ptr[T any](p *T) unsafe.Pointer { return unsafe.Pointer(p) }

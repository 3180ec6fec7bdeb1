package daytonatest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// jail is a sandbox's processes: a first process in namespaces of its own, whose
// end is the end of all the others.
type jail struct {
	cmd   *exec.Cmd
	hold  io.Closer // the first process ends when this is closed, also by our own death
	done  chan struct{}
	uid   uint32
	gid   uint32
	home  string
	user  string
	ownNS bool // a network namespace of its own
}

// setUp is run by sh as the first process of the new namespaces: it mounts what
// $2 lists, enters the directory $1, says so and waits for the end of its input,
// reaping what is left to it.
const setUp = `
set -e
mount --make-rprivate /
mount --fstab "$2" --all
cd "$1"
pivot_root . .before
cd /
umount -l .before
rmdir .before
echo ready
exec 3<&0 >/dev/null 2>&1
cat <&3 & exec 3<&-; wait $!
`

// tools are what entering and leaving namespaces takes.
var tools = []string{"sh", "mount", "umount", "pivot_root", "nsenter", "cat", "setsid"}

// jailAvailable says why sandboxes cannot be made here.
func jailAvailable() error {
	for _, t := range tools {
		if _, err := exec.LookPath(t); err != nil {
			return fmt.Errorf("the fake Daytona needs %s, which is not on PATH: install util-linux and coreutils", t)
		}
	}
	return nil
}

// startJail starts the first process with root as its root directory.
func startJail(root, user string) (*jail, error) {
	fstab := filepath.Join(filepath.Dir(root), "fstab")
	if err := prepare(root, fstab); err != nil {
		return nil, err
	}
	j := &jail{done: make(chan struct{}), user: user}
	if err := j.account(root); err != nil {
		return nil, err
	}
	if err := os.Chown(filepath.Join(root, homeDir), int(j.uid), int(j.gid)); err != nil && os.Geteuid() == 0 {
		return nil, err
	}
	cmd := exec.Command("sh", "-c", setUp, "sandbox", root, fstab)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	attr := &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC}
	if os.Geteuid() == 0 {
		attr.Cloneflags |= syscall.CLONE_NEWNET
		j.ownNS = true
	} else {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		j.uid, j.gid = 0, 0
	}
	cmd.SysProcAttr = attr
	in, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, outW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), hold.Close())
	}
	var problem strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, outW, &problem
	err = cmd.Start()
	_, _ = in.Close(), outW.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make namespaces for a sandbox (needs root, or user namespaces): %w", err), out.Close(), hold.Close())
	}
	j.cmd, j.hold = cmd, hold
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = out.Close()
	if line != "ready\n" {
		_ = hold.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("set up a sandbox's namespaces: %s", strings.TrimSpace(problem.String()))
	}
	go func() {
		_ = cmd.Wait()
		close(j.done)
	}()
	if j.ownNS {
		if err := j.inNetwork(loopbackUp); err != nil {
			return nil, errors.Join(fmt.Errorf("bring up a sandbox's loopback: %w", err), j.kill())
		}
	}
	return j, nil
}

// systemDirs of the machine are bound into each sandbox, read-only; where they
// are symbolic links, as after a merge into /usr, so they are there.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ssl", "/etc/terminfo"}

// devices that each sandbox has.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx"}

// prepare makes what a sandbox's root directory needs before its mounts, as far
// as it is not there, and writes the list of mounts.
func prepare(root, fstab string) error {
	var mounts strings.Builder
	escape := strings.NewReplacer(" ", `\040`, "\t", `\011`, `\`, `\134`).Replace
	mount := func(source, target, kind, options string) {
		fmt.Fprintf(&mounts, "%s %s %s %s 0 0\n", escape(source), escape(root+target), kind, options)
	}
	mount(root, "", "none", "bind")
	dirs := []string{"etc", "dev/pts", "dev/shm", "proc", "tmp", "var/tmp", "root", homeDir, ".before"}
	for _, d := range systemDirs {
		switch info, err := os.Lstat(d); {
		case err != nil:
		case info.IsDir():
			dirs = append(dirs, d)
			mount(d, d, "none", "bind,ro")
		default:
			target, err := os.Readlink(d)
			if err != nil {
				return err
			}
			if err := os.Symlink(target, root+d); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
		}
	}
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{"tmp", "var/tmp", "dev/shm"} {
		if err := os.Chmod(filepath.Join(root, d), 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	files := map[string]string{ //nolint:gosec // G101: a user database without passwords
		"etc/passwd":   "root:x:0:0:root:/root:/bin/bash\ndaytona:x:1000:1000::/home/daytona:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"etc/group":    "root:x:0:\ntty:x:5:\ndaytona:x:1000:\nnogroup:x:65534:\n",
		"etc/hosts":    "127.0.0.1 localhost\n",
		"etc/hostname": "sandbox\n",
		"etc/shells":   "/bin/sh\n/bin/bash\n/usr/bin/bash\n",
	}
	for _, name := range []string{"etc/ld.so.cache", "etc/nsswitch.conf", "etc/services", "etc/protocols"} {
		if data, err := os.ReadFile("/" + name); err == nil {
			files[name] = string(data)
		}
	}
	for _, d := range devices {
		files["dev/"+d] = ""
		mount("/dev/"+d, "/dev/"+d, "none", "bind")
	}
	for name, text := range files {
		file := filepath.Join(root, name)
		if _, err := os.Lstat(file); err == nil {
			continue
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(target, filepath.Join(root, "dev", name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	mount("/dev/pts", "/dev/pts", "none", "bind")
	mount("proc", "/proc", "proc", "defaults")
	return os.WriteFile(fstab, []byte(mounts.String()), 0o644)
}

// account finds the sandbox's user in its own database.
func (j *jail) account(root string) error {
	data, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 7 || f[0] != j.user && f[2] != j.user {
			continue
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		j.uid, j.gid, j.home, j.user = uint32(uid), uint32(gid), f[5], f[0]
		return nil
	}
	return fmt.Errorf("unable to find user %s: no matching entries in passwd file", j.user)
}

// kill ends every process of the sandbox, and returns when they are gone.
func (j *jail) kill() error {
	_ = j.hold.Close()
	_ = j.cmd.Process.Kill()
	select {
	case <-j.done:
		return nil
	case <-time.After(time.Minute):
		return errors.New("its processes are still there after a minute")
	}
}

// root is where the sandbox's files are seen from outside, with what is mounted
// in it.
func (j *jail) root() string { return fmt.Sprintf("/proc/%d/root", j.cmd.Process.Pid) }

// command makes a command that runs in the sandbox, as its user and in a process
// group of its own. dir is absolute and free of symbolic links. program is found
// by the sandbox's PATH.
func (j *jail) command(dir string, env []string, program string, args ...string) *exec.Cmd {
	pid := strconv.Itoa(j.cmd.Process.Pid)
	enter := []string{"--target", pid, "--mount", "--pid", "--ipc", "--wd=" + j.root() + dir}
	switch {
	case !j.ownNS:
		enter = append(enter, "--user", "--preserve-credentials")
	default:
		enter = append(enter, "--net", "--setuid", strconv.Itoa(int(j.uid)), "--setgid", strconv.Itoa(int(j.gid)))
	}
	cmd := exec.Command("nsenter", append(append(append(enter, "--"), program), args...)...)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// killGroup kills the process group that a command leads.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// inside returns the process ids of a command's own process, behind nsenter.
func inside(cmd *exec.Cmd) []int {
	pid := strconv.Itoa(cmd.Process.Pid)
	data, err := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
	if err != nil {
		return nil
	}
	var out []int
	for _, f := range strings.Fields(string(data)) {
		if n, err := strconv.Atoi(f); err == nil {
			out = append(out, n)
		}
	}
	return out
}

func killProcess(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

// termGroup asks a command's process group to end.
func termGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

// inNetwork runs f on a thread that is in the sandbox's network.
func (j *jail) inNetwork(f func() error) error {
	if !j.ownNS {
		return f()
	}
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() { _ = unix.Close(home) }()
	there, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", j.cmd.Process.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() { _ = unix.Close(there) }()
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = f()
	if back := unix.Setns(home, unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var req struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(req.name[:], "lo")
	req.flags = unix.IFF_UP | unix.IFF_RUNNING
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return errno
	}
	return nil
}

// dial connects to a port of the sandbox's own loopback.
func (j *jail) dial(port int) (net.Conn, error) {
	var conn net.Conn
	err := j.inNetwork(func() error {
		// A numeric address is dialled on this very thread.
		var err error
		conn, err = net.DialTimeout("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), 5*time.Second)
		return err
	})
	return conn, err
}

// listening returns the ports that something in the sandbox listens on.
func (j *jail) listening() []int {
	var out []int
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", j.cmd.Process.Pid, table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != "0A" {
				continue
			}
			if _, hex, ok := strings.Cut(f[1], ":"); ok {
				if n, err := strconv.ParseUint(hex, 16, 16); err == nil {
					out = append(out, int(n))
				}
			}
		}
	}
	return out
}

// maxLinks bounds how many symbolic links a path may lead through.
const maxLinks = 40

// resolve returns the path of a sandbox's file with every symbolic link on the
// way followed inside the sandbox, the last one too when follow is set. What does
// not exist is taken as it is.
func (j *jail) resolve(name string, follow bool) (string, error) {
	root := j.root()
	done, rest := "/", strings.Split(path.Clean("/"+name), "/")[1:]
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		info, err := os.Lstat(root + next)
		if err != nil || info.Mode()&os.ModeSymlink == 0 || len(rest) == 0 && !follow {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		target, err := os.Readlink(root + next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			done = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

// owner returns a file's owner and group.
func owner(info os.FileInfo) (uid, gid uint32) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Uid, st.Gid
	}
	return 0, 0
}

// unread is how much of a terminal's output is still to be read.
func unread(master *os.File) int {
	n := 0
	if raw, err := master.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	return n
}

// makePipe makes a named pipe and holds both its ends.
func makePipe(file string) (*os.File, error) {
	if err := unix.Mkfifo(file, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: file, Err: err}
	}
	return os.OpenFile(file, os.O_RDWR|syscall.O_NONBLOCK, 0)
}

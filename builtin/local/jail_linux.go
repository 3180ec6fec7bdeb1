package local

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/sbxhost/sbxhost/provider"
	"golang.org/x/sys/unix"
)

// jailID is the user inside a jail.
const jailID = 1000

var errSupervisorEnded = errors.New("the supervisor ended while it was being set up")

// jail is PID 1 of a sandbox's namespaces. When it dies the kernel kills
// everything in them, and it is not reaped before all of that is gone.
type jail struct {
	process   *os.Process
	control   *shim.Socket
	workspace *os.File // the workspace as seen inside
	dead      chan struct{}
	release   func()
	closeOnce sync.Once
}

// startJail builds the namespaces and returns when commands can run. before is
// called with the process id before the supervisor does anything.
func (p *Provider) startJail(ctx context.Context, cfg *wire.Config, network bool, before func(pid int) error) (*jail, error) {
	control, theirs, err := shim.SocketPair()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_ = control.Close()
		_ = theirs.Close()
		return nil, err
	}
	defer func() { _ = null.Close() }()
	flags := uintptr(unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP)
	if !network {
		flags |= unix.CLONE_NEWNET
	}
	attr := &os.ProcAttr{
		Dir: "/", Env: shim.Environ(), Files: []*os.File{null, null, null, theirs},
		Sys: &syscall.SysProcAttr{Cloneflags: flags, AmbientCaps: jailCaps, Pdeathsig: unix.SIGKILL, Setsid: true},
	}
	if cfg.IDs == wire.IDKeep {
		// Root starts it as an unprivileged user from the first instruction on.
		attr.Sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: jailID, HostID: int(cfg.HostUID), Size: 1}}
		attr.Sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: jailID, HostID: int(cfg.HostGID), Size: 1}}
		attr.Sys.GidMappingsEnableSetgroups = true
		attr.Sys.Credential = &syscall.Credential{Uid: jailID, Gid: jailID}
	}
	passed, err := passMounts(cfg)
	defer closeFiles(passed)
	if err != nil {
		_ = control.Close()
		_ = theirs.Close()
		return nil, err
	}
	setup, err := cfg.MarshalBinary()
	if err != nil {
		_ = control.Close()
		_ = theirs.Close()
		return nil, err
	}
	do, release := p.starter.hold()
	j := &jail{control: control, dead: make(chan struct{}), release: release}
	do(func() { j.process, err = os.StartProcess(p.program.path, []string{"sbx-shim", "init"}, attr) })
	_ = theirs.Close()
	if err != nil {
		release()
		_ = control.Close()
		return nil, err
	}
	up := make(chan struct{})
	defer close(up)
	go func() {
		_, _ = j.process.Wait()
		close(j.dead)
		<-up // what it said last is still to be read
		j.shut()
	}()
	stop := context.AfterFunc(ctx, func() { _ = j.process.Kill() })
	defer stop()
	if before != nil {
		err = before(j.process.Pid)
	}
	if err == nil {
		err = control.WriteFiles(wire.Append(nil, wire.Setup, setup), passed...)
	}
	if p.late != nil {
		p.late()
	}
	var f wire.Frame
	if err == nil {
		f, err = wire.NewReader(control, wire.FromSupervisor).Next()
	}
	switch {
	case err != nil:
	case f.Type == wire.Ready:
		if j.workspace = control.TakeFile(); j.workspace == nil {
			err = wire.ErrProtocol
		}
	case f.Type == wire.Failed:
		failure, perr := wire.ParseFailure(f.Payload)
		if err = perr; err == nil {
			err = &jailError{failure.Detail, unix.Errno(failure.Errno)}
		}
	default:
		err = wire.ErrProtocol
	}
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		if ended(j.dead, err) {
			err = errSupervisorEnded
		}
		if kerr := j.kill(context.WithoutCancel(ctx)); kerr != nil {
			err = errors.Join(err, kerr)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	return j, nil
}

// ended reports whether a supervisor ended by itself, without a word: that shows in
// whatever was under way.
func ended(dead <-chan struct{}, err error) bool {
	var said *jailError
	if errors.As(err, &said) || errors.Is(err, wire.ErrProtocol) {
		return false
	}
	select {
	case <-dead:
		return true
	default:
	}
	return errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.ESRCH)
}

// passMounts makes the mounts that are marked Passed, detached and with their
// final attributes. Where this process may not make any, they are left to the
// supervisor.
func passMounts(cfg *wire.Config) ([]*os.File, error) {
	var out []*os.File
	for i := range cfg.Mounts {
		m := &cfg.Mounts[i]
		if !m.Passed {
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if errors.Is(err, unix.EPERM) && len(out) == 0 {
			m.Passed = false
			continue
		}
		if err != nil {
			return out, &jailError{"open " + m.Target, unix.Errno(errnoOf(err))}
		}
		out = append(out, os.NewFile(uintptr(fd), m.Target))
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
		if m.ReadOnly {
			attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
		}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return out, &jailError{"restrict " + m.Target, unix.Errno(errnoOf(err))}
		}
	}
	return out, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

func errnoOf(err error) uintptr {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return uintptr(e)
	}
	return uintptr(unix.EIO)
}

// jailError is a step of the set-up that the kernel refused.
type jailError struct {
	step  string
	errno unix.Errno
}

func (e *jailError) Error() string { return e.step + ": " + e.errno.Error() }
func (e *jailError) Unwrap() error { return e.errno }

// jailCaps are what the supervisor needs inside its own user namespace. They mean
// nothing outside it, and no command gets one.
var jailCaps = []uintptr{
	unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP,
	unix.CAP_KILL, unix.CAP_SYS_PTRACE, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_CHROOT,
}

// alive reports whether commands can run.
func (j *jail) alive() bool {
	select {
	case <-j.dead:
		return false
	default:
		return true
	}
}

// kill returns nil when every process of the jail is gone.
func (j *jail) kill(ctx context.Context) error {
	_ = j.process.Kill()
	switch {
	case j.ends(ctx):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return errors.New("processes of the sandbox do not die")
}

// ends waits until every process of a jail whose supervisor is dying is gone. Its
// connections break before that: the kernel has everything else to kill first.
func (j *jail) ends(ctx context.Context) bool {
	t := time.NewTimer(destroyLimit)
	defer t.Stop()
	select {
	case <-j.dead:
	case <-ctx.Done():
	case <-t.C:
	}
	return !j.alive()
}

func (j *jail) shut() {
	j.closeOnce.Do(func() {
		_ = j.control.Close()
		j.release()
	})
}

// exec starts a command in the jail.
func (j *jail) exec(ctx context.Context, req shim.Request) (*shim.Exec, error) {
	conn, theirs, err := shim.SocketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	req.HandOver = func() error {
		return j.control.WriteFiles(wire.Append(nil, wire.NewExec, nil), theirs)
	}
	return shim.Start(ctx, conn, req)
}

// systemPaths are read-only in every sandbox.
var systemPaths = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// devices of a jail.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// masked files of /proc tell about the host.
var masked = []string{"/proc/cmdline", "/proc/kcore", "/proc/keys", "/proc/sched_debug", "/proc/timer_list"}

// jailConfig describes the jail of one sandbox.
func (p *Provider) jailConfig(r *record, dir string) (*wire.Config, error) {
	c := &wire.Config{
		Jail: true, Loopback: r.Network != "default", Hostname: "sandbox", TagExecs: true,
		UID: jailID, GID: jailID, HostUID: uint32(os.Geteuid()), HostGID: uint32(os.Getegid()), IDs: wire.IDMapSelf,
		Root: r.Root, PIDs: uint64(r.pids(p.opts.PIDs)), Masked: masked,
		Seccomp: p.seccomp.get(filter{}),
	}
	if p.root {
		c.IDs, c.HostUID, c.HostGID = wire.IDKeep, r.UID, r.UID
	}
	for _, path := range systemPaths {
		st, err := os.Lstat(path)
		if err != nil {
			continue
		}
		if st.Mode()&os.ModeSymlink != 0 {
			if target, err := os.Readlink(path); err == nil {
				c.Links = append(c.Links, wire.Link{Path: path, Target: target})
			}
			continue
		}
		c.Mounts = append(c.Mounts, wire.Mount{Source: path, Target: path, ReadOnly: true, NoDev: true})
	}
	for _, path := range p.opts.ReadOnlyPaths {
		c.Mounts = append(c.Mounts, wire.Mount{Source: path, Target: path, ReadOnly: true, NoDev: true})
	}
	files, links, mounts := p.etc.get(p.root)
	c.Links, c.Mounts = append(c.Links, links...), append(c.Mounts, mounts...)
	if r.Network == "default" {
		c.Mounts = append(c.Mounts, wire.Mount{Source: "/etc/resolv.conf", Target: "/etc/resolv.conf", ReadOnly: true, NoDev: true, Optional: true})
	}
	for _, d := range devices {
		c.Mounts = append(c.Mounts, wire.Mount{Source: "/dev/" + d, Target: "/dev/" + d})
	}
	c.Links = append(c.Links,
		wire.Link{Path: "/dev/fd", Target: "/proc/self/fd"},
		wire.Link{Path: "/dev/stdin", Target: "/proc/self/fd/0"},
		wire.Link{Path: "/dev/stdout", Target: "/proc/self/fd/1"},
		wire.Link{Path: "/dev/stderr", Target: "/proc/self/fd/2"},
		wire.Link{Path: "/dev/ptmx", Target: "pts/ptmx"},
	)
	c.Files = append(c.Files, files...)
	c.Files = append(c.Files, []wire.File{
		{Path: "/etc/passwd", Content: "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nsandbox:x:1000:1000::" + r.Root + ":/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
		{Path: "/etc/group", Content: "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n"},
		{Path: "/etc/hosts", Content: "127.0.0.1 localhost sandbox\n::1 localhost\n"},
		{Path: "/etc/hostname", Content: "sandbox\n"},
		{Path: "/etc/nsswitch.conf", Content: "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n"},
	}...)
	c.Tmpfs = tmpfs(r.Resources.MemoryMiB)
	// Root's workload is somebody else, to whom these may be closed.
	c.Mounts = append(c.Mounts, wire.Mount{Source: filepath.Join(dir, workspaceDir), Target: r.Root, NoDev: true, Passed: p.root})
	for _, m := range r.Mounts {
		c.Mounts = append(c.Mounts, wire.Mount{Source: m.HostPath, Target: m.Path, ReadOnly: m.ReadOnly, NoDev: true, Passed: p.root})
	}
	c.Rlimits = rlimits(r, p.cgroups != nil)
	c.Landlock = p.jailDomain(r)
	return c, nil
}

// tmpfs are the writable directories in memory. Without a size each could take
// half of the host's. What they take counts as memory of the sandbox, and cannot
// be got back by killing a command, so both together stay well below its limit:
// the writer is to get an error, not everybody the OOM killer.
func tmpfs(memoryMiB int64) []wire.Tmpfs {
	tmp, shm := int64(1024), int64(256)
	if memoryMiB > 0 {
		tmp, shm = min(tmp, max(1, memoryMiB/4)), min(shm, max(1, memoryMiB/8))
	}
	options := func(mib int64) string {
		return "mode=1777,size=" + itoa(int(mib)) + "m,nr_inodes=" + itoa(int(max(1024, mib*128)))
	}
	return []wire.Tmpfs{{Path: "/tmp", Options: options(tmp)}, {Path: "/dev/shm", Options: options(shm)}}
}

// checkTargets refuses roots and grants that would hide or need what the jail is
// made of.
func checkTargets(r *record) error {
	targets := []string{r.Root}
	for _, m := range r.Mounts {
		targets = append(targets, m.Path)
	}
	for i, t := range targets {
		if !strings.HasPrefix(t, "/") || filepath.Clean(t) != t || t == "/" || strings.ContainsRune(t, 0) {
			return problem(provider.InvalidArgument, "create", t, "the path must be absolute, clean and not /")
		}
		for _, sys := range append([]string{"/proc", "/dev", "/etc", "/sys"}, systemPaths...) {
			if t == sys || strings.HasPrefix(t, sys+"/") {
				return problem(provider.InvalidArgument, "create", t, "the path lies in a directory of the system").remedy("use another, such as /workspace")
			}
		}
		for j, o := range targets {
			// A grant inside the root is fine: it is mounted after it.
			if i != j && (t == o || (i == 0 && strings.HasPrefix(t, o+"/"))) {
				return problem(provider.InvalidArgument, "create", t, "the path lies in, or is, that of another mount")
			}
		}
	}
	return nil
}

//go:build linux

package main

import (
	"os"
	"strconv"
	"time"
	"unsafe"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// How a container's PID 1 knows what belongs to an exec.
//
// What the engine puts into the container has no parent there: its parent process
// is 0. Nothing inside can get that, for the kernel gives a process whose parent
// died to the nearest subreaper above it or to PID 1. And the command line of such a
// process is in memory that no workload can write. So a process with parent 0 and
// the command line of `shim exec ID` is the supervisor of exec ID, whatever else
// calls itself so; and what descends from it is the exec's, for it is the subreaper
// of everything below it. Only when it dies are its descendants handed to PID 1;
// therefore whatever is handed to PID 1 is an orphan and is killed.

// init1 is PID 1 of a container: one thread, one loop, no handler.
type init1 struct {
	signals  int // signalfd: wire.StopSignal
	children int // /proc/1/task/1/children, or -1 where the kernel has none
	lines    wire.Splitter
	eof      bool // standard input ended
	pending  []byte
	kills    []*treeKill
	image    *imageCommand
	stopAt   time.Time // when the container ends
}

// treeKill is one kill in progress.
type treeKill struct {
	nonce string
	roots []process // supervisors, by pid and time of birth
	since time.Time // the first KILL
}

// Exit codes of PID 1.
const (
	exitStopped = 0
	exitSetup   = 125
)

const (
	// lookAfter is how often PID 1 looks for orphans: the kernel does not tell.
	lookAfter = 250 * time.Millisecond
	// stopGrace is how long the image's command may take to end at a stop.
	stopGrace = 2 * time.Second
	// maxReplies is how much may wait for a reader of our answers before no more
	// questions are read.
	maxReplies = 64 << 10
)

// setupStage marks the second execution of the program.
const setupStage = "-"

func runPID1(args []string) {
	if len(args) < 3 || len(args) > 4 || (args[0] != "idle" && args[0] != "image") {
		setupFailed("arguments", unix.EINVAL)
	}
	if unix.Getpid() != 1 {
		setupFailed("PID 1", unix.ESRCH)
	}
	image, root, user := args[0] == "image", args[1], args[2]
	if len(args) == 3 {
		// Once more, with nothing of the image's environment and with the signal that
		// is waited for blocked in every thread the runtime will make. (It unblocks
		// TERM and CHLD in each, whatever it was started with.)
		if err := sigmask(unix.SIG_SETMASK, stopSet()); err != nil {
			setupFailed("signal mask", err)
		}
		err := unix.Exec("/proc/self/exe", append(append([]string(nil), os.Args...), setupStage), shimEnviron())
		setupFailed("execute", err)
	}
	p := &init1{}
	if err := p.setup(image, root, user); err != nil {
		setupFailed(err.Error(), unix.Errno(errnoOf(err)))
	}
	p.loop()
}

// shimEnviron is shim.EngineEnviron, which this program cannot import.
func shimEnviron() []string {
	return []string{"GOGC=off", "GOMEMLIMIT=48MiB", "GOMAXPROCS=2", "GOTRACEBACK=none"}
}

// setupFailed says why on standard error, in one line, and ends the container.
func setupFailed(what string, err error) {
	b := []byte("sbxhost supervisor: " + what + ": " + err.Error() + "\n")
	_, _ = unix.Write(2, b)
	os.Exit(exitSetup)
}

func (p *init1) setup(image bool, root, user string) error {
	prestart(4)
	if err := hide(); err != nil {
		return err
	}
	if _, ok := stat(1); !ok {
		return step("/proc is not mounted or hides processes", unix.ENOENT)
	}
	var err error
	set := stopSet()
	r, _, e := unix.Syscall6(unix.SYS_SIGNALFD4, ^uintptr(0), uintptr(unsafe.Pointer(&set)), 8, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK, 0, 0)
	if e != 0 {
		return step("signalfd", e)
	}
	p.signals = int(r)
	if p.children, err = unix.Open("/proc/1/task/1/children", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		p.children = -1
	}
	_ = unix.SetNonblock(0, true)
	_ = unix.SetNonblock(1, true)
	nameLoopback()
	if root != "" {
		if err := giveRoot(root, user); err != nil {
			return err
		}
	}
	if image {
		// While we have the capabilities that it needs.
		if p.image, err = startImageSupervisor(); err != nil {
			return err
		}
	}
	if err := dropBounding(0); err != nil {
		return err
	}
	have, err := keepCaps(1 << unix.CAP_KILL)
	if err != nil {
		return err
	}
	if have != 1<<unix.CAP_KILL {
		return step("the capability KILL is missing: start the container as root with it", unix.EPERM)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return step("no new privileges", err)
	}
	defaultSignals(true)
	return nil
}

// giveRoot makes the workspace's directory when it is missing and gives it to the
// user when it still belongs to root, as one fresh from the engine does.
func giveRoot(root, user string) error {
	who, lost := lookUp(user)
	if lost != nil {
		return step("the workspace's "+lost.step, lost.err)
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return step("make the workspace", err)
	}
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return step("open the workspace", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return step("open the workspace", err)
	}
	if st.Uid != 0 || who.uid == 0 {
		return nil
	}
	return step("give the workspace away", unix.Fchown(fd, int(who.uid), int(who.gid)))
}

func (p *init1) loop() {
	var fds [4]unix.PollFd
	for {
		p.reap()
		now := time.Now()
		if !p.stopAt.IsZero() && (now.After(p.stopAt) || p.image.over()) {
			os.Exit(exitStopped)
		}
		p.step(now)
		p.flush()

		n := 0
		add := func(fd int, events int16) {
			fds[n] = unix.PollFd{Fd: int32(fd), Events: events}
			n++
		}
		add(p.signals, unix.POLLIN)
		if !p.eof && len(p.pending) < maxReplies {
			add(0, unix.POLLIN)
		}
		if len(p.pending) > 0 {
			add(1, unix.POLLOUT)
		}
		if p.image != nil && p.image.sock >= 0 {
			add(p.image.sock, p.image.events())
		}
		wait := lookAfter
		if len(p.kills) > 0 {
			wait = tick
		}
		_, err := unix.Poll(fds[:n], int(wait/time.Millisecond))
		if err != nil {
			continue // EINTR
		}
		for i := range fds[:n] {
			if fds[i].Revents == 0 {
				continue
			}
			switch int(fds[i].Fd) {
			case p.signals:
				p.readSignals()
			case 0:
				p.read()
			case 1:
				p.flush()
			default:
				p.image.ready(p)
			}
		}
	}
}

// signalInfo is struct signalfd_siginfo.
type signalInfo struct {
	signo uint32
	_     int32
	code  int32
	pid   uint32
	_     [112]byte
}

// readSignals takes what is pending. The stop that we heed is one that kill(2) sent
// from outside: such a one has no sender here, and nothing inside can pretend that.
func (p *init1) readSignals() {
	for {
		var info signalInfo
		n, err := unix.Read(p.signals, unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info)))
		if err != nil || n != int(unsafe.Sizeof(info)) {
			return
		}
		const user = 0 // SI_USER
		if info.signo == wire.StopSignal && info.code == user && info.pid == 0 && p.stopAt.IsZero() {
			p.stopAt = time.Now()
			if p.image.running() {
				p.stopAt = p.stopAt.Add(stopGrace)
				p.image.signal(byte(unix.SIGTERM))
			}
		}
	}
}

// reap waits for what has ended, ours and what was handed to us.
func (p *init1) reap() {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if p.image != nil && pid == p.image.pid {
			p.image.died(p)
		}
	}
}

// read takes control lines.
func (p *init1) read() {
	for range 16 {
		n, err := unix.Read(0, readBuffer[:])
		if err == unix.EAGAIN || err == unix.EINTR {
			return
		}
		if err != nil || n == 0 {
			// Whoever made the container is gone for good. What runs goes on.
			p.eof = true
			p.lines.Wipe()
			return
		}
		p.lines.Feed(readBuffer[:n])
		clear(readBuffer[:n])
		for {
			l, ok := p.lines.Next()
			if !ok {
				break
			}
			p.question(l)
		}
		p.lines.Rest()
	}
}

func (p *init1) answer(nonce, verb string, args ...string) {
	p.pending = wire.AppendLine(p.pending, nonce, verb, args...)
}

func (p *init1) question(l wire.Line) {
	nonce := string(l.Nonce)
	refuse := func(reason string) { p.answer(nonce, wire.VerbRefuse, reason) }
	switch string(l.Verb) {
	case wire.VerbPing:
		if len(l.Args) != 0 {
			refuse(wire.RefuseArgs)
			return
		}
		p.answer(nonce, wire.VerbOK, strconv.Itoa(wire.Version), strconv.Itoa(int(p.image.state().Pack())))
	case wire.VerbList:
		if len(l.Args) != 0 {
			refuse(wire.RefuseArgs)
			return
		}
		var ids []string
		for _, s := range supervisors(processes()) {
			ids = append(ids, s.id)
		}
		p.answer(nonce, wire.VerbOK, ids...)
	case wire.VerbKill, wire.VerbKeep:
		keep := string(l.Verb) == wire.VerbKeep
		named := map[string]bool{}
		for _, a := range l.Args {
			if !wire.ValidID(a) {
				refuse(wire.RefuseArgs)
				return
			}
			named[string(a)] = true
		}
		if !keep && len(l.Args) != 1 {
			refuse(wire.RefuseArgs)
			return
		}
		k := &treeKill{nonce: nonce}
		for _, s := range supervisors(processes()) {
			if named[s.id] != keep {
				k.roots = append(k.roots, s.process)
			}
		}
		p.kills = append(p.kills, k)
	case wire.VerbImage:
		if len(l.Args) != 1 {
			refuse(wire.RefuseArgs)
			return
		}
		p.image.start(p, nonce, l.Args[0], refuse)
	case wire.VerbOK, wire.VerbFailed, wire.VerbRefuse:
		// An answer: somebody's terminal echoes.
	default:
		refuse(wire.RefuseUnknown)
	}
}

// supervisorOf is what the engine started for an exec or for file operations.
type supervisorOf struct {
	process
	id string
}

// supervisors lists those of a table that live.
func supervisors(table []process) []supervisorOf {
	var out []supervisorOf
	for _, p := range table {
		if p.ppid == 0 && p.pid != 1 && !p.zombie {
			if id := execID(p.pid); id != "" {
				out = append(out, supervisorOf{p, id})
			}
		}
	}
	return out
}

// shimPath is shim.Path, which this program cannot import.
const shimPath = "/.sbx/shim"

// execID returns the id in the command line of one of our supervisors, "" when it is
// none. It means something for processes without a parent only.
func execID(pid int) string {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/cmdline", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var b [wire.MaxID + 64]byte
	n, err := unix.Read(fd, b[:])
	if err != nil || n <= 0 || n == len(b) {
		return ""
	}
	args, ok := wire.Strings(b[:n])
	if !ok || len(args) != 3 || string(args[0]) != shimPath || !wire.ValidID(args[2]) {
		return ""
	}
	if m := string(args[1]); m != "exec" && m != "files" {
		return ""
	}
	return string(args[2])
}

// step advances kills and looks for orphans.
func (p *init1) step(now time.Time) {
	orphans := p.hasOrphans()
	if !orphans && len(p.kills) == 0 {
		return
	}
	sweep(func() []int { return p.condemned(processes()) })
	for _, k := range p.kills {
		if k.since.IsZero() {
			k.since = time.Now()
		}
	}
	p.reap()
	table := processes()
	var rest []*treeKill
	orphaned := len(p.orphanTrees(table))
	for _, k := range p.kills {
		left := len(k.members(table)) + orphaned
		if left > 0 && now.Sub(k.since) < giveUp {
			rest = append(rest, k)
			continue
		}
		p.answer(k.nonce, wire.VerbOK, strconv.Itoa(len(k.roots)), strconv.Itoa(left))
	}
	p.kills = rest
}

// condemned lists what has to be killed: orphans with their trees and those of the
// kills in progress.
func (p *init1) condemned(table []process) []int {
	out := p.orphanTrees(table)
	for _, k := range p.kills {
		out = append(out, k.members(table)...)
	}
	return out
}

// members lists the living processes of a kill: its supervisors and what descends
// from them.
func (k *treeKill) members(table []process) []int {
	var roots, out []int
	for _, p := range table {
		for _, r := range k.roots {
			if p.pid == r.pid && p.began == r.began {
				roots = append(roots, p.pid)
				if !p.zombie {
					out = append(out, p.pid)
				}
			}
		}
	}
	if len(roots) == 0 {
		return out
	}
	return append(out, below(table, roots...)...)
}

// orphanTrees lists the living processes that were handed to us, and what descends
// from them.
func (p *init1) orphanTrees(table []process) []int {
	var roots, out []int
	for _, c := range table {
		if c.ppid == 1 && (p.image == nil || c.pid != p.image.pid) {
			roots = append(roots, c.pid)
			if !c.zombie {
				out = append(out, c.pid)
			}
		}
	}
	if len(roots) == 0 {
		return out
	}
	return append(out, below(table, roots...)...)
}

// hasOrphans looks whether we have a child that we did not make. It is asked all the
// time and makes no garbage.
func (p *init1) hasOrphans() bool {
	if p.children < 0 {
		return len(p.orphanTrees(processes())) > 0
	}
	var b [256]byte
	n, err := unix.Pread(p.children, b[:], 0)
	if err != nil {
		return true
	}
	pid, digits := 0, false
	for _, c := range b[:n] {
		if c >= '0' && c <= '9' {
			pid, digits = pid*10+int(c-'0'), true
			continue
		}
		if digits && (p.image == nil || pid != p.image.pid) {
			return true
		}
		pid, digits = 0, false
	}
	return digits && (n == len(b) || p.image == nil || pid != p.image.pid)
}

func (p *init1) flush() {
	for len(p.pending) > 0 {
		n, err := unix.Write(1, p.pending)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN {
			return
		}
		if err != nil {
			p.pending = nil // nobody will ever read it
			return
		}
		p.pending = append(p.pending[:0], p.pending[n:]...)
	}
}

func stopSet() uint64 { return 1 << (wire.StopSignal - 1) }

func sigmask(how uintptr, set uint64) error {
	if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, how, uintptr(unsafe.Pointer(&set)), 0, 8, 0, 0); e != 0 {
		return e
	}
	return nil
}

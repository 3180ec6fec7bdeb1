//go:build linux

package hostile

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Outside is what there is to reach on the host: files, directories, sockets,
// listeners, shared memory, a terminal and a process. Everything is open to
// every user, so that only the sandbox stands in the way.
type Outside struct {
	tb       testing.TB
	config   Config
	victim   *exec.Cmd
	canaries map[string][]byte

	mu       sync.Mutex
	contacts []string
}

// NewOutside makes the targets, owned by uid (of no use unless the caller is
// root or uid itself), and a victim process that runs as uid. Everything is
// removed at the end of the test. probe is the probe's path, see BuildProbe.
func NewOutside(tb testing.TB, probe string, uid int) *Outside {
	tb.Helper()
	o := &Outside{tb: tb, canaries: map[string][]byte{}}
	token := fmt.Sprintf("sbxhost-hostile-%d-%08x", os.Getpid(), random())

	for _, base := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		dir := openDir(tb, base)
		o.must(os.Chown(dir, uid, -1))
		file := filepath.Join(dir, "canary")
		content := []byte("canary of " + token + "\n")
		o.must(os.WriteFile(file, content, 0o600))
		o.must(os.Chmod(file, 0o777))
		o.must(os.Chown(file, uid, -1))
		o.canaries[file] = content
		o.config.CanaryFiles = append(o.config.CanaryFiles, file)
		o.config.HostDirs = append(o.config.HostDirs, dir)
	}
	dir := o.config.HostDirs[0]

	o.config.AbstractSocket = token
	o.listen("unix", "@"+token)
	o.echo("unixgram", "@"+token+"-dgram")
	o.config.PathSocket = filepath.Join(dir, "socket")
	o.listen("unix", o.config.PathSocket)
	o.must(os.Chmod(o.config.PathSocket, 0o777))
	for _, ip := range o.addresses() {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
		if errors.Is(err, unix.EADDRNOTAVAIL) {
			continue // of a network that went since: other tests make and remove some
		}
		o.must(err)
		o.config.TCP = append(o.config.TCP, o.accept(l))
		conn, err := net.ListenPacket("udp", net.JoinHostPort(ip, "0"))
		if errors.Is(err, unix.EADDRNOTAVAIL) {
			continue
		}
		o.must(err)
		o.config.UDP = append(o.config.UDP, o.answer(conn))
	}

	o.sharedMemory(token)
	o.terminal()
	o.victim = o.start(probe, "victim-"+token, uid)
	o.config.Targets = []Target{{Name: "host", PID: o.victim.Process.Pid, Marker: "victim-" + token}}
	return o
}

// Config returns what the probe has to know. The caller owns it.
func (o *Outside) Config() Config { return o.config }

// Verify fails the test if something outside was reached or changed: an
// independent look at what the probe says of itself.
func (o *Outside) Verify(tb testing.TB) {
	tb.Helper()
	if err := o.victim.Process.Signal(syscall.Signal(0)); err != nil {
		tb.Errorf("hostile: the victim is gone: %v", err)
	}
	for file, want := range o.canaries {
		got, err := os.ReadFile(file)
		if err != nil || string(got) != string(want) {
			tb.Errorf("hostile: %s was changed (%v)", file, err)
		}
		entries, err := os.ReadDir(filepath.Dir(file))
		if err != nil {
			tb.Errorf("hostile: %v", err)
		}
		for _, e := range entries {
			if e.Name() != "canary" && e.Name() != "socket" {
				tb.Errorf("hostile: %s was planted beside %s", e.Name(), file)
			}
		}
	}
	for _, c := range o.Contacts() {
		tb.Errorf("hostile: %s", c)
	}
}

// Contacts lists the connections and datagrams that arrived.
func (o *Outside) Contacts() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.contacts...)
}

func (o *Outside) must(err error) {
	o.tb.Helper()
	if err != nil {
		o.tb.Fatalf("hostile: set up the outside: %v", err)
	}
}

func (o *Outside) contact(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.contacts = append(o.contacts, fmt.Sprintf(format, args...))
}

// listen accepts and closes connections, and returns the address.
func (o *Outside) listen(network, address string) string {
	l, err := net.Listen(network, address)
	o.must(err)
	return o.accept(l)
}

func (o *Outside) accept(l net.Listener) string {
	o.tb.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			o.contact("a connection reached %s", l.Addr())
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// echo sends datagrams back, and returns the address.
func (o *Outside) echo(network, address string) string {
	conn, err := net.ListenPacket(network, address)
	o.must(err)
	return o.answer(conn)
}

func (o *Outside) answer(conn net.PacketConn) string {
	o.tb.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			o.contact("a datagram reached %s", conn.LocalAddr())
			_, _ = conn.WriteTo(buf[:n], from)
		}
	}()
	return conn.LocalAddr().String()
}

// addresses lists the loopback addresses and the machine's own, and notes the
// name of an interface.
func (o *Outside) addresses() []string {
	interfaces, err := net.Interfaces()
	o.must(err)
	var out []string
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		if i.Flags&net.FlagLoopback == 0 && o.config.HostInterface == "" {
			o.config.HostInterface = i.Name
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went since
		}
		for _, a := range addrs {
			ip, _, err := net.ParseCIDR(a.String())
			if err == nil && !ip.IsLinkLocalUnicast() {
				out = append(out, ip.String())
			}
		}
	}
	return out
}

// sharedMemory makes System V and POSIX objects that every user may use.
func (o *Outside) sharedMemory(token string) {
	key := 1 + int(random()>>2)
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	o.must(err)
	o.tb.Cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	o.config.ShmKey = key

	raw := func(nr uintptr, args ...uintptr) uintptr {
		var a [4]uintptr
		copy(a[:], args)
		r, _, no := unix.Syscall6(nr, a[0], a[1], a[2], a[3], 0, 0)
		if no != 0 {
			o.must(no)
		}
		return r
	}
	msg := raw(unix.SYS_MSGGET, uintptr(key), unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	o.tb.Cleanup(func() { _, _, _ = unix.Syscall(unix.SYS_MSGCTL, msg, unix.IPC_RMID, 0) })
	o.config.MsgKey = key
	sem := raw(unix.SYS_SEMGET, uintptr(key), 1, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	o.tb.Cleanup(func() { _, _, _ = unix.Syscall6(unix.SYS_SEMCTL, sem, 0, unix.IPC_RMID, 0, 0, 0) })
	o.config.SemKey = key

	name := append([]byte(token), 0)
	fd := raw(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR, 0o666, 0)
	o.must(unix.Fchmod(int(fd), 0o666))
	_ = unix.Close(int(fd))
	o.tb.Cleanup(func() { _, _, _ = unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0) })
	o.config.MQueue = token

	file := filepath.Join("/dev/shm", token)
	o.must(os.WriteFile(file, []byte("canary"), 0o600))
	o.must(os.Chmod(file, 0o666))
	o.tb.Cleanup(func() { _ = os.Remove(file) })
	o.config.ShmFile = token
}

// terminal opens a terminal of the host.
func (o *Outside) terminal() {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	o.must(err)
	o.tb.Cleanup(func() { _ = unix.Close(master) })
	o.must(unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	o.must(err)
	o.config.HostTTY = fmt.Sprintf("/dev/pts/%d", n)
	o.must(os.Chmod(o.config.HostTTY, 0o666))
	var st unix.Stat_t
	o.must(unix.Stat(o.config.HostTTY, &st))
	o.config.HostTTYDevice = st.Dev
}

// start runs a victim until the end of the test.
func (o *Outside) start(probe, marker string, uid int) *exec.Cmd {
	cmd := exec.Command(probe, "wait", marker)
	cmd.Env = []string{"VICTIM_SECRET=" + marker}
	cmd.Dir = "/"
	if os.Getuid() == 0 && uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	in, err := cmd.StdinPipe()
	o.must(err)
	out, err := cmd.StdoutPipe()
	o.must(err)
	o.must(cmd.Start())
	o.tb.Cleanup(func() {
		_ = in.Close()
		timer := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "ready" {
		o.tb.Fatalf("hostile: the victim did not start: %q %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return cmd
}

// random keeps names and keys of concurrent tests apart.
func random() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return binary.NativeEndian.Uint32(b[:])
}

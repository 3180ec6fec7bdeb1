package local_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Some tests need a host process of their own: one to kill, one that is an
// ordinary user, one to which the kernel refuses something. They run this test
// binary again in one of these roles.
const (
	roleVariable  = "SBXHOST_TEST_ROLE"
	roleHost      = "host"     // makes a sandbox with processes, reports, waits
	roleFallback  = "fallback" // chooses a level where namespaces are refused
	roleNothing   = "nothing"  // … and Landlock too
	roleUndumped  = "undumped" // has made itself unreadable
	roleNoMemfd   = "nomemfd"  // cannot make files in memory
	rolePlain     = "plain"    // has nothing special
	dirVariable   = "SBXHOST_TEST_DIR"
	wordVariable  = "SBXHOST_TEST_WORD"
	levelVariable = "SBXHOST_TEST_LEVEL"
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func play(role string) error {
	ctx := context.Background()
	opts := local.Options{StateDir: os.Getenv(dirVariable), Level: local.Level(os.Getenv(levelVariable))}
	switch role {
	case roleHost:
		p, err := local.New(opts)
		if err != nil {
			return err
		}
		sb, err := p.Create(ctx, request(os.Getenv(wordVariable)))
		if err != nil {
			return err
		}
		if err := sb.Files().Write(ctx, "dir/keep.txt", strings.NewReader("kept"), provider.WriteOptions{}); err != nil {
			return err
		}
		m := os.Getenv(wordVariable)
		r, w := io.Pipe()
		_, err = sb.Exec(ctx, provider.ExecRequest{ID: "e", Stdout: w, Stderr: io.Discard, Shell: `trap '' TERM HUP
			run() { exec sh -c 'sleep 300; : ` + m + `'; }
			setsid sh -c 'sleep 300; : ` + m + `' & (run & ); chmod 0 dir; echo ready; run`})
		if err != nil {
			return err
		}
		if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
			return err
		}
		fmt.Println("ready")
		select {}
	case roleFallback, roleNothing:
		if err := refuseNamespaces(); err != nil {
			return err
		}
		if role == roleNothing {
			if err := refuseCall(unix.SYS_LANDLOCK_CREATE_RULESET); err != nil {
				return err
			}
		}
	case roleNoMemfd:
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
		if err := refuseCall(unix.SYS_MEMFD_CREATE); err != nil {
			return err
		}
	case roleUndumped:
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return err
		}
	}
	p, err := local.New(opts)
	if err != nil {
		fmt.Println("error:", provider.CodeOf(err), err)
		return nil
	}
	fmt.Println("level:", p.Level())
	fmt.Println("isolation:", p.Describe().Isolation, strings.Join(p.Describe().OpenEnds, "|"))
	fmt.Println("reasons:", strings.Join(p.Reasons(), "|"))
	sb, err := p.Create(ctx, request(session()))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	proc, err := sb.Exec(ctx, provider.ExecRequest{ID: "e", Stdout: &out, Stderr: &out, Shell: "echo works; cat /proc/1/environ /etc/shadow 2>&1"})
	if err != nil {
		return err
	}
	if _, err := proc.Wait(ctx); err != nil {
		return err
	}
	fmt.Println("output:", strings.ReplaceAll(out.String(), "\n", "|"))
	return p.Destroy(ctx, sb.Ref())
}

// refuseCall makes one system call fail as on a kernel that does not have it.
func refuseCall(nr uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return e
	}
	return nil
}

// ordinary is a user without any privilege.
const ordinary = 12345

// again runs this test binary in a role, as uid when this process is root.
func again(t *testing.T, uid int, role string, args []string, env ...string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "local.test")
	self, err := os.Executable()
	require.NoError(t, err)
	// A link rather than a copy: what was just written cannot be executed while
	// another test forks.
	if os.Link(self, bin) != nil {
		b, err := os.ReadFile(self)
		require.NoError(t, err)
		syscall.ForkLock.RLock() // of another file system
		err = os.WriteFile(bin, b, 0o755)
		syscall.ForkLock.RUnlock()
		require.NoError(t, err)
	}
	home := filepath.Join(dir, "home")
	require.NoError(t, os.Mkdir(home, 0o700))
	cmd := exec.Command(bin, args...)
	cmd.Dir = home
	cmd.Env = append([]string{roleVariable + "=" + role, "PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, dirVariable + "=" + filepath.Join(home, "state")}, env...)
	if os.Geteuid() == 0 && uid != 0 {
		for p := dir; p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
			require.NoError(t, os.Chmod(p, 0o755))
		}
		require.NoError(t, os.Chown(home, uid, uid))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return cmd
}

// withWord lists the processes of this machine whose command line holds word.
func withWord(t *testing.T, word string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var out []int
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(word)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			require.NoError(t, err)
			out = append(out, pid)
		}
	}
	return out
}

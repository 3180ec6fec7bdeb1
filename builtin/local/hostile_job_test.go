//go:build linux

package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/internal/hostile"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// hostileJobVariable holds a hostileJob in the environment of a test binary that
// is to do that job instead of running tests.
const hostileJobVariable = "SBXHOST_TEST_HOSTILE_JOB"

// hostileJob is one run of the probe in a sandbox.
type hostileJob struct {
	Probe  string         `json:"probe"`
	Level  string         `json:"level"`
	Config hostile.Config `json:"config"`
}

// hostileReport is what came of it. The last four are empty when all is well.
type hostileReport struct {
	Isolation    string           `json:"isolation"`
	OpenEnds     []string         `json:"openEnds"`
	Results      []hostile.Result `json:"results"`
	Terminal     []hostile.Result `json:"terminal"`
	OtherExec    string           `json:"otherExec"`
	OtherSandbox string           `json:"otherSandbox"`
	Afterwards   string           `json:"afterwards"`
	Failure      string           `json:"failure"`
}

// The job has to run as another user, and refused namespaces, which a process
// cannot get back: so it is done by a copy of the test binary, before the tests
// of that copy would start.
func init() {
	text := os.Getenv(hostileJobVariable)
	if text == "" {
		return
	}
	_ = os.Unsetenv(hostileJobVariable)
	var job hostileJob
	var report hostileReport
	err := json.Unmarshal([]byte(text), &job)
	if err == nil {
		err = job.do(&report)
	}
	if err != nil {
		report.Failure = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(report)
	os.Exit(0)
}

const (
	hostilePIDs      = 96
	hostileMemoryMiB = 1024
	hostileTmpMiB    = hostileMemoryMiB + 64 // more than /tmp may take
)

func (j hostileJob) do(report *hostileReport) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if j.Level == "landlock" {
		if err := refuseNamespaces(); err != nil {
			return fmt.Errorf("refuse namespaces: %w", err)
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	p, err := local.New(local.Options{StateDir: filepath.Join(dir, "state"), Unsafe: j.Level == "none"})
	if err != nil {
		return err
	}
	d := p.Describe()
	report.Isolation, report.OpenEnds = d.Isolation, d.OpenEnds

	attacked, err := newVictimSandbox(ctx, p, j.Probe, "1")
	if err != nil {
		return err
	}
	defer func() { _ = p.Destroy(context.WithoutCancel(ctx), attacked.sb.Ref()) }()
	neighbour, err := newVictimSandbox(ctx, p, j.Probe, "2")
	if err != nil {
		return err
	}
	defer func() { _ = p.Destroy(context.WithoutCancel(ctx), neighbour.sb.Ref()) }()

	c := j.Config
	c.Targets = append(c.Targets,
		hostile.Target{Name: "other-exec", Marker: attacked.marker},
		hostile.Target{Name: "other-sandbox", Marker: neighbour.marker})
	c.CanaryVariables = []string{"HOST_CANARY", "HOST_TOKEN"}
	c.PIDs, c.MemoryMiB, c.TmpMiB = hostilePIDs, hostileMemoryMiB, hostileTmpMiB
	c.HostDirs = append(c.HostDirs, dir)
	c.Skip = resourceAttempts
	if report.Results, err = attacked.probe(ctx, c, false); err != nil || len(j.Config.Only) > 0 {
		return err
	}
	for _, name := range resourceAttempts {
		// Each in a command of its own: one that is not refused may be the end of
		// everything in its sandbox.
		c.Only = []string{name}
		results, err := attacked.probe(ctx, c, false)
		if err != nil {
			results = []hostile.Result{{Name: name, Outcome: hostile.Error, Detail: err.Error()}}
		}
		report.Results = append(report.Results, results...)
	}
	c.Only = terminalAttempts
	if report.Terminal, err = attacked.probe(ctx, c, true); err != nil {
		return err
	}

	report.OtherExec = attacked.victimState(ctx)
	report.OtherSandbox = neighbour.victimState(ctx)
	for _, v := range []*victimSandbox{attacked, neighbour} {
		out, exit, err := v.run(ctx, provider.ExecRequest{Shell: "echo fine"})
		if err != nil || exit.Code != 0 || strings.TrimSpace(out) != "fine" {
			report.Afterwards += fmt.Sprintf("sandbox %s: %q %+v %v; ", v.marker, out, exit, err)
		}
		if err := p.Destroy(ctx, v.sb.Ref()); err != nil {
			report.Afterwards += "destroy: " + err.Error() + "; "
		}
	}
	return nil
}

// resourceAttempts use up what a sandbox may have.
var resourceAttempts = []string{"fork-bomb", "thread-bomb", "memory-bomb", "fill-tmp", "fill-shm", "fill-root"}

// terminalAttempts are made once more with a terminal.
var terminalAttempts = []string{"tiocsti", "tiocsti-high-bits", "tioclinux", "tioccons", "tiocsctty-steal", "host-tty-open", "host-tty-list", "inherited-descriptors"}

// victimSandbox is a sandbox with a process in it that holds a secret.
type victimSandbox struct {
	sb     provider.Sandbox
	marker string
	victim provider.Process
	n      int
}

func newVictimSandbox(ctx context.Context, p provider.Provider, probe, id string) (*victimSandbox, error) {
	session := strings.Repeat(id, 32)
	sb, err := p.Create(ctx, provider.CreateRequest{
		SessionID: session, Name: provider.NamePrefix + session, Digest: "sha256:" + strings.Repeat("0", 64),
		Labels: map[string]string{provider.LabelOwner: "hostile", provider.LabelSession: session, provider.LabelEpoch: "1",
			provider.LabelAttempt: session, provider.LabelDigest: "sha256:" + strings.Repeat("0", 64), provider.LabelProtected: "1"},
		Root: "/workspace", Network: p.Describe().DefaultNetwork, Start: "idle", Transport: provider.TransportExec, ProtectedNames: []string{"VICTIM_SECRET"},
		Resources: provider.Resources{PIDs: hostilePIDs, MemoryMiB: hostileMemoryMiB},
	})
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	v := &victimSandbox{sb: sb, marker: fmt.Sprintf("marker-%s-%d", session[:4], os.Getpid())}
	data, err := os.ReadFile(probe)
	if err != nil {
		return nil, err
	}
	if out, exit, err := v.run(ctx, provider.ExecRequest{Shell: "cat >probe && chmod 755 probe", Stdin: provider.StdinUpfront, Input: bytes.NewReader(data)}); err != nil || exit.Code != 0 {
		return nil, fmt.Errorf("write the probe: %w %+v %s", err, exit, out)
	}
	var out safeBuffer
	v.victim, err = sb.Exec(ctx, provider.ExecRequest{ID: "victim", Args: []string{"./probe", "wait", v.marker}, Stdin: provider.StdinLive,
		Protected: secret.NewEnv(map[string]secret.Value{"VICTIM_SECRET": secret.FromString("canary of the victim")}),
		Stdout:    &out, Stderr: &out})
	if err != nil {
		return nil, fmt.Errorf("victim: %w", err)
	}
	for !strings.Contains(out.String(), "ready") {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return v, nil
}

// victimState returns what is wrong with the victim, "" when it waits as before.
func (v *victimSandbox) victimState(ctx context.Context) string {
	if err := v.victim.Signal(ctx, "URG"); err != nil {
		return "signal: " + err.Error()
	}
	if err := v.victim.Stdin().Close(); err != nil {
		return "close: " + err.Error()
	}
	exit, err := v.victim.Wait(ctx)
	if err != nil || exit.Kind != provider.ExitExited || exit.Code != 0 {
		return fmt.Sprintf("ended with %+v %v", exit, err)
	}
	return ""
}

func (v *victimSandbox) probe(ctx context.Context, c hostile.Config, tty bool) ([]hostile.Result, error) {
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	out, exit, err := v.run(ctx, provider.ExecRequest{Args: []string{"./probe", "run", string(config)}, TTY: tty, Cols: 80, Rows: 24})
	if err != nil {
		return nil, err
	}
	if exit.Kind != provider.ExitExited || exit.Code != 0 {
		return nil, fmt.Errorf("the probe ended with %+v: %.2000s", exit, out)
	}
	var results []hostile.Result
	for line := range strings.Lines(out) {
		var r hostile.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%w: %q", err, line)
		}
		if slices.ContainsFunc(results, func(have hostile.Result) bool { return have.Name == r.Name }) {
			return nil, errors.New("two reports of " + r.Name)
		}
		results = append(results, r)
	}
	return results, nil
}

func (v *victimSandbox) run(ctx context.Context, req provider.ExecRequest) (string, provider.Exit, error) {
	v.n++
	req.ID = fmt.Sprintf("run-%d", v.n)
	var out, errOut safeBuffer
	req.Stdout, req.Stderr = &out, &errOut
	if req.Stdin == "" {
		req.Stdin = provider.StdinNone
	}
	proc, err := v.sb.Exec(ctx, req)
	if err != nil {
		return "", provider.Exit{}, err
	}
	exit, err := proc.Wait(ctx)
	if err == nil && errOut.String() != "" {
		err = fmt.Errorf("stderr: %.2000s", errOut.String())
	}
	return out.String(), exit, err
}

// safeBuffer is a buffer that is read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// refuseNamespaces makes the kernel refuse new namespaces to this process and
// its children, as containers do: unshare and clone with a namespace flag are
// EPERM, clone3 is ENOSYS.
func refuseNamespaces() error {
	const (
		flags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
		nr, arg0 = 0, 16 // offsets in struct seccomp_data
	)
	refuse := func(no unix.Errno) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(no)}
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nr},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE3, Jt: 5},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_UNSHARE, Jt: 1},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 4},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: arg0},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: flags, Jf: 2},
		refuse(unix.EPERM),
		refuse(unix.ENOSYS),
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// TSYNC takes every thread along, and their no-new-privileges with them.
	tid, _, no := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if no != 0 {
		return no
	}
	if tid != 0 {
		return fmt.Errorf("thread %d has another filter", tid)
	}
	return nil
}

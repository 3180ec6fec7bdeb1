package local_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var levels = []local.Level{local.LevelNamespaces, local.LevelLandlock}

// atLevels runs a test at every level that isolates.
func atLevels(t *testing.T, f func(t *testing.T, level local.Level)) {
	t.Parallel()
	for _, l := range levels {
		t.Run(string(l), func(t *testing.T) { t.Parallel(); f(t, l) })
	}
}

// L2, L5, E9, E14: nothing of the host's environment but the allow-list, and of
// configured names none that looks like a credential; the request wins.
func TestEnvironment(t *testing.T) {
	atLevels(t, func(t *testing.T, level local.Level) {
		host := []string{
			"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "TERM=dumb", "HOST_CANARY=canary-host", "API_TOKEN=canary-token",
			"BUILD_MODE=fast", "MY_PASSWORD=canary-password", "LD_PRELOAD=/x.so", "HOME=/root", "PWD=/root", "SHLVL=3",
			"SERVICE_ENDPOINT=https://user:canary-info@example.com", "BASH_ENV=/x",
		}
		p := newProvider(t, local.Options{Level: level, Environ: func() []string { return host },
			InheritEnv: []string{"BUILD_MODE", "MY_PASSWORD", "SERVICE_ENDPOINT"}})
		sb := create(t, p)
		var out bytes.Buffer
		proc, err := sb.Exec(t.Context(), provider.ExecRequest{ID: "e", Args: []string{"env"}, Stdout: &out, Stderr: io.Discard,
			Env: map[string]string{"LANG": "de_DE.UTF-8", "API_TOKEN": "request's own"}})
		require.NoError(t, err)
		_, err = proc.Wait(t.Context())
		require.NoError(t, err)
		got := map[string]string{}
		for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			k, v, _ := strings.Cut(line, "=")
			got[k] = v
		}
		home := "/workspace"
		if level != local.LevelNamespaces {
			home = got["HOME"]
			assert.NotEmpty(t, got["TMPDIR"])
			delete(got, "TMPDIR")
		}
		assert.Equal(t, map[string]string{
			"PATH": "/usr/bin:/bin", "LANG": "de_DE.UTF-8", "TERM": "dumb", "BUILD_MODE": "fast",
			"API_TOKEN": "request's own", "HOME": home, "PWD": home,
		}, got)
		assert.NotContains(t, out.String(), "canary")
	})
}

// TestValuesAreNowhereElse: a value is in the environment of its command, and in
// no argument, file, record, or environment of any other process.
func TestValuesAreNowhereElse(t *testing.T) {
	atLevels(t, func(t *testing.T, level local.Level) {
		p := newProvider(t, local.Options{Level: level})
		sb := create(t, p)
		// Not the other level's: a process that is looked at while it executes shows
		// the arguments of before, or none, and the environment of after. That is also
		// why the shell waits by itself.
		value := "canary-" + session()
		word := session()
		var out lockedBuffer
		proc, err := sb.Exec(t.Context(), provider.ExecRequest{ID: "e", Shell: `printf '%s\n' "$TOKEN"; read x; : ` + word, Stdin: provider.StdinLive,
			Protected: secret.NewEnv(map[string]secret.Value{"TOKEN": secret.FromString(value)}), Stdout: &out, Stderr: io.Discard})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return out.String() == value+"\n" }, 30*time.Second, time.Millisecond)

		holders := 0
		dirs, err := filepath.Glob("/proc/[0-9]*")
		require.NoError(t, err)
		for _, d := range dirs {
			cmdline, _ := os.ReadFile(d + "/cmdline")
			assert.NotContains(t, string(cmdline), value, d)
			if pid, _ := strconv.Atoi(filepath.Base(d)); pid == os.Getpid() {
				continue
			}
			environ, _ := os.ReadFile(d + "/environ")
			if bytes.Contains(environ, []byte(value)) {
				holders++
				assert.NotContains(t, string(cmdline), "sbx-shim", "the supervisor's environment holds the value")
				assert.Contains(t, string(cmdline), word, d)
			}
		}
		assert.Positive(t, holders, "the scan sees nothing")
		require.NoError(t, filepath.Walk(p.StateDir(), func(path string, info os.FileInfo, err error) error {
			if err == nil && info.Mode().IsRegular() {
				b, rerr := os.ReadFile(path)
				require.NoError(t, rerr)
				assert.NotContains(t, string(b), value, path)
			}
			return nil
		}))
		other := run(t, sb, `env; cat /proc/[0-9]*/environ 2>/dev/null; cat /proc/[0-9]*/cmdline 2>/dev/null; true`)
		assert.NotContains(t, other.stdout+other.stderr, value, "another exec of the sandbox can read it")
		require.NoError(t, proc.Kill(t.Context(), 0))
		ref, err := provider.EncodeRef(sb.Ref())
		require.NoError(t, err)
		status, err := sb.Status(t.Context())
		require.NoError(t, err)
		assert.NotContains(t, string(ref)+fmt.Sprintf("%+v %+v", status, p.Describe()), value)
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestNeverRoot: to the host a sandbox's processes are an unprivileged user of
// their own.
func TestNeverRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root could be root")
	}
	atLevels(t, func(t *testing.T, level local.Level) {
		p := newProvider(t, local.Options{Level: level})
		seen := map[uint32]bool{}
		for range 3 {
			sb := create(t, p)
			word := session()
			proc, _, _ := start(t, sb, "sleep 300; : "+word)
			require.Eventually(t, func() bool { return len(withWord(t, word)) > 0 }, 30*time.Second, time.Millisecond)
			st, err := os.Stat("/proc/" + strconv.Itoa(withWord(t, word)[0]))
			require.NoError(t, err)
			sys := st.Sys().(*syscall.Stat_t)
			assert.Greater(t, sys.Uid, uint32(10000))
			assert.Equal(t, sys.Uid, sys.Gid)
			assert.False(t, seen[sys.Uid], "two sandboxes share a user")
			seen[sys.Uid] = true
			require.NoError(t, proc.Kill(t.Context(), 0))
		}
	})
}

func TestNoPrivileges(t *testing.T) {
	atLevels(t, func(t *testing.T, level local.Level) {
		sb := create(t, newProvider(t, local.Options{Level: level}))
		out := run(t, sb, `grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\t' ' '; ulimit -c`).stdout
		for _, c := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
			assert.Contains(t, out, c+": 0000000000000000\n")
		}
		if level == local.LevelNamespaces || os.Geteuid() == 0 {
			assert.Contains(t, out, "CapBnd: 0000000000000000\n")
		}
		assert.Contains(t, out, "NoNewPrivs: 1\n")
		assert.Contains(t, out, "Seccomp: 2\n")
		assert.True(t, strings.HasSuffix(out, "\n0\n"), out)
	})
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	connect := provider.ExecRequest{ID: "e", Args: []string{"/bin/bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/" + port}, Stdout: io.Discard, Stderr: io.Discard}
	network := func(n string) func(*provider.CreateRequest) {
		return func(r *provider.CreateRequest) { r.Network = n }
	}
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, local.Options{Level: level})
			_, err := p.Create(t.Context(), request(session(), network("default")))
			require.ErrorIs(t, err, provider.ErrUnsupported)
			require.ErrorContains(t, err, local.Setting)
			proc, err := create(t, p).Exec(t.Context(), connect)
			require.NoError(t, err)
			exit, err := proc.Wait(t.Context())
			require.NoError(t, err)
			assert.NotZero(t, exit.Code, "the host was reached")

			p = newProvider(t, local.Options{Level: level, AllowNetwork: true})
			proc, err = create(t, p, network("default")).Exec(t.Context(), connect)
			require.NoError(t, err)
			exit, err = proc.Wait(t.Context())
			require.NoError(t, err)
			assert.Zero(t, exit.Code)
		})
	}
}

func TestPathGrants(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	require.NoError(t, os.Chmod(host, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(host, "in"), []byte("granted"), 0o644))
	p := newProvider(t, local.Options{Level: local.LevelNamespaces})
	mounts := func(m ...provider.PathGrant) func(*provider.CreateRequest) {
		return func(r *provider.CreateRequest) { r.Mounts = m }
	}
	sb := create(t, p, mounts(
		provider.PathGrant{Path: "/data/ro", HostPath: host, ReadOnly: true},
		provider.PathGrant{Path: "/data/rw", HostPath: host},
		provider.PathGrant{Path: "/workspace/sub", HostPath: host},
		provider.PathGrant{Path: "/data/file", HostPath: filepath.Join(host, "in"), ReadOnly: true},
	))
	out := run(t, sb, `cat /data/ro/in /data/file; touch /data/ro/no 2>/dev/null && echo WROTE; echo out >/data/rw/out; echo x >/data/file && echo WROTE; cat sub/in`)
	assert.Equal(t, "grantedgrantedgranted", out.stdout)
	b, err := os.ReadFile(filepath.Join(host, "out"))
	require.NoError(t, err)
	assert.Equal(t, "out\n", string(b))
	r, _, err := sb.Files().Open(t.Context(), "sub/in")
	require.NoError(t, err, "file calls see what is mounted in the root")
	b, err = io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	assert.Equal(t, "granted", string(b))

	for name, c := range map[string]struct {
		mod  func(*provider.CreateRequest)
		code error
	}{
		"over the system": {mounts(provider.PathGrant{Path: "/usr/lib", HostPath: host}), provider.ErrInvalidArgument},
		"over proc":       {mounts(provider.PathGrant{Path: "/proc", HostPath: host}), provider.ErrInvalidArgument},
		"over the root":   {mounts(provider.PathGrant{Path: "/workspace", HostPath: host}), provider.ErrInvalidArgument},
		"missing":         {mounts(provider.PathGrant{Path: "/data", HostPath: host + "/missing"}), provider.ErrInvalidArgument},
		"root in etc":     {func(r *provider.CreateRequest) { r.Root = "/etc/x" }, provider.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Create(t.Context(), request(session(), c.mod))
			require.ErrorIs(t, err, c.code)
			assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
		})
	}
	q := newProvider(t, local.Options{Level: local.LevelLandlock})
	_, err = q.Create(t.Context(), request(session(), mounts(provider.PathGrant{Path: "/data", HostPath: host})))
	require.ErrorIs(t, err, provider.ErrUnsupported)
}

// TestPIDLimit: the workload never has more processes than it may, and the
// supervisor still works when it has that many.
func TestPIDLimit(t *testing.T) {
	atLevels(t, func(t *testing.T, level local.Level) {
		if level == local.LevelLandlock && os.Geteuid() != 0 {
			t.Skip("without a user of its own the limit counts other processes too; Unenforced says so")
		}
		p := newProvider(t, local.Options{Level: level})
		sb := create(t, p, func(r *provider.CreateRequest) { r.Resources.PIDs = 20 })
		// None needs another process to go on: those that are refused one would end, and
		// it would be chance how many are left.
		word := "300." + strings.Map(func(r rune) rune {
			if r >= 'a' { // a time to sleep that no other test has
				r -= 'a' - '0'
			}
			return r
		}, session())
		proc, _, _ := start(t, sb, `i=0; while [ $i -lt 60 ]; do sleep `+word+` & i=$((i+1)); done; wait`)
		require.Eventually(t, func() bool { return len(withWord(t, word)) >= 5 }, 30*time.Second, 5*time.Millisecond)
		most := 0
		for range 50 {
			most = max(most, len(withWord(t, word)))
			time.Sleep(2 * time.Millisecond)
		}
		assert.LessOrEqual(t, most, 20)
		require.NoError(t, proc.Kill(t.Context(), 0))
		assert.Empty(t, withWord(t, word))
		assert.Zero(t, run(t, sb, "true").exit.Code, "the sandbox is usable again")
	})
}

// A limit that does not even hold the supervisor is named, wherever its end shows.
func TestTooLittleMemory(t *testing.T) {
	t.Parallel()
	p := newProvider(t, local.Options{Level: local.LevelNamespaces})
	if p.Describe().Features.MemoryMiB != provider.SupportEnforced {
		t.Skip("NOT TESTED: no control group here could end a supervisor")
	}
	for range 10 {
		_, err := p.Create(t.Context(), request(session(), func(r *provider.CreateRequest) { r.Resources.MemoryMiB = 1 }))
		require.Equal(t, provider.ResourceExhausted, provider.CodeOf(err), err)
		require.ErrorContains(t, err, "the supervisor ended while it was being set up; raise resources.memoryMiB")
	}
}

func TestMemoryAndCPULimits(t *testing.T) {
	t.Parallel()
	p := newProvider(t, local.Options{Level: local.LevelNamespaces})
	limits := func(r *provider.CreateRequest) { r.Resources = provider.Resources{MemoryMiB: 96, CPUs: 0.5} }
	if p.Describe().Features.MemoryMiB != provider.SupportEnforced {
		_, err := p.Create(t.Context(), request(session(), limits))
		require.ErrorIs(t, err, provider.ErrUnsupported, "cpus without a cgroup")
		sb := create(t, p, func(r *provider.CreateRequest) { r.Resources.MemoryMiB = 96 })
		st, err := sb.Status(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, st.Unenforced)
		assert.Contains(t, st.Unenforced[0], "memoryMiB")
		assert.NotZero(t, run(t, sb, `head -c 200000000 /dev/zero | tail`).exit.Code)
		return
	}
	sb := create(t, p, limits)
	// Two processes that would each be within the limit, and hold what they have
	// until the other has as much.
	got := run(t, sb, `hold() { (head -c 60000000 /dev/zero; : >has$1; until test -e has1 && test -e has2; do sleep 0.05; done) | tail | wc -c; }; hold 1 & hold 2 & wait; true`)
	assert.Less(t, strings.Count(got.stdout, "60000000"), 2, "both fit in 96 MiB: %q", got.stdout)
	assert.Zero(t, run(t, sb, "true").exit.Code, "the sandbox goes on")
	cpu := run(t, sb, `timeout 1 sh -c 'while :; do :; done' ; cat /proc/self/cgroup`)
	assert.NotEmpty(t, cpu.stdout)
	groups, err := filepath.Glob("/sys/fs/cgroup/cpu/" + provider.NamePrefix + sb.Ref().ID + "/cpu.cfs_quota_us")
	require.NoError(t, err)
	if len(groups) == 1 {
		b, err := os.ReadFile(groups[0])
		require.NoError(t, err)
		assert.Equal(t, "50000\n", string(b))
	}
	require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	left, err := filepath.Glob("/sys/fs/cgroup/*/" + provider.NamePrefix + sb.Ref().ID)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestStopperCannotStall: a command that stops every new process before it runs
// cannot hold the supervisor up for good.
func TestStopperCannotStall(t *testing.T) {
	t.Parallel()
	sb := create(t, newProvider(t, local.Options{Level: local.LevelNamespaces}))
	word := session()
	stopper, _, _ := start(t, sb, `while :; do kill -STOP -1 2>/dev/null; done; : `+word)
	var procs []provider.Process
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		p, err := sb.Exec(ctx, provider.ExecRequest{ID: "v", Args: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard})
		require.NoError(t, ctx.Err(), "the supervisor is held up")
		cancel()
		if err == nil {
			procs = append(procs, p)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, stopper.Kill(ctx, 100*time.Millisecond))
	for _, p := range procs {
		require.NoError(t, p.Kill(t.Context(), 0))
	}
	assert.Zero(t, run(t, sb, "true").exit.Code)
}

// TestConcurrentCreate: one sandbox for one session, however many ask.
func TestConcurrentCreate(t *testing.T) {
	t.Parallel()
	p := newProvider(t, local.Options{})
	req := request(session())
	var wg sync.WaitGroup
	ids := make([]provider.Sandbox, 8)
	for i := range ids {
		wg.Go(func() {
			sb, err := p.Create(t.Context(), req)
			assert.NoError(t, err)
			ids[i] = sb
		})
	}
	wg.Wait()
	for _, sb := range ids {
		assert.Same(t, ids[0], sb)
	}
	list, err := p.List(t.Context(), provider.Query{})
	require.NoError(t, err)
	assert.Len(t, list, 1)
	require.NoError(t, p.Destroy(t.Context(), ids[0].Ref()))
}

// TestNothingIsLeft: descriptors and goroutines are back to where they were.
// Not parallel: it counts what is the whole process'.
func TestNothingIsLeft(t *testing.T) {
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			p := newProvider(t, local.Options{Level: level})
			round := func() {
				sb, err := p.Create(t.Context(), request(session()))
				require.NoError(t, err)
				run(t, sb, "sleep 300 & echo x")
				run(t, sb, "stty size", func(r *provider.ExecRequest) { r.TTY = true; r.Cols, r.Rows = 80, 24 })
				run(t, sb, "cat", func(r *provider.ExecRequest) { r.Stdin, r.Input = provider.StdinUpfront, strings.NewReader("in") })
				_, err = sb.Exec(t.Context(), provider.ExecRequest{ID: "x", Args: []string{"missing"}, Stdout: io.Discard, Stderr: io.Discard})
				require.ErrorIs(t, err, provider.ErrNotFound)
				require.NoError(t, sb.Files().Write(t.Context(), "f", strings.NewReader("f"), provider.WriteOptions{}))
				require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
			}
			round()
			before := descriptors(t)
			ignore := goleak.IgnoreCurrent()
			for range 10 {
				round()
			}
			leak := goleak.Find(ignore)
			for end := time.Now().Add(30 * time.Second); leak != nil && time.Now().Before(end); leak = goleak.Find(ignore) {
				time.Sleep(10 * time.Millisecond)
			}
			require.NoError(t, leak)
			require.Eventually(t, func() bool { return descriptors(t) <= before }, 30*time.Second, 10*time.Millisecond)
		})
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(e)
}

func TestUnsafeIsExplicit(t *testing.T) {
	t.Parallel()
	_, err := local.New(local.Options{StateDir: t.TempDir(), Level: local.LevelNone})
	require.ErrorIs(t, err, provider.ErrInvalidArgument)
	p := newProvider(t, local.Options{Unsafe: true})
	assert.Equal(t, "none", p.Describe().Isolation)
	require.NotEmpty(t, p.Describe().OpenEnds)
	sb := create(t, p, func(r *provider.CreateRequest) { r.Network = "default" })
	word := session()
	proc, _, _ := start(t, sb, `setsid sh -c 'sleep 300; : `+word+`' & wait`)
	require.Eventually(t, func() bool { return len(withWord(t, word)) > 0 }, 30*time.Second, time.Millisecond)
	require.NoError(t, proc.Kill(t.Context(), 0))
	assert.Empty(t, withWord(t, word), "trees die without isolation too")
}

func TestStateDirIsPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.Mkdir(dir, 0o777))
	p := newProvider(t, local.Options{StateDir: dir, Level: local.LevelNamespaces})
	sb := create(t, p)
	st, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Zero(t, st.Mode().Perm()&0o077)
	st, err = os.Stat(filepath.Join(dir, sb.Ref().ID))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), st.Mode().Perm())
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(dir, ordinary, ordinary))
		defer func() { require.NoError(t, os.Chown(dir, 0, 0)) }()
		_, err = local.New(local.Options{StateDir: dir})
		require.ErrorIs(t, err, provider.ErrFailedPrecondition)
	}
}

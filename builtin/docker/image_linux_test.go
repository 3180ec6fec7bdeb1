package docker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/internal/leaktest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/providertest"
	"github.com/sbxhost/sbxhost/secret"
)

var staticProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sbxhost-static-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bin := filepath.Join(dir, "static")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", bin, "./testdata/static")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return string(out), err
	}
	b, err := os.ReadFile(bin)
	return string(b), err
})

// staticImage is an image of one static program: no shell, no library, no account.
func staticImage(t testing.TB, name string, changes ...string) string {
	t.Helper()
	program, err := staticProgram()
	require.NoError(t, err, program)
	return importImage(t, "static"+name, changes, func() []file { return []file{{name: "static", content: program}} })
}

// An image without a shell, a library or an account works.
func TestImageWithoutAShell(t *testing.T) {
	t.Parallel()
	h := harness(t, staticImage(t, ""), "none")
	run := func(args ...string) providertest.Command {
		return providertest.Command{Args: append([]string{"/static"}, args...)}
	}
	h.RealShell = false
	h.Commands = providertest.Commands{
		Exit:      func(code int) providertest.Command { return run("exit", strconv.Itoa(code)) },
		Print:     func(o, e string) providertest.Command { return run("print", o, e) },
		PrintArgs: func(args ...string) providertest.Command { return run(append([]string{"args"}, args...)...) },
		PrintEnv:  func(name string) providertest.Command { return run("env", name) },
		Environ:   func() providertest.Command { return run("environ") },
		Cat:       func() providertest.Command { return run("cat") },
		Dir:       func() providertest.Command { return run("dir") },
		Append:    func(f, line string) providertest.Command { return run("append", f, line) },
		PrintSleep: func(text string, d time.Duration, marker string) providertest.Command {
			return run("sleep", text, strconv.Itoa(int(d.Seconds())), marker)
		},
	}
	h.Only = []string{"lifecycle/open", "create/root", "exec/exit", "exec/output", "exec/args", "exec/env", "exec/dir", "stdin/live", "kill/", "env/exec-exact", "env/tty", "files/replace", "pause/"}
	providertest.Run(t, h)

	// And what it has not got is said.
	sb := create(t, newProvider(t), func(r *provider.CreateRequest) { r.Image = staticImage(t, "") })
	_, err := sb.Exec(t.Context(), provider.ExecRequest{ID: "x", Shell: "true", Stdout: io.Discard, Stderr: io.Discard})
	assert.ErrorIs(t, err, provider.ErrNotFound)
	_, err = sb.Exec(t.Context(), provider.ExecRequest{ID: "y", Args: []string{"/static"}, User: "alice", Stdout: io.Discard, Stderr: io.Discard})
	assert.ErrorIs(t, err, provider.ErrInvalidArgument)
	assert.ErrorContains(t, err, "no such user")
}

// Commands run as the image's user, or the manifest's, with groups and home; the
// root is theirs; files are made as them.
func TestUsers(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	busy := slurp(t, mustLook(t, "busybox"))
	withUser := func(user string) string {
		return importImage(t, "user-"+strings.NewReplacer(":", "-").Replace(user), []string{"USER " + user}, func() []file {
			return append(accounts(), file{name: "bin/busybox", content: busy}, file{name: "bin/sh", link: "busybox"}, file{name: "bin/id", link: "busybox"},
				file{name: "bin/stat", link: "busybox"}, file{name: "bin/grep", link: "busybox"}, file{name: "bin/touch", link: "busybox"})
		})
	}
	for _, c := range []struct{ image, user, id string }{
		{"alice", "", "1000 1001 1001 2000 /home/alice"},
		{"1000", "", "1000 1001 1001 2000 /home/alice"},
		{"1000:1000", "", "1000 1000 1000 /home/alice"},
		{"4321", "", "4321 0 0 /"},
		{"alice", "root", "0 0 0 /root"},
		{"root", "alice:extra", "1000 2000 2000 /home/alice"},
	} {
		t.Run(c.image+" "+c.user, func(t *testing.T) {
			t.Parallel()
			sb := create(t, p, func(r *provider.CreateRequest) { r.Image, r.User = withUser(c.image), c.user })
			got := run(t, sb, shell(`echo $(id -u) $(id -g) $(id -G) $HOME; touch mine; stat -c %u mine; grep -c '^CapEff:.*[1-9a-f]' /proc/self/status`))
			lines := strings.Split(got.stdout, "\n")
			require.Len(t, lines, 4, got.stdout+got.stderr)
			uid, _, _ := strings.Cut(c.id, " ")
			assert.Equal(t, c.id, lines[0])
			assert.Equal(t, uid, lines[1], "the owner of a file")
			if uid == "0" {
				assert.Equal(t, "1", lines[2])
			} else {
				assert.Equal(t, "0", lines[2], "capabilities of an ordinary user")
			}
			require.NoError(t, sb.Files().Write(t.Context(), "d/written", strings.NewReader("x"), provider.WriteOptions{}))
			assert.Equal(t, uid+"\n", run(t, sb, shell("stat -c %u d/written")).stdout)
		})
	}
}

// start: image runs the image's entrypoint and command under the supervisor: with
// its user, the literals, the values of the create transport, and its log.
func TestStartImage(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	ref := staticImage(t, "-serve", `ENTRYPOINT ["/static","serve"]`, `CMD [":8080"]`, "USER 1234", "HEALTHCHECK CMD [\"/static\",\"exit\",\"1\"]")
	canary := leaktest.Known("token", "t0ken-"+randomHex(10))
	sb := create(t, p, protect([]string{"TOKEN"}, provider.TransportCreate), func(r *provider.CreateRequest) {
		r.Image, r.Start, r.Network, r.Ports = ref, "image", "default", []int{8080}
		r.Environment = map[string]string{"LITERAL": "l"}
		r.Protected = secret.NewEnv(map[string]secret.Value{"TOKEN": secret.FromString(canary.Value())})
	})
	assert.Equal(t, "token="+canary.Value()+" literal=l uid=1234\n", serving(t, sb), "the log is the command's, and nothing else")

	e, err := sb.(provider.Ports).Port(t.Context(), 8080)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(e.Address, "127.0.0.1:"), e.Address)
	assert.Equal(t, "hello", fetchInEngine(t, e.Address))
	_, err = sb.(provider.Ports).Port(t.Context(), 8081)
	assert.ErrorIs(t, err, provider.ErrNotFound)

	// A health check of the image's would be a command with the values.
	info, err := api(t).ContainerInspect(t.Context(), sb.Ref().ID)
	require.NoError(t, err)
	assert.Nil(t, info.State.Health)
	assert.False(t, *info.HostConfig.Init)
	assert.Equal(t, []string{"no-new-privileges"}, info.HostConfig.SecurityOpt)
	// The command's process is not the first one, and commands go on beside it.
	assert.Equal(t, "beside", run(t, sb, provider.ExecRequest{Args: []string{"/static", "print", "beside", ""}}).stdout)
}

// serving waits until an image's server listens and returns its log.
func serving(t testing.TB, sb provider.Sandbox) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var log bytes.Buffer
		require.NoError(t, sb.(provider.Logs).Logs(t.Context(), &log))
		if strings.HasSuffix(log.String(), "\n") {
			return log.String()
		}
		require.True(t, time.Now().Before(end), "it does not come up: %s", log.String())
	}
}

// fetchInEngine connects from where the engine publishes ports: its own network.
func fetchInEngine(t testing.TB, address string) string {
	t.Helper()
	pid := enginePID(t)
	out := make(chan string, 1)
	go func() {
		// The thread is not used again: it is in another network now.
		runtime.LockOSThread()
		ns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/net")
		if err != nil {
			out <- err.Error()
			return
		}
		defer func() { _ = ns.Close() }()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			out <- err.Error()
			return
		}
		host, port, _ := strings.Cut(address, ":")
		n, _ := strconv.Atoi(port)
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			out <- err.Error()
			return
		}
		defer func() { _ = unix.Close(fd) }()
		if host != "127.0.0.1" {
			out <- "not loopback"
			return
		}
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			out <- err.Error()
			return
		}
		buf := make([]byte, 100)
		k, _ := unix.Read(fd, buf)
		out <- string(buf[:max(k, 0)])
	}()
	return <-out
}

// enginePID finds the engine's process by its socket.
func enginePID(t testing.TB) int {
	t.Helper()
	sock := strings.TrimPrefix(os.Getenv(engineVariable), "unix://")
	engine := func(pid string) bool {
		comm, _ := os.ReadFile("/proc/" + pid + "/comm")
		args, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		return string(comm) == "dockerd\n" && (strings.Contains(string(args), sock) || !strings.Contains(string(args), "unix://"))
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, f := range files {
		pid := filepath.Base(filepath.Dir(f))
		if !engine(pid) {
			continue
		}
		stat, _ := os.ReadFile(f)
		_, rest, _ := strings.Cut(string(stat), ") ")
		// A child that it is making looks like it, and may be in another network.
		if fields := strings.Fields(rest); len(fields) > 1 && !engine(fields[1]) {
			n, err := strconv.Atoi(pid)
			require.NoError(t, err)
			return n
		}
	}
	t.Fatal("the engine's process was not found")
	return 0
}

// Containers of one owner's network cannot reach each other, those without a
// network reach nothing, and the network goes with the last one.
func TestNetworks(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	ref := staticImage(t, "-serve", `ENTRYPOINT ["/static","serve"]`, `CMD [":8080"]`, "USER 1234", "HEALTHCHECK CMD [\"/static\",\"exit\",\"1\"]")
	owner := "net-" + randomHex(8)
	made := func(network string) provider.Sandbox {
		sb, err := p.Create(t.Context(), request(func(r *provider.CreateRequest) {
			r.Image, r.Start, r.Network = ref, "image", network
			r.Labels[provider.LabelOwner] = owner
		}))
		require.NoError(t, err)
		t.Cleanup(func() { destroy(t, p, sb.Ref()) })
		serving(t, sb)
		return sb
	}
	address := func(sb provider.Sandbox) (ip, gateway string) {
		info, err := api(t).ContainerInspect(t.Context(), sb.Ref().ID)
		require.NoError(t, err)
		for _, n := range info.NetworkSettings.Networks {
			return n.IPAddress, n.Gateway
		}
		return "", ""
	}
	fetch := func(sb provider.Sandbox, address, limit string) string {
		return run(t, sb, provider.ExecRequest{Args: []string{"/static", "fetch", address, limit}}).stdout
	}
	const there, notThere = "25s", "2s" // of each: to connect, and to read
	a, b, none := made("default"), made("default"), made("none")
	ipA, gateway := address(a)
	ipB, _ := address(b)
	require.NotEmpty(t, ipA)
	require.NotEqual(t, ipA, ipB)
	require.NotEmpty(t, gateway)
	assert.Equal(t, "hello\n", fetch(a, "127.0.0.1:8080", there))
	assert.Equal(t, "hello\n", fetch(a, ipA+":8080", there), "the control: the address is right")
	assert.Equal(t, "unreachable\n", fetch(b, ipA+":8080", notThere), "containers reach each other")
	assert.Equal(t, "hello\n", fetch(none, "127.0.0.1:8080", there))
	assert.Equal(t, "unreachable\n", fetch(none, ipA+":8080", notThere))

	networks := func() int {
		n := 0
		list, err := api(t).NetworkList(t.Context(), networkList)
		require.NoError(t, err)
		for _, x := range list {
			if x.Labels[provider.LabelOwner] == owner {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 1, networks())
	require.NoError(t, p.Destroy(t.Context(), a.Ref()))
	assert.Equal(t, 1, networks())
	require.NoError(t, p.Destroy(t.Context(), b.Ref()))
	assert.Zero(t, networks(), "the network is left")
}

// An image is pulled when it is missing, with progress; what the registry refuses is
// said.
func TestPull(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Pull = docker.PullMissing
	c, err := docker.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	busy := busyboxImage(t)
	f := &registry{faulty: newFaulty(c), have: map[string]string{}}
	p, err := docker.NewWithEngine(t.Context(), f, o)
	require.NoError(t, err)

	f.answer = `{"status":"Pulling from library/x","id":"latest"}
{"status":"Downloading","progressDetail":{"current":10,"total":100},"id":"a"}
{"status":"Extracting","progressDetail":{"current":1,"total":100},"id":"a"}
{"status":"Downloading","progressDetail":{"current":5,"total":50},"id":"b"}
{"status":"Pull complete","id":"a"}
`
	f.pulled = func() { f.have["registry.example/x:1"] = busy }
	var mu sync.Mutex
	var stages []provider.Stage
	sb := create(t, p, func(r *provider.CreateRequest) {
		r.Image = "registry.example/x:1"
		r.Progress = func(st provider.Stage) { mu.Lock(); stages = append(stages, st); mu.Unlock() }
	})
	assert.Equal(t, "ok\n", run(t, sb, shell("echo ok")).stdout)
	require.GreaterOrEqual(t, len(stages), 2)
	assert.Equal(t, provider.Stage{Name: "pull", Detail: "registry.example/x:1"}, stages[0])
	assert.Equal(t, int64(100), stages[1].Total)
	n := len(f.list("ImagePull"))
	create(t, p, func(r *provider.CreateRequest) { r.Image = "registry.example/x:1" })
	assert.Len(t, f.list("ImagePull"), n, "it was pulled again")

	for text, want := range map[string]struct {
		code  provider.Code
		words string
	}{
		"pull access denied for y, repository does not exist or may require 'docker login'": {provider.NotFound, "needs a login"},
		"manifest unknown: manifest unknown":                                                {provider.NotFound, "no such tag"},
		"dial tcp: lookup registry.example: no such host":                                   {provider.Unavailable, "cannot pull it"},
		"write /var/lib/docker/tmp/x: no space left on device":                              {provider.ResourceExhausted, "disk is full"},
	} {
		b, err := json.Marshal(map[string]string{"error": text})
		require.NoError(t, err)
		f.answer, f.pulled = string(b), nil
		_, err = p.Create(t.Context(), request(func(r *provider.CreateRequest) { r.Image = "registry.example/y" }))
		wantProblem(t, err, want.code, want.words)
	}
	f.answer = `{"status":"Downloa`
	_, err = p.Create(t.Context(), request(func(r *provider.CreateRequest) { r.Image = "registry.example/y" }))
	wantProblem(t, err, provider.Unavailable, "cannot pull it")
}

// registry is an engine whose pulls are the test's.
type registry struct {
	*faulty
	answer string
	pulled func()
	have   map[string]string
}

func (r *registry) ImagePull(_ context.Context, ref string, _ image.PullOptions) (io.ReadCloser, error) {
	if err := r.enter("ImagePull", ref); err != nil {
		return nil, err
	}
	if r.pulled != nil {
		r.pulled()
	}
	return io.NopCloser(strings.NewReader(r.answer)), nil
}

func (r *registry) ImageInspect(ctx context.Context, ref string, o ...inspectOption) (image.InspectResponse, error) {
	if real, ok := r.have[ref]; ok {
		ref = real
	}
	return r.faulty.ImageInspect(ctx, ref, o...)
}

// rootless is an engine without control groups.
type rootless struct{ *faulty }

func (r rootless) Info(ctx context.Context) (system.Info, error) {
	i, err := r.Engine.Info(ctx)
	i.MemoryLimit, i.SwapLimit, i.PidsLimit, i.CPUCfsQuota, i.SecurityOptions = false, false, false, false, nil
	return i, err
}

// What an engine cannot enforce is refused, not dropped.
func TestEngineWithoutLimits(t *testing.T) {
	t.Parallel()
	o := options(t)
	c, err := docker.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	f := newFaulty(c)
	p, err := docker.NewWithEngine(t.Context(), rootless{f}, o)
	require.NoError(t, err)
	d := p.Describe()
	require.NoError(t, provider.ValidateDescription(d))
	assert.Contains(t, strings.Join(d.OpenEnds, "\n"), "seccomp")
	for name, res := range map[string]provider.Resources{"memoryMiB": {MemoryMiB: 64}, "cpus": {CPUs: 1}, "pids": {PIDs: 10}} {
		_, err := p.Create(t.Context(), request(func(r *provider.CreateRequest) { r.Resources = res }))
		wantProblem(t, err, provider.Unsupported, name, "control groups")
	}
	sb := create(t, p)
	info, err := c.ContainerInspect(t.Context(), sb.Ref().ID)
	require.NoError(t, err)
	assert.True(t, info.HostConfig.PidsLimit == nil || *info.HostConfig.PidsLimit == 0)
}

// foreign is an engine of an architecture for which there is no supervisor.
type foreign struct{ *faulty }

func (f foreign) ServerVersion(ctx context.Context) (types.Version, error) {
	v, err := f.Engine.ServerVersion(ctx)
	v.Arch = "riscv64"
	return v, err
}

// unhurried is an engine that has not begun a command yet when it is first asked for it.
type unhurried struct {
	foreign
	asked *sync.Map
}

func (u unhurried) ContainerExecInspect(ctx context.Context, id string) (container.ExecInspect, error) {
	if _, again := u.asked.LoadOrStore(id, true); !again {
		return container.ExecInspect{ExecID: id}, nil
	}
	return u.foreign.ContainerExecInspect(ctx, id)
}

// An engine answers before it begins: a command that does not run yet has not ended.
func TestWithoutASupervisorNotBegun(t *testing.T) {
	t.Parallel()
	o := options(t)
	c, err := docker.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	o.AllowEngineEnv = true
	p, err := docker.NewWithEngine(t.Context(), unhurried{foreign{newFaulty(c)}, &sync.Map{}}, o)
	require.NoError(t, err)
	sb := create(t, p)
	got := run(t, sb, shell("sleep 0.5; echo out; exit 7"))
	assert.Equal(t, "out\n", got.stdout)
	assert.Equal(t, 7, got.Code)
}

// Without a supervisor an engine is refused, unless configuration allows to go
// without: then values pass through the engine, kills are best effort, Describe says
// so, and what cannot work says so too.
func TestWithoutASupervisor(t *testing.T) {
	t.Parallel()
	o := options(t)
	c, err := docker.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	e := foreign{newFaulty(c)}
	_, err = docker.NewWithEngine(t.Context(), e, o)
	wantProblem(t, err, provider.Unsupported, "riscv64", docker.SettingShimPath, docker.SettingEngineEnv)

	o.AllowEngineEnv = true
	p, err := docker.NewWithEngine(t.Context(), e, o)
	require.NoError(t, err)
	patient(p)
	d := p.Describe()
	require.NoError(t, provider.ValidateDescription(d))
	assert.Equal(t, "exec/engine-env", d.Transports[0].String())
	assert.Equal(t, provider.KillProcess, d.Exec.Kill)
	assert.False(t, d.Exec.TTY)
	assert.Contains(t, strings.Join(d.OpenEnds, "\n"), "without a supervisor")

	env := secret.NewEnv(map[string]secret.Value{"TOKEN": secret.FromString("a\n'\"$ü" + randomHex(8))})
	want, _ := env.Get("TOKEN")
	sb := create(t, p, protect([]string{"TOKEN"}, provider.TransportExec))
	got := run(t, sb, provider.ExecRequest{Shell: `printf %s "$TOKEN"; echo oops >&2; exit 7`, Protected: env})
	assert.Equal(t, string(want.Reveal()), got.stdout)
	assert.Equal(t, "oops\n", got.stderr)
	assert.Equal(t, 7, got.Code)
	assert.Equal(t, "in\n", run(t, sb, provider.ExecRequest{Args: []string{"cat"}, Stdin: provider.StdinUpfront, Input: strings.NewReader("in\n")}).stdout)
	assert.NotContains(t, run(t, sb, shell("env")).stdout, "TOKEN")
	word := "direct-" + randomHex(8)
	proc := begin(t, sb, shell("echo ready; sleep 300; : "+word))
	require.NoError(t, proc.Kill(t.Context(), 0))
	assert.Equal(t, provider.ExitKilled, wait(t, proc, time.Minute).Kind)
	assertNone(t, word)
	r := shell("echo ready; sleep 300; : " + word)
	assert.Equal(t, provider.ExitTimedOut, intoTimeout(t, sb, r, func() bool { return len(marked(t, word)) > 0 }).Kind)
	_, err = sb.Files().Stat(t.Context(), ".")
	wantProblem(t, err, provider.Unsupported, "without a supervisor")
	_, err = sb.Exec(t.Context(), provider.ExecRequest{ID: "t", Args: []string{"true"}, TTY: true, Cols: 1, Rows: 1, Stdin: provider.StdinLive, Stdout: io.Discard, Stderr: io.Discard})
	assert.ErrorIs(t, err, provider.ErrUnsupported)

	_, err = p.Create(t.Context(), request(func(r *provider.CreateRequest) { r.Image = staticImage(t, "") }))
	require.Error(t, err)
	assert.NotEqual(t, provider.Internal, provider.CodeOf(err), err)
	assert.ErrorContains(t, err, "without a supervisor")
}

package docker_test

import (
	"context"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/provider"
)

// wantProblem checks code, that the message says what to do, and what it says.
func wantProblem(t testing.TB, err error, code provider.Code, words ...string) {
	t.Helper()
	require.Error(t, err)
	var pe *provider.Error
	require.ErrorAs(t, err, &pe)
	assert.Equal(t, code, pe.Code, err.Error())
	assert.NotEmpty(t, pe.Remedy, "no remedy: %v", err)
	assert.Equal(t, "docker", pe.Provider)
	for _, w := range words {
		assert.ErrorContains(t, err, w)
	}
}

func TestEngineThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sock := filepath.Join(dir, "s")

	_, err := docker.New(t.Context(), docker.Options{Host: "unix://" + filepath.Join(dir, "none"), ConnectTimeout: connectTimeout})
	wantProblem(t, err, provider.Unavailable, "cannot be reached", "start it")

	_, err = docker.New(t.Context(), docker.Options{Host: "tcp://127.0.0.1:1", ConnectTimeout: connectTimeout})
	wantProblem(t, err, provider.Unavailable, "cannot be reached")

	_, err = docker.New(t.Context(), docker.Options{Host: "bogus"})
	wantProblem(t, err, provider.InvalidArgument, "address")

	_, err = docker.New(t.Context(), docker.Options{Host: "ssh://somewhere"})
	wantProblem(t, err, provider.Unsupported, "ssh -N -L")

	// Something listens there and is no engine.
	l, err := net.Listen("unix", sock)
	require.NoError(t, err)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("SSH-2.0-nonsense\r\n"))
			_ = c.Close()
		}
	}()
	_, err = docker.New(t.Context(), docker.Options{Host: "unix://" + sock, ConnectTimeout: connectTimeout})
	wantProblem(t, err, provider.Unavailable)
	require.NoError(t, l.Close())

	// Something listens there and never answers.
	quiet := filepath.Join(dir, "q")
	q, err := net.Listen("unix", quiet)
	require.NoError(t, err)
	defer func() { _ = q.Close() }()
	began := time.Now()
	_, err = docker.New(t.Context(), docker.Options{Host: "unix://" + quiet, ConnectTimeout: 300 * time.Millisecond})
	wantProblem(t, err, provider.Unavailable, "does not answer within 300ms")
	assert.Less(t, time.Since(began), time.Minute)
}

// The socket of an engine that this user may not use. Root may use any, so the
// test's thread becomes somebody else for as long as it connects.
func TestEngineWithoutPermission(t *testing.T) {
	if os.Geteuid() != 0 {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, 0))
		_, err := docker.New(t.Context(), docker.Options{Host: "unix://" + filepath.Join(dir, "s")})
		wantProblem(t, err, provider.PermissionDenied, "group")
		return
	}
	dir := t.TempDir()
	sock := filepath.Join(dir, "s")
	l, err := net.Listen("unix", sock)
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	require.NoError(t, os.Chmod(sock, 0o600))
	again(t, 12345, roleConnect, sock, "PermissionDenied", "group (docker)")
}

func TestImagesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	p := newProvider(t, func(o *docker.Options) { o.Image = "" })
	try := func(mods ...func(*provider.CreateRequest)) error {
		req := request(mods...)
		sb, err := p.Create(t.Context(), req)
		if err == nil {
			destroy(t, p, sb.Ref())
		} else {
			assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err), err)
			left, lerr := p.List(t.Context(), provider.Query{Session: req.SessionID})
			require.NoError(t, lerr)
			assert.Empty(t, left)
		}
		return err
	}
	image := func(ref string) func(*provider.CreateRequest) {
		return func(r *provider.CreateRequest) { r.Image = ref }
	}
	wantProblem(t, try(), provider.InvalidArgument, "no image", "docker.image")
	wantProblem(t, try(image("sbxhost-test:unknown")), provider.NotFound, "sbxhost-test:unknown", "docker pull")
	wantProblem(t, try(image("::bad::")), provider.InvalidArgument)

	// Where the supervisor goes an image must not decide what runs.
	for _, name := range []string{"link", "file"} {
		trap := importImage(t, "trap-"+name, nil, func() []file {
			f := file{name: ".sbx", link: "evil"}
			if name == "file" {
				f = file{name: ".sbx", content: "not a directory"}
			}
			return append(accounts(), f, file{name: "evil/shim", content: "#!/bin/sh\n"})
		})
		err := try(image(trap))
		require.Error(t, err)
		assert.NotEqual(t, provider.Internal, provider.CodeOf(err), err)
	}

	// Nor lead something else over it: what is mounted where the root is would be there.
	program := slurp(t, mustLook(t, "busybox"))
	linked := func(name, target string) string {
		return importImage(t, name, nil, func() []file {
			return append(accounts(), file{name: "bin/busybox", content: program}, file{name: "bin/sh", link: "busybox"},
				file{name: ".sbx/shim", content: "#!/bin/sh\n"}, file{name: "data/"}, file{name: "workspace", link: target})
		})
	}
	for _, target := range []string{".sbx", "/.sbx", "/data/../.sbx"} {
		err := try(image(linked("trap-root-"+hex.EncodeToString([]byte(target)), target)))
		wantProblem(t, err, provider.FailedPrecondition, "/workspace", "/.sbx", "another image")
	}
	for range 2 { // looked at, and remembered
		require.NoError(t, try(image(linked("linked-root", "data"))), "a link to elsewhere does no harm")
	}
	wantProblem(t, try(image(linked("linked-root", "data")), func(r *provider.CreateRequest) { r.Root = "/x/.sbx" }), provider.InvalidArgument, "supervisor")
	for name, volume := range map[string]string{"link": "/data", "parent": "/up/.sbx", "below": "/.sbx/x"} {
		picture := importImage(t, "trap-volume-"+name, []string{"VOLUME " + volume}, func() []file {
			return append(accounts(), file{name: "bin/busybox", content: program}, file{name: ".sbx/shim", content: "#!/bin/sh\n"},
				file{name: "data", link: ".sbx"}, file{name: "up", link: "/"})
		})
		wantProblem(t, try(image(picture)), provider.FailedPrecondition, volume, "another image")
	}
	volumes := importImage(t, "volumes", []string{"VOLUME /data", "VOLUME /.sbx"}, func() []file {
		return append(accounts(), file{name: "bin/busybox", content: program}, file{name: "data/"})
	})
	require.NoError(t, try(image(volumes)))
	dir := t.TempDir()
	wantProblem(t, try(image(linked("trap-root-"+hex.EncodeToString([]byte(".sbx")), ".sbx")), func(r *provider.CreateRequest) {
		r.Root, r.Mounts = "/root", []provider.PathGrant{{Path: "/workspace", HostPath: dir}}
	}), provider.FailedPrecondition, "/workspace", "/.sbx")

	busy := busyboxImage(t)
	wantProblem(t, try(image(busy), func(r *provider.CreateRequest) { r.Start = "image" }), provider.FailedPrecondition, "neither entrypoint nor command", "start: idle")
	wantProblem(t, try(image(busy), func(r *provider.CreateRequest) { r.User = "nobody-here" }), provider.InvalidArgument, "user")
}

func TestResourcesThatCannotBeHad(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	for name, c := range map[string]struct {
		mod   func(*provider.CreateRequest)
		code  provider.Code
		words []string
	}{
		"memory": {func(r *provider.CreateRequest) { r.Resources.MemoryMiB = 1 }, provider.InvalidArgument, []string{"memoryMiB", "6 MiB"}},
		"cpus":   {func(r *provider.CreateRequest) { r.Resources.CPUs = 10000 }, provider.InvalidArgument, []string{"cpus", "fewer"}},
		"host path": {func(r *provider.CreateRequest) {
			r.Mounts = []provider.PathGrant{{Path: "/data", HostPath: "/nowhere/at/all"}}
		}, provider.InvalidArgument, []string{"host path"}},
		"grant over the root": {func(r *provider.CreateRequest) {
			r.Root, r.Mounts = "/a/b", []provider.PathGrant{{Path: "/a", HostPath: "/tmp"}}
		}, provider.InvalidArgument, []string{"covers the root"}},
		"grant over the supervisor": {func(r *provider.CreateRequest) {
			r.Mounts = []provider.PathGrant{{Path: "/.sbx", HostPath: "/tmp"}}
		}, provider.InvalidArgument, []string{"/.sbx"}},
		"root over the supervisor": {func(r *provider.CreateRequest) { r.Root = "/.sbx/x" }, provider.InvalidArgument, []string{"/.sbx"}},
		"root in proc":             {func(r *provider.CreateRequest) { r.Root = "/proc/1" }, provider.InvalidArgument, []string{"/proc"}},
		"ports without a network":  {func(r *provider.CreateRequest) { r.Ports = []int{80} }, provider.InvalidArgument, []string{"network: default"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request(c.mod)
			sb, err := p.Create(t.Context(), req)
			if err == nil {
				destroy(t, p, sb.Ref())
			}
			wantProblem(t, err, c.code, c.words...)
			assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
			left, err := p.List(t.Context(), provider.Query{Session: req.SessionID})
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}

// The limits are those that were asked for, seen from the kernel.
func TestLimitsAreEnforced(t *testing.T) {
	t.Parallel()
	sb := create(t, newProvider(t), func(r *provider.CreateRequest) {
		r.Resources = provider.Resources{CPUs: 0.5, MemoryMiB: 64, PIDs: 32, DiskMiB: 10}
	})
	info, err := api(t).ContainerInspect(t.Context(), sb.Ref().ID)
	require.NoError(t, err)
	assert.EqualValues(t, 64<<20, info.HostConfig.Memory)
	assert.EqualValues(t, 64<<20, info.HostConfig.MemorySwap)
	assert.EqualValues(t, 5e8, info.HostConfig.NanoCPUs)
	st, err := sb.Status(t.Context())
	require.NoError(t, err)
	require.Len(t, st.Unenforced, 1)
	assert.Contains(t, st.Unenforced[0], "resources.diskMiB")
	got := run(t, sb, shell(`x=$(head -c 200000000 /dev/zero | tr '\0' x); echo ${#x}`))
	assert.NotEqual(t, "200000000\n", got.stdout, "more memory was used than allowed")
	assert.Equal(t, "still there\n", run(t, sb, shell("echo still there")).stdout)
}

// roleConnect is the role of a process that only connects.
const (
	roleVariable = "SBXHOST_TEST_ROLE"
	roleConnect  = "connect"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == roleConnect {
		_, err := docker.New(context.Background(), docker.Options{Host: "unix://" + os.Args[1], ConnectTimeout: connectTimeout})
		if err != nil {
			_, _ = os.Stdout.WriteString(string(provider.CodeOf(err)) + ": " + err.Error() + "\n")
		}
		return
	}
	os.Exit(m.Run())
}

// again runs this test binary in a role as another user and checks what it printed.
func again(t *testing.T, uid uint32, role, arg string, words ...string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	bin := filepath.Join(t.TempDir(), "docker.test")
	if os.Link(self, bin) != nil {
		b, err := os.ReadFile(self)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(bin, b, 0o755))
	}
	for _, dir := range []string{filepath.Dir(bin), filepath.Dir(arg)} {
		for ; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
			require.NoError(t, os.Chmod(dir, 0o755))
		}
	}
	cmd := execCommand(t, bin, arg)
	cmd.Env = []string{roleVariable + "=" + role}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	for _, w := range words {
		assert.Contains(t, string(out), w)
	}
}

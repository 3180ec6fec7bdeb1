package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/internal/shim/shimbin"
	"github.com/sbxhost/sbxhost/provider"
)

// engineVariable names the engine that tests may use; .ci/setup finds or starts
// one. Tests never pull: they make their images from files of this machine.
const engineVariable = "SBXHOST_TEST_ENGINE"

// connectTimeout is for engines that answer, on a machine that may be busy.
const connectTimeout = time.Minute

// api returns a client of the test engine. Without one the test is skipped, or,
// with CI=true, fails.
func api(t testing.TB) *client.Client {
	t.Helper()
	host := os.Getenv(engineVariable)
	if host == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("no engine to test against: run .ci/setup test, or set " + engineVariable)
		}
		t.Skip("NOT TESTED: no engine; run .ci/setup test, or set " + engineVariable)
	}
	c, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// options are those of a provider on the test engine.
func options(t testing.TB) docker.Options {
	t.Helper()
	api(t)
	return docker.Options{Host: os.Getenv(engineVariable), Pull: docker.PullNever, Image: busyboxImage(t), ConnectTimeout: connectTimeout}
}

func newProvider(t testing.TB, mods ...func(*docker.Options)) *docker.Provider {
	t.Helper()
	o := options(t)
	for _, m := range mods {
		m(&o)
	}
	p, err := docker.New(t.Context(), o)
	require.NoError(t, err)
	return patient(p)
}

// patient has a provider wait on a busy machine before it does without an answer: for
// one that a test asks what came of it, and not how long that took.
func patient(p *docker.Provider) *docker.Provider {
	docker.SetLatePatience(p, time.Minute)
	docker.SetKillPatience(p, 30*time.Second)
	docker.SetRootPatience(p, time.Minute)
	return p
}

// file is one entry of an image.
type file struct {
	name, content, link string
	mode                int64
	uid                 int
}

// importImage makes an image of files, once per process, and returns its name.
func importImage(t testing.TB, name string, changes []string, files func() []file) string {
	t.Helper()
	return importTo(t, os.Getenv(engineVariable), name, changes, files)
}

// importTo makes an image on an engine.
func importTo(t testing.TB, host, name string, changes []string, files func() []file) string {
	t.Helper()
	api(t)
	ref := "sbxhost-test:" + name
	made.Lock()
	defer made.Unlock()
	if made.images[host+ref] {
		return ref
	}
	cli, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	defer func() { _ = cli.Close() }()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	dirs := map[string]bool{}
	for _, f := range files() {
		var parents []string
		for d := filepath.Dir(strings.TrimSuffix(f.name, "/")); d != "." && !dirs[d]; d = filepath.Dir(d) {
			dirs[d] = true
			parents = append(parents, d)
		}
		for _, d := range slices.Backward(parents) {
			require.NoError(t, w.WriteHeader(&tar.Header{Name: d + "/", Typeflag: tar.TypeDir, Mode: 0o755}))
		}
		h := &tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: f.mode, Size: int64(len(f.content)), Uid: f.uid, Gid: f.uid}
		switch {
		case f.link != "":
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, f.link, 0
		case strings.HasSuffix(f.name, "/"):
			h.Typeflag = tar.TypeDir
			dirs[strings.TrimSuffix(f.name, "/")] = true
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		require.NoError(t, w.WriteHeader(h))
		_, err := io.WriteString(w, f.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	r, err := cli.ImageImport(t.Context(), image.ImportSource{Source: &b, SourceName: "-"}, ref, image.ImportOptions{Changes: changes})
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	made.images[host+ref] = true
	return ref
}

var made = struct {
	sync.Mutex
	images map[string]bool
}{images: map[string]bool{}}

const passwd = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1001:Alice:/home/alice:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
const group = "root:x:0:\nalice:x:1001:\nextra:x:2000:alice\n"

func accounts() []file {
	return []file{{name: "etc/passwd", content: passwd, mode: 0o644}, {name: "etc/group", content: group, mode: 0o644},
		{name: "tmp/", mode: 0o1777}, {name: "home/alice/", uid: 1000}, {name: "root/", mode: 0o700}}
}

func slurp(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// busyboxImage is an image of busybox alone.
func busyboxImage(t testing.TB) string { return busyboxTo(t, os.Getenv(engineVariable)) }

func busyboxTo(t testing.TB, host string) string {
	t.Helper()
	path, err := exec.LookPath("busybox")
	require.NoError(t, err, "apt-get install busybox-static")
	return importTo(t, host, "busybox", []string{"ENV IMAGE_VARIABLE=of-the-image"}, func() []file {
		list, err := exec.Command(path, "--list").Output()
		require.NoError(t, err)
		files := append(accounts(), file{name: "bin/busybox", content: slurp(t, path)})
		for _, applet := range strings.Fields(string(list)) {
			if applet != "busybox" {
				files = append(files, file{name: "bin/" + applet, link: "busybox"})
			}
		}
		return files
	})
}

// glibcImage is an image of this machine's bash, dash and tools with their
// libraries.
func glibcImage(t testing.TB) string {
	t.Helper()
	return importImage(t, "glibc", nil, func() []file {
		files := accounts()
		seen := map[string]bool{}
		add := func(path string) {
			real, err := filepath.EvalSymlinks(path)
			require.NoError(t, err)
			if !seen[path] {
				seen[path] = true
				files = append(files, file{name: strings.TrimPrefix(path, "/"), content: slurp(t, real)})
			}
		}
		for _, name := range []string{"bash", "dash", "cat", "head", "ln", "sleep", "setsid", "stty", "id", "env", "kill", "true", "ls", "mkdir", "rm"} {
			path, err := exec.LookPath(name)
			require.NoError(t, err)
			add(path)
			out, _ := exec.Command("ldd", path).Output()
			for _, word := range strings.Fields(string(out)) {
				if filepath.IsAbs(word) {
					add(word)
				}
			}
		}
		return append(files, file{name: "bin/sh", link: mustLook(t, "dash")})
	})
}

func mustLook(t testing.TB, name string) string {
	path, err := exec.LookPath(name)
	require.NoError(t, err)
	return path
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// request is a valid create request of a new session.
func request(mods ...func(*provider.CreateRequest)) provider.CreateRequest {
	id := randomHex(16)
	r := provider.CreateRequest{
		SessionID: id, Name: provider.NamePrefix + id, Digest: "sha256:test", Root: "/workspace", Network: "none", Start: "idle",
		Labels: map[string]string{provider.LabelOwner: "test-" + id[:8], provider.LabelEpoch: "1", provider.LabelSession: id,
			provider.LabelAttempt: randomHex(16), provider.LabelDigest: "sha256:test", provider.LabelProtected: "0"},
	}
	for _, m := range mods {
		m(&r)
	}
	r.Labels[provider.LabelDigest] = r.Digest
	return r
}

// create makes a sandbox that the test's end destroys.
func create(t testing.TB, p provider.Provider, mods ...func(*provider.CreateRequest)) provider.Sandbox {
	t.Helper()
	sb, err := p.Create(t.Context(), request(mods...))
	require.NoError(t, err)
	t.Cleanup(func() { destroy(t, p, sb.Ref()) })
	return sb
}

func destroy(t testing.TB, p provider.Provider, ref provider.Ref) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Destroy(ctx, ref); err != nil {
		t.Errorf("destroy: %v", err)
	}
}

type outcome struct {
	provider.Exit
	stdout, stderr string
}

// run runs a command to its end.
func run(t testing.TB, sb provider.Sandbox, req provider.ExecRequest) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	req.ID = randomHex(8)
	req.Stdout, req.Stderr = &out, &errs
	p, err := sb.Exec(t.Context(), req)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exit, err := p.Wait(ctx)
	require.NoError(t, err)
	return outcome{exit, out.String(), errs.String()}
}

func shell(script string) provider.ExecRequest { return provider.ExecRequest{Shell: script} }

func execOptions(cmd, env []string) container.ExecOptions {
	return container.ExecOptions{Cmd: cmd, Env: env, AttachStdout: true, AttachStderr: true}
}

var execAttach container.ExecAttachOptions

func execCommand(t testing.TB, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), name, args...)
}

type optionsType = docker.Options

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o755))
}

// selfShim is the embedded supervisor as a file.
func selfShim(t testing.TB) string {
	t.Helper()
	b, ok := shimbin.Linux(runtime.GOARCH)
	require.True(t, ok)
	path := filepath.Join(t.TempDir(), "shim")
	writeFile(t, path, string(b))
	return path
}

// putFile replaces a file of a container through the engine's archive API.
func putFile(t testing.TB, target, dir, name, content string, mode int64) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}))
	_, err := io.WriteString(w, content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, api(t).CopyToContainer(t.Context(), target, dir, &b, container.CopyToContainerOptions{}))
}

// chmodUp lets every user go to a directory of the test's.
func chmodUp(dir string) error {
	for ; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

var networkList network.ListOptions

type inspectOption = client.ImageInspectOption

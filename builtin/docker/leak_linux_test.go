package docker_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/leaktest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

func canaryEnv(list []leaktest.Canary) (secret.Env, []string) {
	values := map[string]secret.Value{}
	for _, c := range list {
		values["CANARY_"+c.Name] = secret.FromString(c.Value())
	}
	env := secret.NewEnv(values)
	return env, env.Names()
}

func protect(names []string, tr provider.Transport) func(*provider.CreateRequest) {
	return func(r *provider.CreateRequest) {
		r.Transport, r.ProtectedNames = tr, names
		r.Labels[provider.LabelProtected] = "1"
	}
}

// With the exec transport a value is in the environment of its command, byte for
// byte, and nowhere else: not in what the API shows of container, execs and image,
// not in the engine's files while the sandbox lives or after, not in the first
// process's environment, not in events, in a committed image, in arguments, or in
// the environment of any process that is not the command.
func TestExecTransportLeavesNothing(t *testing.T) {
	p := newProvider(t)
	canaries := leaktest.Canaries(t)
	env, names := canaryEnv(canaries)
	o := observe(t)
	req := request(protect(names, provider.TransportExec))
	sb, err := p.Create(t.Context(), req)
	require.NoError(t, err)
	t.Cleanup(func() { destroy(t, p, sb.Ref()) })

	const mark = "sbxhost-leak-workload"
	literal := map[string]string{"LEAK_WORKLOAD": mark}
	script := `: ` + mark + `; for n in ` + strings.Join(names, " ") + `; do eval "printf '%s' \"\$$n\" | base64 -w0; echo"; done; sleep 1; :`
	for _, tty := range []bool{false, true} {
		r := provider.ExecRequest{Shell: script, Protected: env, Env: literal, TTY: tty, Cols: 80, Rows: 24}
		if tty {
			r.Stdin = provider.StdinLive
		}
		got := run(t, sb, r)
		lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(got.stdout, "\r\n", "\n")), "\n")
		require.Len(t, lines, len(names), "terminal: %v", tty)
		for i, n := range names {
			want, _ := env.Get(n)
			b, err := base64.StdEncoding.DecodeString(lines[i])
			require.NoError(t, err)
			assert.True(t, bytes.Equal(want.Reveal(), b), "%s arrived changed (terminal: %v)", n, tty)
		}
	}
	// A terminal shows what the command prints and nothing of what it was given.
	var c leaktest.Corpus
	quiet := run(t, sb, provider.ExecRequest{Args: []string{"true", mark}, Protected: env, Env: literal, TTY: true, Cols: 80, Rows: 24, Stdin: provider.StdinLive})
	c.Add("what a terminal showed", []byte(quiet.stdout+"."))

	// One that goes on while everything is looked at.
	var out bytes.Buffer
	proc, err := sb.Exec(t.Context(), provider.ExecRequest{ID: "long", Shell: `: ` + mark + `; sleep 300; :`, Protected: env, Env: literal, Stdout: &out, Stderr: &out})
	require.NoError(t, err)
	require.NoError(t, sb.Files().Write(t.Context(), "f", strings.NewReader("x"), provider.WriteOptions{}))
	_, err = sb.Files().List(t.Context(), ".")
	require.NoError(t, err)
	var archive bytes.Buffer
	require.NoError(t, sb.(provider.Archiver).Export(t.Context(), &archive))
	c.Add("an exported archive", archive.Bytes())
	run(t, sb, provider.ExecRequest{Shell: "env", Env: map[string]string{"LITERAL": "1"}})
	inspectAll(t, &c, sb)
	commit(t, &c, sb.Ref().ID)
	for _, dir := range dataDirs(t) {
		c.AddTree("the engine's data", dir)
	}
	// The process table was seen: the command itself had the values.
	assert.Eventually(t, func() bool {
		return o.Looks() > 10 && slices.ContainsFunc(o.Seen(), func(pr leaktest.Process) bool {
			return strings.Contains(pr.Environ, mark) && strings.Contains(pr.Environ, canaries[0].Value())
		})
	}, time.Minute, 10*time.Millisecond, "the command's own environment was never seen: a leak in a process would not be either")
	require.NoError(t, proc.Kill(t.Context(), 0))
	require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	for _, dir := range dataDirs(t) {
		c.AddTree("the engine's data afterwards", dir)
	}
	o.end()
	o.addTo(&c, mark)
	leaktest.Scan(t, canaries, &c)
}

// The control: a value that is put where it does not belong is found there, in each
// of the places that the test above looks at.
func TestExecTransportControl(t *testing.T) {
	p := newProvider(t)
	var list []leaktest.Canary
	canary := func(what string) string {
		c := leaktest.Known(what, "control-"+what+"-"+randomHex(12))
		list = append(list, c)
		return c.Value()
	}
	var c leaktest.Corpus
	o := observe(t)

	// A sandbox that is told in the wrong ways.
	label := canary("label")
	sb := create(t, p, func(r *provider.CreateRequest) {
		r.Labels["note"] = label
		r.Environment = map[string]string{"LITERAL": canary("literal")}
	})
	file := canary("file")
	require.NoError(t, sb.Files().Write(t.Context(), "f", strings.NewReader(file), provider.WriteOptions{}))
	// The engine's own exec, as one would use it without a supervisor.
	argument, environ := canary("argument"), canary("environ")
	// On a busy machine what is there for a moment may be missed: until it was seen.
	for began := time.Now(); !o.saw(argument, environ, label) && time.Since(began) < 3*time.Minute; {
		dockerExec(t, sb, []string{"/bin/sh", "-c", "sleep 0.3; : " + argument}, "WRONG="+environ)
	}
	c.Add("what a terminal showed", []byte(run(t, sb, provider.ExecRequest{Args: []string{"echo", canary("echo")}, TTY: true, Cols: 200, Rows: 24, Stdin: provider.StdinLive}).stdout))
	var archive bytes.Buffer
	require.NoError(t, sb.(provider.Archiver).Export(t.Context(), &archive))
	c.Add("an exported archive", archive.Bytes())
	inspectAll(t, &c, sb)
	commit(t, &c, sb.Ref().ID)

	// A container that somebody made by hand, with everything wrong.
	raw := wrongContainer(t, canary)
	inspectContainer(t, &c, raw)
	commit(t, &c, raw)
	for _, dir := range dataDirs(t) {
		c.AddTree("the engine's data", dir)
	}
	o.end()
	o.addTo(&c, "nothing is a workload here")

	hits, err := leaktest.Find(list, &c)
	require.NoError(t, err)
	found := map[string]map[string]bool{}
	for _, h := range hits {
		if found[h.Canary] == nil {
			found[h.Canary] = map[string]bool{}
		}
		where, _, _ := strings.Cut(h.Where, ":")
		for _, several := range []string{"arguments of process", "environment of process"} {
			if strings.HasPrefix(where, several) {
				where = several
			}
		}
		found[h.Canary][where] = true
	}
	for what, wheres := range map[string][]string{
		"label":    {"inspect of the container", "list", "the engine's data", "inspect of a committed image", "an event, or a file of the runtime's"},
		"literal":  {"inspect of the container", "the engine's data", "inspect of a committed image"},
		"argument": {"an event, or a file of the runtime's", "arguments of process"},
		"environ":  {"an event, or a file of the runtime's", "environment of process"},
		"echo":     {"what a terminal showed"},
		"file":     {"the engine's data", "an exported archive"},
		"image":    {"inspect of the image"},
		"command":  {"inspect of the container", "list", "processes", "history of a committed image"},
		"first":    {"inspect of the container", "environment of the container's first process"},
		"exec":     {"inspect of an exec", "processes"},
		"volume":   {"volumes"},
		"network":  {"networks"},
		"name":     {"changes", "a committed image"},
		"content":  {"the engine's data", "a committed image"},
	} {
		for _, w := range wheres {
			assert.True(t, found[what][w], "a %s was not found in %s", what, w)
		}
		delete(found, what)
	}
	assert.Empty(t, found, "canaries that nothing is required of")
	assert.Positive(t, o.files, "no file of the runtime's was ever seen")
}

// wrongContainer makes a running container by hand, with a canary in everything that
// an engine keeps or shows.
func wrongContainer(t *testing.T, canary func(what string) string) (name string) {
	t.Helper()
	cli := api(t)
	busy := mustLook(t, "busybox")
	id := randomHex(6)
	name = "sbxhost-test-wrong-" + id
	picture := importImage(t, "wrong-"+id, []string{"LABEL note=" + canary("image")}, func() []file {
		return []file{{name: "bin/busybox", content: slurp(t, busy)}, {name: "bin/sh", link: "busybox"}, {name: "bin/sleep", link: "busybox"}}
	})
	_, err := cli.VolumeCreate(t.Context(), volume.CreateOptions{Name: name, Labels: map[string]string{"note": canary("volume")}})
	require.NoError(t, err)
	_, err = cli.NetworkCreate(t.Context(), name, network.CreateOptions{Driver: "bridge", Labels: map[string]string{"note": canary("network")}})
	require.NoError(t, err)
	wrong := canary("name")
	_, err = cli.ContainerCreate(t.Context(), &container.Config{Image: picture, Env: []string{"FIRST=" + canary("first")},
		Cmd: []string{"/bin/sh", "-c", "echo " + canary("content") + " > /new; busybox mv /new /" + wrong + "; sleep 300; : " + canary("command")}},
		&container.HostConfig{NetworkMode: container.NetworkMode(name), Binds: []string{name + ":/data"}}, nil, nil, name)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.Background()
		assert.NoError(t, cli.ContainerRemove(ctx, name, container.RemoveOptions{Force: true}))
		assert.NoError(t, cli.VolumeRemove(ctx, name, false))
		assert.NoError(t, cli.NetworkRemove(ctx, name))
		_, err := cli.ImageRemove(ctx, picture, image.RemoveOptions{Force: true})
		assert.NoError(t, err)
	})
	require.NoError(t, cli.ContainerStart(t.Context(), name, container.StartOptions{}))
	require.Eventually(t, func() bool {
		return bytes.Contains(rawGet(t, "/containers/"+name+"/changes"), []byte(wrong))
	}, time.Minute, 20*time.Millisecond)
	execd := canary("exec")
	e, err := cli.ContainerExecCreate(t.Context(), name, execOptions([]string{"/bin/sh", "-c", "sleep 300; : " + execd}, nil))
	require.NoError(t, err)
	require.NoError(t, cli.ContainerExecStart(t.Context(), e.ID, container.ExecStartOptions{Detach: true}))
	// It runs, with a number, while it is still the runtime's own program: until the
	// process table has the command itself.
	require.Eventually(t, func() bool {
		return bytes.Contains(rawGet(t, "/containers/"+name+"/top"), []byte(execd))
	}, time.Minute, 20*time.Millisecond)
	return name
}

// With the create transport the values are in the container's environment, as
// documented, and in the workload; no other command has them.
func TestCreateTransport(t *testing.T) {
	p := newProvider(t)
	canaries := leaktest.Canaries(t)
	env, names := canaryEnv(canaries)
	sb := create(t, p, protect(names, provider.TransportCreate), func(r *provider.CreateRequest) { r.Protected = env })

	// The workload has them, in this process and in one that opened the sandbox.
	again, err := newProvider(t).Open(t.Context(), sb.Ref())
	require.NoError(t, err)
	for _, s := range []provider.Sandbox{sb, again} {
		for _, n := range names {
			want, _ := env.Get(n)
			got := run(t, s, shell(`printf %s "$`+n+`"`))
			assert.True(t, bytes.Equal(want.Reveal(), []byte(got.stdout)), "%s arrived changed", n)
		}
	}
	// The record has them: this is what the exposure says.
	var record leaktest.Corpus
	inspectAll(t, &record, sb)
	hits, err := leaktest.Find(canaries, &record)
	require.NoError(t, err)
	assert.NotEmpty(t, hits)
	var exposure string
	for _, tr := range p.Describe().Transports {
		if tr.Transport == provider.TransportCreate {
			exposure = tr.Exposure
		}
	}
	assert.Contains(t, exposure, "engine's API")

	// Nothing that is not the workload has them: not the first process, not the
	// supervisors of commands and file operations.
	o := observe(t)
	require.NoError(t, sb.Files().Write(t.Context(), "f", strings.NewReader("x"), provider.WriteOptions{}))
	const mark = "sbxhost-create-workload"
	o.untilSupervisor(func() { run(t, sb, shell(`: `+mark+`; sleep 0.5; :`)) })
	var first leaktest.Corpus
	b, err := os.ReadFile("/proc/" + strconv.Itoa(initPID(t, sb.Ref().ID)) + "/environ")
	require.NoError(t, err)
	first.Add("environment of the container's first process", append(b, '.'))
	o.end()
	supervisors := 0
	for _, pr := range o.Seen() {
		if strings.HasPrefix(pr.Args, supervisorArgs) {
			supervisors++
		}
		if strings.HasPrefix(pr.Args, "/.sbx/shim\x00") {
			first.Add("environment of "+strings.ReplaceAll(pr.Args, "\x00", " "), []byte(pr.Environ+"."))
		}
		first.Add("arguments", []byte(pr.Args+"."))
	}
	assert.Positive(t, supervisors, "no supervisor was seen")
	leaktest.Scan(t, canaries, &first)
}

// An entry without "=" in an exec's environment removes the variable: that is how
// supervisors are kept free of a container's environment. Pinned on the engine.
func TestEngineUnsetsVariables(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	sb := create(t, p, func(r *provider.CreateRequest) { r.Environment = map[string]string{"LITERAL": "there"} })
	assert.Contains(t, dockerExec(t, sb, []string{"/bin/env"}), "LITERAL=there")
	assert.NotContains(t, dockerExec(t, sb, []string{"/bin/env"}, "LITERAL"), "LITERAL")
}

// JU-44: what runs as root to help has the same fixed environment whatever image,
// manifest and session say of PATH and the loader.
func TestHelperEnvironmentIsFixed_JU44_JU29(t *testing.T) {
	hostile := importImage(t, "hostile-env", []string{"ENV PATH=/hostile/image", "ENV LD_PRELOAD=/hostile/image.so", "ENV HOME=/hostile/home", "ENV GODEBUG=hostile=1", "USER alice"}, func() []file {
		path := mustLook(t, "busybox")
		return append(accounts(), file{name: "bin/busybox", content: slurp(t, path)}, file{name: "bin/sh", link: "busybox"}, file{name: "bin/sleep", link: "busybox"})
	})
	p := newProvider(t)
	for i, user := range []string{"", "0", "0:0", "root:root", "alice"} {
		t.Run(fmt.Sprint("JU-29 ", i, " user ", user), func(t *testing.T) {
			env, names := canaryEnv(nil)
			_ = env
			values := map[string]secret.Value{"PATH": secret.FromString("/hostile/session")}
			names = append(names, "PATH")
			sb := create(t, p, protect(names, provider.TransportCreate), func(r *provider.CreateRequest) {
				r.Image, r.User = hostile, user
				r.Protected = secret.NewEnv(values)
				r.Environment = map[string]string{"LD_AUDIT": "/hostile/literal.so"}
			})
			o := observe(t)
			_, err := sb.Files().List(t.Context(), ".")
			require.NoError(t, err)
			o.untilSupervisor(func() {
				got := run(t, sb, provider.ExecRequest{Args: []string{"/bin/sh", "-c", `/bin/sleep 0.2; echo "$PATH"`}})
				assert.Equal(t, "/hostile/session\n", got.stdout, "the workload has its own")
			})
			o.end()
			n := 0
			for _, pr := range o.Seen() {
				if strings.HasPrefix(pr.Args, supervisorArgs) && pr.Environ != "" {
					n++
				}
				if strings.HasPrefix(pr.Args, "/.sbx/shim\x00") {
					assert.NotContains(t, pr.Environ, "hostile", pr.Args)
					assert.NotContains(t, pr.Environ, "LD_", pr.Args)
				}
			}
			assert.Positive(t, n)
		})
	}
}

func dockerExec(t testing.TB, sb provider.Sandbox, cmd []string, env ...string) string {
	t.Helper()
	cli := api(t)
	e, err := cli.ContainerExecCreate(t.Context(), sb.Ref().ID, execOptions(cmd, env))
	require.NoError(t, err)
	h, err := cli.ContainerExecAttach(t.Context(), e.ID, execAttach)
	require.NoError(t, err)
	defer h.Close()
	var out bytes.Buffer
	done := make(chan struct{})
	go func() { _, _ = out.ReadFrom(h.Reader); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the engine's exec does not end")
	}
	return out.String()
}

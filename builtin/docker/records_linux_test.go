package docker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/leaktest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/providertest"
)

// rawGet asks the engine's API and returns the body as it is.
func rawGet(t testing.TB, path string) []byte {
	t.Helper()
	u, err := url.Parse(os.Getenv(engineVariable))
	require.NoError(t, err)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", u.Path)
	}}}
	// Without a version the engine shows all that it has.
	resp, err := c.Get("http://engine" + path)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return b
}

// dataDirs are where the engine keeps what it knows.
func dataDirs(t testing.TB) []string {
	t.Helper()
	info, err := api(t).Info(t.Context())
	require.NoError(t, err)
	// A private engine has everything below one directory. Its network namespaces are
	// files that nobody can read.
	if own := filepath.Join(filepath.Dir(info.DockerRootDir), "exec", "containerd"); isDir(own) {
		return []string{info.DockerRootDir, own}
	}
	return []string{info.DockerRootDir, "/run/docker", "/run/containerd"}
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// inspectAll adds everything the API shows of a sandbox: the container, its execs
// and its image.
func inspectAll(t testing.TB, c *leaktest.Corpus, sb provider.Sandbox) {
	t.Helper()
	inspectContainer(t, c, sb.Ref().ID)
}

func inspectContainer(t testing.TB, c *leaktest.Corpus, name string) {
	t.Helper()
	raw := rawGet(t, "/containers/"+name+"/json")
	c.Add("inspect of the container", raw)
	var info struct {
		Image   string
		ExecIDs []string
	}
	require.NoError(t, json.Unmarshal(raw, &info))
	for _, id := range info.ExecIDs {
		c.Add("inspect of an exec", rawGet(t, "/exec/"+id+"/json"))
	}
	c.Add("inspect of the image", rawGet(t, "/images/"+info.Image+"/json"))
	c.Add("processes", rawGet(t, "/containers/"+name+"/top?ps_args=-ef"))
	c.Add("list", rawGet(t, "/containers/json?all=1"))
	c.Add("volumes", rawGet(t, "/volumes"))
	c.Add("networks", rawGet(t, "/networks"))
	c.Add("changes", rawGet(t, "/containers/"+name+"/changes"))
	if p, err := os.ReadFile("/proc/" + strconv.Itoa(initPID(t, name)) + "/environ"); err == nil {
		c.Add("environment of the container's first process", p)
	}
}

func initPID(t testing.TB, name string) int {
	t.Helper()
	info, err := api(t).ContainerInspect(t.Context(), name)
	require.NoError(t, err)
	return info.State.Pid
}

// commit adds an image made of the sandbox: its configuration, history and files.
func commit(t testing.TB, c *leaktest.Corpus, name string) {
	t.Helper()
	cli := api(t)
	made, err := cli.ContainerCommit(t.Context(), name, container.CommitOptions{Pause: false})
	require.NoError(t, err)
	defer func() {
		_, err := cli.ImageRemove(context.WithoutCancel(t.Context()), made.ID, image.RemoveOptions{Force: true})
		require.NoError(t, err)
	}()
	c.Add("inspect of a committed image", rawGet(t, "/images/"+made.ID+"/json"))
	c.Add("history of a committed image", rawGet(t, "/images/"+made.ID+"/history"))
	r, err := cli.ImageSave(t.Context(), []string{made.ID})
	require.NoError(t, err)
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	c.Add("a committed image", b)
}

// observer watches what is there for a moment only: processes, the engine's
// events, and files of its runtime.
type observer struct {
	*leaktest.Watcher
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	pieces [][]byte
	files  int
}

func observe(t testing.TB) *observer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o := &observer{Watcher: leaktest.Watch(t), stop: cancel}
	cli, err := client.NewClientWithOpts(client.WithHost(os.Getenv(engineVariable)), client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	messages, errs := cli.Events(ctx, events.ListOptions{})
	o.wg.Go(func() {
		defer func() { _ = cli.Close() }()
		for {
			select {
			case m := <-messages:
				b, _ := json.Marshal(m)
				o.add(b)
			case <-errs: //nolint:errcheck // the end of the stream
				return
			}
		}
	})
	o.wg.Go(func() {
		for ctx.Err() == nil {
			names, _ := filepath.Glob("/tmp/runc-process*")
			for _, n := range names {
				if b, err := os.ReadFile(n); err == nil && len(b) > 0 {
					o.add(b)
					o.mu.Lock()
					o.files++
					o.mu.Unlock()
				}
			}
			time.Sleep(time.Millisecond)
		}
	})
	t.Cleanup(o.end)
	return o
}

func (o *observer) add(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pieces = append(o.pieces, b)
}

// saw says whether a process had one in its arguments and the other in its
// environment, a file of the runtime's had the latter, and an event the label.
func (o *observer) saw(argument, environ, label string) bool {
	process := slices.ContainsFunc(o.Seen(), func(p leaktest.Process) bool {
		return strings.Contains(p.Args, argument) && strings.Contains(p.Environ, environ)
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, what := range []string{argument, environ, label} {
		process = process && slices.ContainsFunc(o.pieces, func(b []byte) bool { return bytes.Contains(b, []byte(what)) })
	}
	return process
}

// supervisorArgs is what the arguments of a command's supervisor begin with.
const supervisorArgs = "/.sbx/shim\x00exec\x00"

// untilSupervisor runs commands until the supervisor of one was seen, with its
// environment: on a busy machine what is there for a moment may be missed.
func (o *observer) untilSupervisor(command func()) {
	for began := time.Now(); ; {
		command()
		if time.Since(began) > 3*time.Minute || slices.ContainsFunc(o.Seen(), func(p leaktest.Process) bool {
			return strings.HasPrefix(p.Args, supervisorArgs) && p.Environ != ""
		}) {
			return
		}
	}
}

func (o *observer) end() {
	o.stop()
	o.Stop()
	o.wg.Wait()
}

// addTo adds what was seen, the environment of the workload apart: processes that
// have the word in theirs, and are no supervisor.
func (o *observer) addTo(c *leaktest.Corpus, workload string) {
	o.AddTo(c, func(p leaktest.Process) bool {
		return strings.Contains(p.Environ, workload) && !strings.HasPrefix(p.Args, "/.sbx/shim")
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.pieces {
		c.Add("an event, or a file of the runtime's", b)
	}
}

// recordsOf is the conformance kit's search through everything that is stored.
func recordsOf(t *testing.T) func(providertest.TB, provider.Sandbox, []byte) []string {
	return func(_ providertest.TB, sb provider.Sandbox, needle []byte) []string {
		var c leaktest.Corpus
		inspectAll(t, &c, sb)
		for _, dir := range dataDirs(t) {
			c.AddTree("the engine's data", dir)
		}
		hits, err := leaktest.Find([]leaktest.Canary{leaktest.Known("needle", string(needle))}, &c)
		if err != nil {
			return []string{err.Error()}
		}
		var places []string
		for _, h := range hits {
			places = append(places, h.Where)
		}
		return places
	}
}

package docker_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/providertest"
)

func harness(t *testing.T, image, network string) providertest.Harness {
	return providertest.Harness{
		New: func(tb providertest.TB) provider.Provider {
			o := options(t)
			o.Image = image
			p, err := docker.New(t.Context(), o)
			if err != nil {
				tb.Fatalf("%v", err)
			}
			return patient(p)
		},
		Request:   func(r *provider.CreateRequest) { r.Image, r.Network = image, network },
		Commands:  providertest.ShellCommands("/bin/sh"),
		RealShell: true,
		Slack:     40 * time.Second, // the machine is busy
		HostArgv:  true,
		Survivors: providertest.CountHostProcesses,
		Records:   recordsOf(t),
		Break:     breakStream,
		// The client keeps connections to the engine for the next request.
		IgnoreGoroutines: []string{"net/http.(*persistConn)"},
	}
}

// The kit runs in groups at the same time: most of it is waiting for the engine.
var groups = map[string][]string{
	"life":    {"describe/", "lifecycle/", "create/", "list/", "destroy/"},
	"exec":    {"exec/", "stdin/", "tty/", "background/"},
	"kill":    {"timeout/", "kill/", "signal/", "matrix/", "volume/", "goroutines/"},
	"env":     {"env/exec", "env/create", "env/other", "env/tty", "env/with", "env/err", "env/rec", "env/argv", "env/iso", "env/over", "env/undeclared", "secrets/"},
	"files":   {"files/", "cancel/", "pause/", "archive/", "logs/"},
	"network": {"port/", "env/elsewhere", "lifecycle/ready", "list/owner", "destroy/verified"},
}

func TestConformance(t *testing.T) {
	t.Parallel()
	// Not as parallel subtests: they would wait for a processor each.
	var wg sync.WaitGroup
	defer wg.Wait()
	for name, only := range groups {
		// The race detector's run takes those where goroutines meet.
		if testing.Short() && name != "exec" && name != "kill" {
			continue
		}
		wg.Go(func() {
			t.Run(name, func(t *testing.T) {
				network := "none"
				if name == "network" {
					network = "default"
				}
				h := harness(t, busyboxImage(t), network)
				h.Shells = []providertest.Shell{{Name: "busybox", Args: []string{"/bin/busybox", "sh"}}}
				h.Only = only
				providertest.Run(t, h)
			})
		})
	}
}

// Every check of the kit is in a group.
func TestGroupsAreComplete(t *testing.T) {
	t.Parallel()
	for _, c := range providertest.Checks() {
		assert.True(t, slices.ContainsFunc(slices.Collect(maps.Values(groups)), func(only []string) bool {
			return slices.ContainsFunc(only, func(p string) bool { return strings.HasPrefix(c.Name, p) })
		}), "%s is in no group", c.Name)
	}
}

// TestConformanceGlibc runs what depends on the image: everything about commands.
func TestConformanceGlibc(t *testing.T) {
	t.Parallel()
	h := harness(t, glibcImage(t), "none")
	h.Shells = []providertest.Shell{{Name: "bash", Args: []string{mustLook(t, "bash")}}, {Name: "dash", Args: []string{mustLook(t, "dash")}}}
	h.Only = []string{"exec/", "tty/", "env/exec-exact", "matrix/"}
	providertest.Run(t, h)
}

func TestConnects(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	require.NotEmpty(t, p.EngineVersion())
	require.NoError(t, provider.ValidateDescription(p.Describe()))
}

// breakStream kills the supervisors of the sandbox's commands: their streams end
// without an exit frame.
func breakStream(tb providertest.TB, sb provider.Sandbox, _ provider.Process) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		tb.Fatalf("%v", err)
	}
	info, err := containerID(sb)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	n := 0
	for _, f := range files {
		b, _ := os.ReadFile(f)
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		if !strings.Contains(string(b), info) || !strings.HasPrefix(string(args), "/.sbx/shim\x00exec\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			tb.Fatalf("%v", err)
		}
		switch err := syscall.Kill(pid, syscall.SIGKILL); err {
		case nil:
			n++
		case syscall.ESRCH: // of a command that has ended
		default:
			tb.Fatalf("a supervisor cannot be killed: %v", err)
		}
	}
	if n == 0 {
		tb.Fatalf("no supervisor was found")
	}
}

// containerID returns the id of a sandbox's container.
func containerID(sb provider.Sandbox) (string, error) {
	c, err := client.NewClientWithOpts(client.WithHost(os.Getenv(engineVariable)), client.WithAPIVersionNegotiation())
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	info, err := c.ContainerInspect(context.Background(), sb.Ref().ID)
	return info.ID, err
}

package docker

import (
	"maps"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-connections/nat"
	"github.com/docker/go-units"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/provider"
)

// supervisorThreads is how much the engine's limit of processes is above the
// manifest's: the threads of PID 1 and of the supervisors of some commands.
const supervisorThreads = 64

// config is what the engine is asked for.
func (c *creation) config() (*container.Config, *container.HostConfig) {
	p, req := c.p, c.req
	labels := maps.Clone(req.Labels)
	var unenforced []string
	if req.Resources.DiskMiB > 0 {
		unenforced = append(unenforced, "resources.diskMiB")
	}
	var protected []string
	if req.Transport == provider.TransportCreate {
		protected = req.ProtectedNames
	}
	maps.Copy(labels, map[string]string{
		labelKind: kindSandbox, labelImage: c.image, labelRoot: req.Root, labelUser: c.user(), labelStart: req.Start,
		labelProtected: strings.Join(protected, ","), labelUnenforced: strings.Join(unenforced, ","),
	})
	config := &container.Config{
		Image: c.picture.id, Labels: labels, User: "0:0", WorkingDir: "/", StopSignal: shim.StopSignal,
		OpenStdin: true, Env: c.environment(),
		Entrypoint: shim.PID1Args(shim.PID1Options{Image: req.Start == "image", Root: req.Root, User: c.user()}),
		// A check of the image's would be a command that nobody asked for.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	no, pids := false, req.Resources.PIDs
	if pids == 0 {
		pids = p.opts.PIDs
	}
	pids += supervisorThreads
	host := &container.HostConfig{
		NetworkMode: "none", Init: &no, CapDrop: []string{"ALL"}, CapAdd: shim.EngineCapabilities(),
		SecurityOpt: []string{"no-new-privileges"}, IpcMode: container.IPCModePrivate,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		// PID 1's answers need no log; an image's command has one.
		LogConfig: container.LogConfig{Type: "none"},
		Mounts:    c.mounts(),
	}
	host.Ulimits = []*units.Ulimit{{Name: "core", Soft: 0, Hard: 0}}
	if p.info.PidsLimit {
		host.PidsLimit = &pids
	}
	host.Memory = req.Resources.MemoryMiB << 20
	if p.info.SwapLimit {
		host.MemorySwap = host.Memory
	}
	host.NanoCPUs = int64(req.Resources.CPUs * 1e9)
	if req.Start == "image" {
		host.LogConfig = container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "10m", "max-file": "1"}}
	}
	if c.network != "" {
		host.NetworkMode = container.NetworkMode(c.network)
	} else {
		// An engine that is to make no network leaves out a sandbox of its own and, up
		// to 20.10, processes for it that take half the time of a start. The container
		// has a network namespace all the same, with the loopback device; the supervisor
		// gives it its names.
		config.NetworkDisabled = p.moby && p.shim != nil
	}
	if len(req.Ports) > 0 {
		config.ExposedPorts, host.PortBindings = nat.PortSet{}, nat.PortMap{}
		for _, n := range req.Ports {
			port := nat.Port(itoa(n) + "/tcp")
			config.ExposedPorts[port] = struct{}{}
			host.PortBindings[port] = []nat.PortBinding{{HostIP: "127.0.0.1"}} // any free port
		}
	}
	if p.shim == nil {
		c.withoutSupervisor(config, host)
	}
	return config, host
}

// environment of the container: the literals and, with the create transport, the
// protected values. PID 1 drops it; what it itself needs goes last, and wins.
func (c *creation) environment() []string {
	var env []string
	for k, v := range c.req.Environment {
		env = append(env, k+"="+v)
	}
	for k, v := range c.req.Protected.All() {
		b := v.Reveal()
		env = append(env, k+"="+string(b))
		clear(b)
	}
	if c.p.shim != nil {
		env = append(env, shim.EngineEnviron()...)
	}
	return env
}

func (c *creation) mounts() []mount.Mount {
	workspace := mount.Mount{Type: mount.TypeVolume, Source: c.workspace, Target: c.req.Root}
	if c.workspace == c.req.Name {
		// An engine makes a volume that is missing. Should a create that was given up
		// come to that after its workspace was removed, what it makes is known as ours.
		workspace.VolumeOptions = &mount.VolumeOptions{Labels: c.workspaceLabels()}
	}
	mounts := []mount.Mount{workspace}
	if c.p.shim != nil {
		mounts = append(mounts, c.p.supervisorMount(true))
	}
	for _, g := range c.req.Mounts {
		// What is mounted below a grant would stay writable in a read-only one.
		mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: g.HostPath, Target: g.Path, ReadOnly: g.ReadOnly,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate, NonRecursive: g.ReadOnly}})
	}
	return mounts
}

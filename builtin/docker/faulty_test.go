package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sbxhost/sbxhost/builtin/docker"
)

// errBroken is what a client returns when the connection ends.
var errBroken = errors.New("unexpected EOF")

// faulty is the real engine with faults: a call can fail before it reaches the
// engine, or its answer can get lost afterwards. It records what was asked for.
type faulty struct {
	docker.Engine

	mu     sync.Mutex
	before map[string]func(subject string) error
	after  map[string]func(subject string) error
	calls  []string // "Method subject"
	sent   []byte   // arguments, as JSON
}

func newFaulty(e docker.Engine) *faulty {
	return &faulty{Engine: e, before: map[string]func(string) error{}, after: map[string]func(string) error{}}
}

// failBefore makes a method fail without reaching the engine; nil ends it.
func (f *faulty) failBefore(method string, fn func(subject string) error) {
	f.set(f.before, method, fn)
}

// failAfter makes a method's answer get lost.
func (f *faulty) failAfter(method string, fn func(subject string) error) { f.set(f.after, method, fn) }

func (f *faulty) set(m map[string]func(string) error, method string, fn func(string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fn == nil {
		delete(m, method)
		return
	}
	m[method] = fn
}

func (f *faulty) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.before)
	clear(f.after)
}

func (f *faulty) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.sent = nil, nil
}

// asked counts the calls of the methods; without any, all that change something.
func (f *faulty) asked(methods ...string) int {
	if len(methods) == 0 {
		methods = []string{"ContainerCreate", "ContainerStart", "ContainerRemove", "ContainerExecCreate", "ContainerPause", "ContainerUnpause",
			"ContainerKill", "VolumeCreate", "VolumeRemove", "NetworkCreate", "NetworkRemove", "ImagePull", "CopyToContainer"}
	}
	return len(f.list(methods...))
}

func (f *faulty) list(methods ...string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, c := range f.calls {
		m, _, _ := strings.Cut(c, " ")
		if slices.Contains(methods, m) {
			out = append(out, c)
		}
	}
	return out
}

func (f *faulty) everything() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(slices.Clone(f.sent), '.')
}

func (f *faulty) enter(method, subject string, args ...any) error {
	b, _ := json.Marshal(args)
	f.mu.Lock()
	f.calls = append(f.calls, method+" "+subject)
	f.sent = append(append(f.sent, b...), '\n')
	fn := f.before[method]
	f.mu.Unlock()
	if fn != nil {
		return fn(subject)
	}
	return nil
}

func (f *faulty) leave(method, subject string, err error) error {
	f.mu.Lock()
	fn := f.after[method]
	f.mu.Unlock()
	if err == nil && fn != nil {
		return fn(subject)
	}
	return err
}

// once is a fault for the first n calls.
func once(n int, err error) func(string) error {
	var mu sync.Mutex
	return func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if n--; n >= 0 {
			return err
		}
		return nil
	}
}

func call[T any](f *faulty, method, subject string, run func() (T, error), args ...any) (T, error) {
	var zero T
	if err := f.enter(method, subject, args...); err != nil {
		return zero, err
	}
	v, err := run()
	if err := f.leave(method, subject, err); err != nil {
		return zero, err
	}
	return v, nil
}

func act(f *faulty, method, subject string, run func() error, args ...any) error {
	_, err := call(f, method, subject, func() (struct{}, error) { return struct{}{}, run() }, args...)
	return err
}

func (f *faulty) ContainerCreate(ctx context.Context, c *container.Config, h *container.HostConfig, n *network.NetworkingConfig, p *ocispec.Platform, name string) (container.CreateResponse, error) {
	return call(f, "ContainerCreate", name, func() (container.CreateResponse, error) {
		return f.Engine.ContainerCreate(ctx, c, h, n, p, name)
	}, c, h, name)
}

func (f *faulty) ContainerStart(ctx context.Context, id string, o container.StartOptions) error {
	return act(f, "ContainerStart", id, func() error { return f.Engine.ContainerStart(ctx, id, o) })
}

func (f *faulty) ContainerRemove(ctx context.Context, id string, o container.RemoveOptions) error {
	return act(f, "ContainerRemove", id, func() error { return f.Engine.ContainerRemove(ctx, id, o) }, id, o)
}

func (f *faulty) ContainerKill(ctx context.Context, id, signal string) error {
	return act(f, "ContainerKill", id, func() error { return f.Engine.ContainerKill(ctx, id, signal) })
}

func (f *faulty) ContainerPause(ctx context.Context, id string) error {
	return act(f, "ContainerPause", id, func() error { return f.Engine.ContainerPause(ctx, id) })
}

func (f *faulty) ContainerUnpause(ctx context.Context, id string) error {
	return act(f, "ContainerUnpause", id, func() error { return f.Engine.ContainerUnpause(ctx, id) })
}

func (f *faulty) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	return call(f, "ContainerInspect", id, func() (container.InspectResponse, error) { return f.Engine.ContainerInspect(ctx, id) })
}

func (f *faulty) ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error) {
	method := "ContainerList"
	if o.Filters.Contains("network") {
		method = "ContainerListOn"
	}
	return call(f, method, "", func() ([]container.Summary, error) { return f.Engine.ContainerList(ctx, o) })
}

func (f *faulty) ContainerExecCreate(ctx context.Context, id string, o container.ExecOptions) (container.ExecCreateResponse, error) {
	return call(f, "ContainerExecCreate", id, func() (container.ExecCreateResponse, error) {
		return f.Engine.ContainerExecCreate(ctx, id, o)
	}, o)
}

func (f *faulty) ContainerExecAttach(ctx context.Context, id string, o container.ExecAttachOptions) (types.HijackedResponse, error) {
	return call(f, "ContainerExecAttach", id, func() (types.HijackedResponse, error) { return f.Engine.ContainerExecAttach(ctx, id, o) }, o)
}

func (f *faulty) CopyFromContainer(ctx context.Context, id, path string) (io.ReadCloser, container.PathStat, error) {
	if err := f.enter("CopyFromContainer", path); err != nil {
		return nil, container.PathStat{}, err
	}
	return f.Engine.CopyFromContainer(ctx, id, path)
}

func (f *faulty) CopyToContainer(ctx context.Context, id, path string, r io.Reader, o container.CopyToContainerOptions) error {
	return act(f, "CopyToContainer", path, func() error { return f.Engine.CopyToContainer(ctx, id, path, r, o) })
}

func (f *faulty) ImageInspect(ctx context.Context, ref string, o ...client.ImageInspectOption) (image.InspectResponse, error) {
	return call(f, "ImageInspect", ref, func() (image.InspectResponse, error) { return f.Engine.ImageInspect(ctx, ref, o...) })
}

func (f *faulty) ImagePull(ctx context.Context, ref string, o image.PullOptions) (io.ReadCloser, error) {
	return call(f, "ImagePull", ref, func() (io.ReadCloser, error) { return f.Engine.ImagePull(ctx, ref, o) }, ref)
}

func (f *faulty) ImageImport(ctx context.Context, source image.ImportSource, ref string, o image.ImportOptions) (io.ReadCloser, error) {
	return call(f, "ImageImport", ref, func() (io.ReadCloser, error) { return f.Engine.ImageImport(ctx, source, ref, o) })
}

func (f *faulty) NetworkCreate(ctx context.Context, name string, o network.CreateOptions) (network.CreateResponse, error) {
	return call(f, "NetworkCreate", name, func() (network.CreateResponse, error) { return f.Engine.NetworkCreate(ctx, name, o) }, o)
}

func (f *faulty) NetworkRemove(ctx context.Context, name string) error {
	return act(f, "NetworkRemove", name, func() error { return f.Engine.NetworkRemove(ctx, name) })
}

func (f *faulty) VolumeCreate(ctx context.Context, o volume.CreateOptions) (volume.Volume, error) {
	return call(f, "VolumeCreate", o.Name, func() (volume.Volume, error) { return f.Engine.VolumeCreate(ctx, o) }, o)
}

func (f *faulty) VolumeList(ctx context.Context, o volume.ListOptions) (volume.ListResponse, error) {
	return call(f, "VolumeList", "", func() (volume.ListResponse, error) { return f.Engine.VolumeList(ctx, o) })
}

func (f *faulty) VolumeRemove(ctx context.Context, name string, force bool) error {
	return act(f, "VolumeRemove", name, func() error { return f.Engine.VolumeRemove(ctx, name, force) })
}

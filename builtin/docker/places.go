package docker

import (
	"context"
	"path"
	"strings"
	"sync"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/provider"
)

// supervisorDir is where the supervisor is mounted.
var supervisorDir = path.Dir(shim.Path)

// reserved says what a path in a sandbox must not be.
func reserved(p string) string {
	for _, dir := range []string{supervisorDir, "/proc", "/sys", "/dev"} {
		if within(p, dir) {
			return "within " + dir + ", which is not the manifest's"
		}
	}
	if hidesSupervisor(p) {
		return "named as the supervisor's directory is"
	}
	return ""
}

func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// hidesSupervisor reports whether what is mounted at p is, or with a link above it
// could be, over the supervisor.
func hidesSupervisor(p string) bool {
	return within(p, supervisorDir) || path.Base(p) == path.Base(supervisorDir)
}

// places remembers the images that have nothing in the way of our mounts. An image's
// id is that of its content.
type places struct {
	mu   sync.Mutex
	fine map[string]bool // image and mount points
}

// mostPlaces bounds what is remembered.
const mostPlaces = 10_000

func (p *places) known(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fine[key]
}

func (p *places) add(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fine == nil || len(p.fine) >= mostPlaces {
		p.fine = map[string]bool{}
	}
	p.fine[key] = true
}

// checkPlaces sees that no link of the image's leads a mount elsewhere: with one
// where the supervisor goes, or one that puts something else over it, the root or a
// volume that the image itself wants, an image would decide what runs there. Called
// when the container is made and before it starts.
func (c *creation) checkPlaces(ctx context.Context) error {
	targets := []string{supervisorDir, c.req.Root}
	for _, g := range c.req.Mounts {
		targets = append(targets, g.Path)
	}
	for _, v := range c.picture.volumes {
		if v = path.Clean("/" + v); v == supervisorDir {
			continue // ours is there instead
		}
		if hidesSupervisor(v) {
			return problem(provider.FailedPrecondition, opCreate, c.image, "the image wants a volume at "+v+", which could hide the supervisor").remedy("use another image")
		}
		targets = append(targets, v)
	}
	key := c.picture.id + "\x00" + strings.Join(targets, "\x00")
	if c.p.places.known(key) {
		return nil
	}
	for _, target := range targets {
		st, err := c.p.e.ContainerStatPath(ctx, c.id, target)
		// Something that cannot be mounted on is a failure of the engine's.
		if err != nil && !cerrdefs.IsInternal(err) {
			return engineProblem(ctx, opCreate, c.req.Name, err, provider.AppliedUnknown)
		}
		switch {
		case target == supervisorDir && (err != nil || !st.Mode.IsDir()):
			return problem(provider.FailedPrecondition, opCreate, c.image, "the image has something else than a directory at "+supervisorDir+", where the supervisor goes").remedy("use another image")
		case err != nil:
			return engineProblem(ctx, opCreate, c.req.Name, err, provider.AppliedUnknown)
		case hidesSupervisor(st.LinkTarget): // all links followed
			return problem(provider.FailedPrecondition, opCreate, c.image, "a link in the image makes "+target+" lie at "+st.LinkTarget+", where the supervisor goes").remedy("use another image, or another root or path")
		}
	}
	c.p.places.add(key)
	return nil
}

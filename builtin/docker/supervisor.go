package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/volume"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/provider"
)

// supervisor is the read-only volume with the supervisor's program. The engine
// has it once, named by the program's digest. A container that is never started,
// the keeper, mounts it, so that its content can be put there and read back
// through the engine's archive API before any container starts from it.
type supervisor struct {
	turn chan struct{} // holds one while somebody looks for the keeper, or makes it

	mu     sync.Mutex
	keeper string // container id, "" until it was found or made
	// A keeper of another process's that had no program yet, and since when.
	unfinished string
	since      time.Time
}

// keeperImage is an image without a file in it.
const keeperImage = "sbxhost-supervisor:keeper"

func (p *Provider) supervisorName() string { return "sbxhost-supervisor-" + p.shimSum[:32] }

func (p *Provider) supervisorLabels() map[string]string {
	return map[string]string{labelKind: kindSupervisor, labelDigest: p.shimSum}
}

func (p *Provider) supervisorMount(readOnly bool) mount.Mount {
	return mount.Mount{Type: mount.TypeVolume, Source: p.supervisorName(), Target: path.Dir(shim.Path), ReadOnly: readOnly,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: p.supervisorLabels()}}
}

// verifySupervisor returns when what the volume holds was read back and is, byte
// for byte, the program of this build.
func (p *Provider) verifySupervisor(ctx context.Context) error {
	if p.shim == nil {
		return nil
	}
	for try := 0; ; try++ {
		id, err := p.findKeeper(ctx)
		if err != nil {
			return err
		}
		err = p.readBack(ctx, id)
		if gone(err) && try == 0 {
			p.forgetKeeper(id)
			continue
		}
		return p.supervisorProblem(ctx, err)
	}
}

func (p *Provider) supervisorProblem(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errSlow):
		return problem(provider.Unavailable, "create", p.supervisorName(), "another process has begun to put the supervisor there and has not come to an end").
			remedy("try again; if nothing else uses this engine: docker rm " + p.supervisorName())
	case errors.Is(err, errOther), errors.Is(err, errShort), gone(err):
		return problem(provider.FailedPrecondition, "create", p.supervisorName(), "the engine's copy of the supervisor is not ours: somebody changed it").
			remedy("remove the containers that use it, then: docker rm " + p.supervisorName() + "; docker volume rm " + p.supervisorName())
	}
	return engineProblem(ctx, "create", p.supervisorName(), err, provider.AppliedNo)
}

func (p *Provider) forgetKeeper(id string) {
	p.supervisor.mu.Lock()
	defer p.supervisor.mu.Unlock()
	if p.supervisor.keeper == id {
		p.supervisor.keeper = ""
	}
}

// findKeeper returns the keeper's id and makes it, and the volume, when they are
// not there.
func (p *Provider) findKeeper(ctx context.Context) (string, error) {
	s := &p.supervisor
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return "", p.supervisorProblem(ctx, ctx.Err())
	}
	s.mu.Lock()
	id := s.keeper
	s.mu.Unlock()
	if id != "" {
		return id, nil
	}
	id, err := p.makeKeeper(ctx)
	if err != nil {
		return "", p.supervisorProblem(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeper = id
	return id, nil
}

// unfinishedSince returns when a keeper of another process's was first seen without
// its program: who waits for it may give up, and the next one goes on from there.
func (s *supervisor) unfinishedSince(id string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unfinished != id {
		s.unfinished, s.since = id, time.Now()
	}
	return s.since
}

var (
	errOther = errors.New("another content")
	errShort = errors.New("an incomplete content")
	errSlow  = errors.New("another process is at it")
)

func (p *Provider) makeKeeper(ctx context.Context) (string, error) {
	name := p.supervisorName()
	v, err := p.e.VolumeCreate(ctx, volume.CreateOptions{Name: name, Driver: "local", Labels: p.supervisorLabels()})
	if err != nil {
		return "", err
	}
	if v.Labels[labelKind] != kindSupervisor || v.Driver != "local" || len(v.Options) > 0 {
		return "", errOther
	}
	id, made, err := p.keeperContainer(ctx)
	if err != nil {
		return "", err
	}
	// Who made the keeper puts the program there, alone: to put it is to replace it,
	// and somebody may be about to start from it. Others wait, for as long as it may
	// take: that one can have died.
	for puts := 0; ; {
		err := p.readBack(ctx, id)
		if !gone(err) && !errors.Is(err, errShort) {
			return id, err
		}
		switch {
		case !made && time.Since(p.supervisor.unfinishedSince(id)) < p.putPatience:
			if err := again(ctx); err != nil {
				return "", err
			}
		case puts == 2:
			return "", err
		default:
			if err := p.put(ctx, id); err != nil {
				return "", err
			}
			puts++
		}
	}
}

// putPatience is how long another process may take to put the program there, on a
// busy machine too: after that it is taken for dead.
const putPatience = 30 * time.Second

// again waits a moment for what another process does.
func again(ctx context.Context) error {
	select {
	case <-time.After(50 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keeperContainer returns the keeper's id, and whether this call made it.
func (p *Provider) keeperContainer(ctx context.Context) (id string, made bool, err error) {
	name, images := p.supervisorName(), 0
	var since time.Time // another process was first seen to be at it
	wait := func() error {
		switch {
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > p.putPatience:
			return errSlow
		}
		return again(ctx)
	}
	for {
		c, err := p.inspectContainer(ctx, name)
		switch {
		case err == nil && c.Config.Labels[labelKind] == kindSupervisor && len(c.Mounts) == 0:
			// The engine shows what it is still making.
			if err := wait(); err != nil {
				return "", false, err
			}
			continue
		case err == nil && (c.Config.Labels[labelKind] != kindSupervisor || len(c.Mounts) != 1 ||
			c.Mounts[0].Type != mount.TypeVolume || c.Mounts[0].Name != name || c.Mounts[0].Destination != path.Dir(shim.Path)):
			return "", false, errOther
		case err == nil:
			return c.ID, made, nil
		case !gone(err):
			return "", false, err
		}
		_, err = p.e.ContainerCreate(ctx, &container.Config{Image: keeperImage, Entrypoint: []string{shim.Path}, Labels: p.supervisorLabels()},
			&container.HostConfig{NetworkMode: "none", Mounts: []mount.Mount{p.supervisorMount(false)}}, nil, nil, name)
		switch {
		case err == nil:
			made = true
		case cerrdefs.IsConflict(err):
			// Somebody else was quicker; an engine takes the name before it shows what
			// has it.
			if err := wait(); err != nil {
				return "", false, err
			}
		case gone(err) && images == 3:
			return "", false, errors.New("the supervisor's image goes as soon as it is made")
		case gone(err):
			if err := p.makeKeeperImage(ctx); err != nil {
				return "", false, err
			}
			images++
			since = time.Time{} // that was our own time
		default:
			return "", false, err
		}
	}
}

func (p *Provider) makeKeeperImage(ctx context.Context) error {
	var empty bytes.Buffer
	if err := tar.NewWriter(&empty).Close(); err != nil {
		return err
	}
	r, err := p.e.ImageImport(ctx, image.ImportSource{Source: &empty, SourceName: "-"}, keeperImage, image.ImportOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	_, err = io.Copy(io.Discard, r)
	return err
}

// put writes the program. It can be executed and not read: a process whose
// program its user may not read starts unreadable to others of that user.
func (p *Provider) put(ctx context.Context, keeper string) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: path.Base(shim.Path), Typeflag: tar.TypeReg, Mode: 0o111, Size: int64(len(p.shim))})
	if err == nil {
		_, err = w.Write(p.shim)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return err
	}
	return p.e.CopyToContainer(ctx, keeper, path.Dir(shim.Path), &b, container.CopyToContainerOptions{})
}

// readBack compares the volume's content with the program: errShort when it is
// a beginning of it, errOther when it is anything else.
func (p *Provider) readBack(ctx context.Context, keeper string) error {
	r, _, err := p.e.CopyFromContainer(ctx, keeper, shim.Path)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	tr := tar.NewReader(r)
	h, err := tr.Next()
	if err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg || h.Name != path.Base(shim.Path) || h.Size > int64(len(p.shim)) {
		return errOther
	}
	rest, buf := p.shim, make([]byte, 64<<10)
	for {
		n, err := tr.Read(buf)
		if n > len(rest) || !bytes.Equal(buf[:n], rest[:n]) {
			return errOther
		}
		rest = rest[n:]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	switch {
	case len(rest) > 0:
		return errShort
	case h.Mode&0o7777 != 0o111 || h.Uid != 0 || h.Gid != 0:
		return errOther
	}
	return nil
}

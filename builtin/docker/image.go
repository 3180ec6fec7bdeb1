package docker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/sbxhost/sbxhost/provider"
)

// picture is what we need to know of an image.
type picture struct {
	id         string
	env        []string
	user       string
	dir        string
	entrypoint []string
	cmd        []string
	volumes    []string // where it wants volumes of its own
}

// image finds, or pulls, the image of a request.
func (p *Provider) image(ctx context.Context, ref string, progress func(provider.Stage)) (picture, error) {
	if p.opts.Pull == PullAlways {
		if err := p.pull(ctx, ref, progress); err != nil {
			return picture{}, err
		}
	}
	pic, err := p.inspectImage(ctx, ref)
	if !gone(err) {
		return pic, p.imageProblem(ctx, ref, err)
	}
	if p.opts.Pull == PullNever || p.opts.Pull == PullAlways || strings.HasPrefix(ref, "sha256:") {
		return picture{}, problem(provider.NotFound, "create", ref, "the engine does not have the image").remedy("docker pull, load or import it")
	}
	if err := p.pull(ctx, ref, progress); err != nil {
		return picture{}, err
	}
	pic, err = p.inspectImage(ctx, ref)
	return pic, p.imageProblem(ctx, ref, err)
}

func (p *Provider) imageProblem(ctx context.Context, ref string, err error) error {
	if err == nil {
		return nil
	}
	return engineProblem(ctx, "create", ref, err, provider.AppliedNo)
}

func (p *Provider) inspectImage(ctx context.Context, ref string) (picture, error) {
	i, err := p.e.ImageInspect(ctx, ref)
	if err != nil {
		return picture{}, err
	}
	if i.Os != "" && i.Os != "linux" {
		return picture{}, problem(provider.InvalidArgument, "create", ref, "the image is for "+i.Os).remedy("use a Linux image")
	}
	pic := picture{id: i.ID}
	if c := i.Config; c != nil {
		pic.env, pic.user, pic.dir = c.Env, c.User, c.WorkingDir
		pic.entrypoint, pic.cmd = c.Entrypoint, c.Cmd
		pic.volumes = slices.Sorted(maps.Keys(c.Volumes))
	}
	return pic, nil
}

// pull fetches an image and reports progress: bytes of all layers together.
func (p *Provider) pull(ctx context.Context, ref string, progress func(provider.Stage)) error {
	r, err := p.e.ImagePull(ctx, ref, image.PullOptions{})
	if err != nil {
		return pullProblem(ctx, ref, err)
	}
	defer func() { _ = r.Close() }()
	if progress == nil {
		progress = func(provider.Stage) {}
	}
	if err := watchPull(r, ref, progress); err != nil {
		return pullProblem(ctx, ref, err)
	}
	return nil
}

func pullProblem(ctx context.Context, ref string, err error) error {
	f := engineProblem(ctx, "create", ref, err, provider.AppliedNo)
	if f.Code == provider.Internal || (f.Code == provider.Unavailable && f.Message != "the engine cannot be reached") {
		// What the engine says of its registry comes as an error of its own.
		f.Code, f.Message, f.Remedy = provider.Unavailable, "the engine does not have the image, and cannot pull it", "see that the engine can reach the registry; or docker load or import the image"
	}
	return f
}

// progressEvery bounds how often progress is reported.
const progressEvery = 100 * time.Millisecond

func watchPull(r io.Reader, ref string, progress func(provider.Stage)) error {
	type layer struct{ current, total int64 }
	layers := map[string]layer{}
	progress(provider.Stage{Name: "pull", Detail: ref})
	var last time.Time
	dec := json.NewDecoder(r)
	for {
		var m struct {
			Status   string `json:"status"`
			ID       string `json:"id"`
			Error    string `json:"error"`
			Progress struct {
				Current int64 `json:"current"`
				Total   int64 `json:"total"`
			} `json:"progressDetail"`
		}
		err := dec.Decode(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if m.Error != "" {
			return errors.New(m.Error)
		}
		if m.ID == "" || m.Progress.Total <= 0 || m.Status != "Downloading" || len(layers) > 1000 {
			continue
		}
		layers[m.ID] = layer{m.Progress.Current, m.Progress.Total}
		if time.Since(last) < progressEvery {
			continue
		}
		last = time.Now()
		st := provider.Stage{Name: "pull", Detail: ref}
		for _, l := range layers {
			st.Current, st.Total = st.Current+l.current, st.Total+l.total
		}
		progress(st)
	}
}

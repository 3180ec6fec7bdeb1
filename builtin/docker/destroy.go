package docker

import (
	"context"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"

	"github.com/sbxhost/sbxhost/provider"
)

const opDestroy = "destroy"

// Destroy implements provider.Provider: the container, and the workspace unless
// another sandbox of the session is on it. Both are looked at first and removed
// only when their labels prove them ours.
func (p *Provider) Destroy(ctx context.Context, ref provider.Ref) error {
	if err := ctx.Err(); err != nil {
		return ctxProblem(opDestroy, ref.ID, err, provider.AppliedNo)
	}
	session := sessionOf(ref.ID)
	if session == "" {
		return nil // nothing of ours has such a name
	}
	unlock, err := p.sessions.lock(ctx, session)
	if err != nil {
		return ctxProblem(opDestroy, ref.ID, err, provider.AppliedNo)
	}
	defer unlock()
	return p.destroy(ctx, ref.ID)
}

// destroy removes what is left of a sandbox. Called with the session locked.
func (p *Provider) destroy(ctx context.Context, name string) error {
	s, err := p.owned(ctx, name)
	if err != nil {
		return err
	}
	var owner string
	if s != nil {
		owner = s.owner
	} else if owner, err = p.ownerOf(ctx, name); err != nil {
		return err
	}
	// Before the container goes: afterwards nothing leads here any more.
	if err := p.markRetired(ctx, name); err != nil {
		return err
	}
	if s != nil {
		if err := p.destroyContainer(ctx, s); err != nil {
			return err
		}
	}
	// Before the volumes go: as long as one is there the sandbox is listed, and a
	// removal that was interrupted is tried again and gets here.
	if owner != "" && (s == nil || s.network) {
		if err := p.leave(ctx, owner); err != nil {
			return engineProblem(ctx, opDestroy, networkName(owner), err, provider.AppliedUnknown).applied(provider.AppliedUnknown)
		}
	}
	if err := p.destroyVolumes(ctx, name, owner); err != nil {
		return err
	}
	p.forgetName(name)
	return nil
}

// ownerOf returns whose a sandbox is that has no container, "" when nothing says so.
func (p *Provider) ownerOf(ctx context.Context, name string) (string, error) {
	v, err := p.e.VolumeInspect(ctx, name)
	if err != nil && !gone(err) {
		return "", engineProblem(ctx, opDestroy, name, err, provider.AppliedNo)
	}
	if err != nil || !(proves(v.Name, kindWorkspace, v.Labels) || proves(v.Name, kindMarker, v.Labels)) {
		return "", nil
	}
	return v.Labels[provider.LabelOwner], nil
}

// owned returns the sandbox of a name's container, nil when there is none.
func (p *Provider) owned(ctx context.Context, name string) (*sandbox, error) {
	info, err := p.inspectContainer(ctx, name)
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, engineProblem(ctx, opDestroy, name, err, provider.AppliedNo)
	}
	if strings.TrimPrefix(info.Name, "/") != name {
		return nil, nil // the beginning of another container's id
	}
	s, err := p.sandbox(info)
	if err != nil {
		return nil, problem(provider.PermissionDenied, opDestroy, name, "a container of this name exists and does not carry our labels").remedy("if it is in the way: docker rm " + name)
	}
	return s, nil
}

// destroyContainer removes a container and sees that it is gone.
func (p *Provider) destroyContainer(ctx context.Context, s *sandbox) error {
	err := p.e.ContainerRemove(ctx, s.id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	// A removal in progress is somebody else's, and will end.
	if err != nil && !gone(err) && !cerrdefs.IsConflict(err) {
		return engineProblem(ctx, opDestroy, s.name, err, provider.AppliedUnknown)
	}
	if err := p.awaitGone(ctx, s); err != nil {
		return err
	}
	p.forget(s)
	return nil
}

// awaitGone returns when the engine says that there is no such container.
func (p *Provider) awaitGone(ctx context.Context, s *sandbox) error {
	wait := 5 * time.Millisecond
	for began := time.Now(); ; {
		info, err := p.inspectContainer(ctx, s.id)
		if gone(err) {
			return nil
		}
		if err != nil {
			return engineProblem(ctx, opDestroy, s.name, err, provider.AppliedUnknown)
		}
		if time.Since(began) > undoTime || (info.State.Status == container.StateDead && time.Since(began) > 2*time.Second) {
			return problem(provider.Unavailable, opDestroy, s.name, "the engine does not remove the container").remedy("try again; docker rm -f " + s.name + " may say more").applied(provider.AppliedUnknown)
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, 250*time.Millisecond)
		case <-ctx.Done():
			return ctxProblem(opDestroy, s.name, ctx.Err(), provider.AppliedUnknown)
		}
	}
}

// retiredName is the name of what says that a workspace's first sandbox was
// retired: the workspace goes with the last one on it, then. Without it, it is
// still the first one's, even when that one's container vanished.
func retiredName(workspace string) string { return workspace + "-retired" }

// markRetired notes that a sandbox leaves its workspace to another one.
func (p *Provider) markRetired(ctx context.Context, name string) error {
	users, err := p.usersOf(ctx, name)
	if err != nil {
		return engineProblem(ctx, opDestroy, name, err, provider.AppliedNo)
	}
	i := slices.IndexFunc(users, func(u container.Summary) bool {
		return nameOf(u) != name && u.Labels[provider.LabelSession] == sessionOf(name)
	})
	if i < 0 {
		return nil
	}
	_, err = p.e.VolumeCreate(ctx, volume.CreateOptions{Name: retiredName(name), Driver: "local", Labels: map[string]string{
		labelKind: kindRetired, provider.LabelSession: sessionOf(name), provider.LabelOwner: users[i].Labels[provider.LabelOwner]}})
	if err != nil {
		return engineProblem(ctx, opDestroy, name, err, provider.AppliedUnknown)
	}
	return nil
}

// destroyVolumes removes the workspace of a sandbox, unless a container uses it,
// and then what marked the sandbox.
func (p *Provider) destroyVolumes(ctx context.Context, name, owner string) error {
	fail := func(what string, err error) error {
		return engineProblem(ctx, opDestroy, what, err, provider.AppliedUnknown).applied(provider.AppliedUnknown)
	}
	list, err := p.volumes(ctx, provider.Query{Owner: owner, Session: sessionOf(name)})
	if err != nil {
		return fail(name, err)
	}
	has := func(name, kind string) bool {
		return slices.ContainsFunc(list, func(v *volume.Volume) bool { return v.Name == name && v.Labels[labelKind] == kind })
	}
	for _, v := range list {
		retired := has(retiredName(v.Name), kindRetired)
		if !proves(v.Name, kindWorkspace, v.Labels) || (v.Name != name && !retired) {
			continue
		}
		users, err := p.usersOf(ctx, v.Name)
		if err != nil {
			return fail(v.Name, err)
		}
		if len(users) > 0 {
			continue
		}
		if err := p.removeVolume(ctx, v.Name); err != nil {
			return fail(v.Name, err)
		}
		if retired {
			if err := p.removeVolume(ctx, retiredName(v.Name)); err != nil {
				return fail(v.Name, err)
			}
		}
	}
	for _, v := range list {
		if v.Name == name && proves(v.Name, kindMarker, v.Labels) {
			if err := p.removeVolume(ctx, v.Name); err != nil {
				return fail(v.Name, err)
			}
		}
	}
	return nil
}

// removeVolume removes a volume and sees that it is gone.
func (p *Provider) removeVolume(ctx context.Context, name string) error {
	err := p.e.VolumeRemove(ctx, name, false)
	if err != nil && !gone(err) {
		return err
	}
	_, err = p.e.VolumeInspect(ctx, name)
	if gone(err) {
		return nil
	}
	if err == nil {
		err = problem(provider.Unavailable, opDestroy, name, "the volume is still there").applied(provider.AppliedUnknown)
	}
	return err
}

func volumeFilter(name string) filters.Args { return filters.NewArgs(filters.Arg("volume", name)) }

package docker

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sbxhost/sbxhost/provider"
)

// settleTime is how long something that is neither running nor complete counts as
// being made.
const settleTime = 10 * time.Minute

// List implements provider.Provider. A workspace whose container is not there is
// listed too, unless it was left to another sandbox: what still has its files is
// not gone.
func (p *Provider) List(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
	if err := ctx.Err(); err != nil {
		return nil, ctxProblem("list", "", err, provider.AppliedNo)
	}
	// Volumes first: a sandbox that is being destroyed loses its container first,
	// and one that is being made gets its volume first.
	volumes, err := p.volumes(ctx, q)
	if err != nil {
		return nil, engineProblem(ctx, "list", "", err, provider.AppliedNo)
	}
	containers, err := p.containers(ctx, provider.Query{Session: q.Session})
	if err != nil {
		return nil, engineProblem(ctx, "list", "", err, provider.AppliedNo)
	}
	var out []provider.Resource
	there := map[string]bool{} // names of containers, and of workspaces that were left to others
	for _, c := range containers {
		name := nameOf(c)
		if !proves(name, kindSandbox, c.Labels) {
			continue
		}
		there[name] = true
		if q.Owner != "" && c.Labels[provider.LabelOwner] != q.Owner {
			continue
		}
		at := time.Unix(c.Created, 0)
		out = append(out, provider.Resource{Ref: provider.Ref{ID: name}, Name: name, Labels: public(c.Labels), State: listedState(c.State, at), CreatedAt: at})
	}
	for _, v := range volumes {
		if w, ok := strings.CutSuffix(v.Name, retiredName("")); ok && v.Labels[labelKind] == kindRetired {
			there[w] = true
		}
	}
	for _, v := range volumes {
		if there[v.Name] || !(proves(v.Name, kindWorkspace, v.Labels) || proves(v.Name, kindMarker, v.Labels)) {
			continue
		}
		at, _ := time.Parse(time.RFC3339, v.CreatedAt)
		out = append(out, provider.Resource{Ref: provider.Ref{ID: v.Name}, Name: v.Name, Labels: public(v.Labels), State: listedState(container.StateCreated, at), CreatedAt: at})
	}
	slices.SortFunc(out, func(a, b provider.Resource) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func listedState(s container.ContainerState, at time.Time) provider.State {
	switch s {
	case container.StateRunning:
		return provider.StateRunning
	case container.StatePaused:
		return provider.StatePaused
	case container.StateCreated:
		if time.Since(at) < settleTime {
			return provider.StatePending
		}
		return provider.StateStopped
	case container.StateExited, container.StateDead, container.StateRemoving:
		return provider.StateStopped
	}
	return provider.StateUnknown
}

// Open implements provider.Provider. A sandbox whose container is gone and whose
// workspace is there can be opened too: its session can be resumed.
func (p *Provider) Open(ctx context.Context, ref provider.Ref) (provider.Sandbox, error) {
	const op = "open"
	if err := ctx.Err(); err != nil {
		return nil, ctxProblem(op, ref.ID, err, provider.AppliedNo)
	}
	missing := problem(provider.NotFound, op, ref.ID, "no such sandbox")
	if sessionOf(ref.ID) == "" {
		return nil, missing
	}
	info, err := p.inspectContainer(ctx, ref.ID)
	if err == nil && strings.TrimPrefix(info.Name, "/") == ref.ID {
		s, err := p.sandbox(info)
		if err != nil {
			return nil, missing
		}
		s.settleEngineRestart(ctx, info)
		return s, nil
	}
	if err != nil && !gone(err) {
		return nil, engineProblem(ctx, op, ref.ID, err, provider.AppliedNo)
	}
	v, err := p.e.VolumeInspect(ctx, ref.ID)
	if err != nil && !gone(err) {
		return nil, engineProblem(ctx, op, ref.ID, err, provider.AppliedNo)
	}
	if err != nil || !proves(v.Name, kindWorkspace, v.Labels) {
		return nil, missing
	}
	if _, err := p.e.VolumeInspect(ctx, retiredName(v.Name)); err == nil {
		return nil, missing // it lives on as another one's
	} else if !gone(err) {
		return nil, engineProblem(ctx, op, ref.ID, err, provider.AppliedNo)
	}
	l := v.Labels
	return &sandbox{p: p, name: v.Name, owner: l[provider.LabelOwner], session: l[provider.LabelSession], labels: l}, nil
}

// usersOf lists the containers, ours or not, that use a volume.
func (p *Provider) usersOf(ctx context.Context, volume string) ([]container.Summary, error) {
	all, err := p.e.ContainerList(ctx, container.ListOptions{All: true, Filters: volumeFilter(volume)})
	if err != nil {
		return nil, err
	}
	// The filter also matches mount points.
	return slices.DeleteFunc(all, func(c container.Summary) bool {
		return !slices.ContainsFunc(c.Mounts, func(m container.MountPoint) bool { return m.Name == volume })
	}), nil
}

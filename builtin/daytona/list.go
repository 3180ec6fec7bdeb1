package daytona

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

const (
	maxPages     = 1000
	listParallel = 8
)

// List implements provider.Provider. The service's list is late by a second or
// two and may flap, so it only says which sandboxes to ask for; so do the names
// that the session must have, and what was made here.
func (p *Provider) List(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
	if ctx.Err() != nil {
		return nil, ctxProblem("list", "", ctx.Err(), provider.AppliedNo)
	}
	labels := map[string]string{}
	if q.Owner != "" {
		labels[provider.LabelOwner] = q.Owner
	}
	if q.Session != "" {
		labels[provider.LabelSession] = q.Session
	}
	var ids []string
	cursors := map[string]bool{}
	for cursor := ""; ; {
		items, next, err := p.s.ListSandboxes(ctx, labels, cursor)
		if err != nil {
			return nil, serviceProblem(ctx, "list", "", err, provider.AppliedNo)
		}
		for _, sb := range items {
			if sb.ID != "" && matches(sb.Labels, q) && !slices.Contains(ids, sb.ID) {
				ids = append(ids, sb.ID)
			}
		}
		if next == "" {
			break
		}
		if cursors[next] || len(cursors) >= maxPages {
			return nil, problem(provider.Unavailable, "list", "", "the service's list does not end").remedy("try again later")
		}
		cursors[next], cursor = true, next
	}
	p.mu.Lock()
	for id, l := range p.known {
		if matches(l, q) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	p.mu.Unlock()
	if q.Session != "" {
		sb, err := p.s.GetSandbox(ctx, provider.NamePrefix+q.Session)
		if err != nil && !isGone(err) {
			return nil, serviceProblem(ctx, "list", "", err, provider.AppliedNo)
		}
		if err == nil && !slices.Contains(ids, sb.ID) {
			ids = append(ids, sb.ID)
		}
	}
	return p.inspect(ctx, ids, q)
}

// matches reports whether labels are of ours and selected.
func matches(labels map[string]string, q provider.Query) bool {
	return labels[provider.LabelOwner] != "" && labels[provider.LabelSession] != "" &&
		(q.Owner == "" || labels[provider.LabelOwner] == q.Owner) &&
		(q.Session == "" || labels[provider.LabelSession] == q.Session)
}

// inspect asks for each sandbox by its id, which is the authority.
func (p *Provider) inspect(ctx context.Context, ids []string, q provider.Query) ([]provider.Resource, error) {
	found := make([]*provider.Resource, len(ids))
	errs := make([]error, len(ids))
	var wg sync.WaitGroup
	turn := make(chan struct{}, listParallel)
	for i, id := range ids {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			sb, err := p.s.GetSandbox(ctx, id)
			switch {
			case isGone(err):
				p.forget(id)
			case err != nil:
				errs[i] = err
			case sb.ID == id && matches(sb.Labels, q) && proves(sb):
				created, _ := time.Parse(time.RFC3339Nano, sb.CreatedAt)
				found[i] = &provider.Resource{Ref: provider.Ref{ID: id}, Name: originalName(sb.Name), Labels: public(sb.Labels), State: stateOf(sb.State), CreatedAt: created}
			}
		})
	}
	wg.Wait()
	out := []provider.Resource{}
	for i := range ids {
		if errs[i] != nil {
			return nil, serviceProblem(ctx, "list", ids[i], errs[i], provider.AppliedNo)
		}
		// What is being destroyed is still there until it is gone.
		if r := found[i]; r != nil {
			out = append(out, *r)
		}
	}
	slices.SortFunc(out, func(a, b provider.Resource) int { return strings.Compare(a.Ref.ID, b.Ref.ID) })
	return out, nil
}

package daytona

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sbxhost/sbxhost/provider"
)

const (
	// visibleAfter is how long a sandbox that was made may stay invisible.
	visibleAfter = 5 * time.Second
	// maxVariable is the kernel's bound on one NAME=VALUE and its NUL.
	maxVariable = 128 << 10
)

// Create implements provider.Provider.
func (p *Provider) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	if err := provider.ValidateCreate(req); err != nil {
		return nil, ours(err)
	}
	if err := provider.CheckCreate(p.describe, req); err != nil {
		return nil, ours(err)
	}
	if ctx.Err() != nil {
		return nil, ctxProblem("create", req.Name, ctx.Err(), provider.AppliedNo)
	}
	in, err := p.prepare(req)
	if err != nil {
		return nil, err
	}
	unlock, err := p.sessions.lock(ctx, req.Name)
	if err != nil {
		return nil, ctxProblem("create", req.Name, err, provider.AppliedNo)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, p.opts.CreateTimeout)
	defer cancel()

	there, err := p.s.GetSandbox(ctx, req.Name)
	switch {
	case err == nil:
		sb, again, err := p.adopt(ctx, req, there)
		if !again {
			return sb, err
		}
	case !isGone(err):
		return nil, serviceProblem(ctx, "create", req.Name, err, provider.AppliedNo)
	}
	return p.make(ctx, req, in)
}

// prepare makes the service's request, and refuses what would leave a failed
// sandbox behind.
func (p *Provider) prepare(req provider.CreateRequest) (createSandbox, error) {
	in := createSandbox{name: req.Name, target: p.opts.Target, labels: maps.Clone(req.Labels), env: req.Protected,
		blockAll: req.Network == "none", autoStop: minutes(max(p.opts.AutoStop, 0))}
	unenforced, err := p.source(req, &in)
	if err != nil {
		return in, err
	}
	if req.TTL > 0 {
		// Both guard against what nobody destroys; the host's own clock is finer.
		in.ttl, in.autoDelete = minutes(req.TTL), minutes(req.TTL)
	}
	if in.autoStop > 0 && req.Idle > 0 {
		in.autoStop = max(in.autoStop, minutes(req.Idle))
	}
	for k, v := range req.Protected.All() {
		if v.Len()+len(k)+2 > maxVariable || !utf8.Valid(v.Reveal()) {
			return in, problem(provider.InvalidArgument, "create", req.Name, "the value of "+k+" cannot be carried: it must be UTF-8, and with its name under 128 KiB").
				remedy("use the exec transport with a file, or a shorter value")
		}
	}
	in.labels[labelRoot] = req.Root
	if len(req.Ports) > 0 {
		in.labels[labelPorts] = portList(req.Ports)
	}
	if req.Transport == provider.TransportCreate && len(req.ProtectedNames) > 0 {
		in.labels[labelCreate] = strings.Join(req.ProtectedNames, ",")
	}
	if len(unenforced) > 0 {
		in.labels[labelUnenforced] = strings.Join(unenforced, ";")
	}
	return in, nil
}

func minutes(d time.Duration) int { return int((d + time.Minute - 1) / time.Minute) }

// adopt takes a sandbox that has the name already. again is set when it was a
// failed one of ours and is gone now.
func (p *Provider) adopt(ctx context.Context, req provider.CreateRequest, there sandboxInfo) (_ provider.Sandbox, again bool, _ error) {
	l := there.Labels
	if there.Name != req.Name || !proves(there) || l[provider.LabelOwner] != req.Labels[provider.LabelOwner] ||
		l[provider.LabelSession] != req.SessionID || req.Replaces != nil && l[provider.LabelAttempt] != req.Labels[provider.LabelAttempt] {
		return nil, false, problem(provider.Conflict, "create", req.Name, "a sandbox of another owner has this name").remedy("create another session")
	}
	if l[provider.LabelDigest] != req.Digest {
		return nil, false, problem(provider.Conflict, "create", req.Name, "the session has a sandbox made from another request").
			remedy("destroy it first, or create another session")
	}
	switch {
	case failed(there.State), dying(there.State):
		if err := p.destroy(ctx, there.ID); err != nil {
			return nil, false, err
		}
		return nil, true, nil
	case stateOf(there.State) == provider.StatePaused:
		return nil, false, problem(provider.FailedPrecondition, "create", there.ID, "the session's sandbox exists and is stopped").remedy("open and resume it")
	}
	if req.Checkpoint != nil {
		if err := req.Checkpoint(provider.Ref{ID: there.ID}); err != nil {
			return nil, false, problem(provider.Unavailable, "create", there.ID, "the sandbox could not be recorded").cause(err).applied(provider.AppliedYes)
		}
	}
	ready, err := p.await(ctx, req, there.ID)
	if err != nil {
		return nil, false, err
	}
	sb, err := p.ready(ctx, ready, req)
	if err != nil {
		return nil, false, err
	}
	return sb, false, nil
}

// make makes a new sandbox. Whatever goes wrong after the request was sent, the
// sandbox is looked up by its name and deleted.
func (p *Provider) make(ctx context.Context, req provider.CreateRequest, in createSandbox) (provider.Sandbox, error) {
	made, err := p.s.CreateSandbox(ctx, in)
	if err == nil && made.ID == "" {
		err = &callError{status: http.StatusOK, what: "the answer is no sandbox"}
	}
	if err != nil {
		if statusOf(err) == http.StatusConflict && says(err, "already exists") {
			return p.raced(ctx, req, err)
		}
		f := serviceProblem(ctx, "create", req.Name, err, provider.AppliedUnknown)
		return nil, p.sweep(ctx, req, f, err)
	}
	p.born(made.ID)
	fail := func(err error) error {
		f := serviceProblem(ctx, "create", req.Name, err, provider.AppliedYes)
		return p.undo(ctx, made.ID, f)
	}
	if req.Checkpoint != nil {
		if err := req.Checkpoint(provider.Ref{ID: made.ID}); err != nil {
			return nil, fail(problem(provider.Unavailable, "create", req.Name, "the sandbox could not be recorded, and was not kept").cause(err).applied(provider.AppliedYes))
		}
	}
	ready, err := p.await(ctx, req, made.ID)
	if err != nil {
		return nil, fail(err)
	}
	sb, err := p.ready(ctx, ready, req)
	if err != nil {
		return nil, fail(err)
	}
	return sb, nil
}

// raced is a create that another process won.
func (p *Provider) raced(ctx context.Context, req provider.CreateRequest, cause error) (provider.Sandbox, error) {
	there, err := p.lookUp(ctx, req.Name)
	if err != nil {
		return nil, serviceProblem(ctx, "create", req.Name, cause, provider.AppliedNo)
	}
	sb, again, err := p.adopt(ctx, req, there)
	if again {
		return nil, problem(provider.Conflict, "create", req.Name, "a failed sandbox of the session was in the way, and is gone now").remedy("try again")
	}
	return sb, err
}

// lookUp finds a sandbox by name, and bears that a new one is not visible at
// once.
func (p *Provider) lookUp(ctx context.Context, name string) (sandboxInfo, error) {
	began, pause := time.Now(), 50*time.Millisecond
	for {
		late := time.Since(began) > visibleAfter
		sb, err := p.s.GetSandbox(ctx, name)
		if err == nil || !isGone(err) || late || !sleep(ctx, pause) {
			return sb, err
		}
		pause = min(pause*3/2, time.Second)
	}
}

// sweep deletes what a failed or ambiguous request may have left: a request that
// the service calls failed leaves a sandbox in state error.
func (p *Provider) sweep(ctx context.Context, req provider.CreateRequest, f *fault, cause error) error {
	if statusOf(cause) == http.StatusUnauthorized || statusOf(cause) == http.StatusTooManyRequests {
		return f // nothing was tried
	}
	var e *callError
	if errors.As(cause, &e) && e.unsent {
		return f
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opts.cleanUp())
	defer cancel()
	find := p.lookUp
	if s := statusOf(cause); s >= 400 && s < 500 && s != http.StatusRequestTimeout {
		find = p.s.GetSandbox // what a refusal leaves is there at once
	}
	f.Applied = provider.AppliedUnknown
	there, err := find(ctx, req.Name)
	switch {
	case isGone(err):
		if s := statusOf(cause); s >= 400 && s < 500 && s != http.StatusRequestTimeout {
			f.Applied = provider.AppliedNo
		}
		return f
	case err != nil:
		return f
	case !proves(there) || there.Labels[provider.LabelOwner] != req.Labels[provider.LabelOwner] || there.Labels[provider.LabelAttempt] != req.Labels[provider.LabelAttempt]:
		f.Applied = provider.AppliedNo // another one's
		return f
	}
	if reason := p.reason(there, req); reason != "" && f.Code == provider.InvalidArgument {
		f.Code, f.Message, f.Err = provider.FailedPrecondition, "the sandbox failed to start: "+reason, nil
	} else if failed(there.State) && f.Code == provider.InvalidArgument {
		f.Code, f.Message = provider.FailedPrecondition, "the sandbox failed to start"
	}
	if req.Checkpoint != nil {
		_ = req.Checkpoint(provider.Ref{ID: there.ID}) // if the deletion fails, the host knows what is left
	}
	return p.undo(ctx, there.ID, f)
}

// cleanUp bounds what is done after a failure.
func (o Options) cleanUp() time.Duration { return min(o.DestroyTimeout, time.Minute) }

// undo deletes what a failed create made; the error says whether it is gone.
func (p *Provider) undo(ctx context.Context, id string, f *fault) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opts.cleanUp())
	defer cancel()
	f.Applied = provider.AppliedYes
	if p.destroy(ctx, id) == nil {
		f.Applied = provider.AppliedNo
	}
	return f
}

// reason is the service's text about a failed sandbox. It may echo a bad value
// of the creation environment, so it is left out where there is one.
func (p *Provider) reason(sb sandboxInfo, req provider.CreateRequest) string {
	if sb.ErrorReason == nil || req.Protected.Len() > 0 || sb.Labels[labelCreate] != "" {
		return ""
	}
	c, ok := p.s.(*client)
	if !ok {
		return ""
	}
	return c.clean(*sb.ErrorReason)
}

// await waits until a sandbox has started.
func (p *Provider) await(ctx context.Context, req provider.CreateRequest, id string) (sandboxInfo, error) {
	stage := &stages{f: req.Progress}
	defer stage.stop()
	began, pause, seen := time.Now(), 20*time.Millisecond, false
	for {
		young := time.Since(began) < visibleAfter
		sb, err := p.s.GetSandbox(ctx, id)
		if err == nil && !seen {
			seen = true
			p.seen(id)
		}
		switch {
		case isGone(err) && !seen && young:
		case isGone(err):
			return sb, problem(provider.Lost, "create", id, "the sandbox vanished while it was being made").applied(provider.AppliedYes)
		case err != nil:
			return sb, serviceProblem(ctx, "create", id, err, provider.AppliedYes)
		case sb.State == "started":
			return sb, nil
		case failed(sb.State):
			f := problem(provider.FailedPrecondition, "create", id, "the sandbox failed to start").applied(provider.AppliedYes)
			if sb.State == "build_failed" {
				f.Message = "the image could not be built"
				f.Remedy = "check the image's name; progress shows the build's log"
			}
			if reason := p.reason(sb, req); reason != "" {
				f.Message += ": " + reason
				if strings.Contains(strings.ToLower(reason), "not found") || strings.Contains(strings.ToLower(reason), "manifest unknown") {
					f.Code = provider.NotFound
				}
			}
			return sb, f
		case dying(sb.State):
			return sb, problem(provider.Lost, "create", id, "the sandbox was deleted while it was being made").applied(provider.AppliedYes)
		default:
			stage.show(ctx, p.s, sb)
		}
		if !sleep(ctx, pause) {
			return sb, ctxProblem("create", id, ctx.Err(), provider.AppliedYes)
		}
		pause = min(pause*11/10+time.Millisecond, time.Second)
	}
}

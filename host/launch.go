package host

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"maps"
	"slices"

	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

const opExec = "exec"

// launch checks a request, starts its command and returns once it runs. first
// says that this call started it; otherwise its ID was known and nothing is run.
func (s *Session) launch(ctx context.Context, req ExecRequest, streaming bool) (e *execution, first bool, err error) {
	ctx, tr := s.trace(ctx, KindExec, opExec)
	e, first, err = s.start(ctx, req, streaming, tr)
	if err != nil || !first {
		if e != nil {
			tr.record.Exec, tr.record.Reason = e.id, "attached to a command that was started before"
		}
		tr.end(err)
	}
	return e, first, err
}

func (s *Session) start(ctx context.Context, req ExecRequest, streaming bool, tr *traced) (*execution, bool, error) {
	preq, err := s.execRequest(req)
	if err != nil {
		return nil, false, err
	}
	ctx, done, err := s.use(ctx, opExec)
	if err != nil {
		return nil, false, err
	}
	if err := s.h.execs.reserve(opExec); err != nil {
		done()
		return nil, false, err
	}
	e := newExecution(s, req, preq, streaming, tr)
	e.release = func() { s.h.execs.release(); done() }
	prior, err := s.table().enter(e)
	if err != nil {
		e.release()
		return nil, false, err
	}
	if prior != nil {
		err := prior.awaitStart(ctx)
		e.release()
		return prior, false, err
	}
	if s.ending.Err() != nil {
		e.stop(stopEnded, 0) // it came too late for stopExecs, and ctx may end later
	}
	if err := s.trust(ctx, e); err != nil {
		e.refuse(err)
		return nil, false, err
	}
	if err := e.start(ctx); err != nil {
		return nil, false, err
	}
	return e, true, nil
}

// execRequest validates a request and settles which value each name gets: the
// provider's base, the manifest's literals, protected values, request-scoped
// secrets, the request's own literals, each over those before it.
func (s *Session) execRequest(req ExecRequest) (provider.ExecRequest, error) {
	none := provider.ExecRequest{}
	protected := destinations(s.manifest.Pairs())
	if err := manifest.CheckEnvironment(req.Env); err != nil {
		return none, failure(opExec, s.reg.name, err)
	}
	for _, k := range slices.Sorted(maps.Keys(req.Env)) {
		if slices.Contains(protected, k) {
			return none, invalid(opExec, "env names the protected destination "+k, "leave it out, or use another name")
		}
	}
	if err := req.Secrets.Check(protected); err != nil {
		s.disclosure().request(req.Secrets.Names(), opExec, "denied", false)
		return none, failure(opExec, s.reg.name, err)
	}
	for _, n := range req.Secrets.Names() {
		if slices.Contains(s.reg.desc.RefusedDestinations, n) {
			return none, refusal(provider.Unsupported, opExec, "the provider manages the variable "+n+" itself", "choose another name inside the sandbox")
		}
	}
	secrets := req.Secrets.Env().Without(slices.Collect(maps.Keys(req.Env))...)
	env := s.manifest.Literals()
	if env == nil {
		env = map[string]string{}
	}
	for _, n := range secrets.Names() {
		delete(env, n)
	}
	maps.Copy(env, req.Env)

	out := provider.ExecRequest{
		ID: req.ID, Args: slices.Clone(req.Args), Shell: req.Shell, Dir: req.Dir, User: req.User,
		Env: env, Protected: s.values, Secrets: secrets,
		KillLeftovers: secrets.Len() > 0 && !s.sharedTrust,
		Stdin:         provider.StdinNone, TTY: req.TTY, Cols: req.Cols, Rows: req.Rows,
		Grace: execGrace, Stdout: io.Discard, Stderr: io.Discard,
	}
	if out.ID == "" {
		out.ID = randomID()
	}
	return out, s.finishRequest(req, &out)
}

func (s *Session) finishRequest(req ExecRequest, out *provider.ExecRequest) error {
	caps := s.reg.desc.Exec
	switch {
	case req.Stdin != nil && req.LiveStdin:
		return invalid(opExec, "stdin and liveStdin exclude each other", "")
	case req.Stdin != nil && caps.Stdin == provider.StdinUpfront:
		out.Stdin, out.Input = provider.StdinUpfront, &inlet{r: req.Stdin}
	case req.Stdin != nil || req.LiveStdin:
		out.Stdin = provider.StdinLive
	}
	switch {
	case req.Timeout < 0:
		return invalid(opExec, "timeout must not be negative", "leave it out for the default of "+s.h.limits.ExecTimeout.String())
	case req.Timeout > 0:
		out.Timeout = req.Timeout
	case caps.MaxTimeout > 0:
		out.Timeout = min(s.h.limits.ExecTimeout, caps.MaxTimeout)
	default:
		out.Timeout = s.h.limits.ExecTimeout
	}
	if req.User != "" && s.reg.desc.Features.User == provider.SupportNone {
		return refusal(provider.Unsupported, opExec, "provider "+s.reg.name+" cannot run a command as another user", "leave user out")
	}
	if err := provider.ValidateExec(*out); err != nil {
		return err
	}
	return provider.CheckExec(s.reg.desc, *out)
}

// fingerprint tells whether two requests with one ID ask for the same command.
// Values are not part of it.
func fingerprint(req ExecRequest) [sha256.Size]byte {
	// encoding/json sorts map keys; the values are plain data and cannot fail.
	doc, _ := json.Marshal([]any{req.Args, req.Shell, req.Dir, req.User, req.Env, req.Secrets.Names(),
		req.Stdin != nil, req.LiveStdin, req.TTY, req.Timeout, req.MaxOutput})
	return sha256.Sum256(doc)
}

package daytona

import (
	"bytes"
	"context"
	"io"
	"maps"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// Exec implements provider.Sandbox.
func (sb *sandbox) Exec(ctx context.Context, req provider.ExecRequest) (provider.Process, error) {
	if err := provider.ValidateExec(req); err != nil {
		return nil, ours(err)
	}
	if err := provider.CheckExec(sb.p.describe, req); err != nil {
		return nil, ours(err)
	}
	if err := sb.checkExec(req); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctxProblem("exec", sb.id, ctx.Err(), provider.AppliedNo)
	}
	if req.TTY {
		return sb.startTTY(ctx, req)
	}
	return sb.start(ctx, req, nil)
}

// checkExec refuses what could not be carried, before anything is started.
func (sb *sandbox) checkExec(req provider.ExecRequest) error {
	if req.User != "" {
		return problem(provider.Unsupported, "exec", sb.id, "commands run as the sandbox's user only").remedy("leave the user out")
	}
	if sb.old && (req.Protected.Len() > 0 || req.Secrets.Len() > 0) {
		return sb.refuseEnvs("exec")
	}
	for _, n := range []string{markName} {
		if _, ok := req.Env[n]; ok || req.Protected.Has(n) || req.Secrets.Has(n) {
			return problem(provider.InvalidArgument, "exec", sb.id, n+" is this provider's own variable").remedy("use another name")
		}
	}
	large := func(name string, n int, ok bool) error {
		switch {
		case !ok:
			return problem(provider.InvalidArgument, "exec", sb.id, "the value of "+name+" is not UTF-8, and cannot be carried").remedy("encode it")
		case len(name)+n+2 > maxVariable:
			return problem(provider.InvalidArgument, "exec", sb.id, "the value of "+name+" and its name together are over 128 KiB").remedy("put it into a file")
		}
		return nil
	}
	for k, v := range req.Env {
		if err := large(k, len(v), utf8.ValidString(v)); err != nil {
			return err
		}
	}
	for _, e := range []secret.Env{req.Protected, req.Secrets} {
		for k, v := range e.All() {
			if err := large(k, v.Len(), utf8.Valid(v.Reveal())); err != nil {
				return err
			}
		}
	}
	if !utf8.ValidString(req.Shell) || !utf8.ValidString(strings.Join(req.Args, "")) || !utf8.ValidString(req.Dir) {
		return problem(provider.InvalidArgument, "exec", sb.id, "a command that is not UTF-8 cannot be carried").remedy("put it into a file")
	}
	return nil
}

// dir makes a working directory absolute.
func (sb *sandbox) dir(dir string) string {
	if path.IsAbs(dir) {
		return path.Clean(dir)
	}
	return path.Join(sb.root, dir)
}

// start runs a command. hide names what a command of ours must not inherit.
func (sb *sandbox) start(ctx context.Context, req provider.ExecRequest, hide []string) (*process, error) {
	r := runner{tag: random(), dir: sb.dir(req.Dir), args: req.Args, shell: req.Shell, old: sb.old, env: req.Env, hide: hide}
	p := &process{sb: sb, req: req, run: r, done: make(chan struct{}), ended: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	switch req.Stdin {
	case provider.StdinUpfront:
		if err := sb.upload(ctx, "exec", r.tag, req.Input, nil); err != nil {
			p.cancel()
			return nil, err
		}
		p.run.input = file(r.tag, "in")
		if err := sb.join(ctx, r.tag, p.run.input); err != nil {
			p.cancel()
			return nil, err
		}
	case provider.StdinLive:
		if _, err := sb.helper(ctx, helper{op: "exec", again: true, script: `mkdir -m 700 -- ` + base + `; rm -f ` + file(r.tag, "in") + ` ` + file(r.tag, "ctl") + `; mkfifo -m 600 ` + file(r.tag, "in") + ` ` + file(r.tag, "ctl") + ` && echo made`}); err != nil {
			p.cancel()
			var f *fault
			if asFault(err, &f) {
				f.Applied = provider.AppliedNo // no command
			}
			return nil, err
		}
		p.run.input, p.run.live = file(r.tag, "in"), true
		p.stdin = newInput(p)
	}
	if err := p.launch(ctx); err != nil {
		p.cancel()
		go p.cleanUp()
		return nil, err
	}
	return p, nil
}

// environment is what the request's field envs holds beside values.
func (p *process) environment() map[string]string {
	if p.run.old {
		return nil
	}
	env := maps.Clone(p.req.Env)
	if env == nil {
		env = map[string]string{}
	}
	for _, n := range p.run.hide {
		env[n] = ""
	}
	env[markName] = p.run.tag
	return env
}

// segment is how much of an upload is sent at a time, so that each part can be
// sent again and memory stays bounded.
const segment = 4 << 20

// upload sends content as numbered parts that join puts together. check, when
// given, sees each part first.
func (sb *sandbox) upload(ctx context.Context, op, tag string, content io.Reader, done func(n int)) error {
	buf := make([]byte, 32<<10, segment)
	for i := 0; ; i++ {
		n, err := fill(content, &buf)
		if err != nil && err != io.EOF {
			return problem(provider.InvalidArgument, op, "", "the content to be sent cannot be read").cause(err)
		}
		if n > 0 || i == 0 {
			if upErr := sb.box.Upload(ctx, file(tag, part(i)), buf[:n]); upErr != nil {
				return sb.explain(ctx, op, "", upErr, provider.AppliedNo)
			}
			if done != nil {
				done(n)
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// fill reads until the segment is full or the reader ends, growing the buffer
// only as far as is needed.
func fill(r io.Reader, buf *[]byte) (int, error) {
	n := 0
	for {
		if n == len(*buf) {
			if n >= segment {
				return n, nil
			}
			bigger := make([]byte, min(segment, 4*len(*buf)))
			copy(bigger, *buf)
			*buf = bigger
		}
		m, err := r.Read((*buf)[n:])
		if n += m; err != nil {
			return n, err
		}
	}
}

func part(i int) string {
	const digits = "0123456789"
	out := []byte("p000000")
	for k := len(out) - 1; i > 0 && k > 0; k-- {
		out[k] = digits[i%10]
		i /= 10
	}
	return string(out)
}

// join makes one file of the parts.
func (sb *sandbox) join(ctx context.Context, tag, to string) error {
	out, err := sb.helper(ctx, helper{op: "exec", again: true, script: `[ -e ` + file(tag, "p000000") + ` ] && cat ` + file(tag, "p") + `* >` + to + ` && chmod 600 ` + to + ` && echo joined`})
	if err != nil {
		return err
	}
	if !strings.Contains(out, "joined") {
		return problem(provider.FailedPrecondition, "exec", sb.id, "the input cannot be put into the sandbox").remedy("see whether its disk is full")
	}
	return nil
}

// launch sends the request and returns when the command runs, or has ended, or
// was not started.
func (p *process) launch(ctx context.Context) error {
	p.stopBeat, p.born = p.sb.beat.begin(), time.Now()
	go p.execute()
	pause := 30 * time.Millisecond
	var late <-chan time.Time
	if p.req.Timeout > 0 {
		t := time.NewTimer(p.req.Timeout)
		defer t.Stop()
		late = t.C
	}
	ask, stop := context.WithCancel(ctx)
	defer stop()
	runs := make(chan bool, 1)
	look := func() {
		if sleep(ask, pause) {
			runs <- p.runs(ask) // not here: it may take longer than the command
		}
	}
	go look()
	for {
		select {
		case <-p.ended:
			return p.begun(ctx)
		case <-ctx.Done():
			return p.abandon(ctx)
		case <-late:
			// Not known to run at its deadline: it must not begin any more.
			if p.tombstone() == neverStarted {
				p.drop()
				return problem(provider.DeadlineExceeded, "exec", p.sb.id, "the command was not started before its deadline")
			}
			p.follow()
			return nil
		case yes := <-runs:
			if yes {
				p.follow()
				return nil
			}
			pause = min(pause*3/2, 500*time.Millisecond)
			go look()
		}
	}
}

// runs asks whether the command has its process id on record.
func (p *process) runs(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	d, err := p.sb.box.Download(ctx, file(p.run.tag, "pid"), -1)
	if err != nil {
		return false
	}
	defer func() { _ = d.Close() }()
	data, _ := io.ReadAll(io.LimitReader(d, 32))
	return len(bytes.TrimSpace(data)) > 0
}

// begun looks at a request that has ended before the command was seen to run.
func (p *process) begun(ctx context.Context) error {
	if p.failure != nil {
		f := p.sb.explain(ctx, "exec", p.sb.id, p.failure, provider.AppliedUnknown)
		if f.Applied == provider.AppliedNo {
			p.drop()
			return f
		}
		// Whether it was started is known to the sandbox alone.
		switch p.tombstone() {
		case neverStarted:
			p.drop()
			f.Applied = provider.AppliedNo
			return f
		case wasStarted:
			p.follow()
			return nil
		}
		p.drop()
		if ctx.Err() != nil {
			return ctxProblem("exec", p.sb.id, ctx.Err(), provider.AppliedUnknown)
		}
		f.Code, f.Message, f.Remedy = provider.Lost, "the answer was lost, and whether the command was started is not known", "look for its effects before running it again"
		f.Applied = provider.AppliedUnknown
		return f
	}
	word, _, _ := p.run.said(p.result.output)
	refuse := func(code provider.Code, message string) error {
		p.drop()
		return problem(code, "exec", p.sb.id, message)
	}
	switch word {
	case saidExited:
		p.follow()
		return nil
	case saidNoEnvs:
		p.drop()
		return p.sb.refuseEnvs("exec")
	case saidNoDir:
		return refuse(provider.NotFound, "the working directory is not there")
	case saidNoEnt:
		return refuse(provider.NotFound, "the command is not there")
	case saidNoExec:
		return refuse(provider.PermissionDenied, "the command cannot be executed")
	case saidNoBase:
		p.drop()
		return p.renew(ctx)
	case saidAgain:
		// A copy of the request was first; its output is to be had, its end is not.
		p.follow()
		return nil
	}
	if p.result.exited && p.result.code == -1 && strings.HasPrefix(p.result.output, "fork/exec") {
		return refuse(provider.FailedPrecondition, "the sandbox could not start its shell; the environment may be too large")
	}
	switch p.tombstone() {
	case neverStarted:
		return refuse(provider.FailedPrecondition, "the sandbox's shell did not start the command")
	case wasStarted:
		p.follow()
		return nil
	}
	p.drop()
	return problem(provider.Lost, "exec", p.sb.id, "the sandbox's answer says nothing of the command").applied(provider.AppliedUnknown).
		remedy("look for its effects before running it again")
}

// renew makes the directory that the sandbox has lost, and starts the command,
// which was not.
func (p *process) renew(ctx context.Context) error {
	if p.renewed || p.run.input != "" {
		return problem(provider.FailedPrecondition, "exec", p.sb.id, "the sandbox's "+base+" cannot be used").remedy("leave it alone, and see whether its disk is full")
	}
	if _, err := p.sb.prepare(ctx); err != nil {
		return err
	}
	p.renewed, p.result, p.failure, p.ended = true, executeResult{}, nil, make(chan struct{})
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return p.launch(ctx)
}

// abandon is a start that the caller gave up.
func (p *process) abandon(ctx context.Context) error {
	applied := provider.AppliedUnknown
	if p.tombstone() == neverStarted {
		applied = provider.AppliedNo
	} else {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		_ = p.sb.killAll(end, p.run.tag, 0)
		cancel()
	}
	p.drop()
	return ctxProblem("exec", p.sb.id, ctx.Err(), applied)
}

// drop gives up the request without following the command.
func (p *process) drop() {
	p.cancel()
	<-p.ended
	p.stopBeat()
}

// What a tombstone found out.
type fate int

const (
	unknownFate fate = iota
	neverStarted
	wasStarted
)

// tombstone puts the command's marker there, so that a request which is still on
// its way does nothing when it arrives, and says whether it was there already.
func (p *process) tombstone() fate {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 3*time.Second)
	defer cancel()
	out, err := p.sb.helper(ctx, helper{op: "exec", timeout: 3 * time.Second, again: true, script: `set -C; f=` + file(p.run.tag, "run") + `
if printf x >"$f"; then echo never; exit; fi
# Who made it may be about to write into it.
i=0; while [ -e "$f" ] && [ ! -s "$f" ] && [ $i -lt 5 ]; do sleep 0.1 || sleep 1; i=$((i+1)); done
[ ! -s "$f" ] || if [ "$(cat "$f")" = x ]; then echo never; else echo ran; fi`})
	switch {
	case err != nil:
		return unknownFate
	case strings.Contains(out, "never"):
		return neverStarted
	case strings.Contains(out, "ran"):
		return wasStarted
	}
	return unknownFate
}

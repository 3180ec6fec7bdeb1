package daytona

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// base is where this package keeps its files in a sandbox: markers, and input
// and output of running commands. Only the sandbox's user can look into it.
const base = "/tmp/.sbxhost"

// sandbox implements provider.Sandbox. It is safe for concurrent use.
type sandbox struct {
	p          *Provider
	id         string
	root       string
	box        toolbox
	hidden     []string // names in the creation environment that helpers must not have
	ports      []int
	unenforced []string
	old        bool // the daemon does not know envs
	beat       heart
}

// Format implements fmt.Formatter: its id, whatever the verb. Printing
// reads none of the fields that change, and shows none of the request's.
func (sb *sandbox) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "daytona.Sandbox["+sb.id+"]")
}

// Open implements provider.Provider.
func (p *Provider) Open(ctx context.Context, ref provider.Ref) (provider.Sandbox, error) {
	if ctx.Err() != nil {
		return nil, ctxProblem("open", ref.ID, ctx.Err(), provider.AppliedNo)
	}
	info, err := p.own(ctx, "open", ref)
	if err != nil {
		return nil, err
	}
	if dying(info.State) {
		return nil, problem(provider.NotFound, "open", ref.ID, "the sandbox is being destroyed")
	}
	sb, err := p.sandbox(ctx, "open", info)
	if err != nil {
		return nil, err
	}
	return sb, nil
}

// sandbox makes the handle of a sandbox that is known to be ours.
func (p *Provider) sandbox(ctx context.Context, op string, info sandboxInfo) (*sandbox, error) {
	address := info.ToolboxURL
	if address == "" {
		var err error
		if address, err = p.s.ToolboxURL(ctx, info.ID); err != nil {
			return nil, serviceProblem(ctx, op, info.ID, err, provider.AppliedNo)
		}
	}
	box, err := p.s.Toolbox(address, info.ID)
	if err != nil {
		return nil, err
	}
	sb := &sandbox{p: p, id: info.ID, root: info.Labels[labelRoot], box: box, old: tooOld(info.DaemonVersion),
		unenforced: splitList(info.Labels[labelUnenforced], ";")}
	for _, n := range splitList(info.Labels[labelCreate], ",") {
		if provider.ValidEnvKey(n) {
			sb.hidden = append(sb.hidden, n)
		}
	}
	for _, t := range splitList(info.Labels[labelPorts], ",") {
		if n, err := strconv.Atoi(t); err == nil {
			sb.ports = append(sb.ports, n)
		}
	}
	sb.beat.sb = sb
	p.remember(info)
	return sb, nil
}

// ready prepares a sandbox that has started, and finds out whether it can take
// values by the transport that was chosen.
func (p *Provider) ready(ctx context.Context, info sandboxInfo, req provider.CreateRequest) (*sandbox, error) {
	sb, err := p.sandbox(ctx, "create", info)
	if err != nil {
		return nil, err
	}
	if req.Transport == provider.TransportExec && sb.old {
		return nil, sb.refuseEnvs("create")
	}
	out, err := sb.prepare(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case strings.Contains(out, "noroot"):
		return nil, problem(provider.FailedPrecondition, "create", info.ID, "the root "+req.Root+" cannot be made by the sandbox's user").
			applied(provider.AppliedYes).remedy("use a root below the user's home, such as /home/daytona/workspace, or a snapshot whose user may make it")
	case !strings.Contains(out, "base"):
		return nil, problem(provider.FailedPrecondition, "create", info.ID, "the sandbox's "+base+" cannot be used").
			applied(provider.AppliedYes).remedy("use a snapshot or image with a writable /tmp and a POSIX shell with mkdir, cat and rm")
	}
	sb.old = sb.old || !strings.Contains(out, "envs")
	if req.Transport == provider.TransportExec && sb.old {
		return nil, sb.refuseEnvs("create")
	}
	return sb, nil
}

// prepare makes the root and base, and says what it found.
func (sb *sandbox) prepare(ctx context.Context) (string, error) {
	return sb.helper(ctx, helper{op: "create", again: true, env: map[string]string{"SBXHOST_PROBE": "yes"}, script: `
umask 022
mkdir -p -- ` + quote(sb.root) + ` 2>/dev/null || {
  sudo -n mkdir -p -- ` + quote(sb.root) + ` && sudo -n chown "$(id -u):$(id -g)" ` + quote(sb.root) + `; } 2>/dev/null
[ -d ` + quote(sb.root) + ` ] && [ -w ` + quote(sb.root) + ` ] || echo noroot
mkdir -m 700 -- ` + base + ` 2>/dev/null
[ -d ` + base + ` ] && [ ! -h ` + base + ` ] && [ -w ` + base + ` ] && echo base
[ "${SBXHOST_PROBE-}" = yes ] && echo envs
`})
}

func (sb *sandbox) refuseEnvs(op string) error {
	return problem(provider.Unsupported, op, sb.id, "the sandbox's daemon does not take a command's environment, so the exec transport cannot be used").
		remedy("use a snapshot with a newer daemon (0.167 or later), or ask for --transport create")
}

// Ref implements provider.Sandbox.
func (sb *sandbox) Ref() provider.Ref { return provider.Ref{ID: sb.id} }

// Status implements provider.Sandbox.
func (sb *sandbox) Status(ctx context.Context) (provider.Status, error) {
	if ctx.Err() != nil {
		return provider.Status{State: provider.StateUnknown}, ctxProblem("status", sb.id, ctx.Err(), provider.AppliedNo)
	}
	info, err := sb.p.s.GetSandbox(ctx, sb.id)
	if isGone(err) {
		return provider.Status{State: provider.StateGone}, nil
	}
	if err != nil {
		return provider.Status{State: provider.StateUnknown}, serviceProblem(ctx, "status", sb.id, err, provider.AppliedNo)
	}
	st := provider.Status{State: stateOf(info.State), Unenforced: slices.Clone(sb.unenforced)}
	if st.State != provider.StateRunning {
		st.Reason = sb.p.reason(info, provider.CreateRequest{})
	}
	return st, nil
}

// explain finds out what an error of the toolbox means. Only the control API
// knows whether the sandbox is there and runs.
func (sb *sandbox) explain(ctx context.Context, op, subject string, err error, lost provider.Applied) *fault {
	f := serviceProblem(ctx, op, subject, err, lost)
	switch statusOf(err) {
	case 401, 404, 502, 503:
	case 400:
		if f.Code != provider.FailedPrecondition {
			return f
		}
	default:
		return f
	}
	ask, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	info, getErr := sb.p.s.GetSandbox(ask, sb.id)
	switch {
	case isGone(getErr):
		f.Code, f.Message, f.Remedy, f.Err = provider.NotFound, "the sandbox is gone", "", nil
	case getErr != nil:
	case dying(info.State):
		f.Code, f.Message, f.Remedy, f.Err = provider.NotFound, "the sandbox is being destroyed", "", nil
	case info.State != "started":
		f.Code, f.Message, f.Remedy, f.Err = provider.FailedPrecondition, "the sandbox is "+shownState(info.State), "resume it first", nil
	case statusOf(err) == 404 || statusOf(err) == 400:
		// The service believes that it runs, and its machine has lost it.
		f.Code, f.Message, f.Remedy = provider.Lost, "the service has lost the sandbox, which it says is started", "destroy it and create another"
	case statusOf(err) == 401:
		f.Message = "the sandbox's toolbox refused the API key"
	case statusOf(err) == 502:
		f.Message = "the sandbox does not answer"
	}
	return f
}

func shownState(s string) string {
	if len(s) > 32 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_-") != "" {
		return "in a state that is not known"
	}
	return s
}

// helper is a script of our own: no workload, and none of its values.
type helper struct {
	op      string
	subject string
	script  string
	env     map[string]string
	again   bool // may be run twice
	timeout time.Duration
}

// helperTimeout bounds a helper script unless it says otherwise.
const helperTimeout = 2 * time.Minute

func random() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// quote makes one word of a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// helper runs a script without input, with a fixed environment, and returns what
// it printed. The names of the create transport are overridden and unset.
func (sb *sandbox) helper(ctx context.Context, h helper) (string, error) {
	if h.timeout == 0 {
		h.timeout = helperTimeout
	}
	tag := random()
	env := map[string]string{}
	unset := ""
	for _, n := range sb.hidden {
		env[n] = ""
		unset += " " + n
	}
	for k, v := range h.env {
		env[k] = v
	}
	if unset != "" {
		unset = "unset" + unset + "\n"
	}
	script := "{ [ -z \"${ZSH_VERSION-}\" ] || emulate sh\n" +
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C; export PATH LC_ALL\n" + unset +
		"printf 'sbx-begin-" + tag + "\\n'\n(\n" + h.script + "\n)\nprintf '\\nsbx-end-" + tag + "\\n'\n} </dev/null 2>/dev/null\n"
	call, cancel := context.WithTimeout(ctx, h.timeout+5*time.Second)
	defer cancel()
	res, err := sb.box.Execute(call, executeRequest{script: script, env: env, timeout: h.timeout, again: h.again})
	if err != nil {
		if ctx.Err() == nil && call.Err() != nil {
			return "", problem(provider.DeadlineExceeded, h.op, h.subject, "the sandbox does not answer").applied(provider.AppliedUnknown)
		}
		return "", sb.explain(ctx, h.op, h.subject, err, provider.AppliedUnknown)
	}
	_, out, begun := strings.Cut(res.output, "sbx-begin-"+tag+"\n")
	out, _, ended := strings.Cut(out, "\nsbx-end-"+tag)
	if !res.exited || !begun || !ended {
		return "", problem(provider.FailedPrecondition, h.op, h.subject, "the sandbox's shell did not run a script to its end").
			applied(provider.AppliedUnknown).remedy("use a snapshot or image with a POSIX shell")
	}
	return out, nil
}

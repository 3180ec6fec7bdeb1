package providertest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// proof is one destination and what must arrive there.
type proof struct {
	name, shape, value string
}

// proofs are values of every shape that transports get wrong, each with a canary
// in it. The values are never printed. What is fixed in them is short and has
// something random beside it: else a harness that looks for pieces of a value would
// find what another check left where it may be.
func proofs() []proof {
	r := random(12)
	c := "canary-" + r
	out := []proof{
		{"KIT_PLAIN", "plain", c},
		{"KIT_NEWLINE", "a newline", c + "\nsecond line " + c},
		{"KIT_TRAILING", "trailing newlines", c + "\n\n"},
		{"KIT_LEADING", "a leading newline", "\n" + c},
		{"KIT_QUOTES", "quotes", `'` + c + `" ` + "`" + c + `'"'` + r + `"'`},
		{"KIT_DOLLAR", "dollars", "$HOME " + r + " ${PATH} " + r + " $(id) $$ " + c + " $1"},
		{"KIT_BACKSLASH", "backslashes", c + `\n\0\\ \`},
		{"KIT_UTF8", "UTF-8", "grüße " + r + " 世界 " + r + " 🙂 " + c},
		{"KIT_SPACES", "spaces at the edges", "  " + c + "\t "},
		{"KIT_EQUALS", "equals signs", "=" + c + "=x=="},
		{"KIT_CONTROL", "control characters", "\x01\x1b[31m" + r + c + "\x7f\r\b"},
		{"KIT_PERCENT", "per cent signs", "%s%d%n%%" + r + "%" + c},
		{"KIT_JSON", "JSON", `{"k":"` + c + `","` + r + `":[1,null]}`},
		{"KIT_GLOB", "glob characters", "* ? " + r + " [a-z] ~ " + r + " {a,b} ! " + r + " # & ; | " + r + " < > " + c},
		{"KIT_DASH", "a leading dash", "-n " + c},
		{"KIT_EMPTY", "the empty value", ""},
	}
	big := strings.Repeat(c+"\n", (64<<10)/(len(c)+1)+1)[:64<<10]
	return append(out, proof{"KIT_LARGE", "64 KiB", big})
}

func envOf(ps []proof) secret.Env {
	m := map[string]secret.Value{}
	for _, p := range ps {
		m[p.name] = secret.FromString(p.value)
	}
	return secret.NewEnv(m)
}

func names(ps []proof) []string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = p.name
	}
	return out
}

// protectedSandbox makes a sandbox with protected values by a transport, and a
// function that adapts an exec so that its process gets them.
func (t *T) protectedSandbox(tr provider.Transport, ps []proof, mods ...func(*provider.CreateRequest)) (provider.Sandbox, execMod) {
	sb := t.create(append([]func(*provider.CreateRequest){func(r *provider.CreateRequest) {
		r.Transport, r.ProtectedNames = tr, names(ps)
		if tr == provider.TransportCreate {
			r.Protected = envOf(ps)
		}
	}}, mods...)...)
	if tr == provider.TransportExec {
		return sb, withProtected(envOf(ps))
	}
	return sb, func(*provider.ExecRequest) {}
}

// prove checks that every value arrives exactly.
func (t *T) prove(sb provider.Sandbox, ps []proof, give execMod) {
	for _, p := range ps {
		o := t.run(sb, t.h.Commands.PrintEnv(p.name), give)
		t.judge(p, o)
	}
}

// judge compares without ever printing a value.
func (t *T) judge(p proof, o outcome) {
	switch {
	case o.Kind == provider.ExitExited && o.Code == 3:
		t.Errorf("%s (%s): the variable is not set in the command", p.name, p.shape)
	case o.Kind != provider.ExitExited || o.Code != 0:
		t.Errorf("%s (%s): printing the variable ended as %s with code %d", p.name, p.shape, o.Kind, o.Code)
	case o.stdout != p.value:
		at := 0
		for at < len(o.stdout) && at < len(p.value) && o.stdout[at] == p.value[at] {
			at++
		}
		t.Errorf("%s (%s): the value did not arrive byte for byte: %d bytes instead of %d, first difference at byte %d",
			p.name, p.shape, len(o.stdout), len(p.value), at)
	}
}

// absent checks that a command has none of the names, nor any of the values.
func (t *T) absent(sb provider.Sandbox, ps []proof, what string, mods ...execMod) {
	for _, p := range ps {
		if o := t.run(sb, t.h.Commands.PrintEnv(p.name), mods...); o.Code != 3 {
			t.Errorf("%s: %s is set", what, p.name)
		}
	}
	if t.h.Commands.Environ != nil {
		o := t.run(sb, t.h.Commands.Environ(), mods...)
		t.clean(ps, "the environment of "+what, []byte(o.stdout+o.stderr))
	}
}

// clean checks that data contains none of the values.
func (t *T) clean(ps []proof, where string, data []byte) {
	for _, p := range ps {
		// Short values, the empty one for example, could be there by chance.
		if len(p.value) >= 16 && bytes.Contains(data, []byte(p.value)) {
			t.Errorf("%s contains the value of %s", where, p.name)
		}
	}
}

// transports runs f for each declared transport.
func (t *T) transports(f func(tr provider.Transport)) {
	for _, tr := range t.d.Transports {
		t.Logf("transport %s", tr)
		f(tr.Transport)
	}
}

func envChecks() []check {
	return []check{
		{name: "env/exec-exact", rule: "values given by the exec transport arrive byte for byte", needs: []need{execTransport, printEnv}, run: func(t *T) {
			ps := proofs()
			sb, give := t.protectedSandbox(provider.TransportExec, ps)
			t.prove(sb, ps, give)
		}},
		{name: "env/create-exact", rule: "values given by the create transport arrive byte for byte in every command", needs: []need{createTransport, printEnv}, run: func(t *T) {
			ps := proofs()
			sb, give := t.protectedSandbox(provider.TransportCreate, ps)
			t.prove(sb, ps, give)
		}},
		{name: "env/exec-only-there", rule: "values given by the exec transport are in that command alone: the next one, without them, has none", needs: []need{execTransport, printEnv}, run: func(t *T) {
			ps := proofs()
			sb, give := t.protectedSandbox(provider.TransportExec, ps)
			t.absent(sb, ps, "a command before")
			t.prove(sb, ps[:1], give)
			t.absent(sb, ps, "the next command")
		}},
		{name: "env/other-sandbox", rule: "protected values do not reach another sandbox", needs: []need{anyTransport, printEnv}, run: func(t *T) {
			t.transports(func(tr provider.Transport) {
				ps := proofs()[:2]
				sb, give := t.protectedSandbox(tr, ps)
				other := t.create()
				t.prove(sb, ps, give)
				t.absent(other, ps, "a command in another sandbox")
			})
		}},
		{name: "env/tty", rule: "with a TTY values arrive too, and the terminal does not echo them", needs: []need{execTransport, terminal, printEnv}, run: func(t *T) {
			ps := proofs()[:1]
			sb, give := t.protectedSandbox(provider.TransportExec, ps)
			tty := func(r *provider.ExecRequest) {
				r.TTY, r.Cols, r.Rows, r.Stdin = true, 200, 24, provider.StdinLive
			}
			t.judge(ps[0], t.run(sb, t.h.Commands.PrintEnv(ps[0].name), give, tty))
			o := t.run(sb, t.h.Commands.Print("quiet", ""), give, tty)
			t.clean(ps, "what the terminal showed of a command that prints no value", []byte(o.stdout))
		}},
		{name: "env/with-stdin", rule: "values arrive beside the command's own input, which stays complete", needs: []need{execTransport, stdinGiven, cat}, run: func(t *T) {
			ps := proofs()
			sb, give := t.protectedSandbox(provider.TransportExec, ps)
			o := t.run(sb, t.h.Commands.Cat(), give, func(r *provider.ExecRequest) {
				r.Stdin, r.Input = provider.StdinUpfront, strings.NewReader("the input\n")
			})
			t.wantExit(o, "copying the input", 0)
			if o.stdout != "the input\n" {
				t.Errorf("the command read %d bytes of input, %d were given", len(o.stdout), len("the input\n"))
			}
		}},
		{name: "env/elsewhere", rule: "protected values are in nothing but the workload: not in ref, list, status, files, archive, ports, logs", needs: []need{anyTransport, printEnv}, run: func(t *T) {
			t.transports(func(tr provider.Transport) { t.elsewhere(tr) })
		}},
		{name: "env/errors", rule: "no error contains a protected value", needs: []need{execTransport}, run: func(t *T) {
			ps := proofs()
			sb, give := t.protectedSandbox(provider.TransportExec, ps)
			for what, mod := range map[string]execMod{
				"a missing command": func(r *provider.ExecRequest) { r.Args, r.Shell = []string{"/no/such/command"}, "" },
				"a missing dir":     withDir("no/such/dir"),
				"a bad literal":     func(r *provider.ExecRequest) { r.Env = map[string]string{"A-B": "x"} },
				"a doubled name":    func(r *provider.ExecRequest) { r.Env = map[string]string{ps[0].name: "literal"} },
				"a value with NUL": func(r *provider.ExecRequest) {
					r.Secrets = secret.NewEnv(map[string]secret.Value{"KIT_NUL": secret.FromString(ps[0].value + "\x00")})
				},
			} {
				ctx, cancel := t.call()
				_, err := sb.Exec(ctx, t.exec(t.h.Commands.Exit(0), give, mod))
				cancel()
				if err == nil {
					t.Errorf("Exec with %s succeeded", what)
					continue
				}
				t.clean(ps, "the error of Exec with "+what, []byte(fmt.Sprintf("%v %+v %#v", err, err, err)))
			}
		}},
		{name: "env/records", rule: "with the exec transport nothing the provider stores contains a value", needs: []need{execTransport,
			probe("Records", func(h *Harness) bool { return h.Records != nil })}, run: func(t *T) {
			ps, control := proofs(), "control-"+random(12)
			sb, give := t.protectedSandbox(provider.TransportExec, ps,
				func(r *provider.CreateRequest) { r.Labels["control"] = control })
			if t.h.Commands.PrintSleep != nil {
				t.started(sb, t.h.Commands.PrintSleep("on", 300*time.Second, marker()), "on", give)
			}
			t.run(sb, t.h.Commands.Exit(0), give)
			if len(t.h.Records(t, sb, []byte(control))) == 0 {
				t.Errorf("the harness's Records does not find a label's value: it would not find a leak either")
			}
			for _, p := range ps {
				if len(p.value) < 16 {
					continue
				}
				if places := t.h.Records(t, sb, []byte(p.value)); len(places) > 0 {
					t.Errorf("the value of %s is stored in %s", p.name, strings.Join(places, ", "))
				}
			}
		}},
		{name: "env/argv", rule: "no command line on the machine contains a value", needs: []need{anyTransport, printSleep,
			probe("HostArgv", func(h *Harness) bool { return h.HostArgv })}, run: func(t *T) {
			t.transports(func(tr provider.Transport) {
				ps, m := proofs()[:1], marker()
				sb, give := t.protectedSandbox(tr, ps)
				t.started(sb, t.h.Commands.PrintSleep("on", 300*time.Second, m), "on", give)
				// It may be between two programs, or not begun where output is not live.
				n, err := hostArgv([]byte(m))
				for end := time.Now().Add(t.soon()); err == nil && n == 0 && time.Now().Before(end); n, err = hostArgv([]byte(m)) {
					time.Sleep(20 * time.Millisecond)
				}
				if err != nil || n == 0 {
					t.Errorf("the command's own command line is not visible in /proc: a leak would not be either")
				}
				if n, _ := hostArgv([]byte(ps[0].value)); n > 0 {
					t.Errorf("%d command lines contain the value of %s (transport %s)", n, ps[0].name, tr)
				}
			})
		}},
		{name: "env/isolated-execs", rule: "with isolatesExecs a command cannot read another's environment", needs: []need{execTransport, printSleep, realShell,
			declared("isolatesExecs", func(d provider.Description) bool { return d.IsolatesExecs })}, run: func(t *T) {
			ps := proofs()[:1]
			sb, give := t.protectedSandbox(provider.TransportExec, ps)
			t.started(sb, t.h.Commands.PrintSleep("on", 300*time.Second, marker()), "on", give)
			o := t.run(sb, t.h.Commands.Script(`cat /proc/[0-9]*/environ 2>/dev/null; :`))
			t.clean(ps, "what another command could read in /proc/PID/environ", []byte(o.stdout))
		}},
		{name: "env/overlap", rule: "a name in two of Env, Protected and Secrets is InvalidArgument, and nothing is started", needs: []need{execTransport, appends}, run: func(t *T) {
			ps := proofs()[:1]
			sb, give := t.protectedSandbox(provider.TransportExec, ps)
			ctx, cancel := t.call()
			defer cancel()
			_, err := sb.Exec(ctx, t.exec(t.h.Commands.Append("started", "x"), give, func(r *provider.ExecRequest) {
				r.Env = map[string]string{ps[0].name: "literal"}
			}))
			t.wantCode(err, "Exec with a literal of a protected name", provider.InvalidArgument)
			if _, err := t.read(sb, "started"); err == nil {
				t.Errorf("a refused request was started all the same")
			}
		}},
		{name: "env/undeclared", rule: "protected values by a transport that is not declared are Unsupported, and nothing is started", needs: []need{
			undeclared("the exec transport", func(d provider.Description) bool { return d.Offers(provider.TransportExec) }), appends}, run: func(t *T) {
			sb := t.create()
			ctx, cancel := t.call()
			defer cancel()
			_, err := sb.Exec(ctx, t.exec(t.h.Commands.Append("started", "x"), withProtected(envOf(proofs()[:1]))))
			t.wantCode(err, "Exec with protected values", provider.Unsupported)
			if _, err := t.read(sb, "started"); err == nil {
				t.Errorf("a refused request was started all the same")
			}
		}},
	}
}

// elsewhere looks for values where they must not be.
func (t *T) elsewhere(tr provider.Transport) {
	ps := proofs()
	var req provider.CreateRequest
	sb, give := t.protectedSandbox(tr, ps, func(r *provider.CreateRequest) {
		if t.d.Features.Ports != provider.SupportNone {
			r.Ports = []int{8080}
		}
		req = *r
	})
	t.run(sb, t.h.Commands.Exit(0), give)
	look := func(where string, v any) { t.clean(ps, where, []byte(fmt.Sprintf("%+v", v))) }
	look("Ref", sb.Ref())
	t.clean(ps, "Ref.Data", sb.Ref().Data)
	ctx, cancel := t.call()
	defer cancel()
	if st, err := sb.Status(ctx); err == nil {
		look("Status", st)
	}
	if !t.h.CannotList {
		for _, r := range t.list(provider.Query{Owner: t.owner, Session: req.SessionID}) {
			look("List", r)
			if got := r.Labels[provider.LabelProtected]; got != "1" {
				t.Errorf("label %s of a protected sandbox is %q, it must be 1", provider.LabelProtected, got)
			}
		}
	}
	t.cleanFiles(ctx, sb, ps, ".")
	var b bytes.Buffer
	if a, ok := sb.(provider.Archiver); ok && a.Export(ctx, &b) == nil {
		t.clean(ps, "the exported archive", b.Bytes())
	}
	b.Reset()
	if l, ok := sb.(provider.Logs); ok && l.Logs(ctx, &b) == nil {
		t.clean(ps, "the log", b.Bytes())
	}
	if p, ok := sb.(provider.Ports); ok && len(req.Ports) > 0 {
		if e, err := p.Port(ctx, 8080); err == nil {
			look("Port", e)
		}
	}
}

// cleanFiles reads every file under dir.
func (t *T) cleanFiles(ctx context.Context, sb provider.Sandbox, ps []proof, dir string) {
	infos, err := sb.Files().List(ctx, dir)
	t.must(err, "List of "+dir)
	for _, i := range infos {
		t.clean(ps, "a file's name", []byte(i.Path+i.Target))
		switch {
		case i.Mode.IsDir():
			t.cleanFiles(ctx, sb, ps, i.Path)
		case i.Mode.IsRegular():
			if data, err := t.read(sb, i.Path); err == nil {
				t.clean(ps, "the file "+i.Path, []byte(data))
			}
		}
	}
}

func secretChecks() []check {
	given := probe("request secrets", func(h *Harness) bool { return !h.NoRequestSecrets })
	withSecrets := func(ps []proof) execMod { return func(r *provider.ExecRequest) { r.Secrets = envOf(ps) } }
	return []check{
		{name: "secrets/exact", rule: "request-scoped values arrive byte for byte", needs: []need{given, printEnv}, run: func(t *T) {
			ps := proofs()
			t.prove(t.create(), ps, withSecrets(ps))
		}},
		{name: "secrets/one-exec", rule: "request-scoped values are in their command alone; the next starts from nothing", needs: []need{given, printEnv}, run: func(t *T) {
			ps := proofs()[:3]
			sb := t.create()
			t.prove(sb, ps, withSecrets(ps))
			t.absent(sb, ps, "the next command")
			other := slices.Clone(ps[:1])
			other[0].value = "second-" + random(12)
			t.prove(sb, other, withSecrets(other))
		}},
		{name: "secrets/beside", rule: "request-scoped and protected values and literals arrive side by side", needs: []need{given, execTransport, printEnv}, run: func(t *T) {
			ps := proofs()
			protected, request := ps[:4], ps[4:8]
			sb, give := t.protectedSandbox(provider.TransportExec, protected)
			literal := map[string]string{"KIT_LITERAL": "literal"}
			all := func(r *provider.ExecRequest) {
				give(r)
				withSecrets(request)(r)
				r.Env = maps.Clone(literal)
			}
			t.prove(sb, ps[:8], all)
			t.wantText("the literal", t.run(sb, t.h.Commands.PrintEnv("KIT_LITERAL"), all).stdout, "literal")
		}},
		{name: "secrets/records", rule: "nothing the provider stores contains a request-scoped value", needs: []need{given,
			probe("Records", func(h *Harness) bool { return h.Records != nil })}, run: func(t *T) {
			ps := proofs()
			sb := t.create()
			t.run(sb, t.h.Commands.Exit(0), withSecrets(ps))
			for _, p := range ps {
				if len(p.value) < 16 {
					continue
				}
				if places := t.h.Records(t, sb, []byte(p.value)); len(places) > 0 {
					t.Errorf("the value of %s is stored in %s", p.name, strings.Join(places, ", "))
				}
			}
		}},
		{name: "secrets/refused", rule: "a provider that cannot deliver request-scoped values returns Unsupported before anything is started", needs: []need{
			func(s *suite) (Status, string) {
				if s.h.NoRequestSecrets {
					return "", ""
				}
				return Undeclared, "nothing to refuse: the provider delivers them"
			}, appends}, run: func(t *T) {
			sb := t.create()
			ctx, cancel := t.call()
			defer cancel()
			_, err := sb.Exec(ctx, t.exec(t.h.Commands.Append("started", "x"), withSecrets(proofs()[:1])))
			t.wantCode(err, "Exec with request secrets", provider.Unsupported)
			if _, err := t.read(sb, "started"); err == nil {
				t.Errorf("a refused request was started all the same")
			}
		}},
	}
}

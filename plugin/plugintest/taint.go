package plugintest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/internal/leaktest"
	"github.com/sbxhost/sbxhost/plugin/internal/hook"
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// canaries are values that are awkward for encoders, one variable each.
func canaries() map[string]string {
	return map[string]string{
		"CANARY_PLAIN":   "tok_" + word(28),
		"CANARY_QUOTES":  word(8) + `"` + word(8) + `\` + word(8) + `'` + word(8),
		"CANARY_LINES":   word(14) + "\n" + word(16),
		"CANARY_UTF8":    word(10) + "äöü€" + word(10),
		"CANARY_URL":     word(8) + ":/?#&=+% " + word(12),
		"CANARY_DOLLAR":  word(8) + "${HOME}$(" + word(12),
		"CANARY_BARE_40": word(40),
	}
}

// witness sees what the plugin sees, and looks for values in it.
type witness struct {
	mu       sync.Mutex
	known    []leaktest.Canary
	scanner  leaktest.Scanner
	captured map[string]string
	hits     map[string]string // by canary and place: the form
	marker   string            // something the plugin must see
	saw      map[string]bool   // kinds of places where the marker was seen
	bytes    int64
	before   func() // called once, at the next request of a create
	calls    int
}

func newWitness(known map[string]string, marker string) *witness {
	w := &witness{captured: map[string]string{}, hits: map[string]string{}, marker: marker, saw: map[string]bool{}}
	for name, v := range known {
		w.known = append(w.known, leaktest.Known(name, v))
	}
	w.scanner = leaktest.NewScanner(w.known)
	return w
}

// look searches data. kind says what it is, and stands in reports.
func (w *witness) look(kind string, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += int64(len(data))
	if bytes.Contains(data, []byte(w.marker)) {
		w.saw[kind] = true
	}
	c := &leaktest.Corpus{}
	c.Add(kind, data)
	hits, err := w.scanner.Find(c)
	if err != nil {
		w.hits["scan"] = err.Error()
	}
	for _, h := range hits {
		w.hits[h.Canary+" in "+kind] = h.Form
	}
}

// learn adds a token that the vendor issued.
func (w *witness) learn(name string, token secret.Value) {
	v := string(token.Reveal())
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, known := range w.captured {
		if known == v && strings.HasPrefix(n, name) {
			return
		}
	}
	id := fmt.Sprintf("%s #%d", name, len(w.captured)+1)
	w.captured[id] = v
	w.known = append(w.known, leaktest.Known("capture "+id, v))
	w.scanner = leaktest.NewScanner(w.known)
}

func (w *witness) hooks() *hook.Hooks {
	return &hook.Hooks{
		Import: func(op abi.Op, name string) (int64, bool) {
			if op != abi.OpCreate || name != "http_open" {
				return 0, false
			}
			w.mu.Lock()
			f := w.before
			w.before = nil
			w.mu.Unlock()
			if f != nil {
				f()
			}
			return 0, false
		},
		After: func(op abi.Op, memory []byte, _ int64) {
			w.mu.Lock()
			w.calls++
			w.mu.Unlock()
			w.look("memory after "+op.String(), memory)
		},
		Captured: w.learn,
		Shown:    w.look,
	}
}

// taint is the proof that nothing the plugin can see holds a value.
func (k *kit) taint(ctx context.Context) {
	const rule = "no value, credential or captured token is in any byte that the plugin can see, in any form"
	if !k.wanted("taint/") && len(k.opts.Only) > 0 {
		return
	}
	values := canaries()
	known := map[string]string{}
	for n, v := range values {
		known["value "+n] = v
	}
	if k.fake != nil {
		for n, v := range k.fake.hello.Credentials {
			known["credential "+n] = v
		}
	}
	req := k.createRequest()
	w := newWitness(known, req.SessionID)
	var logs lockedBuffer
	used := map[string]bool{}
	ran := false
	k.check(ctx, "taint/run", "the operations of the proof work", 3*time.Minute, func(t *t) {
		p := k.fresh(t, w.hooks(), w.look, slog.New(slog.NewJSONHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
		k.taintFlow(t, p, w, req, values, used)
		ran = true
	})
	w.look("log", logs.bytes())
	k.check(ctx, "taint/control", "the search can see: every canary is in what the vendor received, and the session's id in what the plugin saw", time.Minute, func(t *t) {
		k.control(t, w, values, used)
	})
	groups := []struct{ name, prefix, none string }{
		{"taint/values", "value ", "the plugin can be given no values"},
		{"taint/credentials", "credential ", "the manifest names no credentials"},
		{"taint/captures", "capture ", "the manifest captures nothing"},
	}
	for _, g := range groups {
		k.check(ctx, g.name, rule, time.Minute, func(t *t) {
			w.mu.Lock()
			defer w.mu.Unlock()
			n := 0
			for _, c := range w.known {
				if strings.HasPrefix(c.Name, g.prefix) {
					n++
				}
			}
			switch {
			case !ran || w.calls == 0:
				t.leave(NotProved, "the operations of the proof did not work")
			case g.name == "taint/captures" && len(k.m.Captures) > 0 && n == 0:
				t.leave(NotProved, "the vendor issued no token")
			case n == 0:
				t.leave(NotDeclared, "%s", g.none)
			}
			for place, form := range w.hits {
				if strings.HasPrefix(place, g.prefix) {
					t.errorf("%s, as %s", place, form)
				}
			}
			t.notef("%d canaries, %.1f MiB in %d calls", n, float64(w.bytes)/(1<<20), w.calls)
		})
	}
	k.check(ctx, "taint/errors", "the errors that callers get hold none either", time.Minute, func(t *t) {
		if !ran {
			t.leave(NotProved, "the operations of the proof did not work")
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for place, form := range w.hits {
			if strings.HasSuffix(place, " in an error") || strings.HasSuffix(place, " in log") {
				t.errorf("%s, as %s", place, form)
			}
		}
	})
}

// taintFlow carries values through everything the plugin declares, and lets the
// vendor echo them.
func (k *kit) taintFlow(t *t, p loaded, w *witness, req provider.CreateRequest, values map[string]string, used map[string]bool) {
	ctx := t.ctx
	note := func(err error) {
		for ; err != nil; err = errors.Unwrap(err) {
			w.look("an error", []byte(err.Error()))
			w.look("an error", fmt.Appendf(nil, "%+v %#v", err, err))
		}
	}
	secrets := map[string]secret.Value{}
	for n, v := range values {
		secrets[n] = secret.FromString(v)
	}
	env := secret.NewEnv(secrets)
	offers := func(want provider.Transport) bool { return k.desc.Offers(want) }
	q := req
	if len(k.desc.Transports) > 0 {
		q.Labels[provider.LabelProtected] = "1"
	}
	protectedExec := secret.Env{}
	switch {
	case offers(provider.TransportCreate):
		q.Transport, q.Protected, q.ProtectedNames = provider.TransportCreate, env, env.Names()
		used["create"] = true
	case offers(provider.TransportExec):
		q.Transport, q.ProtectedNames = provider.TransportExec, env.Names()
	}
	if offers(provider.TransportExec) {
		protectedExec = env
		used["exec"] = true
	}
	sb, err := p.Create(ctx, q)
	t.must(err, "Create")
	world := &world{p: p, req: q, sb: sb}
	defer k.tear(t, world)
	_, err = sb.Status(ctx)
	note(err)

	protect := func(r *provider.ExecRequest) { r.Protected = protectedExec }
	echo := func(kind string, f func()) {
		if k.fake == nil {
			return
		}
		for _, status := range []string{"200", "400", "500"} {
			inject := func() {
				if err := k.fake.inject(ctx, fakevendor.Fault{Kind: fakevendor.FaultEcho, Arg: status, Times: 8}); err != nil {
					t.errorf("%s: %s", kind, err)
				}
			}
			if kind == "create" {
				// Create looks for the sandbox first, which must work.
				w.mu.Lock()
				w.before = inject
				w.mu.Unlock()
			} else {
				inject()
			}
			f()
			k.calm(ctx)
		}
	}
	short := func(f func(ctx context.Context)) { within(ctx, 5*time.Second, f) }
	if k.m.Has("exec") && k.opts.Words != nil {
		o, err := k.say(ctx, sb, "ok")
		note(err)
		if err != nil || o.stdout != "ok" {
			t.errorf("a command failed: %q, %v", o.stdout, err)
		}
	}
	if k.m.Has("exec") && k.opts.Words == nil {
		script := `for n in $NAMES; do eval "printf %s \"\$$n\""; done; printenv | rev >&2; printenv CANARY_PLAIN | base64`
		o, err := sh(ctx, sb, script, protect, func(r *provider.ExecRequest) { r.Env["NAMES"] = strings.Join(env.Names(), " ") })
		note(err)
		if err != nil {
			t.errorf("a command failed: %s", describeError(err))
		} else if used["exec"] || used["create"] {
			for n, v := range values {
				if !strings.Contains(o.stdout, v) {
					t.errorf("the command did not get %s exactly", n)
				}
			}
		}
		echo("exec", func() {
			short(func(ctx context.Context) { _, err := sh(ctx, sb, "true", protect); note(err) })
		})
		_, err = sh(ctx, sb, "exit 3", protect)
		note(err)
		if k.m.Has("input") {
			_, err := liveInput(ctx, sb, values["CANARY_PLAIN"], protect)
			note(err)
		}
	}
	if k.m.Has("write") {
		note(sb.Files().Write(ctx, "canary", strings.NewReader(values["CANARY_PLAIN"]+values["CANARY_QUOTES"]), provider.WriteOptions{}))
		used["file"] = true
		echo("write", func() {
			short(func(ctx context.Context) {
				note(sb.Files().Write(ctx, "canary", strings.NewReader(values["CANARY_PLAIN"]), provider.WriteOptions{}))
			})
		})
	}
	if k.m.Has("read") {
		got, err := readFile(ctx, sb, "canary")
		note(err)
		if used["file"] && err == nil && !strings.Contains(got, values["CANARY_PLAIN"]) && k.fake == nil {
			t.errorf("the file's content is not what was written")
		}
		_, err = readFile(ctx, sb, "missing")
		note(err)
	}
	if k.lists {
		_, err := p.List(ctx, provider.Query{Owner: owner})
		note(err)
	}
	echo("create", func() {
		short(func(ctx context.Context) {
			again := k.createRequest()
			again.Labels[provider.LabelProtected] = q.Labels[provider.LabelProtected]
			again.Transport, again.Protected, again.ProtectedNames = q.Transport, q.Protected, q.ProtectedNames
			if sb, err := p.Create(ctx, again); err != nil {
				note(err)
			} else {
				note(p.Destroy(ctx, sb.Ref()))
			}
		})
	})
}

// liveInput sends text to a command that reads it.
func liveInput(ctx context.Context, sb provider.Sandbox, text string, change ...func(*provider.ExecRequest)) (string, error) {
	var out lockedBuffer
	q := provider.ExecRequest{ID: word(16), Args: []string{"/bin/cat"}, Env: map[string]string{}, Stdin: provider.StdinLive, Stdout: &out, Stderr: &lockedBuffer{}, Timeout: opTimeout}
	for _, f := range change {
		f(&q)
	}
	p, err := sb.Exec(ctx, q)
	if err != nil {
		return "", err
	}
	_, err = p.Stdin().Write([]byte(text))
	if cerr := p.Stdin().Close(); err == nil {
		err = cerr
	}
	if _, werr := p.Wait(ctx); err == nil {
		err = werr
	}
	return string(out.bytes()), err
}

// control proves that the search would have found what it looked for.
func (k *kit) control(t *t, w *witness, values map[string]string, used map[string]bool) {
	w.mu.Lock()
	saw, known := w.saw, w.known
	w.mu.Unlock()
	if !saw["request"] {
		t.errorf("the session's id was not seen in any request: the traffic was not searched")
	}
	inMemory := false
	for kind := range saw {
		inMemory = inMemory || strings.HasPrefix(kind, "memory after ")
	}
	if !inMemory {
		t.errorf("the session's id was not seen in memory: memory was not searched")
	}
	if k.fake == nil {
		if len(k.desc.Transports) > 0 {
			t.errorf("there is no fake that could have received a value")
		}
		return
	}
	requests, err := k.fake.requests(t.ctx)
	t.must(err, "asking the fake")
	c := &leaktest.Corpus{}
	for _, r := range requests {
		c.Add("request", r.Body)
		for name, vs := range r.Header {
			c.Add("header "+name, []byte(strings.Join(vs, "\n")))
		}
		c.Add("url", []byte(r.URL))
	}
	hits, err := leaktest.Find(known, c)
	t.must(err, "searching what the fake received")
	found := map[string]bool{}
	for _, h := range hits {
		found[h.Canary] = true
	}
	for _, c := range known {
		name := strings.TrimPrefix(c.Name, "value ")
		_, isValue := values[name]
		switch {
		case found[c.Name]:
		case isValue && !used["create"] && !used["exec"]:
		case strings.HasPrefix(c.Name, "capture "):
			// That the host took it out of a reply shows that it was there.
		default:
			t.errorf("the vendor did not receive %s: the proof says nothing about it", c.Name)
		}
	}
}

// lockedBuffer is a buffer that several goroutines may write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}

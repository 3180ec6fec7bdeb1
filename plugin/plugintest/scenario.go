package plugintest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/provider"
)

// owner is the owner label of everything the kit makes.
const owner = "plugintest"

func word(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	const alphabet = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
	for i := range b {
		b[i] = alphabet[int(b[i])%len(alphabet)]
	}
	return string(b)
}

func session() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// createRequest is a request that asks for nothing special.
func (k *kit) createRequest() provider.CreateRequest {
	s := session()
	q := provider.CreateRequest{
		SessionID: s, Name: provider.NamePrefix + s, Digest: "sha256:" + s, Root: "/workspace", Network: k.desc.DefaultNetwork, Start: "idle",
		Labels: map[string]string{
			provider.LabelOwner: owner, provider.LabelEpoch: "1", provider.LabelSession: s, provider.LabelAttempt: word(16), provider.LabelDigest: "sha256:" + s, provider.LabelProtected: "0",
		},
	}
	if k.takesEnvironment() {
		q.Environment = map[string]string{"PLAIN": "literal"}
	}
	return q
}

// takesEnvironment reports whether a request of the manifest has a place for the
// sandbox's environment.
func (k *kit) takesEnvironment() bool {
	for i := range k.m.Routes {
		r := &k.m.Routes[i]
		if r.Request.EnvPointer != "" || slices.ContainsFunc(r.Request.Slots, func(s spec.Slot) bool { return s.From == "environment" || s.From == "exec.environment" }) {
			return true
		}
	}
	return false
}

// execOut is how a command ended and what it wrote.
type execOut struct {
	provider.Exit
	stdout, stderr string
}

// errLost says that how a command ended is not known.
var errLost = errors.New("the outcome of the command is not known")

// sh runs a shell script in a sandbox and waits for it.
func sh(ctx context.Context, sb provider.Sandbox, script string, change ...func(*provider.ExecRequest)) (execOut, error) {
	return runIn(ctx, sb, []string{"/bin/sh", "-c", script}, change...)
}

// runIn runs a command in a sandbox and waits for it.
func runIn(ctx context.Context, sb provider.Sandbox, args []string, change ...func(*provider.ExecRequest)) (execOut, error) {
	var stdout, stderr bytes.Buffer
	q := provider.ExecRequest{ID: word(16), Args: args, Env: map[string]string{}, Stdin: provider.StdinNone, Stdout: &stdout, Stderr: &stderr, Timeout: opTimeout}
	for _, f := range change {
		f(&q)
	}
	p, err := sb.Exec(ctx, q)
	if err != nil {
		return execOut{}, err
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTimeout)
		defer cancel()
		_ = p.Kill(clean, 0) // the fake ends it with the sandbox otherwise
		return execOut{}, err
	}
	out := execOut{exit, stdout.String(), stderr.String()}
	if exit.Kind == provider.ExitLost {
		return out, errLost
	}
	return out, nil
}

// world is a sandbox and what was put into it.
type world struct {
	p    loaded
	req  provider.CreateRequest
	sb   provider.Sandbox
	file string // a file with known content, "" when none could be made
}

const fileContent = "content of the file\n"

// action is one declared operation, exercised. run reports the operation's error,
// and as a lie what it claimed and was not so.
type action struct {
	op     abi.Op
	fresh  bool // changes the sandbox so that each run needs a new one
	create bool // makes the sandbox itself
	run    func(ctx context.Context, k *kit, w *world) (lie string, err error)
}

// actions returns what the manifest declares, of the operations that can be
// asked for by themselves.
func (k *kit) actions() []action {
	all := []action{
		{op: abi.OpCreate, create: true, fresh: true, run: func(ctx context.Context, k *kit, w *world) (string, error) {
			sb, err := w.p.Create(ctx, w.req)
			if err != nil {
				return "", err
			}
			w.sb = sb
			return "", nil
		}},
		{op: abi.OpStatus, run: func(ctx context.Context, _ *kit, w *world) (string, error) {
			s, err := w.sb.Status(ctx)
			if err == nil && s.State != provider.StateRunning && s.State != provider.StateUnknown {
				return "the sandbox is " + string(s.State), nil
			}
			return "", err
		}},
		{op: abi.OpExec, run: func(ctx context.Context, k *kit, w *world) (string, error) {
			if k.opts.Words != nil {
				o, err := k.say(ctx, w.sb, "ok")
				if err == nil && o.Kind == provider.ExitExited && (o.Code != 0 || o.stdout != "ok") {
					return "the command ended with its own code and output", nil
				}
				return "", err
			}
			o, err := sh(ctx, w.sb, "printf once >> marks; printf ok; exit 7")
			if err == nil && o.Kind == provider.ExitExited && (o.Code != 7 || o.stdout != "ok") {
				return "the command ended with its own code and output", nil
			}
			return "", err
		}},
		{op: abi.OpList, run: func(ctx context.Context, _ *kit, w *world) (string, error) {
			rs, err := w.p.List(ctx, provider.Query{Owner: owner, Session: w.req.SessionID})
			if err == nil && (len(rs) != 1 || rs[0].Ref.ID != w.sb.Ref().ID) {
				return "the list is complete", nil
			}
			return "", err
		}},
		{op: abi.OpWrite, run: func(ctx context.Context, k *kit, w *world) (string, error) {
			content := word(64)
			if err := w.sb.Files().Write(ctx, "written", strings.NewReader(content), provider.WriteOptions{}); err != nil {
				return "", err
			}
			if k.m.Has("read") {
				k.calm(ctx)
				if got, err := readFile(ctx, w.sb, "written"); err != nil || got != content {
					return "the file was written", nil
				}
			}
			return "", nil
		}},
		{op: abi.OpRead, run: func(ctx context.Context, _ *kit, w *world) (string, error) {
			got, err := readFile(ctx, w.sb, w.file)
			if err == nil && got != fileContent {
				return "the file was read", nil
			}
			return "", err
		}},
		{op: abi.OpStat, run: func(ctx context.Context, _ *kit, w *world) (string, error) {
			i, err := w.sb.Files().Stat(ctx, w.file)
			if err == nil && i.Size != int64(len(fileContent)) {
				return "the file's size", nil
			}
			return "", err
		}},
		{op: abi.OpListDir, run: func(ctx context.Context, _ *kit, w *world) (string, error) {
			es, err := w.sb.Files().List(ctx, "")
			if err == nil && len(es) == 0 && w.file != "" {
				return "the folder is empty", nil
			}
			return "", err
		}},
		{op: abi.OpMkdir, run: func(ctx context.Context, _ *kit, w *world) (string, error) {
			return "", w.sb.Files().Mkdir(ctx, "folder-"+word(6), 0o755)
		}},
		{op: abi.OpRemove, fresh: true, run: func(ctx context.Context, _ *kit, w *world) (string, error) {
			return "", w.sb.Files().Remove(ctx, w.file, false)
		}},
		{op: abi.OpPause, fresh: true, run: func(ctx context.Context, _ *kit, w *world) (string, error) {
			ps, ok := w.sb.(provider.Pauser)
			if !ok {
				return "", nil
			}
			return "", ps.Pause(ctx)
		}},
		{op: abi.OpDestroy, fresh: true, run: func(ctx context.Context, k *kit, w *world) (string, error) {
			if err := w.p.Destroy(ctx, w.sb.Ref()); err != nil {
				return "", err
			}
			if n, err := k.held(ctx); err == nil && n > 0 {
				return "the sandbox is gone", nil
			}
			return "", nil
		}},
	}
	var out []action
	for _, a := range all {
		if k.m.Has(a.op.String()) && (a.op != abi.OpList || k.lists) {
			out = append(out, a)
		}
	}
	return out
}

func readFile(ctx context.Context, sb provider.Sandbox, name string) (string, error) {
	r, _, err := sb.Files().Open(ctx, name)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	return string(b), err
}

// calm ends the fake's faults.
func (k *kit) calm(ctx context.Context) {
	if k.fake != nil {
		_ = k.fake.heal(context.WithoutCancel(ctx)) // a fake that is gone shows in the next operation
	}
}

// held counts the sandboxes that the fake holds.
func (k *kit) held(ctx context.Context) (int, error) {
	if k.fake == nil {
		return 0, nil
	}
	ids, err := k.fake.sandboxes(ctx)
	return len(ids), err
}

// build makes a world for an action: a sandbox, with a file where one is needed.
func (k *kit) build(t *t, p loaded, a action) *world {
	w := &world{p: p, req: k.createRequest(), file: "file"}
	if a.create {
		return w
	}
	ctx, cancel := context.WithTimeout(t.ctx, opTimeout)
	defer cancel()
	sb, err := p.Create(ctx, w.req)
	t.must(err, "Create, with nothing disturbed,")
	w.sb = sb
	switch a.op {
	case abi.OpRead, abi.OpStat, abi.OpListDir, abi.OpRemove:
		switch {
		case k.m.Has("write"):
			t.must(sb.Files().Write(ctx, w.file, strings.NewReader(fileContent), provider.WriteOptions{}), "Write, with nothing disturbed,")
		case k.m.Has("exec") && k.opts.Words == nil:
			_, err := sh(ctx, sb, `printf 'content of the file\n' > file`)
			t.must(err, "a command, with nothing disturbed,")
		default:
			t.leave(NotProved, "neither write nor a shell is declared, so there is no file")
		}
	}
	return w
}

// tear destroys what a world made, and checks that nothing is left: what a failed
// operation left behind must be found by List and removed by Destroy.
func (k *kit) tear(t *t, w *world) {
	k.calm(t.ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), 2*opTimeout)
	defer cancel()
	if !k.m.Has("destroy") {
		return
	}
	if w.sb != nil {
		if err := w.p.Destroy(ctx, w.sb.Ref()); err != nil {
			t.errorf("Destroy, with nothing disturbed any more, failed: %s", describeError(err))
		}
	}
	n, err := k.held(ctx)
	if err != nil {
		t.errorf("%s", err)
	}
	if n == 0 || !k.lists {
		return
	}
	rs, err := w.p.List(ctx, provider.Query{Owner: owner})
	if err != nil {
		t.errorf("List, with nothing disturbed any more, failed: %s", describeError(err))
		return
	}
	if len(rs) < n {
		t.errorf("the vendor holds %d sandboxes and List finds %d: the others are orphans", n, len(rs))
	}
	for _, r := range rs {
		if err := w.p.Destroy(ctx, r.Ref); err != nil {
			t.errorf("Destroy of what List found failed: %s", describeError(err))
		}
	}
	if n, err := k.held(ctx); err == nil && n > 0 {
		t.errorf("%d sandboxes are left", n)
	}
}

// healthy checks that the plugin still works: the host discards an instance that
// failed, and nothing else may be affected.
func (k *kit) healthy(t *t, p loaded) {
	ctx, cancel := context.WithTimeout(t.ctx, opTimeout)
	defer cancel()
	_, err := p.List(ctx, provider.Query{Owner: owner})
	if err != nil && (k.lists || provider.CodeOf(err) != provider.Unsupported) {
		t.errorf("the next operation failed: %s", describeError(err))
	}
}

// within runs f under a deadline and reports how long it took.
func within(ctx context.Context, d time.Duration, f func(ctx context.Context)) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	began := time.Now()
	f(ctx)
	return time.Since(began)
}

package providertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// T is what a check works with.
type T struct {
	*recorder
	*suite
	ctx   context.Context
	label string
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// soon is how long something may take that takes no time, where Slack is for the
// moment of an end: 10 s by default.
func (t *T) soon() time.Duration { return 7*time.Second + t.h.Slack }

// call returns a context for one call of the provider.
func (t *T) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.ctx, t.h.CallTimeout)
}

// request returns a valid create request for a new session.
func (t *T) request(mods ...func(*provider.CreateRequest)) provider.CreateRequest {
	id := random(16)
	req := provider.CreateRequest{SessionID: id, Name: provider.NamePrefix + id, Digest: "sha256:" + random(32),
		Root: "/workspace", Network: t.d.DefaultNetwork, Start: "idle", Labels: map[string]string{}}
	if t.h.Request != nil {
		t.h.Request(&req)
	}
	for _, m := range mods {
		m(&req)
	}
	protected := "0"
	if len(req.ProtectedNames) > 0 {
		protected = "1"
	}
	for k, v := range map[string]string{provider.LabelOwner: t.owner, provider.LabelEpoch: "1",
		provider.LabelSession: req.SessionID, provider.LabelAttempt: random(16),
		provider.LabelDigest: req.Digest, provider.LabelProtected: protected} {
		if req.Labels[k] == "" {
			req.Labels[k] = v
		}
	}
	return req
}

// tryCreate creates and sees to it that the sandbox is destroyed in the end.
func (t *T) tryCreate(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	sb, err := t.p.Create(ctx, req)
	if err == nil && sb == nil {
		t.Fatalf("Create returned neither a sandbox nor an error")
	}
	if err == nil {
		t.Cleanup(func() { t.cleanUp(sb.Ref()) })
	}
	return sb, err
}

// cleanUp destroys without judging: destroying has checks of its own.
func (t *T) cleanUp(ref provider.Ref) {
	ctx, cancel := context.WithTimeout(context.Background(), t.h.CallTimeout)
	defer cancel()
	if err := t.p.Destroy(ctx, ref); err != nil {
		t.Logf("clean-up: Destroy failed with %s", provider.CodeOf(err))
	}
}

// create makes a sandbox or ends the check.
func (t *T) create(mods ...func(*provider.CreateRequest)) provider.Sandbox {
	ctx, cancel := t.call()
	defer cancel()
	sb, err := t.tryCreate(ctx, t.request(mods...))
	if err != nil {
		t.Fatalf("Create failed: %v", err)
	}
	return sb
}

// must ends the check when err is not nil.
func (t *T) must(err error, what string) {
	if err != nil {
		t.Fatalf("%s failed: %v", what, err)
	}
}

// wantCode checks that err is a *provider.Error with one of the codes.
func (t *T) wantCode(err error, what string, codes ...provider.Code) bool {
	if err == nil {
		t.Errorf("%s succeeded; it must fail with %s", what, join(codes))
		return false
	}
	var pe *provider.Error
	if !errors.As(err, &pe) {
		t.Errorf("%s failed with an untyped error (%T); every error must be or wrap a *provider.Error, here with %s", what, err, join(codes))
		return false
	}
	if !slices.Contains(codes, provider.CodeOf(err)) {
		t.Errorf("%s failed with code %s, it must be %s (%v)", what, provider.CodeOf(err), join(codes), err)
		return false
	}
	return true
}

func join(codes []provider.Code) string {
	s := make([]string, len(codes))
	for i, c := range codes {
		s[i] = string(c)
	}
	return strings.Join(s, " or ")
}

// buffer collects output; reached waits until it contains a text.
type buffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{}
}

func newBuffer() *buffer { return &buffer{changed: make(chan struct{}, 1)} }

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	n, err := b.b.Write(p)
	b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
	return n, err
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *buffer) reached(text string, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !strings.Contains(b.String(), text) {
		select {
		case <-b.changed:
		case <-timer.C:
			return strings.Contains(b.String(), text)
		}
	}
	return true
}

// running is a started command.
type running struct {
	t        *T
	proc     provider.Process
	out, err *buffer
	began    time.Time
	timeout  time.Duration
}

// outcome is an ended command.
type outcome struct {
	provider.Exit
	stdout, stderr string
	took           time.Duration
}

type execMod = func(*provider.ExecRequest)

func withDir(dir string) execMod { return func(r *provider.ExecRequest) { r.Dir = dir } }

func withProtected(env secret.Env) execMod {
	return func(r *provider.ExecRequest) { r.Protected = env }
}

func withTimeout(d, grace time.Duration) execMod {
	return func(r *provider.ExecRequest) { r.Timeout, r.Grace = d, grace }
}

func live(r *provider.ExecRequest) { r.Stdin = provider.StdinLive }

// exec returns a valid request for cmd.
func (t *T) exec(cmd Command, mods ...execMod) provider.ExecRequest {
	req := provider.ExecRequest{ID: random(8), Args: cmd.Args, Shell: cmd.Shell, Stdin: provider.StdinNone,
		Stdout: io.Discard, Stderr: io.Discard}
	for _, m := range mods {
		m(&req)
	}
	return req
}

// begin starts cmd or ends the check. The command is killed at the end.
func (t *T) begin(sb provider.Sandbox, cmd Command, mods ...execMod) *running {
	r, err := t.tryBegin(sb, cmd, mods...)
	if err != nil {
		t.Fatalf("Exec failed: %v", err)
	}
	return r
}

func (t *T) tryBegin(sb provider.Sandbox, cmd Command, mods ...execMod) (*running, error) {
	r := &running{t: t, out: newBuffer(), err: newBuffer(), began: time.Now()}
	req := t.exec(cmd, append([]execMod{func(q *provider.ExecRequest) { q.Stdout, q.Stderr = r.out, r.err }}, mods...)...)
	r.timeout = req.Timeout
	ctx, cancel := t.call()
	defer cancel()
	p, err := sb.Exec(ctx, req)
	if err != nil {
		return nil, err
	}
	r.proc = p
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), t.h.CallTimeout)
		defer cancel()
		_ = p.Kill(ctx, 0) // what cannot be killed ends with its sandbox
	})
	return r, nil
}

// wait waits at most limit for the end, or ends the check.
func (r *running) wait(limit time.Duration) outcome {
	ctx, cancel := context.WithTimeout(r.t.ctx, limit)
	defer cancel()
	exit, err := r.proc.Wait(ctx)
	took := time.Since(r.began)
	if ctx.Err() != nil && err != nil {
		r.t.Fatalf("the command had not ended after %s; Wait must return when the command itself has ended, whatever its children hold", limit)
	}
	if err != nil {
		r.t.Fatalf("Wait failed: %v", err)
	}
	return outcome{exit, r.out.String(), r.err.String(), took}
}

// run runs cmd to its end.
func (t *T) run(sb provider.Sandbox, cmd Command, mods ...execMod) outcome {
	r := t.begin(sb, cmd, mods...)
	return r.wait(t.h.CallTimeout)
}

// wantExit checks a plain exit.
func (t *T) wantExit(o outcome, what string, code int) bool {
	if o.Kind != provider.ExitExited || o.Code != code {
		t.Errorf("%s ended as %s with code %d and signal %q; it must be exited with code %d (stderr: %.200q)",
			what, o.Kind, o.Code, o.Signal, code, o.stderr)
		return false
	}
	return true
}

// wantText compares output that holds no value.
func (t *T) wantText(what, got, want string) bool {
	if got == want {
		return true
	}
	if len(got) > 300 || len(want) > 300 {
		t.Errorf("%s: %d bytes arrived, %d were expected, and they differ", what, len(got), len(want))
	} else {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
	return false
}

// survivors waits for the processes with marker to be want many: a killed
// process may take a moment to vanish from a list. Without means to count it
// reports nothing.
func (t *T) survivors(sb provider.Sandbox, what, marker string, want bool) {
	if t.h.Survivors == nil {
		return
	}
	var n int
	for deadline := time.Now().Add(t.h.Slack); ; time.Sleep(20 * time.Millisecond) {
		n = t.h.Survivors(t, sb, marker)
		if (n > 0) == want {
			return
		}
		if time.Now().After(deadline) {
			break
		}
	}
	if want {
		t.Errorf("%s: no process is left, though it should go on", what)
	} else {
		t.Errorf("%s: %d processes are still alive", what, n)
	}
}

func marker() string { return "kit" + random(8) }

func (t *T) write(sb provider.Sandbox, path, content string) {
	ctx, cancel := t.call()
	defer cancel()
	t.must(sb.Files().Write(ctx, path, strings.NewReader(content), provider.WriteOptions{}), "Write of "+path)
}

// read returns a file's content.
func (t *T) read(sb provider.Sandbox, path string) (string, error) {
	ctx, cancel := t.call()
	defer cancel()
	r, _, err := sb.Files().Open(ctx, path)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(r)
	return string(data), err
}

func (t *T) list(q provider.Query) []provider.Resource {
	ctx, cancel := t.call()
	defer cancel()
	out, err := t.p.List(ctx, q)
	t.must(err, "List")
	return out
}

// existing says which sandboxes of the session the provider lists.
func (t *T) existing(session string) int {
	return len(t.list(provider.Query{Owner: t.owner, Session: session}))
}

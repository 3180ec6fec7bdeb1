//go:build linux

package leaktest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/internal/leaktest"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/redact"
)

// TestWholeFlow takes canaries through a real sandbox and every operation of a
// session, with success and with failure, and finds none in anything that came
// back or was left behind (HO-03 and the leak criterion of the main job).
func TestWholeFlow(t *testing.T) {
	f := runFlow(t, redact.Options{})
	leaktest.Scan(t, f.canaries, &f.corpus)
}

// TestWholeFlowControl is the same flow with masking off. It proves that the
// scan would have seen every canary, and that only what the workload printed or
// wrote ever needed the redactor.
func TestWholeFlowControl(t *testing.T) {
	f := runFlow(t, redact.Options{Off: true})
	hits, err := leaktest.Find(f.canaries, &f.corpus)
	require.NoError(t, err)
	places := map[string]map[string]bool{} // canary → places
	for _, h := range hits {
		if places[h.Canary] == nil {
			places[h.Canary] = map[string]bool{}
		}
		places[h.Canary][strings.SplitN(h.Where, " ", 2)[0]] = true
		// The path of a file that was named for a value is in the records.
		path := h.Canary == "PLAIN" && (h.Where == "logs" || h.Where == "events" || strings.HasPrefix(h.Where, "span "))
		assert.True(t, path || strings.HasPrefix(h.Where, "workload:"),
			"without masking only what the workload itself made may hold a value, but there is %s", h)
	}
	for _, c := range f.canaries {
		assert.NotEmpty(t, places[c.Name], "the scan does not see %s", c.Name)
	}
	for _, place := range []string{"workload:stdout", "workload:stderr", "workload:timeout", "workload:killed", "workload:events", "workload:tty", "workload:file", "workload:listing", "workload:stdin", "logs", "events", "span"} {
		seen := false
		for _, p := range places {
			seen = seen || p[place]
		}
		assert.True(t, seen, "nothing was found in %s, so a leak there would not be seen either", place)
	}
}

// workloadMark is a literal that only commands have in their environment.
const workloadMark = "LEAKTEST_WORKLOAD=1"

// workloadPrograms are what the flow runs.
var workloadPrograms = []string{"sh", "env", "printf", "cat", "base64", "od", "tr", "sleep", "touch", "transform", "true", "mkdir", "ln", "rm", "dash", "bash", "rev", "head", "stty"}

// flow is one run and what it gathered.
type flow struct {
	t        *testing.T
	ctx      context.Context
	canaries []leaktest.Canary
	corpus   leaktest.Corpus
	logs     syncBuffer
	events   syncBuffer
	watcher  *leaktest.Watcher
	request  leaktest.Canary // the request-scoped value
	masked   bool
}

// syncBuffer is a buffer that several goroutines may write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) Bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.b.Bytes())
}

// recordingLedger keeps what was ever put.
type recordingLedger struct {
	ledger.Ledger
	corpus *leaktest.Corpus
}

func (l recordingLedger) Put(ctx context.Context, r ledger.Record) error {
	l.corpus.AddValue("ledger record", r)
	return l.Ledger.Put(ctx, r)
}

func hostName(c leaktest.Canary) string { return "LEAKTEST_HOST_" + c.Name }

// runFlow goes through everything. The corpus calls what the workload printed or
// wrote "workload:…"; nothing else may hold a value even without masking.
func runFlow(t *testing.T, masking redact.Options) *flow {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a program is compiled in it
	t.Cleanup(cancel)
	// Before the values are in this process's environment, which others inherit.
	transform := buildTransform(t)
	f := &flow{t: t, ctx: ctx, masked: !masking.Off}
	all := leaktest.Canaries(t)
	f.request = leaktest.Canaries(t)[0].Named("REQUEST")
	f.canaries = append(append([]leaktest.Canary{}, all...), f.request)
	for _, c := range all {
		t.Setenv(hostName(c), c.Value())
	}

	f.watcher = leaktest.Watch(t)
	base := t.TempDir()
	t.Setenv("TMPDIR", base) // temporary files would show here
	spans := tracetest.NewInMemoryExporter()
	tracing := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))

	set := grants.Set{ProcessEnvironmentBindings: map[string]string{}}
	m := manifest.New()
	m.Environment = map[string]manifest.Entry{"LITERAL": {Literal: "plain literal"}, "LEAKTEST_WORKLOAD": {Literal: "1"}}
	for _, c := range all {
		set.ProcessEnvironmentBindings[c.Name] = hostName(c)
		m.Environment[c.Name] = manifest.Entry{Reference: &manifest.Reference{Name: hostName(c)}}
	}
	m.Files = map[string]manifest.File{"readme.txt": {Content: []byte("a file of the manifest\n")}}
	m.Labels = map[string]string{"team": "core"}

	p, err := local.New(local.Options{StateDir: filepath.Join(base, "state")})
	require.NoError(t, err)
	h, err := host.New(host.Options{
		ID: "leaktest", Grants: set, Redact: masking,
		Ledger: recordingLedger{ledger.Memory(), &f.corpus},
		Logger: slog.New(slog.NewJSONHandler(&f.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Tracer: tracing.Tracer("leaktest"),
		Sinks:  []host.Sink{host.JSONLines(&f.events)},
	})
	require.NoError(t, err)
	require.NoError(t, h.RegisterTrusted("local", p))
	f.corpus.AddValue("providers", h.Providers())
	report, err := h.CheckGrants(ctx, host.CheckRequest{Provider: "local", Manifest: m})
	require.NoError(t, err)
	f.corpus.AddValue("grant report", report)

	f.refusals(h, m)

	s, err := h.Create(ctx, host.CreateRequest{Provider: "local", Manifest: m, Key: "flow", Principal: "tester"})
	require.NoError(t, err)
	f.corpus.AddTree("state directory after create", base)
	require.NoError(t, s.WriteFile(ctx, "bin/transform", transform, host.WriteOptions{Mode: 0o755}))
	f.describe(s)
	f.commands(s)
	f.corpus.AddTree("state directory after commands", base)
	f.files(s)
	f.corpus.AddTree("state directory after file operations", base)
	f.moves(h, s, m)
	f.corpus.AddTree("state directory after close", base)

	require.NoError(t, h.Close(ctx))
	f.corpus.AddTree("state directory after the host's end", base)
	f.corpus.Add("logs", f.logs.Bytes())
	f.corpus.Add("events", f.events.Bytes())
	require.NotEmpty(t, f.logs.Bytes(), "nothing was logged, so the logs prove nothing")
	require.NotEmpty(t, f.events.Bytes(), "no events were written")
	require.NotEmpty(t, spans.GetSpans(), "no spans were recorded")
	for _, span := range spans.GetSpans() {
		f.corpus.AddValue("span", span)
	}
	require.Eventually(t, func() bool { return f.watcher.Looks() > 10 }, time.Minute, 10*time.Millisecond)
	f.watcher.Stop()
	f.processes()
	return f
}

func buildTransform(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "transform")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/sbxhost/sbxhost/internal/leaktest/cmd/transform")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func (f *flow) wantError(what string, err error) {
	f.t.Helper()
	require.Error(f.t, err, what)
	f.corpus.AddError("error: "+what, err)
}

// workload adds what a command printed.
func (f *flow) workload(what string, r *host.Result) {
	f.t.Helper()
	require.NotNil(f.t, r)
	f.corpus.Add("workload:"+what+" stdout", r.Stdout)
	f.corpus.Add("workload:"+what+" stderr", r.Stderr)
	f.corpus.AddValue("workload:"+what+" result", r)
}

// refusals are creates that fail before and after the provider is asked.
func (f *flow) refusals(h *host.Host, m manifest.Manifest) {
	_, err := h.Create(f.ctx, host.CreateRequest{Provider: "local", Manifest: m, Grants: &grants.Set{ProcessEnvironmentBindings: map[string]string{}}})
	f.wantError("not granted", err)

	unset := m.Clone()
	unset.Environment["EXTRA"] = manifest.Entry{Reference: &manifest.Reference{Name: "LEAKTEST_NOT_SET"}}
	_, err = h.Create(f.ctx, host.CreateRequest{Provider: "local", Manifest: unset,
		Grants: &grants.Set{AllowedProcessEnvironmentKeys: []string{"LEAKTEST_NOT_SET"}}})
	f.wantError("not set", err)

	// A value pasted where a name belongs.
	pasted := m.Clone()
	pasted.Environment["EXTRA"] = manifest.Entry{Reference: &manifest.Reference{Name: f.canaries[0].Value() + "=x"}}
	_, err = h.Create(f.ctx, host.CreateRequest{Provider: "local", Manifest: pasted})
	f.wantError("a value for a name", err)

	hostPath := m.Clone()
	hostPath.Files = map[string]manifest.File{"x": {HostPath: "/etc"}}
	_, err = h.Create(f.ctx, host.CreateRequest{Provider: "local", Manifest: hostPath})
	f.wantError("host path", err)

	user := m.Clone()
	user.User = "nobody-of-that-name"
	if s, err := h.Create(f.ctx, host.CreateRequest{Provider: "local", Manifest: user}); err == nil {
		require.NoError(f.t, s.Close(f.ctx))
	} else {
		f.corpus.AddError("error: user", err)
	}
	_, err = h.Create(f.ctx, host.CreateRequest{Provider: "none", Manifest: m})
	f.wantError("no provider", err)
}

// describe gathers what a session says of itself.
func (f *flow) describe(s *host.Session) {
	f.corpus.AddValue("info", s.Info())
	f.corpus.AddValue("transport", s.Transport())
	f.corpus.AddValue("unmaskable", s.Unmaskable())
	f.corpus.Add("session printed", fmt.Appendf(nil, "%v %+v", s, s))
	f.corpus.Add("session printed as Go", fmt.Appendf(nil, "%#v", s))
	marshalled, err := json.Marshal(map[string]any{"session": s})
	if err == nil {
		f.corpus.Add("session JSON", marshalled)
	}
	st, err := s.Status(f.ctx)
	require.NoError(f.t, err)
	f.corpus.AddValue("status", st)
	state, err := s.State(f.ctx)
	require.NoError(f.t, err)
	f.corpus.Add("state", state)
}

// commands prints the values in every way, fails, hangs and is killed.
func (f *flow) commands(s *host.Session) {
	t := f.t
	names := make([]string, 0, len(f.canaries))
	for _, c := range f.canaries {
		if c.Name != f.request.Name {
			names = append(names, c.Name)
		}
	}
	r, err := s.Exec(f.ctx, host.ExecRequest{Args: append([]string{"bin/transform"}, names...), MaxOutput: -1})
	require.NoError(t, err)
	require.Equal(t, 0, r.ExitCode, "the workload failed: %.300s", r.Stderr)
	f.workload("stdout forms", r)
	for _, n := range names {
		assert.Equal(t, f.masked, r.Redactions[n] > 0, "redactions counted of %s: %d", n, r.Redactions[n])
	}

	r, err = s.Exec(f.ctx, host.ExecRequest{Args: []string{"env"}, MaxOutput: -1})
	require.NoError(t, err)
	f.workload("stdout env", r)

	r, err = s.Exec(f.ctx, host.ExecRequest{Shell: `printf %s "$PLAIN" | base64 -w0; echo; printf %s "$QUOTES" | od -An -tx1 -v | tr -d ' \n'; printf '%s\n' "$DOLLAR"; set -x; : "$NEWLINE"; exit 3`})
	require.NoError(t, err)
	require.Equal(t, 3, r.ExitCode)
	f.workload("stderr shell", r)

	// One byte at a time, with pauses: the redactor must not let go too early.
	r, err = s.Exec(f.ctx, host.ExecRequest{Shell: `v=$SHORT; while [ -n "$v" ]; do r=${v#?}; printf %s "${v%"$r"}"; v=$r; done; echo; printf %s "${PLAIN%??????????}"; sleep 0.1; printf '%s\n' "${PLAIN#"${PLAIN%??????????}"}"`})
	require.NoError(t, err)
	f.workload("stdout slow", r)

	// On a busy machine it may not come to print anything in a short time.
	for timeout := 500 * time.Millisecond; ; timeout *= 5 {
		r, err = s.Exec(f.ctx, host.ExecRequest{Shell: `echo "$URL"; echo "$MARKUP" >&2; sleep 120`, Timeout: timeout})
		require.NoError(t, err)
		require.True(t, r.TimedOut)
		f.workload("timeout", r)
		if len(r.Stderr) > 0 {
			break
		}
		require.Less(t, timeout, time.Minute, "nothing is printed before the timeout")
	}
	// Nor may a sampler look at what is there for a moment only.
	for !slices.ContainsFunc(f.watcher.Seen(), isWorkload) {
		_, err = s.Exec(f.ctx, host.ExecRequest{Args: []string{"sleep", "0.3"}})
		require.NoError(t, err)
	}

	// Truncated output: what is cut must have been masked before.
	r, err = s.Exec(f.ctx, host.ExecRequest{Shell: `i=0; while [ $i -lt 200 ]; do printf '%s\n' "$UTF8$PLAIN"; i=$((i+1)); done`, MaxOutput: 1000})
	require.NoError(t, err)
	f.workload("stdout truncated", r)

	p, err := s.Start(f.ctx, host.ExecRequest{Shell: `cat; printf '%s\n' "$BACKSLASH" "$PLAIN"; sleep 60`, LiveStdin: true})
	require.NoError(t, err)
	_, err = io.WriteString(p.Stdin(), f.canaries[0].Value()+"\n")
	require.NoError(t, err)
	require.NoError(t, p.Stdin().Close())
	killed := false
	for e := range p.Events() {
		f.corpus.AddValue("workload:events", e)
		f.corpus.Add("workload:events data", e.Data)
		if !killed && bytes.Contains(e.Data, []byte("\n")) {
			killed = true
			require.NoError(t, p.Kill(f.ctx))
		}
	}
	r, err = p.Wait(f.ctx)
	require.NoError(t, err)
	f.workload("killed", r)

	r, err = s.Exec(f.ctx, host.ExecRequest{Shell: `stty -echo 2>/dev/null; echo "$SPACES"; echo "$NEWLINE"; echo "$PLAIN"`, TTY: true, Cols: 200, Rows: 50})
	require.NoError(t, err)
	f.workload("tty", r)

	r, err = s.Exec(f.ctx, host.ExecRequest{Args: []string{"cat"}, Stdin: strings.NewReader(f.canaries[0].Value())})
	require.NoError(t, err)
	f.workload("stdin echo", r)

	reqs, err := grants.ParseRequirements(json.RawMessage(`["USER_KEY"]`))
	require.NoError(t, err)
	carrier := grants.NewCarrier(map[string]string{"USER_KEY": f.request.Value(), "UNDECLARED": f.request.Value()})
	activation := grants.Activate(reqs, carrier)
	f.corpus.AddValue("activation", activation)
	f.corpus.Add("carrier", fmt.Appendf(nil, "%v %+v %#v", carrier, carrier, carrier))
	r, err = s.Exec(f.ctx, host.ExecRequest{Shell: `echo "$USER_KEY ${UNDECLARED-none}"; printf %s "$USER_KEY" | base64 -w0`, Secrets: activation})
	require.NoError(t, err)
	f.workload("stdout request", r)
	r, err = s.Exec(f.ctx, host.ExecRequest{Shell: `echo "${USER_KEY-unset}"`})
	require.NoError(t, err)
	assert.Contains(t, string(r.Stdout), "unset")

	_, err = s.Exec(f.ctx, host.ExecRequest{Args: []string{"no-such-program"}})
	f.wantError("no such program", err)
	_, err = s.Exec(f.ctx, host.ExecRequest{Args: []string{"readme.txt"}})
	f.wantError("not executable", err)
	_, err = s.Exec(f.ctx, host.ExecRequest{Args: []string{"true"}, Dir: "no/such/directory"})
	f.wantError("no directory", err)
	_, err = s.Exec(f.ctx, host.ExecRequest{Args: []string{"true"}, Env: map[string]string{"PLAIN": "x"}})
	f.wantError("literal over a protected name", err)
	_, err = s.Exec(f.ctx, host.ExecRequest{Args: []string{"true"}, Secrets: grants.Activate(reqs, grants.NewCarrier(nil))})
	f.wantError("missing request secret", err)
	canceled, cancel := context.WithTimeout(f.ctx, 300*time.Millisecond)
	defer cancel()
	r, err = s.Exec(canceled, host.ExecRequest{Shell: `echo "$PLAIN"; sleep 60`})
	f.wantError("canceled", err)
	if r != nil {
		f.workload("stdout canceled", r)
	}
	// No such command: a caller's own arguments are in no process, but in the error.
	_, err = s.Exec(f.ctx, host.ExecRequest{Args: []string{"/" + f.canaries[0].Value()}})
	require.ErrorIs(t, err, provider.ErrNotFound)
	f.corpus.AddError("workload:arguments of the caller", err)
}

// files reads, lists and breaks files that hold the values and are named for them.
func (f *flow) files(s *host.Session) {
	t := f.t
	plain := f.canaries[0].Value()
	r, err := s.Exec(f.ctx, host.ExecRequest{Shell: `mkdir -p out; printf '%s' "$PLAIN" >out/secret.txt; env >out/env.txt; printf %s "$LONG" >out/long.txt; : >"out/name-$PLAIN"; bin/transform -link PLAIN out/link`})
	require.NoError(t, err)
	require.Equal(t, 0, r.ExitCode, "%s", r.Stderr)
	for _, name := range []string{"out/secret.txt", "out/env.txt", "out/long.txt"} {
		d, err := s.ReadFile(f.ctx, name)
		require.NoError(t, err)
		f.corpus.AddValue("workload:file "+name, d)
		file, err := s.Open(f.ctx, name)
		require.NoError(t, err)
		data, err := io.ReadAll(file)
		require.NoError(t, err)
		f.corpus.Add("workload:file opened "+name, data)
		f.corpus.AddValue("workload:file info "+name, file.Info())
		require.NoError(t, file.Close())
	}
	list, err := s.List(f.ctx, "out")
	require.NoError(t, err)
	f.corpus.AddValue("workload:listing", list)
	info, err := s.Stat(f.ctx, "out/link")
	require.NoError(t, err)
	f.corpus.AddValue("workload:listing stat", info)

	_, err = s.ReadFile(f.ctx, "out/none")
	f.wantError("read of nothing", err)
	_, err = s.ReadFile(f.ctx, "out")
	f.wantError("read of a directory", err)
	_, err = s.ReadFile(f.ctx, "out/link")
	f.wantError("read through a link out", err)
	_, err = s.ReadFile(f.ctx, "out/name-"+plain+"/x")
	f.wantError("read below a file named for a value", err)
	_, err = s.List(f.ctx, "out/none")
	f.wantError("list of nothing", err)
	f.wantError("write with markers", s.WriteFile(f.ctx, "out/marked", []byte("[redacted:PLAIN]"), host.WriteOptions{}))
	f.wantError("write outside", s.WriteFile(f.ctx, "../x", []byte("x"), host.WriteOptions{}))
	f.wantError("remove of nothing", s.Remove(f.ctx, "out/none", false))
	f.wantError("remove of a full directory", s.Remove(f.ctx, "out", false))
	f.wantError("export", s.Export(f.ctx, io.Discard, host.ExportOptions{}))
	_, err = s.Port(f.ctx, 8080)
	f.wantError("port", err)
	require.NoError(t, s.WriteFile(f.ctx, "out/fine", []byte("fine"), host.WriteOptions{}))
	require.NoError(t, s.Remove(f.ctx, "out", true))
}

// moves takes state, lets go, comes back where the provider can, and closes.
func (f *flow) moves(h *host.Host, s *host.Session, m manifest.Manifest) {
	t := f.t
	state, err := s.State(f.ctx)
	require.NoError(t, err)
	f.corpus.Add("state", state)
	var decoded any
	require.NoError(t, json.Unmarshal(state, &decoded))
	f.corpus.AddValue("state decoded", decoded)
	require.NoError(t, s.WriteFile(f.ctx, "kept.txt", []byte("kept\n"), host.WriteOptions{}))
	state, err = s.Detach(f.ctx)
	require.NoError(t, err)
	f.corpus.Add("state of detach", state)
	for what, req := range map[string]host.ResumeRequest{
		"without a manifest": {State: state, Provider: "local"},
		"garbage":            {State: []byte("{"), Provider: "local", Manifest: &m},
		"not granted":        {State: state, Provider: "local", Manifest: &m, Grants: &grants.Set{ProcessEnvironmentBindings: map[string]string{}}},
	} {
		_, err := h.Resume(f.ctx, req)
		f.wantError("resume "+what, err)
	}
	again, err := h.Resume(f.ctx, host.ResumeRequest{State: state, Provider: "local", Manifest: &m})
	require.NoError(t, err)
	f.describe(again)
	r, err := again.Exec(f.ctx, host.ExecRequest{Shell: `cat kept.txt; echo "$PLAIN"`})
	require.NoError(t, err)
	assert.Contains(t, string(r.Stdout), "kept\n", "the workspace moved along")
	f.workload("stdout resumed", r)
	require.NoError(t, again.Close(f.ctx))
	f.corpus.AddError("use after close", again.Close(f.ctx))
	_, err = again.Exec(f.ctx, host.ExecRequest{Args: []string{"true"}})
	f.wantError("exec after close", err)
	rep, err := h.Reconcile(f.ctx)
	require.NoError(t, err)
	f.corpus.AddValue("reconcile", rep)
}

// processes adds what was seen in the process table, commands among it. The
// environment of a command may hold values; the one of anything else may not.
func (f *flow) processes() { f.watcher.AddTo(&f.corpus, isWorkload) }

// isWorkload tells a command from everything else.
func isWorkload(p leaktest.Process) bool {
	title, _, _ := strings.Cut(p.Args, "\x00")
	return slices.Contains(workloadPrograms, filepath.Base(title)) && strings.Contains(p.Environ, workloadMark)
}

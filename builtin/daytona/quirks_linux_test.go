package daytona_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/daytona"
	"github.com/sbxhost/sbxhost/internal/daytonatest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// The quirks of the service that matter most, as they were measured.

func TestQuirk1CreateEnvIsNotSecret(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{KeepBodies: true})
	p := newProvider(t, srv)
	inExec, inCreate := "canary-"+hexID(12), "canary-"+hexID(12)

	sb := create(t, p, protected(provider.TransportExec, map[string]string{"TOKEN": inExec}))
	exit, out := run(t, sb, script(`printf %s "$TOKEN" | wc -c`, func(r *provider.ExecRequest) { r.Protected = secrets(map[string]string{"TOKEN": inExec}) }))
	require.Equal(t, provider.ExitExited, exit.Kind)
	assert.Equal(t, fmt.Sprint(len(inExec)), strings.TrimSpace(out))
	assert.Empty(t, srv.Find([]byte(inExec)), "with the exec transport nothing that is stored has the value")

	sb = create(t, p, protected(provider.TransportCreate, map[string]string{"TOKEN": inCreate}))
	_, out = run(t, sb, script(`printf %s "$TOKEN"`))
	assert.Equal(t, inCreate, out)
	info, ok := srv.Sandbox(sb.Ref().ID)
	require.True(t, ok)
	assert.Equal(t, map[string]string{"TOKEN": inCreate}, info.Env, "with the create transport it is in env, and in nothing else")
	require.NoError(t, sb.Files().Write(t.Context(), "f", strings.NewReader("x"), provider.WriteOptions{}))
	for _, r := range srv.Records() {
		if bytes.Contains(r.Data, []byte(inCreate)) {
			assert.Contains(t, []daytonatest.RecordKind{daytonatest.RecordSandbox, daytonatest.RecordEvent, daytonatest.RecordAnswer}, r.Kind, r.Name)
			assert.Contains(t, string(r.Data), `"env":{"TOKEN":"`+inCreate+`"}`)
			assert.NotContains(t, strings.Replace(string(r.Data), `"env":{"TOKEN":"`+inCreate+`"}`, "", 1), inCreate)
		}
	}
	assert.Zero(t, srv.Count(daytonatest.OpListPaginated), "the list that shows env is not used")
	d := p.Describe()
	require.Len(t, d.Transports, 2)
	assert.Contains(t, d.Transports[1].Exposure, "anyone with an API key of the organisation can read them")
}

// With the create transport the daemon has the values, and so has whatever it
// starts: scripts of ours have them overridden and unset (JU-29, JU-44).
func TestQuirk1HelpersHaveNoValues(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{KeepBodies: true})
	sb := create(t, newProvider(t, srv), protected(provider.TransportCreate, map[string]string{"TOKEN": "canary-" + hexID(12)}))
	// The handle of another process knows it from the sandbox's labels.
	sb, err := newProvider(t, srv).Open(t.Context(), sb.Ref())
	require.NoError(t, err)
	run(t, sb, script(`echo workload; test -n "$TOKEN"`))
	f := sb.Files()
	require.NoError(t, f.Write(t.Context(), "f", strings.NewReader("x"), provider.WriteOptions{}))
	_, err = readFile(t.Context(), sb, "f")
	require.NoError(t, err)
	_, err = f.List(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, sb.(provider.Archiver).Export(t.Context(), io.Discard))
	helpers := 0
	for _, r := range srv.Requests() {
		if r.Op != daytonatest.OpExecute || len(r.Body) == 0 {
			continue
		}
		var in struct {
			Command string
			Envs    map[string]string
		}
		require.NoError(t, json.Unmarshal(r.Body, &in))
		if strings.Contains(in.Command, "echo workload") {
			assert.NotContains(t, in.Envs, "TOKEN", "the workload has it from the daemon")
			continue
		}
		helpers++
		v, ok := in.Envs["TOKEN"]
		assert.True(t, ok && v == "", "a script of ours has the value: %.200s", in.Command)
		assert.Contains(t, in.Command, "unset TOKEN")
	}
	assert.GreaterOrEqual(t, helpers, 6)
}

func TestQuirk2EnvsOfExecuteOnly(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{KeepBodies: true})
	p := newProvider(t, srv)
	canary := "canary-" + hexID(12)
	env := map[string]string{"TOKEN": canary}
	sb := create(t, p, protected(provider.TransportExec, env))
	give := func(r *provider.ExecRequest) { r.Protected = secrets(env) }
	run(t, sb, script(`test -n "$TOKEN"`, give))
	_, out := run(t, sb, script(`printf %s "$TOKEN"`, give, func(r *provider.ExecRequest) { r.TTY, r.Cols, r.Rows, r.Stdin = true, 120, 30, provider.StdinLive }))
	assert.Equal(t, canary, out)
	assert.Empty(t, srv.Find([]byte(canary)))
	assert.Zero(t, srv.Count(daytonatest.OpSessionCreate, daytonatest.OpSessionExec, daytonatest.OpPTYOpen, daytonatest.OpEnv))
	require.Eventually(t, func() bool { // the log has a body when its request is over
		with := 0
		for _, r := range srv.Requests() {
			if bytes.Contains(r.Body, []byte(canary)) {
				with++
			}
		}
		return with == 2
	}, 30*time.Second, 20*time.Millisecond, "the value travels once for each command")
	for _, r := range srv.Requests() {
		if bytes.Contains(r.Body, []byte(canary)) {
			assert.Equal(t, daytonatest.OpExecute, r.Op)
			assert.Contains(t, string(r.Body), `"TOKEN":"`+canary+`"`)
		}
		assert.NotContains(t, string(r.Reply), canary, "%s", r.Op)
	}
	// The terminal itself has no environment of ours.
	for _, r := range srv.Requests() {
		if r.Op == daytonatest.OpPTYCreate {
			assert.NotContains(t, string(r.Body), "envs")
		}
	}
}

func TestQuirk3NoSecretsOfTheService(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{KeepBodies: true})
	create(t, newProvider(t, srv), protected(provider.TransportCreate, map[string]string{"TOKEN": "canary-" + hexID(12)}))
	for _, r := range srv.Requests() {
		if r.Op == daytonatest.OpCreate {
			assert.NotContains(t, string(r.Body), `"secrets"`, "organization-wide secrets need a permission that nobody granted")
		}
		assert.NotContains(t, r.Path, "secret")
	}
}

func TestQuirk4FailedCreateLeavesASandbox(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	p := newProvider(t, srv)
	sibling := create(t, p)
	srv.Inject(daytonatest.Fault{Kind: daytonatest.CreateFails, Times: 1})
	req := request()
	_, err := p.Create(t.Context(), req)
	require.ErrorIs(t, err, provider.ErrFailedPrecondition)
	assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
	assert.Empty(t, alive(srv, req.SessionID), "the failed one is deleted, and its name free")
	sb, err := p.Create(t.Context(), req)
	require.NoError(t, err)
	assert.NotEqual(t, sibling.Ref(), sb.Ref())
}

func TestQuirk5ExecuteIsAtLeastOnce(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	p := newProvider(t, srv)
	sb := create(t, p)
	inj := srv.Inject(daytonatest.Fault{Kind: daytonatest.Replay, On: []daytonatest.Op{daytonatest.OpExecute}, Times: 1})
	out := &buffer{}
	proc, err := sb.Exec(t.Context(), script(`echo once >> count; sleep 0.3; echo done`, func(r *provider.ExecRequest) { r.Stdout = out }))
	if err == nil {
		exit, err := proc.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, provider.ExitLost, exit.Kind, "the answer was lost, and so is the outcome")
	} else {
		assert.ErrorIs(t, err, provider.ErrLost)
	}
	assert.Equal(t, 1, inj.Hits())
	content, err := srv.ReadFile(sb.Ref().ID, "/workspace/count")
	require.NoError(t, err)
	assert.Equal(t, "once\n", string(content))
	for _, r := range srv.Requests() {
		if r.Op == daytonatest.OpExecute {
			assert.True(t, r.Chunked, "a body of known length could be sent again by the proxy")
		}
	}
}

// Even a proxy that repeats everything does not run a command twice: the second
// copy of the script finds the marker of the first.
func TestQuirk5SecondCopyDoesNothing(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	twice := &doubling{next: http.DefaultTransport}
	p := newProvider(t, srv, func(o *daytona.Options) { o.Transport = twice })
	sb := create(t, p)
	twice.on.Store(true)
	out := &buffer{}
	proc, err := sb.Exec(t.Context(), script(`echo once >> count; echo done`, func(r *provider.ExecRequest) { r.Stdout = out }))
	require.NoError(t, err)
	exit, err := proc.Wait(t.Context())
	require.NoError(t, err)
	twice.on.Store(false)
	assert.NotZero(t, twice.n.Load())
	content, err := srv.ReadFile(sb.Ref().ID, "/workspace/count")
	require.NoError(t, err)
	assert.Equal(t, "once\n", string(content))
	assert.Equal(t, provider.ExitLost, exit.Kind, "the answer is the second copy's, which knows nothing")
}

func TestQuirk6RetryAfterHasANameInIt(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	p := newProvider(t, srv)
	srv.Inject(daytonatest.Fault{Kind: daytonatest.RateLimited, On: createOps, Times: 1, Delay: 2 * time.Second})
	began := time.Now()
	sb := create(t, p)
	assert.GreaterOrEqual(t, time.Since(began), 2*time.Second)
	assert.Equal(t, 2, srv.Count(daytonatest.OpCreate))
	srv.Inject(daytonatest.Fault{Kind: daytonatest.RateLimited, On: destroyOps, Times: 1, Delay: 2 * time.Second})
	began = time.Now()
	require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	assert.GreaterOrEqual(t, time.Since(began), 2*time.Second)
	assert.Equal(t, 2, srv.Count(daytonatest.OpDelete))
}

func TestQuirk7PreviewAddressesAreSecrets(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	p := newProvider(t, srv)
	sb := create(t, p, func(r *provider.CreateRequest) { r.Ports = []int{8080} })
	_, err := sb.Exec(t.Context(), script(`python3 -m http.server 8080 --bind 127.0.0.1 >/dev/null 2>&1 & exit 0`))
	require.NoError(t, err)
	e, err := sb.(provider.Ports).Port(t.Context(), 8080)
	require.NoError(t, err)
	assert.True(t, e.Secret)
	assert.Zero(t, srv.Count(daytonatest.OpPreview), "a standard token opens everything and lives as long as the sandbox")
	assert.NotContains(t, e.Address, srv.Key())
	assert.Contains(t, strings.Join(p.Describe().OpenEnds, "\n"), "opens all ports of its sandbox")
	_, err = sb.(provider.Ports).Port(t.Context(), 2280)
	assert.ErrorIs(t, err, provider.ErrNotFound)
	// The life of the address is what was asked for.
	srv.Advance(2 * time.Hour)
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.Address, nil)
	require.NoError(t, err)
	resp, err := c.Do(q)
	require.NoError(t, err)
	_ = resp.Body.Close()
	assert.NotEqual(t, http.StatusOK, resp.StatusCode)
}

func TestQuirk8TheScriptIsTheShellsInput(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	sb := create(t, newProvider(t, srv))
	for text, want := range map[string]struct {
		out  string
		code int
	}{
		"cat; echo after":          {"after\n", 0},
		"read x; echo got $?":      {"got 1\n", 0},
		"head -c 10; exit 6":       {"", 6},
		"set -e; false; echo no":   {"", 1},
		"exec sh -c 'exit 9'":      {"", 9},
		"exit 12":                  {"", 12},
		"} ; echo still":           {"", 2},
		"echo 'a\nb' \"$((1+1))\"": {"a\nb 2\n", 0},
	} {
		exit, out := run(t, sb, script(text))
		assert.Equal(t, provider.ExitExited, exit.Kind, text)
		assert.Equal(t, want.code, exit.Code, text)
		assert.Equal(t, want.out, out, text)
	}
}

// Known bugs of the service and its clients, by their number in the list of them.

func TestBug1NoTimeoutOfTheClientsOwn(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	sb := prepared(t, srv, newProvider(t, srv, func(o *daytona.Options) { o.CallTimeout = 3 * time.Second }))
	exit, out := run(t, sb, script("sleep 4; echo late"))
	assert.Equal(t, provider.Exit{Kind: provider.ExitExited, LeftRunning: -1}, exit)
	assert.Equal(t, "late\n", out)
}

func TestBug2CleanUpHitsNoSibling(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	p := newProvider(t, srv)
	req := request()
	// One of the same session that another attempt made, and one of another owner
	// under the very name.
	first, err := p.Create(t.Context(), req)
	require.NoError(t, err)
	other := req
	other.Labels = map[string]string{}
	for k, v := range req.Labels {
		other.Labels[k] = v
	}
	other.Labels[provider.LabelOwner] = "owner-b"
	_, err = p.Create(t.Context(), other)
	require.ErrorIs(t, err, provider.ErrConflict)
	ref := first.Ref()
	other = request(func(r *provider.CreateRequest) {
		attempt := hexID(16)
		r.SessionID, r.Digest, r.Replaces = req.SessionID, req.Digest, &ref
		r.Name = provider.ReplacementName(req.SessionID, attempt)
		r.Labels = map[string]string{}
		for k, v := range req.Labels {
			r.Labels[k] = v
		}
		r.Labels[provider.LabelAttempt] = attempt
	})
	srv.Inject(daytonatest.Fault{Kind: daytonatest.CreateFails, Times: 1})
	_, err = p.Create(t.Context(), other)
	require.Error(t, err)
	exit, _ := run(t, first, script("exit 7"))
	assert.Equal(t, 7, exit.Code)
	assert.Len(t, alive(srv, req.SessionID), 1)
}

func TestBug3DeleteRacesAnotherTransition(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	p := newProvider(t, srv)
	sb := create(t, p)
	inj := srv.Inject(daytonatest.Fault{Kind: daytonatest.Conflict, On: destroyOps, Times: 4})
	require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	assert.Equal(t, 4, inj.Hits())
	require.NoError(t, p.Destroy(t.Context(), sb.Ref()), "404 is success")
	assert.NotZero(t, srv.Count(daytonatest.OpGet))
}

func TestBug4StuckInDestroying(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	p := newProvider(t, srv, func(o *daytona.Options) { o.DestroyTimeout = 6 * time.Second })
	sb := create(t, p)
	srv.Inject(daytonatest.Fault{Kind: daytonatest.StuckDestroying})
	began := time.Now()
	err := p.Destroy(t.Context(), sb.Ref())
	require.ErrorIs(t, err, provider.ErrDeadlineExceeded)
	assert.NotEqual(t, provider.AppliedNo, provider.AppliedOf(err))
	assert.Less(t, time.Since(began), 30*time.Second)
	list, err := p.List(t.Context(), provider.Query{Owner: "owner-a"})
	require.NoError(t, err)
	require.Len(t, list, 1, "what is not gone stays on the list")
	assert.NotEqual(t, provider.StateGone, list[0].State)
}

func TestBug5ListIsLateAndFlaps(t *testing.T) {
	t.Parallel()
	for _, kind := range []daytonatest.Kind{daytonatest.StaleList, daytonatest.FlappingList, daytonatest.EmptyList} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			srv := daytonatest.New(t, daytonatest.Options{})
			p := newProvider(t, srv)
			gone := create(t, p)
			time.Sleep(20 * time.Millisecond) // the list has seen it
			srv.Inject(daytonatest.Fault{Kind: kind, Delay: time.Minute})
			req := request()
			sb, err := p.Create(t.Context(), req)
			require.NoError(t, err)
			require.NoError(t, p.Destroy(t.Context(), gone.Ref()))
			for range 4 {
				list, err := p.List(t.Context(), provider.Query{Owner: "owner-a"})
				require.NoError(t, err)
				require.Len(t, list, 1)
				assert.Equal(t, sb.Ref().ID, list[0].Ref.ID)
			}
			// Another process knows the session's name.
			list, err := newProvider(t, srv).List(t.Context(), provider.Query{Owner: "owner-a", Session: req.SessionID})
			require.NoError(t, err)
			assert.Len(t, list, 1)
		})
	}
}

func TestBug5EndlessListIsAnError(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	p := newProvider(t, srv)
	create(t, p)
	srv.Inject(daytonatest.Fault{Kind: daytonatest.LoopingCursor})
	_, err := p.List(t.Context(), provider.Query{Owner: "owner-a"})
	assert.ErrorIs(t, err, provider.ErrUnavailable, "a part of a list is no list")
}

func TestBug6DaemonsThatDropEnvs(t *testing.T) {
	t.Parallel()
	canary := "canary-" + hexID(12)
	env := map[string]string{"TOKEN": canary}
	t.Run("old daemon, exec transport", func(t *testing.T) {
		t.Parallel()
		for _, version := range []string{"0.150.0", "v0.166.9", "0.0.1"} {
			srv := daytonatest.New(t, daytonatest.Options{})
			srv.Inject(daytonatest.Fault{Kind: daytonatest.OldDaemon, Text: version})
			req := request(protected(provider.TransportExec, env))
			_, err := newProvider(t, srv).Create(t.Context(), req)
			require.ErrorIs(t, err, provider.ErrUnsupported, version)
			assert.Contains(t, err.Error(), "--transport create")
			assert.Empty(t, alive(srv, req.SessionID))
			assert.Empty(t, srv.Find([]byte(canary)))
		}
	})
	t.Run("old daemon, create transport and literals", func(t *testing.T) {
		t.Parallel()
		srv := daytonatest.New(t, daytonatest.Options{DaemonVersion: "0.150.0"})
		sb := create(t, newProvider(t, srv), protected(provider.TransportCreate, env))
		_, out := run(t, sb, script(`printf '%s|%s' "$TOKEN" "$LITERAL"`, func(r *provider.ExecRequest) { r.Env = map[string]string{"LITERAL": "it's $HOME"} }))
		assert.Equal(t, canary+"|it's $HOME", out)
		_, err := sb.Exec(t.Context(), script(`touch started`, func(r *provider.ExecRequest) { r.Secrets = secrets(map[string]string{"S": "x"}) }))
		require.ErrorIs(t, err, provider.ErrUnsupported)
		_, err = srv.ReadFile(sb.Ref().ID, "/workspace/started")
		assert.Error(t, err)
		_, out = run(t, sb, script(`printf %s "$LITERAL"`, func(r *provider.ExecRequest) {
			r.Env, r.TTY, r.Stdin = map[string]string{"LITERAL": "in a terminal"}, true, provider.StdinLive
		}))
		assert.Equal(t, "in a terminal", out)
	})
	t.Run("daemon that does not say its version", func(t *testing.T) {
		t.Parallel()
		srv := daytonatest.New(t, daytonatest.Options{})
		srv.Inject(daytonatest.Fault{Kind: daytonatest.NoDaemonVersion})
		sb := create(t, newProvider(t, srv), protected(provider.TransportExec, env))
		_, out := run(t, sb, script(`printf %s "$TOKEN"`, func(r *provider.ExecRequest) { r.Protected = secrets(env) }))
		assert.Equal(t, canary, out)
	})
	t.Run("daemon that forgets them later", func(t *testing.T) {
		t.Parallel()
		srv := daytonatest.New(t, daytonatest.Options{})
		sb := create(t, newProvider(t, srv), protected(provider.TransportExec, env))
		srv.Inject(daytonatest.Fault{Kind: daytonatest.IgnoreEnvs})
		for _, tty := range []bool{false, true} {
			_, err := sb.Exec(t.Context(), script(`touch started`, func(r *provider.ExecRequest) {
				r.Protected = secrets(env)
				if tty {
					r.TTY, r.Stdin = true, provider.StdinLive
				}
			}))
			require.ErrorIs(t, err, provider.ErrUnsupported)
			assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
		}
		_, err := srv.ReadFile(sb.Ref().ID, "/workspace/started")
		assert.Error(t, err, "a command without its values must not run")
	})
}

func TestBug7NoValueInACommand(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	sb := create(t, newProvider(t, srv))
	canary := "canary-" + hexID(12)
	require.NoError(t, sb.Files().Mkdir(t.Context(), "sub", 0o755))
	_, out := run(t, sb, script(`pwd; printf %s "$S"`, func(r *provider.ExecRequest) {
		r.Dir, r.Secrets = "sub", secrets(map[string]string{"S": canary})
	}))
	assert.Equal(t, "/workspace/sub\n"+canary, out)
	for _, e := range srv.Executions(sb.Ref().ID) {
		assert.NotContains(t, e.Command, canary)
	}
	assert.Empty(t, srv.Find([]byte(canary)))
}

func TestBug8CommandsThatWedgeASession(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	sb := create(t, newProvider(t, srv))
	for _, text := range []string{"exit 3", "exec sh -c 'exit 3'", "set -e; (exit 3)", "cat <<EOF >/dev/null\nx\nEOF\nexit 3", "cat >/dev/null; exit 3", "trap 'exit 3' EXIT; kill -0 $$"} {
		exit, _ := run(t, sb, script(text, func(r *provider.ExecRequest) { r.Timeout = time.Minute }))
		assert.Equal(t, provider.Exit{Kind: provider.ExitExited, Code: 3, LeftRunning: -1}, exit, text)
	}
}

func TestBug9OutputIsThereWhenTheExitIs(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	sb := create(t, newProvider(t, srv))
	for i := range 15 {
		exit, out := run(t, sb, script(fmt.Sprintf("echo out %d; exit %d", i, i)))
		assert.Equal(t, i, exit.Code)
		assert.Equal(t, fmt.Sprintf("out %d\n", i), out)
	}
}

func TestBug10DeadlineIsTheHosts(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	sb := create(t, newProvider(t, srv))
	inj := srv.Inject(daytonatest.Fault{Kind: daytonatest.IgnoreTimeout})
	marker := "marker" + hexID(8)
	for timeout := time.Second; ; timeout *= 4 {
		out := &buffer{}
		p, began := started(t, sb, script("echo so far; sleep 300; : "+marker, func(r *provider.ExecRequest) { r.Grace, r.Stdout = 200*time.Millisecond, out }), timeout)
		exit, err := p.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, provider.ExitTimedOut, exit.Kind)
		assert.Equal(t, -1, exit.Code)
		assert.Less(t, time.Since(began), timeout+30*time.Second)
		if out.String() == "" && timeout < 10*time.Second {
			continue // it had not come to say anything
		}
		assert.Equal(t, "so far\n", out.String(), "output up to the deadline is kept")
		break
	}
	assert.NotZero(t, inj.Hits())
	// Its end is not waited for longer than a moment.
	for end := time.Now().Add(30 * time.Second); ; {
		// A pattern that does not match whoever looks for it.
		_, out := run(t, sb, script(`grep -l 'm[a]rker`+strings.TrimPrefix(marker, "marker")+`' /proc/[0-9]*/cmdline 2>/dev/null | wc -l`))
		if strings.TrimSpace(out) == "0" {
			break
		}
		require.True(t, time.Now().Before(end), "the command is not dead")
	}
}

// What leaves its process group and session is found all the same.
func TestBug10KillReachesSetsidChildren(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	sb := create(t, newProvider(t, srv))
	out := &buffer{}
	p, err := sb.Exec(t.Context(), script(`setsid sh -c 'trap "" TERM; sleep 301; :' & (setsid sleep 302 &) ; echo on; sleep 303`, func(r *provider.ExecRequest) { r.Stdout = out }))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "on") }, 30*time.Second, 20*time.Millisecond)
	other, err := sb.Exec(t.Context(), script(`sleep 304`))
	require.NoError(t, err)
	sleepers := func() string {
		_, list := run(t, sb, script(`for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline 2>/dev/null; echo; done | grep '^sleep 30' | sort`))
		return strings.Join(strings.Fields(strings.ReplaceAll(list, "sleep ", "")), " ")
	}
	// Each has become its program by then.
	for end := time.Now().Add(30 * time.Second); sleepers() != "301 302 303 304"; {
		require.True(t, time.Now().Before(end), "they do not all run")
	}
	require.NoError(t, p.Kill(t.Context(), 200*time.Millisecond))
	exit, err := p.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, provider.ExitKilled, exit.Kind)
	assert.Equal(t, "304", sleepers())
	require.NoError(t, other.Kill(t.Context(), 0))
}

func TestBug11ToolboxOfWhatDoesNotRun(t *testing.T) {
	t.Parallel()
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		srv := daytonatest.New(t, daytonatest.Options{})
		sb := create(t, newProvider(t, srv))
		require.NoError(t, sb.(provider.Pauser).Pause(t.Context()))
		_, err := sb.Exec(t.Context(), script("exit 0"))
		require.ErrorIs(t, err, provider.ErrFailedPrecondition)
		assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
		assert.Contains(t, err.Error(), "stopped")
		_, _, err = sb.Files().Open(t.Context(), "x")
		assert.ErrorIs(t, err, provider.ErrFailedPrecondition)
	})
	t.Run("bare 502 while the state is started", func(t *testing.T) {
		t.Parallel()
		srv := daytonatest.New(t, daytonatest.Options{})
		sb := prepared(t, srv, newProvider(t, srv, quick))
		srv.Inject(daytonatest.Fault{Kind: daytonatest.DaemonDead})
		before := len(srv.Executions(sb.Ref().ID))
		_, err := sb.Exec(t.Context(), script("exit 0"))
		require.ErrorIs(t, err, provider.ErrLost)
		assert.Equal(t, provider.AppliedUnknown, provider.AppliedOf(err))
		assert.Len(t, srv.Executions(sb.Ref().ID), before)
	})
	t.Run("stopped under a command", func(t *testing.T) {
		t.Parallel()
		srv := daytonatest.New(t, daytonatest.Options{})
		sb := create(t, newProvider(t, srv))
		p, err := sb.Exec(t.Context(), script("sleep 300"))
		require.NoError(t, err)
		require.NoError(t, sb.(provider.Pauser).Pause(t.Context()))
		exit, err := p.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, provider.ExitLost, exit.Kind)
		assert.Equal(t, -1, exit.Code)
	})
}

func TestBug12LostAnswerIsNeverRepeated(t *testing.T) {
	t.Parallel()
	for _, kind := range []daytonatest.Kind{daytonatest.BadGatewayAfter, daytonatest.DropAfter, daytonatest.Truncate, daytonatest.Garbage, daytonatest.NoExitCode} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			srv := daytonatest.New(t, daytonatest.Options{})
			sb := create(t, newProvider(t, srv))
			srv.Inject(daytonatest.Fault{Kind: kind, On: execOps, Times: 1})
			p, err := sb.Exec(t.Context(), script(`echo once >> count`))
			if err == nil {
				exit, err := p.Wait(t.Context())
				require.NoError(t, err)
				assert.Equal(t, provider.ExitLost, exit.Kind)
				assert.Equal(t, -1, exit.Code)
			} else {
				assert.ErrorIs(t, err, provider.ErrLost)
			}
			content, err := srv.ReadFile(sb.Ref().ID, "/workspace/count")
			require.NoError(t, err)
			assert.Equal(t, "once\n", string(content))
		})
	}
}

func TestBug13QuietWorkIsNotStopped(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{KeepBodies: true})
	p := newProvider(t, srv, func(o *daytona.Options) { o.AutoStop, o.Heartbeat = 10*time.Minute, 30*time.Millisecond })
	sb := create(t, p, func(r *provider.CreateRequest) { r.TTL = 30 * 24 * time.Hour }) // longer than the clock is moved on below
	for _, r := range srv.Requests() {
		if r.Op == daytonatest.OpCreate {
			assert.Contains(t, string(r.Body), `"autoStopInterval":10`)
			assert.Contains(t, string(r.Body), `"ttlMinutes":43200`, "a guard against what nobody destroys")
		}
	}
	proc, err := sb.Exec(t.Context(), script("sleep 2; exit 5"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return srv.Count(daytonatest.OpLastActivity) > 0 }, 30*time.Second, 10*time.Millisecond, "use is reported")
	srv.Advance(9 * time.Minute)
	exit, err := proc.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 5, exit.Code)
	// One that was on its way may still come.
	last := -1
	require.Eventually(t, func() bool {
		now := srv.Count(daytonatest.OpLastActivity)
		same := now == last
		last = now
		return same
	}, 30*time.Second, 300*time.Millisecond, "no command, no heartbeat")
	require.Eventually(t, func() bool {
		srv.Advance(11 * time.Minute) // again, should what the command left have been removed only now
		i, _ := srv.Sandbox(sb.Ref().ID)
		return i.State == "stopped"
	}, 30*time.Second, 100*time.Millisecond)
	st, err := sb.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, provider.StatePaused, st.State)
	require.NoError(t, sb.(provider.Pauser).Resume(t.Context()))
}

func TestBug14TerminalsEnd(t *testing.T) {
	t.Parallel()
	tty := func(r *provider.ExecRequest) { r.TTY, r.Cols, r.Rows, r.Stdin = true, 80, 24, provider.StdinLive }
	for _, release := range []daytonatest.Release{daytonatest.ReleaseMeasured, daytonatest.ReleaseCurrent} {
		t.Run(string(release), func(t *testing.T) {
			t.Parallel()
			srv := daytonatest.New(t, daytonatest.Options{Release: release})
			sb := create(t, newProvider(t, srv))
			for _, code := range []int{0, 3, 255} { // 1000 and 1011
				exit, out := run(t, sb, script(fmt.Sprintf("echo here; exit %d", code), tty))
				assert.Equal(t, provider.Exit{Kind: provider.ExitExited, Code: code, Merged: true, LeftRunning: -1}, exit)
				assert.Equal(t, "here\r\n", out, "no prompt, no echo, no marker")
			}
			exit, _ := run(t, sb, script("kill -KILL $$", tty))
			assert.Equal(t, provider.ExitSignaled, exit.Kind)
			srv.Inject(daytonatest.Fault{Kind: daytonatest.PTYAbnormal, Times: 1})
			exit, _ = run(t, sb, script("exit 0", tty))
			assert.Equal(t, provider.ExitLost, exit.Kind, "an abnormal close is not exit code 0")
			assert.Equal(t, -1, exit.Code)
			srv.Inject(daytonatest.Fault{Kind: daytonatest.PTYRefused, Times: 1})
			_, err := sb.Exec(t.Context(), script("touch started", tty))
			require.Error(t, err)
			assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
			_, err = srv.ReadFile(sb.Ref().ID, "/workspace/started")
			assert.Error(t, err)
		})
	}
}

func TestBug16OneDeadlineOverBuildAndStart(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	p := newProvider(t, srv, func(o *daytona.Options) { o.CreateTimeout = time.Second })
	srv.Inject(daytonatest.Fault{Kind: daytonatest.SlowStart, Delay: 3 * time.Second})
	req := request(func(r *provider.CreateRequest) { r.Image = "debian:12" })
	began := time.Now()
	_, err := p.Create(t.Context(), req)
	require.ErrorIs(t, err, provider.ErrDeadlineExceeded)
	assert.Less(t, time.Since(began), 30*time.Second)
	assert.Empty(t, alive(srv, req.SessionID), "it is deleted as soon as the service allows")
}

func TestBug17AwkwardValues(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	p := newProvider(t, srv)
	// What would make the service fail, and echo the value, is refused before.
	for name, value := range map[string]string{"not UTF-8": "canary\xff\xfe" + hexID(8), "too large": strings.Repeat("canary", 30_000)} {
		req := request(protected(provider.TransportCreate, map[string]string{"TOKEN": value}))
		_, err := p.Create(t.Context(), req)
		require.ErrorIs(t, err, provider.ErrInvalidArgument, name)
		assert.NotContains(t, fmt.Sprintf("%+v", err), "canary")
		assert.Zero(t, srv.Count(daytonatest.OpCreate))
	}
	// The service's text about a sandbox with values in its record is not shown.
	canary := "canary-" + hexID(12)
	srv.Inject(daytonatest.Fault{Kind: daytonatest.CreateFails, Times: 1, Text: "invalid environment variable: TOKEN=" + canary})
	_, err := p.Create(t.Context(), request(protected(provider.TransportCreate, map[string]string{"TOKEN": canary})))
	require.Error(t, err)
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), canary)
	sb := create(t, p)
	for name, value := range map[string]string{"not UTF-8": "x\xff", "too large": strings.Repeat("x", 128<<10)} {
		_, err := sb.Exec(t.Context(), script("touch started", func(r *provider.ExecRequest) { r.Env = map[string]string{"V": value} }))
		require.ErrorIs(t, err, provider.ErrInvalidArgument, name)
	}
	_, err = srv.ReadFile(sb.Ref().ID, "/workspace/started")
	assert.Error(t, err)
}

func TestBug18TruncatedTransfers(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	sb := create(t, newProvider(t, srv))
	content := strings.Repeat("0123456789", 100_000)
	require.NoError(t, sb.Files().Write(t.Context(), "f", strings.NewReader(content), provider.WriteOptions{}))
	inj := srv.Inject(daytonatest.Fault{Kind: daytonatest.ShortDownload})
	_, err := readFile(t.Context(), sb, "f")
	require.ErrorIs(t, err, provider.ErrUnavailable, "half a file is no file")
	for _, n := range []int{6, 100_000} { // with a length that fits what was sent, and without one
		exit, out := run(t, sb, script(fmt.Sprintf("head -c %d /dev/zero", n)))
		if exit.Kind == provider.ExitExited {
			assert.Len(t, out, n)
		} else {
			assert.Equal(t, provider.ExitLost, exit.Kind)
		}
	}
	inj.Remove()
	srv.Inject(daytonatest.Fault{Kind: daytonatest.PartialUpload})
	err = sb.Files().Write(t.Context(), "f", strings.NewReader("something new"), provider.WriteOptions{})
	require.ErrorIs(t, err, provider.ErrUnavailable)
	srv.Heal()
	got, err := readFile(t.Context(), sb, "f")
	require.NoError(t, err)
	assert.Equal(t, content, string(got), "the old content stays")
}

func TestBug19LostWhileStarted(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	sb := create(t, newProvider(t, srv))
	srv.Inject(daytonatest.Fault{Kind: daytonatest.ContainerLost})
	_, err := sb.Exec(t.Context(), script("exit 0"))
	require.ErrorIs(t, err, provider.ErrLost, "not a command's failure")
	assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
}

// evil is a server that nobody may ever call.
func evil(t *testing.T) string {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s reached a server that is not the configured one; authorization: %v", r.Method, r.URL.Path, r.Header.Get("Authorization") != "")
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestRequestsGoToTheConfiguredEndpointOnly(t *testing.T) {
	t.Parallel()
	t.Run("toolbox address of another server", func(t *testing.T) {
		t.Parallel()
		srv := daytonatest.New(t, daytonatest.Options{})
		p := newProvider(t, srv)
		srv.Inject(daytonatest.Fault{Kind: daytonatest.ForeignToolboxURL, Location: evil(t)})
		req := request(protected(provider.TransportExec, map[string]string{"TOKEN": "canary"}))
		_, err := p.Create(t.Context(), req)
		require.ErrorIs(t, err, provider.ErrPermissionDenied)
		assert.Contains(t, err.Error(), daytona.SettingToolboxURL)
		assert.Empty(t, alive(srv, req.SessionID))
	})
	t.Run("redirect", func(t *testing.T) {
		t.Parallel()
		srv := daytonatest.New(t, daytonatest.Options{})
		p := newProvider(t, srv)
		sb := create(t, p)
		srv.Inject(daytonatest.Fault{Kind: daytonatest.Redirect, Location: evil(t)})
		_, err := p.Create(t.Context(), request())
		require.ErrorIs(t, err, provider.ErrPermissionDenied)
		_, err = sb.Exec(t.Context(), script("exit 0"))
		require.Error(t, err)
		_, _, err = sb.Files().Open(t.Context(), "f")
		require.Error(t, err)
		require.Error(t, p.Destroy(t.Context(), sb.Ref()))
		srv.Heal()
		require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	})
	t.Run("a reference says what it likes", func(t *testing.T) {
		t.Parallel()
		srv := daytonatest.New(t, daytonatest.Options{})
		p := newProvider(t, srv)
		sb := create(t, p)
		ref := sb.Ref()
		ref.Data = []byte(`{"apiUrl":"` + evil(t) + `","toolboxProxyUrl":"` + evil(t) + `"}`)
		again, err := p.Open(t.Context(), ref)
		require.NoError(t, err)
		exit, _ := run(t, again, script("exit 3"))
		assert.Equal(t, 3, exit.Code)
		// What the ended command left in the sandbox is removed meanwhile.
		others := func() (n int) {
			for _, r := range srv.Requests() {
				if r.Sandbox != sb.Ref().ID {
					n++
				}
			}
			return n
		}
		for _, id := range []string{"", "..", "a/b", "../../evil", evil(t), "x?y=z", "x#y", "%2e%2e", strings.Repeat("a", 500)} {
			n := others()
			_, err := p.Open(t.Context(), provider.Ref{ID: id})
			assert.ErrorIs(t, err, provider.ErrNotFound, id)
			assert.NoError(t, p.Destroy(t.Context(), provider.Ref{ID: id}), "what cannot be is gone")
			assert.Equal(t, n, others(), "no request for %q", id)
		}
		// A name is no id.
		info, _ := srv.Sandbox(sb.Ref().ID)
		_, err = p.Open(t.Context(), provider.Ref{ID: info.Name})
		assert.ErrorIs(t, err, provider.ErrNotFound)
		assert.NoError(t, p.Destroy(t.Context(), provider.Ref{ID: info.Name}))
		exit, _ = run(t, sb, script("exit 4"))
		assert.Equal(t, 4, exit.Code)
	})
}

// foreign makes a sandbox past the provider.
func foreign(t *testing.T, srv *daytonatest.Server, name string, labels map[string]string) string {
	t.Helper()
	var l []string
	for k, v := range labels {
		l = append(l, fmt.Sprintf("%q:%q", k, v))
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL()+"/sandbox", strings.NewReader(fmt.Sprintf(`{"name":%q,"labels":{%s}}`, name, strings.Join(l, ","))))
	require.NoError(t, err)
	q.Header.Set("Authorization", "Bearer "+srv.Key())
	resp, err := http.DefaultClient.Do(q)
	require.NoError(t, err)
	data, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode, string(data))
	_, id, _ := strings.Cut(string(data), `"id":"`)
	id, _, _ = strings.Cut(id, `"`)
	return id
}

func TestForeignSandboxesAreLeftAlone(t *testing.T) {
	t.Parallel()
	srv := daytonatest.New(t, daytonatest.Options{})
	p := newProvider(t, srv)
	mine := request()
	near := func(change func(l map[string]string)) map[string]string {
		l := map[string]string{"sbxhost.daytona.root": "/workspace"}
		for k, v := range mine.Labels {
			l[k] = v
		}
		change(l)
		return l
	}
	other := hexID(16)
	for name, labels := range map[string]map[string]string{
		"somebody-elses":             {"team": "core"},
		provider.NamePrefix + other:  {"team": "core"},
		provider.NamePrefix + "copy": near(func(map[string]string) {}), // the labels of one name on another
		mine.Name:                    near(func(l map[string]string) { delete(l, provider.LabelOwner) }),
	} {
		id := foreign(t, srv, name, labels)
		_, err := p.Open(t.Context(), provider.Ref{ID: id})
		require.ErrorIs(t, err, provider.ErrPermissionDenied, name)
		require.ErrorIs(t, p.Destroy(t.Context(), provider.Ref{ID: id}), provider.ErrPermissionDenied, name)
		info, ok := srv.Sandbox(id)
		require.True(t, ok && info.State == "started", "%s was touched", name)
	}
	_, err := p.Create(t.Context(), mine)
	require.ErrorIs(t, err, provider.ErrConflict, "the name is taken by one that is not ours")
	list, err := p.List(t.Context(), provider.Query{Owner: "owner-a"})
	require.NoError(t, err)
	assert.Empty(t, list)
	assert.Zero(t, srv.Count(daytonatest.OpDelete))
}

// The key is in the header of requests to the service, and nowhere else.
func TestKeyIsNowhere(t *testing.T) {
	t.Parallel()
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"message":"bad header %s","code":%q}`, r.Header.Get("Authorization"), r.Header.Get("Authorization"))
	}))
	t.Cleanup(echo.Close)
	srv := daytonatest.New(t, daytonatest.Options{})
	seen := func(errs ...error) {
		for _, err := range errs {
			require.Error(t, err)
			for e := err; e != nil; {
				assert.NotContains(t, fmt.Sprintf("%v %+v %#v", e, e, e), srv.Key())
				u, ok := e.(interface{ Unwrap() error })
				if !ok {
					break
				}
				e = u.Unwrap()
			}
		}
	}
	o := options(srv)
	o.APIURL = echo.URL
	p, err := daytona.New(o)
	require.NoError(t, err)
	_, err1 := p.Create(t.Context(), request())
	_, err2 := p.List(t.Context(), provider.Query{Owner: "owner-a"})
	_, err3 := p.Check(t.Context())
	_, err4 := p.Open(t.Context(), provider.Ref{ID: "abc"})
	seen(err1, err2, err3, err4)
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v", p, p, p), srv.Key())
	o.APIURL = "http://127.0.0.1:1/api"
	p, err = daytona.New(o)
	require.NoError(t, err)
	_, err = p.Check(t.Context())
	seen(err)
	require.ErrorIs(t, err, provider.ErrUnavailable)

	p = newProvider(t, srv)
	sb := create(t, p, func(r *provider.CreateRequest) { r.Ports = []int{8080} })
	srv.Inject(daytonatest.Fault{Kind: daytonatest.Unauthorized})
	_, err1 = sb.Exec(t.Context(), script("exit 0"))
	_, err2 = sb.Status(t.Context())
	_, err3 = sb.(provider.Ports).Port(t.Context(), 8080)
	seen(err1, err2, err3, p.Destroy(t.Context(), sb.Ref()))
	assert.ErrorIs(t, err2, provider.ErrPermissionDenied)
	srv.Heal()
	require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	assert.Empty(t, srv.Find([]byte(srv.Key())))
	for _, r := range srv.Requests() {
		assert.NotContains(t, r.Path+r.Query, srv.Key())
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	key := "dtn_" + hexID(32)
	for name, mod := range map[string]func(*daytona.Options){
		"no key":               func(o *daytona.Options) { o.APIKey = secret.Value{} },
		"a key with a newline": func(o *daytona.Options) { o.APIKey = secret.FromString(key + "\n") },
		"plain http":           func(o *daytona.Options) { o.APIURL = "http://daytona.example.com/api" },
		"no address":           func(o *daytona.Options) { o.APIURL = "daytona" },
		"a password":           func(o *daytona.Options) { o.APIURL = "https://u:" + key + "@daytona.example.com/api" },
		"a query":              func(o *daytona.Options) { o.APIURL = "https://daytona.example.com/api?k=" + key },
		"a file":               func(o *daytona.Options) { o.APIURL = "file:///etc/passwd" },
		"a plain toolbox":      func(o *daytona.Options) { o.ToolboxURL = "http://proxy.example.com" },
		"an organization":      func(o *daytona.Options) { o.OrganizationID = "a\r\nX-Evil: 1" },
		"a port's life":        func(o *daytona.Options) { o.PortTTL = 48 * time.Hour },
	} {
		o := daytona.Options{APIKey: secret.FromString(key)}
		mod(&o)
		_, err := daytona.New(o)
		require.ErrorIs(t, err, provider.ErrInvalidArgument, name)
		assert.NotContains(t, fmt.Sprintf("%+v", err), key, name)
	}
	p, err := daytona.New(daytona.Options{APIKey: secret.FromString(key)})
	require.NoError(t, err)
	assert.Equal(t, daytona.DefaultAPIURL, p.Endpoint())
	require.NoError(t, provider.ValidateDescription(p.Describe()))
}

// A place is a service and an organization, which is the key's own unless the key is a
// JWT.
func TestPlace(t *testing.T) {
	t.Parallel()
	plain, other, jwt := "dtn_"+hexID(32), "dtn_"+hexID(32), hexID(8)+"."+hexID(16)+"."+hexID(8)
	at := func(key, url, organization string) string {
		p, err := daytona.New(daytona.Options{APIKey: secret.FromString(key), APIURL: url, OrganizationID: organization})
		require.NoError(t, err)
		assert.NotContains(t, p.Place(), key)
		return p.Place()
	}
	const elsewhere = "https://other.example/api"
	assert.Equal(t, at(plain, "", ""), at(plain, "", "one"), "the service ignores it")
	assert.Equal(t, at(jwt, "", "one"), at(jwt+"x", "", "one"), "another token of one organization")
	places := map[string]bool{}
	for _, p := range []string{at(plain, "", ""), at(other, "", ""), at(plain, elsewhere, ""), at(jwt, "", "one"), at(jwt, "", "two"), at(jwt, elsewhere, "one")} {
		places[p] = true
	}
	assert.Len(t, places, 6, "places that differ")
}

// doubling sends each execute request twice, as a proxy might, and returns the
// second answer.
type doubling struct {
	next http.RoundTripper
	on   atomic.Bool
	n    atomic.Int64
}

func (d *doubling) RoundTrip(r *http.Request) (*http.Response, error) {
	if !d.on.Load() || !strings.HasSuffix(r.URL.Path, "/process/execute") {
		return d.next.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	d.n.Add(1)
	var resp *http.Response
	for range 2 {
		if resp != nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		c := r.Clone(r.Context())
		c.Body = io.NopCloser(bytes.NewReader(body))
		if resp, err = d.next.RoundTrip(c); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

func deleteForeign(t *testing.T, srv *daytonatest.Server, id string) {
	t.Helper()
	q, err := http.NewRequestWithContext(context.Background(), http.MethodDelete, srv.URL()+"/sandbox/"+id, http.NoBody)
	require.NoError(t, err)
	q.Header.Set("Authorization", "Bearer "+srv.Key())
	resp, err := http.DefaultClient.Do(q)
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	require.Eventually(t, func() bool { i, _ := srv.Sandbox(id); return i.Destroyed }, 30*time.Second, 5*time.Millisecond)
}

// stalling delivers half of each download and then nothing until the request ends.
type stalling struct {
	next  http.RoundTripper
	stuck chan struct{} // told of each
}

func (s *stalling) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/files/download") {
		resp.Body = &stalled{ReadCloser: resp.Body, ctx: r.Context(), left: resp.ContentLength / 2, stuck: s.stuck}
	}
	return resp, err
}

type stalled struct {
	io.ReadCloser
	ctx   context.Context
	left  int64
	stuck chan struct{}
}

func (s *stalled) Read(p []byte) (int, error) {
	if s.left == 0 {
		s.stuck <- struct{}{}
		<-s.ctx.Done()
		return 0, s.ctx.Err()
	}
	n, err := s.ReadCloser.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	return n, err
}

// A read that is cancelled while it waits says so, and not that the connection broke.
func TestCancelledWhileItWaits(t *testing.T) {
	t.Parallel()
	s := &stalling{next: http.DefaultTransport, stuck: make(chan struct{}, 1)}
	srv := daytonatest.New(t, daytonatest.Options{})
	p := newProvider(t, srv, func(o *daytona.Options) { o.Transport = s })
	sb, err := p.Create(t.Context(), request())
	require.NoError(t, err)
	defer func() { assert.NoError(t, p.Destroy(context.Background(), sb.Ref())) }()
	require.NoError(t, sb.Files().Write(t.Context(), "f", strings.NewReader(strings.Repeat("x", 100)), provider.WriteOptions{}))
	ctx, cancel := context.WithCancel(t.Context())
	r, _, err := sb.Files().Open(ctx, "f")
	require.NoError(t, err)
	go func() { <-s.stuck; cancel() }()
	_, err = io.ReadAll(r)
	require.ErrorIs(t, err, provider.ErrCanceled)
	require.NoError(t, r.Close())
}

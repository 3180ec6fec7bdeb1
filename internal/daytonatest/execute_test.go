//go:build linux

package daytonatest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

func TestExecute(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create(object{"env": object{"FROM_CREATE": "c"}})
	awkward := "a 'b' \"c\" $HOME $(id) `id` \\ \n tab\t grüße"
	big := strings.Repeat("x", 100<<10)
	for name, x := range map[string]struct {
		command string
		more    object
		code    int
		text    string
	}{
		"merged":                     {"echo out; echo err >&2; exit 3", nil, 3, "out\nerr\n"},
		"work directory":             {"pwd", nil, 0, "/home/daytona\n"},
		"cwd":                        {"pwd", object{"cwd": "/tmp"}, 0, "/tmp\n"},
		"relative cwd":               {"mkdir -p d && cd d && pwd", object{"cwd": "."}, 0, "/home/daytona/d\n"},
		"missing cwd":                {"echo x", object{"cwd": "/nowhere"}, -1, "fork/exec /bin/bash: no such file or directory"},
		"environment":                {`printf %s "$V-$FROM_CREATE"`, object{"envs": object{"V": awkward, "FROM_CREATE": "over"}}, 0, awkward + "-over"},
		"large variable":             {`printf %s "${#V}"`, object{"envs": object{"V": big}}, 0, "102400"},
		"too large a variable":       {`true`, object{"envs": object{"V": big + big}}, -1, "fork/exec /bin/bash: argument list too long"},
		"NUL in a variable":          {`true`, object{"envs": object{"V": "a\x00b"}}, -1, "fork/exec /bin/bash: invalid argument"},
		"killed by a signal":         {"kill -9 $$", nil, -1, ""},
		"the script is the input":    {"head -n 1 >/dev/null\necho swallowed", nil, 0, ""},
		"guarded input":              {"{ cat; echo end\n} </dev/null", nil, 0, "end\n"},
		"bytes that are not UTF-8":   {`printf 'a\377b'`, nil, 0, "a\uFFFDb"},
		"a zero timeout is no limit": {"sleep 0.1; echo on", object{"timeout": 0}, 0, "on\n"},
	} {
		code, text := c.exec(id, x.command, x.more)
		assert.Equal(t, x.code, code, name)
		assert.Equal(t, x.text, text, name)
	}
	assert.NotEmpty(t, c.s.Executions(id))
	for _, e := range c.s.Executions(id) {
		assert.Equal(t, id, e.Sandbox)
	}
}

func TestExecuteRefuses(t *testing.T) {
	t.Parallel()
	c := plainFake(t, daytonatest.Options{})
	id := c.create()
	for name, body := range map[string]any{
		"empty":                object{},
		"blank":                object{"command": "  \n"},
		"bad variable name":    object{"command": "true", "envs": object{"A-B": "x"}},
		"fraction of a second": object{"command": "true", "timeout": 0.5},
		"negative timeout":     object{"command": "true", "timeout": -1},
		"broken JSON":          `{"command":`,
	} {
		r := c.box(id, "POST", "process/execute", body)
		assert.Equal(t, 400, r.status, name)
		assert.Equal(t, "BAD_REQUEST", r.object(t)["code"], name)
	}
	assert.Empty(t, c.s.Executions(id), "nothing was started")
}

func TestExecuteTimeout(t *testing.T) {
	t.Parallel()
	for _, release := range []daytonatest.Release{daytonatest.ReleaseMeasured, daytonatest.ReleaseCurrent} {
		c := fake(t, daytonatest.Options{Release: release})
		id := c.create()
		r := c.box(id, "POST", "process/execute", object{"command": "echo partial; (sleep 301 &); setsid sleep 302 & sleep 300", "timeout": 3})
		assert.Equal(t, 408, r.status)
		assert.NotContains(t, r.text, "partial", "output is lost")
		want := "REQUEST_TIMEOUT"
		if release == daytonatest.ReleaseCurrent {
			want = "PROCESS_EXECUTION_TIMEOUT"
			assert.Equal(t, "DAYTONA_DAEMON", r.object(t)["source"])
		}
		assert.Equal(t, want, r.object(t)["code"])
		var text string
		for end := time.Now().Add(30 * time.Second); ; { // the answer does not wait for the end of what is killed
			_, text = c.exec(id, "pgrep -af sleep")
			if !strings.Contains(text, "sleep 300") && !strings.Contains(text, "sleep 301") {
				break
			}
			require.True(t, time.Now().Before(end), "the process group is not dead: %s", text)
		}
		assert.Contains(t, text, "sleep 302", "what left it is not")
	}
}

func TestExecuteWaitsForWhoHoldsTheOutput(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	began := time.Now()
	_, text := c.exec(id, "(sleep 0.4; echo late) & echo first")
	assert.Equal(t, "first\nlate\n", text)
	assert.Greater(t, time.Since(began), 390*time.Millisecond)
	began = time.Now()
	c.exec(id, "(sleep 30 &) >/dev/null 2>&1; echo first")
	assert.Less(t, time.Since(began), 30*time.Second)
}

// A command goes on when its client goes away.
func TestExecuteOutlivesItsClient(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	ctx, cancel := context.WithCancel(t.Context())
	body, _ := json.Marshal(object{"command": "touch begun; while [ ! -e go ]; do sleep 0.02; done; touch /tmp/finished"})
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.s.ToolboxURL()+"/"+id+"/process/execute", strings.NewReader(string(body)))
	require.NoError(t, err)
	q.Header.Set("Authorization", "Bearer "+c.s.Key())
	q.Header.Set("Content-Type", "application/json")
	gone := make(chan error, 1)
	go func() {
		p, err := c.http.Do(q)
		if err == nil {
			_ = p.Body.Close()
		}
		gone <- err
	}()
	there := func(path string) func() bool {
		return func() bool { _, err := c.s.ReadFile(id, path); return err == nil }
	}
	require.Eventually(t, there("/home/daytona/begun"), time.Minute, 5*time.Millisecond)
	cancel()
	require.Error(t, <-gone)
	c.exec(id, "touch go")
	require.Eventually(t, there("/tmp/finished"), time.Minute, 5*time.Millisecond)
}

func TestCutConnections(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id, other := c.create(), c.create()
	done := make(chan reply, 2)
	run := func(id string) {
		done <- c.box(id, "POST", "process/execute", object{"command": "touch /tmp/on; sleep 300"})
	}
	go run(id)
	require.Eventually(t, func() bool { _, err := c.s.ReadFile(id, "/tmp/on"); return err == nil }, 30*time.Second, 5*time.Millisecond)
	assert.Zero(t, c.s.CutConnections(other))
	assert.Zero(t, c.s.CutConnections("nobody"))
	assert.Equal(t, 1, c.s.CutConnections(id))
	require.Error(t, (<-done).err)
	require.Eventually(t, func() bool { // it may only just have come there
		_, text := c.exec(id, "pgrep -af 'sleep 300'")
		return strings.Contains(text, "sleep 300")
	}, 30*time.Second, 20*time.Millisecond, "the command goes on")
}

func TestOldDaemonIgnoresEnvs(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{DaemonVersion: "0.166.9"})
	id := c.create()
	code, text := c.exec(id, `echo "[$V]"`, object{"envs": object{"V": "x"}})
	assert.Zero(t, code)
	assert.Equal(t, "[]\n", text)
	assert.Equal(t, "0.166.9", c.box(id, "GET", "version", nil).object(t)["version"])
}

func TestUserOfTheSandbox(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{User: "daytona"})
	id := c.create()
	_, text := c.exec(id, "id -un; touch /denied 2>/dev/null || echo no; touch mine && stat -c %U mine; echo ~")
	assert.Equal(t, "daytona\nno\ndaytona\n/home/daytona\n", text)
	id = c.create(object{"user": "nobody"})
	_, text = c.exec(id, "id -u")
	assert.Equal(t, "65534\n", text)
	r := c.api("POST", "sandbox", object{"user": "stranger"})
	c.wantError(r, 400, "unable to find user stranger")
}

// Sandboxes do not see each other, nor the machine.
func TestSandboxesAreApart(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	a, b := c.create(), c.create()
	c.exec(a, "echo a >/tmp/f; mkdir -p /workspace; echo a >/workspace/f; (sleep 303 &) >/dev/null 2>&1")
	code, _ := c.exec(b, "test -e /tmp/f || test -e /workspace/f")
	assert.Equal(t, 1, code)
	_, text := c.exec(b, "pgrep -af sleep; ls /proc | grep -c '^[0-9]'")
	assert.NotContains(t, text, "sleep 303")
	code, _ = c.exec(b, "touch /usr/written 2>/dev/null")
	assert.Equal(t, 1, code, "the machine's programs are read-only")
	code, text = c.exec(b, "test -c /dev/null && test -w /dev/shm && echo x >/dev/stdout && hostname >/dev/null; kill -0 1 && echo one")
	assert.Zero(t, code)
	assert.Contains(t, text, "one")
}

func TestCodeRunAndEnv(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{Release: daytonatest.ReleaseCurrent})
	id := c.create()
	r := c.box(id, "POST", "env", object{"set": object{"LATER": "l"}, "unset": []string{"LANG"}})
	require.Equal(t, 200, r.status, r.text)
	_, text := c.exec(id, `echo "$LATER-$LANG"`)
	assert.Equal(t, "l-\n", text)
	r = c.box(id, "POST", "process/code-run", object{"code": "echo $0 $1; exit 4", "language": "bash", "argv": []string{"one"}})
	require.Equal(t, 200, r.status, r.text)
	assert.Equal(t, "sh one\n", r.object(t)["result"])
	assert.EqualValues(t, 4, r.object(t)["exitCode"])
	assert.Equal(t, 400, c.box(id, "POST", "process/code-run", object{"code": "x", "language": "cobol"}).status)
}

func TestSmallToolboxAnswers(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	assert.Equal(t, "/home/daytona", c.box(id, "GET", "work-dir", nil).object(t)["dir"])
	assert.Equal(t, "/root", c.box(id, "GET", "user-home-dir", nil).object(t)["dir"])
	assert.Equal(t, "0.190.0", c.box(id, "GET", "version", nil).object(t)["version"])
	assert.Equal(t, []any{}, c.box(id, "GET", "port", nil).object(t)["ports"])
	assert.Equal(t, false, c.box(id, "GET", "port/3000/in-use", nil).object(t)["isInUse"])
	assert.Equal(t, 400, c.box(id, "GET", "port/80/in-use", nil).status)
}

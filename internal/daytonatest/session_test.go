//go:build linux

package daytonatest_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

// dial opens a websocket of a sandbox's toolbox.
func (c *client) dial(id, path string, subprotocols ...string) (*websocket.Conn, *http.Response) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	ws, p, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(c.s.ToolboxURL(), "http")+"/"+id+"/"+path, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + c.s.Key()}}, HTTPClient: c.http, Subprotocols: subprotocols})
	if err != nil {
		return nil, p
	}
	c.t.Cleanup(func() { _ = ws.CloseNow() })
	return ws, p
}

// frames reads a websocket to its end.
func (c *client) frames(ws *websocket.Conn) (text []string, binary string, end websocket.CloseError) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	for {
		kind, data, err := ws.Read(ctx)
		if err != nil {
			require.NoError(c.t, ctx.Err(), "the websocket did not end")
			end.Code = -1
			_ = errors.As(err, &end)
			return text, binary, end
		}
		if kind == websocket.MessageText {
			text = append(text, string(data))
		} else {
			binary += string(data)
		}
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	assert.Equal(t, 201, c.box(id, "POST", "process/session", object{"sessionId": "s"}).status)
	c.wantError(c.box(id, "POST", "process/session", object{"sessionId": "s"}), 409, "exists")
	assert.Equal(t, 400, c.box(id, "POST", "process/session", object{"sessionId": "entrypoint"}).status)
	run := func(command string) map[string]any {
		t.Helper()
		r := c.box(id, "POST", "process/session/s/exec", object{"command": command})
		require.Equal(t, 200, r.status, r.text)
		return r.object(t)
	}
	o := run("cd /tmp; export E=1; printf out; echo err >&2; (exit 4)")
	assert.EqualValues(t, 4, o["exitCode"])
	assert.Equal(t, "out\n", o["stdout"], "a missing final newline is added")
	assert.Equal(t, "err\n", o["stderr"])
	first := o["cmdId"].(string)
	assert.Equal(t, "/tmp 1\n", run("echo $PWD $E")["stdout"], "directory and exports persist")
	assert.Equal(t, "ab\n", run(`printf 'a\000b'`)["stdout"], "NULs are dropped")
	o = run(`printf 'x\002\002\002y\n'`)
	assert.Equal(t, "y\n", o["stderr"], "output that contains a marker is taken for one")

	logs := "process/session/s/command/" + first + "/logs"
	r := c.box(id, "GET", logs, nil)
	assert.NotContains(t, r.text, "\x01\x01\x01")
	assert.Contains(t, r.text, "out\n")
	r = c.box(id, "GET", logs, nil, header("X-Daytona-Split-Output", "true"))
	assert.Contains(t, r.text, "\x01\x01\x01out\n")
	assert.Contains(t, r.text, "\x02\x02\x02err\n")
	o = c.box(id, "GET", logs, nil, header("X-Daytona-SDK-Version", "0.167.0")).object(t)
	assert.Equal(t, "out\n", o["stdout"])
	assert.Equal(t, "err\n", o["stderr"])
	r = c.box(id, "GET", logs, nil, header("X-Daytona-SDK-Version", "0.166.0"))
	assert.True(t, strings.HasPrefix(r.header.Get("Content-Type"), "text/plain"))

	o = c.box(id, "GET", "process/session/s", nil).object(t)
	assert.Len(t, o["commands"], 4)
	assert.Contains(t, c.box(id, "GET", "process/session", nil).text, first)
	assert.EqualValues(t, 4, c.box(id, "GET", "process/session/s/command/"+first, nil).object(t)["exitCode"])
	script, err := c.s.ReadFile(id, "/home/daytona/.daytona/sessions/s/"+first+"/cmd.sh")
	require.NoError(t, err)
	assert.Contains(t, string(script), "export E=1", "the command's text is on the disk")

	for _, path := range []string{"process/session/no", "process/session/s/command/no", "process/session/no/command/no", "process/session/s/command/no/logs"} {
		assert.Equal(t, 404, c.box(id, "GET", path, nil).status, path)
	}
	c.wantError(c.box(id, "POST", "process/session/no/exec", object{"command": "true"}), 500, "session not found")
	assert.Equal(t, 400, c.box(id, "POST", "process/session/s/exec", object{"command": ""}).status)
	assert.Equal(t, 204, c.box(id, "DELETE", "process/session/s", nil).status)
	assert.Equal(t, 404, c.box(id, "DELETE", "process/session/s", nil).status)
	assert.Contains(t, strings.Join(c.s.Find([]byte("export E=1")), "\n"), "cmd.sh", "and stays on the record")
}

func TestSessionInput(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	c.box(id, "POST", "process/session", object{"sessionId": "s"})
	for _, quiet := range []bool{false, true} {
		r := c.box(id, "POST", "process/session/s/exec", object{"command": "read x; echo \"got $x\"", "runAsync": true, "suppressInputEcho": quiet})
		require.Equal(t, 202, r.status)
		o := r.object(t)
		assert.Contains(t, o, "exitCode")
		assert.Nil(t, o["exitCode"])
		cmd := "process/session/s/command/" + o["cmdId"].(string)
		assert.NotContains(t, c.box(id, "GET", cmd, nil).object(t), "exitCode", "while it runs")
		assert.Equal(t, 204, c.box(id, "POST", cmd+"/input", object{"data": "word"}).status)
		require.Eventually(t, func() bool { return c.box(id, "GET", cmd, nil).object(t)["exitCode"] != nil }, 30*time.Second, 5*time.Millisecond)
		want := "word\ngot word\n"
		if quiet {
			want = "got word\n"
		}
		got := c.box(id, "GET", cmd+"/logs", nil).text
		assert.ElementsMatch(t, strings.Fields(want), strings.Fields(got), "the input is echoed unless it is suppressed")
		c.wantError(c.box(id, "POST", cmd+"/input", object{"data": "late"}), 410, "completed")
	}
}

func TestSessionLogsAreFollowed(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	c.box(id, "POST", "process/session", object{"sessionId": "s"})
	o := c.box(id, "POST", "process/session/s/exec", object{"command": "for i in 1 2 3; do echo $i; sleep 0.1; done; echo e >&2", "runAsync": true}).object(t)
	path := "process/session/s/command/" + o["cmdId"].(string) + "/logs?follow=true"
	ws, p := c.dial(id, path, "X-Daytona-SDK-Version~0.190.0")
	require.NotNil(t, ws)
	assert.Equal(t, "X-Daytona-SDK-Version~0.190.0", p.Header.Get("Sec-WebSocket-Protocol"), "the subprotocol is echoed")
	_, binary, end := c.frames(ws)
	assert.Equal(t, websocket.StatusNormalClosure, end.Code)
	assert.Contains(t, binary, "\x01\x01\x012\n")
	assert.Contains(t, binary, "\x02\x02\x02e\n")
	ws, _ = c.dial(id, path)
	require.NotNil(t, ws)
	_, binary, _ = c.frames(ws)
	assert.ElementsMatch(t, []string{"1", "2", "3", "e"}, strings.Fields(binary), "without a version the markers are taken out")
	_, p = c.dial(id, "process/session/s/command/no/logs?follow=true")
	require.NotNil(t, p)
	assert.Equal(t, 404, p.StatusCode)
}

// exit kills the session's shell: a call that waits never returns, and the next
// one finds a broken pipe.
func TestSessionShellThatExits(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	c.box(id, "POST", "process/session", object{"sessionId": "s"})
	c.http.Timeout = 3 * time.Second // the shell is gone by then, most likely
	r := c.box(id, "POST", "process/session/s/exec", object{"command": "exit 3"})
	require.ErrorContains(t, r.err, "Timeout")
	for range 5 { // or it takes the command, and never answers
		if r = c.box(id, "POST", "process/session/s/exec", object{"command": "true"}); r.err == nil {
			break
		}
	}
	c.wantError(r, 500, "broken pipe")
	c.http.Timeout = 30 * time.Second

	c = fake(t, daytonatest.Options{Release: daytonatest.ReleaseCurrent})
	id = c.create()
	c.box(id, "POST", "process/session", object{"sessionId": "s"})
	r = c.box(id, "POST", "process/session/s/exec", object{"command": "exit 3"})
	assert.Equal(t, 409, r.status)
	assert.Equal(t, "SESSION_ENDED", r.object(t)["code"])
	assert.Equal(t, 404, c.box(id, "POST", "process/session/no/exec", object{"command": "true"}).status)
}

//go:build linux

package daytonatest_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

func (c *client) say(ws *websocket.Conn, text string) {
	c.t.Helper()
	require.NoError(c.t, ws.Write(c.t.Context(), websocket.MessageText, []byte(text)))
}

// until reads binary frames until the text was there.
func (c *client) until(ws *websocket.Conn, want string) string {
	c.t.Helper()
	return c.untilAfter(ws, "", want)
}

// untilAfter is until when something was read already.
func (c *client) untilAfter(ws *websocket.Conn, before, want string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	all := before
	for !strings.Contains(all, want) {
		kind, data, err := ws.Read(ctx)
		require.NoError(c.t, err, "before %q came: %q", want, all)
		if kind == websocket.MessageBinary {
			all += string(data)
		}
	}
	return all
}

func TestPTY(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	r := c.box(id, "POST", "process/pty", object{"id": "p", "cols": 100, "rows": 30, "cwd": "/tmp", "envs": object{"V": "canary-4"}})
	require.Equal(t, 201, r.status, r.text)
	assert.Equal(t, "p", r.object(t)["sessionId"])
	r = c.box(id, "POST", "process/pty", object{"id": "p"})
	assert.Equal(t, 409, r.status)
	assert.Contains(t, r.object(t)["error"], "already exists")
	for _, bad := range []object{{"cols": 1001}, {"rows": -1}, {"envs": object{"A-B": "x"}}} {
		assert.Equal(t, 400, c.box(id, "POST", "process/pty", bad).status)
	}
	assert.Contains(t, c.box(id, "GET", "process/pty", nil).text, "canary-4", "variables come back in clear")
	o := c.box(id, "GET", "process/pty/p", nil).object(t)
	assert.EqualValues(t, 100, o["cols"])
	assert.Equal(t, true, o["active"])

	ws, _ := c.dial(id, "process/pty/p/connect")
	require.NotNil(t, ws)
	second, _ := c.dial(id, "process/pty/p/connect")
	require.NotNil(t, second)
	kind, data, err := ws.Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, websocket.MessageText, kind)
	assert.JSONEq(t, `{"type":"control","status":"connected"}`, string(data), "the first frame")
	c.say(ws, "echo \"$V:$(pwd):$TERM:$(stty size):$(tty)\"\n")
	all := c.until(ws, ":30 100:/dev/pts/")
	assert.Contains(t, all, "canary-4:/tmp:xterm-256color:30 100")
	c.until(second, "canary-4:/tmp")
	o = c.box(id, "POST", "process/pty/p/resize", object{"cols": 90, "rows": 20}).object(t)
	assert.EqualValues(t, 90, o["cols"])
	c.say(ws, "stty size\n")
	c.until(ws, "20 90")
	// It says itself that it is in the foreground.
	c.say(ws, `sh -c 'trap "echo cau""ght; exit" INT; echo read""y; while :; do sleep 0.05; done'`+"\n")
	c.until(ws, "ready")
	c.say(ws, "\x03")
	// The prompt, perhaps in the same frame, or in two: what is typed before would be
	// flushed.
	_, after, _ := strings.Cut(c.until(ws, "caught"), "caught")
	c.untilAfter(ws, after, "# ")
	c.say(ws, "echo after''wards\n")
	c.until(ws, "afterwards")
	c.say(ws, "exit 3\n")
	_, _, end := c.frames(ws)
	assert.Equal(t, websocket.StatusInternalError, end.Code, "1011 for an exit code other than 0")
	assert.JSONEq(t, `{"exitCode":3,"exitReason":"non-zero exit"}`, end.Reason)
	_, _, end = c.frames(second)
	assert.Equal(t, websocket.StatusInternalError, end.Code)
	assert.Equal(t, 404, c.box(id, "GET", "process/pty/p", nil).status)
	assert.Equal(t, 410, c.box(id, "POST", "process/pty/p/resize", object{"cols": 90, "rows": 20}).status)
	assert.Equal(t, 404, c.box(id, "DELETE", "process/pty/p", nil).status)
	assert.NotEmpty(t, c.s.Find([]byte("canary-4")), "the list of terminals is on the record")
}

func TestPTYEnds(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	open := func(name string) *websocket.Conn {
		t.Helper()
		require.Equal(t, 201, c.box(id, "POST", "process/pty", object{"id": name, "lazyStart": true}).status)
		assert.Equal(t, false, c.box(id, "GET", "process/pty/"+name, nil).object(t)["active"])
		ws, _ := c.dial(id, "process/pty/"+name+"/connect")
		require.NotNil(t, ws)
		return ws
	}
	ws := open("zero")
	c.say(ws, "exit 0\n")
	_, _, end := c.frames(ws)
	assert.Equal(t, websocket.StatusNormalClosure, end.Code)
	assert.JSONEq(t, `{"exitCode":0}`, end.Reason)

	ws = open("killed")
	c.say(ws, "echo rea''dy\n")
	c.until(ws, "ready")
	assert.Equal(t, 200, c.box(id, "DELETE", "process/pty/killed", nil).status)
	_, _, end = c.frames(ws)
	assert.Equal(t, websocket.StatusInternalError, end.Code)
	assert.JSONEq(t, `{"exitCode":137,"exitReason":"SIGKILL"}`, end.Reason)

	require.Equal(t, 201, c.box(id, "POST", "process/pty", object{"id": "never", "lazyStart": true}).status)
	assert.Equal(t, 200, c.box(id, "DELETE", "process/pty/never", nil).status)

	// A missing terminal fails after the upgrade.
	ws, p := c.dial(id, "process/pty/none/connect")
	require.NotNil(t, ws)
	assert.Equal(t, http.StatusSwitchingProtocols, p.StatusCode)
	text, _, end := c.frames(ws)
	require.Len(t, text, 1)
	assert.Contains(t, text[0], `"status":"error"`)
	assert.NotEqual(t, websocket.StatusNormalClosure, end.Code)

	// A sandbox that stops takes its terminals along.
	ws = open("stopped")
	c.api("POST", "sandbox/"+id+"/stop", nil)
	_, _, end = c.frames(ws)
	assert.NotEqual(t, websocket.StatusNormalClosure, end.Code)
}

func TestPTYOutputWithoutListenerIsLost(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	c.box(id, "POST", "process/pty", object{"id": "p"})
	ws, _ := c.dial(id, "process/pty/p/connect")
	c.say(ws, "while [ ! -e /tmp/go ]; do sleep 0.02; done; echo un''heard; touch /tmp/said\n")
	require.NoError(t, ws.Close(websocket.StatusNormalClosure, ""))
	c.exec(id, "touch /tmp/go; while [ ! -e /tmp/said ]; do sleep 0.02; done; sleep 1")
	ws, _ = c.dial(id, "process/pty/p/connect")
	c.say(ws, "echo he''ard\n")
	assert.NotContains(t, c.until(ws, "heard"), "unheard")
}

func TestPTYInOneStep(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{Release: daytonatest.ReleaseCurrent})
	id := c.create()
	q := url.Values{"id": {"p"}, "cols": {"70"}, "rows": {"20"}, "cwd": {"/tmp"}}
	envs := base64.RawURLEncoding.EncodeToString([]byte(`{"V":"canary-5"}`))
	ws, _ := c.dial(id, "process/pty/create-connect?"+q.Encode(), "X-Daytona-Pty-Envs~"+envs, "X-Daytona-Pty-Exit-Control")
	require.NotNil(t, ws)
	c.say(ws, "echo $V $(pwd) $(stty size); exit 6\n")
	text, binary, _ := c.frames(ws)
	assert.Contains(t, binary, "canary-5 /tmp 20 70")
	require.Len(t, text, 2)
	assert.JSONEq(t, `{"type":"control","status":"exited","exitCode":6,"exitReason":"non-zero exit"}`, text[1])
	assert.NotEmpty(t, c.s.Find([]byte(envs)), "the variables are in the headers that proxies log")

	old := plainFake(t, daytonatest.Options{})
	id = old.create()
	ws, p := old.dial(id, "process/pty/create-connect?"+q.Encode())
	assert.Nil(t, ws)
	assert.Equal(t, 404, p.StatusCode)
}

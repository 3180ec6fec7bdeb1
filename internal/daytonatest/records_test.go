//go:build linux

package daytonatest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

// kindsOf returns the kinds of record that hold needle.
func kindsOf(c *client, needle string) map[string]bool {
	out := map[string]bool{}
	for _, place := range c.s.Find([]byte(needle)) {
		out[strings.SplitN(place, " ", 2)[0]] = true
	}
	return out
}

// Each canary is put somewhere and must be found in exactly the places where the
// service keeps it: a scan that sees less would prove nothing.
func TestRecordsShowWhatIsStored(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create(object{"env": object{"E": "canary-env\"quoted\""}, "labels": object{"l": "canary-label"}})
	require.Equal(t, 200, c.api("GET", "sandbox", nil).status)
	c.api("GET", "sandbox/paginated", nil)
	c.exec(id, "true", object{"envs": object{"V": "canary-exec"}})
	c.exec(id, "echo canary-command >/dev/null")
	c.exec(id, `echo "$V" >/tmp/kept`, object{"envs": object{"V": "canary-file"}})
	c.box(id, "POST", "process/session", object{"sessionId": "s"})
	c.box(id, "POST", "process/session/s/exec", object{"command": "echo canary-session"})
	c.box(id, "POST", "process/pty", object{"id": "p", "envs": object{"V": "canary-pty"}, "lazyStart": true})
	c.upload(id, "/tmp/canary-path-not-query", "canary-content")
	c.box(id, "GET", at("files/info", "/tmp/canary-path"), nil)
	c.api("POST", "sandbox/"+id+"/snapshot", object{"name": "snap"})
	c.state(id, "started")

	check := func() {
		t.Helper()
		for needle, want := range map[string][]string{
			`canary-env"quoted"`: {"sandbox", "event", "answer", "snapshot"},
			"canary-label":       {"sandbox", "list", "event", "answer"},
			"canary-session":     {"session", "file"},
			"canary-pty":         {"pty"},
			"canary-path":        {"header", "file"},
			c.s.Key():            {},
		} {
			got := kindsOf(c, needle)
			for _, k := range want {
				assert.True(t, got[k], "%q must be found in a record of kind %s, it is in %v", needle, k, got)
			}
			if needle == "canary-pty" || len(want) == 0 {
				assert.Len(t, got, len(want), "%q is in %v", needle, got)
			}
		}
		for _, clean := range []string{"canary-exec", "canary-command", "canary-content", "canary-file"} {
			assert.Empty(t, c.s.Find([]byte(clean)), "the service keeps nothing of it: %q", clean)
		}
	}
	check()
	c.api("DELETE", "sandbox/"+id, nil)
	c.state(id, "")
	check() // and what was stored stays stored
	e := c.s.Executions(id)
	require.NotEmpty(t, e)
	assert.Equal(t, []string{"V"}, e[0].Envs, "names only")
}

func TestRequestsAreLogged(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	c.s.Forget()
	c.exec(id, "echo canary-6")
	c.api("GET", "sandbox/none?verbose=true", nil, header("X-Daytona-Source", "test"))
	log := c.s.Requests()
	require.Len(t, log, 2)
	assert.Equal(t, daytonatest.OpExecute, log[0].Op)
	assert.Equal(t, id, log[0].Sandbox)
	assert.Equal(t, 200, log[0].Status)
	assert.True(t, log[0].Authorized)
	assert.Equal(t, "Bearer KEY", log[0].Header.Get("Authorization"))
	assert.Empty(t, log[0].Body, "bodies are not kept")
	assert.Empty(t, log[0].Reply)
	assert.Equal(t, 404, log[1].Status)
	assert.Equal(t, "verbose=true", log[1].Query)
	assert.Equal(t, "test", log[1].Header.Get("X-Daytona-Source"))
	assert.Equal(t, 1, c.s.Count(daytonatest.OpExecute))
	assert.Equal(t, 2, c.s.Count())
	assert.Zero(t, c.s.Count(daytonatest.OpCreate))

	c = fake(t, daytonatest.Options{KeepBodies: true})
	id = c.create()
	c.exec(id, "echo canary-7")
	log = c.s.Requests()
	last := log[len(log)-1]
	assert.Contains(t, string(last.Body), "echo canary-7")
	assert.Contains(t, string(last.Reply), `"result":"canary-7\n"`)
}

func TestUnauthorizedRequestsAreLoggedAsSuch(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	c.api("GET", "sandbox", nil, func(r *http.Request) { r.Header.Set("Authorization", "Bearer dtn_other") })
	log := c.s.Requests()
	require.Len(t, log, 1)
	assert.False(t, log[0].Authorized)
	assert.Equal(t, 401, log[0].Status)
}

// The log can be read while requests are under way.
func TestRequestsAreReadMeanwhile(t *testing.T) {
	t.Parallel()
	c := plainFake(t, daytonatest.Options{})
	id := c.create()
	c.s.Inject(daytonatest.Fault{Kind: daytonatest.Slow, Delay: time.Millisecond, On: []daytonatest.Op{daytonatest.OpGet}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			c.api("GET", "sandbox/"+id, nil)
		}
	}()
	for {
		for _, r := range c.s.Requests() {
			assert.Contains(t, []string{"", id}, r.Sandbox)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// What a program said last is shown, however late it is read.
func TestPTYShowsTheEnd(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	require.Equal(t, 201, c.box(id, "POST", "process/pty", object{"id": "p"}).status)
	ws, _ := c.dial(id, "process/pty/p/connect")
	require.NotNil(t, ws)
	c.say(ws, "printf %0100000d 0; echo the e''nd; exit\n")
	_, binary, _ := c.frames(ws)
	assert.Contains(t, binary, "the end")
}

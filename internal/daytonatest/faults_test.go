//go:build linux

package daytonatest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	dt "github.com/sbxhost/sbxhost/internal/daytonatest"
)

// countedCommand is a command whose runs can be counted.
const countedCommand = "echo ran >>/tmp/runs; echo done"

func (c *client) runs(id string) int {
	data, err := c.s.ReadFile(id, "/tmp/runs")
	if err != nil {
		return 0
	}
	return strings.Count(string(data), "ran")
}

// wantRuns waits for a count of runs; the answer of some faults comes before
// the command is known to have ended.
func (c *client) wantRuns(id string, n int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.runs(id) == n }, 30*time.Second, 5*time.Millisecond, "the command must have run %d times", n)
	assert.Len(c.t, c.s.Executions(id), n)
}

func (c *client) counted(id string, opts ...option) reply {
	c.t.Helper()
	return c.box(id, "POST", "process/execute", object{"command": countedCommand}, opts...)
}

// faultCase shows what one kind does.
type faultCase func(t *testing.T, c *client, id string)

// answered is a kind that answers execute with a status; ran says how often the
// command has run then.
func answered(f dt.Fault, status, ran int, look func(t *testing.T, r reply)) faultCase {
	return func(t *testing.T, c *client, id string) {
		f.On = []dt.Op{dt.OpExecute}
		in := c.s.Inject(f)
		r := c.counted(id)
		require.NoError(t, r.err)
		assert.Equal(t, status, r.status, r.text)
		if look != nil {
			look(t, r)
		}
		c.wantRuns(id, ran)
		assert.Equal(t, 1, in.Hits())
		in.Remove()
		assert.Equal(t, 200, c.counted(id).status, "removed")
	}
}

// unanswered is a kind that breaks the connection.
func unanswered(kind dt.Kind, ran int) faultCase {
	return func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: kind, On: []dt.Op{dt.OpExecute}, Times: 1})
		r := c.counted(id)
		require.Error(t, r.err)
		c.wantRuns(id, ran)
	}
}

// hanging is a kind that never answers.
func hanging(kind dt.Kind, ran int) faultCase {
	return func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: kind, On: []dt.Op{dt.OpExecute}})
		c.http.Timeout = 2 * time.Second // by then the request is there
		r := c.counted(id)
		require.ErrorContains(t, r.err, "Timeout")
		c.wantRuns(id, ran)
		c.http.Timeout = 20 * time.Second
		done := make(chan reply)
		before := c.s.Count(dt.OpExecute)
		go func() { done <- c.counted(id) }()
		require.Eventually(t, func() bool { return c.s.Count(dt.OpExecute) > before }, 30*time.Second, time.Millisecond)
		for { // heal again until the request had come as far as hanging
			c.s.Heal()
			select {
			case r := <-done:
				if r.err == nil {
					assert.Equal(t, 200, r.status, "healed before it hung")
				}
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

func toolboxAnswer(kind dt.Kind, status int, text string) faultCase {
	return func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: kind, Sandbox: id})
		for _, r := range []reply{c.counted(id), c.box(id, "GET", "work-dir", nil), c.box(id, "GET", at("files", "/"), nil)} {
			assert.Equal(t, status, r.status)
			assert.Contains(t, r.text, text)
		}
		assert.Equal(t, "started", c.api("GET", "sandbox/"+id, nil).object(t)["state"], "GET says that all is well")
		other := c.create()
		assert.Equal(t, 200, c.counted(other).status, "another sandbox is not concerned")
		c.wantRuns(id, 0)
	}
}

func listed(c *client, query string) []string {
	c.t.Helper()
	var o struct{ Items []struct{ ID string } }
	require.NoError(c.t, json.Unmarshal([]byte(c.api("GET", "sandbox?"+query, nil).text), &o))
	out := []string{}
	for _, i := range o.Items {
		out = append(out, i.ID)
	}
	return out
}

// faultCases has one for each kind.
var faultCases = map[dt.Kind]faultCase{
	dt.Unauthorized: answered(dt.Fault{Kind: dt.Unauthorized}, 401, 0, nil),
	dt.Forbidden:    answered(dt.Fault{Kind: dt.Forbidden}, 403, 0, nil),
	dt.RateLimited: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.RateLimited, Delay: 3 * time.Second, On: []dt.Op{dt.OpCreate, dt.OpStop, dt.OpGet}})
		for name, r := range map[string]reply{"sandbox-create": c.api("POST", "sandbox", object{}), "sandbox-lifecycle": c.api("POST", "sandbox/"+id+"/stop", nil),
			"authenticated": c.api("GET", "sandbox/"+id, nil)} {
			c.wantError(r, 429, "ThrottlerException: Too Many Requests")
			assert.Equal(t, "3", r.header.Get("Retry-After-"+name))
			assert.Empty(t, r.header.Get("Retry-After"))
		}
		c.s.Heal()
		c.s.Inject(dt.Fault{Kind: dt.RateLimited, Text: "failed-auth", Times: 2})
		assert.Equal(t, "1", c.api("GET", "sandbox/"+id, nil).header.Get("Retry-After"), "only this limit uses the plain name")
		assert.Equal(t, 429, c.api("GET", "sandbox/"+id, nil).status)
		assert.Equal(t, 200, c.api("GET", "sandbox/"+id, nil).status, "it happened as often as it should")
		assert.Len(t, c.s.Sandboxes(), 1)
	},
	dt.Conflict: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.Conflict, On: []dt.Op{dt.OpDelete}, After: 1, Times: 2})
		other := c.create()
		assert.Equal(t, 200, c.api("DELETE", "sandbox/"+other, nil).status, "the first one passes")
		c.wantError(c.api("DELETE", "sandbox/"+id, nil), 409, "Sandbox state change in progress")
		c.wantError(c.api("DELETE", "sandbox/"+id, nil), 409, "Sandbox state change in progress")
		assert.Equal(t, 200, c.api("DELETE", "sandbox/"+id, nil).status)
	},
	dt.ServerError:      answered(dt.Fault{Kind: dt.ServerError, Status: 503}, 503, 0, nil),
	dt.ServerErrorAfter: answered(dt.Fault{Kind: dt.ServerErrorAfter}, 500, 1, nil),
	dt.BadGateway:       answered(dt.Fault{Kind: dt.BadGateway}, 502, 0, func(t *testing.T, r reply) { assert.Empty(t, r.text) }),
	dt.BadGatewayAfter:  answered(dt.Fault{Kind: dt.BadGatewayAfter}, 502, 1, func(t *testing.T, r reply) { assert.Empty(t, r.text) }),
	dt.HTMLError:        answered(dt.Fault{Kind: dt.HTMLError}, 503, 0, func(t *testing.T, r reply) { assert.Contains(t, r.text, "<html>") }),
	dt.Slow: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.Slow, Delay: 150 * time.Millisecond})
		began := time.Now()
		assert.Equal(t, 200, c.counted(id).status)
		assert.GreaterOrEqual(t, time.Since(began), 150*time.Millisecond)
		c.wantRuns(id, 1)
	},
	dt.Hang:      hanging(dt.Hang, 0),
	dt.HangAfter: hanging(dt.HangAfter, 1),
	dt.Drop:      unanswered(dt.Drop, 0),
	dt.DropAfter: unanswered(dt.DropAfter, 1),
	dt.Truncate: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.Truncate})
		r := c.counted(id)
		require.ErrorIs(t, r.err, io.ErrUnexpectedEOF)
		assert.Equal(t, 200, r.status)
		assert.NotEmpty(t, r.text)
		assert.False(t, json.Valid([]byte(r.text)))
		c.wantRuns(id, 1)
		require.ErrorIs(t, c.api("GET", "sandbox/"+id, nil).err, io.ErrUnexpectedEOF)
	},
	dt.Garbage: answered(dt.Fault{Kind: dt.Garbage}, 200, 1, func(t *testing.T, r reply) { assert.False(t, json.Valid([]byte(r.text))) }),
	dt.Oversize: answered(dt.Fault{Kind: dt.Oversize}, 200, 1, func(t *testing.T, r reply) {
		assert.Greater(t, len(r.text), 64<<20)
		assert.True(t, json.Valid([]byte(r.text)))
	}),
	dt.Redirect: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.Redirect, Location: "http://elsewhere.invalid/x"})
		r := c.counted(id)
		assert.Equal(t, 307, r.status)
		assert.Equal(t, "http://elsewhere.invalid/x", r.header.Get("Location"))
		c.wantRuns(id, 0)
	},
	dt.Replay: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.Replay, Times: 1})
		r := c.counted(id)
		assert.Equal(t, 200, r.status, "the client sees one answer")
		c.wantRuns(id, 2)
		c.s.Inject(dt.Fault{Kind: dt.Replay, Times: 1})
		r = c.counted(id, chunked)
		assert.Equal(t, 502, r.status, "what came without a length cannot be sent again")
		assert.Empty(t, r.text)
		c.wantRuns(id, 3)
		q := c.s.Requests()
		assert.True(t, q[len(q)-1].Chunked)
		assert.Equal(t, dt.Replay, q[len(q)-1].Fault)
		c.s.Inject(dt.Fault{Kind: dt.Replay, Times: 1})
		r = c.box(id, "POST", "process/execute", object{"command": countedCommand + " #" + strings.Repeat("x", 256<<10)})
		assert.Equal(t, 502, r.status, "nor what is too long")
		c.wantRuns(id, 4)
	},
	dt.CreateFails: func(t *testing.T, c *client, _ string) {
		c.s.Inject(dt.Fault{Kind: dt.CreateFails, Text: "out of everything"})
		c.wantError(c.api("POST", "sandbox", object{"name": "left"}), 400, "Sandbox failed to start: out of everything")
		assert.Equal(t, "error", c.api("GET", "sandbox/left", nil).object(t)["state"])
		c.api("POST", "sandbox", object{"name": "built", "buildInfo": object{"dockerfileContent": "FROM a\n"}})
		c.state("built", "error")
	},
	dt.BuildFails: func(t *testing.T, c *client, _ string) {
		c.s.Inject(dt.Fault{Kind: dt.BuildFails})
		c.api("POST", "sandbox", object{"name": "b", "buildInfo": object{"dockerfileContent": "FROM a\n"}})
		c.state("b", "build_failed")
	},
	dt.SlowStart: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.SlowStart, Delay: time.Hour, On: []dt.Op{dt.OpCreate}})
		c.api("POST", "sandbox", object{"name": "b", "buildInfo": object{"dockerfileContent": "FROM a\n"}})
		c.state("b", "creating")
		c.s.Advance(59 * time.Minute)
		c.state("b", "creating")
		c.s.Advance(2 * time.Minute)
		c.state("b", "started")
		c.api("POST", "sandbox/"+id+"/stop", nil)
		c.state(id, "stopped")
		c.s.Inject(dt.Fault{Kind: dt.SlowStart}) // for ever
		r := c.api("POST", "sandbox/"+id+"/start", nil)
		assert.Equal(t, "starting", r.object(t)["state"], "the call gives up waiting")
		c.s.Advance(1000 * time.Hour)
		c.state(id, "starting")
	},
	dt.InvisibleCreate: func(t *testing.T, c *client, _ string) {
		c.s.Inject(dt.Fault{Kind: dt.InvisibleCreate, Delay: time.Minute})
		r := c.api("POST", "sandbox", object{"name": "n"})
		assert.Equal(t, 200, r.status)
		c.wantError(c.api("GET", "sandbox/n", nil), 404, "not found")
		c.wantError(c.api("POST", "sandbox", object{"name": "n"}), 409, "already exists")
		c.s.Advance(time.Minute)
		assert.Equal(t, "started", c.api("GET", "sandbox/n", nil).object(t)["state"])
	},
	dt.StuckDestroying: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.StuckDestroying, Delay: time.Hour, Times: 1})
		assert.Equal(t, 200, c.api("DELETE", "sandbox/"+id, nil).status)
		c.s.Advance(50 * time.Minute)
		assert.Equal(t, "destroying", c.api("GET", "sandbox/"+id, nil).object(t)["state"])
		c.wantError(c.api("DELETE", "sandbox/"+id, nil), 409, "in progress")
		c.s.Advance(20 * time.Minute)
		assert.Equal(t, 404, c.api("GET", "sandbox/"+id, nil).status)
		c.s.Inject(dt.Fault{Kind: dt.StuckDestroying})
		other := c.create()
		c.api("DELETE", "sandbox/"+other, nil)
		c.s.Advance(1000 * time.Hour)
		assert.Equal(t, "destroying", c.api("GET", "sandbox/"+other, nil).object(t)["state"])
	},
	dt.UnknownState: func(t *testing.T, c *client, _ string) {
		c.s.Inject(dt.Fault{Kind: dt.UnknownState, Delay: time.Minute})
		c.api("POST", "sandbox", object{"name": "n"})
		assert.Equal(t, "hibernating", c.api("GET", "sandbox/n", nil).object(t)["state"])
		c.s.Advance(time.Minute)
		assert.Equal(t, "started", c.api("GET", "sandbox/n", nil).object(t)["state"])
	},
	dt.OldDaemon: func(t *testing.T, c *client, _ string) {
		c.s.Inject(dt.Fault{Kind: dt.OldDaemon})
		id := c.create()
		assert.Equal(t, "0.150.0", c.api("GET", "sandbox/"+id, nil).object(t)["daemonVersion"])
		_, text := c.exec(id, `echo "[$V]"; sleep 1.2; echo late`, object{"envs": object{"V": "x"}, "timeout": 1})
		assert.Equal(t, "[]\nlate\n", text)
	},
	dt.NoDaemonVersion: func(t *testing.T, c *client, _ string) {
		c.s.Inject(dt.Fault{Kind: dt.NoDaemonVersion})
		o := c.api("GET", "sandbox/"+c.create(), nil).object(t)
		assert.Contains(t, o, "daemonVersion")
		assert.Nil(t, o["daemonVersion"])
	},
	dt.ForeignToolboxURL: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.ForeignToolboxURL, Location: "http://elsewhere.invalid"})
		assert.Equal(t, "http://elsewhere.invalid", c.api("GET", "sandbox/"+id, nil).object(t)["toolboxProxyUrl"])
		assert.Equal(t, "http://elsewhere.invalid", c.api("GET", "sandbox/"+id+"/toolbox-proxy-url", nil).object(t)["url"])
		assert.Contains(t, c.api("GET", "sandbox", nil).text, "elsewhere")
		assert.Contains(t, c.api("POST", "sandbox", object{}).text, "elsewhere")
	},
	dt.UnknownFields: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.UnknownFields})
		assert.Contains(t, c.api("GET", "sandbox/"+id, nil).object(t), "futureField")
		assert.Contains(t, c.api("GET", "sandbox", nil).text, "futureField")
	},
	dt.StaleList: func(t *testing.T, c *client, id string) {
		require.Eventually(t, func() bool { return len(listed(c, "")) == 1 }, 30*time.Second, 5*time.Millisecond)
		c.s.Advance(5 * time.Minute)
		c.s.Inject(dt.Fault{Kind: dt.StaleList, Delay: 4 * time.Minute})
		other := c.create()
		assert.Equal(t, []string{id}, listed(c, ""), "the new one is not yet there")
		c.api("DELETE", "sandbox/"+id, nil)
		c.state(id, "")
		c.s.Advance(3 * time.Minute)
		assert.Contains(t, listed(c, ""), id, "the deleted one still is")
		c.s.Advance(3 * time.Minute)
		assert.Equal(t, []string{other}, listed(c, ""))
	},
	dt.FlappingList: func(t *testing.T, c *client, id string) {
		require.Eventually(t, func() bool { return len(listed(c, "")) == 1 }, 30*time.Second, 5*time.Millisecond)
		c.s.Advance(5 * time.Minute)
		c.api("DELETE", "sandbox/"+id, nil)
		c.state(id, "")
		require.Eventually(t, func() bool { return len(listed(c, "")) == 0 }, 30*time.Second, 5*time.Millisecond)
		c.s.Inject(dt.Fault{Kind: dt.FlappingList, Delay: 4 * time.Minute})
		var n []int
		for range 4 {
			n = append(n, len(listed(c, "")))
		}
		assert.Equal(t, []int{0, 1, 0, 1}, n)
	},
	dt.EmptyList: func(t *testing.T, c *client, _ string) {
		c.s.Inject(dt.Fault{Kind: dt.EmptyList})
		r := c.api("GET", "sandbox", nil)
		assert.JSONEq(t, `{"items":[],"nextCursor":null}`, r.text)
		assert.EqualValues(t, 0, c.api("GET", "sandbox/paginated", nil).object(t)["total"])
	},
	dt.TinyPages: func(t *testing.T, c *client, _ string) {
		c.create()
		c.s.Inject(dt.Fault{Kind: dt.TinyPages})
		require.Eventually(t, func() bool {
			o := c.api("GET", "sandbox?limit=100", nil).object(t)
			return o["nextCursor"] != nil && len(o["items"].([]any)) == 1
		}, 30*time.Second, 5*time.Millisecond)
		assert.EqualValues(t, 2, c.api("GET", "sandbox/paginated", nil).object(t)["totalPages"])
	},
	dt.LoopingCursor: func(t *testing.T, c *client, _ string) {
		c.s.Inject(dt.Fault{Kind: dt.LoopingCursor})
		first := c.api("GET", "sandbox", nil).object(t)["nextCursor"].(string)
		assert.Equal(t, first, c.api("GET", "sandbox?cursor="+first, nil).object(t)["nextCursor"])
	},
	dt.UnfilteredList: func(t *testing.T, c *client, id string) {
		const nobody = "labels=%7B%22who%22%3A%22nobody%22%7D"
		require.Eventually(t, func() bool { return len(listed(c, "")) == 1 }, 30*time.Second, 5*time.Millisecond)
		assert.Empty(t, listed(c, nobody))
		c.s.Inject(dt.Fault{Kind: dt.UnfilteredList})
		assert.Equal(t, []string{id}, listed(c, nobody))
	},
	dt.DaemonDead:    toolboxAnswer(dt.DaemonDead, 502, ""),
	dt.NoContainer:   toolboxAnswer(dt.NoContainer, 400, "failed to resolve container IP"),
	dt.ContainerLost: toolboxAnswer(dt.ContainerLost, 404, "sandbox container not found"),
	dt.IgnoreTimeout: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.IgnoreTimeout})
		_, text := c.exec(id, "sleep 1.2; echo late", object{"timeout": 1})
		assert.Equal(t, "late\n", text)
	},
	dt.NoExitCode: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.NoExitCode})
		o := c.counted(id).object(t)
		assert.Equal(t, "done\n", o["result"])
		assert.NotContains(t, o, "exitCode")
	},
	dt.IgnoreEnvs: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.IgnoreEnvs})
		_, text := c.exec(id, `echo "[$V]"`, object{"envs": object{"V": "x"}})
		assert.Equal(t, "[]\n", text)
	},
	dt.PTYAbnormal: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.PTYAbnormal})
		c.box(id, "POST", "process/pty", object{"id": "p"})
		ws, _ := c.dial(id, "process/pty/p/connect")
		c.say(ws, "exit 0\n")
		_, _, end := c.frames(ws)
		assert.EqualValues(t, -1, end.Code, "no close frame")
	},
	dt.PTYRefused: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.PTYRefused})
		c.box(id, "POST", "process/pty", object{"id": "p"})
		ws, _ := c.dial(id, "process/pty/p/connect")
		text, _, _ := c.frames(ws)
		require.Len(t, text, 1)
		assert.Contains(t, text[0], `"status":"error"`)
	},
	dt.ShortDownload: func(t *testing.T, c *client, id string) {
		c.upload(id, "/tmp/f", "0123456789")
		c.s.Inject(dt.Fault{Kind: dt.ShortDownload})
		r := c.box(id, "GET", at("files/download", "/tmp/f"), nil)
		assert.Equal(t, 200, r.status)
		assert.Equal(t, "01234", r.text)
		r = c.box(id, "POST", "files/bulk-download", object{"paths": []string{"/tmp/f"}})
		assert.Contains(t, r.text, "Content-Length: 10")
		assert.NotContains(t, r.text, "0123456789")
	},
	dt.NoBoundary: func(t *testing.T, c *client, id string) {
		c.upload(id, "/tmp/f", "0123456789")
		c.s.Inject(dt.Fault{Kind: dt.NoBoundary})
		r := c.box(id, "POST", "files/bulk-download", object{"paths": []string{"/tmp/f"}})
		assert.True(t, strings.HasSuffix(r.text, "0123456789"), "it ends without its closing boundary")
	},
	dt.PartialUpload: func(t *testing.T, c *client, id string) {
		c.s.Inject(dt.Fault{Kind: dt.PartialUpload})
		assert.Equal(t, 200, c.upload(id, "/tmp/f", "0123456789").status)
		got, err := c.s.ReadFile(id, "/tmp/f")
		require.NoError(t, err)
		assert.Equal(t, "01234", string(got))
	},
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, k := range dt.Kinds() {
		t.Run(string(k.Kind), func(t *testing.T) {
			t.Parallel()
			show, ok := faultCases[k.Kind]
			require.True(t, ok, "there is no test of this kind")
			assert.NotEmpty(t, k.Does)
			var timing dt.Timing
			if k.Kind == dt.SlowStart {
				timing.Wait = 2 * time.Second // what never starts is not waited for longer
			}
			c := plainFake(t, dt.Options{Timing: timing})
			show(t, c, c.create())
		})
	}
	assert.Len(t, faultCases, len(dt.Kinds()))
}

func TestFaultsOfTheControlAPI(t *testing.T) {
	t.Parallel()
	c := plainFake(t, dt.Options{})
	// The answer is lost, and the sandbox is there.
	for _, kind := range []dt.Kind{dt.DropAfter, dt.BadGatewayAfter, dt.ServerErrorAfter, dt.Truncate, dt.Garbage} {
		c.s.Inject(dt.Fault{Kind: kind, On: []dt.Op{dt.OpCreate}, Times: 1})
		name := "lost-" + string(kind)
		r := c.api("POST", "sandbox", object{"name": name})
		assert.True(t, r.err != nil || r.status != 200 || !json.Valid([]byte(r.text)), string(kind))
		c.state(name, "started")
	}
	// It never was.
	for _, kind := range []dt.Kind{dt.Drop, dt.BadGateway, dt.ServerError, dt.HTMLError, dt.Conflict} {
		c.s.Inject(dt.Fault{Kind: kind, On: []dt.Op{dt.OpCreate}, Times: 1})
		name := "never-" + string(kind)
		r := c.api("POST", "sandbox", object{"name": name})
		assert.True(t, r.err != nil || r.status != 200, string(kind))
		_, ok := c.s.Sandbox(name)
		assert.False(t, ok, string(kind))
	}
}

func TestLatestFaultWins(t *testing.T) {
	t.Parallel()
	c := plainFake(t, dt.Options{})
	c.s.Inject(dt.Fault{Kind: dt.Forbidden})
	last := c.s.Inject(dt.Fault{Kind: dt.BadGateway, Times: 1})
	assert.Equal(t, 502, c.api("GET", "sandbox", nil).status)
	assert.Equal(t, 403, c.api("GET", "sandbox", nil).status)
	assert.Equal(t, 1, last.Hits())
	c.s.Heal()
	assert.Equal(t, 200, c.api("GET", "sandbox", nil).status)
	assert.Panics(t, func() { c.s.Inject(dt.Fault{Kind: "misspelt"}) })
}

// What hangs ends with the server.
func TestCloseReleasesWhatHangs(t *testing.T) {
	t.Parallel()
	s, err := dt.Start(dt.Options{})
	require.NoError(t, err)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	c := &client{t: t, s: s, http: &http.Client{Transport: tr}}
	id := c.create()
	c.box(id, "POST", "process/pty", object{"id": "p"})
	ws, _ := c.dial(id, "process/pty/p/connect")
	c.say(ws, "\n")  // what the shell said before anybody was attached is lost
	c.until(ws, "#") // the prompt
	done := make(chan reply, 2)
	go func() { done <- c.box(id, "POST", "process/execute", object{"command": "touch /tmp/on; sleep 300"}) }()
	s.Inject(dt.Fault{Kind: dt.Hang, On: []dt.Op{dt.OpGet}})
	go func() { done <- c.api("GET", "sandbox/"+id, nil) }()
	require.Eventually(t, func() bool { _, err := s.ReadFile(id, "/tmp/on"); return err == nil && s.Count(dt.OpGet) > 1 }, 30*time.Second, 5*time.Millisecond)
	began := time.Now()
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "again")
	assert.Less(t, time.Since(began), 30*time.Second)
	<-done
	<-done
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for err == nil { // what had been said may come first
		_, _, err = ws.Read(ctx)
	}
	require.NoError(t, ctx.Err(), "the terminal's connection has ended")
	var end websocket.CloseError
	assert.False(t, errors.As(err, &end) && end.Code == websocket.StatusNormalClosure)
}

func TestSlowFaultEndsWithItsClient(t *testing.T) {
	t.Parallel()
	c := plainFake(t, dt.Options{})
	c.s.Inject(dt.Fault{Kind: dt.Slow, Delay: time.Hour})
	c.http.Timeout = 50 * time.Millisecond
	require.Error(t, c.api("GET", "sandbox", nil).err)
}

// Middleware sees each request.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	var seen []string
	c := plainFake(t, dt.Options{Middleware: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen = append(seen, r.URL.Path)
			next.ServeHTTP(w, r)
		})
	}})
	c.api("GET", "config", nil)
	assert.Equal(t, []string{"/api/config"}, seen)
}

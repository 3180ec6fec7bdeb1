//go:build linux

package daytonatest_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

// slow has each state last until the test lets a minute pass.
var slow = daytonatest.Timing{Visible: 30 * time.Second, Build: time.Minute, Stop: time.Minute, Archive: time.Minute, Restore: time.Minute, Destroy: time.Minute}

// passes sees a sandbox in one state after another; between them a minute passes.
func (c *client) passes(id string, states ...string) {
	c.t.Helper()
	for i, want := range states {
		if i > 0 {
			c.s.Advance(time.Minute)
		}
		r := c.api("GET", "sandbox/"+id, nil)
		if want == "404" {
			assert.Equal(c.t, 404, r.status)
			continue
		}
		require.Equal(c.t, 200, r.status, r.text)
		assert.Equal(c.t, want, r.object(c.t)["state"])
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	for name, value := range map[string]string{"none": "", "wrong": "Bearer dtn_wrong", "other scheme": "Basic " + c.s.Key()} {
		r := c.api("GET", "sandbox/"+id, nil, header("Authorization", value))
		c.wantError(r, 401, "Unauthorized")
		r = c.box(id, "GET", "work-dir", nil, header("Authorization", value))
		c.wantError(r, 401, "unauthorized")
		assert.Equal(t, "UNAUTHORIZED", r.object(t)["code"], name)
	}
	c.wantError(c.box("00000000-0000-4000-a000-000000000000", "GET", "work-dir", nil), 401, "unauthorized")
	r := c.api("GET", "config", nil, header("Authorization", ""))
	assert.Equal(t, 200, r.status)
	assert.Equal(t, c.s.ToolboxURL(), r.object(t)["proxyToolboxUrl"])
	r = c.api("GET", "api-keys/current", nil)
	assert.Equal(t, 200, r.status)
	assert.NotContains(t, r.text, c.s.Key())
	assert.NotEmpty(t, r.header.Get("X-Daytona-Api-Version"))
	assert.Equal(t, "10000", r.header.Get("X-RateLimit-Limit-authenticated"))
	assert.Equal(t, 200, c.api("GET", "sandbox/"+id+"/organization", nil).status)
}

func TestToolboxNeedsTheID(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	c.create(object{"name": "by-name"})
	assert.Equal(t, 200, c.api("GET", "sandbox/by-name", nil).status)
	assert.Equal(t, 401, c.box("by-name", "GET", "work-dir", nil).status)
}

func TestCreateFromSnapshot(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{Timing: daytonatest.Timing{Create: 150 * time.Millisecond}})
	began := time.Now()
	r := c.api("POST", "sandbox", object{"name": "one", "env": object{"A": "clear"}, "labels": object{"k": "v"}, "autoStopInterval": 7})
	require.Equal(t, 200, r.status, r.text)
	assert.GreaterOrEqual(t, time.Since(began), 140*time.Millisecond, "the call blocks until the sandbox has started")
	o := r.object(t)
	assert.Equal(t, "creating", o["state"], "and answers with what it was before")
	id, _ := o["id"].(string)
	o = c.api("GET", "sandbox/"+id, nil).object(t)
	assert.Equal(t, "started", o["state"])
	assert.Equal(t, map[string]any{"A": "clear"}, o["env"], "env is shown in clear")
	assert.Equal(t, map[string]any{"k": "v"}, o["labels"])
	assert.EqualValues(t, 7, o["autoStopInterval"])
	assert.EqualValues(t, 10080, o["autoArchiveInterval"])
	assert.EqualValues(t, -1, o["autoDeleteInterval"])
	for _, k := range []string{"errorReason", "networkAllowList", "domainAllowList"} {
		assert.Contains(t, o, k)
		assert.Nil(t, o[k])
	}
	assert.Equal(t, c.s.ToolboxURL(), o["toolboxProxyUrl"])
}

func TestCreateIsNotVisibleAtOnce(t *testing.T) {
	t.Parallel()
	timing := slow
	timing.Create = time.Minute
	c := fake(t, daytonatest.Options{Timing: timing})
	r := c.api("POST", "sandbox", object{"buildInfo": object{"dockerfileContent": "FROM debian:12\n"}})
	require.Equal(t, 200, r.status)
	assert.Equal(t, "pending_build", r.object(t)["state"])
	id, _ := r.object(t)["id"].(string)
	c.passes(id, "404")
	c.s.Advance(30 * time.Second)
	c.passes(id, "pending_build", "building_snapshot", "creating", "started")
	link, _ := c.api("GET", "sandbox/"+id+"/build-logs-url", nil).object(t)["url"].(string)
	logs := c.do("GET", link, nil, header("Authorization", ""))
	assert.Contains(t, logs.text, "FROM debian:12")
	logs = c.do("GET", link+"?follow=true", nil)
	assert.Contains(t, logs.text, "Successfully built")
}

func TestBuildLogsAreFollowed(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{Timing: daytonatest.Timing{Build: time.Minute}})
	r := c.api("POST", "sandbox", object{"buildInfo": object{"dockerfileContent": "FROM debian:12\n"}})
	id, _ := r.object(t)["id"].(string)
	c.state(id, "pending_build")
	link, _ := c.api("GET", "sandbox/"+id+"/build-logs-url", nil).object(t)["url"].(string)
	followed := make(chan reply, 1)
	go func() { followed <- c.do("GET", link+"?follow=true", nil) }() // ends with the build
	for {
		select {
		case logs := <-followed:
			assert.Contains(t, logs.text, "Successfully built")
			return
		case <-time.After(20 * time.Millisecond):
			c.s.Advance(time.Minute)
		}
	}
}

func TestBuildOfMissingImageFails(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	r := c.api("POST", "sandbox", object{"name": "x", "buildInfo": object{"dockerfileContent": "FROM " + daytonatest.MissingImage + ":1\n"}})
	require.Equal(t, 200, r.status)
	c.state("x", "build_failed")
	o := c.api("GET", "sandbox/x", nil).object(t)
	assert.Contains(t, o["errorReason"], "not found")
	assert.Equal(t, "started", o["desiredState"])
	r = c.api("DELETE", "sandbox/x", nil)
	assert.Equal(t, "build_failed", r.object(t)["state"])
	assert.Equal(t, "destroyed", r.object(t)["desiredState"])
	assert.Equal(t, 404, c.api("GET", "sandbox/x", nil).status)
}

// A create that fails leaves its sandbox behind, holds its name, counts, and its
// reason repeats the value.
func TestBadEnvironmentLeavesAnErrorSandbox(t *testing.T) {
	t.Parallel()
	c := plainFake(t, daytonatest.Options{MaxSandboxes: 1})
	r := c.api("POST", "sandbox", object{"name": "bad", "env": object{"NOT-A-NAME": "canary-1"}})
	c.wantError(r, 400, "Sandbox failed to start")
	assert.Contains(t, r.text, "canary-1")
	o := c.api("GET", "sandbox/bad", nil).object(t)
	assert.Equal(t, "error", o["state"])
	assert.Contains(t, o["errorReason"], "canary-1")
	c.wantError(c.api("POST", "sandbox", object{"name": "bad"}), 409, "already exists")
	c.wantError(c.api("POST", "sandbox", object{"name": "other"}), 403, "limit exceeded")
	assert.Equal(t, 200, c.api("DELETE", "sandbox/bad", nil).status)
	assert.Equal(t, 404, c.api("GET", "sandbox/bad", nil).status)
	require.Eventually(t, func() bool { return c.api("POST", "sandbox", object{"name": "bad"}).status == 200 }, 30*time.Second, 5*time.Millisecond)
}

func TestCreateIsRefused(t *testing.T) {
	t.Parallel()
	c := plainFake(t, daytonatest.Options{})
	c.create(object{"name": "taken"})
	build := object{"dockerfileContent": "FROM a\n"}
	for name, x := range map[string]struct {
		body   any
		status int
		part   string
	}{
		"wrong types":               {object{"cpu": "2", "name": 3, "public": "yes"}, 400, "cpu must be an integer number, name must be a string, public must be a boolean"},
		"label that is no string":   {object{"labels": object{"a": 1}}, 400, "labels must be an object"},
		"fraction":                  {object{"autoStopInterval": 1.5}, 400, "autoStopInterval must be an integer number"},
		"resources with a snapshot": {object{"cpu": 1}, 400, "Cannot specify Sandbox resources when using a snapshot"},
		"snapshot and build":        {object{"snapshot": "x", "buildInfo": build}, 400, "Cannot specify both"},
		"unknown snapshot":          {object{"snapshot": "nowhere"}, 400, "not found"},
		"unknown region":            {object{"target": "mars"}, 404, "Region not found"},
		"taken name":                {object{"name": "taken"}, 409, "Sandbox with name taken already exists"},
		"markup in the name":        {object{"name": "<b>"}, 400, "name"},
		"link as the name":          {object{"name": "http://x"}, 400, "name"},
		"control in the name":       {object{"name": "a\nb"}, 400, "name"},
		"negative interval":         {object{"autoStopInterval": -1}, 400, "non-negative"},
		"empty dockerfile":          {object{"buildInfo": object{}}, 400, "dockerfileContent"},
		"broken JSON":               {`{"name":`, 400, "Unexpected"},
	} {
		r := c.api("POST", "sandbox", x.body)
		assert.Equal(t, x.status, r.status, name)
		assert.Contains(t, r.message(t), x.part, name)
		if name == "broken JSON" {
			assert.NotContains(t, r.object(t), "path", "a shape of its own")
		} else {
			assert.Contains(t, r.object(t), "path", name)
		}
	}
	assert.Len(t, c.s.Sandboxes(), 1, "nothing is left of a refused create")
	assert.Equal(t, 200, c.api("POST", "sandbox", object{"unheardOf": object{}}).status, "unknown fields are ignored")
}

func TestStates(t *testing.T) {
	t.Parallel()
	timing := slow
	timing.Visible = 0 // the least there is
	c := fake(t, daytonatest.Options{Timing: timing})
	id := c.create(object{"name": "s"})
	post := func(what string) reply { return c.api("POST", "sandbox/"+id+"/"+what, nil) }
	code, _ := c.exec(id, "echo kept >/tmp/f; (sleep 100 &) >/dev/null 2>&1")
	require.Zero(t, code)

	r := post("start")
	assert.Equal(t, 200, r.status, "starting what has started is success")
	c.wantError(post("archive"), 400, "not stopped")
	c.wantError(post("pause"), 422, "")
	c.wantError(post("recover"), 400, "not in an error state")
	c.wantError(c.api("POST", "sandbox/"+id+"/fork", object{}), 422, "")
	r = post("stop")
	assert.Equal(t, "stopping", r.object(t)["state"])
	for _, what := range []string{"stop", "start", "archive", "recover"} {
		c.wantError(post(what), 409, "state change in progress")
	}
	c.wantError(c.api("DELETE", "sandbox/"+id, nil), 409, "state change in progress")
	c.passes(id, "stopping", "stopped")
	c.wantError(c.box(id, "GET", "work-dir", nil), 400, "failed to resolve container IP")
	c.wantError(post("stop"), 400, "not in a stoppable state")

	r = post("start")
	assert.Equal(t, "started", r.object(t)["state"], "start waits")
	code, text := c.exec(id, "cat /tmp/f; pgrep sleep")
	assert.Equal(t, "kept\n", text, "files stay, processes do not")
	assert.Equal(t, 1, code)

	post("stop")
	c.passes(id, "stopping", "stopped")
	assert.Equal(t, "archiving", post("archive").object(t)["state"])
	c.passes(id, "archiving", "archived")
	c.wantError(c.box(id, "GET", "work-dir", nil), 404, "container not found")
	o := post("start").object(t)
	assert.Equal(t, "archived", o["state"], "a start from the archive answers at once")
	assert.Equal(t, "started", o["desiredState"])
	c.state(id, "restoring")
	c.passes(id, "restoring", "started")
	_, text = c.exec(id, "cat /tmp/f")
	assert.Equal(t, "kept\n", text)

	o = c.api("DELETE", "sandbox/"+id, nil).object(t)
	assert.Equal(t, "destroying", o["state"])
	assert.Regexp(t, `^DESTROYED_s_\d+$`, o["name"])
	c.wantError(c.api("DELETE", "sandbox/"+id, nil), 409, "state change in progress")
	assert.Equal(t, 404, c.api("GET", "sandbox/s", nil).status, "its name is free at once")
	c.passes(id, "destroying", "404")
	c.wantError(c.api("DELETE", "sandbox/"+id, nil), 404, "not found")
	c.wantError(c.box(id, "GET", "work-dir", nil), 404, "container not found")
	info, ok := c.s.Sandbox(id)
	assert.True(t, ok && info.Destroyed)
}

func TestStopOfAnEphemeralSandboxDestroysIt(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create(object{"autoDeleteInterval": 0})
	assert.Equal(t, "destroying", c.api("POST", "sandbox/"+id+"/stop", nil).object(t)["state"])
	c.state(id, "")
}

func TestChanges(t *testing.T) {
	t.Parallel()
	for _, release := range []daytonatest.Release{daytonatest.ReleaseMeasured, daytonatest.ReleaseCurrent} {
		c := fake(t, daytonatest.Options{Release: release})
		id := c.create(object{"labels": object{"a": "1", "b": "2"}})
		at := "sandbox/" + id
		o := c.api("PUT", at+"/labels", object{"labels": object{"c": "3"}}).object(t)
		assert.Equal(t, map[string]any{"c": "3"}, o["labels"], "labels are replaced")
		assert.Equal(t, id, o["id"], "the answer is the whole object")
		for path, field := range map[string]string{"autostop/0": "autoStopInterval", "autoarchive/5": "autoArchiveInterval", "autodelete/-1": "autoDeleteInterval"} {
			r := c.api("POST", at+"/"+path, nil)
			assert.Equal(t, 201, r.status)
			assert.EqualValues(t, map[string]any{"autoStopInterval": 0.0, "autoArchiveInterval": 5.0, "autoDeleteInterval": -1.0}[field], r.object(t)[field])
		}
		r := c.api("POST", at+"/last-activity", nil)
		assert.Equal(t, 201, r.status)
		assert.Empty(t, r.text)
		assert.Equal(t, true, c.api("POST", at+"/public/true", nil).object(t)["public"])
		assert.Equal(t, true, c.api("POST", at+"/network-settings", object{"networkBlockAll": true}).object(t)["networkBlockAll"])
		assert.Equal(t, "Completed", c.api("POST", at+"/backup", nil).object(t)["backupState"])
		assert.Equal(t, "resizing", c.api("POST", at+"/resize", object{"cpu": 2}).object(t)["state"])
		c.state(id, "started")
		assert.Equal(t, c.s.ToolboxURL(), c.api("GET", at+"/toolbox-proxy-url", nil).object(t)["url"])
		r = c.api("POST", at+"/ttl/30", nil)
		if release == daytonatest.ReleaseCurrent {
			assert.NotEmpty(t, r.object(t)["autoDestroyAt"])
			assert.NotContains(t, r.object(t), "errorReason", "what has no value is left out")
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	var ids []string
	for i := range 5 {
		ids = append(ids, c.create(object{"name": fmt.Sprintf("l%d", i), "env": object{"SECRET": "canary-2"}, "labels": object{"n": fmt.Sprint(i), "all": "x"}}))
	}
	c.api("POST", "sandbox/l4/stop", nil)
	c.state("l4", "stopped")
	list := func(query string) ([]string, any) {
		t.Helper()
		var o map[string]any
		require.NoError(t, json.Unmarshal([]byte(c.api("GET", "sandbox?"+query, nil).text), &o))
		var got []string
		for _, v := range o["items"].([]any) {
			item := v.(map[string]any)
			assert.NotContains(t, item, "env", "items of a list have no env")
			got = append(got, item["id"].(string))
		}
		return got, o["nextCursor"]
	}
	require.Eventually(t, func() bool { got, _ := list(""); return len(got) == 5 }, 30*time.Second, 5*time.Millisecond)
	label := func(text string) string { return "labels=" + url.QueryEscape(text) }
	got, next := list(label(`{"n":"2"}`))
	assert.Equal(t, []string{ids[2]}, got)
	assert.Nil(t, next)
	got, _ = list(label(`{"n":"2","all":"y"}`))
	assert.Empty(t, got)
	require.Eventually(t, func() bool { got, _ = list("states=stopped"); return slices.Equal(got, []string{ids[4]}) }, 30*time.Second, 5*time.Millisecond)
	got, _ = list("states=stopped&states=started")
	assert.Len(t, got, 5)
	got, _ = list("name=L3")
	assert.Equal(t, []string{ids[3]}, got)

	var paged []string
	for cursor, pages := "", 0; ; pages++ {
		got, next := list("limit=2&cursor=" + url.QueryEscape(cursor))
		paged = append(paged, got...)
		if next == nil {
			assert.Equal(t, 2, pages)
			break
		}
		cursor = next.(string)
	}
	slices.Reverse(paged)
	assert.Equal(t, ids, paged)
	c.wantError(c.api("GET", "sandbox?"+label("{"), nil), 400, "labels")

	r := c.api("GET", "sandbox/paginated?limit=2&page=2", nil)
	assert.Contains(t, r.text, "canary-2", "the old list shows env in clear")
	o := r.object(t)
	assert.EqualValues(t, 5, o["total"])
	assert.EqualValues(t, 3, o["totalPages"])
	assert.Len(t, o["items"], 2)
}

func TestListRefuses(t *testing.T) {
	t.Parallel()
	c := plainFake(t, daytonatest.Options{})
	for _, query := range []string{"limit=201", "limit=0", "limit=x"} {
		c.wantError(c.api("GET", "sandbox?"+query, nil), 400, "limit")
		c.wantError(c.api("GET", "sandbox/paginated?"+query, nil), 400, "limit")
	}
	c.wantError(c.api("GET", "sandbox?cursor=%25", nil), 400, "cursor")
	c.wantError(c.api("GET", "sandbox/paginated?page=0", nil), 400, "page")
}

func TestSnapshotsKeepTheEnvironment(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{Snapshots: []string{"team/base:1"}})
	id := c.create(object{"snapshot": "team/base:1", "env": object{"BAKED": "canary-3"}})
	r := c.api("POST", "sandbox/"+id+"/snapshot", object{"name": "snap"})
	require.Equal(t, 200, r.status, r.text)
	c.state(id, "started")
	other := c.create(object{"snapshot": "snap"})
	assert.Empty(t, c.api("GET", "sandbox/"+other, nil).object(t)["env"])
	_, text := c.exec(other, `printf %s "$BAKED"`)
	assert.Equal(t, "canary-3", text, "the variable is there all the same")
	assert.NotEmpty(t, c.s.Find([]byte("canary-3")))
	assert.Equal(t, 200, c.api("GET", "snapshots/snap", nil).status)
	assert.EqualValues(t, 1, c.api("GET", "snapshots?name=snap", nil).object(t)["total"])
	c.wantError(c.api("POST", "sandbox/"+id+"/snapshot", object{"name": "snap"}), 409, "already exists")
	assert.Equal(t, 200, c.api("POST", "snapshots", object{"name": "new", "imageName": "debian:12"}).status)
	assert.Equal(t, 400, c.api("POST", "snapshots", object{"name": "new2", "imageName": "debian:latest"}).status)
	assert.Equal(t, 200, c.api("DELETE", "snapshots/new", nil).status)
	c.wantError(c.api("GET", "snapshots/new", nil), 404, "not found")
}

func TestAdvance(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	state := func(id string) string { info, _ := c.s.Sandbox(id); return info.State }

	idle := c.create(object{"autoStopInterval": 5, "autoArchiveInterval": 60, "autoDeleteInterval": 120})
	never := c.create(object{"autoStopInterval": 0})
	c.s.Advance(4 * time.Minute)
	assert.Equal(t, "started", state(idle))
	c.exec(idle, "true") // activity
	c.s.Advance(4 * time.Minute)
	assert.Equal(t, "started", state(idle))
	c.box(idle, "GET", "work-dir", nil, header("X-Daytona-Skip-Last-Activity-Update", "true"))
	c.s.Advance(90 * time.Second)
	assert.Equal(t, "stopped", state(idle), "a request that says so is no activity")
	c.s.Advance(61 * time.Minute)
	assert.Equal(t, "archived", state(idle))
	c.s.Advance(time.Hour)
	assert.Equal(t, "destroyed", state(idle))
	assert.Equal(t, "started", state(never))

	beats := c.create(object{"autoStopInterval": 5})
	for range 3 {
		c.s.Advance(4 * time.Minute)
		c.api("POST", "sandbox/"+beats+"/last-activity", nil)
	}
	assert.Equal(t, "started", state(beats), "a heartbeat keeps it")

	limited := c.create(object{"ttlMinutes": 30, "autoStopInterval": 0})
	c.s.Advance(29 * time.Minute)
	assert.Equal(t, "started", state(limited))
	c.s.Advance(2 * time.Minute)
	assert.Equal(t, "destroyed", state(limited))
	assert.WithinDuration(t, time.Now().Add(4*time.Minute+4*time.Minute+90*time.Second+121*time.Minute+12*time.Minute+31*time.Minute), c.s.Now(), time.Minute)
}

// A request under way is activity; a process in the sandbox is not.
func TestQuietWorkIsStopped(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create(object{"autoStopInterval": 5})
	done := make(chan reply, 1)
	go func() {
		done <- c.box(id, "POST", "process/execute", object{"command": "touch /tmp/on; sleep 300"})
	}()
	require.Eventually(t, func() bool { _, err := c.s.ReadFile(id, "/tmp/on"); return err == nil }, 30*time.Second, 5*time.Millisecond)
	c.s.Advance(time.Hour)
	info, _ := c.s.Sandbox(id)
	assert.Equal(t, "started", info.State)
	c.api("POST", "sandbox/"+id+"/stop", nil)
	r := <-done
	assert.Equal(t, 502, r.status, "the command's call ends with an empty 502 when the sandbox stops")
	assert.Empty(t, r.text)

	id = c.create(object{"autoStopInterval": 5})
	c.exec(id, "(sleep 300 &) >/dev/null 2>&1")
	c.s.Advance(6 * time.Minute)
	info, _ = c.s.Sandbox(id)
	assert.Equal(t, "stopped", info.State)
}

func TestUnknownRoutes(t *testing.T) {
	t.Parallel()
	c := plainFake(t, daytonatest.Options{})
	id := c.create()
	c.wantError(c.api("GET", "nothing/here", nil), 404, "Cannot GET")
	r := c.box(id, "POST", "env", object{})
	assert.Equal(t, 404, r.status)
	assert.Equal(t, "404 page not found", r.text)
	assert.True(t, strings.HasPrefix(r.header.Get("Content-Type"), "text/plain"))
}

func TestUnknownRelease(t *testing.T) {
	t.Parallel()
	_, err := daytonatest.Start(daytonatest.Options{Release: "9"})
	require.ErrorContains(t, err, `no release "9"`)
}

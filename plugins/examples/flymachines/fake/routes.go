// Package fake is a stand-in for Fly's public Machines API, as far as the plugin
// uses it. It runs commands for real in a temporary folder.
package fake

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
)

const (
	token = "fly_fake_token_2a6d90b1" //nolint:gosec // a fake's token
	app   = "sandboxes"
	// maxExec is the longest that the API lets a command run.
	maxExec = 60
)

type machines struct {
	v     *fakevendor.Vendor
	mu    sync.Mutex
	state map[string]string
	execs int
}

// Register adds the routes.
func Register(v *fakevendor.Vendor, base string) fakevendor.Hello {
	f := &machines{v: v, state: map[string]string{}}
	handle := func(pattern string, h http.HandlerFunc) { v.Mux.HandleFunc(pattern, auth(h)) }
	const root = "/v1/apps/" + app + "/machines"
	handle("POST "+root, f.create)
	handle("GET "+root, f.list)
	handle("GET "+root+"/{id}", f.machine(f.get))
	handle("GET "+root+"/{id}/wait", f.machine(f.wait))
	handle("POST "+root+"/{id}/suspend", f.machine(f.to("suspended")))
	handle("POST "+root+"/{id}/stop", f.machine(f.to("stopped")))
	handle("POST "+root+"/{id}/start", f.machine(f.to("started")))
	handle("DELETE "+root+"/{id}", f.machine(f.destroy))
	handle("POST "+root+"/{id}/exec", f.machine(f.exec))
	const shell = "commands are run by a shell, which reports this as its exit status"
	return fakevendor.Hello{
		Origins: map[string]string{"api": base}, Credentials: map[string]string{"token": token},
		Unproven: map[string]string{
			"exec/dir-missing": shell, "exec/not-found": shell,
		},
		MaxOutput: 1 << 20, // in JSON up to six times as long, in one answer of 8 MiB
		Settings:  map[string]string{"app": app, "region": "fra", "image": "docker.io/library/debian:stable"},
	}
}

func problem(w http.ResponseWriter, status int, msg string) {
	fakevendor.WriteJSON(w, status, map[string]any{"error": msg})
}

func auth(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			problem(w, http.StatusUnauthorized, "unauthorized")
			return
		}
		h(w, r)
	}
}

type handler func(http.ResponseWriter, *http.Request, *fakevendor.Sandbox)

func (f *machines) machine(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, ok := f.v.Get(r.PathValue("id"))
		if !ok {
			problem(w, http.StatusNotFound, "machine not found")
			return
		}
		h(w, r, s)
	}
}

type config struct {
	Image    string            `json:"image"`
	Env      map[string]string `json:"env"`
	Metadata map[string]string `json:"metadata"`
}

func (f *machines) create(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Name   string `json:"name"`
		Region string `json:"region"`
		Config config `json:"config"`
	}
	if !fakevendor.ReadJSON(w, r, &q) {
		return
	}
	if q.Config.Image == "" {
		problem(w, http.StatusBadRequest, "config.image is required")
		return
	}
	for _, s := range f.v.All() {
		if s.Name == q.Name {
			problem(w, http.StatusConflict, "the name is taken")
			return
		}
	}
	s, err := f.v.Create("m", q.Name, q.Config.Metadata, q.Config.Env)
	if err != nil {
		problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	f.set(s.ID, "created")
	fakevendor.WriteJSON(w, http.StatusOK, f.describe(s))
}

func (f *machines) set(id, state string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state[id] = state
}

// describe shows the configuration, environment included, as Fly does.
func (f *machines) describe(s *fakevendor.Sandbox) map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return map[string]any{"id": s.ID, "name": s.Name, "state": f.state[s.ID], "created_at": s.Created.UTC().Format(time.RFC3339),
		"config": config{Image: "debian", Env: s.Env, Metadata: s.Labels}}
}

func (f *machines) get(w http.ResponseWriter, _ *http.Request, s *fakevendor.Sandbox) {
	f.mu.Lock()
	if s.Polls++; s.Polls > 2 && f.state[s.ID] == "created" {
		f.state[s.ID] = "started" // nobody has to wait for it
	}
	f.mu.Unlock()
	fakevendor.WriteJSON(w, http.StatusOK, f.describe(s))
}

// wait says that a machine which was just created takes longer the first time.
func (f *machines) wait(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox) {
	f.mu.Lock()
	s.Polls++
	if f.state[s.ID] == "created" {
		f.state[s.ID] = "started"
		if s.Polls == 1 {
			f.mu.Unlock()
			problem(w, http.StatusRequestTimeout, "deadline_exceeded")
			return
		}
	}
	ok := f.state[s.ID] == r.URL.Query().Get("state")
	f.mu.Unlock()
	if !ok {
		problem(w, http.StatusRequestTimeout, "deadline_exceeded")
		return
	}
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{"ok": true})
}

func (f *machines) to(state string) handler {
	return func(w http.ResponseWriter, _ *http.Request, s *fakevendor.Sandbox) {
		f.set(s.ID, state)
		fakevendor.WriteJSON(w, http.StatusOK, map[string]any{"ok": true})
	}
}

func (f *machines) destroy(w http.ResponseWriter, _ *http.Request, s *fakevendor.Sandbox) {
	f.v.Delete(s.ID)
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{"ok": true})
}

// list filters by metadata.KEY=VALUE.
func (f *machines) list(w http.ResponseWriter, r *http.Request) {
	out := []any{}
	for _, s := range f.v.All() {
		match := true
		for name, values := range r.URL.Query() {
			if key, ok := strings.CutPrefix(name, "metadata."); ok {
				match = match && s.Labels[key] == values[0]
			}
		}
		if match {
			out = append(out, f.describe(s))
		}
	}
	fakevendor.WriteJSON(w, http.StatusOK, out)
}

func (f *machines) exec(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox) {
	var q struct {
		Command []string `json:"command"`
		Stdin   string   `json:"stdin"`
		Timeout int      `json:"timeout"`
	}
	if !fakevendor.ReadJSON(w, r, &q) {
		return
	}
	if len(q.Command) == 0 {
		problem(w, http.StatusBadRequest, "command is required")
		return
	}
	f.mu.Lock()
	running := f.state[s.ID] == "started"
	f.execs++
	id := fmt.Sprintf("x%d", f.execs)
	f.mu.Unlock()
	if !running {
		problem(w, http.StatusPreconditionFailed, "the machine is not started")
		return
	}
	for i := range q.Command {
		q.Command[i] = s.Localize(q.Command[i])
	}
	cmd, input, err := s.Start(id, q.Command, fakevendor.Root, s.Env, true)
	if err != nil {
		problem(w, http.StatusInternalServerError, "cannot start")
		return
	}
	go func() { _ = input([]byte(q.Stdin), true) }() // a command need not read it
	limit := maxExec
	if q.Timeout > 0 {
		limit = min(q.Timeout, maxExec)
	}
	cmd.Settle(time.Duration(limit) * time.Second)
	code, signal, ended := cmd.Ended()
	if !ended {
		_ = cmd.Signal(syscall.SIGKILL) // it may have ended meanwhile
		problem(w, http.StatusRequestTimeout, "deadline_exceeded")
		return
	}
	so, se := cmd.Output()
	// What is empty is left out, a code of 0 too, but for one output at least.
	doc := map[string]any{"stdout": string(so)}
	if n := numbers[signal]; n != 0 {
		doc["exit_signal"], code = n, 0
	}
	if code != 0 {
		doc["exit_code"] = code
	}
	if len(se) > 0 {
		doc["stderr"] = string(se)
	}
	fakevendor.WriteJSON(w, http.StatusOK, doc)
}

// numbers of signals.
var numbers = map[string]int{"INT": 2, "KILL": 9, "TERM": 15}

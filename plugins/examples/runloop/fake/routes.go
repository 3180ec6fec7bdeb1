// Package fake is a stand-in for Runloop's public API, as far as the plugin uses
// it. It runs commands for real in a temporary folder.
package fake

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
)

const apiKey = "rl_fake_key_c31f7a90" //nolint:gosec // a fake's key

// startPolls is how many looks a devbox takes to be running.
const startPolls = 2

var uuid7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

type runloop struct {
	v         *fakevendor.Vendor
	mu        sync.Mutex
	byRequest map[string]string // x-request-id to devbox or execution
	asleep    map[string]bool
}

// Register adds the routes.
func Register(v *fakevendor.Vendor, base string) fakevendor.Hello {
	f := &runloop{v: v, byRequest: map[string]string{}, asleep: map[string]bool{}}
	handle := func(pattern string, h http.HandlerFunc) { v.Mux.HandleFunc(pattern, auth(h)) }
	handle("POST /v1/devboxes", f.create)
	handle("GET /v1/devboxes", f.list)
	handle("GET /v1/devboxes/{id}", f.devbox(f.get))
	handle("POST /v1/devboxes/{id}/shutdown", f.devbox(f.shutdown))
	handle("POST /v1/devboxes/{id}/suspend", f.devbox(f.sleep(true)))
	handle("POST /v1/devboxes/{id}/resume", f.devbox(f.sleep(false)))
	handle("POST /v1/devboxes/{id}/execute", f.devbox(f.execute))
	handle("POST /v1/devboxes/{id}/executions/{execution}/wait_for_status", f.devbox(f.wait))
	handle("POST /v1/devboxes/{id}/executions/{execution}/kill", f.devbox(f.kill))
	handle("POST /v1/devboxes/{id}/download_file", f.devbox(f.download))
	handle("POST /v1/devboxes/{id}/upload_file", f.devbox(f.upload))
	const shell = "Runloop gives the command to a shell, which reports this as its exit status"
	return fakevendor.Hello{
		Origins: map[string]string{"api": base}, Credentials: map[string]string{"apiKey": apiKey},
		MaxOutput: 1 << 20, // in JSON up to six times as long, in one answer of 8 MiB
		Unproven: map[string]string{
			"exec/dir-missing": shell, "exec/not-found": shell, "exec/not-executable": shell, "signal/own": shell,
			"signal/term":  "Runloop can only kill a command",
			"files/atomic": "Runloop writes a file in place",
		},
	}
}

func problem(w http.ResponseWriter, status int, msg string) {
	fakevendor.WriteJSON(w, status, map[string]any{"message": msg})
}

func auth(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+apiKey {
			problem(w, http.StatusUnauthorized, "bad API key")
			return
		}
		h(w, r)
	}
}

type handler func(http.ResponseWriter, *http.Request, *fakevendor.Sandbox)

func (f *runloop) devbox(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, ok := f.v.Get(r.PathValue("id"))
		if !ok {
			problem(w, http.StatusNotFound, "no such devbox")
			return
		}
		h(w, r, s)
	}
}

func (f *runloop) create(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Name        string            `json:"name"`
		Blueprint   string            `json:"blueprint_name"`
		Environment map[string]string `json:"environment_variables"`
		Metadata    map[string]string `json:"metadata"`
	}
	if !fakevendor.ReadJSON(w, r, &q) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := r.Header.Get("x-request-id")
	if id, ok := f.byRequest[key]; ok && key != "" {
		if s, ok := f.v.Get(id); ok {
			fakevendor.WriteJSON(w, http.StatusOK, f.describe(s, "provisioning"))
			return
		}
	}
	s, err := f.v.Create("dbx_", q.Name, q.Metadata, q.Environment)
	if err != nil {
		problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	f.byRequest[key] = s.ID
	fakevendor.WriteJSON(w, http.StatusOK, f.describe(s, "provisioning"))
}

func (f *runloop) describe(s *fakevendor.Sandbox, status string) map[string]any {
	return map[string]any{"id": s.ID, "name": s.Name, "status": status, "metadata": s.Labels, "create_time_ms": s.Created.UnixMilli()}
}

func (f *runloop) status(s *fakevendor.Sandbox) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asleep[s.ID] {
		return "suspended"
	}
	if s.Polls < startPolls {
		return "initializing"
	}
	return "running"
}

func (f *runloop) get(w http.ResponseWriter, _ *http.Request, s *fakevendor.Sandbox) {
	f.mu.Lock()
	s.Polls++
	f.mu.Unlock()
	fakevendor.WriteJSON(w, http.StatusOK, f.describe(s, f.status(s)))
}

// list returns pages of two at most, so that paging is exercised, and devboxes
// of everybody.
func (f *runloop) list(w http.ResponseWriter, r *http.Request) {
	page, more, after := []any{}, false, r.URL.Query().Get("starting_after")
	for _, s := range f.v.All() {
		if s.ID <= after {
			continue
		}
		if len(page) == 2 {
			more = true
			break
		}
		page = append(page, f.describe(s, f.status(s)))
	}
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{"devboxes": page, "has_more": more, "total_count": len(f.v.All())})
}

func (f *runloop) shutdown(w http.ResponseWriter, _ *http.Request, s *fakevendor.Sandbox) {
	f.v.Delete(s.ID)
	fakevendor.WriteJSON(w, http.StatusOK, f.describe(s, "shutdown"))
}

func (f *runloop) sleep(on bool) handler {
	return func(w http.ResponseWriter, _ *http.Request, s *fakevendor.Sandbox) {
		f.mu.Lock()
		f.asleep[s.ID] = on
		f.mu.Unlock()
		fakevendor.WriteJSON(w, http.StatusOK, f.describe(s, f.status(s)))
	}
}

func (f *runloop) execute(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox) {
	var q struct {
		Command           string `json:"command"`
		CommandID         string `json:"command_id"`
		OptimisticTimeout int    `json:"optimistic_timeout"`
	}
	if !fakevendor.ReadJSON(w, r, &q) {
		return
	}
	if !uuid7.MatchString(q.CommandID) {
		problem(w, http.StatusBadRequest, "command_id must be a UUIDv7")
		return
	}
	if f.status(s) != "running" {
		problem(w, http.StatusConflict, "the devbox does not run")
		return
	}
	id := "exec_" + q.CommandID
	if _, ok := s.Command(id); !ok { // the id is an idempotency key
		_, _, err := s.Start(id, []string{"/bin/sh", "-c", s.Localize(q.Command)}, fakevendor.Root, s.Env, false)
		if err != nil {
			problem(w, http.StatusInternalServerError, "cannot start")
			return
		}
	}
	f.answer(w, r, s, id, min(q.OptimisticTimeout, 600))
}

// answer tells of an execution once it has completed, or after some seconds. The
// output is all there was so far, but for what last_n cuts off.
func (f *runloop) answer(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox, id string, seconds int) {
	cmd, ok := s.Command(id)
	if !ok {
		problem(w, http.StatusNotFound, "no such execution")
		return
	}
	cmd.Settle(time.Duration(seconds) * time.Second)
	code, signal, ended := cmd.Ended()
	so, se := cmd.Output()
	stdout, cutOut := lastLines(string(so), r.URL.Query().Get("last_n"))
	stderr, cutErr := lastLines(string(se), r.URL.Query().Get("last_n"))
	doc := map[string]any{
		"devbox_id": s.ID, "execution_id": id, "status": "running",
		"stdout": stdout, "stderr": stderr, "stdout_truncated": cutOut, "stderr_truncated": cutErr,
	}
	if ended {
		switch signal {
		case "KILL":
			code = 128 + 9
		case "TERM":
			code = 128 + 15
		}
		doc["status"], doc["exit_status"] = "completed", code
	}
	fakevendor.WriteJSON(w, http.StatusOK, doc)
}

// lastLines returns the last n lines, 100 unless told, and whether that is less
// than all.
func lastLines(text, n string) (string, bool) {
	limit, err := strconv.Atoi(n)
	if err != nil {
		limit = 100
	}
	lines := strings.SplitAfter(text, "\n")
	if len(lines) <= limit {
		return text, false
	}
	return strings.Join(lines[len(lines)-limit:], ""), true
}

func (f *runloop) wait(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox) {
	var q struct {
		Statuses []string `json:"statuses"`
		Timeout  int      `json:"timeout_seconds"`
	}
	if fakevendor.ReadJSON(w, r, &q) {
		id := r.PathValue("execution")
		if cmd, ok := s.Command(id); ok {
			cmd.Settle(time.Duration(min(q.Timeout, 60)) * time.Second)
			if _, _, ended := cmd.Ended(); !ended {
				problem(w, http.StatusRequestTimeout, "not completed yet")
				return
			}
		}
		f.answer(w, r, s, id, 0)
	}
}

func (f *runloop) kill(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox) {
	cmd, ok := s.Command(r.PathValue("execution"))
	if !ok {
		problem(w, http.StatusNotFound, "no such execution")
		return
	}
	_ = cmd.Signal(syscall.SIGKILL) // it may have ended
	f.answer(w, r, s, cmd.ID, 1)
}

func (f *runloop) download(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox) {
	var q struct {
		Path string `json:"path"`
	}
	if !fakevendor.ReadJSON(w, r, &q) {
		return
	}
	b, err := os.ReadFile(s.Path(q.Path))
	if err != nil {
		problem(w, http.StatusNotFound, "no such file")
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b) // the client may be gone
}

func (f *runloop) upload(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox) {
	file, _, err := r.FormFile("file")
	if err != nil || r.FormValue("path") == "" {
		problem(w, http.StatusBadRequest, "path and file are required")
		return
	}
	name := s.Path(r.FormValue("path"))
	err = os.MkdirAll(filepath.Dir(name), 0o755) //nolint:gosec // a sandbox's own folder
	var b []byte
	if err == nil {
		b, err = io.ReadAll(file)
	}
	if err == nil {
		err = os.WriteFile(name, b, 0o644) //nolint:gosec // as above
	}
	if err != nil {
		problem(w, http.StatusInternalServerError, fmt.Sprintf("write: %v", err))
		return
	}
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{})
}

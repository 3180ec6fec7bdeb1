// Package fake is a stand-in for E2B's public API, as far as the plugin uses it.
// It runs commands for real in a temporary folder.
package fake

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
)

const apiKey = "e2b_fake_key_5f1c8a7d" //nolint:gosec // a fake's key

const wrapped = "E2B starts commands through a shell, which reports this as its exit status"

type e2b struct {
	v      *fakevendor.Vendor
	mu     sync.Mutex
	inputs map[int]func([]byte, bool) error
	pids   map[int]*fakevendor.Command
}

// Register adds the routes.
func Register(v *fakevendor.Vendor, base string) fakevendor.Hello {
	e := &e2b{v: v, inputs: map[int]func([]byte, bool) error{}, pids: map[int]*fakevendor.Command{}}
	v.Mux.HandleFunc("POST /sandboxes", e.key(e.create))
	v.Mux.HandleFunc("GET /sandboxes/{id}", e.key(e.get))
	v.Mux.HandleFunc("DELETE /sandboxes/{id}", e.key(e.kill))
	v.Mux.HandleFunc("GET /v2/sandboxes", e.key(e.list))
	v.Mux.HandleFunc("POST /envd/{id}/process.Process/Start", e.token(e.start))
	v.Mux.HandleFunc("POST /envd/{id}/process.Process/SendInput", e.token(e.input))
	v.Mux.HandleFunc("POST /envd/{id}/process.Process/CloseStdin", e.token(e.closeStdin))
	v.Mux.HandleFunc("POST /envd/{id}/process.Process/SendSignal", e.token(e.signal))
	v.Mux.HandleFunc("GET /envd/{id}/files", e.token(e.download))
	v.Mux.HandleFunc("POST /envd/{id}/files", e.token(e.upload))
	for method, h := range map[string]func(http.ResponseWriter, string){"ListDir": listDir, "Stat": stat, "Remove": remove, "MakeDir": makeDir} {
		v.Mux.HandleFunc("POST /envd/{id}/filesystem.Filesystem/"+method, e.token(func(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox) {
			var q struct {
				Path  string `json:"path"`
				Depth int    `json:"depth"`
			}
			if fakevendor.ReadJSON(w, r, &q) {
				h(w, s.Path(q.Path))
			}
		}))
	}
	return fakevendor.Hello{
		Origins:     map[string]string{"api": base, "envd": base + "/envd/{sandbox}"},
		Credentials: map[string]string{"apiKey": apiKey},
		Settings:    map[string]string{"template": "base"},
		Unproven: map[string]string{
			"files/mode":          "E2B's upload has no field for a file's mode",
			"files/atomic":        "E2B writes a file in place",
			"exec/not-found":      wrapped,
			"exec/not-executable": wrapped,
			"env/errors":          wrapped,
		},
	}
}

func problem(w http.ResponseWriter, status int, msg string) {
	fakevendor.WriteJSON(w, status, map[string]any{"code": status, "message": msg})
}

func (e *e2b) key(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-API-Key") != apiKey {
			problem(w, http.StatusUnauthorized, "bad API key")
			return
		}
		h(w, r)
	}
}

func tokenOf(id string) string { return "envd_token_for_" + id + "_9d2e" }

func (e *e2b) token(h func(http.ResponseWriter, *http.Request, *fakevendor.Sandbox)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, ok := e.v.Get(r.PathValue("id"))
		switch {
		case !ok:
			problem(w, http.StatusBadGateway, "no such sandbox")
		case r.Header.Get("X-Access-Token") != tokenOf(s.ID) || r.Header.Get("X-API-Key") != "":
			problem(w, http.StatusUnauthorized, "bad access token")
		default:
			h(w, r, s)
		}
	}
}

func (e *e2b) create(w http.ResponseWriter, r *http.Request) {
	var q struct {
		TemplateID string            `json:"templateID"`
		EnvVars    map[string]string `json:"envVars"`
		Metadata   map[string]string `json:"metadata"`
		Timeout    int               `json:"timeout"`
	}
	if !fakevendor.ReadJSON(w, r, &q) {
		return
	}
	if q.TemplateID == "" {
		problem(w, http.StatusBadRequest, "templateID is required")
		return
	}
	s, err := e.v.Create("sb", "", q.Metadata, q.EnvVars)
	if err != nil {
		problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	if q.Timeout > 0 {
		time.AfterFunc(time.Duration(q.Timeout)*time.Second, func() { e.v.Delete(s.ID) })
	}
	fakevendor.WriteJSON(w, http.StatusCreated, map[string]any{"sandboxID": s.ID, "templateID": q.TemplateID, "envdAccessToken": tokenOf(s.ID), "domain": nil})
}

func describe(s *fakevendor.Sandbox) map[string]any {
	return map[string]any{"sandboxID": s.ID, "state": "running", "metadata": s.Labels, "startedAt": s.Created.UTC().Format(time.RFC3339)}
}

func (e *e2b) get(w http.ResponseWriter, r *http.Request) {
	s, ok := e.v.Get(r.PathValue("id"))
	if !ok {
		problem(w, http.StatusNotFound, "no such sandbox")
		return
	}
	d := describe(s)
	d["envdAccessToken"] = tokenOf(s.ID)
	fakevendor.WriteJSON(w, http.StatusOK, d)
}

func (e *e2b) kill(w http.ResponseWriter, r *http.Request) {
	if !e.v.Delete(r.PathValue("id")) {
		problem(w, http.StatusNotFound, "no such sandbox")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// list returns pages of two, so that paging is exercised.
func (e *e2b) list(w http.ResponseWriter, r *http.Request) {
	want, err := url.ParseQuery(r.URL.Query().Get("metadata"))
	if err != nil {
		problem(w, http.StatusBadRequest, "metadata")
		return
	}
	after, err := base64.RawURLEncoding.DecodeString(r.URL.Query().Get("nextToken"))
	if err != nil {
		problem(w, http.StatusBadRequest, "nextToken")
		return
	}
	page := []any{}
	for _, s := range e.v.All() {
		match := s.ID > string(after)
		for k := range want {
			match = match && s.Labels[k] == want.Get(k)
		}
		if !match {
			continue
		}
		if len(page) == 2 {
			w.Header().Set("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(page[1].(map[string]any)["sandboxID"].(string))))
			break
		}
		page = append(page, describe(s))
	}
	fakevendor.WriteJSON(w, http.StatusOK, page)
}

func frame(w io.Writer, flags byte, doc any) error {
	msg, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	head := [5]byte{flags}
	binary.BigEndian.PutUint32(head[1:], uint32(len(msg))) //nolint:gosec // small
	_, err = w.Write(append(head[:], msg...))
	return err
}

func (e *e2b) start(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox) {
	var head [5]byte
	if _, err := io.ReadFull(r.Body, head[:]); err != nil || r.Header.Get("Content-Type") != "application/connect+json" {
		problem(w, http.StatusUnsupportedMediaType, "not a Connect stream")
		return
	}
	var q struct {
		Process struct {
			Cmd  string            `json:"cmd"`
			Args []string          `json:"args"`
			Cwd  string            `json:"cwd"`
			Envs map[string]string `json:"envs"`
		} `json:"process"`
	}
	if !fakevendor.ReadJSON(w, r, &q) {
		return
	}
	env := map[string]string{}
	for k, v := range s.Env {
		env[k] = v
	}
	for k, v := range q.Process.Envs {
		env[k] = v
	}
	w.Header().Set("Content-Type", "application/connect+json")
	// E2B starts commands through a shell that then becomes the command.
	argv := append([]string{"/bin/sh", "-c", `exec "${@}"`, "--", q.Process.Cmd}, q.Process.Args...)
	cmd, input, err := s.Start(fmt.Sprint(time.Now().UnixNano()), argv, q.Process.Cwd, env, true)
	if err != nil {
		_ = frame(w, 2, map[string]any{"error": map[string]any{"code": "invalid_argument", "message": "cwd '" + q.Process.Cwd + "' does not exist"}}) // the client may be gone
		return
	}
	e.mu.Lock()
	e.inputs[cmd.Cmd.Process.Pid], e.pids[cmd.Cmd.Process.Pid] = input, cmd
	e.mu.Unlock()
	flush := http.NewResponseController(w)
	send := func(doc any) {
		_ = frame(w, 0, map[string]any{"event": doc}) // the client may be gone
		_ = flush.Flush()
	}
	send(map[string]any{"start": map[string]any{"pid": cmd.Cmd.Process.Pid}})
	var out, errs int
	for {
		code, signal, ended := cmd.Ended()
		so, se := cmd.Output()
		if len(so) > out {
			send(map[string]any{"data": map[string]any{"stdout": base64.StdEncoding.EncodeToString(so[out:])}})
			out = len(so)
		}
		if len(se) > errs {
			send(map[string]any{"data": map[string]any{"stderr": base64.StdEncoding.EncodeToString(se[errs:])}})
			errs = len(se)
		}
		if ended {
			// As Protocol Buffers do, what is 0 or false is left out.
			end := map[string]any{"status": fmt.Sprintf("exit status %d", code)}
			if code != 0 {
				end["exitCode"] = code
			}
			if signal == "" {
				end["exited"] = true
			} else {
				// E2B writes signals as Go does.
				names := map[string]string{"KILL": "killed", "TERM": "terminated", "INT": "interrupt"}
				if name, ok := names[signal]; ok {
					signal = name
				}
				end["status"] = "signal: " + signal
			}
			send(map[string]any{"end": end})
			_ = frame(w, 2, map[string]any{}) // the client may be gone
			return
		}
		if r.Context().Err() != nil {
			return // E2B lets the process go on
		}
		cmd.Wait(50 * time.Millisecond)
	}
}

type selector struct {
	Process struct {
		Selector struct {
			PID int `json:"pid"`
		} `json:"selector"`
	} `json:"process"`
	Signal string `json:"signal,omitempty"`
	Input  struct {
		Stdin []byte `json:"stdin"`
	} `json:"input"`
}

func (e *e2b) process(w http.ResponseWriter, r *http.Request) (*fakevendor.Command, func([]byte, bool) error, *selector) {
	var q selector
	if !fakevendor.ReadJSON(w, r, &q) {
		return nil, nil, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	pid := q.Process.Selector.PID
	cmd := e.pids[pid]
	if cmd == nil {
		problem(w, http.StatusNotFound, "no such process")
		return nil, nil, nil
	}
	return cmd, e.inputs[pid], &q
}

func (e *e2b) input(w http.ResponseWriter, r *http.Request, _ *fakevendor.Sandbox) {
	if _, input, q := e.process(w, r); q != nil {
		_ = input(q.Input.Stdin, false) // a process that closed its input drops the rest
		fakevendor.WriteJSON(w, http.StatusOK, map[string]any{})
	}
}

func (e *e2b) closeStdin(w http.ResponseWriter, r *http.Request, _ *fakevendor.Sandbox) {
	if _, input, q := e.process(w, r); q != nil {
		_ = input(nil, true) // may be closed
		fakevendor.WriteJSON(w, http.StatusOK, map[string]any{})
	}
}

func (e *e2b) signal(w http.ResponseWriter, r *http.Request, _ *fakevendor.Sandbox) {
	cmd, _, q := e.process(w, r)
	if q == nil {
		return
	}
	sig := map[string]syscall.Signal{"SIGNAL_SIGTERM": syscall.SIGTERM, "SIGNAL_SIGKILL": syscall.SIGKILL}[q.Signal]
	if sig == 0 {
		problem(w, http.StatusBadRequest, "unknown signal")
		return
	}
	_ = cmd.Signal(sig) // it may have ended
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{})
}

func (e *e2b) download(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox) {
	b, err := os.ReadFile(s.Path(r.URL.Query().Get("path")))
	if err != nil {
		problem(w, http.StatusNotFound, "no such file")
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b) // the client may be gone
}

func (e *e2b) upload(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox) {
	f, _, err := r.FormFile("file")
	if err != nil {
		problem(w, http.StatusBadRequest, "no file part")
		return
	}
	name := s.Path(r.URL.Query().Get("path"))
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		problem(w, http.StatusBadRequest, "path is a directory")
		return
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // a sandbox's own folder
		problem(w, http.StatusInternalServerError, "mkdir")
		return
	}
	b, err := io.ReadAll(f)
	if err == nil {
		err = os.WriteFile(name, b, 0o644) //nolint:gosec // as above
	}
	if err != nil {
		problem(w, http.StatusInternalServerError, "write")
		return
	}
	fakevendor.WriteJSON(w, http.StatusOK, []any{})
}

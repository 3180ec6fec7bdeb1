package plugintest_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
)

const boxKey = "box_fake_key_93ab01"

// boxes is the vendor of the plugin testdata/sinner. Its flaws are for checks that
// no plugin can fail by itself.
type boxes struct {
	v *fakevendor.Vendor
	// league: answers hold what the plugin must not see, in a disguise that it
	// knows.
	league bool
	// mixes: a command gets the environment of the box that was made last.
	mixes bool

	mu     sync.Mutex
	paused map[string]bool
	execs  atomic.Int64
}

// startBoxes serves the vendor for a sinner with the given sin.
func startBoxes(t *testing.T, sin string, driven bool, flaw func(*boxes)) *fakevendor.Hello {
	t.Helper()
	b := &boxes{v: fakevendor.New(t.TempDir()), paused: map[string]bool{}}
	if flaw != nil {
		flaw(b)
	}
	srv := b.v.Serve()
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); b.v.CloseAll() })
	handle := func(pattern string, h http.HandlerFunc) {
		b.v.Mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+boxKey {
				fakevendor.WriteJSON(w, http.StatusUnauthorized, map[string]string{"error": "bad key"})
				return
			}
			h(w, r)
		})
	}
	box := func(h func(http.ResponseWriter, *http.Request, *fakevendor.Sandbox)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if s, ok := b.v.Get(r.PathValue("id")); ok {
				h(w, r, s)
				return
			}
			fakevendor.WriteJSON(w, http.StatusNotFound, map[string]string{"error": "no such box"})
		}
	}
	handle("POST /boxes", b.create)
	handle("GET /boxes", b.list)
	handle("GET /boxes/{id}", box(func(w http.ResponseWriter, _ *http.Request, s *fakevendor.Sandbox) {
		fakevendor.WriteJSON(w, http.StatusOK, b.describe(s))
	}))
	handle("DELETE /boxes/{id}", box(func(w http.ResponseWriter, _ *http.Request, s *fakevendor.Sandbox) {
		b.v.Delete(s.ID)
		fakevendor.WriteJSON(w, http.StatusOK, map[string]any{})
	}))
	handle("POST /boxes/{id}/pause", box(b.pause(true)))
	handle("POST /boxes/{id}/resume", box(b.pause(false)))
	handle("POST /boxes/{id}/exec", box(b.exec))
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request, string){"GET file": readBox, "PUT file": writeBox, "POST stat": statBox, "POST listdir": listBox, "POST remove": removeBox, "POST mkdir": mkdirBox} {
		method, name, _ := strings.Cut(pattern, " ")
		b.v.Mux.HandleFunc(method+" /data/{id}/"+name, box(func(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox) {
			if r.Header.Get("X-Token") != boxToken(s) {
				fakevendor.WriteJSON(w, http.StatusUnauthorized, map[string]string{"error": "bad token"})
				return
			}
			path := r.URL.Query().Get("path")
			if method == http.MethodPost {
				var q struct{ Path string }
				if !fakevendor.ReadJSON(w, r, &q) {
					return
				}
				path = q.Path
			}
			h(w, r, s.Path(path))
		}))
	}
	settings := map[string]string{"sin": sin}
	if driven {
		settings["driven"] = "yes"
	}
	return &fakevendor.Hello{
		Origins: map[string]string{"api": srv.URL, "data": srv.URL + "/data/{sandbox}"}, Credentials: map[string]string{"key": boxKey},
		Settings: settings, Control: srv.URL + "/_fake",
	}
}

func boxToken(s *fakevendor.Sandbox) string { return "box_token_of_" + s.ID + "_77d0c4" }

func (b *boxes) create(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Name        string
		Env, Labels map[string]string
	}
	if !fakevendor.ReadJSON(w, r, &q) {
		return
	}
	if q.Labels == nil {
		values, err := url.ParseQuery(r.URL.Query().Get("labels"))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		q.Labels = map[string]string{}
		for k := range values {
			q.Labels[k] = values.Get(k)
		}
	}
	s, err := b.v.Create("box", q.Name, q.Labels, q.Env)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	fakevendor.WriteJSON(w, http.StatusCreated, b.describe(s))
}

func (b *boxes) describe(s *fakevendor.Sandbox) map[string]any {
	state := "running"
	if b.isPaused(s) {
		state = "paused"
	}
	d := map[string]any{"id": s.ID, "name": s.Name, "labels": s.Labels, "state": state, "created": s.Created.Unix(), "token": boxToken(s)}
	if b.league {
		var out []string
		for _, v := range append(slices.Collect(maps.Values(s.Env)), boxKey, boxToken(s)) {
			r := []byte(v)
			slices.Reverse(r)
			out = append(out, string(r))
		}
		d["disguised"] = out
	}
	return d
}

func (b *boxes) isPaused(s *fakevendor.Sandbox) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.paused[s.ID]
}

func (b *boxes) pause(on bool) func(http.ResponseWriter, *http.Request, *fakevendor.Sandbox) {
	return func(w http.ResponseWriter, _ *http.Request, s *fakevendor.Sandbox) {
		b.mu.Lock()
		b.paused[s.ID] = on
		b.mu.Unlock()
		fakevendor.WriteJSON(w, http.StatusOK, map[string]any{})
	}
}

func (b *boxes) list(w http.ResponseWriter, _ *http.Request) {
	out := []any{}
	for _, s := range b.v.All() {
		d := b.describe(s)
		delete(d, "disguised")
		delete(d, "token")
		out = append(out, d)
	}
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{"boxes": out})
}

func (b *boxes) exec(w http.ResponseWriter, r *http.Request, s *fakevendor.Sandbox) {
	var q struct {
		Argv []string
		Dir  string
		Env  map[string]string
	}
	if !fakevendor.ReadJSON(w, r, &q) {
		return
	}
	from, extra := s, q.Env
	if all := b.v.All(); b.mixes {
		from, extra = all[len(all)-1], nil
	}
	env := maps.Clone(from.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, extra)
	cmd, _, err := s.Start("x"+strconv.FormatInt(b.execs.Add(1), 10), q.Argv, q.Dir, env, false)
	if err != nil {
		fakevendor.WriteJSON(w, http.StatusNotFound, map[string]string{"error": "cannot start"})
		return
	}
	cmd.Settle(time.Minute)
	code, _, _ := cmd.Ended()
	stdout, stderr := cmd.Output()
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{
		"code": code, "stdout": base64.StdEncoding.EncodeToString(stdout), "stderr": base64.StdEncoding.EncodeToString(stderr),
	})
}

func boxFailed(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	if os.IsNotExist(err) {
		status = http.StatusNotFound
	}
	fakevendor.WriteJSON(w, status, map[string]string{"error": "file"})
}

func readBox(w http.ResponseWriter, _ *http.Request, name string) {
	data, err := os.ReadFile(name)
	if err != nil {
		boxFailed(w, err)
		return
	}
	_, _ = w.Write(data) // the client may be gone
}

func writeBox(w http.ResponseWriter, r *http.Request, name string) {
	f, _, err := r.FormFile("file")
	var data []byte
	if err == nil {
		data, err = io.ReadAll(f)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(name), 0o755) //nolint:gosec // a box's own folder
	}
	if err == nil {
		err = os.WriteFile(name, data, 0o644) //nolint:gosec // as above
	}
	if err != nil {
		boxFailed(w, err)
		return
	}
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{})
}

func boxEntry(info os.FileInfo) map[string]any {
	kind := "file"
	if info.IsDir() {
		kind = "dir"
	}
	return map[string]any{"name": info.Name(), "type": kind, "size": info.Size(), "mode": info.Mode().Perm()}
}

func statBox(w http.ResponseWriter, _ *http.Request, name string) {
	info, err := os.Stat(name)
	if err != nil {
		boxFailed(w, err)
		return
	}
	fakevendor.WriteJSON(w, http.StatusOK, boxEntry(info))
}

func listBox(w http.ResponseWriter, _ *http.Request, name string) {
	list, err := os.ReadDir(name)
	if err != nil {
		boxFailed(w, err)
		return
	}
	out := []any{}
	for _, d := range list {
		if info, err := d.Info(); err == nil {
			out = append(out, boxEntry(info))
		}
	}
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{"entries": out})
}

func removeBox(w http.ResponseWriter, _ *http.Request, name string) {
	if err := os.Remove(name); err != nil {
		boxFailed(w, err)
		return
	}
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{})
}

func mkdirBox(w http.ResponseWriter, _ *http.Request, name string) {
	if err := os.MkdirAll(name, 0o755); err != nil { //nolint:gosec // a box's own folder
		boxFailed(w, err)
		return
	}
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{})
}

// sinner builds the plugin with its manifest.
func sinner(t *testing.T) []byte {
	t.Helper()
	module, err := sinnerModule()
	require.NoError(t, err, "%s", module)
	return module
}

// driven is the same module, plugin-driven: it writes the bodies of create and
// exec itself, with a handle for the environment.
func driven(t *testing.T) []byte {
	t.Helper()
	module := sinner(t)
	in, err := plugin.Inspect(module)
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(in.Manifest, &m))
	m["kind"] = "plugin-driven"
	for _, r := range m["routes"].([]any) {
		r := r.(map[string]any)
		switch r["id"] {
		case "create":
			r["query"] = map[string]any{"labels": map[string]any{"from": "labels"}}
			fallthrough
		case "exec":
			r["request"] = map[string]any{"body": "plugin", "environment": map[string]any{"pointer": "/env", "shape": "map"}}
		}
	}
	doc, err := json.Marshal(m)
	require.NoError(t, err)
	packed, err := plugin.Pack(module, doc)
	require.NoError(t, err)
	return packed
}

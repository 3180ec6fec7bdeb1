package plugin_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/leaktest"
	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// What must not be seen: a value, the operator's credential, the vendor's token.
const (
	hostileValue = "c4nary-Value-Zq8Lw2Xn5Rt7Yb1Kd"
	hostileKey   = "cr3d-Vendor-Kp4Js9Hf6Gd3Aq0Wm"  //nolint:gosec // a canary
	hostileToken = "t0ken-Issued-Ue5Io2Pz8Cx1Vb7Nn" //nolint:gosec // a canary
)

var hostileCanaries = []leaktest.Canary{
	leaktest.Known("value", hostileValue), leaktest.Known("credential", hostileKey), leaktest.Known("token", hostileToken),
}

// chameleonModule is the hostile guest, built once.
var chameleonModule = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "chameleon-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "chameleon.wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", out, "./testdata/chameleon")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if msg, err := build.CombinedOutput(); err != nil {
		return msg, err
	}
	return os.ReadFile(out)
})

// neighbour is an honest plugin of the same runtime and module: hostile ones must
// not harm it. It also keeps the compiled code of the module alive.
type neighbour struct {
	rt *plugin.Runtime
	p  *plugin.Plugin
	v  *vendor
}

var theNeighbour = sync.OnceValues(func() (*neighbour, error) {
	ctx := context.Background()
	rt, err := plugin.NewRuntime(ctx, plugin.RuntimeConfig{CompileTimeout: 10 * time.Minute})
	if err != nil {
		return nil, err
	}
	module, err := chameleonModule()
	if err != nil {
		return nil, err
	}
	if module, err = plugin.Pack(module, []byte(hostileManifest)); err != nil {
		return nil, err
	}
	n := &neighbour{rt: rt, v: startVendor()}
	cfg, err := configFor(module, n.v, nil)
	if err != nil {
		return nil, err
	}
	if n.p, err = plugin.Load(ctx, rt, cfg); err != nil {
		return nil, err
	}
	_, err = n.p.List(ctx, provider.Query{Owner: "o1"})
	return n, err
})

func hostileRuntime() (*plugin.Runtime, error) {
	n, err := theNeighbour()
	if err != nil {
		return nil, err
	}
	return n.rt, nil
}

// patience is a wall time that no call takes, however busy the machine: only where a
// test is about it may the clock decide.
const patience = `"limits":{"wallMs":300000}`

const hostileManifest = `{"abi":"sbx_v1","name":"chameleon","version":"1","kind":"sealed",
 "operations":["create","status","exec","input","read","list","destroy"],
 "exec":{"stream":true,"stdin":"live","stderr":"separate","kill":"none"},
 "config":{"when":{"type":"string","maxLength":32},"act":{"type":"string","maxLength":64},"meta":{"type":"string","maxLength":4096},"driven":{"type":"string","maxLength":8}},
 "credentials":[{"name":"key"}],
 "captures":{"tok":{"scope":"session"}},
 "origins":{
  "api":{"url":"https://api.example.com","headers":[{"name":"X-Key","credential":"key"}]},
  "data":{"url":"https://{sandbox}.data.example.com","headers":[{"name":"X-Token","capture":"tok"}]}},
 "routes":[
  {"id":"create","role":"create","origin":"api","method":"POST","path":"/sandboxes",
   "request":{"body":"json","slots":[{"pointer":"/image","from":"image"},{"pointer":"/env","from":"environment","shape":"map"},{"pointer":"/labels","from":"labels"}]},
   "response":{"body":"json","sandbox":"/id","capture":[{"pointer":"/token","name":"tok"}]}},
  {"id":"list","role":"control","origin":"api","method":"GET","path":"/sandboxes","response":{"body":"json","items":{"pointer":"/items","sandbox":"/id","labels":"/labels"}}},
  {"id":"get","role":"control","origin":"api","method":"GET","path":"/sandboxes/{sandbox}","response":{"body":"json","headers":["X-Info"]}},
  {"id":"kill","role":"control","origin":"api","method":"DELETE","path":"/sandboxes/{sandbox}"},
  {"id":"page","role":"control","origin":"api","method":"GET","path":"/sandboxes/{sandbox}/pages/{p}","params":{"p":{"free":{"type":"string","maxLength":128}}},"response":{"body":"json"}},
  {"id":"note","role":"control","origin":"api","method":"GET","path":"/sandboxes/{sandbox}/notes","query":{"q":{"free":{"type":"string","maxLength":4096}}},"response":{"body":"json"}},
  {"id":"sse","role":"control","origin":"api","method":"GET","path":"/sandboxes/{sandbox}/sse","response":{"body":"sse"}},
  {"id":"connect","role":"control","origin":"api","method":"GET","path":"/sandboxes/{sandbox}/connect","response":{"body":"connect"}},
  {"id":"pid","role":"control","origin":"api","method":"POST","path":"/sandboxes/{sandbox}/pid","request":{"body":"json","slots":[{"pointer":"/name","from":"name"}],"free":[{"pointer":"/pid","type":"integer","min":0,"max":99}]},"response":{"body":"none"}},
  {"id":"start","role":"exec","origin":"data","method":"POST","path":"/start",
   "request":{"body":"json","slots":[{"pointer":"/argv","from":"exec.argv"},{"pointer":"/env","from":"exec.environment","shape":"map"}]},
   "response":{"body":"ndjson","payload":[{"pointer":"/out","to":"stdout"},{"pointer":"/err","to":"stderr"}]}},
  {"id":"read","role":"file","origin":"data","method":"GET","path":"/files/{f...}","params":{"f":{"from":"file.path"}},"response":{"body":"raw","payload":[{"to":"content"}]}}],
 ` + patience + `,"protectedTransport":{"create":["create"],"exec":["start"]}}`

// drivenManifest is the same plugin, writing its own create and exec bodies.
func drivenManifest() string {
	m := strings.Replace(hostileManifest, `"kind":"sealed"`, `"kind":"plugin-driven"`, 1)
	m = strings.Replace(m, `"request":{"body":"json","slots":[{"pointer":"/image","from":"image"},{"pointer":"/env","from":"environment","shape":"map"},{"pointer":"/labels","from":"labels"}]}`,
		`"request":{"body":"plugin","environment":{"pointer":"/env","shape":"map"}}`, 1)
	m = strings.Replace(m, `"request":{"body":"json","slots":[{"pointer":"/argv","from":"exec.argv"},{"pointer":"/env","from":"exec.environment","shape":"map"}]}`,
		`"request":{"body":"plugin","environment":{"pointer":"/env","shape":"map"}}`, 1)
	return strings.Replace(m, `"path":"/sandboxes/{sandbox}/pid","request":{"body":"json","slots":[{"pointer":"/name","from":"name"}],"free":[{"pointer":"/pid","type":"integer","min":0,"max":99}]}`,
		`"path":"/sandboxes/{sandbox}/pid","request":{"body":"plugin"}`, 1)
}

// vendor is an honest vendor, as far as it is not told otherwise.
type vendor struct {
	*httptest.Server
	mu        sync.Mutex
	sandboxes map[string]map[string]any
	next      int
	bodies    []string
	uris      []string
	odd       func(w http.ResponseWriter, r *http.Request, body string) bool
}

func startVendor() *vendor {
	v := &vendor{sandboxes: map[string]map[string]any{}}
	v.Server = httptest.NewServer(http.HandlerFunc(v.serve))
	return v
}

func newVendor(t *testing.T) *vendor {
	t.Helper()
	v := startVendor()
	t.Cleanup(func() { v.CloseClientConnections(); v.Close() })
	return v
}

func (v *vendor) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a broken body is what it is
	v.mu.Lock()
	v.bodies, v.uris = append(v.bodies, string(body)), append(v.uris, r.Method+" "+r.URL.RequestURI())
	odd := v.odd
	v.mu.Unlock()
	if odd != nil && odd(w, r, string(body)) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	part := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	answer := func(status int, doc any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(doc) // the client may be gone
	}
	switch {
	case part[0] == "data" && len(part) > 2 && part[2] == "start":
		var q struct{ Env map[string]string }
		_ = json.Unmarshal(body, &q) // a malformed one has no environment
		value := q.Env["TOKEN"]
		if s := v.sandboxes[part[1]]; value == "" && s != nil {
			value = fmt.Sprint(s["env"].(map[string]any)["TOKEN"])
		}
		for _, f := range []string{`{"started":1}`, `{"out":"plain ` + value + `"}`, `{"out":"reversed ` + reversed(value) + `"}`, `{"exit":0}`} {
			_, _ = io.WriteString(w, f+"\n")
		}
	case part[0] == "data":
		_, _ = io.WriteString(w, "content "+reversed(hostileValue))
	case len(part) == 1 && r.Method == http.MethodPost:
		var q map[string]any
		if json.Unmarshal(body, &q) != nil {
			answer(400, map[string]any{})
			return
		}
		v.next++
		id := fmt.Sprintf("sandbox-%06d", v.next)
		v.sandboxes[id] = map[string]any{"id": id, "labels": q["labels"], "env": q["env"], "state": "running"}
		answer(201, map[string]any{"id": id, "token": hostileToken, "image": q["image"]})
	case len(part) == 1:
		items := []any{map[string]any{"id": "sandbox-foreign", "labels": map[string]any{provider.LabelOwner: "somebody"}}}
		for _, s := range v.sandboxes {
			items = append(items, s)
		}
		answer(200, map[string]any{"items": items})
	case v.sandboxes[part[1]] == nil:
		answer(404, map[string]any{})
	case r.Method == http.MethodDelete:
		delete(v.sandboxes, part[1])
		w.WriteHeader(http.StatusNoContent)
	default:
		answer(200, map[string]any{"id": part[1], "state": "running"})
	}
}

func (v *vendor) do(odd func(w http.ResponseWriter, r *http.Request, body string) bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.odd = odd
}

func (v *vendor) sent() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.uris...)
}

func (v *vendor) received() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.bodies...)
}

func (v *vendor) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.sandboxes)
}

func reversed(s string) string {
	b := []byte(s)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

// stage is a hostile plugin, loaded, with everything it could see.
type stage struct {
	t      *testing.T
	p      *plugin.Plugin
	v      *vendor
	corpus leaktest.Corpus
	mu     sync.Mutex
	logs   bytes.Buffer
	seen   bytes.Buffer
	driven bool
}

// Write receives log output.
func (s *stage) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs.Write(b)
}

func (s *stage) trace(what string, data []byte) {
	s.corpus.Add("guest: "+what, data)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Write(data)
	s.seen.WriteByte('\n')
}

// packed puts a manifest into a module, without the checks of plugin.Pack.
func packed(t testing.TB, module []byte, manifest string) []byte {
	t.Helper()
	out, err := plugin.Pack(module, []byte(manifest))
	require.NoError(t, err)
	return out
}

func configFor(module []byte, v *vendor, settings map[string]string) (plugin.Config, error) {
	lock := &plugin.Lock{}
	_, err := lock.Approve(module)
	return plugin.Config{
		Module: module, Lock: lock, Settings: settings, Credentials: map[string]secret.Value{"key": secret.FromString(hostileKey)},
		Origins: map[string]plugin.Origin{"api": {URL: v.URL, AllowPrivate: true}, "data": {URL: v.URL + "/data/{sandbox}", AllowPrivate: true}},
	}, err
}

func (s *stage) config(module []byte, settings map[string]string) plugin.Config {
	cfg, err := configFor(module, s.v, settings)
	require.NoError(s.t, err)
	cfg.Logger = slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Trace = s.trace
	return cfg
}

// stageOf loads a chameleon.
func stageOf(t *testing.T, manifest string, settings map[string]string) *stage {
	t.Helper()
	module, err := chameleonModule()
	require.NoError(t, err, "%s", module)
	return stageWith(t, packed(t, module, manifest), settings)
}

func stageWith(t *testing.T, module []byte, settings map[string]string) *stage {
	t.Helper()
	s := &stage{t: t, v: newVendor(t)}
	cfg := s.config(module, settings)
	cfg.AllowPluginDriven = true
	s.p = s.load(cfg)
	s.driven = len(s.p.Describe().OpenEnds) > 0
	return s
}

func (s *stage) load(cfg plugin.Config) *plugin.Plugin {
	s.t.Helper()
	return s.loadWith(s.t.Context(), cfg)
}

func (s *stage) loadWith(ctx context.Context, cfg plugin.Config) *plugin.Plugin {
	s.t.Helper()
	rt, err := hostileRuntime()
	require.NoError(s.t, err)
	p, err := plugin.Load(ctx, rt, cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, p.Close()) })
	return p
}

func (s *stage) request(session string) provider.CreateRequest {
	q := createRequest(session, map[string]secret.Value{"TOKEN": secret.FromString(hostileValue)})
	q.Image = "debian"
	return q
}

func (s *stage) ctx() context.Context {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	s.t.Cleanup(cancel)
	return ctx
}

// create makes a sandbox. A plugin whose wall time is short may need several
// attempts, on a busy machine.
func (s *stage) create() provider.Sandbox {
	s.t.Helper()
	session := sessionA
	for end, n := time.Now().Add(5*time.Minute), 1; ; n++ {
		sb, err := s.p.Create(s.ctx(), s.request(session))
		var late *plugin.Deadline
		if errors.As(err, &late) && time.Now().Before(end) {
			session = fmt.Sprintf("%032x", n) // what the first attempt made is half known
			continue
		}
		require.NoError(s.t, err)
		return sb
	}
}

// run carries out one operation and returns its error.
func (s *stage) run(op string) error {
	s.t.Helper()
	switch op {
	case "create":
		_, err := s.p.Create(s.ctx(), s.request(sessionA))
		return err
	case "list":
		_, err := s.p.List(s.ctx(), provider.Query{Owner: "o1"})
		return err
	}
	sb := s.create()
	switch op {
	case "status":
		st, err := sb.Status(s.ctx())
		s.corpus.AddValue("status", st)
		return err
	case "destroy":
		return s.p.Destroy(s.ctx(), sb.Ref())
	case "read":
		r, _, err := sb.Files().Open(s.ctx(), "f")
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r)
		return err
	case "exec":
		exit, err := s.exec(sb)
		if err == nil && exit.Kind == provider.ExitLost {
			err = errLost
		}
		return err
	}
	s.t.Fatalf("unknown operation %s", op)
	return nil
}

var errLost = fmt.Errorf("the exec is lost")

func (s *stage) exec(sb provider.Sandbox) (provider.Exit, error) {
	var out, errs bytes.Buffer
	pr, err := sb.Exec(s.ctx(), provider.ExecRequest{ID: "e1", Args: []string{"sh", "-c", "printenv TOKEN | rev"}, Env: map[string]string{}, Stdout: &out, Stderr: &errs, Stdin: provider.StdinNone})
	if err != nil {
		return provider.Exit{}, err
	}
	return pr.Wait(s.ctx())
}

// finish proves that nothing leaked and that the host is well: another plugin of
// the same runtime and module works.
func (s *stage) finish(err error) {
	t := s.t
	t.Helper()
	s.corpus.AddError("error", err)
	s.mu.Lock()
	s.corpus.Add("log", append([]byte("log\n"), s.logs.Bytes()...))
	seen := s.seen.String()
	s.mu.Unlock()
	leaktest.Scan(t, hostileCanaries, &s.corpus)
	assert.NotContains(t, seen, reversed(hostileValue), "output must go past the plugin")

	n, nerr := theNeighbour()
	require.NoError(t, nerr)
	var id [16]byte
	_, rerr := rand.Read(id[:])
	require.NoError(t, rerr)
	h := &stage{t: t, v: n.v, p: n.p}
	sb, err := h.p.Create(h.ctx(), h.request(hex.EncodeToString(id[:])))
	require.NoError(t, err)
	exit, err := h.exec(sb)
	require.NoError(t, err)
	assert.Equal(t, provider.ExitExited, exit.Kind, "a following call of another plugin works")
	require.NoError(t, h.p.Destroy(h.ctx(), sb.Ref()))
}

func contextWithin(t *testing.T, ms int) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), time.Duration(ms)*time.Millisecond)
}

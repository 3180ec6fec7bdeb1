package egress_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

const (
	credential = "cr3d-Vx91mQp7Zt4LkW8sR2yB" //nolint:gosec // a canary
	canary     = "c4nary-8fHq2LmX6vTz0RjWk5Nd"
	token      = "t0ken-Yb7Gc3KsQe9PwUa1Mx4H" //nolint:gosec // a canary
	owner      = "owner-1"
	session    = "0123456789abcdef0123456789abcdef"
)

// sealed is the manifest most tests use; ROUTES, EXTRA, CAPTURES and ORIGINS are
// replaced.
const sealed = `{"abi":"sbx_v1","name":"demo","version":"1","kind":"KIND",
 "operations":["create","status","exec","input","signal","read","write","stat","list","destroy"],
 "exec":{"stream":true,"stdin":"live","stderr":"separate","kill":"process"},
 "config":{"size":{"type":"integer"},"flag":{"type":"boolean"},"tag":{"type":"string","maxLength":64}},
 "credentials":[{"name":"key"}],
 "captures":{"tok":{"scope":"session"},"shared":{"scope":"plugin"},"base":{"scope":"session"}},
 "origins":{
  "api":{"url":"https://api.example.com","headers":[{"name":"X-Key","prefix":"Bearer ","credential":"key"}]},
  "data":{"url":"https://{sandbox}.data.example.com","headers":[{"name":"X-Token","capture":"tok"}]},
  "far":{"url":{"from":"base","allow":["*.far.example.com","exact.example.com"]}}},
 "routes":[ROUTES],
 "protectedTransport":{"create":["create"],"exec":["start"]}}`

const (
	createRoute = `{"id":"create","role":"create","origin":"api","method":"POST","path":"/sandboxes",
   "request":{"body":"json","slots":[{"pointer":"/image","from":"image"},{"pointer":"/env","from":"environment","shape":"map"},{"pointer":"/labels","from":"labels"}]},
   "response":{"body":"json","sandbox":"/id","capture":[{"pointer":"/token","name":"tok"},{"pointer":"/shared","name":"shared"},{"pointer":"/base","name":"base"}]}}`
	listRoute = `{"id":"list","role":"control","origin":"api","method":"GET","path":"/sandboxes",
   "response":{"body":"json","headers":["X-Next"],"items":{"pointer":"/items","sandbox":"/id","labels":"/labels"}}}`
	getRoute   = `{"id":"get","role":"control","origin":"api","method":"GET","path":"/sandboxes/{sandbox}","response":{"body":"json","headers":["X-Info"]}}`
	killRoute  = `{"id":"kill","role":"control","origin":"api","method":"DELETE","path":"/sandboxes/{sandbox}"}`
	startRoute = `{"id":"start","role":"exec","origin":"data","method":"POST","path":"/start",
   "request":{"body":"json","slots":[{"pointer":"/argv","from":"exec.argv"},{"pointer":"/env","from":"exec.environment","shape":"kv"}]},
   "response":{"body":"ndjson","payload":[{"pointer":"/out","to":"stdout"},{"pointer":"/err","to":"stderr","encoding":"base64"}]}}`
	baseRoutes = createRoute + "," + listRoute + "," + getRoute + "," + killRoute + "," + startRoute
)

// manifest returns a checked manifest with further routes.
func manifest(t testing.TB, kind string, routes ...string) *spec.Manifest {
	t.Helper()
	doc := strings.Replace(sealed, "ROUTES", strings.Join(append([]string{baseRoutes}, routes...), ","), 1)
	m, err := spec.Parse([]byte(strings.Replace(doc, "KIND", kind, 1)))
	require.NoError(t, err)
	return m
}

// received is one request as the vendor got it.
type received struct {
	Method, URI, Body string
	Header            http.Header
}

// world is a broker and its vendor.
type world struct {
	t      testing.TB
	b      *egress.Broker
	srv    *httptest.Server
	mu     sync.Mutex
	got    []received
	answer func(w http.ResponseWriter, r *http.Request)
}

func newWorld(t testing.TB, m *spec.Manifest, answer func(w http.ResponseWriter, r *http.Request)) *world {
	t.Helper()
	w := &world{t: t, answer: answer}
	w.srv = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.srv.Close)
	var err error
	w.b, err = egress.New(egress.Config{
		Manifest: m, Credentials: map[string]secret.Value{"key": secret.FromString(credential)},
		Settings: map[string]string{"size": "7", "flag": "true"},
		Origins: map[string]egress.OriginSetting{
			"api": {URL: w.srv.URL, AllowPrivate: true}, "data": {URL: w.srv.URL + "/data/{sandbox}", AllowPrivate: true},
		},
	})
	require.NoError(t, err)
	t.Cleanup(w.b.Close)
	return w
}

func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a broken body is what it is
	w.mu.Lock()
	w.got = append(w.got, received{r.Method, r.URL.RequestURI(), string(body), r.Header.Clone()})
	answer := w.answer
	w.mu.Unlock()
	switch {
	case answer != nil:
		answer(rw, r)
	case r.Method == http.MethodPost && r.URL.Path == "/sandboxes":
		reply(rw, 201, `{"id":"sb-000001","token":"`+token+`"}`)
	default:
		reply(rw, 200, `{}`)
	}
}

func (w *world) then(answer func(w http.ResponseWriter, r *http.Request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

func (w *world) requests() []received {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]received(nil), w.got...)
}

func (w *world) last() received {
	w.t.Helper()
	all := w.requests()
	require.NotEmpty(w.t, all)
	return all[len(all)-1]
}

func reply(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func always(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { reply(w, status, body) }
}

func request(id string) provider.CreateRequest {
	return provider.CreateRequest{
		SessionID: id, Name: "sbxhost-" + id, Image: "debian", Root: "/w", Network: "default", TTL: time.Minute,
		Labels: map[string]string{provider.LabelOwner: owner, provider.LabelSession: id, provider.LabelAttempt: "a1", "team": "core"}, Environment: map[string]string{"PLAIN": "p"},
	}
}

func values(kv ...string) secret.Env {
	m := map[string]secret.Value{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = secret.FromString(kv[i+1])
	}
	return secret.NewEnv(m)
}

// session returns a session that holds the canary and has no sandbox yet.
func (w *world) session(id string) *egress.Session {
	w.t.Helper()
	q := request(id)
	q.Protected = values("TOKEN", canary)
	s, err := w.b.Session(q, q.Protected, "")
	require.NoError(w.t, err)
	w.t.Cleanup(s.Close)
	return s
}

// running returns a session whose sandbox was created.
func (w *world) running(id string) *egress.Session {
	w.t.Helper()
	s := w.session(id)
	c := w.call(abi.OpCreate, s, nil, nil)
	_, err := c.Open(w.t.Context(), []byte(`{"route":"create"}`), nil)
	require.NoError(w.t, err)
	return s
}

func (w *world) call(op abi.Op, s *egress.Session, e *egress.Exec, f *egress.File) *egress.Call {
	cfg := egress.CallConfig{Op: op, Session: s, Exec: e, File: f}
	if s == nil {
		cfg.Owner = map[string]string{provider.LabelOwner: owner}
	}
	c := w.b.Call(cfg)
	w.t.Cleanup(c.Close)
	return c
}

func command(out, errs io.Writer) *egress.Exec {
	return &egress.Exec{ID: "e1", Args: []string{"echo", "hi"}, Dir: "/w", Env: map[string]string{"L": "1"}, Protected: values("TOKEN", canary), Stdout: out, Stderr: errs}
}

// try opens a route and returns what the guest can read of a whole body.
func try(t testing.TB, c *egress.Call, meta string) (string, error) {
	t.Helper()
	h, err := c.Open(t.Context(), []byte(meta), nil)
	if err != nil {
		return "", err
	}
	return body(t, c, h), nil
}

func body(t testing.TB, c *egress.Call, h int64) string {
	t.Helper()
	var out []byte
	for buf := make([]byte, 512); ; {
		n, err := c.Read(h, buf)
		require.NoError(t, err)
		if n == 0 {
			return string(out)
		}
		out = append(out, buf[:n]...)
	}
}

// frames reads frames to the end and returns them, and the error that ended
// them unless that was the proper end.
func frames(t testing.TB, c *egress.Call, h int64) ([]string, error) {
	t.Helper()
	var out []string
	for range 10_000 {
		f, err := c.Next(h, 1<<20)
		if errors.Is(err, abi.ErrnoEnd) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, string(f))
	}
	t.Fatal("the stream does not end")
	return nil, nil
}

func denied(t testing.TB, err error, rule string) {
	t.Helper()
	var d *egress.Denied
	require.ErrorAs(t, err, &d)
	assert.Contains(t, d.Rule, rule)
}

func isErrno(t testing.TB, err error, no abi.Errno) {
	t.Helper()
	require.Error(t, err)
	assert.ErrorIs(t, err, no)
}

func decoded(t testing.TB, doc string) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(doc), &v), doc)
	return v
}

func clean(t testing.TB, what string, texts ...string) {
	t.Helper()
	for _, s := range texts {
		for _, secretText := range []string{canary, credential, token} {
			assert.NotContains(t, s, secretText, what)
			for n := 12; n < len(secretText); n += 6 {
				assert.NotContains(t, s, secretText[n-12:n], what)
			}
		}
	}
}

func ctxFor(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func meta(route, rest string) string { return fmt.Sprintf(`{"route":%q%s}`, route, rest) }

func (w *world) creds() map[string]secret.Value {
	return map[string]secret.Value{"key": secret.FromString(credential)}
}

var quiet = log.New(io.Discard, "", 0)

func errorsAs(err error, d **egress.Denied) bool { return errors.As(err, d) }

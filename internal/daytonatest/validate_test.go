//go:build linux

package daytonatest_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

// complaints is a TB that collects.
type complaints struct {
	mu   sync.Mutex
	list []string
}

func (*complaints) Helper()                     {}
func (*complaints) Logf(string, ...any)         {}
func (*complaints) Cleanup(func())              {}
func (c *complaints) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (c *complaints) Errorf(f string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, fmt.Sprintf(f, a...))
}

const canary = "canary-8"

// exchanges are requests with the replies a server would give, and what the
// validator must say.
var exchanges = map[string]struct {
	method, path, kind, body string
	status                   int
	replyKind, reply         string
	want                     string // a part of the only complaint; "" none
}{
	"good":                    {"POST", "/api/sandbox", "application/json", `{"name":"a","cpu":1}`, 409, "application/json", `{"statusCode":409,"message":"x","path":"/"}`, ""},
	"unknown operation":       {"GET", "/api/sandboxes", "", "", 404, "", "", "no such operation"},
	"unknown field":           {"POST", "/api/sandbox", "application/json", `{"nam":"` + canary + `"}`, 409, "application/json", `{"statusCode":409,"message":"x"}`, "/: properties that are not in the specification: nam"},
	"wrong type":              {"POST", "/api/sandbox", "application/json", `{"name":{"` + canary + `":1}}`, 409, "application/json", `{"statusCode":409,"message":"x"}`, "/name: is object, must be string"},
	"wrong type in env":       {"POST", "/api/sandbox", "application/json", `{"env":{"A":1}}`, 409, "application/json", `{"statusCode":409,"message":"x"}`, "/env/A: is number, must be string"},
	"nested unknown field":    {"POST", "/api/sandbox", "application/json", `{"buildInfo":{"dockerfileContent":"x","y":1}}`, 409, "application/json", `{"statusCode":409,"message":"x"}`, "/buildInfo: properties"},
	"missing body":            {"POST", "/api/sandbox", "", "", 409, "application/json", `{"statusCode":409,"message":"x"}`, "the body is missing"},
	"body where none is":      {"POST", "/api/sandbox/x/stop", "application/json", `{"force":true}`, 404, "application/json", `{"statusCode":404,"message":"x"}`, "none is specified"},
	"not JSON":                {"POST", "/api/sandbox", "application/json", `{`, 400, "application/json", `{"statusCode":400,"message":"x"}`, "not JSON"},
	"trailing bytes":          {"POST", "/api/sandbox", "application/json", `{} {}`, 400, "application/json", `{"statusCode":400,"message":"x"}`, "not JSON"},
	"content type":            {"POST", "/api/sandbox", "text/plain", `{}`, 400, "application/json", `{"statusCode":400,"message":"x"}`, "content type"},
	"unknown parameter":       {"GET", "/api/sandbox?lable=" + canary, "", "", 200, "application/json", `{"items":[],"nextCursor":null}`, "query parameter lable is not in the specification"},
	"parameter out of range":  {"GET", "/api/sandbox?limit=500", "", "", 200, "application/json", `{"items":[],"nextCursor":null}`, "query parameter limit is not valid"},
	"parameter of no type":    {"GET", "/api/sandbox?limit=" + canary, "", "", 200, "application/json", `{"items":[],"nextCursor":null}`, "query parameter limit is no number"},
	"parameter twice":         {"GET", "/api/sandbox?limit=5&limit=6", "", "", 200, "application/json", `{"items":[],"nextCursor":null}`, "more than once"},
	"unknown state":           {"GET", "/api/sandbox?states=started&states=" + canary, "", "", 200, "application/json", `{"items":[],"nextCursor":null}`, "query parameter states is not valid"},
	"missing parameter":       {"GET", "/toolbox/i/files/download", "", "", 404, "", "", "query parameter path is missing"},
	"path parameter":          {"GET", "/toolbox/i/port/http/in-use", "", "", 400, "", "", "path parameter port is no integer"},
	"reply misses":            {"GET", "/api/sandbox", "", "", 200, "application/json", `{"items":[]}`, "reply body of listSandboxes is not as specified: /: missing properties: nextCursor"},
	"reply has more":          {"GET", "/toolbox/i/work-dir", "", "", 200, "application/json", `{"dir":"/","other":"` + canary + `"}`, "/: properties that are not in the specification: other"},
	"reply of another type":   {"POST", "/toolbox/i/process/execute", "application/json", `{"command":"x"}`, 200, "application/json", `{"result":"","exitCode":"0"}`, "/exitCode: is string, must be integer"},
	"reply is no JSON":        {"GET", "/toolbox/i/work-dir", "", "", 200, "text/html", `<html>`, "it must be JSON"},
	"reply is broken":         {"GET", "/toolbox/i/work-dir", "", "", 200, "application/json", `{`, "not JSON"},
	"status":                  {"GET", "/toolbox/i/work-dir", "", "", 201, "application/json", `{"dir":"/"}`, "status Created is not specified"},
	"error without a shape":   {"GET", "/api/sandbox/x", "", "", 404, "application/json", `{"oops":1}`, "status Not Found is not specified"},
	"null where none is":      {"GET", "/toolbox/i/work-dir", "", "", 200, "application/json", `{"dir":null}`, "/dir: is null, must be string"},
	"measured: empty error":   {"GET", "/toolbox/i/files/download?path=x", "", "", 404, "", "", ""},
	"measured: empty 502":     {"GET", "/api/sandbox/x", "", "", 502, "", "", ""},
	"measured: terminal":      {"POST", "/toolbox/i/process/pty", "application/json", `{"id":"x"}`, 409, "application/json", `{"error":"x"}`, ""},
	"measured: plain 404":     {"GET", "/toolbox/i/version", "", "", 404, "text/plain", "404 page not found", ""},
	"range":                   {"GET", "/toolbox/i/files/download?path=x", "", "", 206, "application/octet-stream", "part", ""},
	"no business of ours":     {"GET", "/preview/8000-x/api/whatever", "", "", 200, "", "", ""},
	"session with variables":  {"POST", "/toolbox/i/process/session/s/exec", "application/json", `{"command":"x","envs":{}}`, 200, "application/json", `{"cmdId":"x"}`, "envs"},
	"fraction for an integer": {"POST", "/toolbox/i/process/execute", "application/json", `{"command":"x","timeout":0.5}`, 400, "", "", "/timeout: is number, must be integer"},
	"empty object is no body": {"POST", "/api/sandbox/x/start", "application/json", `{}`, 404, "application/json", `{"statusCode":404,"message":"x"}`, ""},
}

func TestValidator(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"handler", "transport"} {
		for name, x := range exchanges {
			t.Run(side+"/"+name, func(t *testing.T) {
				t.Parallel()
				var heard complaints
				v := daytonatest.Validate(&heard)
				var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					assert.Equal(t, x.body, string(body), "the server gets the body as it was")
					w.Header()["Content-Type"] = nil
					if x.replyKind != "" {
						w.Header().Set("Content-Type", x.replyKind)
					}
					w.WriteHeader(x.status)
					_, _ = io.WriteString(w, x.reply)
				})
				if side == "handler" {
					handler = v.Handler(handler)
				}
				s := httptest.NewServer(handler)
				defer s.Close()
				tr := &http.Transport{}
				defer tr.CloseIdleConnections()
				var rt http.RoundTripper = tr
				if side == "transport" {
					rt = v.Transport(tr)
				}
				var body io.Reader
				if x.body != "" {
					body = strings.NewReader(x.body)
				}
				q, err := http.NewRequestWithContext(t.Context(), x.method, s.URL+x.path, body)
				require.NoError(t, err)
				if x.kind != "" {
					q.Header.Set("Content-Type", x.kind)
				}
				p, err := rt.RoundTrip(q)
				require.NoError(t, err)
				got, err := io.ReadAll(p.Body)
				require.NoError(t, err)
				require.NoError(t, p.Body.Close())
				assert.Equal(t, x.reply, string(got), "the client gets the reply as it was")
				heard.mu.Lock()
				defer heard.mu.Unlock()
				all := strings.Join(heard.list, "\n")
				assert.NotContains(t, strings.ReplaceAll(all, "/name/"+canary, ""), canary, "values are not repeated")
				if x.want == "" {
					assert.Empty(t, all)
					return
				}
				assert.Len(t, heard.list, 1)
				assert.Contains(t, all, x.want)
			})
		}
	}
}

// A body that cannot be read is an error of the request.
func TestTransportWithABrokenBody(t *testing.T) {
	t.Parallel()
	v := daytonatest.Validate(t)
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:1/api/sandbox", io.MultiReader(bytes.NewReader([]byte("{")), broken{}))
	require.NoError(t, err)
	_, err = v.Transport(http.DefaultTransport).RoundTrip(q)
	require.ErrorContains(t, err, "broken")
	assert.Equal(t, map[string]int{"createSandbox": 1}, v.Checked())
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, fmt.Errorf("broken") }

func TestDeviationsSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, daytonatest.Deviations())
	for _, d := range daytonatest.Deviations() {
		assert.NotEmpty(t, d.What)
	}
}

//go:build linux

package daytonatest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

// fuzzFake is a fake without sandboxes, and one request to it.
func fuzzFake(f *testing.F) func(t *testing.T, method, path, kind string, body []byte) (int, http.Header, string) {
	f.Helper()
	s := daytonatest.New(f, daytonatest.Options{})
	tr := &http.Transport{}
	f.Cleanup(tr.CloseIdleConnections)
	return func(t *testing.T, method, path, kind string, body []byte) (int, http.Header, string) {
		t.Helper()
		c := &client{t: t, s: s, http: &http.Client{Transport: tr, Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
		r := c.do(method, strings.TrimSuffix(s.URL(), "/api")+path, body, header("Content-Type", kind))
		if r.err != nil {
			t.Fatalf("no answer: %v", r.err)
		}
		return r.status, r.header, r.text
	}
}

// Whatever is asked for, the answer is one, and no sandbox comes of it that was
// not wanted.
func FuzzCreateRequest(f *testing.F) {
	for _, seed := range []string{`{"buildInfo":{}}`, `{"name":1}`, `{"cpu":1.5}`, `{"cpu":1e300}`, `{"labels":{"a":null}}`, `{"env":[1]}`, `null`, `[]`, `{"volumes":{}}`,
		`{"snapshot":"x"}`, `{"target":"x"}`, `{"name":"\u0000"}`, `{`, `{"buildInfo":{"dockerfileContent":1}}`} {
		f.Add([]byte(seed))
	}
	ask := fuzzFake(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		var in map[string]any
		if json.Unmarshal(body, &in) == nil {
			// Only what has to be refused; making a sandbox for each input is slow.
			if in == nil {
				in = map[string]any{}
			}
			in["target"] = "nowhere"
			body, _ = json.Marshal(in)
		}
		status, _, text := ask(t, "POST", "/api/sandbox", "application/json", body)
		if status != 400 && status != 404 {
			t.Fatalf("status %d for %q", status, body)
		}
		if !json.Valid([]byte(text)) {
			t.Fatalf("the error is no JSON: %q", text)
		}
	})
}

func FuzzListQuery(f *testing.F) {
	for _, seed := range []string{"labels={}", "labels=[", "limit=-1", "cursor=AAAA", "states=a,b&states=", "page=99999999999999999999", "page=99999999999999999", "order=asc&name=%00", "labels=%7B%22a%22%3A1%7D", "limit=1&limit=2"} {
		f.Add(seed)
	}
	ask := fuzzFake(f)
	f.Fuzz(func(t *testing.T, query string) {
		if _, err := url.ParseRequestURI("/x?" + query); err != nil || strings.ContainsAny(query, "# \x7f") || strings.ContainsFunc(query, func(r rune) bool { return r < ' ' }) {
			return
		}
		for _, path := range []string{"/api/sandbox?", "/api/sandbox/paginated?"} {
			status, _, text := ask(t, "GET", path+query, "", nil)
			if status != 200 && status != 400 || !json.Valid([]byte(text)) {
				t.Fatalf("status %d, %q", status, text)
			}
		}
	})
}

func FuzzPath(f *testing.F) {
	for _, seed := range []string{"/api/sandbox/x", "/toolbox", "/toolbox/", "/toolbox//files", "/preview/", "/preview/-", "/preview/99999999999-x", "/api/sandbox/%2F/start", "/", "//", "/api", "/build-logs/x", "/api/sandbox/a/ports/x/preview-url"} {
		f.Add("GET", seed)
		f.Add("POST", seed)
	}
	ask := fuzzFake(f)
	f.Fuzz(func(t *testing.T, method, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || !strings.HasPrefix(path, "/") || u.Host != "" || method == "CONNECT" {
			return
		}
		if _, err := http.NewRequest(method, "http://x"+u.EscapedPath(), nil); err != nil || method == "" || strings.HasPrefix(u.EscapedPath(), "/api/sandbox") && method == "POST" && len(u.EscapedPath()) < 14 {
			return
		}
		if status, _, _ := ask(t, method, u.EscapedPath(), "", nil); status < 200 {
			t.Fatalf("status %d", status)
		}
	})
}

// The validator reads whatever comes by.
func FuzzValidator(f *testing.F) {
	for _, x := range exchanges {
		f.Add(x.method, x.path, x.kind, []byte(x.body), x.status, x.replyKind, []byte(x.reply))
	}
	f.Fuzz(func(t *testing.T, method, path, kind string, body []byte, status int, replyKind string, reply []byte) {
		u, err := url.ParseRequestURI(path)
		if err != nil || status < 200 || status > 599 {
			return
		}
		var heard complaints
		v := daytonatest.Validate(&heard)
		rt := v.Transport(roundTrip(func(r *http.Request) *http.Response {
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {replyKind}}, Body: bodyOf(reply), Request: r}
		}))
		r := &http.Request{Method: method, URL: u, Header: http.Header{"Content-Type": {kind}}, Body: bodyOf(body)}
		p, err := rt.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, p.Body); string(got) != string(reply) {
			t.Fatalf("the reply was changed to %q", got)
		}
	})
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func bodyOf(data []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(data)) }

func readAll(t *testing.T, r io.ReadCloser) []byte {
	t.Helper()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

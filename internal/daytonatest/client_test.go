//go:build linux

package daytonatest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	// What is ending may take longer on a busy machine than goleak waits by itself.
	for end := time.Now().Add(20 * time.Second); code == 0; {
		err := goleak.Find()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, "goleak:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// client calls the fake the plain way.
type client struct {
	t    *testing.T
	s    *daytonatest.Server
	http *http.Client
}

type reply struct {
	status int
	header http.Header
	text   string
	err    error
}

// object decodes the reply.
func (r reply) object(t *testing.T) map[string]any {
	t.Helper()
	var o map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.text), &o), "reply %d %q", r.status, r.text)
	return o
}

func (r reply) message(t *testing.T) string {
	t.Helper()
	m, _ := r.object(t)["message"].(string)
	return m
}

// fake starts a fake whose every exchange is held against the specification.
func fake(t *testing.T, opts daytonatest.Options) *client {
	t.Helper()
	opts.Middleware = daytonatest.Validate(t).Handler
	return plainFake(t, opts)
}

// plainFake starts one without, for tests that misbehave on purpose.
func plainFake(t *testing.T, opts daytonatest.Options) *client {
	t.Helper()
	s := daytonatest.New(t, opts)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &client{t: t, s: s, http: &http.Client{Transport: tr, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

type option func(*http.Request)

func header(k, v string) option { return func(r *http.Request) { r.Header.Set(k, v) } }

// chunked sends the body without a length.
func chunked(r *http.Request) { r.ContentLength = -1 }

func (c *client) do(method, url string, body any, opts ...option) reply {
	c.t.Helper()
	var r io.Reader
	kind := ""
	switch b := body.(type) {
	case nil:
	case string:
		r, kind = strings.NewReader(b), "application/json"
	case []byte:
		r, kind = bytes.NewReader(b), "application/json"
	default:
		data, err := json.Marshal(b)
		require.NoError(c.t, err)
		r, kind = bytes.NewReader(data), "application/json"
	}
	q, err := http.NewRequestWithContext(c.t.Context(), method, url, r)
	require.NoError(c.t, err)
	q.Header.Set("Authorization", "Bearer "+c.s.Key())
	if kind != "" {
		q.Header.Set("Content-Type", kind)
	}
	for _, o := range opts {
		o(q)
	}
	p, err := c.http.Do(q)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = p.Body.Close() }()
	data, err := io.ReadAll(p.Body)
	return reply{status: p.StatusCode, header: p.Header, text: string(data), err: err}
}

// api calls the control API.
func (c *client) api(method, path string, body any, opts ...option) reply {
	c.t.Helper()
	return c.do(method, c.s.URL()+"/"+path, body, opts...)
}

// box calls a sandbox's toolbox.
func (c *client) box(id, method, path string, body any, opts ...option) reply {
	c.t.Helper()
	return c.do(method, c.s.ToolboxURL()+"/"+id+"/"+path, body, opts...)
}

type object map[string]any

// create makes a sandbox and returns its id when it has started.
func (c *client) create(more ...object) string {
	c.t.Helper()
	in := object{"labels": object{"test": "yes"}}
	for _, m := range more {
		maps.Copy(in, m)
	}
	r := c.api("POST", "sandbox", in)
	require.NoError(c.t, r.err)
	require.Equal(c.t, 200, r.status, r.text)
	id, _ := r.object(c.t)["id"].(string)
	require.NotEmpty(c.t, id)
	c.state(id, "started")
	return id
}

// state waits for a state as GET shows it; "" means 404.
func (c *client) state(id, want string) {
	c.t.Helper()
	var got string
	require.Eventually(c.t, func() bool {
		r := c.api("GET", "sandbox/"+id, nil)
		if r.status == 404 {
			got = ""
		} else {
			got, _ = r.object(c.t)["state"].(string)
		}
		return got == want
	}, 30*time.Second, 2*time.Millisecond, "the sandbox must become %q", want)
}

// exec runs a command that must be answered.
func (c *client) exec(id, command string, more ...object) (int, string) {
	c.t.Helper()
	in := object{"command": command}
	for _, m := range more {
		maps.Copy(in, m)
	}
	r := c.box(id, "POST", "process/execute", in)
	require.NoError(c.t, r.err)
	require.Equal(c.t, 200, r.status, r.text)
	o := r.object(c.t)
	code, _ := o["exitCode"].(float64)
	text, _ := o["result"].(string)
	return int(code), text
}

func (c *client) wantError(r reply, status int, part string) {
	c.t.Helper()
	require.NoError(c.t, r.err)
	assert.Equal(c.t, status, r.status, r.text)
	assert.Contains(c.t, r.message(c.t), part)
}

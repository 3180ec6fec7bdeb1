package daytonatest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
)

// group is the part of the service that a route belongs to.
type group int

const (
	control group = iota
	toolbox
	proxied // a port of a sandbox
	public  // build logs, login page: no key
)

// route is one method and path; segments in braces are parameters.
type route struct {
	method   string
	segments []string
	op       Op
	group    group
	handle   func(*call)
	// websocket routes hand their connection over.
	websocket bool
	// streams: the body is not read ahead.
	streams bool
}

func (r route) match(method string, path []string) (map[string]string, bool) {
	if r.method != method || len(r.segments) != len(path) {
		return nil, false
	}
	var params map[string]string
	for i, s := range r.segments {
		if strings.HasPrefix(s, "{") {
			if params == nil {
				params = map[string]string{}
			}
			params[s[1:len(s)-1]] = path[i]
		} else if s != path[i] {
			return nil, false
		}
	}
	return params, true
}

// call is one request on its way through the service.
type call struct {
	s      *Server
	w      *answer
	r      *http.Request
	route  route
	op     Op
	params map[string]string
	body   []byte
	sb     *sandbox // the toolbox's
	log    *Request
}

func (c *call) query(name string) string { return c.r.URL.Query().Get(name) }

// split returns the decoded segments of a path. An escaped slash stays in its
// segment.
func split(u *url.URL) []string {
	parts := strings.Split(strings.Trim(u.EscapedPath(), "/"), "/")
	for i, p := range parts {
		if d, err := url.PathUnescape(p); err == nil {
			parts[i] = d
		}
	}
	return parts
}

// maxBody bounds what is read ahead of a request.
const maxBody = 64 << 20

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	c := &call{s: s, w: &answer{w: w}, r: r}
	path := split(r.URL)
	switch {
	case s.previewHost(r) != "":
		c.route = route{op: OpPreviewRequest, group: proxied, handle: (*call).preview, websocket: true}
		c.params = map[string]string{"target": s.previewHost(r)}
	case path[0] == "preview" && len(path) > 1:
		c.route = route{op: OpPreviewRequest, group: proxied, handle: (*call).preview, websocket: true}
		c.params = map[string]string{"target": path[1]}
	case path[0] == "api":
		c.find(control, path[1:], route{op: OpUnknownControl, group: control, handle: (*call).noRoute})
	case path[0] == "toolbox" && len(path) > 1:
		c.find(toolbox, path[2:], route{op: OpUnknownToolbox, group: toolbox, handle: (*call).noPage})
		if c.params == nil {
			c.params = map[string]string{}
		}
		c.params["sandbox"] = path[1]
	default:
		c.find(public, path, route{op: OpUnknownControl, group: public, handle: (*call).noPage})
	}
	c.op = c.route.op
	c.log = s.rec.begin(s.Now(), c)
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler { //nolint:errorlint // it is compared, as net/http does
				// A bug of the fake must not look like a fault of the network: it
				// ends the process, which a panic of a handler would not.
				go panic(fmt.Sprintf("daytonatest: %s: %v\n%s", c.op, p, debug.Stack()))
			}
			defer panic(http.ErrAbortHandler)
		}
		s.rec.end(c)
		s.logf("%s %s %s -> %d", r.Method, c.op, r.URL.Path, c.w.status)
	}()
	if !c.route.streams && !c.route.websocket {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
		if err != nil || len(body) > maxBody {
			c.fail(http.StatusBadRequest, "request body cannot be read")
			return
		}
		c.body = body
	}
	c.admit()
}

func (c *call) find(g group, path []string, otherwise route) {
	for _, r := range c.s.routes {
		if r.group != g {
			continue
		}
		if params, ok := r.match(c.r.Method, path); ok {
			c.route, c.params = r, params
			return
		}
	}
	c.route = otherwise
}

// admit checks the key, applies what faults are due, and runs the handler.
func (c *call) admit() {
	if c.route.group == control {
		c.w.Header().Set("X-Daytona-Api-Version", "v"+string(c.s.opts.Release)+".0")
		if c.op != OpConfig && !c.hasKey() {
			c.fail(http.StatusUnauthorized, "Unauthorized")
			return
		}
		c.rateHeaders()
	}
	if c.route.group == toolbox {
		remove, ok := c.enterToolbox()
		if !ok {
			return
		}
		defer remove()
	}
	if f, ok := c.s.faults.of(c); ok {
		c.s.rec.note(func() { c.log.Fault = f.Kind })
		c.broken(f)
		return
	}
	c.route.handle(c)
}

// hasKey says whether the request carries the valid API key.
func (c *call) hasKey() bool {
	return c.r.Header.Get("Authorization") == "Bearer "+c.s.key
}

// answer is a response writer that remembers its status and may keep what is
// written.
type answer struct {
	w      http.ResponseWriter
	status int
	kept   bytes.Buffer
	keep   int
}

func (a *answer) Header() http.Header { return a.w.Header() }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.w.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if n := a.keep - a.kept.Len(); n > 0 {
		a.kept.Write(p[:min(n, len(p))])
	}
	return a.w.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.w }

func (a *answer) Flush() { _ = http.NewResponseController(a.w).Flush() }

func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h, ok := a.w.(http.Hijacker)
	if !ok {
		return nil, nil, errors.New("the connection cannot be taken over")
	}
	a.status = http.StatusSwitchingProtocols
	return h.Hijack()
}

// buffered is a response writer that sends nothing.
type buffered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newBuffered() *buffered { return &buffered{header: http.Header{}} }

func (b *buffered) Header() http.Header { return b.header }

func (b *buffered) WriteHeader(status int) {
	if b.status == 0 {
		b.status = status
	}
}

func (b *buffered) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	return b.body.Write(p)
}

// run handles the call without sending the answer, and returns it.
func (c *call) run() *buffered {
	b := newBuffered()
	for k, v := range c.w.Header() {
		b.header[k] = v
	}
	inner := *c
	inner.w = &answer{w: b}
	c.route.handle(&inner)
	b.WriteHeader(http.StatusOK)
	return b
}

// send sends a buffered answer.
func (c *call) send(b *buffered) {
	for k, v := range b.header {
		c.w.Header()[k] = v
	}
	c.w.WriteHeader(b.status)
	_, _ = c.w.Write(b.body.Bytes())
}

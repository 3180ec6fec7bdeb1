package daytonatest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

const timeFormat = "2006-01-02T15:04:05.000Z"

func (c *call) json(status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		data = []byte(`{"statusCode":500,"message":"the answer cannot be encoded"}`)
		status = http.StatusInternalServerError
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(data)
	if c.route.group == control {
		c.s.rec.add(Record{Kind: RecordAnswer, Name: string(c.op), Data: data})
	}
}

// empty answers with a status alone: no body, no content type.
func (c *call) empty(status int) {
	c.w.Header()["Content-Type"] = nil
	c.w.WriteHeader(status)
}

// fail answers with the error shape of the part of the service that was called.
func (c *call) fail(status int, message string) { c.failCode(status, "", message) }

// failCode is fail with the finer code that only the current release sends.
func (c *call) failCode(status int, fine, message string) {
	now := c.s.Now().UTC()
	if c.route.group == control {
		c.json(status, map[string]any{"path": c.r.URL.RequestURI(), "timestamp": now.Format(timeFormat), "statusCode": status,
			"error": http.StatusText(status), "message": message})
		return
	}
	code := codes[status]
	if c.s.current() && fine != "" {
		code = fine
	}
	body := map[string]any{"statusCode": status, "message": message, "timestamp": now.Format(time.RFC3339Nano),
		"path": c.r.URL.Path, "method": c.r.Method}
	if code != "" {
		body["code"] = code
	}
	if c.s.current() {
		body["source"] = "DAYTONA_DAEMON"
	}
	c.json(status, body)
}

// failFile is the error of a file operation: a bare status in v0.190.
func (c *call) failFile(status int, fine, message string) {
	if c.s.current() {
		c.failCode(status, fine, message)
		return
	}
	c.empty(status)
}

// failPTY is the error of a PTY operation, which has a shape of its own in
// v0.190.
func (c *call) failPTY(status int, message string) {
	if c.s.current() {
		c.fail(status, message)
		return
	}
	c.json(status, map[string]any{"error": message})
}

var codes = map[int]string{400: "BAD_REQUEST", 401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND",
	408: "REQUEST_TIMEOUT", 409: "CONFLICT", 410: "GONE", 422: "UNPROCESSABLE_ENTITY", 500: "INTERNAL_SERVER_ERROR"}

func (s *Server) current() bool { return s.opts.Release == ReleaseCurrent }

func (c *call) noRoute() { c.fail(http.StatusNotFound, "Cannot "+c.r.Method+" "+c.r.URL.Path) }

func (c *call) noPage() {
	c.w.Header().Set("Content-Type", "text/plain")
	c.w.WriteHeader(http.StatusNotFound)
	_, _ = c.w.Write([]byte("404 page not found"))
}

// decode reads a JSON body; a broken one is answered in a shape of its own.
func (c *call) decode(v any) bool {
	if err := json.Unmarshal(c.body, v); err != nil {
		if c.route.group == control {
			c.json(http.StatusBadRequest, map[string]any{"message": "Unexpected token in JSON", "error": "Bad Request", "statusCode": 400})
		} else {
			c.failCode(http.StatusBadRequest, "INVALID_REQUEST_BODY", "invalid request body")
		}
		return false
	}
	return true
}

// limitName is the rate limit that an operation counts against.
func limitName(op Op) string {
	switch op {
	case OpCreate:
		return "sandbox-create"
	case OpStart, OpStop, OpPause, OpArchive, OpRecover, OpResize, OpDelete, OpFork, OpSnapshotSandbox, OpBackup:
		return "sandbox-lifecycle"
	}
	return "authenticated"
}

var limitOf = map[string]int{"sandbox-create": 300, "sandbox-lifecycle": 10_000, "authenticated": 10_000}

func (c *call) rateHeaders() {
	name := limitName(c.op)
	c.s.mu.Lock()
	c.s.limits[name]++
	used := c.s.limits[name]
	c.s.mu.Unlock()
	h := c.w.Header()
	h.Set("X-RateLimit-Limit-"+name, strconv.Itoa(limitOf[name]))
	h.Set("X-RateLimit-Remaining-"+name, strconv.Itoa(max(limitOf[name]-used, 0)))
	h.Set("X-RateLimit-Reset-"+name, "60")
}

package daytonatest

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// broken answers a call the way a fault wants it.
func (c *call) broken(f Fault) {
	switch f.Kind {
	case Unauthorized:
		c.fail(http.StatusUnauthorized, "Unauthorized")
	case Forbidden:
		c.fail(http.StatusForbidden, "Forbidden resource")
	case RateLimited:
		c.rateLimited(f)
	case Conflict:
		c.fail(http.StatusConflict, "Sandbox state change in progress")
	case ServerError:
		c.fail(statusOr(f, http.StatusInternalServerError), "Internal server error")
	case ServerErrorAfter:
		c.do()
		c.fail(statusOr(f, http.StatusInternalServerError), "Internal server error")
	case BadGateway, DaemonDead:
		c.empty(http.StatusBadGateway)
	case BadGatewayAfter:
		c.do()
		c.empty(http.StatusBadGateway)
	case HTMLError:
		c.w.Header().Set("Content-Type", "text/html")
		c.w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = c.w.Write([]byte("<html><head><title>503 Service Temporarily Unavailable</title></head></html>\n"))
	case Slow:
		if c.pause(f.delay(time.Second)) {
			c.route.handle(c)
		}
	case Hang:
		c.drain()
		c.pause(forever)
		c.abort()
	case HangAfter:
		c.do()
		c.pause(forever)
		c.abort()
	case Drop:
		c.drain()
		c.abort()
	case DropAfter:
		c.do()
		c.abort()
	case Truncate:
		c.truncate()
	case Garbage:
		c.do()
		c.w.Header().Set("Content-Type", "application/json")
		_, _ = c.w.Write([]byte(`{"id":"x", "state": [1,` + "\xff\x00"))
	case Oversize:
		c.oversize()
	case Redirect:
		c.w.Header().Set("Location", f.Location)
		c.empty(http.StatusTemporaryRedirect)
	case Replay:
		c.replay()
	case NoContainer:
		c.noContainer()
	case ContainerLost:
		c.fail(http.StatusNotFound, "not found: sandbox container not found: "+c.params["sandbox"])
	}
}

func statusOr(f Fault, otherwise int) int {
	if f.Status != 0 {
		return f.Status
	}
	return otherwise
}

// do runs the operation and throws its answer away. A websocket cannot be
// answered to nobody: it is not run.
func (c *call) do() *buffered {
	if c.route.websocket {
		return nil
	}
	return c.run()
}

// drain reads what is left of the request.
func (c *call) drain() { _, _ = io.Copy(io.Discard, io.LimitReader(c.r.Body, maxBody)) }

// pause waits, and returns false when the client went away, the fault was healed
// or the server closed meanwhile.
func (c *call) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.s.faults.healing():
	case <-c.r.Context().Done():
	case <-c.s.done:
	}
	return false
}

// abort resets the connection without an answer.
func (c *call) abort() {
	if conn, ok := c.r.Context().Value(connKey{}).(net.Conn); ok {
		reset(conn)
	}
	panic(http.ErrAbortHandler)
}

func (c *call) rateLimited(f Fault) {
	name := f.Text
	if name == "" {
		name = limitName(c.op)
	}
	header := "Retry-After-" + name
	if name == "failed-auth" {
		header = "Retry-After" // the only limit that uses the plain name
	}
	seconds := int((f.delay(time.Second) + time.Second - 1) / time.Second)
	c.w.Header().Set(header, strconv.Itoa(seconds))
	c.fail(http.StatusTooManyRequests, "ThrottlerException: Too Many Requests")
}

func (c *call) truncate() {
	b := c.do()
	if b == nil {
		c.abort()
	}
	for k, v := range b.header {
		c.w.Header()[k] = v
	}
	// One byte at least is missing, also from an empty answer.
	c.w.Header().Set("Content-Length", strconv.Itoa(max(b.body.Len(), 1)))
	c.w.WriteHeader(b.status)
	_, _ = c.w.Write(b.body.Bytes()[:b.body.Len()/2])
	c.w.Flush()
	panic(http.ErrAbortHandler)
}

func (c *call) oversize() {
	b := c.do()
	if b == nil {
		c.abort()
	}
	b.header.Del("Content-Length")
	for k, v := range b.header {
		c.w.Header()[k] = v
	}
	c.w.WriteHeader(b.status)
	blank := bytes.Repeat([]byte(" "), 1<<20)
	for range 64 {
		if _, err := c.w.Write(blank); err != nil {
			return
		}
	}
	_, _ = c.w.Write(b.body.Bytes())
}

// replay is the proxy's retry after its connection to the toolbox was lost.
func (c *call) replay() {
	if b := c.do(); b == nil {
		c.abort()
	}
	if c.r.ContentLength < 0 || c.r.ContentLength > 256<<10 {
		c.empty(http.StatusBadGateway)
		return
	}
	c.send(c.run())
}

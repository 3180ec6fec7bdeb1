package daytonatest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// signedURL is one signed preview URL.
type signedURL struct {
	port    int
	expires time.Time
}

// cookieAge is how long a signed URL's cookie lives, also past the URL's end.
const cookieAge = time.Hour

// previewTarget makes the URL of "PORT-TOKEN".
func (s *Server) previewTarget(target string) string {
	if s.opts.HostPreviews {
		_, port, _ := net.SplitHostPort(s.addr)
		return "http://" + target + "." + previewDomain + ":" + port
	}
	return "http://" + s.addr + "/preview/" + target
}

// previewHost returns the PORT-TOKEN of a request to a preview host, or "".
func (s *Server) previewHost(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	target, ok := strings.CutSuffix(host, "."+previewDomain)
	if !ok {
		return ""
	}
	return target
}

func (c *call) port() (int, bool) {
	n, err := strconv.Atoi(c.params["port"])
	if err != nil || n < 1 || n > 65535 {
		c.fail(http.StatusBadRequest, "port must be a number between 1 and 65535")
		return 0, false
	}
	return n, true
}

func (c *call) previewURL() {
	port, ok := c.port()
	if !ok {
		return
	}
	c.with(func(sb *sandbox) (int, any) {
		if sb.token == "" {
			sb.token = randomHex(16)
		}
		return http.StatusOK, map[string]any{"sandboxId": sb.id, "url": c.s.previewTarget(fmt.Sprintf("%d-%s", port, sb.id)), "token": sb.token}
	})
}

func (c *call) signedPreviewURL() {
	port, ok := c.port()
	if !ok {
		return
	}
	seconds := 60
	if text := c.query("expiresInSeconds"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 86400 {
			c.fail(http.StatusBadRequest, "expiresInSeconds must be between 1 and 86400")
			return
		}
		seconds = n
	}
	c.with(func(sb *sandbox) (int, any) {
		token := strings.ToLower(randomHex(12))
		sb.signed[token] = &signedURL{port: port, expires: c.s.Now().Add(time.Duration(seconds) * time.Second)}
		return http.StatusOK, map[string]any{"sandboxId": sb.id, "port": port, "token": token, "url": c.s.previewTarget(fmt.Sprintf("%d-%s", port, token))}
	})
}

func (c *call) expirePreview() {
	c.with(func(sb *sandbox) (int, any) {
		u, ok := sb.signed[c.params["token"]]
		if !ok {
			return http.StatusNotFound, "Signed preview URL not found"
		}
		u.expires = c.s.Now()
		return http.StatusOK, nil
	})
}

func (c *call) toolboxURL() {
	c.with(func(sb *sandbox) (int, any) {
		link := c.s.ToolboxURL()
		if f, ok := c.s.faults.is(ForeignToolboxURL, c.op, sb); ok {
			link = f.Location
		}
		return http.StatusOK, map[string]any{"url": link}
	})
}

func (c *call) buildLogsURL() {
	c.with(func(sb *sandbox) (int, any) {
		return http.StatusOK, map[string]any{"url": "http://" + c.s.addr + "/build-logs/" + sb.id}
	})
}

// buildLogs sends the log of a build, and with follow its lines as they come.
func (c *call) buildLogs() {
	s := c.s
	var sb *sandbox
	s.mu.Lock()
	for _, x := range s.sandboxes {
		if x.id == c.params["token"] {
			sb = x
		}
	}
	s.mu.Unlock()
	if sb == nil {
		c.noPage()
		return
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	c.w.WriteHeader(http.StatusOK)
	sent := 0
	for {
		var lines []string
		over := c.query("follow") != "true"
		s.wait(c.r.Context(), time.Hour, func() bool {
			lines = append([]string(nil), sb.buildLog[sent:]...)
			over = over || sb.destroyed || sb.state != pendingBuild && sb.state != building
			return len(lines) > 0 || over
		})
		for _, l := range lines {
			if _, err := io.WriteString(c.w, l+"\n"); err != nil {
				return
			}
		}
		sent += len(lines)
		c.w.Flush()
		if over || len(lines) == 0 {
			return
		}
	}
}

// preview is a request to a port of a sandbox.
func (c *call) preview() {
	s := c.s
	portText, who, ok := strings.Cut(c.params["target"], "-")
	port, err := strconv.Atoi(portText)
	if !ok || err != nil {
		c.noPage()
		return
	}
	sb, cookie := c.admitPreview(port, who)
	if sb == nil {
		c.w.Header().Set("Location", "http://"+s.addr+"/login")
		c.empty(http.StatusTemporaryRedirect)
		return
	}
	c.sb = sb
	c.s.rec.note(func() { c.log.Sandbox = sb.id })
	d := sb.running()
	if d == nil {
		c.noContainer()
		return
	}
	done := s.use(sb, c.r)
	defer done()
	if cookie != nil {
		http.SetCookie(c.w, cookie)
	}
	if port == 2280 { // the toolbox itself
		c.toolboxThroughPreview(sb)
		return
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "127.0.0.1:"+portText
			if !s.opts.HostPreviews || s.previewHost(c.r) == "" {
				r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/preview/"+c.params["target"])
				r.Out.URL.RawPath = ""
			}
			q := r.Out.URL.Query()
			q.Del("DAYTONA_SANDBOX_AUTH_KEY")
			r.Out.URL.RawQuery = q.Encode()
			r.Out.Header.Del("Authorization")
			r.Out.Header.Del("X-Daytona-Preview-Token")
		},
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
			return d.jail.dial(port)
		}},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ErrorLog:     nil,
	}
	proxy.ServeHTTP(c.w, c.r)
}

// toolboxThroughPreview serves the toolbox on its own port: who may open one
// port of the sandbox may run commands in it.
func (c *call) toolboxThroughPreview(sb *sandbox) {
	p := c.r.URL.Path
	if c.s.previewHost(c.r) == "" {
		p = strings.TrimPrefix(p, "/preview/"+c.params["target"])
	}
	c.r.URL.Path, c.r.URL.RawPath = p, ""
	c.find(toolbox, split(&url.URL{Path: p}), route{op: OpUnknownToolbox, group: toolbox, handle: (*call).noPage})
	if !c.route.streams && !c.route.websocket {
		c.body, _ = io.ReadAll(io.LimitReader(c.r.Body, maxBody))
	}
	if c.params == nil {
		c.params = map[string]string{}
	}
	c.params["sandbox"] = sb.id
	c.op = c.route.op
	c.route.handle(c)
}

// admitPreview finds the sandbox that a preview request may reach, and the cookie
// to set.
func (c *call) admitPreview(port int, who string) (*sandbox, *http.Cookie) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	name := "daytona-sandbox-auth"
	for _, sb := range s.sandboxes {
		if sb.destroyed {
			continue
		}
		if u, ok := sb.signed[who]; ok {
			if ck, err := c.r.Cookie(name); err == nil && sb.cookies[ck.Value].After(now) {
				return sb, nil
			}
			if u.port == port && now.Before(u.expires) {
				return sb, sb.newCookie(name, now)
			}
			return nil, nil
		}
		if sb.id != who {
			continue
		}
		if ck, err := c.r.Cookie(name); err == nil && sb.cookies[ck.Value].After(now) {
			return sb, nil // whatever the port
		}
		given := []string{c.r.Header.Get("X-Daytona-Preview-Token"), c.query("DAYTONA_SANDBOX_AUTH_KEY"),
			strings.TrimPrefix(c.r.Header.Get("Authorization"), "Bearer ")}
		for _, g := range given {
			if g != "" && (g == sb.token || g == s.key) {
				return sb, nil
			}
		}
		if sb.public && port != 2280 && port != 22222 && port != 33333 {
			return sb, nil
		}
	}
	return nil, nil
}

// newCookie makes a cookie that opens every port for an hour; s.mu is held.
func (sb *sandbox) newCookie(name string, now time.Time) *http.Cookie {
	value := randomHex(16)
	sb.cookies[value] = now.Add(cookieAge)
	//nolint:gosec // G124: the fake speaks plain HTTP on loopback, where a Secure cookie would be lost
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(cookieAge / time.Second), HttpOnly: true}
}

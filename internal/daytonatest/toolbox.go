package daytonatest

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// daemon is what runs inside a started sandbox; it dies with it.
type daemon struct {
	sb   *sandbox
	jail *jail
	gone chan struct{} // closed when the sandbox stops

	mu       sync.Mutex
	env      map[string]string
	sessions []*session
	ptys     []*pty
}

// newDaemon is called with s.mu held and sb.jail set.
func newDaemon(sb *sandbox) *daemon {
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": sb.jail.home, "USER": sb.jail.user,
		"LANG": "C.UTF-8", "DAYTONA_SANDBOX_ID": sb.id, "DAYTONA_SANDBOX_SNAPSHOT": sb.snapshot, "DAYTONA_SANDBOX_USER": sb.user,
	}
	maps.Copy(env, sb.bakedEnv)
	maps.Copy(env, sb.env)
	return &daemon{sb: sb, jail: sb.jail, env: env, gone: make(chan struct{})}
}

// ended releases what waits for the daemon, after its processes were killed.
func (d *daemon) ended() {
	close(d.gone)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sessions {
		s.closeInputs()
	}
}

// environ is the daemon's own environment with more on top.
func (d *daemon) environ(more map[string]string) []string {
	d.mu.Lock()
	all := maps.Clone(d.env)
	d.mu.Unlock()
	maps.Copy(all, more)
	out := make([]string, 0, len(all))
	for k, v := range all {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

// shell is the first zsh or bash of the sandbox's /etc/shells, else sh.
func (d *daemon) shell() string {
	data, _ := os.ReadFile(d.jail.root() + "/etc/shells")
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if b := path.Base(line); path.IsAbs(line) && (b == "zsh" || b == "bash") {
			if _, err := os.Stat(d.jail.root() + line); err == nil {
				return line
			}
		}
	}
	return "/bin/sh"
}

// absolute makes a path of a request absolute: relative ones start at the work
// directory, and "~" is a name like any other.
func (d *daemon) absolute(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(homeDir, name)
	}
	return path.Clean(name)
}

// running returns the sandbox's daemon, or nil.
func (sb *sandbox) running() *daemon {
	sb.s.mu.Lock()
	defer sb.s.mu.Unlock()
	if sb.state != started {
		return nil
	}
	return sb.daemon
}

// enterToolbox is the proxy: it finds the sandbox, checks the key, and answers by
// itself when the sandbox does not run. It returns what to do when the request is
// over.
func (c *call) enterToolbox() (func(), bool) {
	s := c.s
	s.mu.Lock()
	var sb *sandbox
	for _, x := range s.sandboxes {
		if x.id == c.params["sandbox"] { // by id only
			sb = x
		}
	}
	token := ""
	if sb != nil {
		token = sb.token
	}
	s.mu.Unlock()
	bearer := strings.TrimPrefix(c.r.Header.Get("Authorization"), "Bearer ")
	// A standard preview token of any port opens the toolbox.
	given := []string{bearer, c.r.Header.Get("X-Daytona-Preview-Token"), c.query("DAYTONA_SANDBOX_AUTH_KEY")}
	if sb == nil || !c.hasKey() && (token == "" || !slices.Contains(given, token)) {
		c.unauthorized()
		return nil, false
	}
	c.sb = sb
	if sb.deleted() {
		c.fail(http.StatusNotFound, "not found: sandbox container not found: "+sb.id)
		return nil, false
	}
	if sb.running() == nil {
		c.noContainer()
		return nil, false
	}
	done := s.use(sb, c.r)
	c.daemonLog(sb)
	return done, true
}

// use counts a request as activity of its sandbox, and makes its connection one
// that can be cut.
func (s *Server) use(sb *sandbox, r *http.Request) func() {
	remove := func() {}
	if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		remove = s.conns.add(conn, sb.id)
	}
	quiet := r.Header.Get("X-Daytona-Skip-Last-Activity-Update") == "true"
	count := func(by int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !quiet {
			sb.activity = s.Now()
			sb.inflight += by
		}
	}
	count(1)
	return func() {
		count(-1)
		remove()
	}
}

func (sb *sandbox) deleted() bool {
	sb.s.mu.Lock()
	defer sb.s.mu.Unlock()
	return sb.destroyed || sb.state == archived || sb.state == destroying
}

func (c *call) unauthorized() {
	c.json(http.StatusUnauthorized, map[string]any{"statusCode": 401, "message": "unauthorized: invalid credentials", "code": "UNAUTHORIZED",
		"timestamp": c.s.Now().UTC().Format(time.RFC3339Nano), "path": c.r.URL.Path, "method": c.r.Method})
}

func (c *call) noContainer() {
	c.fail(http.StatusBadRequest, "bad request: failed to resolve container IP after 3 attempts: no IP address found. Is the Sandbox started?")
}

// daemonLog writes the request line into the sandbox, query included, as the
// daemon does.
func (c *call) daemonLog(sb *sandbox) {
	d := sb.running()
	if d == nil {
		return
	}
	f, err := os.OpenFile(d.jail.root()+daemonLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	_, p, _ := strings.Cut(strings.TrimPrefix(c.r.URL.RequestURI(), "/toolbox/"), "/")
	_, _ = fmt.Fprintf(f, "time=%q level=info msg=\"API REQUEST\" method=%s URI=%q\n", c.s.Now().UTC().Format(time.RFC3339), c.r.Method, "/"+p)
	_ = f.Close()
}

// daemon returns the daemon that serves the call. When the sandbox stopped
// meanwhile, the connection to it is lost: an empty 502.
func (c *call) daemon() *daemon {
	d := c.sb.running()
	if d == nil {
		c.empty(http.StatusBadGateway)
	}
	return d
}

func (c *call) workDir() {
	if c.daemon() != nil {
		c.json(http.StatusOK, map[string]any{"dir": homeDir})
	}
}

func (c *call) homeDir() {
	if d := c.daemon(); d != nil {
		c.json(http.StatusOK, map[string]any{"dir": d.jail.home})
	}
}

func (c *call) version() {
	c.s.mu.Lock()
	v, _ := c.sb.daemonVersion.(string)
	c.s.mu.Unlock()
	c.json(http.StatusOK, map[string]any{"version": v})
}

func (c *call) ports() {
	d := c.daemon()
	if d == nil {
		return
	}
	ports := []int{}
	for _, p := range d.jail.listening() {
		if p >= 3000 && p <= 9999 {
			ports = append(ports, p)
		}
	}
	slices.Sort(ports)
	c.json(http.StatusOK, map[string]any{"ports": slices.Compact(ports)})
}

func (c *call) portInUse() {
	d := c.daemon()
	if d == nil {
		return
	}
	n, err := strconv.Atoi(c.params["port"])
	if err != nil || n < 3000 || n > 9999 {
		c.fail(http.StatusBadRequest, "port out of range: must be between 3000 and 9999")
		return
	}
	c.json(http.StatusOK, map[string]any{"isInUse": slices.Contains(d.jail.listening(), n)})
}

// updateEnv changes the daemon's environment for later processes.
func (c *call) updateEnv() {
	var in struct {
		Set              map[string]string `json:"set"`
		Unset            []string          `json:"unset"`
		UnsetValuePrefix string            `json:"unsetValuePrefix"`
	}
	d := c.daemon()
	if d == nil || !c.decode(&in) {
		return
	}
	d.mu.Lock()
	for _, k := range in.Unset {
		delete(d.env, k)
	}
	if in.UnsetValuePrefix != "" {
		maps.DeleteFunc(d.env, func(_, v string) bool { return strings.HasPrefix(v, in.UnsetValuePrefix) })
	}
	maps.Copy(d.env, in.Set)
	out := map[string]string{"message": "environment updated"}
	d.mu.Unlock()
	c.json(http.StatusOK, out)
}

// record keeps sessions and PTYs as the daemon's own lists show them.
func (d *daemon) record() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sessions {
		d.sb.s.rec.addJSON(RecordSession, d.sb.id, s.id, s.objectLocked())
	}
	for _, p := range d.ptys {
		d.sb.s.rec.addJSON(RecordPTY, d.sb.id, p.id, p.object())
	}
}

package daytonatest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// TB is the part of testing.TB that the fake needs.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Server is a running fake. All methods are safe for concurrent use.
type Server struct {
	opts   Options
	key    string
	org    string
	dir    string // holds the sandboxes' files
	addr   string
	http   *http.Server
	routes []route
	clock  clock
	faults faultTable
	rec    recorder
	conns  connTable
	done   chan struct{} // closed by Close
	jobs   jobs

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at each change of a sandbox
	sandboxes []*sandbox    // destroyed ones included
	snapshots []*snapshot
	history   []listed
	flap      int // counts lists under FlappingList
	limits    map[string]int
}

// New starts a fake for a test and closes it at the test's end.
func New(tb TB, opts Options) *Server {
	tb.Helper()
	s, err := Start(opts)
	if err != nil {
		tb.Fatalf("daytonatest: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("daytonatest: %v", err)
		}
	})
	return s
}

// Start starts a fake on a loopback port. The caller must Close it.
func Start(opts Options) (*Server, error) {
	if err := jailAvailable(); err != nil {
		return nil, err
	}
	if opts.Key == "" {
		opts.Key = "dtn_" + randomHex(32)
	}
	if opts.Release == "" {
		opts.Release = ReleaseMeasured
	}
	if opts.Release != ReleaseMeasured && opts.Release != ReleaseCurrent {
		return nil, fmt.Errorf("there is no release %q; known are %q and %q", opts.Release, ReleaseMeasured, ReleaseCurrent)
	}
	if opts.DaemonVersion == "" {
		opts.DaemonVersion = string(opts.Release) + ".0"
	}
	if opts.User == "" {
		opts.User = "root"
	}
	if opts.Address == "" {
		opts.Address = "127.0.0.1:0"
	}
	opts.Timing = opts.Timing.withDefaults()
	dir, err := os.MkdirTemp("", "daytona-fake-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for sandboxes: %w", err)
	}
	l, err := net.Listen("tcp", opts.Address)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen: %w", err), os.RemoveAll(dir))
	}
	s := &Server{opts: opts, key: opts.Key, org: randomUUID(), dir: dir, addr: l.Addr().String(),
		done: make(chan struct{}), changed: make(chan struct{}), limits: map[string]int{}}
	s.faults.s = s
	s.rec.keepBodies = opts.KeepBodies
	s.rec.key = opts.Key
	s.routes = s.allRoutes()
	s.addSnapshots()
	s.clock.start(s)
	var handler http.Handler = http.HandlerFunc(s.serve)
	if opts.Middleware != nil {
		handler = opts.Middleware(handler)
	}
	s.http = &http.Server{
		Handler:           handler,
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(discard{}, "", 0),
	}
	s.jobs.Go(func() { _ = s.http.Serve(l) })
	return s, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// URL is the control API's base, ending in /api.
func (s *Server) URL() string { return "http://" + s.addr + "/api" }

// Key is the valid API key.
func (s *Server) Key() string { return s.key }

// Organization is the id of the key's organization.
func (s *Server) Organization() string { return s.org }

// ToolboxURL is what sandboxes show as toolboxProxyUrl.
func (s *Server) ToolboxURL() string { return "http://" + s.addr + "/toolbox" }

// HTTPClient returns a client that finds *.preview.localhost. The caller closes
// its idle connections.
func (s *Server) HTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if host, _, err := net.SplitHostPort(addr); err == nil && strings.HasSuffix(host, previewDomain) {
				addr = s.addr
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}}
}

// Close kills every sandbox's processes, removes its files and ends every
// connection. It reports what could not be cleaned up. Closing twice is success.
func (s *Server) Close() error {
	s.mu.Lock()
	select {
	case <-s.done:
		s.mu.Unlock()
		return nil
	default:
	}
	close(s.done)
	all := slices.Clone(s.sandboxes)
	s.mu.Unlock()
	s.faults.heal()
	s.clock.stop()
	s.conns.cut("")
	errs := []error{s.http.Close()}
	for _, sb := range all {
		sb.life.Lock()
		errs = append(errs, sb.halt())
		sb.life.Unlock()
	}
	s.conns.cut("")
	s.jobs.Wait()
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// Now is the service's clock.
func (s *Server) Now() time.Time { return s.clock.now() }

// Advance moves the service's clock on and does, in order, what then becomes
// due: state changes, automatic stop, archive and delete, lifetimes.
func (s *Server) Advance(d time.Duration) { s.clock.advance(d) }

// notify wakes who waits for a change; s.mu is held.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
	s.remember()
}

// wait blocks until ok, which is called with s.mu held, is true; it returns
// false when ctx or the server ends first, or limit (real time) is over.
func (s *Server) wait(ctx context.Context, limit time.Duration, ok func() bool) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		s.mu.Lock()
		good, changed := ok(), s.changed
		s.mu.Unlock()
		if good {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		case <-s.done:
			return false
		case <-t.C:
			return false
		}
	}
}

// closing says that the server is being closed.
func (s *Server) closing() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *Server) logf(format string, args ...any) {
	if s.opts.Logf != nil {
		s.opts.Logf(format, args...)
	}
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func randomUUID() string {
	h := randomHex(16)
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:]
}

// connKey finds a request's connection in its context.
type connKey struct{}

// connTable knows the connections that are open to each sandbox's toolbox.
type connTable struct {
	mu   sync.Mutex
	open map[net.Conn]string
}

func (t *connTable) add(c net.Conn, sandbox string) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[net.Conn]string{}
	}
	t.open[c] = sandbox
	return func() {
		t.mu.Lock()
		delete(t.open, c)
		t.mu.Unlock()
	}
}

func (t *connTable) cut(sandbox string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for c, of := range t.open {
		if sandbox == "" || of == sandbox {
			reset(c)
			delete(t.open, c)
			n++
		}
	}
	return n
}

// reset closes a connection with RST.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// CutConnections resets every connection with a request under way to the
// toolbox of a sandbox (id or name; "" means all) and says how many there were.
// Commands go on.
func (s *Server) CutConnections(sandbox string) int {
	if sandbox != "" {
		s.mu.Lock()
		sb := s.find(sandbox)
		s.mu.Unlock()
		if sb == nil {
			return 0
		}
		sandbox = sb.id
	}
	return s.conns.cut(sandbox)
}

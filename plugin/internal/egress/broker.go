// Package egress is the only way a plugin reaches the network. It renders the
// requests of approved routes, puts environment, credentials and captures where
// the approved manifest says, and gives the plugin what of the answer it may
// see. Output and file content go from here to the caller, past the plugin.
//
// Three scopes nest: a [Broker] for one loaded plugin, a [Session] for one
// sandbox, a [Call] for one operation. Values enter with a Session or a Call and
// leave in request bodies and headers only.
package egress

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/secret"
)

// Denied says that the approved manifest, or a rule of the broker, forbids what
// a plugin asked for.
type Denied struct {
	Route string
	Rule  string
}

// Error names the route and the rule.
func (e *Denied) Error() string {
	if e.Route == "" {
		return "denied: " + e.Rule
	}
	return "denied: route " + e.Route + ": " + e.Rule
}

// Failure is an expected failure: an errno for the plugin, and for the host's
// log what happened.
type Failure struct {
	Errno  abi.Errno
	Detail string // never holds a value, a body or an address with a query
}

// Error returns the errno's name and the detail.
func (e *Failure) Error() string { return e.Errno.Error() + ": " + e.Detail }

// Unwrap returns the errno.
func (e *Failure) Unwrap() error { return e.Errno }

func failure(no abi.Errno, detail string) *Failure { return &Failure{Errno: no, Detail: detail} }

// OriginSetting is what the operator says about one origin.
type OriginSetting struct {
	// URL sets a configured origin, or replaces a fixed one (a vendor's own
	// region, a fake in tests).
	URL string
	// AllowPrivate permits loopback, private and link-local addresses, and plain
	// HTTP to them.
	AllowPrivate bool
}

// Config for a Broker.
type Config struct {
	Manifest    *spec.Manifest
	Credentials map[string]secret.Value
	Settings    map[string]string // config values by name, already checked
	Origins     map[string]OriginSetting
	// Resolve looks up a host name; nil is the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// RootCAs for tests; nil is the system's.
	TLS *tls.Config
	// Captured, when set, is told about each captured token, for conformance
	// tests.
	Captured func(name string, token secret.Value)
	// Shown is told what of each answer the plugin may read, whether it does or
	// not, for conformance tests.
	Shown func(what string, data []byte)
}

// Broker serves one loaded plugin. It is safe for concurrent use.
type Broker struct {
	m        *spec.Manifest
	creds    map[string]secret.Value
	settings map[string]string
	origins  map[string]OriginSetting
	dialer   *dialer
	client   *http.Client
	captured func(name string, token secret.Value)
	shown    func(what string, data []byte)

	mu       sync.Mutex
	captures map[string]secret.Value // of scope plugin
	handles  map[string]*handle      // every live environment handle
	claimed  map[string]*Session     // sandbox ids in use, by session
	probes   int                     // see Call.CheckGuest

	guard   *guard
	omitted []string // pointers at which vendors echo an environment
}

// New returns a Broker. The config's maps are not copied and must not change.
func New(c Config) (*Broker, error) {
	b := &Broker{
		m: c.Manifest, creds: c.Credentials, settings: c.Settings, origins: c.Origins, captured: c.Captured, shown: c.Shown,
		captures: map[string]secret.Value{}, handles: map[string]*handle{}, claimed: map[string]*Session{},
		guard: newGuard(), omitted: environmentPointers(c.Manifest),
	}
	for name, v := range c.Credentials {
		b.guard.add(name, v)
	}
	for name := range c.Origins {
		if _, ok := c.Manifest.Origins[name]; !ok {
			return nil, &Denied{Rule: "the configuration sets an origin the plugin does not declare: " + name}
		}
	}
	for name, o := range c.Manifest.Origins {
		set := c.Origins[name]
		if o.Configured && set.URL == "" {
			return nil, &Denied{Rule: "origin " + name + " must be configured: set origins." + name + ".url"}
		}
		if set.URL != "" {
			if err := checkConfiguredURL(set); err != nil {
				return nil, &Denied{Rule: "origins." + name + ".url " + err.Error()}
			}
		}
	}
	for _, cr := range c.Manifest.Credentials {
		if _, ok := c.Credentials[cr.Name]; !ok {
			return nil, &Denied{Rule: "credential " + cr.Name + " has no source: set credentials." + cr.Name}
		}
	}
	b.dialer = &dialer{resolve: c.Resolve, pinned: map[string][]netip.Addr{}}
	if b.dialer.resolve == nil {
		b.dialer.resolve = systemResolve
	}
	tlsConfig := c.TLS
	if tlsConfig == nil {
		tlsConfig = &tls.Config{}
	}
	tlsConfig = tlsConfig.Clone()
	tlsConfig.MinVersion = tls.VersionTLS12
	b.client = &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // never from the environment
			DialContext:            b.dialer.dial,
			TLSClientConfig:        tlsConfig,
			DisableCompression:     true,
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    8,
			IdleConnTimeout:        30 * time.Second,
			TLSHandshakeTimeout:    10 * time.Second,
			ResponseHeaderTimeout:  0, // the call's context bounds it
			MaxResponseHeaderBytes: 64 << 10,
		},
		// A redirect is the plugin's to see, never ours to follow: it would carry
		// credentials to an address nobody approved.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return b, nil
}

// Close drops idle connections.
func (b *Broker) Close() { b.client.CloseIdleConnections() }

func systemResolve(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

func checkConfiguredURL(s OriginSetting) error {
	u, err := url.Parse(strings.Replace(s.URL, "{sandbox}", "sandbox0", 1))
	switch {
	case err != nil || u.Host == "":
		return failure(abi.ErrnoInvalid, "is not an absolute URL")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return failure(abi.ErrnoInvalid, "must not hold user information, a query or a fragment")
	case u.Scheme == "http" && !s.AllowPrivate:
		return failure(abi.ErrnoInvalid, `must start with "https://", unless allowPrivate is set`)
	case u.Scheme != "https" && u.Scheme != "http":
		return failure(abi.ErrnoInvalid, `must start with "https://"`)
	}
	return nil
}

// capture returns a captured token.
func (b *Broker) capture(s *Session, name string) (secret.Value, bool) {
	if b.m.Captures[name].Scope == "plugin" {
		b.mu.Lock()
		defer b.mu.Unlock()
		v, ok := b.captures[name]
		return v, ok
	}
	if s == nil {
		return secret.Value{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.captures[name]
	return v, ok
}

func (b *Broker) keepCapture(s *Session, name string, v secret.Value) {
	if b.captured != nil {
		b.captured(name, v)
	}
	if b.m.Captures[name].Scope == "plugin" {
		b.mu.Lock()
		defer b.mu.Unlock()
		// The one it replaces stays in the guard: a vendor may accept it yet.
		if old, ok := b.captures[name]; !ok || !old.Equal(v) {
			b.guard.add(name, v)
		}
		b.captures[name] = v
		return
	}
	if s != nil {
		s.arm(name, v)
		s.mu.Lock()
		s.captures[name] = v
		s.mu.Unlock()
	}
}

func (b *Broker) dropCapture(s *Session, name string) {
	if b.m.Captures[name].Scope == "plugin" {
		b.mu.Lock()
		delete(b.captures, name)
		b.mu.Unlock()
		return
	}
	if s != nil {
		s.mu.Lock()
		delete(s.captures, name)
		s.mu.Unlock()
	}
}

package daytona

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

const (
	maxReply = 8 << 20 // bytes of an answer that is kept
	maxText  = 300     // bytes of the service's text in an error
)

// client speaks to the service. It is safe for concurrent use.
type client struct {
	http    *http.Client
	api     *url.URL // without a trailing slash
	toolbox *url.URL // nil: only addresses that belong to api
	key     secret.Value
	org     string
	timeout time.Duration
}

func newClient(o Options) (*client, error) {
	c := &client{key: o.APIKey, org: o.OrganizationID, timeout: o.CallTimeout}
	var err error
	if c.api, err = endpoint(o.APIURL, SettingAPIURL); err != nil {
		return nil, err
	}
	if o.ToolboxURL != "" {
		if c.toolbox, err = endpoint(o.ToolboxURL, SettingToolboxURL); err != nil {
			return nil, err
		}
	}
	if o.APIKey.Len() == 0 {
		return nil, problem(provider.InvalidArgument, "new", "", "there is no API key").remedy("set " + SettingAPIKey + " to the name of a source that holds one")
	}
	for _, b := range o.APIKey.Reveal() {
		if b <= ' ' || b >= 0x7f {
			return nil, problem(provider.InvalidArgument, "new", "", "the API key holds a character that no key has").remedy("correct the source that " + SettingAPIKey + " names; a trailing newline is a common cause")
		}
	}
	if strings.ContainsFunc(o.OrganizationID, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, problem(provider.InvalidArgument, "new", "", "the organization id is malformed").remedy("correct daytona.organizationId")
	}
	transport := o.Transport
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 32
		transport = t
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// endpoint reads an address of the configuration.
func endpoint(text, setting string) (*url.URL, error) {
	bad := func(message string) error {
		// The address is not repeated: it could hold a password.
		return problem(provider.InvalidArgument, "new", "", setting+" "+message).remedy("set it to something like " + DefaultAPIURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return nil, bad("is no address")
	case u.User != nil:
		return nil, bad("holds a user or password, which do not belong there")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, bad("holds a query or fragment")
	case u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
		return nil, bad("must begin with https: the API key would travel in clear")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// belongs reports whether an address that the service gave is the configured
// endpoint's: of the same scheme, and on its host or below it.
func (c *client) belongs(u *url.URL) bool {
	if u.User != nil || u.Host == "" {
		return false
	}
	if t := c.toolbox; t != nil && u.Scheme == t.Scheme && strings.EqualFold(u.Host, t.Host) {
		return true
	}
	if u.Scheme != c.api.Scheme {
		return false
	}
	host, own := strings.ToLower(u.Hostname()), strings.ToLower(c.api.Hostname())
	if host == own {
		return u.Port() == c.api.Port() || !loopback(own)
	}
	return net.ParseIP(own) == nil && strings.HasSuffix(host, "."+own) && u.Port() == c.api.Port()
}

// request is one request of the client.
type request struct {
	method string
	url    string
	header http.Header
	// body makes the request's body anew for each attempt; nil: none.
	body func() io.Reader
	kind string // content type of body
	// safe: may be repeated when the answer was lost.
	safe bool
	// once: must not be repeated even when it was refused.
	once bool
	// quiet: the request holds values, and the service's text may echo them.
	quiet bool
	// long: the client's own timeout does not apply.
	long bool
}

// patience bounds how long a refusal for now (409, 429) is repeated.
const patience = time.Minute

// do sends a request, repeats it where that is right, and returns a 2xx answer
// whose body the caller closes.
func (c *client) do(ctx context.Context, r request) (*http.Response, error) {
	began := time.Now()
	pause := 50 * time.Millisecond
	for attempt := 1; ; attempt++ {
		p, err := c.attempt(ctx, r)
		if err == nil {
			return p, nil
		}
		var e *callError
		if !errors.As(err, &e) || ctx.Err() != nil {
			return nil, err
		}
		wait := pause
		pause = min(2*pause, time.Second)
		switch {
		case r.once:
			return nil, err
		case e.status == http.StatusTooManyRequests:
			wait = max(e.after, wait)
		case e.status == http.StatusConflict && strings.Contains(strings.ToLower(e.message), "state change in progress"):
		case r.safe && attempt < 4 && (e.status == 0 && !e.timeout || e.status >= 500):
		default:
			return nil, err
		}
		if time.Since(began)+wait > patience || !sleep(ctx, wait) {
			return nil, err
		}
	}
}

// retryAfter returns how long the service wants us to wait. Its limits have a
// header of their own each: Retry-After-sandbox-create and the like.
func retryAfter(h http.Header) time.Duration {
	longest := time.Duration(0)
	for name, values := range h {
		if name != "Retry-After" && !strings.HasPrefix(name, "Retry-After-") {
			continue
		}
		for _, v := range values {
			if n, err := strconv.Atoi(strings.TrimSpace(v)); err == nil && n > 0 {
				longest = max(longest, time.Duration(n)*time.Second)
			}
		}
	}
	return longest
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watched notices whether a body was asked for.
type watched struct {
	io.Reader
	read atomic.Bool
}

func (w *watched) Read(p []byte) (int, error) {
	w.read.Store(true)
	return w.Reader.Read(p)
}

// attempt sends a request once. With a status that is no success the answer is
// returned too, its body read and closed.
func (c *client) attempt(ctx context.Context, r request) (*http.Response, error) {
	cancel := context.CancelFunc(func() {})
	var expired atomic.Bool
	if !r.long && c.timeout > 0 {
		timed, stop := context.WithCancel(ctx)
		timer := time.AfterFunc(c.timeout, func() { expired.Store(true); stop() })
		cancel = func() { timer.Stop(); stop() }
		ctx = timed
	}
	var body io.Reader
	var w *watched
	if r.body != nil {
		// Of no known type and so of no known length: it is sent chunked, and
		// neither Go's transport nor the service's proxy can send it again.
		w = &watched{Reader: r.body()}
		body = io.NopCloser(w)
	}
	q, err := http.NewRequestWithContext(ctx, r.method, r.url, body)
	if err != nil {
		cancel()
		return nil, &callError{what: "the request's address is malformed", unsent: true}
	}
	q.GetBody = nil
	for k, v := range r.header {
		q.Header[k] = v
	}
	if r.kind != "" {
		q.Header.Set("Content-Type", r.kind)
	}
	q.Header.Set("User-Agent", "sbxhost")
	q.Header.Set("X-Daytona-Source", "sbxhost")
	c.authorize(q.Header)
	p, err := c.http.Do(q)
	if err != nil {
		cancel()
		return nil, &callError{what: "the request failed", err: plain(err), timeout: expired.Load(), unsent: w != nil && !w.read.Load()}
	}
	p.Body = &closing{p.Body, cancel}
	if p.StatusCode >= 200 && p.StatusCode < 300 {
		return p, nil
	}
	data, _ := io.ReadAll(io.LimitReader(p.Body, 64<<10))
	_ = p.Body.Close()
	e := c.answered(p.StatusCode, data, r.quiet)
	e.after = retryAfter(p.Header)
	e.stray = strings.HasPrefix(r.url, c.api.String()+"/") && !ofAPI(p.Header, data)
	return p, e
}

// ofAPI reports whether an error comes from the API itself, and of a call that it
// knows. A load balancer answers 404 too, and so does the API at a wrong address:
// neither knows anything of a sandbox.
func ofAPI(h http.Header, body []byte) bool {
	var shape struct {
		Message any `json:"message"`
		Error   any `json:"error"`
	}
	if json.Unmarshal(body, &shape) != nil {
		return h.Get("X-Daytona-Api-Version") != ""
	}
	if text, ok := shape.Message.(string); ok && strings.HasPrefix(text, "Cannot ") {
		return false // there is no such route
	}
	return shape.Message != nil || shape.Error != nil || h.Get("X-Daytona-Api-Version") != ""
}

// closing ends a request's context with its answer.
type closing struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *closing) Close() error {
	err := c.ReadCloser.Close()
	c.cancel()
	return err
}

func (c *client) authorize(h http.Header) {
	h.Set("Authorization", "Bearer "+string(c.key.Reveal()))
	if c.org != "" {
		h.Set("X-Daytona-Organization-ID", c.org)
	}
}

// answered makes the error of an answer that is no success. Its body may be
// JSON of several shapes, HTML, or nothing.
func (c *client) answered(status int, body []byte, quiet bool) *callError {
	e := &callError{status: status}
	var shape struct {
		Message any    `json:"message"`
		Error   any    `json:"error"`
		Code    string `json:"code"`
	}
	if json.Unmarshal(body, &shape) == nil {
		e.code = c.clean(shape.Code)
		for _, v := range []any{shape.Message, shape.Error} {
			if text, ok := v.(string); ok && e.message == "" {
				e.message = text
			}
		}
	}
	if quiet {
		// What the service says of a command may echo its environment. What
		// says that it was not tried holds nothing of ours.
		for _, known := range []string{"state change in progress", "failed to resolve container IP", "sandbox container not found"} {
			if strings.Contains(strings.ToLower(e.message), strings.ToLower(known)) {
				e.message = known
				return e
			}
		}
		e.message = ""
		return e
	}
	e.message = c.clean(e.message)
	return e
}

// clean makes the service's text fit for an error: one line, bounded, without
// the key.
func (c *client) clean(text string) string {
	text = strings.ReplaceAll(text, string(c.key.Reveal()), "[daytona key]")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return strings.TrimSpace(text)
}

// json sends a request and decodes the answer into out, which may be nil.
func (c *client) json(ctx context.Context, r request, out any) error {
	p, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = p.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(p.Body, maxReply+1))
	switch {
	case err != nil:
		return &callError{what: "the answer broke off", err: plain(err)}
	case len(data) > maxReply:
		return &callError{status: p.StatusCode, what: fmt.Sprintf("the answer is larger than %d MiB", maxReply>>20)}
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return &callError{status: p.StatusCode, what: "the answer is not what was expected"} // its text is not repeated
	}
	return nil
}

// errNoAnswer is what is said of an error that may repeat what was received.
var errNoAnswer = errors.New("what came was no answer of HTTP, or none came")

// plain keeps what is known to be harmless of a network error: the address may
// hold a token, and net/http repeats bytes that it could not read, which may be
// an echo of what was sent.
func plain(err error) error {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF, io.EOF, net.ErrClosed, http.ErrSchemeMismatch} {
		if errors.Is(err, known) {
			return known
		}
	}
	var (
		dns  *net.DNSError
		op   *net.OpError
		cert *tls.CertificateVerificationError
		tlsE tls.AlertError
	)
	switch {
	case errors.As(err, &dns):
		return dns
	case errors.As(err, &op):
		return op
	case errors.As(err, &cert):
		return cert
	case errors.As(err, &tlsE):
		return tlsE
	}
	return errNoAnswer
}

func jsonBody(v any) func() io.Reader {
	data, err := json.Marshal(v)
	if err != nil { // only plain data is given here
		data = nil
	}
	return func() io.Reader { return bytes.NewReader(data) }
}

func (c *client) control(parts ...string) string {
	u := c.api.String()
	for _, p := range parts {
		u += "/" + url.PathEscape(p)
	}
	return u
}

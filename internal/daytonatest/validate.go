package daytonatest

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Validator checks requests and replies against the specifications. Its messages
// name places and types, never values.
//
// A request must be an operation of the specification, with its parameters and no
// others, and a body of the right type without unknown properties. So must a
// reply, but for what [Deviations] lists. A test that injects faults which spoil
// replies should not validate.
type Validator struct {
	tb      TB
	mu      sync.Mutex
	checked map[string]int
}

// Validate returns a validator that reports to tb with Errorf.
func Validate(tb TB) *Validator {
	tb.Helper()
	if _, err := documents(); err != nil {
		tb.Fatalf("daytonatest: the specifications cannot be read: %v", err)
	}
	return &Validator{tb: tb, checked: map[string]int{}}
}

// Checked returns how many exchanges of each operation were checked, by the
// specification's operation id.
func (v *Validator) Checked() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make(map[string]int, len(v.checked))
	for k, n := range v.checked {
		out[k] = n
	}
	return out
}

// maxChecked bounds the bodies that are looked at.
const maxChecked = 8 << 20

// unspecified are routes that v0.190 or the newer clients have and the documents
// do not.
func unspecified(segments []string) bool {
	p := strings.Join(segments, "/")
	return p == "files/upload" || p == "process/pty/create-connect" || strings.HasPrefix(p, "socket.io")
}

// exchange finds what a request is; nil when it is no business of the
// specifications (previews, build logs).
func (v *Validator) exchange(r *http.Request) *exchange {
	segments := split(r.URL)
	i := slices.IndexFunc(segments, func(s string) bool { return s == "api" || s == "toolbox" })
	if i < 0 || slices.Contains(segments[:i], "preview") {
		return nil
	}
	e := &exchange{v: v, control: segments[i] == "api", what: r.Method + " " + r.URL.Path}
	rest := segments[i+1:]
	if !e.control {
		if len(rest) == 0 {
			return nil
		}
		rest = rest[1:]
	}
	if unspecified(rest) {
		return nil
	}
	o, path, err := operationOf(r.Method, rest, e.control)
	if err != nil {
		e.problem("request", err.Error())
		return nil
	}
	e.op = o
	e.what = o.id
	v.mu.Lock()
	v.checked[o.id]++
	v.mu.Unlock()
	for _, p := range o.checkRequest(r, path) {
		e.problem("request", p)
	}
	return e
}

// exchange is one request with its reply.
type exchange struct {
	v       *Validator
	op      operation
	control bool
	what    string
}

func (e *exchange) problem(where, text string) {
	e.v.tb.Helper()
	e.v.tb.Errorf("daytonatest: %s of %s is not as specified: %s", where, e.what, text)
}

// requestBody checks a request's body.
func (e *exchange) requestBody(h http.Header, body []byte) {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case len(body) == 0:
		if e.op.bodyNeeded {
			e.problem("request", "the body is missing")
		}
	case len(e.op.accepts) == 0:
		// Clients send {} to operations that have no body; servers ignore it.
		if s := strings.TrimSpace(string(body)); s != "{}" && s != "null" {
			e.problem("request", "there is a body, and none is specified")
		}
	case !slices.Contains(e.op.accepts, kind):
		e.problem("request", "the content type is not "+strings.Join(e.op.accepts, " or "))
	case e.op.body != nil:
		var value any
		if err := decodeNumbers(body, &value); err != nil {
			e.problem("request", "the body is not JSON")
			return
		}
		for _, p := range schemaProblems(e.op.body.Validate(value)) {
			e.problem("request body", p)
		}
	}
}

// reply checks a reply. complete says that body is all of it.
func (e *exchange) reply(status int, h http.Header, body []byte, complete bool) {
	if status == http.StatusSwitchingProtocols || status == 0 {
		return
	}
	deviates, nulls := e.op.deviates(status, h, body)
	if deviates {
		return
	}
	schema, declared := e.op.replies[status]
	if !declared {
		// Part of a file is what HTTP calls it, whatever the document lists.
		if status != http.StatusPartialContent {
			e.problem("reply", "status "+http.StatusText(status)+" is not specified")
		}
		return
	}
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	if schema == nil || !complete || kind == "multipart/form-data" {
		return
	}
	if kind != "application/json" {
		e.problem("reply", "it must be JSON")
		return
	}
	var value any
	if err := decodeNumbers(body, &value); err != nil {
		e.problem("reply", "the body is not JSON")
		return
	}
	dropNulls(value, nulls)
	for _, p := range schemaProblems(schema.Validate(value)) {
		e.problem("reply body", p)
	}
}

func decodeNumbers(data []byte, v *any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// dropNulls removes properties that may be null.
func dropNulls(v any, names []string) {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			if e == nil && slices.Contains(names, k) {
				delete(x, k)
				continue
			}
			dropNulls(e, names)
		}
	case []any:
		for _, e := range x {
			dropNulls(e, names)
		}
	}
}

func hasFields(body []byte, fields ...string) bool {
	var o map[string]any
	if json.Unmarshal(body, &o) != nil {
		return false
	}
	for _, f := range fields {
		if _, ok := o[f]; !ok {
			return false
		}
	}
	return true
}

func streamed(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "multipart/")
}

// Handler checks what passes through a server's handler. Multipart bodies are not
// looked into.
func (v *Validator) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := v.exchange(r)
		if e == nil {
			next.ServeHTTP(w, r)
			return
		}
		if !streamed(r.Header) && r.Body != nil {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				e.requestBody(r.Header, body)
			}
			r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
		}
		a := &answer{w: w, keep: maxChecked + 1}
		next.ServeHTTP(a, r)
		e.reply(a.status, a.Header(), a.kept.Bytes(), a.kept.Len() <= maxChecked)
	})
}

// failing is a reader that passes an earlier error on.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// Transport checks what a client sends and gets. A reply's body is checked when
// the client has read all of it.
func (v *Validator) Transport(next http.RoundTripper) http.RoundTripper {
	return transport{v: v, next: next}
}

type transport struct {
	v    *Validator
	next http.RoundTripper
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	e := t.v.exchange(r)
	if e == nil {
		return t.next.RoundTrip(r)
	}
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		e.requestBody(r.Header, nil)
	case !streamed(r.Header):
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
		e.requestBody(r.Header, body)
		r = r.Clone(r.Context()) // a transport must not change the request
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	p, err := t.next.RoundTrip(r)
	if err != nil || p.StatusCode == http.StatusSwitchingProtocols {
		return p, err
	}
	p.Body = &checkedBody{ReadCloser: p.Body, done: func(body []byte, complete bool) { e.reply(p.StatusCode, p.Header, body, complete) }}
	return p, nil
}

// checkedBody keeps what is read and hands it over at the end.
type checkedBody struct {
	io.ReadCloser
	kept bytes.Buffer
	done func([]byte, bool)
	once sync.Once
}

func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if room := maxChecked + 1 - b.kept.Len(); room > 0 {
		b.kept.Write(p[:min(n, room)])
	}
	if err == io.EOF {
		b.once.Do(func() { b.done(b.kept.Bytes(), b.kept.Len() <= maxChecked) })
	}
	return n, err
}

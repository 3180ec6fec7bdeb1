package egress

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/secret"
)

// Response is what the plugin may see of an answer.
type Response struct {
	c      *Call
	r      *spec.Route
	status int
	header http.Header
	body   io.ReadCloser

	mu      sync.Mutex
	shown   []byte // rest of the guest-visible body
	frames  frameReader
	pending []byte // a frame that did not fit
	number  int
	ended   error
	counted bool
}

// receive processes an answer as far as it must be complete before the plugin
// sees any of it.
func (c *Call) receive(_ context.Context, r *spec.Route, resp *http.Response) (*Response, error) {
	out := &Response{c: c, r: r, status: resp.StatusCode, header: resp.Header, body: resp.Body}
	if err := checkEncoding(resp.Header); err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		c.refuseCaptures(r)
	}
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	kind := r.Response.Body
	switch {
	case ok && (kind == spec.BodySSE || kind == spec.BodyNDJSON || kind == spec.BodyConnect):
		out.frames = newFrameReader(kind, bufio.NewReaderSize(resp.Body, 32<<10))
		return out, nil
	case ok && kind == spec.BodyRaw && len(r.Response.Payload) > 0:
		return out, out.deliverRaw()
	case kind == spec.BodyNone && ok:
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, abi.MaxHTTPResponse)) // its content is nobody's
		return out, nil
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, abi.MaxHTTPResponse+1))
	if err != nil {
		c.cut()
		return nil, failure(abi.ErrnoTruncated, "the answer ended before it was complete")
	}
	if len(raw) > abi.MaxHTTPResponse {
		return nil, failure(abi.ErrnoTooLarge, "the answer is larger than "+strconv.Itoa(abi.MaxHTTPResponse)+" bytes")
	}
	if ok && kind == spec.BodyJSON {
		out.shown, err = out.document(raw)
		return out, err
	}
	// An error's body, or one of no declared form.
	if doc, derr := decodeJSON(raw); derr == nil {
		out.shown, err = out.present(doc, "")
		return out, err
	}
	out.shown, err = out.presentText(raw)
	return out, err
}

// checkEncoding refuses what cannot be looked through.
func checkEncoding(h http.Header) error {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return &Denied{Rule: "the answer is compressed, which was not asked for"}
	}
	if ct := h.Get("Content-Type"); ct != "" {
		if _, params, err := mime.ParseMediaType(ct); err == nil {
			if cs := params["charset"]; cs != "" && !strings.EqualFold(cs, "utf-8") && !strings.EqualFold(cs, "us-ascii") {
				return &Denied{Rule: "the answer's charset is not UTF-8"}
			}
		}
	}
	return nil
}

// refuseCaptures forgets the tokens that a refused request carried, so that the
// plugin is told to capture new ones.
func (c *Call) refuseCaptures(r *spec.Route) {
	for _, h := range c.b.m.Origins[r.Origin].Headers {
		if h.Capture != "" {
			c.b.dropCapture(c.cfg.Session, h.Capture)
		}
	}
}

func (c *Call) cut() {
	c.mu.Lock()
	c.truncated = true
	c.mu.Unlock()
}

func (c *Call) complete() {
	c.mu.Lock()
	c.delivered = true
	c.mu.Unlock()
}

// document processes a complete JSON answer: captures, the sandbox id, list
// items, payloads, and what is left for the plugin.
func (o *Response) document(raw []byte) ([]byte, error) {
	if len(strings.TrimSpace(string(raw))) == 0 {
		return nil, nil
	}
	doc, err := decodeJSON(raw)
	if err != nil {
		return nil, failure(abi.ErrnoInvalid, "the answer is not well-formed JSON")
	}
	p := &o.r.Response
	for _, cp := range p.Capture {
		if v, ok := lookup(doc, cp.Pointer); ok {
			s, isText := v.(string)
			if !isText || s == "" {
				continue
			}
			token := secret.FromString(s)
			o.c.b.keepCapture(o.c.cfg.Session, cp.Name, token)
			o.c.guard.add(cp.Name, token)
			if o.c.cfg.Session != nil {
				o.c.cfg.Session.arm(cp.Name, token)
			}
			replace(doc, cp.Pointer, "[captured:"+cp.Name+"]")
		}
	}
	if p.Sandbox != "" {
		v, _ := lookup(doc, p.Sandbox)
		id, ok := v.(string)
		if !ok {
			return nil, failure(abi.ErrnoInvalid, "the create reply has no sandbox id at "+p.Sandbox)
		}
		if err := o.c.cfg.Session.claim(id); err != nil {
			return nil, err
		}
	}
	if o.lists() {
		if doc, err = o.filter(doc); err != nil {
			return nil, err
		}
	}
	if err := o.payloads(doc); err != nil {
		return nil, err
	}
	if len(p.Payload) > 0 {
		o.c.complete()
	}
	return o.present(doc, "")
}

// payloads takes output or content out of a document and delivers it.
func (o *Response) payloads(doc any) error {
	for _, l := range o.r.Response.Payload {
		v, ok := lookup(doc, l.Pointer)
		if !ok || v == nil || !when(doc, l.When) {
			continue
		}
		s, isText := v.(string)
		if !isText {
			return failure(abi.ErrnoInvalid, "the payload at "+l.Pointer+" is not text")
		}
		data := []byte(s)
		if l.Encoding == "base64" {
			var err error
			if data, err = decodeBase64(s); err != nil {
				return failure(abi.ErrnoInvalid, "the payload at "+l.Pointer+" is not base64")
			}
		}
		if l.Mode == "cumulative" {
			var err error
			if data, err = o.c.fresh(l.To, data); err != nil {
				return err
			}
		}
		if err := o.c.deliver(l.To, data); err != nil {
			return err
		}
		replace(doc, l.Pointer, len(data))
	}
	return nil
}

// when evaluates a payload's condition: a pointer that must be present, or
// "pointer=value".
func when(doc any, cond string) bool {
	if cond == "" {
		return true
	}
	pointer, want, compare := strings.Cut(cond, "=")
	v, ok := lookup(doc, pointer)
	if !compare {
		return ok && v != nil
	}
	s, isText := v.(string)
	return ok && isText && s == want
}

func decodeBase64(s string) ([]byte, error) {
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if b, err := enc.DecodeString(s); err == nil {
			return b, nil
		}
	}
	return nil, errors.New("not base64")
}

// joined is how much of a cumulative stream was delivered.
type joined struct {
	n   int
	sum [sha256.Size]byte
}

// fresh returns the part of a cumulative output that was not delivered yet. An
// output whose beginning changed has lost bytes in between.
func (c *Call) fresh(stream string, data []byte) ([]byte, error) {
	s, e := c.cfg.Session, c.cfg.Exec
	if s == nil || e == nil {
		return data, nil
	}
	key := e.ID + "/" + stream
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.delivered[key]
	if j == nil {
		j = &joined{sum: sha256.Sum256(nil)}
		s.delivered[key] = j
	}
	if len(data) < j.n || sha256.Sum256(data[:j.n]) != j.sum {
		c.cut()
		return nil, failure(abi.ErrnoTruncated, "the vendor dropped the beginning of the output")
	}
	rest := data[j.n:]
	j.n, j.sum = len(data), sha256.Sum256(data)
	return rest, nil
}

func (c *Call) sink(to string) io.Writer {
	switch {
	case to == "stdout" && c.cfg.Exec != nil && c.cfg.Exec.Stdout != nil:
		return c.cfg.Exec.Stdout
	case to == "stderr" && c.cfg.Exec != nil && c.cfg.Exec.Stderr != nil:
		return c.cfg.Exec.Stderr
	case to == "content" && c.cfg.File != nil && c.cfg.File.Sink != nil:
		return c.cfg.File.Sink
	}
	return nil
}

// deliver hands bytes to the caller. A caller that stopped reading output drops
// the rest; one that stopped reading a file ends the operation.
func (c *Call) deliver(to string, data []byte) error {
	w := c.sink(to)
	if w == nil {
		return failure(abi.ErrnoState, "nobody takes "+to+" in this operation")
	}
	if len(data) == 0 {
		return nil
	}
	if _, err := w.Write(data); err != nil && to == "content" {
		return failure(abi.ErrnoIo, "the caller stopped reading")
	}
	return nil
}

// deliverRaw copies a raw payload to the caller.
func (o *Response) deliverRaw() error {
	l := o.r.Response.Payload[0]
	w := o.c.sink(l.To)
	if w == nil {
		return failure(abi.ErrnoState, "nobody takes "+l.To+" in this operation")
	}
	src := io.Reader(o.body)
	if l.Encoding == "base64" {
		src = base64.NewDecoder(base64.StdEncoding, src)
	}
	n, err := io.Copy(w, src)
	if err != nil {
		o.c.cut()
		return failure(abi.ErrnoTruncated, "the content ended after "+strconv.FormatInt(n, 10)+" bytes")
	}
	o.c.complete()
	o.shown = []byte(strconv.FormatInt(n, 10))
	return nil
}

// present renders what the plugin may see of a document.
func (o *Response) present(doc any, frame string) ([]byte, error) {
	shown, hit := o.c.guard.show(o.r.ID+frame, doc)
	return encodeJSON(shown), o.count(hit)
}

// presentText shows a body that is not JSON, or nothing of it.
func (o *Response) presentText(raw []byte) ([]byte, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if !utf8.Valid(raw) {
		return []byte(Redacted), o.count(true)
	}
	if _, hit := o.c.guard.findAt(o.r.ID+"#text", string(raw)); hit {
		return []byte(Redacted), o.count(true)
	}
	return raw, nil
}

// count notes that a reply needed redaction; too many end the session's use of
// the network.
func (o *Response) count(hit bool) error {
	s := o.c.cfg.Session
	if !hit || o.counted || s == nil {
		return nil
	}
	o.counted = true
	if s.note() {
		return o.c.deny(o.r.ID, "more than "+strconv.Itoa(MaxRedactedReplies)+" replies of this session held values")
	}
	return nil
}

func (o *Response) showHeader(name string) (string, error) {
	for _, h := range o.r.Response.Headers {
		if !strings.EqualFold(h, name) {
			continue
		}
		v := o.header.Get(h)
		if v == "" {
			break
		}
		if n, hit := o.c.guard.findAt(o.r.ID+"@"+strings.ToLower(h), v); hit {
			return "[redacted:" + n + "]", o.count(true)
		}
		return v, nil
	}
	return "", failure(abi.ErrnoNotFound, "no such header, or the route does not declare it")
}

func (o *Response) read(dst []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.frames != nil {
		return 0, failure(abi.ErrnoState, "this body comes in frames; use http_next")
	}
	n := copy(dst, o.shown)
	o.shown = o.shown[n:]
	return n, nil
}

func (o *Response) nextFrame(limit int) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.frames == nil {
		return nil, failure(abi.ErrnoState, "this body does not come in frames; use http_read")
	}
	if o.pending == nil {
		if o.ended != nil {
			return nil, o.ended
		}
		doc, err := o.frames.next()
		if err != nil {
			o.ended = o.frameEnd(err)
			return nil, o.ended
		}
		if err := o.payloads(doc); err != nil {
			o.ended = err
			return nil, err
		}
		if o.pending, err = o.present(doc, "#frame"); err != nil {
			o.ended = err
			return nil, err
		}
	}
	if len(o.pending) > limit {
		return nil, failure(abi.ErrnoTooLarge, "the frame has "+strconv.Itoa(len(o.pending))+" bytes")
	}
	f := o.pending
	o.pending = nil
	return f, nil
}

func (o *Response) frameEnd(err error) error {
	if errors.Is(err, io.EOF) {
		o.c.complete()
		return failure(abi.ErrnoEnd, "no more frames")
	}
	var f *Failure
	if errors.As(err, &f) {
		if f.Errno == abi.ErrnoTruncated {
			o.c.cut()
		}
		return f
	}
	var d *Denied
	if errors.As(err, &d) {
		o.c.cut()
		return o.c.deny(o.r.ID, d.Rule)
	}
	o.c.cut()
	return failure(abi.ErrnoTruncated, "the stream broke")
}

func (o *Response) close() { _ = o.body.Close() }

package egress

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/provider"
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
	ended   error
	counted bool
	moved   bool // a first frame came
	output  bool // a payload stream that has not come to its end
}

// receive processes an answer as far as it must be complete before the plugin
// sees any of it.
func (c *Call) receive(_ context.Context, r *spec.Route, resp *http.Response) (*Response, error) {
	out := &Response{c: c, r: r, status: resp.StatusCode, header: resp.Header, body: resp.Body}
	if err := checkEncoding(resp.Header); err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusUnauthorized && c.refuseCaptures(r) {
		return nil, failure(abi.ErrnoNoCapture, "the vendor refused the token that was captured before")
	}
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	kind := r.Response.Body
	if unframed(resp) && (kind == spec.BodySSE || kind == spec.BodyNDJSON || kind == spec.BodyRaw) {
		// The connection's end is the body's: one that broke looks the same.
		resp.Body = &endless{resp.Body}
		out.body = resp.Body
	}
	switch {
	case ok && (kind == spec.BodySSE || kind == spec.BodyNDJSON || kind == spec.BodyConnect):
		out.frames = newFrameReader(kind, bufio.NewReaderSize(resp.Body, 32<<10))
		if len(r.Response.Payload) > 0 {
			out.output = true
			c.stream(1)
		}
		return out, nil
	case ok && kind == spec.BodyRaw && len(r.Response.Payload) > 0:
		c.mu.Lock()
		c.length = resp.ContentLength
		c.mu.Unlock()
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
	if c.cfg.Op == abi.OpList && !lists(r) || c.cfg.Session != nil && c.cfg.Session.exhausted() {
		return out, nil // nothing that could not be filtered; nothing more to probe
	}
	// An error's body, or one of no declared form. It may hold a token or output
	// all the same.
	if doc, derr := decodeJSON(raw); derr == nil {
		out.takeCaptures(doc, false)
		out.hidePayloads(doc)
		out.shown, err = out.present(doc, "")
		return out, err
	}
	out.shown, err = out.presentText(raw)
	return out, err
}

// checkEncoding refuses what cannot be looked through.
func checkEncoding(h http.Header) error {
	for _, enc := range h.Values("Content-Encoding") {
		if enc = strings.TrimSpace(enc); enc != "" && !strings.EqualFold(enc, "identity") {
			return &Denied{Rule: "the answer is compressed, which was not asked for"}
		}
	}
	for _, ct := range h.Values("Content-Type") {
		_, params, err := mime.ParseMediaType(ct)
		cs := params["charset"]
		if err != nil && strings.Contains(strings.ToLower(ct), "charset") {
			cs = "unknown"
		}
		if cs != "" && !strings.EqualFold(cs, "utf-8") && !strings.EqualFold(cs, "us-ascii") {
			return &Denied{Rule: "the answer's charset is not UTF-8"}
		}
	}
	return nil
}

// unframed reports whether nothing but the connection's end says where the body
// ends.
func unframed(resp *http.Response) bool {
	return resp.ContentLength < 0 && resp.ProtoMajor == 1 && len(resp.TransferEncoding) == 0
}

// endless turns the end of a body that has no proper one into an error.
type endless struct{ io.ReadCloser }

// Read implements io.Reader.
func (e *endless) Read(b []byte) (int, error) {
	n, err := e.ReadCloser.Read(b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// refuseCaptures forgets the tokens that a refused request carried, so that the
// plugin captures new ones. It reports whether there were any.
func (c *Call) refuseCaptures(r *spec.Route) bool {
	any := false
	for _, h := range c.b.m.Origins[r.Origin].Headers {
		if h.Capture != "" {
			c.b.dropCapture(c.cfg.Session, h.Capture)
			any = true
		}
	}
	return any
}

// stream counts payload streams that have not come to their end.
func (c *Call) stream(by int) {
	c.mu.Lock()
	c.streams += by
	c.mu.Unlock()
}

func (c *Call) cut() {
	c.mu.Lock()
	c.truncated = true
	c.mu.Unlock()
}

// refused records that the vendor did not do what it was asked for.
func (c *Call) refused() {
	c.mu.Lock()
	c.begun, c.applied = false, provider.AppliedNo
	c.mu.Unlock()
}

// ContentLength is the size of the file that is being read, as the vendor
// announced it; -1 when it did not.
func (c *Call) ContentLength() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.length
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
	o.takeCaptures(doc, true)
	if p.Sandbox != "" && o.c.cfg.Session != nil {
		v, _ := lookup(doc, p.Sandbox)
		id, ok := v.(string)
		if !ok {
			return nil, failure(abi.ErrnoInvalid, "the create reply has no sandbox id at "+p.Sandbox)
		}
		if err := o.c.cfg.Session.claim(id); err != nil {
			return nil, err
		}
	}
	if lists(o.r) {
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

// takeCaptures removes tokens from a reply, and with keep takes them over.
func (o *Response) takeCaptures(doc any, keep bool) {
	for _, cp := range o.r.Response.Capture {
		v, ok := lookup(doc, cp.Pointer)
		if !ok || v == nil {
			continue
		}
		token := ""
		switch v := v.(type) {
		case string:
			token = v
		case json.Number:
			token = v.String()
		}
		if token != "" {
			if keep {
				o.c.b.keepCapture(o.c.cfg.Session, cp.Name, secret.FromString(token))
			} else if s := o.c.cfg.Session; s != nil {
				s.arm(cp.Name, secret.FromString(token))
			}
		}
		replace(doc, cp.Pointer, "[captured:"+cp.Name+"]")
	}
}

// hidePayloads removes output that stands where the manifest says output is,
// but that was not delivered.
func (o *Response) hidePayloads(doc any) {
	for _, l := range o.r.Response.Payload {
		if l.Pointer == "" {
			continue
		}
		v, ok := lookup(doc, l.Pointer)
		if _, done := v.(int); !ok || done || v == nil {
			continue
		}
		s, isText := v.(string)
		if !isText {
			s = string(encodeJSON(v))
		}
		replace(doc, l.Pointer, len(s))
	}
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
	o.hidePayloads(doc)
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
	o.c.b.omit(doc)
	shown, hit := o.c.sight.show(o.r.ID+frame, doc)
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
	if _, hit := o.c.sight.findAt(o.r.ID+"#text", string(raw)); hit {
		return []byte(Redacted), o.count(true)
	}
	return raw, nil
}

// count notes that a reply, or a frame, needed redaction; too many end the
// session's use of the network.
func (o *Response) count(hit bool) error {
	if !hit || o.counted {
		return nil
	}
	o.counted = o.frames == nil
	var over bool
	if s := o.c.cfg.Session; s != nil {
		over = s.note()
	} else {
		o.c.mu.Lock()
		o.c.redacted++
		over = o.c.redacted > MaxRedactedReplies
		o.c.mu.Unlock()
	}
	if over {
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
		if n, hit := o.c.sight.findAt(o.r.ID+"@"+strings.ToLower(h), v); hit {
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
			if o.ended = o.frameEnd(err); o.output && errors.Is(o.ended, abi.ErrnoEnd) {
				o.output = false
				o.c.stream(-1)
			}
			return nil, o.ended
		}
		o.firstFrame(doc)
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

// definite are the Connect codes that say that nothing was done.
var definite = []string{"invalid_argument", "not_found", "already_exists", "permission_denied", "resource_exhausted", "failed_precondition", "out_of_range", "unimplemented", "unauthenticated"}

// firstFrame settles what the status of a Connect stream leaves open: the call
// is accepted by its first message, or refused by an end message that comes
// first.
func (o *Response) firstFrame(doc any) {
	f, ok := o.frames.(*connectFrames)
	if !ok || o.moved {
		return
	}
	o.moved = true
	if !startsAction(o.r) {
		return
	}
	if f.done {
		if code, _ := lookup(doc, "/end/error/code"); slices.Contains(definite, fmt.Sprint(code)) {
			o.c.refused()
		}
		return
	}
	if o.c.cfg.Started != nil {
		o.c.cfg.Started()
	}
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

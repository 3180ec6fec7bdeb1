package egress

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/provider"
)

// maxBody is the largest structured body: what a plugin may send plus the
// largest environment.
const maxBody = abi.MaxHTTPRequest + 4<<20

// rendered is a request ready to be sent.
type rendered struct {
	method, url string
	header      http.Header
	body        []byte                           // complete body
	stream      func() (io.Reader, int64, error) // streamed body instead; can be started once
	private     bool
}

var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

// render builds the request of a route.
func (c *Call) render(r *spec.Route, meta abi.HTTPMeta, body []byte) (*rendered, error) {
	base, private, err := c.baseURL(r)
	if err != nil {
		return nil, err
	}
	p, err := c.renderPath(r, meta.Params)
	if err != nil {
		return nil, err
	}
	query, err := c.renderQuery(r, meta.Query)
	if err != nil {
		return nil, err
	}
	out := &rendered{method: r.Method, url: base + p, header: http.Header{}, private: private}
	if query != "" {
		out.url += "?" + query
	}
	if err := c.renderHeaders(r, out.header); err != nil {
		return nil, err
	}
	if err := c.renderBody(r, meta, body, out); err != nil {
		return nil, err
	}
	return out, nil
}

// baseURL returns the scheme and host a route's request goes to.
func (c *Call) baseURL(r *spec.Route) (string, bool, error) {
	o, set := c.b.m.Origins[r.Origin], c.b.origins[r.Origin]
	base := o.URL
	if set.URL != "" {
		base = set.URL
	}
	if o.Capture != "" && set.URL == "" {
		v, ok := c.b.capture(c.cfg.Session, o.Capture)
		if !ok {
			return "", false, failure(abi.ErrnoNoCapture, "the address "+o.Capture+" was not captured")
		}
		var err error
		if base, err = capturedBase(string(v.Reveal()), o.Allow); err != nil {
			return "", false, err
		}
	}
	if strings.Contains(base, "{sandbox}") {
		id := ""
		if c.cfg.Session != nil {
			id = c.cfg.Session.Sandbox()
		}
		if !hostLabel.MatchString(id) {
			return "", false, failure(abi.ErrnoState, "the sandbox id cannot be part of a host name, or is not known yet")
		}
		base = strings.Replace(base, "{sandbox}", id, 1)
	}
	return strings.TrimSuffix(base, "/"), set.AllowPrivate, nil
}

var hostLabel = regexp.MustCompile(`^[A-Za-z0-9-]{1,63}$`)

// capturedBase checks an address that came out of a reply.
func capturedBase(raw string, allow []string) (string, error) {
	if !strings.Contains(raw, "://") {
		raw = "https://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Port() != "" {
		return "", &Denied{Rule: "the captured address is not a plain https address"}
	}
	host := strings.ToLower(u.Hostname())
	for _, pattern := range allow {
		suffix, wild := strings.CutPrefix(pattern, "*.")
		if !wild && host == pattern {
			return "https://" + host + strings.TrimSuffix(u.EscapedPath(), "/"), nil
		}
		if label, ok := strings.CutSuffix(host, "."+suffix); wild && ok && hostLabel.MatchString(label) {
			return "https://" + host + strings.TrimSuffix(u.EscapedPath(), "/"), nil
		}
	}
	return "", &Denied{Rule: "the captured address is not on the manifest's allow list"}
}

func (c *Call) renderPath(r *spec.Route, params map[string]string) (string, error) {
	for name := range params {
		if f, ok := r.Params[name]; !ok || f.Free == nil {
			return "", c.deny(r.ID, "path parameter "+strconv.Quote(name)+" is not the plugin's to fill")
		}
	}
	var err error
	out := placeholder.ReplaceAllStringFunc(r.Path, func(m string) string {
		name := strings.Trim(m, "{}")
		name, multi := strings.CutSuffix(name, "...")
		var v string
		if name == "sandbox" {
			id, ok := c.hostValue("sandbox")
			if !ok {
				err = failure(abi.ErrnoState, "the sandbox id is not known yet")
				return ""
			}
			v = id.(string)
		} else if v, err = c.parameter(r, r.Params[name], params, name, err); err != nil {
			return ""
		}
		segments := []string{v}
		if multi {
			segments = strings.Split(strings.Trim(v, "/"), "/")
		}
		for i, s := range segments {
			if s == "" || s == "." || s == ".." || strings.ContainsAny(s, "\x00\r\n") || (!multi && strings.Contains(s, "/")) {
				err = c.deny(r.ID, "path parameter "+strconv.Quote(name)+" is not a plain segment")
				return ""
			}
			segments[i] = url.PathEscape(s)
		}
		return strings.Join(segments, "/")
	})
	return out, err
}

// parameter returns the value of a path or query parameter.
func (c *Call) parameter(r *spec.Route, f spec.Field, given map[string]string, name string, prior error) (string, error) {
	switch {
	case prior != nil:
		return "", prior
	case f.Value != "":
		return f.Value, nil
	case f.From != "":
		v, ok := c.hostValue(f.From)
		if !ok {
			return "", failure(abi.ErrnoState, f.From+" is not known in this operation")
		}
		if m, isMap := v.(map[string]string); isMap {
			q := url.Values{}
			for k, s := range m {
				q.Set(k, s)
			}
			return q.Encode(), nil
		}
		return text(v), nil
	}
	v, ok := given[name]
	if !ok {
		if f.Free.Optional {
			return "", nil
		}
		return "", failure(abi.ErrnoInvalid, "parameter "+name+" is missing")
	}
	if err := checkFreeText(*f.Free, v); err != nil {
		return "", c.deny(r.ID, "parameter "+strconv.Quote(name)+" "+err.Error())
	}
	return v, nil
}

func (c *Call) renderQuery(r *spec.Route, given map[string]string) (string, error) {
	for name := range given {
		if f, ok := r.Query[name]; !ok || f.Free == nil {
			return "", c.deny(r.ID, "query parameter "+strconv.Quote(name)+" is not the plugin's to fill")
		}
	}
	q := url.Values{}
	for name, f := range r.Query {
		if f.Free != nil {
			if _, ok := given[name]; !ok {
				continue // paging fields are absent on the first page
			}
		}
		if f.From != "" {
			v, ok := c.hostValue(f.From)
			if !ok {
				if f.From == "ownerLabels" || f.From == "sandbox" {
					return "", failure(abi.ErrnoState, f.From+" is not known in this operation")
				}
				continue
			}
			if m, isMap := v.(map[string]string); isMap && strings.HasSuffix(name, ".") {
				// "metadata." stands for one parameter a label: metadata.KEY=VALUE.
				for k, s := range m {
					q.Set(name+k, s)
				}
				continue
			}
		}
		v, err := c.parameter(r, f, given, name, nil)
		if err != nil {
			return "", err
		}
		q.Set(name, v)
	}
	return q.Encode(), nil
}

func (c *Call) renderHeaders(r *spec.Route, h http.Header) error {
	for _, f := range slices.Concat(c.b.m.Origins[r.Origin].Headers, r.Headers) {
		v := f.Value
		switch {
		case f.Credential != "":
			cred := c.b.creds[f.Credential]
			v = string(cred.Reveal())
		case f.Capture != "":
			t, ok := c.b.capture(c.cfg.Session, f.Capture)
			if !ok {
				return failure(abi.ErrnoNoCapture, "the token "+f.Capture+" was not captured")
			}
			v = string(t.Reveal())
		case f.Config != "":
			s, ok := c.b.setting(f.Config)
			if !ok {
				continue
			}
			v = text(s)
		case f.From != "":
			s, ok := c.hostValue(f.From)
			if !ok {
				return failure(abi.ErrnoState, f.From+" is not known in this operation")
			}
			v = text(s)
		}
		v = f.Prefix + v
		if strings.ContainsAny(v, "\r\n\x00") {
			return c.deny(r.ID, "header "+f.Name+" would hold a line break")
		}
		h.Set(f.Name, v)
	}
	h.Set("Accept-Encoding", "identity")
	h.Set("User-Agent", "sbxhost")
	if r.Idempotency.Header != "" {
		key := ""
		switch {
		case r.Idempotency.Key == "exec" && c.cfg.Exec != nil:
			key = c.cfg.Exec.ID
		case c.cfg.Session != nil:
			// A session may be created again, as a replacement: the vendor must
			// not take that for a repetition.
			key = c.cfg.Session.req.SessionID
			if a := c.cfg.Session.req.Labels[provider.LabelAttempt]; a != "" && key != "" {
				key += "-" + a
			}
		}
		if key == "" {
			return failure(abi.ErrnoState, "the idempotency key is not known in this operation")
		}
		h.Set(r.Idempotency.Header, key)
	}
	return nil
}

func (c *Call) renderBody(r *spec.Route, meta abi.HTTPMeta, body []byte, out *rendered) error {
	switch r.Request.Body {
	case spec.BodyNone:
		if len(meta.Free) > 0 && string(meta.Free) != "{}" {
			return c.deny(r.ID, "this route has no free fields")
		}
		return nil
	case spec.BodyJSON, spec.BodyConnect:
		doc, err := c.structured(r, meta.Free)
		if err != nil {
			return err
		}
		out.body = encodeJSON(doc)
		out.header.Set("Content-Type", "application/json")
		if r.Request.Body == spec.BodyConnect {
			// Connect streaming: one flags byte, the length, the message.
			env := make([]byte, 5, 5+len(out.body))
			binary.BigEndian.PutUint32(env[1:], uint32(len(out.body))) //nolint:gosec // bounded by maxBody below
			out.body = append(env, out.body...)
			out.header.Set("Content-Type", "application/connect+json")
		}
		if len(out.body) > maxBody {
			return failure(abi.ErrnoTooLarge, "the request is larger than "+strconv.Itoa(maxBody)+" bytes")
		}
		return nil
	case spec.BodyRaw:
		out.header.Set("Content-Type", "application/octet-stream")
		return c.rawBody(r.Request.Slots[0], out)
	case spec.BodyMultipart:
		return c.multipartBody(r, out)
	}
	return c.pluginBody(r, meta, body, out)
}

// structured builds a JSON body from slots and free fields.
func (c *Call) structured(r *spec.Route, free []byte) (any, error) {
	var doc any
	for _, s := range r.Request.Slots {
		v, ok, err := c.slotValue(s)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if err := insert(&doc, s.Pointer, v); err != nil {
			return nil, c.deny(r.ID, err.Error())
		}
	}
	given := map[string]any{}
	if len(free) > 0 {
		v, err := decodeJSON(free)
		m, ok := v.(map[string]any)
		if err != nil || !ok {
			return nil, failure(abi.ErrnoInvalid, "free must be an object of pointer to value")
		}
		given = m
	}
	for _, f := range r.Request.Free {
		v, ok := given[f.Pointer]
		if !ok {
			if f.Optional {
				continue
			}
			return nil, failure(abi.ErrnoInvalid, "the free field "+f.Pointer+" is missing")
		}
		delete(given, f.Pointer)
		if err := checkFreeValue(f, v); err != nil {
			return nil, c.deny(r.ID, "free field "+f.Pointer+" "+err.Error())
		}
		if err := insert(&doc, f.Pointer, v); err != nil {
			return nil, c.deny(r.ID, err.Error())
		}
	}
	for p := range given {
		return nil, c.deny(r.ID, "the field "+strconv.Quote(p)+" is not the plugin's to fill")
	}
	if doc == nil {
		doc = map[string]any{}
	}
	return doc, nil
}

// slotValue returns what goes into a slot; false leaves the pointer out.
func (c *Call) slotValue(s spec.Slot) (any, bool, error) {
	if s.From == "" {
		v, err := decodeJSON([]byte(s.Value))
		return v, true, err
	}
	if s.From == "exec.stdin" || s.From == "file.content" {
		data, err := c.inline(s.From)
		if err != nil {
			return nil, false, err
		}
		if s.Encoding == "base64" {
			return base64.StdEncoding.EncodeToString(data), true, nil
		}
		if !utf8.Valid(data) {
			return nil, false, failure(abi.ErrnoInvalid, s.From+" is not text, and the vendor takes only text")
		}
		return string(data), true, nil
	}
	v, ok := c.hostValue(s.From)
	if !ok && s.Default != "" {
		v, ok = c.hostValue(s.Default)
	}
	if !ok {
		switch s.From {
		case "sandbox":
			return nil, false, failure(abi.ErrnoState, "the sandbox id is not known yet")
		case "exec.argv0", "exec.argv", "exec.shell", "exec.line":
			return nil, false, failure(abi.ErrnoState, "there is no command in this operation")
		}
		return nil, false, nil
	}
	if !jsonText(v) {
		// Writing it as JSON would change it.
		return nil, false, failure(abi.ErrnoInvalid, s.From+" is not UTF-8, and the vendor takes only text")
	}
	switch m := v.(type) {
	case map[string]string:
		if len(m) == 0 && s.OmitZero {
			return nil, false, nil
		}
		return shaped(m, s), true, nil
	case []string:
		out := make([]any, len(m))
		for i, x := range m {
			out[i] = x
		}
		return out, true, nil
	case []int:
		out := make([]any, len(m))
		for i, x := range m {
			out[i] = json.Number(strconv.Itoa(x))
		}
		return out, true, nil
	}
	return v, true, nil
}

// jsonText reports whether every text in a host value can be written as JSON
// without being changed.
func jsonText(v any) bool {
	switch v := v.(type) {
	case string:
		return utf8.ValidString(v)
	case []string:
		return !slices.ContainsFunc(v, func(s string) bool { return !utf8.ValidString(s) })
	case map[string]string:
		for k, s := range v {
			if !utf8.ValidString(k) || !utf8.ValidString(s) {
				return false
			}
		}
	}
	return true
}

// inline reads content that goes into a JSON body.
func (c *Call) inline(from string) ([]byte, error) {
	if from == "exec.stdin" {
		if c.cfg.Exec == nil {
			return nil, failure(abi.ErrnoState, "there is no input in this operation")
		}
		return c.cfg.Exec.Input, nil
	}
	f := c.cfg.File
	if f == nil || f.Content == nil {
		return nil, failure(abi.ErrnoState, "there is no file content in this operation")
	}
	data, err := io.ReadAll(io.LimitReader(f.Content, maxBody+1))
	if err != nil {
		return nil, failure(abi.ErrnoIo, "reading the caller's content failed")
	}
	if len(data) > maxBody {
		return nil, failure(abi.ErrnoTooLarge, "the file is too large to be put into a JSON body")
	}
	return data, nil
}

func (c *Call) rawBody(s spec.Slot, out *rendered) error {
	if s.From == "file.content" && s.Encoding == "" {
		f := c.cfg.File
		if f == nil || f.Content == nil {
			return failure(abi.ErrnoState, "there is no file content in this operation")
		}
		out.stream = func() (io.Reader, int64, error) { return f.Content, f.Size, nil }
		return nil
	}
	v, ok, err := c.slotValue(s)
	if err != nil {
		return err
	}
	if ok {
		if t, isText := v.(string); isText {
			out.body = []byte(t)
		} else {
			out.body = encodeJSON(v)
		}
	}
	return nil
}

func (c *Call) multipartBody(r *spec.Route, out *rendered) error {
	f := c.cfg.File
	pr, pw := io.Pipe()
	w := multipart.NewWriter(pw)
	out.header.Set("Content-Type", w.FormDataContentType())
	out.stream = func() (io.Reader, int64, error) {
		go func() {
			err := func() error {
				for _, p := range r.Request.Parts {
					if p.From == "file.content" {
						if f == nil || f.Content == nil {
							return failure(abi.ErrnoState, "there is no file content in this operation")
						}
						name := p.Filename
						if name == "" {
							name = baseName(f.Path)
						}
						part, err := w.CreateFormFile(p.Name, name)
						if err != nil {
							return err
						}
						if _, err := io.Copy(part, f.Content); err != nil {
							return err
						}
						continue
					}
					v := p.Value
					if p.From != "" {
						hv, ok := c.hostValue(p.From)
						if !ok {
							continue
						}
						v = text(hv)
					}
					if err := w.WriteField(p.Name, v); err != nil {
						return err
					}
				}
				return w.Close()
			}()
			_ = pw.CloseWithError(err) // never fails
		}()
		return pr, -1, nil
	}
	return nil
}

// pluginBody takes a body that a plugin-driven plugin built and puts the
// environment into it.
func (c *Call) pluginBody(r *spec.Route, meta abi.HTTPMeta, body []byte, out *rendered) error {
	if len(body) > abi.MaxHTTPRequest {
		return failure(abi.ErrnoTooLarge, "the body is larger than "+strconv.Itoa(abi.MaxHTTPRequest)+" bytes")
	}
	out.header.Set("Content-Type", "application/json")
	if meta.Env == "" {
		out.body = bytes.Clone(body)
		return nil
	}
	doc, err := decodeJSON(body)
	if err != nil {
		return failure(abi.ErrnoInvalid, "the body is not JSON")
	}
	from := "environment"
	if r.Role == spec.RoleExec {
		from = "exec.environment"
	}
	v, ok := c.hostValue(from)
	if !ok {
		return failure(abi.ErrnoState, "there is no environment in this operation")
	}
	if err := insert(&doc, r.Request.EnvPointer, shaped(v.(map[string]string), spec.Slot{Shape: r.Request.EnvShape})); err != nil {
		return c.deny(r.ID, err.Error())
	}
	out.body = encodeJSON(doc)
	return nil
}

// newRequest makes the HTTP request.
func (q *rendered) newRequest(ctx context.Context) (*http.Request, error) {
	ctx = context.WithValue(ctx, allowPrivateKey{}, q.private)
	var body io.Reader
	length := int64(0)
	switch {
	case q.stream != nil:
		r, n, err := q.stream()
		if err != nil {
			return nil, err
		}
		// A pipe must be closed, or who writes to it would wait for ever; the
		// caller's own reader must not.
		if pipe, ok := r.(*io.PipeReader); ok {
			body, length = pipe, n
		} else {
			body, length = io.NopCloser(r), n
		}
	case q.body != nil:
		body, length = bytes.NewReader(q.body), int64(len(q.body))
	}
	req, err := http.NewRequestWithContext(ctx, q.method, q.url, body)
	if err != nil {
		return nil, failure(abi.ErrnoInvalid, "the request cannot be built")
	}
	req.ContentLength = length
	req.Header = q.header.Clone()
	return req, nil
}

package redact

import (
	"errors"
	"io"
	"net/http"
	"strings"
)

// ErrEncoded is returned by a Transport for a reply with a content encoding.
var ErrEncoded = errors.New("redact: the reply is compressed although identity was asked for; it cannot be searched for secrets")

// Transport returns a RoundTripper that masks what base's replies hold: body,
// header and trailer values, and errors. It asks for an unencoded body and
// refuses any other, and it drops the headers that describe the body's exact
// bytes. Requests go out as they are. A nil base is http.DefaultTransport.
func (r *Redactor) Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{r: r, base: base}
}

type transport struct {
	r    *Redactor
	base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	asked := req.Clone(req.Context())
	asked.Header.Set("Accept-Encoding", "identity")
	asked.Header.Del("Range") // part of a body could begin inside a secret
	resp, err := t.base.RoundTrip(asked)
	if err != nil {
		return nil, t.r.Error(err)
	}
	if e := resp.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		_ = resp.Body.Close()
		return nil, ErrEncoded
	}
	for _, h := range []string{"Content-Length", "Etag", "Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Accept-Ranges", "Content-Range"} {
		resp.Header.Del(h)
	}
	t.r.headers(resp.Header)
	resp.Status = t.r.String(resp.Status)
	resp.ContentLength = -1
	resp.Request = req
	body := &maskedBody{Reader: t.r.Reader(resp.Body), close: resp.Body.Close, done: func() { t.r.headers(resp.Trailer) }}
	if w, ok := resp.Body.(io.Writer); ok { // an upgraded connection
		resp.Body = &maskedConn{maskedBody: body, Writer: w}
	} else {
		resp.Body = body
	}
	return resp, nil
}

func (r *Redactor) headers(h http.Header) {
	for key, values := range h {
		for i, v := range values {
			values[i] = r.String(v)
		}
		if masked := r.String(key); masked != key {
			delete(h, key)
			h[masked] = values
		}
	}
}

type maskedBody struct {
	io.Reader
	close func() error
	done  func()
}

// Read implements io.Reader.
func (b *maskedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.done()
	}
	return n, err
}

// Close closes the reply's body.
func (b *maskedBody) Close() error { return b.close() }

type maskedConn struct {
	*maskedBody
	io.Writer
}

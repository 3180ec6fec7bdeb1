package egress_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
)

func upload() *egress.File {
	return &egress.File{Path: "/w/f", Content: strings.NewReader("content"), Size: -1, Sink: io.Discard}
}

// TestRedirectsAreShown: never followed, wherever they lead.
func TestRedirectsAreShown(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	for _, code := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			w := newWorld(t, manifest(t, "sealed"), func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", other.URL+"/x")
				w.WriteHeader(code)
			})
			s := w.session(session)
			c := w.call(abi.OpCreate, s, nil, nil)
			h, err := c.Open(t.Context(), []byte(meta("create", "")), nil)
			require.NoError(t, err)
			st, err := c.Status(h)
			require.NoError(t, err)
			assert.Equal(t, code, st)
			_, err = c.Header(h, "Location")
			isErrno(t, err, abi.ErrnoNotFound)
			assert.Len(t, w.requests(), 1)
			assert.Zero(t, elsewhere.Load())
		})
	}
}

// TestCookiesAndHeaders: no cookie comes back, and only declared headers are
// shown.
func TestCookiesAndHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manifest(t, "sealed"), func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "sid", Value: "x"})
		w.Header().Set("X-Info", "key "+credential)
		w.Header().Set("X-Other", "o")
		reply(w, 200, "{}")
	})
	s, err := w.b.Session(request(session), values(), "sb-000001")
	require.NoError(t, err)
	for range 2 {
		c := w.call(abi.OpStatus, s, nil, nil)
		h, err := c.Open(t.Context(), []byte(meta("get", "")), nil)
		require.NoError(t, err)
		v, err := c.Header(h, "x-info")
		require.NoError(t, err)
		assert.Equal(t, "[redacted:key]", v)
		for _, hidden := range []string{"X-Other", "Set-Cookie", "Date", ""} {
			_, err = c.Header(h, hidden)
			isErrno(t, err, abi.ErrnoNotFound)
		}
		assert.Empty(t, w.last().Header.Get("Cookie"))
	}
}

// TestNoProxyFromEnvironment needs the environment to itself.
func TestNoProxyFromEnvironment(t *testing.T) {
	var used atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { used.Add(1); reply(w, 200, "{}") }))
	defer proxy.Close()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	t.Setenv("NO_PROXY", "")
	b, err := egress.New(egress.Config{Manifest: manifest(t, "sealed"), Credentials: (&world{}).creds(), Origins: map[string]egress.OriginSetting{"api": {URL: "http://vendor.test", AllowPrivate: true}},
		Resolve: func(context.Context, string) ([]netip.Addr, error) { return nil, io.ErrUnexpectedEOF }})
	require.NoError(t, err)
	s, err := b.Session(request(session), values(), "sb-000001")
	require.NoError(t, err)
	c := b.Call(egress.CallConfig{Op: abi.OpStatus, Session: s})
	defer c.Close()
	_, err = c.Open(t.Context(), []byte(meta("get", "")), nil)
	isErrno(t, err, abi.ErrnoNetwork)
	assert.Zero(t, used.Load())
}

// TestPinning: a name is resolved once; what it resolves to the second time has
// no effect.
func TestPinning(t *testing.T) {
	t.Parallel()
	var right, wrong atomic.Int32
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		right.Add(1)
		w.Header().Set("Connection", "close")
		reply(w, 200, "{}")
	}))
	t.Cleanup(good.Close)
	_, port, err := net.SplitHostPort(good.Listener.Addr().String())
	require.NoError(t, err)
	evil, err := net.Listen("tcp", "127.0.0.2:"+port)
	require.NoError(t, err)
	bad := &httptest.Server{Listener: evil, Config: &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { wrong.Add(1); reply(w, 200, "{}") })}}
	bad.Start()
	t.Cleanup(bad.Close)
	var asked atomic.Int32
	b, err := egress.New(egress.Config{Manifest: manifest(t, "sealed"), Credentials: (&world{}).creds(), Origins: map[string]egress.OriginSetting{"api": {URL: "http://vendor.test:" + port, AllowPrivate: true}},
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			if asked.Add(1) == 1 {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, nil
		}})
	require.NoError(t, err)
	s, err := b.Session(request(session), values(), "sb-000001")
	require.NoError(t, err)
	for range 3 {
		c := b.Call(egress.CallConfig{Op: abi.OpStatus, Session: s})
		_, err = try(t, c, meta("get", ""))
		require.NoError(t, err)
		c.Close()
	}
	assert.EqualValues(t, 3, right.Load())
	assert.Zero(t, wrong.Load())
	assert.EqualValues(t, 1, asked.Load())
}

// TestPrivateAddresses: a name that leads anywhere but to the public internet is
// refused, also when only one of its addresses does.
func TestPrivateAddresses(t *testing.T) {
	t.Parallel()
	for addr, public := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "2606:4700::1111": true, "172.15.0.1": true, "172.32.0.1": true, "100.63.0.1": true, "100.128.0.1": true, "64:ff9b::808:808": true, "2002:808:808::1": true,
		"127.0.0.1": false, "127.255.0.1": false, "0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false,
		"169.254.169.254": false, "169.254.0.1": false, "100.64.0.1": false, "100.100.100.200": false, "168.63.129.16": false, "192.0.0.192": false, "192.0.2.1": false, "198.18.0.1": false, "198.51.100.1": false, "203.0.113.1": false,
		"224.0.0.1": false, "240.0.0.1": false, "255.255.255.255": false, "192.88.99.1": false,
		"::": false, "::1": false, "fe80::1": false, "fec0::1": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "2001:db8::1": false, "100::1": false, "3fff::1": false, "5f00::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::ffff:8.8.8.8": true, "::127.0.0.1": false, "::ffff:0:127.0.0.1": false,
		"64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::1": false, "2002:7f00:1::1": false, "2002:a9fe:a9fe::1": false, "2002:a00:1::1": false, "2001::1": false,
		"fe80::1%eth0": false,
	} {
		t.Run(addr, func(t *testing.T) {
			t.Parallel()
			a := netip.MustParseAddr(addr)
			assert.Equal(t, public, egress.Public(a))
			if public {
				return
			}
			for _, with := range [][]netip.Addr{{a}, {netip.MustParseAddr("8.8.8.8"), a}} {
				b, err := egress.New(egress.Config{Manifest: manifest(t, "sealed"), Credentials: (&world{}).creds(), Resolve: func(context.Context, string) ([]netip.Addr, error) { return with, nil }})
				require.NoError(t, err)
				s, err := b.Session(request(session), values(), "sb-000001")
				require.NoError(t, err)
				c := b.Call(egress.CallConfig{Op: abi.OpStatus, Session: s})
				_, err = c.Open(t.Context(), []byte(meta("get", "")), nil)
				denied(t, err, "not public")
				assert.NotNil(t, c.Denied())
				c.Close()
			}
		})
	}
	t.Run("a literal address", func(t *testing.T) {
		t.Parallel()
		b, err := egress.New(egress.Config{Manifest: manifest(t, "sealed"), Credentials: (&world{}).creds(), Origins: map[string]egress.OriginSetting{"api": {URL: "https://127.0.0.1:1"}}})
		require.NoError(t, err)
		s, err := b.Session(request(session), values(), "sb-000001")
		require.NoError(t, err)
		c := b.Call(egress.CallConfig{Op: abi.OpStatus, Session: s})
		defer c.Close()
		_, err = c.Open(t.Context(), []byte(meta("get", "")), nil)
		denied(t, err, "not public")
	})
	t.Run("allowed for one origin, not for another of the same name", func(t *testing.T) {
		t.Parallel()
		b, err := egress.New(egress.Config{
			Manifest: manifest(t, "sealed"), Credentials: (&world{}).creds(),
			Origins: map[string]egress.OriginSetting{"api": {URL: "https://vendor.test:1", AllowPrivate: true}, "data": {URL: "https://vendor.test:1"}},
			Resolve: func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			},
		})
		require.NoError(t, err)
		s, err := b.Session(request(session), values(), "sb-000001")
		require.NoError(t, err)
		b.Capture(s, "tok", token)
		c := b.Call(egress.CallConfig{Op: abi.OpExec, Session: s, Exec: command(io.Discard, io.Discard)})
		defer c.Close()
		_, err = c.Open(t.Context(), []byte(meta("get", "")), nil)
		isErrno(t, err, abi.ErrnoNetwork)
		_, err = c.Open(t.Context(), []byte(meta("start", "")), nil)
		denied(t, err, "not public")
	})
}

// TestTLS: certificates are checked, and nothing older than 1.2 is spoken.
func TestTLS(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, srv *httptest.Server, roots *x509.CertPool, host string) error {
		t.Helper()
		_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
		require.NoError(t, err)
		b, err := egress.New(egress.Config{Manifest: manifest(t, "sealed"), Credentials: (&world{}).creds(), TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS10}, //nolint:gosec // the broker must raise it
			Origins: map[string]egress.OriginSetting{"api": {URL: "https://" + host + ":" + port, AllowPrivate: true}},
			Resolve: func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}})
		require.NoError(t, err)
		s, err := b.Session(request(session), values(), "sb-000001")
		require.NoError(t, err)
		c := b.Call(egress.CallConfig{Op: abi.OpStatus, Session: s})
		defer c.Close()
		_, err = c.Open(t.Context(), []byte(meta("get", "")), nil)
		return err
	}
	server := func(t *testing.T, maxVersion uint16) (*httptest.Server, *x509.CertPool) {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(always(200, "{}")))
		srv.TLS = &tls.Config{MaxVersion: maxVersion, MinVersion: tls.VersionTLS10} //nolint:gosec // an old server is what is tested
		srv.Config.ErrorLog = quiet
		srv.StartTLS()
		t.Cleanup(srv.Close)
		roots := x509.NewCertPool()
		roots.AddCert(srv.Certificate())
		return srv, roots
	}
	srv, roots := server(t, 0)
	err := open(t, srv, roots, "example.com")
	for range 5 { // the broker gives a handshake ten seconds, however busy the machine
		if err == nil {
			break
		}
		err = open(t, srv, roots, "example.com")
	}
	require.NoError(t, err)
	isErrno(t, open(t, srv, x509.NewCertPool(), "example.com"), abi.ErrnoNetwork)
	isErrno(t, open(t, srv, roots, "example.org"), abi.ErrnoNetwork)
	old, roots := server(t, tls.VersionTLS11)
	isErrno(t, open(t, old, roots, "example.com"), abi.ErrnoNetwork)
}

func TestConfiguredAddresses(t *testing.T) {
	t.Parallel()
	for raw, ok := range map[string]bool{
		"https://vendor.example": true, "https://{sandbox}.vendor.example": true, "http://vendor.example": false, "https://u:p@vendor.example": false,
		"https://vendor.example?x=1": false, "https://vendor.example#x": false, "ftp://vendor.example": false, "vendor.example": false, "/x": false,
	} {
		_, err := egress.New(egress.Config{Manifest: manifest(t, "sealed"), Credentials: (&world{}).creds(), Origins: map[string]egress.OriginSetting{"api": {URL: raw}}})
		assert.Equal(t, ok, err == nil, "%s: %v", raw, err)
	}
	_, err := egress.New(egress.Config{Manifest: manifest(t, "sealed"), Credentials: (&world{}).creds(), Origins: map[string]egress.OriginSetting{"nope": {}}})
	require.Error(t, err)
	_, err = egress.New(egress.Config{Manifest: manifest(t, "sealed")})
	denied(t, err, "credential key has no source")
}

// TestEncodings: what cannot be looked through is refused.
func TestEncodings(t *testing.T) {
	t.Parallel()
	doc := `{"a":"` + canary + `"}`
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := io.WriteString(z, doc)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	var wide []byte
	for _, u := range utf16.Encode([]rune(doc)) {
		wide = binary.LittleEndian.AppendUint16(wide, u)
	}
	for name, tc := range map[string]struct {
		header http.Header
		status int
		body   []byte
		rule   string
		errno  abi.Errno
	}{
		"gzip":              {http.Header{"Content-Encoding": {"gzip"}}, 200, packed.Bytes(), "compressed", 0},
		"gzip second":       {http.Header{"Content-Encoding": {"identity", "gzip"}}, 200, packed.Bytes(), "compressed", 0},
		"gzip in an error":  {http.Header{"Content-Encoding": {"GZIP"}}, 500, packed.Bytes(), "compressed", 0},
		"br":                {http.Header{"Content-Encoding": {"br"}}, 200, []byte("x"), "compressed", 0},
		"gzip unannounced":  {nil, 200, packed.Bytes(), "", abi.ErrnoInvalid},
		"utf-16":            {http.Header{"Content-Type": {"application/json; charset=utf-16le"}}, 200, wide, "charset", 0},
		"utf-16, quoted":    {http.Header{"Content-Type": {`application/json; charset="UTF-16"`}}, 400, wide, "charset", 0},
		"latin-1":           {http.Header{"Content-Type": {"text/plain; charset=iso-8859-1"}}, 400, []byte("x"), "charset", 0},
		"malformed type":    {http.Header{"Content-Type": {"application/json; charset=utf-16; charset=utf-8"}}, 200, wide, "charset", 0},
		"utf-16 unlabelled": {nil, 200, wide, "", abi.ErrnoInvalid},
		"not UTF-8":         {nil, 200, []byte("{\"a\":\"\xff\"}"), "", abi.ErrnoInvalid},
		"duplicate member":  {nil, 200, []byte(`{"a":1,"a":"` + canary + `"}`), "", abi.ErrnoInvalid},
		"trailing document": {nil, 200, []byte(`{} {"a":"` + canary + `"}`), "", abi.ErrnoInvalid},
		"too deep":          {nil, 200, []byte(strings.Repeat("[", 100) + strings.Repeat("]", 100)), "", abi.ErrnoInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, manifest(t, "sealed"), func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tc.header {
					w.Header()[k] = v
				}
				w.WriteHeader(tc.status)
				_, _ = w.Write(tc.body)
			})
			q := request(session)
			s, err := w.b.Session(q, values("TOKEN", canary), "sb-000001")
			require.NoError(t, err)
			got, err := try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
			assert.Empty(t, got)
			if tc.rule != "" {
				denied(t, err, tc.rule)
			} else {
				isErrno(t, err, tc.errno)
			}
			clean(t, "error", fmt.Sprintf("%+v", err))
		})
	}
	for name, body := range map[string][]byte{"utf-16 in an error": wide, "gzip in an error": packed.Bytes(), "text": []byte("failed: TOKEN=" + canary)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, manifest(t, "sealed"), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/octet-stream")
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = w.Write(body)
			})
			s, err := w.b.Session(request(session), values("TOKEN", canary), "sb-000001")
			require.NoError(t, err)
			got, err := try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
			require.NoError(t, err)
			assert.Equal(t, egress.Redacted, got)
		})
	}
}

// TestSizes: complete bodies are bounded, streams are not.
func TestSizes(t *testing.T) {
	t.Parallel()
	big := func(n int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"x":"`)
			chunk := bytes.Repeat([]byte("ab \n"), 16<<10)
			for i := 0; i < n; i += len(chunk) {
				_, _ = w.Write(bytes.ReplaceAll(chunk, []byte("\n"), []byte(" ")))
			}
			_, _ = io.WriteString(w, `"}`)
		}
	}
	w := newWorld(t, manifest(t, "sealed", readRoute), big(9<<20))
	s, err := w.b.Session(request(session), values(), "sb-000001")
	require.NoError(t, err)
	w.b.Capture(s, "tok", token)
	_, err = try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
	isErrno(t, err, abi.ErrnoTooLarge)
	var n counter
	got, err := try(t, w.call(abi.OpRead, s, nil, &egress.File{Path: "/w/f", Sink: &n}), meta("read", ""))
	require.NoError(t, err)
	assert.EqualValues(t, (9<<20)+8, int(n))
	assert.Equal(t, fmt.Sprint(int(n)), got, "the guest sees the count alone")

	t.Run("handles", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, manifest(t, "sealed"), always(200, "{}"))
		s, err := w.b.Session(request(session), values(), "sb-000001")
		require.NoError(t, err)
		c := w.call(abi.OpStatus, s, nil, nil)
		for range abi.MaxHandles {
			_, err := c.Open(t.Context(), []byte(meta("get", "")), nil)
			require.NoError(t, err)
		}
		_, err = c.Open(t.Context(), []byte(meta("get", "")), nil)
		isErrno(t, err, abi.ErrnoLimit)
		require.NoError(t, c.CloseResponse(1))
		isErrno(t, c.CloseResponse(1), abi.ErrnoBadf)
		_, err = c.Status(1)
		isErrno(t, err, abi.ErrnoBadf)
		_, err = c.Open(t.Context(), []byte(meta("get", "")), nil)
		require.NoError(t, err)
		_, err = c.Status(999)
		isErrno(t, err, abi.ErrnoBadf)
		_, err = c.Status(-1)
		isErrno(t, err, abi.ErrnoBadf)
		c.Close()
		_, err = c.Status(2)
		isErrno(t, err, abi.ErrnoBadf)
	})
	t.Run("plugin body", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, driven(t), always(200, "{}"))
		s, err := w.b.Session(request(session), values(), "sb-000001")
		require.NoError(t, err)
		_, err = w.call(abi.OpStatus, s, nil, nil).Open(t.Context(), []byte(meta("plain", "")), make([]byte, abi.MaxHTTPRequest+1))
		isErrno(t, err, abi.ErrnoTooLarge)
	})
}

type counter int

func (c *counter) Write(b []byte) (int, error) { *c += counter(len(b)); return len(b), nil }

// TestErrorsHoldNoAddress: an address may hold what the plugin chose, or a token.
func TestErrorsHoldNoAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manifest(t, "sealed", statRoute), nil)
	s := w.running(session)
	w.then(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := try(t, w.call(abi.OpStat, s, nil, &egress.File{Path: "/w/secret-path"}), meta("stat", `,"query":{"depth":"1"}`))
	isErrno(t, err, abi.ErrnoNetwork)
	u, perr := url.Parse(w.srv.URL)
	require.NoError(t, perr)
	for _, text := range []string{"secret-path", u.Host, credential, token} {
		assert.NotContains(t, fmt.Sprintf("%+v", err), text)
	}
}

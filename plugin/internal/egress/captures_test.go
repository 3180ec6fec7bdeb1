package egress_test

import (
	"context"
	"io"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
)

// TestCaptures: tokens are taken out of replies, whatever the status and the
// type, and from then on hidden wherever else they appear.
func TestCaptures(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed")
	for name, tc := range map[string]struct {
		status     int
		body, want string
		kept       bool
	}{
		"text":         {201, `{"id":"sb-000001","token":"` + token + `"}`, `{"id":"sb-000001","token":"[captured:tok]"}`, true},
		"number":       {201, `{"id":"sb-000001","token":123456789012}`, `{"id":"sb-000001","token":"[captured:tok]"}`, true},
		"object":       {201, `{"id":"sb-000001","token":{"v":"` + token + `"}}`, `{"id":"sb-000001","token":"[captured:tok]"}`, false},
		"null":         {201, `{"id":"sb-000001","token":null}`, `{"id":"sb-000001","token":null}`, false},
		"absent":       {201, `{"id":"sb-000001"}`, `{"id":"sb-000001"}`, false},
		"empty":        {201, `{"id":"sb-000001","token":""}`, `{"id":"sb-000001","token":"[captured:tok]"}`, false},
		"in an error":  {409, `{"id":"sb-000001","token":"` + token + `","seen":"` + token + `"}`, `{"id":"sb-000001","token":"[captured:tok]","seen":"[redacted:tok]"}`, false},
		"repeated":     {201, `{"id":"sb-000001","token":"` + token + `","url":"https://x/?t=` + token + `"}`, `{"id":"sb-000001","token":"[captured:tok]","url":"[redacted:tok]"}`, true},
		"as a name":    {201, `{"id":"sb-000001","token":"` + token + `","` + token + `":1}`, `{"redacted":true}`, true},
		"environment":  {201, `{"id":"sb-000001","env":{"TOKEN":"` + canary + `"},"token":"x"}`, `{"id":"sb-000001","env":"[omitted]","token":"[captured:tok]"}`, true},
		"env in an ok": {201, `{"id":"sb-000001","echo":"TOKEN=` + canary + `"}`, `{"id":"sb-000001","echo":"[redacted:TOKEN]"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m, always(tc.status, tc.body))
			s := w.session(session)
			got, err := try(t, w.call(abi.OpCreate, s, nil, nil), meta("create", ""))
			require.NoError(t, err)
			assert.JSONEq(t, tc.want, got)
			clean(t, "the guest's view", got)
			if tc.status > 299 {
				return
			}
			w.then(always(200, "{}"))
			_, err = w.call(abi.OpExec, s, command(io.Discard, io.Discard), nil).Open(t.Context(), []byte(meta("start", "")), nil)
			if tc.kept {
				require.NoError(t, err)
				assert.NotEmpty(t, w.last().Header.Get("X-Token"))
			} else {
				isErrno(t, err, abi.ErrnoNoCapture)
			}
		})
	}
}

// TestRefusedCapture: a token that the vendor refuses is dropped, the plugin is
// told to get another, and the command has not been used up.
func TestRefusedCapture(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manifest(t, "sealed"), nil)
	s := w.running(session)
	w.then(always(401, `{"error":"token expired: `+token+`"}`))
	c := w.call(abi.OpExec, s, command(io.Discard, io.Discard), nil)
	_, err := c.Open(t.Context(), []byte(meta("start", "")), nil)
	isErrno(t, err, abi.ErrnoNoCapture)
	n := len(w.requests())
	_, err = c.Open(t.Context(), []byte(meta("start", "")), nil)
	isErrno(t, err, abi.ErrnoNoCapture)
	assert.Len(t, w.requests(), n, "without a token nothing is sent")
	w.b.Capture(s, "tok", "an0ther-token-99")
	w.then(always(200, "{}\n"))
	_, err = c.Open(t.Context(), []byte(meta("start", "")), nil)
	require.NoError(t, err)
	assert.Equal(t, "an0ther-token-99", w.last().Header.Get("X-Token"))
	// The old token is still one that must not be seen.
	w.then(always(200, `{"old":"`+token+`"}`))
	got, err := try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
	require.NoError(t, err)
	assert.JSONEq(t, `{"old":"[redacted:tok]"}`, got)
}

// TestCaptureScopes: a session's token is that session's; a plugin's is
// everybody's, and hidden from everybody.
func TestCaptureScopes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manifest(t, "sealed"), always(201, `{"id":"sb-000001","token":"`+token+`","shared":"sh4red-plugin-token-77"}`))
	a := w.running(session)
	w.then(always(200, `{"a":"sh4red-plugin-token-77","b":"`+token+`"}`))
	other, err := w.b.Session(request("ffffffffffffffffffffffffffffffff"), values(), "sb-000002")
	require.NoError(t, err)
	t.Cleanup(other.Close)
	_, err = w.call(abi.OpExec, other, command(io.Discard, io.Discard), nil).Open(t.Context(), []byte(meta("start", "")), nil)
	isErrno(t, err, abi.ErrnoNoCapture)
	got, err := try(t, w.call(abi.OpStatus, other, nil, nil), meta("get", ""))
	require.NoError(t, err)
	assert.JSONEq(t, `{"a":"[redacted:shared]","b":"[redacted:tok]"}`, got)
	a.Close()
	_, err = w.call(abi.OpExec, a, command(io.Discard, io.Discard), nil).Open(t.Context(), []byte(meta("start", "")), nil)
	isErrno(t, err, abi.ErrnoNoCapture)
}

// TestCapturedOrigin: an address out of a reply must be on the manifest's list.
func TestCapturedOrigin(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed", `{"id":"far","role":"control","origin":"far","method":"GET","path":"/x/{sandbox}","response":{"body":"json"}}`)
	for base, ok := range map[string]bool{
		"https://a.far.example.com":            true,
		"a.far.example.com":                    true,
		"https://A.FAR.example.com/base/":      true,
		"https://exact.example.com":            true,
		"https://far.example.com":              false,
		"https://a.b.far.example.com":          false,
		"https://.far.example.com":             false,
		"https://evil.example.org":             false,
		"https://a.far.example.com.evil.org":   false,
		"https://evil.org/.far.example.com":    false,
		"https://evil.org#.far.example.com":    false,
		"https://evil.org?x=.far.example.com":  false,
		"https://u:p@a.far.example.com":        false,
		"https://a.far.example.com:8443":       false,
		"http://a.far.example.com":             false,
		"https://a_b.far.example.com":          false,
		"https://xn--e1afmkfd.far.example.com": true,
		"file:///etc/passwd":                   false,
		"https://169.254.169.254":              false,
		"":                                     false,
	} {
		t.Run(base, func(t *testing.T) {
			t.Parallel()
			asked := ""
			b, err := egress.New(egress.Config{Manifest: m, Credentials: (&world{}).creds(), Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
				asked = host
				return nil, io.ErrUnexpectedEOF
			}})
			require.NoError(t, err)
			s, err := b.Session(request(session), values(), "sb-000001")
			require.NoError(t, err)
			if base != "" {
				b.Capture(s, "base", base)
			}
			c := b.Call(egress.CallConfig{Op: abi.OpStatus, Session: s})
			defer c.Close()
			_, err = c.Open(t.Context(), []byte(meta("far", "")), nil)
			switch {
			case base == "":
				isErrno(t, err, abi.ErrnoNoCapture)
			case ok:
				isErrno(t, err, abi.ErrnoNetwork) // it went as far as looking the name up
				assert.NotEmpty(t, asked)
				return
			default:
				var d *egress.Denied
				require.ErrorAs(t, err, &d)
				assert.Contains(t, d.Rule, "captured address")
			}
			assert.Empty(t, asked)
		})
	}
}

// TestSandboxOrigin: the id fills one DNS label and nothing else.
func TestSandboxOrigin(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed")
	for id, host := range map[string]string{"sb-000001": "sb-000001.data.example.com", "a.b": "", "a_b": "", "..": "-", "a/b": "-", "a b": "-", "": "", "x?y": "-"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			asked := ""
			b, err := egress.New(egress.Config{Manifest: m, Credentials: (&world{}).creds(), Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
				asked = host
				return nil, io.ErrUnexpectedEOF
			}})
			require.NoError(t, err)
			s, err := b.Session(request(session), values(), id)
			if host == "-" {
				denied(t, err, "plain identifier")
				return
			}
			require.NoError(t, err)
			b.Capture(s, "tok", token)
			c := b.Call(egress.CallConfig{Op: abi.OpExec, Session: s, Exec: command(io.Discard, io.Discard)})
			defer c.Close()
			_, err = c.Open(t.Context(), []byte(meta("start", "")), nil)
			require.Error(t, err)
			assert.Equal(t, host, asked)
			if host == "" {
				isErrno(t, err, abi.ErrnoState)
			}
		})
	}
}

// TestSandboxIdentity: the id comes from the create reply, belongs to one
// session, and does not change.
func TestSandboxIdentity(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed", inputRoute, signalRoute)
	w := newWorld(t, m, nil)
	a := w.running(session)
	assert.Equal(t, "sb-000001", a.Sandbox())

	b := w.session("ffffffffffffffffffffffffffffffff")
	_, err := try(t, w.call(abi.OpCreate, b, nil, nil), meta("create", "")) // the vendor gives the same id
	denied(t, err, "another session")
	assert.Empty(t, b.Sandbox())

	for name, body := range map[string]string{"climbing": `{"id":"../x"}`, "slash": `{"id":"a/b"}`, "line break": `{"id":"a\r\nb"}`, "dots": `{"id":".."}`, "long": `{"id":"` + longID + `"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m, always(201, body))
			_, err := try(t, w.call(abi.OpCreate, w.session(session), nil, nil), meta("create", ""))
			denied(t, err, "plain identifier")
		})
	}
	for name, body := range map[string]string{"number": `{"id":7}`, "absent": `{}`, "null": `{"id":null}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m, always(201, body))
			_, err := try(t, w.call(abi.OpCreate, w.session(session), nil, nil), meta("create", ""))
			isErrno(t, err, abi.ErrnoInvalid)
		})
	}

	// Another session's id in what the plugin writes, also under an encoding.
	for name, given := range map[string]string{"raw": "sb-000001", "in a text": "x-sb-000001", "percent": "sb%2D000001", "JSON": `sb\\u002d000001`, "twice percent": "sb%252D000001"} {
		t.Run(name, func(t *testing.T) {
			s, err := w.b.Session(request("ffffffffffffffffffffffffffffff00"), values(), "sb-000777")
			require.NoError(t, err)
			defer s.Close()
			w.b.Capture(s, "tok", token)
			_, err = try(t, w.call(abi.OpSignal, s, command(io.Discard, io.Discard), nil), meta("signal", `,"params":{"pid":"`+given+`"}`))
			var d *egress.Denied
			require.ErrorAs(t, err, &d)
		})
	}

	t.Run("opened again", func(t *testing.T) {
		again, err := w.b.Session(request(session), values(), "sb-000001")
		require.NoError(t, err, "another look at the same session")
		again.Close()
		_, err = w.b.Session(request("ffffffffffffffffffffffffffffffff"), values(), "sb-000001")
		require.NoError(t, err, "closed: nobody claims it")
	})
}

const longID = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

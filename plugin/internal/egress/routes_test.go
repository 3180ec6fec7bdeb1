package egress_test

import (
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
	"github.com/sbxhost/sbxhost/provider"
)

const (
	inputRoute  = `{"id":"input","role":"exec","origin":"data","method":"POST","path":"/input","request":{"body":"json","slots":[{"pointer":"/in","from":"exec.stdin","encoding":"base64"}],"free":[{"pointer":"/pid","type":"integer","min":1,"max":9},{"pointer":"/mode","type":"string","enum":["a","b"],"optional":true},{"pointer":"/on","type":"boolean","optional":true}]}}`
	signalRoute = `{"id":"signal","role":"exec","origin":"data","method":"POST","path":"/signal/{pid}","params":{"pid":{"free":{"type":"string","maxLength":16}}},"request":{"body":"none"}}`
	readRoute   = `{"id":"read","role":"file","origin":"data","method":"GET","path":"/files/{p...}","params":{"p":{"from":"file.path"}},"response":{"body":"raw","payload":[{"to":"content"}]}}`
	writeRoute  = `{"id":"write","role":"file","origin":"data","method":"PUT","path":"/files","query":{"path":{"from":"file.path"}},"request":{"body":"raw","slots":[{"pointer":"","from":"file.content"}]}}`
	statRoute   = `{"id":"stat","role":"file","origin":"data","method":"GET","path":"/stat","query":{"path":{"from":"file.path"},"depth":{"free":{"type":"integer","min":0,"max":3}},"page":{"free":{"type":"string","maxLength":8,"optional":true}}},"response":{"body":"json"}}`
)

// TestRolesBelongToOperations: what a route may do is decided by the operation
// in which it is used.
func TestRolesBelongToOperations(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed", inputRoute, signalRoute, readRoute, writeRoute, statRoute)
	ops := []abi.Op{abi.OpCreate, abi.OpStatus, abi.OpExec, abi.OpInput, abi.OpResize, abi.OpSignal, abi.OpRead, abi.OpWrite, abi.OpListDir, abi.OpStat, abi.OpRemove, abi.OpMkdir, abi.OpPause, abi.OpResume, abi.OpDestroy, abi.OpPort}
	files := []abi.Op{abi.OpRead, abi.OpWrite, abi.OpListDir, abi.OpStat, abi.OpRemove, abi.OpMkdir}
	for route, allowed := range map[string][]abi.Op{
		"create": {abi.OpCreate},
		"start":  {abi.OpExec},
		"input":  {abi.OpExec, abi.OpInput},
		"signal": {abi.OpExec, abi.OpInput, abi.OpResize, abi.OpSignal},
		"read":   files,
		"write":  {abi.OpWrite},
		"stat":   files,
		"get":    ops,
	} {
		for _, op := range ops {
			t.Run(route+"/"+op.String(), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, m, nil)
				s := w.session(session)
				c := w.call(op, s, command(io.Discard, io.Discard), nil)
				_, err := try(t, c, meta(route, ``))
				var d *egress.Denied
				if !slices.Contains(allowed, op) {
					require.ErrorAs(t, err, &d, "must be refused")
					assert.Contains(t, d.Rule, "cannot be used in "+op.String())
					assert.Empty(t, w.requests(), "nothing may be sent")
					return
				}
				if err != nil {
					assert.NotErrorAs(t, err, &d, "is allowed, whatever else may be missing")
				}
			})
		}
	}
	t.Run("unknown route", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, m, nil)
		_, err := try(t, w.call(abi.OpStatus, w.session(session), nil, nil), meta("nope", ""))
		denied(t, err, "no such route")
	})
}

// TestValuesTravelOnProtectedRoutesOnly: a route that could carry the
// environment but is not named in protectedTransport gets none of it.
func TestValuesTravelOnProtectedRoutesOnly(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed",
		`{"id":"other","role":"create","origin":"api","method":"POST","path":"/elsewhere","request":{"body":"json","slots":[{"pointer":"/env","from":"environment","shape":"map"}]},"response":{"body":"json","sandbox":"/id"}}`,
		`{"id":"otherexec","role":"exec","origin":"data","method":"POST","path":"/elsewhere","request":{"body":"json","slots":[{"pointer":"/env","from":"exec.environment","shape":"map"},{"pointer":"/argv","from":"exec.argv"}]},"response":{"body":"none"}}`)
	w := newWorld(t, m, nil)
	_, err := try(t, w.call(abi.OpCreate, w.session(session), nil, nil), meta("other", ""))
	denied(t, err, "protected transport")
	assert.Empty(t, w.requests())

	s := w.running(session)
	n := len(w.requests())
	_, err = try(t, w.call(abi.OpExec, s, command(io.Discard, io.Discard), nil), meta("otherexec", ""))
	denied(t, err, "protected transport")
	e := command(io.Discard, io.Discard)
	e.Protected, e.Secrets = values(), values("MINE", "r3quest-scoped-value-Zq81")
	_, err = try(t, w.call(abi.OpExec, s, e, nil), meta("otherexec", ""))
	denied(t, err, "protected transport")
	assert.Len(t, w.requests(), n)

	// Without values the route is one like any other.
	e = command(io.Discard, io.Discard)
	e.Protected = values()
	_, err = try(t, w.call(abi.OpExec, s, e, nil), meta("otherexec", ""))
	require.NoError(t, err)
	assert.JSONEq(t, `{"argv":["echo","hi"],"env":{"L":"1"}}`, w.last().Body)
}

// TestFreeFields: typed, bounded, and the only thing a sealed plugin writes.
func TestFreeFields(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed", inputRoute)
	for name, tc := range map[string]struct {
		meta, want, rule string
		errno            abi.Errno
	}{
		"good":             {meta: `,"free":{"/pid":5,"/mode":"b","/on":true}`, want: `{"in":"aGk=","pid":5,"mode":"b","on":true}`},
		"optional absent":  {meta: `,"free":{"/pid":9}`, want: `{"in":"aGk=","pid":9}`},
		"missing":          {meta: ``, errno: abi.ErrnoInvalid},
		"below":            {meta: `,"free":{"/pid":0}`, rule: "out of range"},
		"above":            {meta: `,"free":{"/pid":10}`, rule: "out of range"},
		"fraction":         {meta: `,"free":{"/pid":1.5}`, rule: "integer"},
		"exponent":         {meta: `,"free":{"/pid":1e1}`, rule: "integer"},
		"huge":             {meta: `,"free":{"/pid":99999999999999999999}`, rule: "integer"},
		"text for integer": {meta: `,"free":{"/pid":"1"}`, rule: "integer"},
		"object":           {meta: `,"free":{"/pid":{"x":1}}`, rule: "integer"},
		"not in the enum":  {meta: `,"free":{"/pid":1,"/mode":"c"}`, rule: "approved values"},
		"enum by number":   {meta: `,"free":{"/pid":1,"/mode":1}`, rule: "string"},
		"text for boolean": {meta: `,"free":{"/pid":1,"/on":"true"}`, rule: "true or false"},
		"a slot":           {meta: `,"free":{"/pid":1,"/in":"cm0="}`, rule: "not the plugin's to fill"},
		"under a slot":     {meta: `,"free":{"/pid":1,"/in/x":1}`, rule: "not the plugin's to fill"},
		"another spelling": {meta: `,"free":{"/pid":1,"/IN":"x"}`, rule: "not the plugin's to fill"},
		"escaped spelling": {meta: `,"free":{"/pid":1,"/i~0n":"x"}`, rule: "not the plugin's to fill"},
		"root":             {meta: `,"free":{"/pid":1,"":{"in":"x"}}`, rule: "not the plugin's to fill"},
		"an array":         {meta: `,"free":[1]`, errno: abi.ErrnoInvalid},
		"twice":            {meta: `,"free":{"/pid":1,"/pid":2}`, errno: abi.ErrnoInvalid},
		"a parameter":      {meta: `,"free":{"/pid":1},"params":{"x":"1"}`, rule: "path parameter"},
		"a query":          {meta: `,"free":{"/pid":1},"query":{"x":"1"}`, rule: "query parameter"},
		"a handle":         {meta: `,"free":{"/pid":1},"env":"env_00"`, rule: "filled in by the host"},
		"an unknown field": {meta: `,"free":{"/pid":1},"headers":{"Host":"x"}`, errno: abi.ErrnoInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m, nil)
			s := w.running(session)
			e := command(io.Discard, io.Discard)
			e.Input = []byte("hi")
			n := len(w.requests())
			_, err := try(t, w.call(abi.OpInput, s, e, nil), meta("input", tc.meta))
			switch {
			case tc.rule != "":
				denied(t, err, tc.rule)
			case tc.errno != 0:
				isErrno(t, err, tc.errno)
			default:
				require.NoError(t, err)
				assert.JSONEq(t, tc.want, w.last().Body)
				return
			}
			assert.Len(t, w.requests(), n, "nothing may be sent")
		})
	}
	t.Run("a body", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, m, nil)
		s := w.running(session)
		_, err := w.call(abi.OpInput, s, command(io.Discard, io.Discard), nil).Open(t.Context(), []byte(meta("input", `,"free":{"/pid":1}`)), []byte(`{"in":"x"}`))
		denied(t, err, "written by the host")
	})
}

// TestPathParameters: one segment is one segment.
func TestPathParameters(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed", signalRoute)
	for name, tc := range map[string]struct{ value, want, rule string }{
		"plain":            {value: "12", want: "/data/sb-000001/signal/12"},
		"escaped":          {value: "a b?c#d%", want: "/data/sb-000001/signal/a%20b%3Fc%23d%25"},
		"encoded dots":     {value: "%2e%2e", want: "/data/sb-000001/signal/%252e%252e"},
		"encoded slash":    {value: "a%2fb", want: "/data/sb-000001/signal/a%252fb"},
		"matrix parameter": {value: "..;x", want: "/data/sb-000001/signal/..%3Bx"},
		"backslash":        {value: `..\\..`, want: `/data/sb-000001/signal/..%5C..`},
		"slash":            {value: "a/b", rule: "plain segment"},
		"dot":              {value: ".", rule: "plain segment"},
		"dot dot":          {value: "..", rule: "plain segment"},
		"climbing":         {value: "../../x", rule: "plain segment"},
		"line break":       {value: `a\r\nX: y`, rule: "line break"},
		"newline":          {value: `a\nb`, rule: "line break"},
		"NUL":              {value: `a\u0000`, rule: "line break"},
		"too long":         {value: "12345678901234567", rule: "longer"},
		"empty":            {value: "", rule: "plain segment"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m, nil)
			s := w.running(session)
			n := len(w.requests())
			_, err := try(t, w.call(abi.OpSignal, s, command(io.Discard, io.Discard), nil), meta("signal", `,"params":{"pid":"`+tc.value+`"}`))
			if tc.rule != "" {
				denied(t, err, tc.rule)
				assert.Len(t, w.requests(), n)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, w.last().URI)
		})
	}
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, m, nil)
		_, err := try(t, w.call(abi.OpSignal, w.running(session), command(io.Discard, io.Discard), nil), meta("signal", ""))
		isErrno(t, err, abi.ErrnoInvalid)
	})
	t.Run("the sandbox", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, m, nil)
		_, err := try(t, w.call(abi.OpStatus, w.running(session), nil, nil), meta("get", `,"params":{"sandbox":"sb-000002"}`))
		denied(t, err, "not the plugin's to fill")
	})
	t.Run("file path", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, manifest(t, "sealed", readRoute), nil)
		s := w.running(session)
		for p, want := range map[string]string{"/w/a b": "/data/sb-000001/files/w/a%20b", "/w/é/..x": "/data/sb-000001/files/w/%C3%A9/..x"} {
			_, err := try(t, w.call(abi.OpRead, s, nil, &egress.File{Path: p, Sink: io.Discard}), meta("read", ""))
			require.NoError(t, err)
			assert.Equal(t, want, w.last().URI)
		}
		for _, p := range []string{"/w/../x", "/w//x", "/w/./x", "/"} {
			_, err := try(t, w.call(abi.OpRead, s, nil, &egress.File{Path: p, Sink: io.Discard}), meta("read", ""))
			denied(t, err, "plain segment")
		}
	})
}

func TestQueryParameters(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed", statRoute)
	for name, tc := range map[string]struct{ query, want, rule string }{
		"good":       {query: `{"depth":"2"}`, want: "/data/sb-000001/stat?depth=2&path=%2Fw%2Fa+b%26c%3Dd"},
		"with page":  {query: `{"depth":"2","page":"a&b=c"}`, want: "/data/sb-000001/stat?depth=2&page=a%26b%3Dc&path=%2Fw%2Fa+b%26c%3Dd"},
		"range":      {query: `{"depth":"4"}`, rule: "out of range"},
		"no number":  {query: `{"depth":"x"}`, rule: "integer"},
		"a slot":     {query: `{"depth":"1","path":"/etc"}`, rule: "not the plugin's to fill"},
		"undeclared": {query: `{"depth":"1","token":"x"}`, rule: "not the plugin's to fill"},
		"line break": {query: `{"depth":"1","page":"a\r\nb"}`, rule: "line break"},
		"too long":   {query: `{"depth":"1","page":"123456789"}`, rule: "longer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m, nil)
			s := w.running(session)
			_, err := try(t, w.call(abi.OpStat, s, nil, &egress.File{Path: "/w/a b&c=d"}), meta("stat", `,"query":`+tc.query))
			if tc.rule != "" {
				denied(t, err, tc.rule)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, w.last().URI)
		})
	}
}

// TestHeadersAndCredentials: each origin gets its own headers and no others'.
func TestHeadersAndCredentials(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed", `{"id":"h","role":"control","origin":"api","method":"POST","path":"/h/{sandbox}","headers":[{"name":"X-Sandbox","from":"sandbox"},{"name":"X-Size","config":"size"},{"name":"X-Tag","config":"tag"},{"name":"X-Const","value":"c"}]}`)
	w := newWorld(t, m, nil)
	s := w.running(session)
	create := w.last()
	assert.Equal(t, "Bearer "+credential, create.Header.Get("X-Key"))
	assert.Empty(t, create.Header.Get("X-Token"), "a capture does not go to the fixed origin")
	_, err := try(t, w.call(abi.OpStatus, s, nil, nil), meta("h", ""))
	require.NoError(t, err)
	h := w.last().Header
	assert.Equal(t, "sb-000001", h.Get("X-Sandbox"))
	assert.Equal(t, "7", h.Get("X-Size"))
	assert.Equal(t, "c", h.Get("X-Const"))
	assert.NotContains(t, h, "X-Tag", "a setting that is not set is not sent")
	assert.Equal(t, "identity", h.Get("Accept-Encoding"))
	_, err = w.call(abi.OpExec, s, command(io.Discard, io.Discard), nil).Open(t.Context(), []byte(meta("start", "")), nil)
	require.NoError(t, err)
	exec := w.last()
	assert.Equal(t, token, exec.Header.Get("X-Token"))
	assert.Empty(t, exec.Header.Get("X-Key"), "a credential does not go to a sandbox's origin")

	t.Run("line break in a setting", func(t *testing.T) {
		t.Parallel()
		b, err := egress.New(egress.Config{Manifest: m, Credentials: w.creds(), Settings: map[string]string{"tag": "a\r\nX-Evil: 1"}, Origins: map[string]egress.OriginSetting{"api": {URL: w.srv.URL, AllowPrivate: true}}})
		require.NoError(t, err)
		s, err := b.Session(request(session), values(), "sb-000009")
		require.NoError(t, err)
		c := b.Call(egress.CallConfig{Op: abi.OpStatus, Session: s})
		defer c.Close()
		_, err = try(t, c, meta("h", ""))
		denied(t, err, "line break")
	})
}

// TestApplied: whether an action may have happened follows from what was sent.
func TestApplied(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed")
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		want   provider.Applied
		again  bool // the right to create is given back
	}{
		"created":      {always(201, `{"id":"sb-1"}`), provider.AppliedYes, false},
		"no id":        {always(201, `{}`), provider.AppliedYes, false},
		"refused":      {always(400, `{}`), provider.AppliedNo, true},
		"conflict":     {always(409, `{}`), provider.AppliedNo, true},
		"timeout":      {always(408, `{}`), provider.AppliedUnknown, false},
		"redirect":     {always(303, `{}`), provider.AppliedUnknown, false},
		"server error": {always(500, `{}`), provider.AppliedUnknown, false},
		"gateway":      {always(502, `{}`), provider.AppliedUnknown, false},
		"dropped":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, provider.AppliedUnknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m, tc.answer)
			c := w.call(abi.OpCreate, w.session(session), nil, nil)
			_, _ = try(t, c, meta("create", "")) //nolint:errcheck // the consequence is what is looked at
			assert.Equal(t, tc.want, c.Applied())
			n := len(w.requests())
			_, err := try(t, c, meta("create", ""))
			if !tc.again {
				denied(t, err, "already sent once")
				assert.Len(t, w.requests(), n)
				return
			}
			var d *egress.Denied
			assert.NotErrorAs(t, err, &d)
			assert.Len(t, w.requests(), n+1)
		})
	}
	t.Run("nothing sent", func(t *testing.T) {
		t.Parallel()
		// A port that no program is given by chance: one that was closed may be
		// another test's by now.
		b, err := egress.New(egress.Config{Manifest: m, Credentials: (&world{}).creds(), Origins: map[string]egress.OriginSetting{"api": {URL: "http://127.0.0.1:1", AllowPrivate: true}}})
		require.NoError(t, err)
		s, err := b.Session(request(session), values("TOKEN", canary), "")
		require.NoError(t, err)
		c := b.Call(egress.CallConfig{Op: abi.OpCreate, Session: s})
		defer c.Close()
		_, err = try(t, c, meta("create", ""))
		isErrno(t, err, abi.ErrnoNetwork)
		assert.Equal(t, provider.AppliedNo, c.Applied())
	})
}

// TestSingleUse: five definite refusals give the right back, the sixth does not.
func TestSingleUse(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed", inputRoute, writeRoute)
	w := newWorld(t, m, always(400, `{}`))
	c := w.call(abi.OpCreate, w.session(session), nil, nil)
	for i := range 6 {
		_, err := try(t, c, meta("create", ""))
		require.NoError(t, err, "attempt %d", i)
	}
	_, err := try(t, c, meta("create", ""))
	denied(t, err, "already sent once")
	assert.Len(t, w.requests(), 6)

	t.Run("a second call of the same session", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, m, nil)
		s := w.running(session)
		_, err := try(t, w.call(abi.OpCreate, s, nil, nil), meta("create", ""))
		denied(t, err, "already sent once")
	})
	t.Run("command", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, m, nil)
		s := w.running(session)
		w.then(func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, "{\"end\":1}\n") })
		c := w.call(abi.OpExec, s, command(io.Discard, io.Discard), nil)
		_, err := c.Open(t.Context(), []byte(meta("start", "")), nil)
		require.NoError(t, err)
		_, err = c.Open(t.Context(), []byte(meta("start", "")), nil)
		denied(t, err, "already sent once")
		e := command(io.Discard, io.Discard)
		e.Input = []byte("x")
		for _, op := range []abi.Op{abi.OpInput, abi.OpSignal, abi.OpResize} {
			_, err = try(t, w.call(op, s, e, nil), meta("start", ""))
			denied(t, err, "starts a command")
		}
		// Input is another right.
		_, err = try(t, c, meta("input", `,"free":{"/pid":1}`))
		require.NoError(t, err)
		_, err = try(t, c, meta("input", `,"free":{"/pid":1}`))
		denied(t, err, "already sent once")
	})
}

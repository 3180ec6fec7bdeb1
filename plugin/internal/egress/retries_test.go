package egress_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
)

// TestRetries: the host repeats a request only where nothing was sent or the
// vendor can tell a repetition.
func TestRetries(t *testing.T) {
	t.Parallel()
	retry := `"retry":{"status":[429,503],"max":2}`
	m := manifest(t, "sealed",
		`{"id":"rget","role":"control","origin":"api","method":"GET","path":"/r/{sandbox}","response":{"body":"json"},`+retry+`}`,
		`{"id":"rdelete","role":"control","origin":"api","method":"DELETE","path":"/r/{sandbox}",`+retry+`}`,
		`{"id":"rpost","role":"control","origin":"api","method":"POST","path":"/r/{sandbox}",`+retry+`}`,
		`{"id":"rkeyed","role":"control","origin":"api","method":"POST","path":"/r/{sandbox}","idempotency":{"header":"X-Request-Id","key":"session"},`+retry+`}`,
		`{"id":"rexec","role":"exec","origin":"api","method":"PUT","path":"/r/{sandbox}","request":{"body":"json","slots":[{"pointer":"/a","from":"exec.argv"}]},`+retry+`}`,
		`{"id":"rexeckeyed","role":"exec","origin":"api","method":"POST","path":"/r/{sandbox}","request":{"body":"json","slots":[{"pointer":"/a","from":"exec.argv"}]},"idempotency":{"header":"X-Request-Id","key":"exec"},`+retry+`}`,
		`{"id":"rupload","role":"file","origin":"api","method":"PUT","path":"/r/{sandbox}","request":{"body":"raw","slots":[{"pointer":"","from":"file.content"}]},`+retry+`}`,
		`{"id":"once","role":"control","origin":"api","method":"GET","path":"/r/{sandbox}","response":{"body":"json"}}`)
	status := func(n int) func(http.ResponseWriter) { return func(w http.ResponseWriter) { reply(w, n, "{}") } }
	drop := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	for name, tc := range map[string]struct {
		route string
		first func(http.ResponseWriter)
		sent  int // the vendor recovers after the first answer
	}{
		"get, too many":           {"rget", status(429), 2},
		"get, unavailable":        {"rget", status(503), 2},
		"get, other error":        {"rget", status(500), 1},
		"get, dropped":            {"rget", drop, 2},
		"delete, dropped":         {"rdelete", drop, 2},
		"post, too many":          {"rpost", status(429), 2},
		"post, unavailable":       {"rpost", status(503), 1},
		"post, dropped":           {"rpost", drop, 1},
		"keyed post, unavailable": {"rkeyed", status(503), 2},
		"keyed post, dropped":     {"rkeyed", drop, 2},
		"exec by put, dropped":    {"rexec", drop, 1},
		"exec by put, 503":        {"rexec", status(503), 1},
		"exec by put, 429":        {"rexec", status(429), 2},
		"keyed exec, dropped":     {"rexeckeyed", drop, 2},
		"upload, 503":             {"rupload", status(503), 1},
		"not declared":            {"once", status(429), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			w := newWorld(t, m, func(w http.ResponseWriter, _ *http.Request) {
				if n.Add(1) == 1 {
					tc.first(w)
					return
				}
				reply(w, 200, "{}")
			})
			q := request(session)
			s, err := w.b.Session(q, values(), "sb-000001")
			require.NoError(t, err)
			e := command(io.Discard, io.Discard)
			e.Protected = values()
			op := map[string]abi.Op{"rexec": abi.OpExec, "rexeckeyed": abi.OpExec, "rupload": abi.OpWrite}[tc.route]
			if op == 0 {
				op = abi.OpStatus
			}
			_, _ = w.call(op, s, e, upload()).Open(t.Context(), []byte(meta(tc.route, "")), nil) //nolint:errcheck // what was sent is the point
			got := w.requests()
			assert.Len(t, got, tc.sent)
			if tc.route == "rkeyed" {
				for _, r := range got {
					assert.Equal(t, session+"-a1", r.Header.Get("X-Request-Id"))
				}
			}
			if tc.route == "rexeckeyed" {
				for _, r := range got {
					assert.Equal(t, "e1", r.Header.Get("X-Request-Id"))
				}
			}
		})
	}
	t.Run("bounded", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, m, always(429, "{}"))
		s, err := w.b.Session(request(session), values(), "sb-000001")
		require.NoError(t, err)
		c := w.call(abi.OpStatus, s, nil, nil)
		h, err := c.Open(t.Context(), []byte(meta("rget", "")), nil)
		require.NoError(t, err)
		st, err := c.Status(h)
		require.NoError(t, err)
		assert.Equal(t, 429, st)
		assert.Len(t, w.requests(), 3)
	})
	t.Run("Retry-After", func(t *testing.T) {
		t.Parallel()
		var n atomic.Int32
		w := newWorld(t, m, func(w http.ResponseWriter, _ *http.Request) {
			if n.Add(1) == 1 {
				w.Header().Set("Retry-After", "1")
				reply(w, 429, "{}")
				return
			}
			reply(w, 200, "{}")
		})
		s, err := w.b.Session(request(session), values(), "sb-000001")
		require.NoError(t, err)
		start := time.Now()
		_, err = try(t, w.call(abi.OpStatus, s, nil, nil), meta("rget", ""))
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(start), time.Second)
	})
	t.Run("cancelled while waiting", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, m, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "30")
			reply(w, 429, "{}")
		})
		s, err := w.b.Session(request(session), values(), "sb-000001")
		require.NoError(t, err)
		// The best of some counts: the machine may be busy.
		for try := 0; ; try++ {
			start := time.Now()
			_, err = w.call(abi.OpStatus, s, nil, nil).Open(ctxFor(t, 2*time.Second), []byte(meta("rget", "")), nil)
			isErrno(t, err, abi.ErrnoDeadline)
			if took := time.Since(start); took < 25*time.Second || !assert.Less(t, try, 5, "it took %v", took) {
				return
			}
		}
	})
}

package egress_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
)

// envelope is one Connect message.
func envelope(flags byte, msg string) string {
	head := [5]byte{flags}
	binary.BigEndian.PutUint32(head[1:], uint32(len(msg))) //nolint:gosec // short
	return string(head[:]) + msg
}

// TestFramings reads each framing to its proper end, and recognises every other
// end.
func TestFramings(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kind, body string
		want       []string
		errno      abi.Errno
		rule       string
	}{
		"connect":                    {"connect", envelope(0, `{"a":1}`) + envelope(0, `{"a":2}`) + envelope(2, `{}`), []string{`{"a":1}`, `{"a":2}`}, 0, ""},
		"connect, empty":             {"connect", envelope(2, `{}`), nil, 0, ""},
		"connect, metadata at end":   {"connect", envelope(2, `{"metadata":{"x":["y"]}}`), nil, 0, ""},
		"connect, error end":         {"connect", envelope(0, `{"a":1}`) + envelope(2, `{"error":{"code":"internal"}}`), []string{`{"a":1}`, `{"end":{"error":{"code":"internal"}}}`}, 0, ""},
		"connect, no end":            {"connect", envelope(0, `{"a":1}`), []string{`{"a":1}`}, abi.ErrnoTruncated, ""},
		"connect, nothing":           {"connect", "", nil, abi.ErrnoTruncated, ""},
		"connect, cut head":          {"connect", envelope(0, `{"a":1}`)[:3], nil, abi.ErrnoTruncated, ""},
		"connect, cut message":       {"connect", envelope(0, `{"a":1}`)[:8], nil, abi.ErrnoTruncated, ""},
		"connect, compressed":        {"connect", envelope(1, `{"a":1}`), nil, 0, "compressed"},
		"connect, compressed end":    {"connect", envelope(3, `{}`), nil, 0, "compressed"},
		"connect, unknown flag":      {"connect", envelope(4, `{}`), nil, abi.ErrnoInvalid, ""},
		"connect, high flag":         {"connect", envelope(0x80, `{}`), nil, abi.ErrnoInvalid, ""},
		"connect, not JSON":          {"connect", envelope(0, `a`), nil, abi.ErrnoInvalid, ""},
		"connect, duplicate members": {"connect", envelope(0, `{"a":1,"a":2}`), nil, abi.ErrnoInvalid, ""},
		"connect, huge":              {"connect", "\x00\xff\xff\xff\xff", nil, abi.ErrnoTooLarge, ""},
		"ndjson":                     {"ndjson", "{\"a\":1}\r\n\n  {\"a\":2}\n", []string{`{"a":1}`, `{"a":2}`}, 0, ""},
		"ndjson, last unended":       {"ndjson", "{\"a\":1}\n{\"a\":2}", []string{`{"a":1}`, `{"a":2}`}, 0, ""},
		"ndjson, cut":                {"ndjson", "{\"a\":1}\n{\"a\":", []string{`{"a":1}`}, abi.ErrnoTruncated, ""},
		"ndjson, bad line":           {"ndjson", "{\"a\":1}\nx\n{\"a\":2}\n", []string{`{"a":1}`}, abi.ErrnoInvalid, ""},
		"ndjson, two on a line":      {"ndjson", "{} {}\n", nil, abi.ErrnoInvalid, ""},
		"sse":                        {"sse", ": hello\nevent: x\nid: 7\ndata: {\"a\":1}\n\ndata: b\ndata: c\n\n", []string{`{"data":{"a":1},"event":"x","id":"7"}`, `{"data":"b\nc"}`}, 0, ""},
		"sse, CR LF":                 {"sse", "data: 1\r\n\r\n", []string{`{"data":1}`}, 0, ""},
		"sse, no blank line":         {"sse", "data: 1\n", nil, abi.ErrnoTruncated, ""},
		"sse, cut line":              {"sse", "data: 1\n\ndata: {\"a", []string{`{"data":1}`}, abi.ErrnoTruncated, ""},
		"sse, empty":                 {"sse", "", nil, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := manifest(t, "sealed", `{"id":"f","role":"exec","origin":"data","method":"POST","path":"/f","request":{"body":"json","slots":[{"pointer":"/a","from":"exec.argv"}]},"response":{"body":"`+tc.kind+`","payload":[{"pointer":"/out","to":"stdout"}]}}`)
			w := newWorld(t, m, nil)
			s := w.running(session)
			w.then(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tc.body) })
			e := command(io.Discard, io.Discard)
			e.Protected = values()
			c := w.call(abi.OpExec, s, e, nil)
			h, err := c.Open(t.Context(), []byte(meta("f", "")), nil)
			require.NoError(t, err)
			assert.True(t, c.Unfinished())
			got, err := frames(t, c, h)
			require.Len(t, got, len(tc.want), "%v", got)
			for i := range got {
				assert.JSONEq(t, tc.want[i], got[i])
			}
			switch {
			case tc.rule != "":
				denied(t, err, tc.rule)
			case tc.errno != 0:
				isErrno(t, err, tc.errno)
			default:
				require.NoError(t, err)
				assert.True(t, c.Delivered())
				assert.False(t, c.Unfinished())
				assert.False(t, c.Truncated())
				return
			}
			assert.False(t, c.Delivered(), "an exec must not count as seen to its end")
			assert.True(t, c.Unfinished())
			assert.Equal(t, tc.errno == abi.ErrnoTruncated || tc.rule != "", c.Truncated())
			_, again := c.Next(h, 1<<20)
			assert.Equal(t, err.Error(), again.Error(), "an ended stream stays ended")
		})
	}
}

// TestBrokenConnections: what the transport cannot vouch for is not complete.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed", readRoute)
	broken := map[string]func(w http.ResponseWriter, body string){
		"short of its length": func(w http.ResponseWriter, body string) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, body)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"chunked, reset": func(w http.ResponseWriter, body string) {
			_, _ = io.WriteString(w, body)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"ended by the connection": func(w http.ResponseWriter, body string) {
			c, buf, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = buf.WriteString("HTTP/1.0 200 OK\r\n\r\n" + body)
				_ = buf.Flush()
				_ = c.Close()
			}
		},
	}
	for name, answer := range broken {
		t.Run("exec/"+name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m, nil)
			s := w.running(session)
			w.then(func(rw http.ResponseWriter, _ *http.Request) { answer(rw, "{\"out\":\"x\"}\n") })
			var out bytes.Buffer
			c := w.call(abi.OpExec, s, command(&out, io.Discard), nil)
			h, err := c.Open(t.Context(), []byte(meta("start", "")), nil)
			require.NoError(t, err)
			_, err = frames(t, c, h)
			isErrno(t, err, abi.ErrnoTruncated)
			assert.True(t, c.Truncated())
			assert.Equal(t, "x", out.String(), "what came is delivered all the same")
		})
		t.Run("file/"+name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m, nil)
			s := w.running(session)
			w.then(func(rw http.ResponseWriter, _ *http.Request) { answer(rw, "content") })
			c := w.call(abi.OpRead, s, nil, &egress.File{Path: "/w/f", Sink: io.Discard})
			_, err := try(t, c, meta("read", ""))
			isErrno(t, err, abi.ErrnoTruncated)
			assert.False(t, c.Delivered())
		})
		t.Run("document/"+name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m, nil)
			s := w.running(session)
			w.then(func(rw http.ResponseWriter, _ *http.Request) { answer(rw, `{"a":`) })
			_, err := try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
			require.Error(t, err)
			assert.True(t, errors.Is(err, abi.ErrnoTruncated) || errors.Is(err, abi.ErrnoInvalid))
		})
	}
}

// TestPayloads: output goes past the guest, which sees counts.
func TestPayloads(t *testing.T) {
	t.Parallel()
	start := func(response string) string {
		return `{"id":"f","role":"exec","origin":"data","method":"POST","path":"/f","request":{"body":"json","slots":[{"pointer":"/a","from":"exec.argv"}]},"response":` + response + `}`
	}
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, tc := range map[string]struct {
		response, body string
		want           []string
		out, errs      string
		errno          abi.Errno
	}{
		"delta":           {`{"body":"ndjson","payload":[{"pointer":"/o","to":"stdout"}]}`, "{\"o\":\"a\"}\n{\"o\":\"b\",\"x\":1}\n", []string{`{"o":1}`, `{"o":1,"x":1}`}, "ab", "", 0},
		"cumulative":      {`{"body":"ndjson","payload":[{"pointer":"/o","to":"stdout","mode":"cumulative"}]}`, "{\"o\":\"a\"}\n{\"o\":\"ab\"}\n{\"o\":\"ab\"}\n{\"o\":\"abc\"}\n", []string{`{"o":1}`, `{"o":1}`, `{"o":0}`, `{"o":1}`}, "abc", "", 0},
		"cumulative, cut": {`{"body":"ndjson","payload":[{"pointer":"/o","to":"stdout","mode":"cumulative"}]}`, "{\"o\":\"ab\"}\n{\"o\":\"b\"}\n", []string{`{"o":2}`}, "ab", "", abi.ErrnoTruncated},
		"base64":          {`{"body":"ndjson","payload":[{"pointer":"/o","to":"stdout","encoding":"base64"},{"pointer":"/e","to":"stderr","encoding":"base64"}]}`, `{"o":"` + b64("a\x00\xff") + `","e":"` + b64("oops") + `"}` + "\n", []string{`{"o":3,"e":4}`}, "a\x00\xff", "oops", 0},
		"base64 broken":   {`{"body":"ndjson","payload":[{"pointer":"/o","to":"stdout","encoding":"base64"}]}`, "{\"o\":\"!\"}\n", nil, "", "", abi.ErrnoInvalid},
		"not text":        {`{"body":"ndjson","payload":[{"pointer":"/o","to":"stdout"}]}`, "{\"o\":{\"p\":\"hidden-output\"}}\n", nil, "", "", abi.ErrnoInvalid},
		"null":            {`{"body":"ndjson","payload":[{"pointer":"/o","to":"stdout"}]}`, "{\"o\":null}\n", []string{`{"o":null}`}, "", "", 0},
		"conditions": {`{"body":"ndjson","payload":[{"pointer":"/d","to":"stdout","when":"/s=out"},{"pointer":"/d","to":"stderr","when":"/s=err"}]}`,
			"{\"s\":\"out\",\"d\":\"a\"}\n{\"s\":\"err\",\"d\":\"b\"}\n{\"s\":\"other\",\"d\":\"hidden-output\"}\n", []string{`{"s":"out","d":1}`, `{"s":"err","d":1}`, `{"s":"other","d":13}`}, "a", "b", 0},
		"in an array":     {`{"body":"ndjson","payload":[{"pointer":"/l/0/o","to":"stdout"}]}`, "{\"l\":[{\"o\":\"a\"}]}\n", []string{`{"l":[{"o":1}]}`}, "a", "", 0},
		"in a document":   {`{"body":"json","payload":[{"pointer":"/o","to":"stdout"}]}`, `{"o":"abc","code":0}`, []string{`{"o":3,"code":0}`}, "abc", "", 0},
		"base64 in SSE":   {`{"body":"sse","payload":[{"pointer":"/data/o","to":"stdout","encoding":"base64"}]}`, "data: {\"o\":\"" + b64("abc") + "\"}\n\n", []string{`{"data":{"o":3}}`}, "abc", "", 0},
		"env in output":   {`{"body":"ndjson","payload":[{"pointer":"/o","to":"stdout"}]}`, `{"o":"TOKEN=` + canary + `"}` + "\n", []string{`{"o":33}`}, "TOKEN=" + canary, "", 0},
		"split in output": {`{"body":"ndjson","payload":[{"pointer":"/o","to":"stdout"}]}`, `{"o":"` + canary[:9] + `"}` + "\n" + `{"o":"` + canary[9:] + `"}` + "\n", []string{`{"o":9}`, `{"o":18}`}, canary, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, manifest(t, "sealed", start(tc.response)), nil)
			s := w.running(session)
			w.then(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tc.body) })
			var out, errs bytes.Buffer
			e := command(&out, &errs)
			e.Protected = values()
			c := w.call(abi.OpExec, s, e, nil)
			h, err := c.Open(t.Context(), []byte(meta("f", "")), nil)
			var got []string
			if err == nil && strings.Contains(tc.response, `"body":"json"`) {
				got = []string{body(t, c, h)}
			} else if err == nil {
				got, err = frames(t, c, h)
			}
			if tc.errno != 0 {
				isErrno(t, err, tc.errno)
			} else {
				require.NoError(t, err)
			}
			require.Len(t, got, len(tc.want), "%v", got)
			for i := range got {
				assert.JSONEq(t, tc.want[i], got[i])
				assert.NotContains(t, got[i], "hidden-output")
			}
			assert.Equal(t, tc.out, out.String())
			assert.Equal(t, tc.errs, errs.String())
			clean(t, "the guest's view", got...)
		})
	}
	t.Run("output in an error reply", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, manifest(t, "sealed", start(`{"body":"json","payload":[{"pointer":"/o","to":"stdout"}]}`)), nil)
		s := w.running(session)
		w.then(always(500, `{"o":"nekot-drow-sdrawkcab","code":1}`))
		var out bytes.Buffer
		e := command(&out, io.Discard)
		e.Protected = values()
		got, err := try(t, w.call(abi.OpExec, s, e, nil), meta("f", ""))
		require.NoError(t, err)
		assert.JSONEq(t, `{"o":20,"code":1}`, got)
	})
	t.Run("a frame that does not fit stays", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, manifest(t, "sealed"), nil)
		s := w.running(session)
		w.then(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"x":"`+strings.Repeat("y", 100)+"\",\"out\":\"a\"}\n")
		})
		var out bytes.Buffer
		c := w.call(abi.OpExec, s, command(&out, io.Discard), nil)
		h, err := c.Open(t.Context(), []byte(meta("start", "")), nil)
		require.NoError(t, err)
		for _, limit := range []int{0, 10, 100} {
			_, err = c.Next(h, limit)
			isErrno(t, err, abi.ErrnoTooLarge)
		}
		f, err := c.Next(h, 1000)
		require.NoError(t, err)
		assert.Contains(t, string(f), `"out":1`)
		assert.Equal(t, "a", out.String(), "delivered once")
		_, err = c.Read(h, make([]byte, 10))
		isErrno(t, err, abi.ErrnoState)
	})
}

func FuzzFrames(f *testing.F) {
	f.Add("connect", []byte(envelope(0, `{"a":1}`)+envelope(2, `{}`)))
	f.Add("connect", []byte(envelope(1, `x`)))
	f.Add("ndjson", []byte("{\"a\":1}\n[2]\n"))
	f.Add("sse", []byte("event: a\ndata: {}\n\n"))
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		docs, err := egress.Frames(kind, bytes.NewReader(data))
		if err == nil {
			t.Fatal("a stream ends with an error, io.EOF at best")
		}
		if kind == "connect" && errors.Is(err, io.EOF) && !bytes.Contains(data, []byte{2}) {
			t.Fatalf("a proper end without an end message, after %d documents", len(docs))
		}
		// One byte at a time gives the same.
		again, err2 := egress.Frames(kind, oneByte{bytes.NewReader(data)})
		if len(again) != len(docs) || err2.Error() != err.Error() {
			t.Fatalf("%d documents and %v, but %d and %v byte by byte", len(docs), err, len(again), err2)
		}
	})
}

type oneByte struct{ r io.Reader }

func (o oneByte) Read(b []byte) (int, error) { return o.r.Read(b[:min(1, len(b))]) }

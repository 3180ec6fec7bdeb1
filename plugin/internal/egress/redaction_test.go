package egress_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
)

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TestEchoesAreRedacted: whatever form a vendor repeats a value in, the guest
// gets none of the leaf.
func TestEchoesAreRedacted(t *testing.T) {
	t.Parallel()
	nested, err := json.Marshal(map[string]any{"env": map[string]string{"TOKEN": canary}})
	require.NoError(t, err)
	wide := ""
	for _, r := range canary {
		wide += string(r) + "\x00"
	}
	for name, doc := range map[string]string{
		"environment":           `{"a":` + quoted("TOKEN="+canary) + `}`,
		"credential":            `{"a":` + quoted("key "+credential+" is bad") + `}`,
		"first half":            `{"a":` + quoted(canary[:14]) + `}`,
		"second half":           `{"a":` + quoted(canary[14:]) + `}`,
		"middle":                `{"a":` + quoted(canary[8:21]) + `}`,
		"base64":                `{"a":` + quoted(base64.StdEncoding.EncodeToString([]byte(canary))) + `}`,
		"base64 shifted once":   `{"a":` + quoted(base64.StdEncoding.EncodeToString([]byte("x"+canary+"yy"))) + `}`,
		"base64 shifted twice":  `{"a":` + quoted(base64.URLEncoding.EncodeToString([]byte("xx"+canary))) + `}`,
		"hex":                   `{"a":` + quoted(hex.EncodeToString([]byte(canary))) + `}`,
		"hex upper":             `{"a":` + quoted(strings.ToUpper(hex.EncodeToString([]byte(canary)))) + `}`,
		"percent":               `{"a":` + quoted(url.QueryEscape(canary)) + `}`,
		"NUL between":           `{"a":` + quoted(wide) + `}`,
		"JSON in JSON":          `{"a":` + quoted(string(nested)) + `}`,
		"JSON escapes":          `{"a":"\u0063\u0034nary` + canary[6:] + `"}`,
		"member name":           `{` + quoted(canary) + `:1}`,
		"part of a member name": `{` + quoted("x"+canary[4:20]) + `:1}`,
		"name and leaf":         `{` + quoted(canary[:7]) + `:` + quoted(canary[7:]) + `}`,
		"over two leaves":       `{"a":` + quoted(canary[:14]) + `,"b":` + quoted(canary[14:]) + `}`,
		"over five elements":    `[` + quoted(canary[:6]) + `,` + quoted(canary[6:12]) + `,` + quoted(canary[12:18]) + `,` + quoted(canary[18:24]) + `,` + quoted(canary[24:]) + `]`,
		"beside a decoy":        `{"0":` + quoted(canary) + `,"a":` + quoted(canary[:7]) + `,"b":` + quoted(canary[7:14]) + `,"c":` + quoted(canary[14:21]) + `,"d":` + quoted(canary[21:]) + `}`,
		"pieces around a hit":   `{"a":` + quoted(canary[:8]) + `,"b":` + quoted(canary[8:21]) + `,"c":` + quoted(canary[21:]) + `}`,
		"deep":                  `{"a":[[{"b":{"c":[1,` + quoted(canary) + `]}}]]}`,
	} {
		for _, status := range []int{200, 500} {
			t.Run(fmt.Sprintf("%s/%d", name, status), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, manifest(t, "sealed"), nil)
				s := w.running(session)
				w.then(always(status, doc))
				got, err := try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
				require.NoError(t, err)
				assert.Contains(t, got, "redacted")
				clean(t, "the guest's view", got)
				var flat strings.Builder
				var v any
				require.NoError(t, json.Unmarshal([]byte(got), &v))
				flatten(&flat, v)
				clean(t, "its texts joined", flat.String())
				left := 0
				for i := 0; i+4 <= len(canary); i += 4 {
					if strings.Contains(flat.String(), canary[i:i+4]) {
						left += 4
					}
				}
				assert.LessOrEqual(t, left, len(canary)/2, "%s", flat.String())
			})
		}
	}
}

func flatten(b *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		b.WriteString(v)
	case []any:
		for _, x := range v {
			flatten(b, x)
		}
	case map[string]any:
		for _, k := range []string{"0", "a", "b", "c", "d"} {
			flatten(b, v[k])
		}
	}
}

// TestAwkwardValuesAreRedacted: values that encoders change.
func TestAwkwardValuesAreRedacted(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"digits": "918273645546372", "newlines": "line-one-Q\nline-two-W\nline-three-E\n", "quotes": `a"b'c"d'e"f'g"h'`, "unicode": "pässwörd-ünïcode-値", "markup": "<a&b>c<d&e>f<g&h>",
		"seven": "s3v3n77", "eight": "e1ght888", "four": "f0ur", "long": strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz-", 200),
	} {
		for form, text := range map[string]string{
			"leaf": quoted("v=" + value), "JSON in JSON": quoted(quoted(value)), "base64": quoted(base64.StdEncoding.EncodeToString([]byte(value))), "percent": quoted(url.QueryEscape(value)), "number": value,
		} {
			if form == "number" && name != "digits" || form == "base64" && len(value) < 7 {
				continue
			}
			t.Run(name+"/"+form, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, manifest(t, "sealed"), always(200, `{"a":`+text+`}`))
				s, err := w.b.Session(request(session), values("V", value), "sb-000001")
				require.NoError(t, err)
				got, err := try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
				require.NoError(t, err)
				assert.JSONEq(t, `{"a":"[redacted:V]"}`, got)
			})
		}
	}
}

// TestPiecesInOrder: a value that comes a little at a time, at one place of
// frame after frame, or poll after poll, is recognised before half of it is out.
func TestPiecesInOrder(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 3, 5, 7} {
		t.Run(fmt.Sprintf("polls of %d", size), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, manifest(t, "sealed"), nil)
			s := w.running(session)
			shown := ""
			for i := 0; i < len(canary); i += size {
				w.then(always(200, `{"a":`+quoted(canary[i:min(i+size, len(canary))])+`}`))
				got, err := try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
				require.NoError(t, err)
				shown += fmt.Sprint(decoded(t, got)["a"])
			}
			assert.Contains(t, shown, "redacted")
			clean(t, "what was shown in all", shown)
			assert.LessOrEqual(t, len(strings.ReplaceAll(shown, "[redacted:TOKEN]", "")), len(canary)/2, "pieces before and after those that are hidden")
		})
		t.Run(fmt.Sprintf("frames of %d", size), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, manifest(t, "sealed"), nil)
			s := w.running(session)
			w.then(func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i < len(canary); i += size {
					_, _ = io.WriteString(w, `{"a":`+quoted(canary[i:min(i+size, len(canary))])+"}\n")
				}
			})
			c := w.call(abi.OpExec, s, command(io.Discard, io.Discard), nil)
			h, err := c.Open(t.Context(), []byte(meta("start", "")), nil)
			require.NoError(t, err)
			got, err := frames(t, c, h)
			require.NoError(t, err)
			shown := ""
			for _, f := range got {
				shown += fmt.Sprint(decoded(t, f)["a"])
			}
			clean(t, "what was shown in all", shown)
			assert.LessOrEqual(t, len(strings.ReplaceAll(shown, "[redacted:TOKEN]", "")), len(canary)/2)
		})
	}
}

// TestHarmlessRepliesPass: redaction must not get in the way.
func TestHarmlessRepliesPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manifest(t, "sealed"), nil)
	s := w.running(session)
	for range 50 {
		doc := `{"id":"sb-000001","state":"running","n":[1,2.50,true,null],"long":"` + strings.Repeat("abcdefghij", 500) + `","c4":"c4nary-"}`
		w.then(always(200, doc))
		got, err := try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
		require.NoError(t, err)
		assert.JSONEq(t, doc, got)
	}
	for i := range 2000 { // more places than are remembered apart
		w.then(always(200, fmt.Sprintf(`{"k%d":"x"}`, i)))
		got, err := try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
		require.NoError(t, err)
		require.Contains(t, got, `"x"`)
	}
}

// TestSixteenReplies: after them the session is of no more use to the plugin,
// but can still be destroyed.
func TestSixteenReplies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manifest(t, "sealed"), nil)
	s := w.running(session)
	w.then(always(200, `{"a":`+quoted(canary)+`}`))
	for i := range egress.MaxRedactedReplies {
		_, err := try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
		require.NoError(t, err, "reply %d", i)
	}
	_, err := try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
	denied(t, err, "more than 16")
	n := len(w.requests())
	w.then(always(200, `{}`))
	_, err = try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
	denied(t, err, "probed")
	assert.Len(t, w.requests(), n)
	_, err = try(t, w.call(abi.OpDestroy, s, nil, nil), meta("kill", ""))
	require.NoError(t, err)
	w.then(always(409, `{"hint":"anything"}`))
	got, err := try(t, w.call(abi.OpDestroy, s, nil, nil), meta("kill", ""))
	require.NoError(t, err)
	assert.Empty(t, got, "nothing more to probe with")
	other := w.sessionWithSandbox("ffffffffffffffffffffffffffffffff", "sb-000002")
	_, err = try(t, w.call(abi.OpStatus, other, nil, nil), meta("get", ""))
	require.NoError(t, err, "another session is not affected")

	t.Run("frames count each", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, manifest(t, "sealed"), nil)
		s := w.running(session)
		w.then(func(w http.ResponseWriter, _ *http.Request) {
			for range 20 {
				_, _ = io.WriteString(w, `{"a":`+quoted(canary)+"}\n")
			}
		})
		c := w.call(abi.OpExec, s, command(io.Discard, io.Discard), nil)
		h, err := c.Open(t.Context(), []byte(meta("start", "")), nil)
		require.NoError(t, err)
		got, err := frames(t, c, h)
		denied(t, err, "more than 16")
		assert.Len(t, got, 16)
	})
}

func (w *world) sessionWithSandbox(id, sandbox string) *egress.Session {
	w.t.Helper()
	s, err := w.b.Session(request(id), values(), sandbox)
	require.NoError(w.t, err)
	w.t.Cleanup(s.Close)
	return s
}

// TestGuesses: a plugin that writes values into what the host keeps is told no a
// few times, over all its sessions, and then nothing at all.
func TestGuesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manifest(t, "sealed"), nil)
	s := w.running(session)
	c := w.call(abi.OpStatus, s, nil, nil)
	require.NoError(t, c.CheckGuest("a reference", `{"pid":1}`))
	assert.Nil(t, c.Denied())
	for i := range 9 {
		c := w.call(abi.OpStatus, s, nil, nil)
		denied(t, c.CheckGuest("a reference", "guess "+canary[i:i+13]), "a reference that holds a value")
		assert.NotNil(t, c.Denied(), "the operation fails with it")
	}
	other := w.sessionWithSandbox("ffffffffffffffffffffffffffffffff", "sb-000002")
	_, err := try(t, w.call(abi.OpStatus, other, nil, nil), meta("get", ""))
	denied(t, err, "probed")
}

// TestClosedSessionsAreForgotten: what was armed for a session goes with it,
// unless another one still needs it.
func TestClosedSessionsAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manifest(t, "sealed"), always(200, `{"a":`+quoted(canary)+`}`))
	a, err := w.b.Session(request(session), values("A", canary), "sb-000001")
	require.NoError(t, err)
	b, err := w.b.Session(request("ffffffffffffffffffffffffffffffff"), values("B", canary), "sb-000002")
	require.NoError(t, err)
	see := func() string {
		c := w.b.Call(egress.CallConfig{Op: abi.OpStatus, Session: w.sessionWithSandbox("ffffffffffffffffffffffffffffff01", "sb-000003")})
		defer c.Close()
		got, err := try(t, c, meta("get", ""))
		require.NoError(t, err)
		return got
	}
	assert.NotContains(t, see(), canary, "what one session may not show, no other may")
	a.Close()
	assert.NotContains(t, see(), canary)
	b.Close()
	assert.Contains(t, see(), canary)
}

// TestEveryLeafIsLookedAt compares with a plain search over random cuts of a
// value: no shown text holds half of it.
func FuzzReplies(f *testing.F) {
	f.Add([]byte(`{"a":"`+canary+`"}`), uint8(3))
	f.Add([]byte(`["`+canary[:9]+`","`+canary[9:]+`"]`), uint8(0))
	f.Add([]byte(`{"`+canary+`":1}`), uint8(9))
	f.Add([]byte(`{"a":"`+base64.StdEncoding.EncodeToString([]byte(canary))+`"}`), uint8(1))
	f.Fuzz(func(t *testing.T, doc []byte, cut uint8) {
		// The value is spliced into the document wherever the marker stands.
		i := int(cut) % len(canary)
		doc = bytes.ReplaceAll(doc, []byte("@"), []byte(canary[i:]))
		w := newWorld(t, manifest(t, "sealed"), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(doc) })
		s, err := w.b.Session(request(session), values("TOKEN", canary), "sb-000001")
		require.NoError(t, err)
		got, err := try(t, w.call(abi.OpStatus, s, nil, nil), meta("get", ""))
		if err != nil {
			return
		}
		for n := 12; n <= len(canary); n++ {
			if strings.Contains(got, canary[n-12:n]) {
				t.Fatalf("%d bytes of the value are shown", 12)
			}
		}
		if len(got) > 0 && !json.Valid([]byte(got)) {
			t.Fatalf("not JSON any more: %q", got)
		}
	})
}

// FuzzMeta: no description of a request crashes the broker, and none that is
// refused sends anything.
func FuzzMeta(f *testing.F) {
	for _, s := range []string{
		`{"route":"create"}`, `{"route":"get","params":{"sandbox":"x"}}`, `{"route":"signal","params":{"pid":".."}}`, `{"route":"input","free":{"/pid":1,"/in":"x"}}`,
		`{"route":"plain","env":"env_00"}`, `{"route":"stat","query":{"depth":"1","page":"a\r\nb"}}`, `{}`, `[]`, `{"route":"p","env":""}`,
	} {
		f.Add([]byte(s), []byte(`{"a":1}`), uint8(2))
	}
	m := manifest(f, "plugin-driven", inputRoute, signalRoute, statRoute, drivenRoute, plainRoute)
	w := newWorld(f, m, always(200, `{}`))
	f.Fuzz(func(t *testing.T, doc, body []byte, op uint8) {
		s, err := w.b.Session(request(session), values("TOKEN", canary), "sb-000001")
		require.NoError(t, err)
		defer s.Close()
		c := w.b.Call(egress.CallConfig{Op: abi.Op(op%17 + 1), Session: s, Exec: command(io.Discard, io.Discard), File: upload()})
		defer c.Close()
		n := len(w.requests())
		_, err = c.Open(t.Context(), doc, body)
		got := w.requests()[n:]
		var d *egress.Denied
		if errorsAs(err, &d) && len(got) > 0 {
			t.Fatalf("denied (%s), but %s %s was sent", d.Rule, got[0].Method, got[0].URI)
		}
		for _, r := range got {
			if strings.Contains(r.URI, "..") || strings.Contains(r.URI, canary) {
				t.Fatalf("sent to %s", r.URI)
			}
		}
	})
}

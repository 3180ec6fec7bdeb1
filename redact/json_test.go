package redact_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/redact"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, value, doc, want string }{
		{"string", canary, `{"a": "x ` + canary + `"}`, `{"a": "x [redacted:A]"}`},
		{"escaped", `can"ary\value`, `["can\u0022ary\\value", "can\"ary\u005cvalue"]`, `["[redacted:A]", "[redacted:A]"]`},
		{"key", canary, `{"` + canary + `":1,"` + canary + `x":2}`, `{"[redacted:A]":1,"[redacted:A]x":2}`},
		{"keys that become equal", canary, `{"` + canary + `":1,"c\u0061nary-7Hq2-value":2,"[redacted:A]#2":3}`, ""},
		{"number", "1234567890", `[1234567890, -1234567890, 12345678901, 1.5, true, null]`, `["[redacted:A]", "-[redacted:A]", "[redacted:A]1", 1.5, true, null]`},
		{"untouched", canary, " {\n\t\"a\" : [ 1 , { } , [ ] , \"\\u0041\" ]\r\n} ", " {\n\t\"a\" : [ 1 , { } , [ ] , \"\\u0041\" ]\r\n} "},
		{"JSON in a string", `can"ary-value`, `{"log":"{\"k\":\"can\\\"ary-value\"}"}`, `{"log":"{\"k\":\"[redacted:A]\"}"}`},
		{"ends in a backslash", `canary-value\`, `["canary-value\\", "canary-value\\\"", "canary-value\\n"]`, `["[redacted:A]", "[redacted:A]", "[redacted:A]"]`},
		{"starts with n", `nightly-canary`, `["\nightly-canary", "\\nightly-canary", "a\n nightly-canary"]`, `["[redacted:A]", "[redacted:A]", "a\n [redacted:A]"]`},
		{"top level", canary, `"` + canary + `"`, `"[redacted:A]"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := with(tt.value)
			got, err := r.JSON([]byte(tt.doc))
			require.NoError(t, err)
			require.True(t, json.Valid(got), string(got))
			if tt.want != "" {
				assert.Equal(t, tt.want, string(got))
			}
			assert.Empty(t, r.Contains(got))
		})
	}
	t.Run("not JSON", func(t *testing.T) {
		t.Parallel()
		r := with(canary)
		for _, doc := range []string{"", "{", canary, `{"a":1} x`, `"\x"`, "nul", "01", strings.Repeat("[", 20000)} {
			got, err := r.JSON([]byte(doc))
			require.ErrorIs(t, err, redact.ErrNotJSON, doc)
			assert.Nil(t, got)
			assert.NotContains(t, err.Error(), canary)
		}
	})
}

// checkJSON puts a value into a document in several ways and checks that what
// comes out is JSON of the same shape and holds no value.
func checkJSON(t *testing.T, value, before, after string) {
	t.Helper()
	r := redact.New(redact.Options{})
	if len(r.Add(redact.Secret{Name: "A", Value: []byte(value)})) > 0 || len(redact.Core(value)) < 8 {
		return
	}
	content := before + value + after
	inner, err := json.Marshal(map[string]any{content: []any{content, before, 1}})
	require.NoError(t, err)
	doc, err := json.Marshal(map[string]any{"k": content, content: string(inner), "n": []any{1.5, nil, true, after}})
	require.NoError(t, err)
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	require.NoError(t, enc.Encode(map[string]any{"k": content}))
	for _, d := range [][]byte{doc, plain.Bytes()} {
		masked, err := r.JSON(d)
		require.NoError(t, err)
		require.True(t, json.Valid(masked), "%q: %s became %s", value, d, masked)
		var got map[string]any
		require.NoError(t, json.Unmarshal(masked, &got))
		for k, v := range got {
			require.NotContains(t, k, redact.Core(value))
			if s, ok := v.(string); ok {
				require.NotContains(t, s, redact.Core(value))
			}
		}
		require.Contains(t, string(masked), "[redacted:A]")
	}
}

func TestJSONStaysValid(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(13, 14))
	for range 1000 {
		checkJSON(t, randomValue(rng, 8+rng.IntN(12)), randomValue(rng, rng.IntN(4)), randomValue(rng, rng.IntN(4)))
	}
}

// A JSON text that passes through a Writer as bytes stays JSON too when the
// value stands in a string, whatever the value begins and ends with.
func TestJSONStreamStaysValid(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(15, 16))
	for range 3000 {
		const edges = `"\nurtbf/'a0é`
		runes := []rune(edges)
		edge := func() string {
			var b strings.Builder
			for range 1 + rng.IntN(3) {
				b.WriteRune(runes[rng.IntN(len(runes))])
			}
			return b.String()
		}
		v := edge() + "secret-" + strconv.Itoa(rng.IntN(1000)) + edge()
		r := redact.New(redact.Options{Idle: -1})
		require.Empty(t, r.Add(redact.Secret{Name: "A", Value: []byte(v)}))
		doc, err := json.Marshal(map[string]string{"k": edge() + v + edge(), "l": edge() + "\n" + v})
		require.NoError(t, err)
		for _, d := range []string{string(doc), string(mustMarshal(t, string(doc)))} {
			cut := rng.IntN(len(d))
			masked := stream(t, r, d[:cut], d[cut:])
			require.True(t, json.Valid([]byte(masked)), "%q: %s became %s", v, d, masked)
			require.NotContains(t, masked, "secret-")
		}
	}
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return out
}

func FuzzJSON(f *testing.F) {
	f.Add(`can"ary-value`, "x", "y", `{"a":1}`)
	f.Add(`canary-value\`, `\`, `"`, `[1e9,"\ud800"]`)
	f.Add("nightly-canary", "\n", "", `{"a":"nightly-canary","a":"\nightly-canary"}`)
	f.Add("unicorn-canary", `\`, "u0041", ` [ ] `)
	f.Add("000000&\xf0", "0", "0", "0")       // found by fuzzing: U+FFFD stands for the bad byte
	f.Add("\xcd000000\xdf", "0", "\xb3", "0") // found by fuzzing: what follows completes the last character
	f.Add("\x9b\x9b000000", "\xc2", "0", "0") // and what precedes the first of two
	f.Add("\xb3abcdef\xe2\x82", "\xdf", "\xac", "0")
	f.Add("12345678", "1", "2", `[12345678.5e3]`)
	f.Fuzz(func(t *testing.T, value, before, after, doc string) {
		if len(value) > 200 || len(before)+len(after) > 200 || len(doc) > 1000 {
			return
		}
		checkJSON(t, value, before, after)
		r := redact.New(redact.Options{})
		r.Add(redact.Secret{Name: "A", Value: []byte(value)})
		masked, err := r.JSON([]byte(doc))
		if !json.Valid([]byte(doc)) {
			require.ErrorIs(t, err, redact.ErrNotJSON)
			return
		}
		require.NoError(t, err)
		require.True(t, json.Valid(masked), "%q: %q became %q", value, doc, masked)
	})
}

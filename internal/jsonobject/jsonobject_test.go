package jsonobject_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/jsonobject"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	got, err := jsonobject.Split([]byte(` {"a": [1, {"a":2}], "b" : null } `), "a", "b", "c")
	require.NoError(t, err)
	require.Equal(t, map[string]json.RawMessage{"a": json.RawMessage(`[1, {"a":2}]`), "b": json.RawMessage(`null`)}, got)
	for doc, want := range map[string]string{
		``: "not a JSON object", `null`: "not a JSON object", `[]`: "not a JSON object", `7`: "not a JSON object",
		`{"x":1}`: "unknown field", `{"A":1}`: "unknown field", `{"a":1,"a":2}`: `duplicate field "a"`,
		`{"a":1,"\u0061":2}`: `duplicate field "a"`, `{"a":}`: `malformed value of "a"`, `{"a" 1}`: "malformed",
		`{"a":1`: "malformed", `{"a":1} x`: "data after", `{"a":1}{}`: "data after", "{\"a\":\"\xff\"}": "UTF-8", `{7:1}`: "malformed",
	} {
		_, err := jsonobject.Split([]byte(doc), "a", "b", "c")
		require.ErrorContains(t, err, want, doc)
	}
}

func FuzzSplit(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":{"a":[]}}`, `{"a":1,"a":2}`, `{"\u0061":1}`, `{}x`, `{"a":`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, err := jsonobject.Split(data, "a", "b")
		if err != nil {
			return
		}
		var plain map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(data, &plain))
		require.Len(t, fields, len(plain))
		for k, v := range plain {
			require.JSONEq(t, string(v), string(fields[k]))
		}
	})
}

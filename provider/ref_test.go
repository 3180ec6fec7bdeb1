package provider_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider"
)

func TestRefCodec(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ref  provider.Ref
		want string
	}{
		{provider.Ref{ID: "a"}, `{"id":"a"}`},
		{provider.Ref{ID: "a", Data: json.RawMessage(" { \"k\" : \"<&>\" } ")}, `{"id":"a","data":{"k":"<&>"}}`},
		{provider.Ref{ID: "a", Data: json.RawMessage("null")}, `{"id":"a"}`},
		{provider.Ref{ID: "grüße/1 2", Data: json.RawMessage("[1]")}, `{"id":"grüße/1 2","data":[1]}`},
	} {
		data, err := provider.EncodeRef(tt.ref)
		require.NoError(t, err)
		require.Equal(t, tt.want, string(data))
		back, err := provider.DecodeRef(data)
		require.NoError(t, err)
		again, err := provider.EncodeRef(back)
		require.NoError(t, err)
		require.Equal(t, tt.want, string(again))
	}
}

func TestRefEncodeRefuses(t *testing.T) {
	t.Parallel()
	for name, ref := range map[string]provider.Ref{
		"no id":         {},
		"long id":       {ID: strings.Repeat("x", provider.MaxRefIDBytes+1)},
		"control":       {ID: "a\nb"},
		"NUL":           {ID: "a\x00"},
		"not UTF-8":     {ID: "\xff"},
		"data not JSON": {ID: "a", Data: json.RawMessage("{canary")},
		"data UTF-8":    {ID: "a", Data: json.RawMessage("\"\xff\"")},
		"two documents": {ID: "a", Data: json.RawMessage("1 2")},
		"too large":     {ID: "a", Data: json.RawMessage(`"` + strings.Repeat("x", provider.MaxRefBytes) + `"`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := provider.EncodeRef(ref)
			require.ErrorIs(t, err, provider.ErrInvalidArgument)
			require.NotContains(t, err.Error(), "canary")
			require.ErrorIs(t, provider.ValidateRef(ref), provider.ErrInvalidArgument)
		})
	}
}

func TestRefDecodeRefuses(t *testing.T) {
	t.Parallel()
	for name, doc := range map[string]string{
		"empty": ``, "null": `null`, "text": `"a"`, "no id": `{"data":1}`, "null id": `{"id":null}`, "number id": `{"id":1}`,
		"empty id": `{"id":""}`, "unknown": `{"id":"a","value":"canary"}`, "other case": `{"ID":"a"}`, "duplicate": `{"id":"a","id":"b"}`,
		"duplicate data": `{"id":"a","data":1,"data":2}`, "trailing": `{"id":"a"} {}`, "truncated": `{"id":"a"`, "control": `{"id":"a\n"}`,
		"not UTF-8": "{\"id\":\"\xff\"}", "lone surrogate": `{"id":"\ud800"}`, "bad data": `{"id":"a","data":}`,
		"too large": `{"id":"a","data":"` + strings.Repeat("x", provider.MaxRefBytes) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := provider.DecodeRef([]byte(doc))
			require.ErrorIs(t, err, provider.ErrInvalidArgument)
			require.NotContains(t, err.Error(), "canary")
		})
	}
}

func FuzzDecodeRef(f *testing.F) {
	for _, s := range []string{`{"id":"a"}`, `{"id":"a","data":{"b":[1,"<"]}}`, `{"id":"a","data":null}`, `{"ID":"a"}`, `{"id":"\u0041"}`, ` { "id" : "x" } `, `{"id":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ref, err := provider.DecodeRef(data)
		if err != nil {
			require.ErrorIs(t, err, provider.ErrInvalidArgument)
			return
		}
		out, err := provider.EncodeRef(ref)
		require.NoError(t, err)
		require.LessOrEqual(t, len(out), provider.MaxRefBytes)
		back, err := provider.DecodeRef(out)
		require.NoError(t, err)
		require.Equal(t, ref, back)
	})
}

package abi_test

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
)

// In a plugin all strings of a document are cut from one copy of it: they are the
// same, and stay so when the document's buffer is used again.
func TestSharedStringsAreTheSame(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		`"plain"`, `"with \"escapes\" and \u00fc"`, `"ünïcode, 64 bytes or so, so that the fast scan runs into it"`, `""`, `-12.5e3`, `0`, `true`, `null`, `[]`, `{}`,
		`{"a":"b","a long key with ü":[1,2.5,"x\ny","z"],"\u0061b":{"c":{"d":null}}, "last" : "one" }`,
	} {
		want, err := abi.Parse([]byte(doc))
		require.NoError(t, err, doc)
		buf := []byte(doc)
		got, err := abi.ParseShared(buf)
		require.NoError(t, err, doc)
		clear(buf)
		assert.Equal(t, flat(want), flat(got), doc)
	}
	for _, doc := range []string{`"a`, `{"a":1,"a":2}`, `[1,]`, `"\x"`, `1.`, `{"a" 1}`, "\"\x01\""} {
		_, err := abi.Parse([]byte(doc))
		_, err2 := abi.ParseShared([]byte(doc))
		require.Error(t, err, doc)
		assert.Equal(t, err, err2, doc)
	}
	want := fullCreate()
	doc := want.AppendJSON(nil)
	var got abi.CreateRequest
	require.NoError(t, abi.DecodeCreateShared(&got, doc))
	clear(doc)
	assert.Equal(t, want, got)
}

// flat is a value as comparable data.
func flat(v abi.Value) any {
	switch v.Kind() {
	case abi.KindObject:
		out := []any{"object"}
		for _, k := range v.Keys() {
			out = append(out, k, flat(v.Get(k)))
		}
		return out
	case abi.KindArray:
		out := []any{"array"}
		for _, i := range v.Items() {
			out = append(out, flat(i))
		}
		return out
	case abi.KindString:
		return v.Text()
	case abi.KindNumber:
		return []any{"number", v.Number()}
	case abi.KindBool:
		return v.Bool()
	}
	return v.Kind()
}

func FuzzPlain(f *testing.F) {
	f.Add([]byte("a plain text of more than eight bytes"), 0)
	f.Add([]byte("12345678\"12345678\\\x1f\x20\x7f\x80\xff"), 3)
	f.Add(bytes.Repeat([]byte{0x1f, 0x20, '!', '"', '#', '[', '\\', ']', 0x7f, 0x80, 0x81, 0xa0, 0xff, 0}, 4), 1)
	f.Fuzz(func(t *testing.T, b []byte, i int) {
		i = max(0, min(i, len(b)))
		want := i
		for want < len(b) && b[want] >= 0x20 && b[want] < utf8.RuneSelf && b[want] != '"' && b[want] != '\\' {
			want++
		}
		x, y := abi.Plain(b, i)
		if x != want || y != want {
			t.Fatalf("%q from %d: %d and %d, want %d", b, i, x, y, want)
		}
	})
}

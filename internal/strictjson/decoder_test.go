package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/strictjson"
)

// read builds what encoding/json would, with the decoder under test.
func read(d *strictjson.Decoder) (any, error) {
	kind, err := d.Kind()
	if err != nil {
		return nil, err
	}
	switch kind {
	case strictjson.Object:
		m := map[string]any{}
		err = d.Object(func(k string) error {
			v, err := read(d)
			m[k] = v
			return err
		})
		return m, err
	case strictjson.Array:
		l := []any{}
		err = d.Array(func(int) error {
			v, err := read(d)
			l = append(l, v)
			return err
		})
		return l, err
	case strictjson.String:
		return d.Text()
	case strictjson.Number:
		s, err := d.Number()
		return json.Number(s), err
	case strictjson.Bool:
		return d.Bool()
	default:
		return nil, d.Skip()
	}
}

func readAll(data []byte) (any, error) {
	d := strictjson.New(data)
	v, err := read(d)
	if err == nil {
		err = d.End()
	}
	return v, err
}

func TestErrorsSayWhere(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`[`, strictjson.MaxDepth+1)
	for name, c := range map[string]struct{ in, pointer, message string }{
		"empty":               {"", "", "ends too early at line 1 column 1"},
		"blank":               {" \n ", "", "ends too early at line 2 column 2"},
		"not JSON":            {"x", "", "not JSON"},
		"trailing":            {`{} 1`, "", "data after the end of the document at line 1 column 4"},
		"trailing after bool": {`truee`, "", "data after the end"},
		"duplicate":           {`{"a":{"b":1,"b":2}}`, "/a/b", "duplicate key"},
		"duplicate by escape": {`{"a":1,"\u0061":2}`, "/a", "duplicate key"},
		"escaped pointer":     {`{"a/b":{"~":1,"~":2}}`, "/a~1b/~0", "duplicate key"},
		"missing colon":       {`{"a" 1}`, "/a", "missing colon"},
		"missing comma":       {`{"a":1 "b":2}`, "", "missing comma"},
		"missing comma list":  {`[1 2]`, "", "missing comma"},
		"comma at end":        {`[1,]`, "", "a comma before the closing bracket"},
		"comma at end object": {`{"a":1,}`, "", "a comma before the closing bracket"},
		"comma first":         {`[,1]`, "/0", "not JSON"},
		"key not a string":    {`{1:2}`, "", "an object key must be a string"},
		"unclosed string":     {`"abc`, "", "without its closing quote"},
		"unclosed escape":     {`"abc\`, "", "without its closing quote"},
		"control character":   {"\"a\nb\"", "", "a control character in a string"},
		"invalid escape":      {`"\q"`, "", "an invalid escape"},
		"invalid hex":         {`"\u00g0"`, "", "an invalid escape"},
		"short hex":           {`"\u00`, "", "an invalid escape"},
		"lone high surrogate": {`"\ud800"`, "", "half of a surrogate pair"},
		"lone low surrogate":  {`"\udc00"`, "", "half of a surrogate pair"},
		"two high surrogates": {`"\ud800\ud800"`, "", "half of a surrogate pair"},
		"leading zero":        {`01`, "", "data after the end"},
		"minus":               {`-`, "", "an invalid number"},
		"point":               {`1.`, "", "an invalid number"},
		"exponent":            {`1e`, "", "an invalid number"},
		"invalid UTF-8":       {"{\n\"a\":\"\xff\"}", "", "invalid UTF-8 at line 2 column 6"},
		"byte order mark":     {"\ufeff{}", "", "not JSON"},
		"nested lists":        {deep, strings.Repeat("/0", strictjson.MaxDepth), "nested deeper than 64 levels"},
		"bad literal":         {`nul`, "", "not JSON"},
		"bad bool":            {`[tru]`, "/0", "not JSON"},
		"list item":           {`[1,[2,{"x":q}]]`, "/1/1/x", "not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := readAll([]byte(c.in))
			var e *strictjson.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, c.pointer, e.Pointer)
			assert.Contains(t, e.Message, c.message)
		})
	}
}

func TestWrongKinds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in, message string
		call        func(*strictjson.Decoder) error
	}{
		{`1`, "must be a string, not a number", func(d *strictjson.Decoder) error { _, err := d.Text(); return err }},
		{`"1"`, "must be a number, not a string", func(d *strictjson.Decoder) error { _, err := d.Number(); return err }},
		{`"true"`, "must be a boolean, not a string", func(d *strictjson.Decoder) error { _, err := d.Bool(); return err }},
		{`null`, "must be an object, not null", func(d *strictjson.Decoder) error { return d.Object(nil) }},
		{`{}`, "must be a list, not an object", func(d *strictjson.Decoder) error { return d.Array(nil) }},
		{`1.0`, "must be a whole number in range", func(d *strictjson.Decoder) error { _, err := d.Int(); return err }},
		{`9223372036854775808`, "must be a whole number in range", func(d *strictjson.Decoder) error { _, err := d.Int(); return err }},
	} {
		assert.ErrorContains(t, c.call(strictjson.New([]byte(c.in))), c.message, c.in)
	}
}

func TestDepthLimitIsExact(t *testing.T) {
	t.Parallel()
	ok := strings.Repeat("[", strictjson.MaxDepth) + strings.Repeat("]", strictjson.MaxDepth)
	_, err := readAll([]byte(ok))
	require.NoError(t, err)
	require.NoError(t, strictjson.New([]byte(ok)).Skip())
	_, err = readAll([]byte("[" + ok + "]"))
	require.Error(t, err)
	require.Error(t, strictjson.New([]byte("["+ok+"]")).Skip())
}

func TestOnKeySeesSkippedKeys(t *testing.T) {
	t.Parallel()
	var keys []string
	d := strictjson.New([]byte(`{"a":[{"b":{"c":1}}],"d":2}`))
	d.OnKey = func(k string) error {
		keys = append(keys, k)
		if k == "d" {
			return errors.New("no d")
		}
		return nil
	}
	err := d.Skip()
	assert.Equal(t, []string{"a", "b", "c", "d"}, keys)
	assert.EqualError(t, err, "/d: no d")
}

func TestPointersRoundTrip(t *testing.T) {
	t.Parallel()
	for _, tokens := range [][]string{nil, {""}, {"a"}, {"a/b", "~", "~1", ""}, {"é", "0"}} {
		assert.Equal(t, tokens, strictjson.Tokens(strictjson.Pointer(tokens...)))
	}
}

func TestAppendString(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "plain", "\"\\/\b\f\n\r\t", "\x00\x01\x1f\x7f", "é€😀", "<>&\u2028"} {
		out := strictjson.AppendString(nil, s)
		var back string
		require.NoError(t, json.Unmarshal(out, &back))
		assert.Equal(t, s, back)
		assert.Equal(t, len(out), strictjson.StringLen([]byte(s)))
		d := strictjson.New(out)
		got, err := d.Text()
		require.NoError(t, err)
		assert.Equal(t, s, got)
	}
	assert.Equal(t, -1, strictjson.StringLen([]byte("\xff")))
	assert.NotEqual(t, strictjson.AppendString(nil, "\xff"), strictjson.AppendString(nil, "\xfe"))
}

// reference decodes with encoding/json and reports whether the decoder must
// accept: valid JSON and none of what encoding/json repairs or merges.
func reference(data []byte) (v any, accept bool) {
	if !utf8.Valid(data) || !json.Valid(data) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	depth, deepest := 0, 0
	var keys []map[string]bool // nil for lists
	expectKey := []bool{}
	for {
		tok, err := d.Token()
		if err != nil {
			break
		}
		switch x := tok.(type) {
		case json.Delim:
			switch x {
			case '{':
				keys, expectKey = append(keys, map[string]bool{}), append(expectKey, true)
			case '[':
				keys, expectKey = append(keys, nil), append(expectKey, false)
			default:
				keys, expectKey, depth = keys[:len(keys)-1], expectKey[:len(expectKey)-1], depth-1
				if n := len(keys); n > 0 && keys[n-1] != nil {
					expectKey[n-1] = true
				}
				continue
			}
			depth++
			deepest = max(deepest, depth)
		default:
			n := len(keys)
			if n == 0 || keys[n-1] == nil {
				continue
			}
			if expectKey[n-1] {
				k := tok.(string)
				if keys[n-1][k] {
					return nil, false
				}
				keys[n-1][k], expectKey[n-1] = true, false
			} else {
				expectKey[n-1] = true
			}
		}
	}
	if deepest > strictjson.MaxDepth || hasLoneSurrogate(data) {
		return nil, false
	}
	d = json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil, false
	}
	return v, true
}

func hasLoneSurrogate(data []byte) bool {
	s := string(data)
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		if s[i+1] != 'u' {
			i++
			continue
		}
		r, _ := strconv.ParseUint(s[i+2:i+6], 16, 32)
		i += 5
		switch {
		case r >= 0xdc00 && r < 0xe000:
			return true
		case r >= 0xd800 && r < 0xdc00:
			if i+6 >= len(s) || s[i+1] != '\\' || s[i+2] != 'u' {
				return true
			}
			low, _ := strconv.ParseUint(s[i+3:i+7], 16, 32)
			if low < 0xdc00 || low >= 0xe000 {
				return true
			}
			i += 6
		}
	}
	return false
}

// FuzzAgainstEncodingJSON: the decoder accepts exactly what encoding/json reads
// without repairing anything, and reads the same.
func FuzzAgainstEncodingJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-2.5e+10,true,false,null,"x\n\u00e9\ud83d\ude00"],"b":{}}`, `{"a":1,"a":2}`, `[1,]`, `"\ud800"`,
		"\xff", `01`, `{"a":{"b":[{}]}}x`, `  [ ] `, strings.Repeat("[", 70) + strings.Repeat("]", 70), `[1 2]`, `"\/"`, "1e5", "-0",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want, accept := reference(data)
		got, err := readAll(data)
		if (err == nil) != accept {
			t.Fatalf("accepted: %v, want %v; %v", err == nil, accept, err)
		}
		if accept && !reflect.DeepEqual(got, want) {
			t.Fatalf("read %#v, want %#v", got, want)
		}
		d := strictjson.New(data)
		skipErr := d.Skip()
		if skipErr == nil {
			skipErr = d.End()
		}
		if (skipErr == nil) != accept {
			t.Fatalf("Skip: %v, want accept %v", skipErr, accept)
		}
	})
}

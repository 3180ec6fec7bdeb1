package abi_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
)

// TestGeneratedFilesAreCurrent runs the generator in a copy of the folder and
// compares, so that nobody edits what is generated or forgets to generate.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "abi")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	schema, err := os.ReadFile("schema.json")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "schema.json"), schema, 0o600))
	here, err := os.Getwd()
	require.NoError(t, err)
	bin := filepath.Join(t.TempDir(), "gen")
	build := exec.Command("go", "build", "-o", bin, "./internal/gen")
	build.Dir = here
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	gen := exec.Command(bin)
	gen.Dir = dir
	out, err = gen.CombinedOutput()
	require.NoError(t, err, string(out))
	for _, f := range []string{"zz_generated.go", "include/sbx_abi.h", "rust/src/generated.rs", "../docs/abi.md"} {
		want, err := os.ReadFile(filepath.Join(dir, f))
		require.NoError(t, err)
		got, err := os.ReadFile(f)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), "%s is stale: run go generate ./abi", f)
	}
}

func fullCreate() abi.CreateRequest {
	return abi.CreateRequest{
		Session: "s1", Config: abi.Raw(`{"a":[1,{"b":null}]}`), Ref: abi.Raw(`"r"`), Sandbox: "sb",
		Name: "sbxhost-s1", Image: "img", Network: "none", Ports: []int64{80, 8080}, TTLSeconds: 60, IdleSeconds: 5,
		Resources: &abi.Resources{CPUs: 1.5, MemoryMiB: 512, DiskMiB: 1 << 40},
		Env:       abi.EnvHandle{Handle: "env_x", Names: []string{"A", "Ü\"\\\n\u2028\x01"}},
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	want := fullCreate()
	doc := want.AppendJSON(nil)
	require.True(t, json.Valid(doc), "%s", doc)
	var got abi.CreateRequest
	require.NoError(t, got.DecodeJSON(doc, true))
	assert.Equal(t, want, got)

	list := abi.ListReply{Items: []abi.Item{{Sandbox: "a", State: "running", Labels: map[string]string{"z": "1", "a": "2"}}, {Sandbox: "b", State: "gone"}}}
	doc = list.AppendJSON(nil)
	assert.JSONEq(t, `{"items":[{"sandbox":"a","labels":{"a":"2","z":"1"},"state":"running"},{"sandbox":"b","state":"gone"}]}`, string(doc))
	var back abi.ListReply
	require.NoError(t, back.DecodeJSON(doc, true))
	assert.Equal(t, list, back)
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ doc, pointer, message string }{
		"unknown field":        {`{"status":"exited","x":1}`, "", "unknown field"},
		"missing field":        {`{}`, "/status", "missing field"},
		"duplicate field":      {`{"status":"a","status":"b"}`, "", "duplicate field"},
		"case variant":         {`{"Status":"a"}`, "", "unknown field"},
		"trailing data":        {`{"status":"a"} 1`, "", "data after"},
		"wrong type":           {`{"status":1}`, "/status", "expected a string"},
		"float for int":        {`{"status":"a","exitCode":1.5}`, "/exitCode", "integer"},
		"exponent for int":     {`{"status":"a","exitCode":1e2}`, "/exitCode", "integer"},
		"int overflow":         {`{"status":"a","exitCode":9223372036854775808}`, "/exitCode", "integer"},
		"leading zero":         {`{"status":"a","exitCode":01}`, "", "expected ','"},
		"bad escape":           {`{"status":"\x"}`, "/status", "unknown escape"},
		"lone surrogate":       {`{"status":"\ud800"}`, "/status", "surrogate"},
		"invalid utf8":         {"{\"status\":\"\xff\"}", "/status", "UTF-8"},
		"invalid utf8 escaped": {"{\"status\":\"\\n\xff\"}", "/status", "UTF-8"},
		"control character":    {"{\"status\":\"a\nb\"}", "/status", "control"},
		"truncated":            {`{"status":"a`, "/status", "unterminated"},
		"empty":                {``, "", "expected"},
		"array":                {`[]`, "", "expected"},
		"null":                 {`null`, "", "expected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var v abi.ExecReply
			err := v.DecodeJSON([]byte(tc.doc), true)
			var se *abi.SyntaxError
			require.ErrorAs(t, err, &se)
			assert.Equal(t, tc.pointer, se.Pointer)
			assert.Contains(t, se.Message, tc.message)
		})
	}
	var l abi.ListReply
	err := l.DecodeJSON([]byte(`{"items":[{"sandbox":"a","state":"running"},{"sandbox":7,"state":"x"}]}`), true)
	var se *abi.SyntaxError
	require.ErrorAs(t, err, &se)
	assert.Equal(t, "/items/1/sandbox", se.Pointer)

	deep := `{"config":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`
	var lr abi.ListRequest
	require.ErrorContains(t, lr.DecodeJSON([]byte(deep), true), "nested deeper")
}

func TestLenientDecodeIgnoresWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	var v abi.ExecReply
	require.NoError(t, v.DecodeJSON([]byte(`{"new":{"a":[1,2.5e3,"x",true,null]},"status":"exited"}`), false))
	assert.Equal(t, "exited", v.Status)
}

func TestOperationsAndErrnosHaveNames(t *testing.T) {
	t.Parallel()
	for o := abi.OpCreate; o <= abi.OpPort; o++ {
		back, ok := abi.OpByName(o.String())
		require.True(t, ok)
		assert.Equal(t, o, back)
	}
	for e := abi.ErrnoEnd; e < 0; e++ {
		assert.True(t, strings.HasPrefix(e.Error(), "E_") && e.Error() != "E_UNKNOWN", "%d", e)
	}
}

// FuzzDecode checks the codec against encoding/json: what ours accepts is valid
// JSON, strings come out equal, and encoding what was decoded gives the same
// document again.
func FuzzDecode(f *testing.F) {
	full := fullCreate()
	f.Add(full.AppendJSON(nil))
	f.Add([]byte(`{"session":"\ud83d\ude00","config":{},"name":"","network":"","env":{"handle":"","names":[]}}`))
	f.Add([]byte(`{"items":[]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		var v abi.CreateRequest
		if err := v.DecodeJSON(doc, true); err == nil {
			if !json.Valid(doc) {
				t.Fatalf("accepted invalid JSON %q", doc)
			}
			var ref struct{ Session, Name string }
			if err := json.Unmarshal(doc, &ref); err == nil && utf8.Valid(doc) && ref.Session != v.Session && !strings.Contains(strings.ToLower(string(doc)), "\\u") && strings.Count(strings.ToLower(string(doc)), "session") == 1 {
				t.Fatalf("session %q, encoding/json says %q", v.Session, ref.Session)
			}
			var again abi.CreateRequest
			out := v.AppendJSON(nil)
			if err := again.DecodeJSON(out, true); err != nil {
				t.Fatalf("own output %q refused: %v", out, err)
			}
			if !reflect.DeepEqual(normal(v), normal(again)) {
				t.Fatalf("%+v became %+v", v, again)
			}
		}
		var l abi.ListReply
		_ = l.DecodeJSON(doc, false)
	})
}

// normal drops the difference between an absent and an empty optional field,
// which the wire does not carry.
func normal(v abi.CreateRequest) abi.CreateRequest {
	if len(v.Ports) == 0 {
		v.Ports = nil
	}
	return v
}

func FuzzAppendString(f *testing.F) {
	f.Add("plain")
	f.Add("q\"\\\n\x00\xff\u2028")
	f.Fuzz(func(t *testing.T, s string) {
		out := abi.AppendString(nil, s)
		var back string
		if err := json.Unmarshal(out, &back); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) && back != want {
			t.Fatalf("%q became %q", s, back)
		}
	})
}

func BenchmarkDecodeCreate(b *testing.B) {
	full := fullCreate()
	full.Config = abi.Raw(`"` + strings.Repeat("x", 800) + `"`)
	doc := full.AppendJSON(nil)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		var v abi.CreateRequest
		if err := v.DecodeJSON(doc, true); err != nil {
			b.Fatal(err)
		}
	}
}

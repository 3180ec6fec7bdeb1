package manifest_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/sbxhost/sbxhost/manifest"
)

func seeds(f *testing.F) {
	for _, s := range []string{
		`{}`, wholeJSON(), referenceJSON, `{"environment":{"A":1}}`, `{"files":{"a":{"content":"\u0001\u0001\u0001\u0001\u0001\u0001"}}}`,
		`{"files":{"./a//b":{"contentBase64":"/w=="}}}`, `{"environment":{"A":{"type":"temporal.worker_env_value"}}}`,
		`{"lifetime":{"ttl":"1h0m0.5s"},"resources":{"cpus":0.1}}`, `{"labels":{"a":"b"},"processEnvironmentBindings":{}}`, `{"a":1,"a":2}`,
	} {
		f.Add([]byte(s))
	}
}

// FuzzParse: no panic; what is read can be written and reads back the same;
// digests are stable.
func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := manifest.Parse(data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "manifest") {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		out, err := m.MarshalJSON()
		if err != nil {
			t.Fatalf("cannot be written: %v", err)
		}
		back, err := manifest.Parse(out)
		if err != nil {
			t.Fatalf("cannot be read back: %v\n%s", err, out)
		}
		if !reflect.DeepEqual(m, back) {
			t.Fatalf("read back as %#v, was %#v", back, m)
		}
		again, _ := back.MarshalJSON()
		if !bytes.Equal(out, again) || m.Digest() != back.Digest() || m.ReferencesDigest() != back.ReferencesDigest() {
			t.Fatal("the canonical form or a digest is not stable")
		}
		if !reflect.DeepEqual(m, m.Clone()) {
			t.Fatal("Clone differs")
		}
		if err := manifest.CheckGrantShapedKeys(data); err != nil {
			t.Fatalf("accepted, yet: %v", err)
		}
	})
}

// FuzzErrorsHideLiterals: whatever is wrong with a document, no error contains
// the content of a variable or file in it.
func FuzzErrorsHideLiterals(f *testing.F) {
	f.Add("A", `"B":1`, `"image":1`)
	f.Add("A", "\"\xff\":1", ``)
	f.Add("A\x00", `"A":"x"`, `}`)
	f.Add("LD_PRELOAD", ``, `"files":{"a":{"content":"","mode":1}}`)
	f.Fuzz(func(t *testing.T, key, before, after string) {
		if strings.Contains(key+before+after, "canary") {
			t.Skip("the input holds the marker itself")
		}
		k, _ := json.Marshal(key)
		for _, value := range []string{`"` + canary + `"`, `"` + canary, `"` + canary + `\q"`, canary, `["` + canary + `"]`,
			`{"type":"` + canary + `"}`, `{"type":"process_env","value":"` + canary + `"}`, `{"type":"process_env","name":"` + canary + `="}`} {
			doc := `{"environment":{` + before + string(k) + `:` + value + `},` + after + `}`
			_, err := manifest.Parse([]byte(doc))
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Fatalf("%v", err)
			}
			if err := manifest.CheckGrantShapedKeys([]byte(doc)); err != nil && strings.Contains(err.Error(), "canary") {
				t.Fatalf("%v", err)
			}
		}
		pasted, _ := json.Marshal(key + "=" + canary)
		doc := `{"environment":{` + string(pasted) + `:` + before + `}` + after + `}`
		if _, err := manifest.Parse([]byte(doc)); err != nil && strings.Contains(err.Error(), "canary") {
			t.Fatalf("%v", err)
		}
	})
}

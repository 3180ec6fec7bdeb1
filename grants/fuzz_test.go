package grants_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
)

// FuzzSetJSON: no panic; what is read is valid, can be written, reads back the
// same, and allows nothing but its own pairs.
func FuzzSetJSON(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"allowedProcessEnvironmentKeys":["A","*"],"processEnvironmentBindings":{"T":"H"}}`, `{"allowedProcessEnvironmentKeys":"A"}`,
		`{"allowedProcessEnvironmentKeys":[],"processEnvironmentBindings":{}}`, `{"processEnvironmentBindings":{"A":"B","A":"C"}}`,
		`{"allowedProcessEnvironmentKeys":["T"],"processEnvironmentBindings":{"T":"H"}}`, `{"processEnvironmentBindings":{"A":1}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var s grants.Set
		if err := s.UnmarshalJSON(data); err != nil {
			if !strings.HasPrefix(err.Error(), "grants: ") {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if err := s.Validate(); err != nil {
			t.Fatalf("read, yet not valid: %v", err)
		}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back grants.Set
		if err := back.UnmarshalJSON(out); err != nil {
			t.Fatalf("cannot be read back: %v", err)
		}
		if !reflect.DeepEqual(s, back) || !reflect.DeepEqual(s, s.Clone()) {
			t.Fatalf("read back as %#v, was %#v", back, s)
		}
		for dest, source := range s.ProcessEnvironmentBindings {
			if !s.Allows(manifest.Pair{Destination: dest, Source: source}) {
				t.Fatal("a binding is not allowed")
			}
			if s.Allows(manifest.Pair{Destination: dest, Source: source + "x"}) {
				t.Fatal("another source is allowed")
			}
		}
	})
}

// FuzzRequirements: no panic; what is read consists of injectable names without
// repetition and reads back the same; an error never shows an entry.
func FuzzRequirements(f *testing.F) {
	for _, s := range []string{
		``, `[]`, `["A","B"]`, `[{"name":"A","optional":true}]`, `[{"name":"A","optional":"true"}]`, `["A",{"name":"A","optional":true}]`,
		`{"A":true}`, `"A"`, `null`, `["LD_PRELOAD"]`, `["A=` + canary + `"]`, `[{"` + canary + `":1}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		reqs, err := grants.ParseRequirements(data)
		if err != nil {
			if strings.Contains(err.Error(), "canary") {
				t.Fatalf("an entry is shown: %v", err)
			}
			return
		}
		seen := map[string]bool{}
		for _, r := range reqs {
			if manifest.ValidEnvKey(r.Name) != nil || manifest.ReservedDestination(r.Name) || seen[r.Name] {
				t.Fatalf("accepted %q", r.Name)
			}
			seen[r.Name] = true
		}
		if len(reqs) == 0 {
			return
		}
		out, err := json.Marshal(reqs)
		if err != nil {
			t.Fatal(err)
		}
		back, err := grants.ParseRequirements(out)
		if err != nil || !reflect.DeepEqual(reqs, back) {
			t.Fatalf("read back as %v (%v), was %v", back, err, reqs)
		}
	})
}

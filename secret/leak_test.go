package secret_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/secret"
)

// canary is long enough for its forms to be unmistakable.
const canary = "canary-9b1f-s3cr3t-value"

// forms returns how a printer could show the canary.
func forms() map[string]string {
	var decimal []string
	for _, c := range []byte(canary) {
		decimal = append(decimal, fmt.Sprint(c))
	}
	return map[string]string{
		"raw":            canary,
		"part":           "s3cr3t",
		"lower hex":      hex.EncodeToString([]byte(canary)),
		"upper hex":      strings.ToUpper(hex.EncodeToString([]byte(canary))),
		"spaced hex":     fmt.Sprintf("% x", canary),
		"go bytes":       strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", []byte(canary)), "[]byte{"), "}"),
		"decimal":        strings.Join(decimal, " "),
		"decimal commas": strings.Join(decimal, ","),
		"base64":         base64.RawStdEncoding.EncodeToString([]byte(canary)),
		"hex dump":       "63 61 6e 61 72 79", // "canary" as spew dumps it
	}
}

func assertHidden(t *testing.T, out string) {
	t.Helper()
	for name, f := range forms() {
		assert.NotContains(t, out, f, name)
	}
}

type exported struct {
	Name string
	V    secret.Value
	E    secret.Env
	PV   *secret.Value
	PE   *secret.Env
	List []secret.Value
	Map  map[string]secret.Value
	Any  any
}

type unexported struct {
	name string
	v    secret.Value
	e    secret.Env
	pv   *secret.Value
	pe   *secret.Env
	list []secret.Value
	m    map[string]secret.Value
	any  any
	next *unexported
}

type embedded struct {
	secret.Value
}

// holders returns every shape a secret may be held in.
func holders() map[string]any {
	v := secret.FromString(canary)
	e := secret.NewEnv(map[string]secret.Value{"TOKEN": v})
	u := unexported{name: "n", v: v, e: e, pv: &v, pe: &e, list: []secret.Value{v}, m: map[string]secret.Value{"k": v}, any: v}
	deep := unexported{next: &unexported{next: &u}}
	return map[string]any{
		"value":              v,
		"pointer":            &v,
		"env":                e,
		"env pointer":        &e,
		"slice":              []secret.Value{v},
		"map":                map[string]secret.Value{"k": v},
		"map of pointers":    map[string]*secret.Env{"k": &e},
		"interface":          []any{v, &v, e, &e},
		"exported field":     exported{Name: "n", V: v, E: e, PV: &v, PE: &e, List: []secret.Value{v}, Map: map[string]secret.Value{"k": v}, Any: v},
		"pointer to struct":  &exported{V: v, E: e},
		"unexported field":   u,
		"pointer unexported": &u,
		"nested pointers":    &deep,
		"embedded":           embedded{v},
		"map of unexported":  map[string]unexported{"k": u},
	}
}

// printers returns every way to text that is tried on every holder.
func printers() map[string]func(any) string {
	p := map[string]func(any) string{
		"testify diff": func(a any) string {
			rec := &recorder{}
			// Both of the same type, so that testify dumps and diffs them.
			assert.Equal(rec, a, reflect.Zero(reflect.TypeOf(a)).Interface())
			assert.Equal(rec, a, "something else")
			assert.ElementsMatch(rec, []any{a}, []any{1})
			assert.Nil(rec, a)
			assert.Contains(rec, []any{1}, a)
			return rec.String()
		},
		"slog text": func(a any) string {
			var b bytes.Buffer
			slog.New(slog.NewTextHandler(&b, nil)).Info("m", "a", a, slog.Group("g", "b", a))
			return b.String()
		},
		"slog json": func(a any) string {
			var b bytes.Buffer
			slog.New(slog.NewJSONHandler(&b, nil)).Info("m", "a", a, slog.Group("g", "b", a))
			return b.String()
		},
		"json": func(a any) string {
			b, err := json.Marshal(a)
			return string(b) + fmt.Sprint(err)
		},
		"xml": func(a any) string {
			b, err := xml.Marshal(a)
			return string(b) + fmt.Sprint(err)
		},
		"gob": func(a any) string {
			var b bytes.Buffer
			err := gob.NewEncoder(&b).Encode(a)
			return b.String() + fmt.Sprint(err)
		},
		"binary": func(a any) string {
			var b bytes.Buffer
			err := binary.Write(&b, binary.LittleEndian, a)
			return b.String() + fmt.Sprint(err)
		},
		"error": func(a any) string { return fmt.Errorf("wrapped: %v, %w", a, errors.New("x")).Error() },
		"panic": func(a any) (out string) {
			defer func() { out = fmt.Sprint(recover()) }()
			panic(a)
		},
	}
	for _, verb := range strings.Fields("%v %+v %#v %s %x %X %q %d %t %p %b %o %e %U %T %c %20v %-5s %.3s %+q") {
		p[verb] = func(a any) string { return fmt.Sprintf(verb, a) }
	}
	p["% x"] = func(a any) string { return fmt.Sprintf("% x", a) }
	return p
}

// recorder collects what testify would print.
type recorder struct{ bytes.Buffer }

func (r *recorder) Errorf(format string, args ...any) { _, _ = fmt.Fprintf(r, format, args...) }

func TestNoPrinterShowsASecret(t *testing.T) {
	t.Parallel()
	for hn, h := range holders() {
		for pn, print := range printers() {
			t.Run(hn+" by "+pn, func(t *testing.T) {
				t.Parallel()
				assertHidden(t, print(h))
			})
		}
	}
}

// The scan must be able to see: the same printers do show a plain string or
// slice in the same shapes.
func TestPrintersShowAPlainValue(t *testing.T) {
	t.Parallel()
	type holder struct{ V []byte }
	plain := holder{[]byte(canary)}
	text := map[string]string{"k": canary}
	seen := func(out string) bool {
		for _, f := range forms() {
			if strings.Contains(out, f) {
				return true
			}
		}
		return false
	}
	for name, print := range printers() {
		switch name {
		case "%t", "%p", "%b", "%o", "%e", "%U", "%T", "%c", "%.3s", "binary":
			continue // show no form of these shapes that we look for
		}
		if name == "slog text" || name == "slog json" || name == "panic" {
			assert.True(t, seen(print(text)), name)
			continue
		}
		assert.True(t, seen(print(plain)) || seen(print(text)), name)
	}
}

func TestMarshallersRefuse(t *testing.T) {
	t.Parallel()
	v := secret.FromString(canary)
	e := secret.NewEnv(map[string]secret.Value{"TOKEN": v})
	for name, call := range map[string]func() error{
		"value json":         func() error { _, err := json.Marshal(v); return err },
		"value pointer json": func() error { _, err := json.Marshal(&v); return err },
		"value in struct":    func() error { _, err := json.Marshal(exported{V: v}); return err },
		"env json":           func() error { _, err := json.Marshal(e); return err },
		"value text":         func() error { _, err := v.MarshalText(); return err },
		"value binary":       func() error { _, err := v.MarshalBinary(); return err },
		"value gob":          func() error { _, err := v.GobEncode(); return err },
		"value yaml":         func() error { _, err := v.MarshalYAML(); return err },
		"env text":           func() error { _, err := e.MarshalText(); return err },
		"env binary":         func() error { _, err := e.MarshalBinary(); return err },
		"env gob":            func() error { _, err := e.GobEncode(); return err },
		"env yaml":           func() error { _, err := e.MarshalYAML(); return err },
		"gob encoder":        func() error { return gob.NewEncoder(&bytes.Buffer{}).Encode(v) },
		"value from json":    func() error { return json.Unmarshal([]byte(`"x"`), &v) },
		"env from json":      func() error { return json.Unmarshal([]byte(`{"A":"x"}`), &e) },
		"value from text":    func() error { return v.UnmarshalText([]byte("x")) },
		"value from gob":     func() error { return v.GobDecode([]byte("x")) },
		"env from gob":       func() error { return e.GobDecode([]byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			err := call()
			require.ErrorIs(t, err, secret.ErrMarshal)
			assertHidden(t, err.Error())
		})
	}
	assert.Equal(t, canary, string(v.Reveal()), "a refused unmarshal changes nothing")
}

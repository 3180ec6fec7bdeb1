package leaktest_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/leaktest"
)

// found returns the names of the canaries that a scan of data finds.
func found(t *testing.T, scanner leaktest.Scanner, data []byte) map[string]string {
	t.Helper()
	var c leaktest.Corpus
	c.Add("planted", data)
	hits, err := scanner.Find(&c)
	require.NoError(t, err)
	out := map[string]string{}
	for _, h := range hits {
		out[h.Canary] = h.Form
	}
	return out
}

func TestEveryFormIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range leaktest.Canaries(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			forms := leaktest.Forms(c.Value())
			scanner := leaktest.NewScanner([]leaktest.Canary{c})
			require.NotEmpty(t, forms)
			if c.Name == "LONG" {
				forms = forms[:12] // the rest are megabytes of the same
			}
			for _, f := range forms {
				got := found(t, scanner, []byte("some text before "+f.Text+" and some after"))
				assert.Contains(t, got, c.Name, "form %s was planted and not seen", f.Kind)
			}
		})
	}
}

// TestRealEncodersAreFound plants what the standard library's encoders make, with
// which the harness shares no code.
func TestRealEncodersAreFound(t *testing.T) {
	t.Parallel()
	encoders := map[string]func(v string) string{
		"raw":          func(v string) string { return v },
		"base64":       func(v string) string { return base64.StdEncoding.EncodeToString([]byte(v)) },
		"base64 +1":    func(v string) string { return base64.StdEncoding.EncodeToString([]byte("x" + v + "\n")) },
		"base64 +2":    func(v string) string { return base64.StdEncoding.EncodeToString([]byte("xy" + v + "abc")) },
		"base64 url":   func(v string) string { return base64.URLEncoding.EncodeToString([]byte("k=" + v)) },
		"base64 raw":   func(v string) string { return base64.RawURLEncoding.EncodeToString([]byte("=" + v)) },
		"hex":          func(v string) string { return hex.EncodeToString([]byte(v)) },
		"hex upper":    func(v string) string { return strings.ToUpper(hex.EncodeToString([]byte(v))) },
		"path escape":  url.PathEscape,
		"query escape": url.QueryEscape,
		"query lower": func(v string) string {
			e := []byte(url.QueryEscape(v))
			for i := 0; i+2 < len(e); i++ {
				if e[i] == '%' {
					copy(e[i+1:], bytes.ToLower(e[i+1:i+3]))
				}
			}
			return string(e)
		},
		"json": func(v string) string { b, _ := json.Marshal(v); return string(b) },
		"json plain": func(v string) string {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			_ = e.Encode(v)
			return b.String()
		},
		"json in json": func(v string) string {
			b, _ := json.Marshal(map[string]string{"k": v})
			b, _ = json.Marshal(string(b))
			return string(b)
		},
		"json bytes":  func(v string) string { b, _ := json.Marshal([]byte(v)); return string(b) },
		"quote":       strconv.Quote,
		"quote ascii": strconv.QuoteToASCII,
		"html":        html.EscapeString,
		"fmt %v":      func(v string) string { return fmt.Sprintf("%v", []byte(v)) },
		"fmt %#v":     func(v string) string { return fmt.Sprintf("%#v", []byte(v)) },
		"fmt %x":      func(v string) string { return fmt.Sprintf("%x", v) },
		"fmt %X":      func(v string) string { return fmt.Sprintf("%X", v) },
		"shell":       func(v string) string { return "'" + strings.ReplaceAll(v, "'", `'\''`) + "'" },
		"bash %q": func(v string) string {
			cmd := exec.Command("bash", "-c", `printf %q "$1"`, "bash", v)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}
			out, err := cmd.Output()
			if err != nil {
				return v // no bash here
			}
			return string(out)
		},
		"crlf": func(v string) string { return strings.ReplaceAll(v, "\n", "\r\n") },
		"head": func(v string) string { // a value cut short by a limit
			return v[:max(min(len(v), 40), len(v)*9/10)]
		},
	}
	for _, c := range leaktest.Canaries(t) {
		scanner := leaktest.NewScanner([]leaktest.Canary{c})
		for name, encode := range encoders {
			if name == "head" && len(c.Value()) < 64 {
				continue
			}
			// The path escape of Go keeps a set of its own ($&+=:@), which is no
			// form anybody claims; a value without them comes out the same.
			if name == "path escape" && strings.ContainsAny(c.Value(), "$&+=:@") {
				continue
			}
			t.Run(c.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				got := found(t, scanner, []byte("head "+encode(c.Value())+" tail"))
				assert.Contains(t, got, c.Name)
			})
		}
	}
}

func TestNothingIsFoundInNothing(t *testing.T) {
	t.Parallel()
	canaries := leaktest.Canaries(t)
	others := leaktest.Canaries(t)
	var c leaktest.Corpus
	for _, o := range others {
		c.Add(o.Name, []byte(o.Value()))
	}
	for _, can := range canaries {
		c.AddValue("canary", can.Name)
	}
	c.Add("names", fmt.Append(nil, canaries[0].String(), fmt.Sprintf("%#v", canaries[0])))
	hits, err := leaktest.Find(canaries, &c)
	require.NoError(t, err)
	assert.Empty(t, hits)
	leaktest.Scan(t, canaries, &c)
}

// hidden is a struct whose String method tells nothing while its fields do.
type hidden struct {
	public string
	nested *inner
}

type inner struct {
	bytes []byte
	table map[string]any
}

func (hidden) String() string               { return "hidden" }
func (hidden) GoString() string             { return "hidden" }
func (hidden) Error() string                { return "hidden" }
func (hidden) MarshalJSON() ([]byte, error) { return []byte(`"hidden"`), nil }

func TestFieldsBehindMethodsAreSeen(t *testing.T) {
	t.Parallel()
	canary := leaktest.Canaries(t)[0]
	v := canary.Value()
	for name, planted := range map[string]any{
		"string":  hidden{public: v},
		"bytes":   &hidden{nested: &inner{bytes: []byte(v)}},
		"map":     []any{hidden{nested: &inner{table: map[string]any{"k": []string{"x", v}}}}},
		"map key": map[any]int{v: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c leaktest.Corpus
			c.AddValue("value", planted)
			hits, err := leaktest.Find([]leaktest.Canary{canary}, &c)
			require.NoError(t, err)
			assert.NotEmpty(t, hits)
		})
	}
	t.Run("wrapped error", func(t *testing.T) {
		t.Parallel()
		var c leaktest.Corpus
		c.AddError("error", fmt.Errorf("outer: %w", errors.Join(errors.New("x"), hidden{public: v})))
		hits, err := leaktest.Find([]leaktest.Canary{canary}, &c)
		require.NoError(t, err)
		assert.NotEmpty(t, hits)
	})
}

func TestTreesAreRead(t *testing.T) {
	t.Parallel()
	canaries := leaktest.Canaries(t)
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", "b")
	require.NoError(t, os.MkdirAll(deep, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(deep, "file"), []byte("x="+canaries[2].Value()), 0o600))
	require.NoError(t, os.Symlink(canaries[0].Value(), filepath.Join(dir, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, canaries[1].Value()), 0o700))
	var c leaktest.Corpus
	c.AddTree("tree", dir)
	hits, err := leaktest.Find(canaries, &c)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, h := range hits {
		names[h.Canary] = true
	}
	assert.Equal(t, map[string]bool{canaries[0].Name: true, canaries[1].Name: true, canaries[2].Name: true}, names)

	var missing leaktest.Corpus
	missing.AddTree("tree", filepath.Join(dir, "none"))
	_, err = leaktest.Find(canaries, &missing)
	assert.Error(t, err, "a tree that cannot be read was not scanned")
}

func TestReportsDoNotRepeatTheValue(t *testing.T) {
	t.Parallel()
	canaries := leaktest.Canaries(t)
	var planted, reports leaktest.Corpus
	for _, can := range canaries {
		planted.Add("planted", []byte(can.Value()))
	}
	hits, err := leaktest.Find(canaries, &planted)
	require.NoError(t, err)
	require.NotEmpty(t, hits)
	for _, h := range hits {
		reports.AddValue("hit", h)
	}
	leaktest.Scan(t, canaries, &reports)
}

// failing records what a scan says of a test.
type failing struct {
	testing.TB
	failures int
}

func (f *failing) Errorf(string, ...any) { f.failures++ }
func (f *failing) Helper()               {}

func TestScanFailsTheTest(t *testing.T) {
	t.Parallel()
	canaries := leaktest.Canaries(t)
	var c leaktest.Corpus
	c.Add("planted", []byte(canaries[3].Value()))
	var f failing
	leaktest.Scan(&f, canaries, &c)
	assert.Positive(t, f.failures)
	f = failing{}
	leaktest.Scan(&f, canaries, &leaktest.Corpus{})
	assert.Positive(t, f.failures, "an empty corpus is no proof")
}

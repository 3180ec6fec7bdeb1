package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"math/rand/v2"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/redact"
)

// decode reads a form back with a decoder that is not this package's. It
// reports false for kinds that lose something by design.
func decode(t *testing.T, f redact.Form) (string, bool) {
	t.Helper()
	unjson := func(s string) string {
		var out string
		require.NoError(t, json.Unmarshal([]byte(`"`+s+`"`), &out), "%s %q", f.Kind, f.Text)
		return out
	}
	kind := f.Kind
	if inner, ok := strings.CutPrefix(kind, "edges-"); ok {
		out, ok := decode(t, redact.Form{Kind: inner, Text: f.Text})
		return string([]rune(out)), ok
	}
	switch {
	case slices.Contains([]string{"raw", "replaced", "lf", "crlf", "blank-joined", "joined", "blank-joined-trimmed", "joined-trimmed", "words"}, kind):
		return f.Text, true
	case strings.HasPrefix(kind, "json-") && strings.HasSuffix(kind, "-in-json"):
		return unjson(unjson(f.Text)), true
	case strings.HasPrefix(kind, "json-"):
		return unjson(f.Text), true
	case strings.HasPrefix(kind, "go-quoted"):
		out, err := strconv.Unquote(`"` + f.Text + `"`)
		require.NoError(t, err)
		return out, true
	case strings.HasPrefix(kind, "percent-query"), strings.HasPrefix(kind, "percent-form"):
		out, err := url.QueryUnescape(f.Text)
		require.NoError(t, err)
		return out, true
	case strings.HasPrefix(kind, "percent-minimal"):
		return strings.NewReplacer("%3A", ":", "%3a", ":", "%40", "@", "%2F", "/", "%2f", "/").Replace(f.Text), true
	case strings.HasPrefix(kind, "percent-"):
		out, err := url.PathUnescape(f.Text)
		require.NoError(t, err)
		return out, true
	case strings.HasPrefix(kind, "hex-"):
		out, err := hex.DecodeString(f.Text)
		require.NoError(t, err)
		return string(out), true
	case kind == "markup":
		return html.UnescapeString(f.Text), true
	case kind == "doubled-single":
		return strings.ReplaceAll(f.Text, `''`, `'`), true
	case kind == "doubled-double":
		return strings.ReplaceAll(f.Text, `""`, `"`), true
	case kind == "doubled-dollar":
		return strings.ReplaceAll(f.Text, `$$`, `$`), true
	}
	return "", false
}

func checkForms(t *testing.T, v string) {
	t.Helper()
	c := redact.Core(v)
	for _, f := range redact.Forms(v) {
		if strings.HasPrefix(f.Kind, "doubled") && strings.ContainsAny(c, `"'$`) && (strings.Contains(c, `""`) || strings.Contains(c, `''`) || strings.Contains(c, `$$`)) {
			continue // ReplaceAll pairs runs just as well, but odd runs are ambiguous
		}
		got, ok := decode(t, f)
		if !ok { // found and TestShellFormsDecodeBack decode these
			require.Regexp(t, "^(base64|shell)-", f.Kind, "a kind without a decoder")
			continue
		}
		if strings.ContainsAny(c, "\r\n") { // some forms have other line ends, or blanks for them
			squeeze := func(s string) string { return strings.Join(strings.Fields(string([]rune(s))), "") }
			require.Equal(t, squeeze(c), squeeze(got), "%s %q", f.Kind, f.Text)
		} else {
			// What is not UTF-8 has forms with U+FFFD in place of the bad bytes.
			require.Contains(t, []string{c, string([]rune(c))}, got, "%s %q", f.Kind, f.Text)
		}
	}
}

func randomValue(rng *rand.Rand, n int) string {
	const special = "abcXYZ019 \t!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~é漢😀\x7f\x01"
	runes := []rune(special)
	var b strings.Builder
	for b.Len() < n {
		b.WriteRune(runes[rng.IntN(len(runes))])
	}
	return b.String()
}

func TestFormsDecodeBack(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		checkForms(t, randomValue(rng, 8+rng.IntN(20)))
		checkForms(t, randomValue(rng, 5)+"\r\n  "+randomValue(rng, 5)+"\n"+randomValue(rng, 5))
	}
}

func FuzzForms(f *testing.F) {
	for _, v := range []string{canary, `p'a"s$s\w`, "käse/brot:x@y", "\xff\xfe12345678", "a&+b&+cdefgh", "`quoted`", "𝄞 clef + sharp"} {
		f.Add(v, "pre", "post")
	}
	f.Add("", "A", "A") // found by fuzzing: the encoders take anything
	f.Fuzz(func(t *testing.T, v, prefix, suffix string) {
		if len(v) > 300 || len(prefix) > 300 || len(suffix) > 300 {
			return
		}
		checkForms(t, v)
		found(t, v, prefix, suffix)
	})
}

// found checks that base64 of the value inside anything is masked, with the
// characters beside it that carry its bits.
func found(t *testing.T, v, prefix, suffix string) {
	t.Helper()
	r := redact.New(redact.Options{})
	if len(r.Add(redact.Secret{Name: "A", Value: []byte(v)})) > 0 || len(redact.Core(v)) < 8 {
		return
	}
	v = redact.Core(v)
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
		text := enc.EncodeToString([]byte(prefix + v + suffix))
		first := len(prefix) * 8 / 6             // the first character with bits of the value
		last := ((len(prefix)+len(v))*8 + 5) / 6 // after the last one
		masked := r.String(text)
		i := strings.Index(masked, "[redacted:A]")
		require.GreaterOrEqual(t, i, 0, "%q", text)
		require.LessOrEqual(t, i, first, "%q became %q", text, masked)
		rest := masked[strings.LastIndex(masked, "[redacted:A]")+len("[redacted:A]"):]
		require.LessOrEqual(t, len(rest), len(text)-last, "%q became %q", text, masked)
	}
	require.Contains(t, r.String(hex.EncodeToString([]byte(prefix+v+suffix))), "[redacted:A]")
	require.Contains(t, r.String(prefix+v+suffix), "[redacted:A]")
	require.Empty(t, r.Contains([]byte(v))[1:])
}

func TestBase64Alignments(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	for range 1000 {
		found(t, randomValue(rng, 8+rng.IntN(40)), randomValue(rng, 1+rng.IntN(10))[:rng.IntN(2)], randomValue(rng, rng.IntN(10)))
		found(t, randomValue(rng, 8+rng.IntN(40)), randomValue(rng, rng.IntN(10)), randomValue(rng, rng.IntN(10)))
	}
}

// The shell itself is the decoder of the shell forms.
func TestShellFormsDecodeBack(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here to decode shell quoting with")
	}
	quote := map[string][2]string{
		"shell-single": {"'", "'"}, "shell-single-double": {"'", "'"},
		"shell-ansi": {"$'", "'"}, "shell-ansi-octal": {"$'", "'"},
		"shell-backslash": {"", ""}, "shell-backslash-hash": {"", ""}, "shell-backslash-all": {"", ""},
		"shell-double": {`"`, `"`},
	}
	rng := rand.New(rand.NewPCG(9, 10))
	var script, want strings.Builder
	for range 200 {
		v := redact.Core(randomValue(rng, 12))
		for _, f := range redact.Forms(v) {
			q, ok := quote[f.Kind]
			if !ok || q[0] == "" && strings.ContainsAny(v[:1], "#~") || f.Kind == "shell-backslash" && strings.Contains(v, "~") {
				continue
			}
			script.WriteString("printf '%s\\0' " + q[0] + f.Text + q[1] + "\n")
			want.WriteString(v + "\x00")
		}
	}
	cmd := exec.Command(bash, "--norc", "-s")
	cmd.Stdin = strings.NewReader(script.String())
	cmd.Env = []string{"LC_ALL=C.UTF-8"}
	out, err := cmd.Output()
	require.NoError(t, err)
	got, expected := strings.Split(string(out), "\x00"), strings.Split(want.String(), "\x00")
	require.Equal(t, len(expected), len(got))
	require.Greater(t, len(got), 500)
	for i := range got {
		require.Equal(t, expected[i], got[i])
	}
}

// What bash prints in traces and by %q is among the forms.
func TestShellOutputIsFound(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here to print with")
	}
	rng := rand.New(rand.NewPCG(11, 12))
	for range 30 {
		v := redact.Core(randomValue(rng, 16))
		r := redact.New(redact.Options{})
		require.Empty(t, r.Add(redact.Secret{Name: "A", Value: []byte(v)}))
		cmd := exec.Command(bash, "--norc", "-xc", `printf '%q\n' "$V"; : "$V"; declare -p V`)
		cmd.Env = []string{"LC_ALL=C.UTF-8", "V=" + v}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err)
		masked, hits := r.Bytes(out)
		assert.GreaterOrEqual(t, hits["A"], int64(4), "%q: %s", v, masked)
	}
}

// What the short cut for values that need no escaping leaves out would not
// change them.
func TestInertForms(t *testing.T) {
	t.Parallel()
	for _, v := range []string{canary, "0123456789", "ghp_AbCdEf0123456789", "a-b_c.d-e_f.g", "deadbeefdeadbeef", "rnu-b\u0066tlx"} {
		short, full, ok := redact.InertForms(v)
		require.True(t, ok, v)
		assert.ElementsMatch(t, full, short)
	}
	for _, c := range "\x00 \t\n!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~\x7fé" {
		_, _, ok := redact.InertForms("canary" + string(c))
		assert.False(t, ok, "%q", c)
	}
}

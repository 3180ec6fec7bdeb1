package redact_test

import (
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/redact"
)

// A value that holds backslashes is printed as something else where echo or
// printf interprets them.
func TestInterpretedEscapes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, value, printed string }{
		{"dash echo, newline", `pa55\nw0rd-canary`, "pa55\nw0rd-canary"},
		{"on a terminal", `pa55\nw0rd-canary`, "pa55\r\nw0rd-canary"},
		{"tab, bell, backspace, feeds, escape", `pa55\t\a\b\f\v\ew0rd-canary`, "pa55\t\a\b\f\v\x1bw0rd-canary"},
		{"doubled backslash", `pa55\\w0rd-canary`, `pa55\w0rd-canary`},
		{"dash echo, octal", `pa55\101\0101\0w0rd-canary`, "pa55AA\x00w0rd-canary"},
		{"bash echo -e, octal only after zero", `pa55\0101\101w0rd-canary`, `pa55A\101w0rd-canary`},
		{"bash echo -e, hex and unicode", `pa55\x41\u00e9\U0001f600w0rd-canary`, "pa55Aé😀w0rd-canary"},
		{"bash printf format, octal of three digits", `pa55\0101w0rd-canary`, "pa55\b1w0rd-canary"},
		{"unknown escapes stay", `pa55\q\8w0\nrd-canary`, "pa55\\q\\8w0\nrd-canary"},
		{"a last backslash stays", `pa55\tw0rd-canary\`, "pa55\tw0rd-canary\\"},
		{`\c ends the output`, `pa55w0rd-canary\cthe rest is not printed`, "pa55w0rd-canary"},
		{"base64 of it", `pa55\nw0rd-canary!!`, "cGE1NQp3MHJkLWNhbmFyeSEh"},
		{"hex of it", `pa55\nw0rd-canary`, "706135350a773072642d63616e617279"},
		{"a leaf of a JSON value", `{"password": "pa55\\tw0rd-canary"}`, "pa55\tw0rd-canary"},
		{"a line of a value", "first-line-of-it\npa55\\tw0rd-canary", "pa55\tw0rd-canary"},
		{"a line that the escapes made", `first-line-of-it\npa55w0rd-canary`, "pa55w0rd-canary"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := redact.New(redact.Options{})
			require.Empty(t, r.Add(redact.Secret{Name: "A", Value: []byte(tc.value)}))
			assert.Equal(t, "> [redacted:A] <", r.String("> "+tc.printed+" <"))
			assert.Equal(t, "[redacted:A]", strings.TrimRight(r.String(tc.value), "\\"))
		})
	}
}

// What the escapes leave of a value must pass the floors, or ordinary text is
// masked.
func TestInterpretedEscapesKeepTheFloors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ value, text string }{
		{`\n\n\n\n\n\n\n\n`, "a\n\n\n\n\n\n\n\nb"},
		{`\101\102\103`, "the ABC of it"},
		{`true\c-canary-canary`, "it is true"},
		{`/usr\c/canary/canary`, "/usr/bin"},
		{`\061\062\063\064\065`, "port 12345"},
	} {
		r := redact.New(redact.Options{})
		r.Add(redact.Secret{Name: "A", Value: []byte(tc.value)})
		assert.Equal(t, tc.text, r.String(tc.text), "%q", tc.value)
		assert.Equal(t, "[redacted:A]", r.String(tc.value), "%q", tc.value)
	}
}

// The shells themselves say what they print.
func TestInterpretedEscapesOfShells(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(13, 14))
	pieces := []string{`\n`, `\t`, `\\`, `\0`, `\1`, `\7`, `\8`, `\x4`, `\x41`, `\u00e9`, `\e`, `\q`, `\a`, `\101`, `\0101`, `\c`,
		"a", "B", "7", "0", "x", "-", " ", "'", `"`, "é"}
	tested := 0
	for _, sh := range []struct{ program, script string }{
		{"dash", `echo "$V"`},
		{"dash", `printf %b "$V"`},
		{"dash", `printf "$V"`},
		{"bash", `echo -e "$V"`},
		{"bash", `printf %b "$V"`},
		{"bash", `printf -- "$V"`},
		{"bash", `shopt -s xpg_echo; echo "$V"`},
	} {
		path, err := exec.LookPath(sh.program)
		if err != nil {
			continue
		}
		for range 40 {
			var b strings.Builder
			b.WriteString("canary")
			for range 8 {
				b.WriteString(pieces[rng.IntN(len(pieces))])
			}
			b.WriteString("canary")
			v := b.String()
			cmd := exec.Command(path, "-c", sh.script)
			cmd.Env = []string{"LC_ALL=C.UTF-8", "V=" + v}
			out, err := cmd.Output()
			require.NoError(t, err)
			r := redact.New(redact.Options{})
			require.Empty(t, r.Add(redact.Secret{Name: "A", Value: []byte(v)}))
			if len(redact.Core(string(out))) < 8 {
				continue // \c left too little
			}
			tested++
			assert.Equal(t, "[redacted:A]", strings.TrimSpace(r.String(string(out))), "%s -c %s: %q printed %q", sh.program, sh.script, v, out)
		}
	}
	if tested == 0 {
		t.Skip("neither dash nor bash here to print with")
	}
}

// Package leaktest looks for secrets where they must not be.
//
// A test makes canaries, uses them as secrets, gathers everything that came back
// or was left behind in a [Corpus], and lets [Scan] look for every canary in
// every form it may have taken. The encoders here are written from the formats'
// definitions and share no code with package redact, so that a form which redact
// gets wrong is not looked for in the same wrong way.
//
// A scan that finds nothing proves nothing unless the same scan is known to see:
// run it again with redaction off and require hits.
package leaktest

import (
	"crypto/rand"
	"encoding/binary"
	"strings"
	"testing"
)

// Canary is one secret made for a test. Printing it shows its name only.
type Canary struct {
	// Name says what is special about the value.
	Name  string
	value string
}

// Value returns the secret.
func (c Canary) Value() string { return c.value }

// Named returns the same secret under another name.
func (c Canary) Named(name string) Canary { return Canary{name, c.value} }

// String returns the name.
func (c Canary) String() string { return "canary " + c.Name }

// GoString returns the name.
func (c Canary) GoString() string { return c.String() }

// Canaries makes one canary of each kind, different in every run: values that
// are awkward for environments, shells, encoders and redactors.
func Canaries(tb testing.TB) []Canary {
	tb.Helper()
	w := func(n int) string { return word(tb, n) }
	return []Canary{
		{"PLAIN", "tok_" + w(28)},
		{"SHORT", w(9)},
		{"NEWLINE", w(14) + "\n" + w(17) + "\n" + w(12)},
		{"TRAILING_NEWLINE", w(20) + "\n"},
		{"QUOTES", w(6) + `'` + w(6) + `"` + w(6) + "`" + w(6) + `'"`},
		{"DOLLAR", "$" + w(8) + "${HOME}$(" + w(6) + ")" + w(5) + "$$"},
		{"BACKSLASH", w(8) + `\n` + w(6) + `\\` + w(5) + `\`},
		{"URL", w(6) + ":/?#[]@!&=+% " + w(8) + "*~"},
		{"MARKUP", w(6) + "<" + w(6) + ">&" + w(7) + ";"},
		{"UTF8", w(6) + "äöü€𝄞" + w(6) + "日本語" + w(5)},
		{"SPACES", "  " + w(10) + "\t" + w(10) + "  "},
		{"LONG", long(tb, 64<<10)},
	}
}

// long returns n bytes of random text in lines.
func long(tb testing.TB, n int) string {
	tb.Helper()
	var b strings.Builder
	for b.Len() < n-65 {
		b.WriteString(word(tb, 64) + "\n")
	}
	return b.String() + word(tb, n-b.Len())
}

// word returns n random characters that begin with a letter.
func word(tb testing.TB, n int) string {
	tb.Helper()
	const alphabet = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
	raw := make([]byte, 2*n)
	if _, err := rand.Read(raw); err != nil {
		tb.Fatalf("leaktest: no randomness: %v", err)
	}
	out := make([]byte, n)
	for i := range out {
		limit := len(alphabet)
		if i == 0 {
			limit = 48 // letters only
		}
		out[i] = alphabet[int(binary.BigEndian.Uint16(raw[2*i:]))%limit]
	}
	return string(out)
}

// Known returns a canary for a value that the test did not choose: a token that
// something issued.
func Known(name, value string) Canary { return Canary{name, value} }

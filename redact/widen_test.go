package redact_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/redact"
)

// A redactor begins with the small engine and changes to the fast one under way.
// What it lets through is the same before, at and after the change.
func TestEngineChangesUnderWay(t *testing.T) {
	t.Parallel()
	secrets := []redact.Secret{{Name: "A", Value: []byte("s3cr3t-canary-8c1f")}, {Name: "B", Value: []byte("another-canary/77+aa")}}
	r := rand.New(rand.NewPCG(1, 2))
	var text []byte
	for len(text) < 40<<10 {
		text = append(text, strings.Repeat("some output ", r.IntN(20))...)
		text = append(text, secrets[r.IntN(2)].Value[:1+r.IntN(18)]...)
		text = append(text, secrets[r.IntN(2)].Value...)
		text = append(text, '\n')
	}
	fast := redact.New(redact.Options{})
	fast.Add(secrets...)
	fast.Bytes(make([]byte, 32<<10)) // from now on
	want, _ := fast.Bytes(text)
	for _, sec := range secrets {
		require.False(t, bytes.Contains(want, sec.Value))
	}

	small := redact.New(redact.Options{Idle: -1})
	small.Add(secrets...)
	var got bytes.Buffer
	w := small.Writer(&got)
	for rest := text; len(rest) > 0; {
		n := min(len(rest), 1+r.IntN(300))
		_, err := w.Write(rest[:n])
		require.NoError(t, err)
		rest = rest[n:]
	}
	require.NoError(t, w.Close())
	require.True(t, bytes.Equal(want, got.Bytes()))

	for range 3 {
		fresh := redact.New(redact.Options{})
		fresh.Add(secrets...)
		for from := 0; from < len(text); from += 5 << 10 {
			piece := text[from:min(len(text), from+5<<10)]
			a, _ := fast.Bytes(piece)
			b, _ := fresh.Bytes(piece)
			require.True(t, bytes.Equal(a, b))
		}
	}
}

package redaction_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/sbxhost/sbxhost/redact"
)

const logSize = 64 << 20

// plainLog is lines like those of a service's log.
var plainLog = sync.OnceValue(func() []byte {
	rng := rand.New(rand.NewPCG(21, 22))
	words := strings.Fields(`request response user session token cache miss hit database query connection opened closed
		retry timeout handler worker queue message published consumed latency status ok error warning started finished
		GET POST /api/v1/items /api/v1/users /healthz 200 201 404 500 bytes ms id trace span host port node cluster shard`)
	out := make([]byte, 0, logSize+256)
	for len(out) < logSize {
		out = fmt.Appendf(out, "2026-01-%02dT%02d:%02d:%02d.%03dZ INFO id=%016x ", 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60), rng.IntN(1000), rng.Uint64())
		for range 4 + rng.IntN(12) {
			out = append(append(out, words[rng.IntN(len(words))]...), ' ')
		}
		out[len(out)-1] = '\n'
	}
	return out[:logSize]
})

// planted is the log with one needle every 10 KB.
func planted(needles []string) []byte {
	text := bytes.Clone(plainLog())
	for n, i := 0, 5000; i+200 < len(text); i += 10_000 {
		copy(text[i:], needles[n%len(needles)])
		n++
	}
	return text
}

const alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

func token(rng *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphanumeric[rng.IntN(len(alphanumeric))]
	}
	return string(b)
}

// set is what is to be masked: the secrets as our redactor takes them, and every
// byte string that a contender without forms of its own has to be told.
type set struct {
	name    string
	redact  *redact.Redactor
	needles []string
}

// rawSet is n needles of 20 to 40 bytes.
func rawSet(n int) set {
	rng := rand.New(rand.NewPCG(23, uint64(n)))
	s := set{name: fmt.Sprintf("needles=%d", n), redact: redact.New(redact.Options{Idle: -1})}
	secrets := make([]redact.Secret, n)
	for i := range secrets {
		v := token(rng, 20+rng.IntN(21))
		s.needles = append(s.needles, v)
		secrets[i] = redact.Secret{Name: fmt.Sprintf("N%d", i), Value: []byte(v), NoForms: true}
	}
	s.redact.Add(secrets...)
	return s
}

// formSet is ten access tokens in all their forms.
func formSet() set {
	rng := rand.New(rand.NewPCG(25, 26))
	s := set{name: "10secrets", redact: redact.New(redact.Options{Idle: -1})}
	for i := range 10 {
		v := "ghp_" + token(rng, 36)
		s.redact.Add(redact.Secret{Name: fmt.Sprintf("S%d", i), Value: []byte(v)})
		s.needles = append(s.needles, forms(v)...)
	}
	return s
}

// forms are those our redactor derives from a value that no escaping changes: raw,
// hex in two cases, and base64 in both alphabets at each of three alignments.
func forms(v string) []string {
	out := []string{v, hex.EncodeToString([]byte(v)), strings.ToUpper(hex.EncodeToString([]byte(v)))}
	for k := range 3 {
		all := base64.RawStdEncoding.EncodeToString(append(make([]byte, k), v...))
		std := all[(8*k+5)/6 : 8*(k+len(v))/6]
		out = append(out, std)
		if url := strings.NewReplacer("+", "-", "/", "_").Replace(std); url != std {
			out = append(out, url)
		}
	}
	return out
}

package redact_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sbxhost/sbxhost/redact"
	"github.com/sbxhost/sbxhost/secret"
)

const logSize = 64 << 20

// benchLog is made when a benchmark runs: lines like those of a service's log.
var benchLog = sync.OnceValue(func() []byte { return logOf(logSize) })

func logOf(size int) []byte {
	rng := rand.New(rand.NewPCG(21, 22))
	words := strings.Fields(`request response user session token cache miss hit database query connection opened closed
		retry timeout handler worker queue message published consumed latency status ok error warning started finished
		GET POST /api/v1/items /api/v1/users /healthz 200 201 404 500 bytes ms id trace span host port node cluster shard`)
	out := make([]byte, 0, size+256)
	for len(out) < size {
		out = fmt.Appendf(out, "2026-01-%02dT%02d:%02d:%02d.%03dZ INFO id=%016x ", 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60), rng.IntN(1000), rng.Uint64())
		for range 4 + rng.IntN(12) {
			out = append(append(out, words[rng.IntN(len(words))]...), ' ')
		}
		out[len(out)-1] = '\n'
	}
	return out[:size]
}

func token(rng *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet64[rng.IntN(len(alphabet64))]
	}
	return string(b)
}

// benchRedactor knows n raw needles of least bytes or more.
func benchRedactor(n, least, spread int) *redact.Redactor {
	r := redact.New(redact.Options{Idle: -1})
	r.Add(benchSecrets(n, least, spread)...)
	return r
}

func benchSecrets(n, least, spread int) []redact.Secret {
	rng := rand.New(rand.NewPCG(23, uint64(n)))
	secrets := make([]redact.Secret, n)
	for i := range secrets {
		secrets[i] = redact.Secret{Name: fmt.Sprintf("N%d", i), Value: []byte(token(rng, least+rng.IntN(spread))), NoForms: true}
	}
	return secrets
}

func withForms() *redact.Redactor {
	rng := rand.New(rand.NewPCG(25, 26))
	r := redact.New(redact.Options{Idle: -1})
	for i := range 10 {
		v := "ghp_" + token(rng, 36)
		if i%3 == 0 {
			v = token(rng, 12) + "$/'" + token(rng, 9)
		}
		r.Add(redact.Secret{Name: fmt.Sprintf("S%d", i), Value: []byte(v)})
	}
	return r
}

func writeAll(b *testing.B, r *redact.Redactor, text []byte, size int) {
	b.Helper()
	w := r.Writer(io.Discard)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	stop := cpuClock(b)
	for b.Loop() {
		for rest := text; len(rest) > 0; {
			n := min(size, len(rest))
			_, _ = w.Write(rest[:n])
			rest = rest[n:]
		}
	}
	stop(len(text))
	_ = w.Close()
}

func BenchmarkWriter(b *testing.B) {
	text := benchLog()
	for _, size := range []int{32 << 10, 100} {
		for _, n := range []int{1, 10, 100, 1000, 10000} {
			b.Run(fmt.Sprintf("write=%d/needles=%d", size, n), func(b *testing.B) {
				writeAll(b, benchRedactor(n, 20, 21), text, size)
			})
		}
		b.Run(fmt.Sprintf("write=%d/10secrets", size), func(b *testing.B) { writeAll(b, withForms(), text, size) })
		for _, n := range []int{10, 1000} {
			b.Run(fmt.Sprintf("write=%d/short=%d", size, n), func(b *testing.B) {
				writeAll(b, benchRedactor(n, 8, 9), text, size)
			})
		}
	}
}

func BenchmarkWriterHits(b *testing.B) {
	r := benchRedactor(100, 20, 21)
	text := bytes.Clone(benchLog()[:16<<20])
	needles := r.Raw()
	for i := 5000; i+50 < len(text); i += 10 << 10 {
		copy(text[i:], needles[i%len(needles)].Text)
	}
	writeAll(b, r, text, 32<<10)
}

func BenchmarkOneByte(b *testing.B) {
	text := logOf(1 << 20)
	for _, n := range []int{1, 100, 10000} {
		b.Run(fmt.Sprintf("needles=%d", n), func(b *testing.B) {
			w := benchRedactor(n, 20, 21).Writer(io.Discard)
			b.ReportAllocs()
			stop := cpuClock(b)
			for i := 0; b.Loop(); i++ {
				_, _ = w.Write(text[i&(1<<20-1) : i&(1<<20-1)+1])
			}
			stop(0)
			_ = w.Close()
		})
	}
}

// What is slow for a search of this kind: secrets that repeat themselves, text
// that nearly matches, text that always matches.
func BenchmarkWorst(b *testing.B) {
	long := strings.Repeat("a", 4096)
	cases := map[string]struct {
		secrets []string
		text    string
	}{
		"self-similar":      {[]string{long}, strings.Repeat("a", 1<<20)},
		"self-similar miss": {[]string{long + "b", "b" + long, long[:2048] + "b" + long[:2048]}, strings.Repeat("a", 1<<20)},
		"period":            {[]string{strings.Repeat("abc", 1000) + "x", "x" + strings.Repeat("abc", 1000)}, strings.Repeat("abc", 1<<18)},
		"dense hits":        {[]string{"abcdefgh", "bcdefgha", "cdefghab"}, strings.Repeat("abcdefgh", 1<<17)},
		"near misses":       {[]string{canary + "-" + canary}, strings.Repeat(canary+"-"+canary[:17], 1<<14)},
		"shared beginnings": {func() (out []string) {
			rng := rand.New(rand.NewPCG(27, 28))
			for range 1000 {
				out = append(out, "ghp_"+token(rng, 36))
			}
			return
		}(), strings.Repeat("ghp_abcdefghij ", 1<<16)},
		"key headers": {[]string{pemKey}, strings.Repeat("-----BEGIN RSA PRIVATE KEY-----\n", 1<<15)},
	}
	for name, c := range cases {
		b.Run(name, func(b *testing.B) {
			r := redact.New(redact.Options{Idle: -1})
			for i, s := range c.secrets {
				r.Add(redact.Secret{Name: fmt.Sprintf("N%d", i), Value: []byte(s), NoForms: true})
			}
			writeAll(b, r, []byte(c.text), 32<<10)
		})
	}
}

// Ceilings, to set the others beside.
func BenchmarkCeiling(b *testing.B) {
	text := benchLog()
	b.Run("IndexByte", func(b *testing.B) {
		b.SetBytes(logSize)
		stop := cpuClock(b)
		defer func() { stop(logSize) }()
		for b.Loop() {
			for rest := text; len(rest) > 0; rest = rest[min(32<<10, len(rest)):] {
				if bytes.IndexByte(rest[:min(32<<10, len(rest))], 0) >= 0 {
					b.Fatal("the log holds a NUL")
				}
			}
		}
	})
	b.Run("copy", func(b *testing.B) {
		buf := make([]byte, 32<<10)
		b.SetBytes(logSize)
		stop := cpuClock(b)
		defer func() { stop(logSize) }()
		for b.Loop() {
			for rest := text; len(rest) > 0; {
				rest = rest[copy(buf, rest):]
			}
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	b.Run("first 10000 at once", func(b *testing.B) {
		secrets := benchSecrets(10000, 20, 21)
		b.ReportAllocs()
		stop := cpuClock(b)
		for b.Loop() {
			redact.New(redact.Options{Idle: -1}).Add(secrets...)
		}
		stop(0)
	})
	b.Run("retained by 10000", func(b *testing.B) {
		var before, after runtime.MemStats
		for b.Loop() {
			runtime.GC()
			runtime.ReadMemStats(&before)
			r := benchRedactor(10000, 20, 21)
			runtime.GC()
			runtime.ReadMemStats(&after)
			runtime.KeepAlive(r)
		}
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "retained-MiB")
	})
	b.Run("one to 10000", func(b *testing.B) {
		rng := rand.New(rand.NewPCG(29, 30))
		r := benchRedactor(10000, 20, 21)
		stop := cpuClock(b)
		defer func() { stop(0) }()
		for b.Loop() {
			r.Add(redact.Secret{Name: "X", Value: []byte(token(rng, 30))})
		}
	})
}

func BenchmarkString(b *testing.B) {
	r := withForms()
	const s = "open /workspace/main.py: no such file or directory"
	b.ReportAllocs()
	for b.Loop() {
		_ = r.String(s)
	}
}

// A session's redactor is made while a sandbox is created.
func BenchmarkSession(b *testing.B) {
	rng := rand.New(rand.NewPCG(33, 34))
	for name, v := range map[string]string{"token": token(rng, 20), "password": token(rng, 12) + "$/'" + token(rng, 5), "key": pemKey} {
		b.Run(name, func(b *testing.B) {
			env := secret.NewEnv(map[string]secret.Value{"API_TOKEN": secret.FromString(v)})
			b.ReportAllocs()
			stop := cpuClock(b)
			for b.Loop() {
				redact.New(redact.Options{}).AddEnv(env)
			}
			stop(0)
		})
	}
}

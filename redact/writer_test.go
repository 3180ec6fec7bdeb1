package redact_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/redact"
	"github.com/sbxhost/sbxhost/secret"
)

// safeBuffer is a buffer that the idle timer and the test may share.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestIdleRelease(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		write        string
		atOnce, idle string
	}{
		{"a prompt that ends like a secret begins", "go on? can", "go on? ", "go on? can"},
		{"four bytes are a quarter of eighteen", "> cana", "> ", "> cana"},
		{"more than a quarter stays held", "> canary-7", "> ", "> "},
		{"nothing held", "$ ", "$ ", "$ "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out safeBuffer
				r := redact.New(redact.Options{})
				r.Add(redact.Secret{Name: "A", Value: []byte(canary), NoForms: true})
				w := r.Writer(&out)
				_, err := io.WriteString(w, tt.write)
				require.NoError(t, err)
				assert.Equal(t, tt.atOnce, out.String())
				assert.Equal(t, int64(len(tt.write)-len(tt.atOnce)), r.Stats().Held)
				time.Sleep(20 * time.Millisecond)
				synctest.Wait()
				assert.Equal(t, tt.idle, out.String())
				// The match state is kept: the rest of the secret is masked.
				if k := strings.Index(tt.write, "can"); k >= 0 {
					_, err = io.WriteString(w, canary[len(tt.write)-k:]+"!")
					require.NoError(t, err)
					assert.Equal(t, tt.idle+"[redacted:A]!", out.String())
				}
				require.NoError(t, w.Close())
				assert.Zero(t, r.Stats().Held)
			})
		})
	}
	t.Run("writes put the release off, and negative means never", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var out, never safeBuffer
			r := knowing(redact.Options{}, canary)
			w := r.Writer(&out)
			n := redact.New(redact.Options{Idle: -1})
			n.Add(redact.Secret{Name: "A", Value: []byte(canary)})
			nw := n.Writer(&never)
			for range 10 {
				_, _ = io.WriteString(w, "xca")
				_, _ = io.WriteString(nw, "xca")
				time.Sleep(5 * time.Millisecond)
			}
			synctest.Wait()
			assert.True(t, strings.HasSuffix(out.String(), "x"), out.String())
			time.Sleep(time.Second)
			synctest.Wait()
			assert.True(t, strings.HasSuffix(out.String(), "ca"))
			assert.True(t, strings.HasSuffix(never.String(), "x"))
			require.NoError(t, w.Close())
			require.NoError(t, nw.Close())
			assert.True(t, strings.HasSuffix(never.String(), "ca"))
		})
	})
	t.Run("a finished marker appears although a longer secret may follow", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var out safeBuffer
			r := redact.New(redact.Options{})
			r.Add(redact.Secret{Name: "A", Value: []byte("token-abcdef"), NoForms: true},
				redact.Secret{Name: "B", Value: []byte("token-abcdef-and-more"), NoForms: true})
			w := r.Writer(&out)
			_, _ = io.WriteString(w, "token-abcdef-an")
			assert.Empty(t, out.String())
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			assert.Equal(t, "[redacted:A]", out.String())
			_, _ = io.WriteString(w, "d-more.")
			assert.Equal(t, "[redacted:A].", out.String())
			require.NoError(t, w.Close())
		})
	})
	t.Run("an error of the timer's write is returned by the next call", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			boom := errors.New("boom")
			w := knowing(redact.Options{}, canary).Writer(iotest.TruncateWriter(io.Discard, 0))
			_, err := io.WriteString(w, "ca")
			require.NoError(t, err)
			require.NoError(t, w.Close())
			fail := writerFunc(func([]byte) (int, error) { return 0, boom })
			w = knowing(redact.Options{}, canary).Writer(fail)
			_, err = io.WriteString(w, "ca")
			require.NoError(t, err)
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			_, err = io.WriteString(w, "x")
			require.ErrorIs(t, err, boom)
			require.ErrorIs(t, w.Flush(), boom)
			require.ErrorIs(t, w.Close(), boom)
		})
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestWriterContract(t *testing.T) {
	t.Parallel()
	r := with(canary)
	boom := errors.New("boom")
	tests := []struct {
		name string
		dst  writerFunc
		want error
	}{
		{"error", func([]byte) (int, error) { return 0, boom }, boom},
		{"error after part", func([]byte) (int, error) { return 1, boom }, boom},
		{"short without error", func(p []byte) (int, error) { return len(p) - 1, nil }, io.ErrShortWrite},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := r.Writer(tt.dst)
			n, err := io.WriteString(w, "hello "+canary)
			assert.Zero(t, n)
			require.ErrorIs(t, err, tt.want)
			n, err = io.WriteString(w, "again")
			assert.Zero(t, n)
			require.ErrorIs(t, err, tt.want, "it stays")
			require.ErrorIs(t, w.Close(), tt.want)
			require.NoError(t, w.Close(), "closing again does nothing")
		})
	}
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		w := r.Writer(io.Discard)
		require.NoError(t, w.Close())
		_, err := io.WriteString(w, "x")
		require.ErrorIs(t, err, redact.ErrClosed)
		require.ErrorIs(t, w.Flush(), redact.ErrClosed)
	})
	t.Run("input is neither kept nor changed", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		w := r.Writer(&out)
		p := []byte("x" + canary[:9])
		_, err := w.Write(p)
		require.NoError(t, err)
		assert.Equal(t, "x"+canary[:9], string(p))
		clear(p)
		_, err = io.WriteString(w, canary[9:])
		require.NoError(t, err)
		require.NoError(t, w.Close())
		assert.Equal(t, "x[redacted:A]", out.String())
		assert.Equal(t, map[string]int64{"A": 1}, w.Hits())
	})
	t.Run("flush shows what is held and keeps the match", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		w := r.Writer(&out)
		_, _ = io.WriteString(w, canary[:9])
		require.NoError(t, w.Flush())
		_, _ = io.WriteString(w, canary[9:])
		require.NoError(t, w.Close())
		assert.Equal(t, canary[:9]+"[redacted:A]", out.String())
	})
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		off := redact.New(redact.Options{Off: true, Idle: -1})
		assert.Len(t, off.Add(redact.Secret{Name: "A", Value: []byte(canary)}, redact.Secret{Name: "B"}), 1)
		assert.Equal(t, canary, off.String(canary))
		assert.Equal(t, canary, stream(t, off, canary[:4], canary[4:]))
	})
}

func TestReader(t *testing.T) {
	t.Parallel()
	r := with(canary)
	text := strings.Repeat("x "+canary+" y\n", 5000) + canary[:12]
	want := r.String(text)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"plain": func(r io.Reader) io.Reader { return r }, "one byte": iotest.OneByteReader,
		"half": iotest.HalfReader, "data with error": iotest.DataErrReader,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := io.ReadAll(r.Reader(wrap(strings.NewReader(text))))
			require.NoError(t, err)
			assert.Equal(t, want, string(got))
			got, err = io.ReadAll(iotest.OneByteReader(r.Reader(wrap(strings.NewReader(text)))))
			require.NoError(t, err)
			assert.Equal(t, want, string(got))
		})
	}
	t.Run("error", func(t *testing.T) {
		t.Parallel()
		cause := fmt.Errorf("lost near %s: %w", canary, io.ErrUnexpectedEOF)
		got, err := io.ReadAll(r.Reader(io.MultiReader(strings.NewReader("a "+canary), iotest.ErrReader(cause))))
		assert.Equal(t, "a [redacted:A]", string(got))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.NotContains(t, err.Error(), canary)
	})
}

// Secrets are added and streams written, flushed and read at the same time; no
// byte that was written after its secret was added may come out.
func TestHammer(t *testing.T) {
	t.Parallel()
	r := redact.New(redact.Options{Idle: time.Millisecond})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			var out safeBuffer
			w := r.Writer(&out)
			defer func() { assert.NoError(t, w.Close()) }()
			for i := range 150 {
				v := fmt.Sprintf("hammer-%d-%d-canary", g, i)
				assert.Empty(t, r.Add(redact.Secret{Name: fmt.Sprintf("N%d", g), Value: []byte(v)}))
				text := "a " + v + " b\n"
				for cut := i % len(text); text != ""; cut = min(5, len(text)) {
					cut = min(cut, len(text))
					_, err := io.WriteString(w, text[:cut])
					assert.NoError(t, err)
					text = text[cut:]
					if cut == 0 {
						_ = w.Hits()
						_ = r.Stats()
					}
				}
				assert.NotContains(t, r.String(v), "hammer")
				assert.NotContains(t, out.String(), v)
			}
			assert.Equal(t, int64(150), w.Hits()[fmt.Sprintf("N%d", g)])
		})
	}
	// One Writer shared by many.
	var shared safeBuffer
	w := r.Writer(&shared)
	r.Add(redact.Secret{Name: "S", Value: []byte(canary)})
	for range 4 {
		wg.Go(func() {
			for range 200 {
				_, err := io.WriteString(w, "<"+canary+">\n")
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, w.Close())
	assert.Equal(t, strings.Repeat("<[redacted:S]>\n", 800), shared.String())
	require.Eventually(t, r.Settled, time.Minute, time.Millisecond)
	for g := range 4 {
		for i := range 150 {
			assert.Equal(t, fmt.Sprintf("[redacted:N%d]", g), r.String(fmt.Sprintf("hammer-%d-%d-canary", g, i)))
		}
	}
}

// What is being merged in the background is found all the while.
func TestMerge(t *testing.T) {
	t.Parallel()
	r := redact.New(redact.Options{})
	for i := range 1000 {
		v := fmt.Sprintf("merge-%d-canary", i)
		r.Add(redact.Secret{Name: "M", Value: []byte(v)})
		require.Equal(t, "[redacted:M]", r.String(v))
		require.Equal(t, "[redacted:M]", r.String(fmt.Sprintf("merge-%d-canary", i/2)))
	}
	require.Eventually(t, r.Settled, time.Minute, time.Millisecond)
	for i := range 1000 {
		require.Equal(t, "[redacted:M]", r.String(fmt.Sprintf("merge-%d-canary", i)))
	}
}

func TestAllocations(t *testing.T) {
	r := knowing(redact.Options{}, canary, pemKey)
	w := r.Writer(io.Discard)
	defer func() { _ = w.Close() }()
	line := []byte("2026-01-01T00:00:00Z INFO nothing to hide here\n")
	dst := make([]byte, 0, 1024)
	one := []byte("x")
	_, _ = w.Write(line)
	for name, f := range map[string]func(){
		"Write":    func() { _, _ = w.Write(line) },
		"one byte": func() { _, _ = w.Write(one) },
		"Append":   func() { dst = r.Append(dst[:0], line) },
		"Bytes":    func() { _, _ = r.Bytes(line) },
		"String":   func() { _ = r.String("nothing to hide here") },
		"Contains": func() { _ = r.Contains(line) },
	} {
		f()
		// A garbage collection may empty the pool, so one in a hundred is let off.
		assert.Less(t, testing.AllocsPerRun(1000, f), 0.1, name)
	}
}

// Nothing that holds secrets shows them, whatever prints it.
func TestPrintsNothing(t *testing.T) {
	t.Parallel()
	r := with(canary)
	w := r.Writer(io.Discard)
	_, _ = io.WriteString(w, canary[:12])
	s := redact.Secret{Name: "A", Value: []byte(canary)}
	rd := r.Reader(strings.NewReader(canary))
	_, _ = rd.Read(make([]byte, 1))
	holders := []any{r, *r, w, *w, s, &s, rd, struct{ inner *redact.Redactor }{r}, struct{ inner redact.Redactor }{*r}, struct{ inner *redact.Writer }{w}, r.Error(errors.New(canary)), r.Handler(nil)}
	for i, h := range holders {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q"} {
			text := fmt.Sprintf(verb, h)
			assert.False(t, leaks(text), "%d %s", i, verb)
		}
		doc, _ := json.Marshal(h)
		assert.False(t, leaks(string(doc)), i)
		var b bytes.Buffer
		_ = gob.NewEncoder(&b).Encode(h)
		assert.False(t, leaks(b.String()), i)
		if _, ok := h.(redact.Secret); ok {
			continue // its Value is the caller's own exported field
		}
		if _, ok := h.(*redact.Secret); ok {
			continue
		}
		// testify's diff prints with spew, methods disabled.
		var rec recorder
		assert.Equal(&rec, "other", h)
		assert.NotEmpty(t, rec.text)
		assert.False(t, leaks(rec.text), "%d %s", i, rec.text)
	}
}

type recorder struct{ text string }

func (r *recorder) Errorf(format string, args ...any) { r.text += fmt.Sprintf(format, args...) }

// leaks reports whether text holds eight bytes of the canary, plain, in hex or
// as decimal numbers.
func leaks(text string) bool {
	part := canary[:8]
	return strings.Contains(text, part) || strings.Contains(strings.ToLower(text), fmt.Sprintf("%x", part)) ||
		strings.Contains(text, strings.Trim(fmt.Sprintf("%d", []byte(part)), "[]")) ||
		strings.Contains(text, strings.ReplaceAll(strings.Trim(fmt.Sprintf("%#v", []byte(part)), "[]byte{}"), " ", ""))
}

func TestAddEnv(t *testing.T) {
	t.Parallel()
	r := redact.New(redact.Options{})
	require.Empty(t, r.AddEnv(secret.NewEnv(map[string]secret.Value{"Z_KEY": secret.FromString(canary), "A_KEY": secret.FromString(canary)})))
	assert.Equal(t, "[redacted:A_KEY]", r.String(canary), "first by name of those that share a value")
	r.Add(redact.Secret{Name: "0_KEY", Value: []byte(canary)})
	assert.Equal(t, "[redacted:0_KEY]", r.String(canary))
}

func TestMarkers(t *testing.T) {
	t.Parallel()
	t.Run("collision in either order", func(t *testing.T) {
		t.Parallel()
		r := redact.New(redact.Options{})
		r.Add(redact.Secret{Name: "MY_TOKEN_NAME", Value: []byte(canary)})
		assert.Equal(t, "[redacted:MY_TOKEN_NAME]", r.String(canary))
		r.Add(redact.Secret{Name: "OTHER", Value: []byte("TOKEN_NAME")})
		assert.Equal(t, "*** [redacted:OTHER]", r.String(canary+" TOKEN_NAME"))
		r.Add(redact.Secret{Name: "THE_TOKEN_NAME_2", Value: []byte("second-canary-value")})
		assert.Equal(t, "***", r.String("second-canary-value"))
	})
	t.Run("names that do not fit in a marker", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"", "a]b", `a"b`, `a\b`, "a\nb", "é", strings.Repeat("x", 200)} {
			r := redact.New(redact.Options{})
			r.Add(redact.Secret{Name: name, Value: []byte(canary)})
			assert.Equal(t, "***", r.String(canary), name)
			assert.Equal(t, []string{name}, r.Contains([]byte(canary)))
		}
	})
	t.Run("ContainsMarker", func(t *testing.T) {
		t.Parallel()
		r := with(canary, canary+"2")
		assert.Equal(t, []string{"A", "B"}, r.ContainsMarker([]byte("x [redacted:B] [redacted:[redacted:A] [redacted:A]")))
		assert.Empty(t, r.ContainsMarker([]byte("[redacted:C] [redacted:] [redacted: A] redacted:A [redacted:A")))
	})
}

func TestFloors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		value  string
		short  bool
		reason string // "" = accepted
		bound  bool
	}{
		{"abc", true, "shorter than 4", false},
		{"ab1d", false, "shorter than 6", false},
		{"ab1d", true, "", true},
		{"ab1d5", true, "", true},
		{"ab1d5f", false, "", true},
		{"ab1d5f7", false, "", true},
		{"ab1d5f78", false, "", false},
		{"  ab1d5  ", false, "shorter than 6", false},
		{`"ab1d5"`, false, "shorter than 6", false},
		{"--------", false, "punctuation", false},
		{"!@#$%^&*", false, "", false},
		{"LocalHost", true, "common", false},
		{"development", true, "common", false},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%q short=%v", tt.value, tt.short), func(t *testing.T) {
			t.Parallel()
			r := redact.New(redact.Options{})
			no := r.Add(redact.Secret{Name: "N", Value: []byte(tt.value), AllowShort: tt.short})
			if tt.reason != "" {
				require.Len(t, no, 1)
				assert.Contains(t, no[0].Reason, tt.reason)
				assert.NotContains(t, no[0].Reason, strings.TrimSpace(tt.value))
				assert.Equal(t, tt.value, r.String(tt.value))
				return
			}
			require.Empty(t, no)
			assert.Equal(t, "([redacted:N])", r.String("("+tt.value+")"))
			inside := r.String("x" + tt.value + "y")
			assert.Equal(t, tt.bound, inside == "x"+tt.value+"y", inside)
		})
	}
	for _, w := range redact.StopWords() {
		assert.NotEmpty(t, redact.New(redact.Options{AllowShort: true}).Add(redact.Secret{Name: "N", Value: []byte(w)}), w)
	}
	many := redact.New(redact.Options{})
	var lines strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&lines, "line-number-%d\n", i)
	}
	no := many.Add(redact.Secret{Name: "N", Value: []byte(lines.String())})
	require.Len(t, no, 1)
	assert.Contains(t, no[0].Reason, "parts")
}

// Whether the letter before a short secret belongs to an escape is known
// however the text was cut.
func TestEscapeBeforeCut(t *testing.T) {
	t.Parallel()
	r := redact.New(redact.Options{Idle: -1})
	require.Empty(t, r.Add(redact.Secret{Name: "N", Value: []byte("ab1d5f"), NoForms: true}))
	for text, want := range map[string]string{
		`x\nab1d5f y`:   `x\n[redacted:N] y`,
		`x\\nab1d5f y`:  `x\\nab1d5f y`,
		`x\\\nab1d5f y`: `x\\\n[redacted:N] y`,
		`\nab1d5f y`:    `\n[redacted:N] y`,
		`xnab1d5f y`:    `xnab1d5f y`,
	} {
		assert.Equal(t, want, r.String(text))
		assert.Equal(t, want, stream(t, r, strings.Split(text, "")...), text)
		for i := range text {
			assert.Equal(t, want, stream(t, r, text[:i], text[i:]), "%s at %d", text, i)
		}
	}
}

package redact_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/redact"
)

type codeError struct{ body string }

func (e *codeError) Error() string { return "status 500: " + e.body }

func TestError(t *testing.T) {
	t.Parallel()
	r := with(canary)
	assert.NoError(t, r.Error(nil))
	cause := &codeError{body: canary}
	err := r.Error(fmt.Errorf("open: %w: %w: %w", fs.ErrNotExist, context.Canceled, cause))
	assert.Contains(t, err.Error(), "[redacted:A]")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, fs.ErrExist)
	var as *codeError
	assert.False(t, errors.As(err, &as), "no type of the cause can be reached")
	assert.Nil(t, errors.Unwrap(err))
	_, many := err.(interface{ Unwrap() []error })
	assert.False(t, many)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		assert.False(t, leaks(fmt.Sprintf(verb, err)), verb)
	}
	doc, jerr := json.Marshal(map[string]any{"e": err})
	require.NoError(t, jerr)
	assert.Contains(t, string(doc), "[redacted:A]")
}

type valuer struct{ v any }

func (v valuer) LogValue() slog.Value { return slog.AnyValue(v.v) }

type stringer struct{ S string }

func (s stringer) String() string { return "stringer " + s.S }

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic(canary) }

type stateful struct {
	Body   []byte
	Nested map[string]any
	hidden string
}

func TestHandler(t *testing.T) {
	t.Parallel()
	r := with(canary, "1234567890")
	handlers := map[string]func(io.Writer) slog.Handler{
		"json": func(w io.Writer) slog.Handler { return r.Handler(slog.NewJSONHandler(w, nil)) },
		"text": func(w io.Writer) slog.Handler { return r.Handler(slog.NewTextHandler(w, nil)) },
		"replaceattr": func(w io.Writer) slog.Handler {
			return slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: r.ReplaceAttr, AddSource: true})
		},
		"replacetext": func(w io.Writer) slog.Handler {
			return slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: r.ReplaceAttr})
		},
		"verbs": func(w io.Writer) slog.Handler { return r.Handler(verbs{w}) },
	}
	for name, make := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			log := slog.New(make(&out))
			secret := map[string]any{"deep": []any{canary, stateful{Body: []byte(canary), Nested: map[string]any{canary: canary}, hidden: canary}}}
			log.Info("message " + canary)
			log.Info("attr", "k", canary, slog.Int64("n", 1234567890), "b", []byte(canary), "e", &codeError{canary})
			log.Info("any", "m", secret, "s", stringer{canary}, "p", &stringer{canary}, "d", time.Second, "nil", nil, "l", slog.LevelWarn, "f", 1.5)
			log.Info("valuer", "v", valuer{canary}, "vv", valuer{valuer{secret}}, "ve", valuer{fmt.Errorf("x %s", canary)})
			log.Info("raw", "j", json.RawMessage(`{"k":"`+canary+`"}`), "b64", base64.StdEncoding.EncodeToString([]byte("k="+canary)), "panics", panics{}, "chan", struct{ C chan int }{})
			log.Info("group", slog.Group("g", slog.String("k", canary), slog.Group("h", "v", valuer{canary})))
			log.Info("key", canary, 1)
			log.With("w", canary, "wv", valuer{canary}).WithGroup("grp").With("w2", canary).Warn("with", "k", canary)
			if name == "json" || name == "text" || name == "verbs" { // ReplaceAttr does not see groups' names
				log.WithGroup(canary).Info("group name", "k", 1)
			}
			text := out.String()
			assert.False(t, leaks(text), text)
			assert.NotContains(t, text, base64.StdEncoding.EncodeToString([]byte(canary))[:16])
			assert.NotContains(t, text, "1234567890")
			assert.GreaterOrEqual(t, strings.Count(text, "[redacted:A]"), 20)
			assert.Contains(t, text, "[redacted:B]")
			assert.Contains(t, text, "1.5")
			if name == "json" {
				for line := range strings.Lines(text) {
					assert.True(t, json.Valid([]byte(line)), line)
				}
				assert.Contains(t, text, `"grp":{"w2":"[redacted:A]","k":"[redacted:A]"}`)
				assert.Contains(t, text, `"l":"WARN"`)
			}
		})
	}
	t.Run("secrets added after With", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		r := redact.New(redact.Options{})
		log := slog.New(r.Handler(slog.NewTextHandler(&out, nil))).With("k", canary)
		r.Add(redact.Secret{Name: "A", Value: []byte(canary)})
		log.Info("x")
		assert.NotContains(t, out.String(), canary)
	})
	t.Run("an error of the handler", func(t *testing.T) {
		t.Parallel()
		h := r.Handler(slog.NewTextHandler(writerFunc(func([]byte) (int, error) { return 0, errors.New(canary) }), nil))
		err := h.Handle(t.Context(), slog.NewRecord(time.Now(), slog.LevelInfo, "x", 0))
		require.EqualError(t, err, "[redacted:A]")
	})
}

// verbs is a handler that prints attributes in every way it can.
type verbs struct{ w io.Writer }

func (v verbs) Enabled(context.Context, slog.Level) bool { return true }
func (v verbs) WithAttrs([]slog.Attr) slog.Handler       { return v }
func (v verbs) WithGroup(string) slog.Handler            { return v }
func (v verbs) Handle(_ context.Context, rec slog.Record) error {
	_, _ = fmt.Fprintln(v.w, rec.Message)
	rec.Attrs(func(a slog.Attr) bool {
		_, _ = fmt.Fprintf(v.w, "%s %v %+v %#v %s\n", a.Key, a.Value.Any(), a.Value.Any(), a.Value.Any(), a.Value.Any())
		return true
	})
	return nil
}

func TestHandlerConformance(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := with(canary)
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return r.Handler(slog.NewJSONHandler(&out, nil))
	}, func(t *testing.T) map[string]any {
		m := map[string]any{}
		require.NoError(t, json.Unmarshal(out.Bytes(), &m))
		return m
	})
}

func TestTransport(t *testing.T) {
	t.Parallel()
	r := with(canary)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		assert.Equal(t, "identity", req.Header.Get("Accept-Encoding"))
		assert.Empty(t, req.Header.Get("Range"))
		w.Header().Set("Etag", `"abc"`)
		w.Header().Set("X-Echo", "v="+canary)
		w.Header().Set("Trailer", "X-End")
		_, _ = io.WriteString(w, "body "+canary+req.Header.Get("Authorization"))
		w.Header().Set("X-End", canary)
	})
	mux.HandleFunc("/gzip", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "x")
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	client := &http.Client{Transport: r.Transport(srv.Client().Transport)}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+canary)
	req.Header.Set("Range", "bytes=3-")
	resp, err := client.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "body [redacted:A]Bearer [redacted:A]", string(body))
	assert.Equal(t, "v=[redacted:A]", resp.Header.Get("X-Echo"))
	assert.Equal(t, "[redacted:A]", resp.Trailer.Get("X-End"))
	assert.Empty(t, resp.Header.Get("Etag"))
	assert.Empty(t, resp.Header.Get("Content-Length"))
	assert.Equal(t, int64(-1), resp.ContentLength)
	assert.Equal(t, "bytes=3-", req.Header.Get("Range"), "the caller's request is not changed")

	req, err = http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/gzip", nil)
	require.NoError(t, err)
	resp, err = client.Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	require.ErrorIs(t, err, redact.ErrEncoded)

	broken := r.Transport(roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("dial " + canary) }))
	resp, err = broken.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	require.EqualError(t, err, "dial [redacted:A]")
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

package daytona_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/builtin/daytona"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// scripted answers every request with the same bytes, and sees to it that none
// goes anywhere else.
type scripted struct {
	status int
	header http.Header
	body   []byte
	stray  string
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "daytona.example.com" && !strings.HasSuffix(r.URL.Host, ".daytona.example.com") {
		s.stray = r.URL.Host
	}
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return &http.Response{StatusCode: s.status, Header: s.header, Body: io.NopCloser(bytes.NewReader(s.body)), ContentLength: int64(len(s.body)), Request: r}, nil
}

// FuzzReplies gives the client any answer: every error is typed, none holds the
// key, no request goes elsewhere, and nothing panics.
func FuzzReplies(f *testing.F) {
	const key = "dtn_canary0123456789abcdef"
	id := "0123456789abcdef0123456789abcdef"
	sandbox := `{"id":"abc","name":"sbxhost-` + id + `","state":"started","labels":{"sbxhost.owner":"o","sbxhost.epoch":"1","sbxhost.session":"` + id +
		`","sbxhost.attempt":"aaaaaaaaaaaaaaaa","sbxhost.digest":"d","sbxhost.protected":"0","sbxhost.daytona.root":"/w","sbxhost.daytona.ports":"80"},"toolboxProxyUrl":"https://proxy.daytona.example.com/toolbox"}`
	f.Add(200, []byte(sandbox), "")
	f.Add(200, []byte(strings.Replace(sandbox, "proxy.daytona.example.com", "evil.example.org", 1)), "")
	f.Add(200, []byte(strings.Replace(sandbox, "https://proxy", "https://u:p@proxy", 1)), "")
	f.Add(200, []byte(`{"items":[`+sandbox+`],"nextCursor":"x"}`), "")
	f.Add(200, []byte(`{"exitCode":0,"result":"sbx-begin-"}`), "bytes 0-1/2")
	f.Add(206, []byte("partial"), "bytes 5-9/10")
	f.Add(400, []byte(`{"message":"Bearer `+key+`"}`), "")
	f.Add(401, []byte(`{"statusCode":401,"message":"unauthorized: `+key+`","code":"`+key+`"}`), "")
	f.Add(404, []byte(""), "")
	f.Add(502, []byte("<html>"), "")
	f.Add(302, []byte(""), "https://evil.example.org/")
	f.Add(200, []byte(`{"permissions":["write:sandboxes"],"url":"javascript:alert(1)"}`), "")
	f.Fuzz(func(t *testing.T, status int, body []byte, header string) {
		if status < 200 || status > 599 {
			status = 200
		}
		s := &scripted{status: status, body: body, header: http.Header{"Content-Range": {header}, "Location": {header}}}
		p, err := daytona.New(daytona.Options{APIURL: "https://daytona.example.com/api", APIKey: secret.FromString(key), Transport: s,
			CallTimeout: 20 * time.Millisecond, CreateTimeout: 20 * time.Millisecond, DestroyTimeout: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		defer cancel()
		check := func(err error) {
			var pe *provider.Error
			if err != nil && !errors.As(err, &pe) {
				t.Fatalf("an error without a type: %v", err)
			}
			if err != nil && strings.Contains(err.Error(), key) {
				t.Fatal("the key is in an error")
			}
		}
		_, err = p.Check(ctx)
		check(err)
		_, err = p.List(ctx, provider.Query{Owner: "o"})
		check(err)
		check(p.Destroy(ctx, provider.Ref{ID: "abc"}))
		_, err = p.Create(ctx, request())
		check(err)
		sb, err := p.Open(t.Context(), provider.Ref{ID: "abc"})
		check(err)
		if err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
			defer cancel()
			_, err = sb.Status(ctx)
			check(err)
			_, err = sb.(provider.Ports).Port(ctx, 80)
			check(err)
			_, err = sb.Files().List(ctx, ".")
			check(err)
			_, _, err = sb.Files().Open(ctx, "f")
			check(err)
		}
		if s.stray != "" {
			t.Fatalf("a request went to %s", s.stray)
		}
	})
}

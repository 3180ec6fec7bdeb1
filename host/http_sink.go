package host

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// HTTPPostOptions configures HTTPPost. Zero fields take the defaults.
type HTTPPostOptions struct {
	Client   *http.Client  // default: one with a timeout of 10 s
	Header   http.Header   // added to every request, for example Authorization
	Batch    int           // records per request; default 100
	Interval time.Duration // how long a record waits for others; default 1 s
	Attempts int           // of one batch, with a growing pause; default 3
}

// HTTPPost returns a sink that posts records to endpoint, as lines of JSON
// (application/x-ndjson), in batches. While a batch is under way, or the
// endpoint is down, records wait in the bounded queue in front of the sink, and
// are dropped and counted when that is full. An endpoint that answers 4xx, other
// than 408 and 429, loses its batch.
func HTTPPost(endpoint string, opts HTTPPostOptions) (Sink, error) {
	u, err := url.Parse(endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, invalid("http sink", "the endpoint is not an http or https URL", "")
	}
	if opts.Client == nil {
		opts.Client = &http.Client{Timeout: 10 * time.Second}
	}
	if opts.Batch <= 0 {
		opts.Batch = 100
	}
	if opts.Interval <= 0 {
		opts.Interval = time.Second
	}
	if opts.Attempts <= 0 {
		opts.Attempts = 3
	}
	opts.Header = opts.Header.Clone()
	return &httpSink{url: u.String(), opts: opts}, nil
}

type httpSink struct {
	url  string
	opts HTTPPostOptions

	mu    sync.Mutex
	batch bytes.Buffer
	count int
	timer *time.Timer
}

// Emit implements Sink. It posts when a batch is full, and waits for the answer:
// that is what bounds the sink.
func (s *httpSink) Emit(r Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if json.NewEncoder(&s.batch).Encode(r) != nil {
		return
	}
	if s.count++; s.count >= s.opts.Batch {
		s.post(context.Background())
		return
	}
	if s.count == 1 {
		s.timer = time.AfterFunc(s.opts.Interval, func() { s.Flush(context.Background()) })
	}
}

// Flush posts what waits.
func (s *httpSink) Flush(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.post(ctx)
}

func (s *httpSink) post(ctx context.Context) {
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.count == 0 {
		return
	}
	body := bytes.Clone(s.batch.Bytes())
	s.batch.Reset()
	s.count = 0
	pause := 200 * time.Millisecond
	for try := 1; ; try++ {
		if s.send(ctx, body) || try == s.opts.Attempts {
			return
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return
		}
	}
}

// send reports whether there is nothing more to do for a batch.
func (s *httpSink) send(ctx context.Context, body []byte) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return true
	}
	for k, v := range s.opts.Header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := s.opts.Client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	retry := resp.StatusCode >= 500 || resp.StatusCode == http.StatusRequestTimeout || resp.StatusCode == http.StatusTooManyRequests
	return !retry
}

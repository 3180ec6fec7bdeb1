package egress

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
)

// send renders and sends a request, repeating it where that is safe. sent
// reports whether anything may have reached the vendor.
func (c *Call) send(ctx context.Context, r *spec.Route, meta abi.HTTPMeta, body []byte) (resp *http.Response, sent bool, err error) {
	for attempt := 0; ; attempt++ {
		q, err := c.render(r, meta, body)
		if err != nil {
			return nil, sent, err
		}
		req, err := q.newRequest(ctx)
		if err != nil {
			return nil, sent, err
		}
		resp, err := c.b.client.Do(req)
		reached := err == nil || !neverSent(err)
		sent = sent || reached
		if !c.mayRepeat(r, q, attempt, resp, reached) || ctx.Err() != nil {
			return resp, sent, err
		}
		wait := time.Duration(200<<attempt) * time.Millisecond
		if resp != nil {
			if s, perr := strconv.Atoi(resp.Header.Get("Retry-After")); perr == nil && s >= 0 {
				wait = time.Duration(s) * time.Second
			}
			_ = resp.Body.Close()
		}
		t := time.NewTimer(min(wait, 30*time.Second))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, sent, ctx.Err()
		case <-t.C:
		}
	}
}

// neverSent reports whether an error happened before the request left.
func neverSent(err error) bool {
	var d *dialError
	var denied *Denied
	return errors.As(err, &d) || errors.As(err, &denied)
}

// mayRepeat decides about one more attempt.
func (c *Call) mayRepeat(r *spec.Route, q *rendered, attempt int, resp *http.Response, reached bool) bool {
	if attempt >= r.Retry.Max || q.stream != nil {
		return false
	}
	if !reached {
		return true
	}
	idempotent := slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete}, r.Method)
	if slices.Contains(actions(r), actCommand) || slices.Contains(actions(r), actStdin) {
		idempotent = false // whatever the method: a command must not run twice
	}
	idempotent = idempotent || r.Idempotency.Header != ""
	if resp == nil {
		return idempotent
	}
	if !slices.Contains(r.Retry.Status, resp.StatusCode) {
		return false
	}
	// 429 says that nothing was done (RFC 6585); anything else is repeated only
	// where the vendor can tell a repetition.
	return idempotent || resp.StatusCode == http.StatusTooManyRequests
}

// Package ledgertest tests a ledger against the contract of package ledger.
package ledgertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// Run tests the ledgers that open returns: each call gives a new, empty one,
// which Run closes.
func Run(t *testing.T, open func() ledger.Ledger) {
	t.Helper()
	for _, tt := range []struct {
		name string
		run  func(t *testing.T, l ledger.Ledger)
	}{
		{"round trip", roundTrip},
		{"put replaces and repeats", putReplaces},
		{"not found", notFound},
		{"delete", deletes},
		{"session and list in order", order},
		{"copies in and out", copies},
		{"phases", phases},
		{"identity", identity},
		{"invalid records", invalid},
		{"ended context", endedContext},
		{"closed", closed},
		{"hammer", hammer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := open() // before others run beside it: open need not be safe for that
			t.Parallel()
			t.Cleanup(func() {
				if err := l.Close(); err != nil {
					t.Errorf("Close failed: %v", err)
				}
			})
			tt.run(t, l)
		})
	}
}

var began = time.Date(2030, 1, 2, 3, 4, 5, 678901234, time.UTC)

// Record returns a valid record for tests.
func Record(session, attempt string) ledger.Record {
	return ledger.Record{
		Session: session, Attempt: attempt, Owner: "owner", Epoch: "epoch", Provider: "docker",
		Name: "sbxhost-" + session, Digest: "sha256:00", Key: "a caller's key", Phase: ledger.Intent,
		Ref:       provider.Ref{ID: "id-" + attempt, Data: json.RawMessage(`{"volume":"v"}`)},
		Protected: true, ProtectedNames: []string{"TOKEN", "OTHER_TOKEN"},
		Manifest:  json.RawMessage(`{"version":1,"environment":{"TOKEN":{"type":"process_env","name":"HOST_TOKEN"}}}`),
		CreatedAt: began, UpdatedAt: began.Add(time.Second), ExpiresAt: began.Add(time.Hour),
		Idle: 15 * time.Minute, LastError: string(provider.Unavailable),
	}
}

func must(t *testing.T, err error, what string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s failed: %v", what, err)
	}
}

func wantCode(t *testing.T, err error, code provider.Code, what string) {
	t.Helper()
	if provider.CodeOf(err) != code {
		t.Errorf("%s: the error is %v (code %s), its code must be %s", what, err, provider.CodeOf(err), code)
	}
}

func wantRecord(t *testing.T, l ledger.Ledger, want ledger.Record, what string) {
	t.Helper()
	got, err := l.Get(t.Context(), want.Attempt)
	must(t, err, what+": Get")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: the record is\n%+v\nit must be\n%+v", what, got, want)
	}
}

func attempts(records []ledger.Record) string {
	var b strings.Builder
	for _, r := range records {
		b.WriteString(r.Attempt + " ")
	}
	return strings.TrimSpace(b.String())
}

func roundTrip(t *testing.T, l ledger.Ledger) {
	full := Record("s", "full")
	must(t, l.Put(t.Context(), full), "Put")
	wantRecord(t, l, full, "a full record")
	bare := Record("s", "bare")
	bare.Key, bare.Ref, bare.Protected, bare.ProtectedNames, bare.Manifest = "", provider.Ref{}, false, nil, nil
	bare.ExpiresAt, bare.Idle, bare.LastError = time.Time{}, 0, ""
	must(t, l.Put(t.Context(), bare), "Put")
	wantRecord(t, l, bare, "a bare record")
}

func putReplaces(t *testing.T, l ledger.Ledger) {
	r := Record("s", "a")
	must(t, l.Put(t.Context(), r), "Put")
	must(t, l.Put(t.Context(), r), "the same Put again")
	r.UpdatedAt = r.UpdatedAt.Add(time.Minute)
	r.Ref, r.LastError, r.Manifest = provider.Ref{ID: "other"}, "", nil
	must(t, l.Put(t.Context(), r), "Put over it")
	wantRecord(t, l, r, "the replaced record")
	all, err := l.List(t.Context(), "owner")
	must(t, err, "List")
	if len(all) != 1 {
		t.Errorf("List returned %d records, it must be 1", len(all))
	}
}

func notFound(t *testing.T, l ledger.Ledger) {
	_, err := l.Get(t.Context(), "nothing")
	wantCode(t, err, provider.NotFound, "Get of nothing")
	for what, f := range map[string]func(context.Context, string) ([]ledger.Record, error){"Session": l.Session, "List": l.List} {
		got, err := f(t.Context(), "nothing")
		must(t, err, what)
		if len(got) != 0 {
			t.Errorf("%s of nothing returned %d records", what, len(got))
		}
	}
}

func deletes(t *testing.T, l ledger.Ledger) {
	must(t, l.Delete(t.Context(), "nothing"), "Delete of nothing")
	must(t, l.Put(t.Context(), Record("s", "a")), "Put")
	must(t, l.Put(t.Context(), Record("s", "b")), "Put")
	must(t, l.Delete(t.Context(), "a"), "Delete")
	must(t, l.Delete(t.Context(), "a"), "the second Delete")
	_, err := l.Get(t.Context(), "a")
	wantCode(t, err, provider.NotFound, "Get after Delete")
	got, err := l.Session(t.Context(), "s")
	must(t, err, "Session")
	if attempts(got) != "b" {
		t.Errorf("Session returned %q after Delete, it must be b", attempts(got))
	}
	// An attempt that was deleted is unknown again.
	must(t, l.Put(t.Context(), Record("other", "a")), "Put after Delete")
	got, err = l.Session(t.Context(), "s")
	must(t, err, "Session")
	if attempts(got) != "b" {
		t.Errorf("Session returned %q, a record of another session is among them", attempts(got))
	}
}

func order(t *testing.T, l ledger.Ledger) {
	for i, x := range []struct{ session, attempt, owner string }{
		{"s1", "z", "me"}, {"s1", "a", "me"}, {"s2", "m", "me"}, {"s1", "b", "you"}, {"s", "p", "me"},
	} {
		r := Record(x.session, x.attempt)
		r.Owner = x.owner
		r.CreatedAt = began.Add(time.Duration(i/2) * time.Second) // z and a at once
		must(t, l.Put(t.Context(), r), "Put")
	}
	for _, tt := range []struct {
		what string
		list func(context.Context, string) ([]ledger.Record, error)
		of   string
		want string
	}{
		{"Session", l.Session, "s1", "a z b"},
		{"Session", l.Session, "s2", "m"},
		{"Session", l.Session, "s", "p"}, // a prefix of the others
		{"List", l.List, "me", "a z m p"},
		{"List", l.List, "you", "b"},
		{"List", l.List, "", ""},
	} {
		got, err := tt.list(t.Context(), tt.of)
		must(t, err, tt.what)
		if attempts(got) != tt.want {
			t.Errorf("%s of %q returned %q, it must be %q", tt.what, tt.of, attempts(got), tt.want)
		}
	}
}

// scribble changes everything a record refers to.
func scribble(r ledger.Record) {
	r.ProtectedNames[0] = "SCRIBBLED"
	r.Manifest[2], r.Ref.Data[2] = 'X', 'X'
}

func copies(t *testing.T, l ledger.Ledger) {
	want := Record("s", "a")
	given := Record("s", "a")
	must(t, l.Put(t.Context(), given), "Put")
	scribble(given)
	wantRecord(t, l, want, "after the caller changed what it gave")
	got, err := l.Get(t.Context(), "a")
	must(t, err, "Get")
	scribble(got)
	for _, f := range []func() ([]ledger.Record, error){
		func() ([]ledger.Record, error) { return l.Session(t.Context(), "s") },
		func() ([]ledger.Record, error) { return l.List(t.Context(), "owner") },
	} {
		all, err := f()
		must(t, err, "listing")
		scribble(all[0])
	}
	wantRecord(t, l, want, "after the caller changed what it got")
}

func phases(t *testing.T, l ledger.Ledger) {
	allowed := map[[2]ledger.Phase]bool{
		{"", ledger.Intent}: true, {"", ledger.Created}: true, {"", ledger.Retiring}: true,
		{ledger.Intent, ledger.Intent}: true, {ledger.Intent, ledger.Created}: true, {ledger.Intent, ledger.Retiring}: true,
		{ledger.Created, ledger.Created}: true, {ledger.Created, ledger.Retiring}: true,
		{ledger.Retiring, ledger.Retiring}: true, {ledger.Retiring, ledger.Gone}: true,
		{ledger.Gone, ledger.Gone}: true,
	}
	way := map[ledger.Phase][]ledger.Phase{"": nil, ledger.Intent: {ledger.Intent}, ledger.Created: {ledger.Created},
		ledger.Retiring: {ledger.Intent, ledger.Retiring}, ledger.Gone: {ledger.Intent, ledger.Retiring, ledger.Gone}}
	n := 0
	for from, steps := range way {
		for _, to := range []ledger.Phase{ledger.Intent, ledger.Created, ledger.Retiring, ledger.Gone} {
			n++
			r := Record("s", fmt.Sprintf("a%d", n))
			for _, p := range steps {
				r.Phase = p
				must(t, l.Put(t.Context(), r), fmt.Sprintf("the way to %q", from))
			}
			before := r
			r.Phase = to
			err := l.Put(t.Context(), r)
			what := fmt.Sprintf("from %q to %q", from, to)
			if allowed[[2]ledger.Phase{from, to}] {
				must(t, err, what)
				wantRecord(t, l, r, what)
				continue
			}
			var te *ledger.TransitionError
			if !errors.As(err, &te) || te.From != from || te.To != to || te.Attempt != r.Attempt {
				t.Errorf("%s: the error is %v, it must be a *TransitionError that says so", what, err)
			}
			wantCode(t, err, provider.FailedPrecondition, what)
			if from != "" {
				wantRecord(t, l, before, what)
			}
		}
	}
}

func identity(t *testing.T, l ledger.Ledger) {
	stored := Record("s", "a")
	must(t, l.Put(t.Context(), stored), "Put")
	for field, change := range map[string]func(*ledger.Record){
		"session":   func(r *ledger.Record) { r.Session = "x" },
		"owner":     func(r *ledger.Record) { r.Owner = "x" },
		"epoch":     func(r *ledger.Record) { r.Epoch = "x" },
		"provider":  func(r *ledger.Record) { r.Provider = "x" },
		"name":      func(r *ledger.Record) { r.Name = "x" },
		"digest":    func(r *ledger.Record) { r.Digest = "x" },
		"key":       func(r *ledger.Record) { r.Key = "x" },
		"createdAt": func(r *ledger.Record) { r.CreatedAt = r.CreatedAt.Add(1) },
		"protected": func(r *ledger.Record) { r.Protected, r.ProtectedNames = false, nil },
	} {
		r := Record("s", "a")
		change(&r)
		err := l.Put(t.Context(), r)
		var ie *ledger.IdentityError
		if !errors.As(err, &ie) || ie.Field != field || ie.Attempt != "a" {
			t.Errorf("a change of %s: the error is %v, it must be an *IdentityError that says so", field, err)
		}
		wantCode(t, err, provider.Conflict, "a change of "+field)
		wantRecord(t, l, stored, "after a refused change of "+field)
	}
}

func invalid(t *testing.T, l ledger.Ledger) {
	r := Record("s", "a")
	r.LastError = "text of a provider"
	wantCode(t, l.Put(t.Context(), r), provider.InvalidArgument, "Put of text as an error")
	_, err := l.Get(t.Context(), "a")
	wantCode(t, err, provider.NotFound, "Get after a refused Put")
}

func endedContext(t *testing.T, l ledger.Ledger) {
	must(t, l.Put(t.Context(), Record("s", "a")), "Put")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantCode(t, l.Put(ctx, Record("s", "b")), provider.Canceled, "Put")
	wantCode(t, l.Delete(ctx, "a"), provider.Canceled, "Delete")
	_, err := l.Get(ctx, "a")
	wantCode(t, err, provider.Canceled, "Get")
	_, err = l.Session(ctx, "s")
	wantCode(t, err, provider.Canceled, "Session")
	_, err = l.List(ctx, "owner")
	wantCode(t, err, provider.Canceled, "List")
	got, err := l.List(t.Context(), "owner")
	must(t, err, "List")
	if attempts(got) != "a" {
		t.Errorf("calls with an ended context left %q, it must be a", attempts(got))
	}
}

func closed(t *testing.T, l ledger.Ledger) {
	must(t, l.Put(t.Context(), Record("s", "a")), "Put")
	must(t, l.Close(), "Close")
	must(t, l.Close(), "the second Close")
	wantCode(t, l.Put(t.Context(), Record("s", "b")), provider.FailedPrecondition, "Put after Close")
	wantCode(t, l.Delete(t.Context(), "a"), provider.FailedPrecondition, "Delete after Close")
	_, err := l.Get(t.Context(), "a")
	wantCode(t, err, provider.FailedPrecondition, "Get after Close")
	_, err = l.List(t.Context(), "owner")
	wantCode(t, err, provider.FailedPrecondition, "List after Close")
}

// hammer lets several goroutines live whole lives in one session, each with its
// own attempts, while others read.
func hammer(t *testing.T, l ledger.Ledger) {
	const workers, lives = 8, 20
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				all, err := l.Session(t.Context(), "s")
				if err != nil {
					t.Errorf("Session failed: %v", err)
					return
				}
				for i, r := range all {
					if err := r.Validate(); err != nil {
						t.Errorf("a reader saw a broken record: %v", err)
					}
					if i > 0 && all[i-1].Attempt >= r.Attempt {
						t.Errorf("a reader saw records out of order")
					}
					scribble(r)
				}
				// A ledger may be printed at any time, and shows no record.
				if text := fmt.Sprintf("%v %+v %#v %s", l, l, l, l); strings.Contains(text, "w0-") {
					t.Errorf("a ledger that is printed shows its records")
				}
			}
		})
	}
	for w := range workers {
		writers.Go(func() {
			for n := range lives {
				r := Record("s", fmt.Sprintf("w%d-%02d", w, n))
				for _, p := range []ledger.Phase{ledger.Intent, ledger.Created, ledger.Retiring, ledger.Gone} {
					r.Phase = p
					if err := l.Put(t.Context(), r); err != nil {
						t.Errorf("Put failed: %v", err)
						return
					}
					if got, err := l.Get(t.Context(), r.Attempt); err != nil || got.Phase != p {
						t.Errorf("Get after Put returned phase %q (error %v), it must be %q", got.Phase, err, p)
						return
					}
				}
				if n%2 == 0 {
					if err := l.Delete(t.Context(), r.Attempt); err != nil {
						t.Errorf("Delete failed: %v", err)
						return
					}
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	all, err := l.List(t.Context(), "owner")
	must(t, err, "List")
	if len(all) != workers*lives/2 {
		t.Errorf("%d records are left, it must be %d", len(all), workers*lives/2)
	}
}

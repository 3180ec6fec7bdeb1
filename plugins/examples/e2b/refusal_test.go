package main

import (
	"errors"
	"testing"

	"github.com/sbxhost/sbxhost/abi/guest"
)

// Messages as envd writes them, of the versions that run a command themselves.
func TestRefusal(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]guest.Code{
		`{"code":"invalid_argument","message":"error starting process 'nope': exec: \"nope\": executable file not found in $PATH"}`: guest.NotFound,
		`{"code":"invalid_argument","message":"error starting process '/no': fork/exec /no: no such file or directory"}`:            guest.NotFound,
		`{"code":"invalid_argument","message":"error starting process './f': fork/exec ./f: permission denied"}`:                    guest.PermissionDenied,
		`{"code":"invalid_argument","message":"cwd '/nowhere' does not exist"}`:                                                     guest.FailedPrecondition,
		`{"code":"resource_exhausted","message":"fork/exec /bin/sh: resource temporarily unavailable"}`:                             guest.ResourceExhausted,
		`{"code":"unavailable"}`: guest.Unavailable,
		`{}`:                     guest.Unavailable,
	} {
		v, err := guest.Parse([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		var e *guest.Error
		if !errors.As(refusal(v), &e) || e.Code != want {
			t.Errorf("%s is %v, want %s", doc, refusal(v), want)
		}
	}
}

package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/ledger/ledgertest"
	"github.com/sbxhost/sbxhost/provider"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, ledger.Memory)
}

func TestValidate(t *testing.T) {
	t.Parallel()
	const canary = "canary value 5f2a"
	for name, change := range map[string]func(*ledger.Record){
		"session":             func(r *ledger.Record) { r.Session = "" },
		"attempt":             func(r *ledger.Record) { r.Attempt = canary },
		"owner":               func(r *ledger.Record) { r.Owner = "a\nb" },
		"epoch":               func(r *ledger.Record) { r.Epoch = strings.Repeat("x", ledger.MaxField+1) },
		"provider":            func(r *ledger.Record) { r.Provider = "a\x00" },
		"name":                func(r *ledger.Record) { r.Name = "\xff" },
		"digest":              func(r *ledger.Record) { r.Digest = canary },
		"key":                 func(r *ledger.Record) { r.Key = canary + "\n" },
		"key must be at most": func(r *ledger.Record) { r.Key = strings.Repeat("x", ledger.MaxKey+1) },
		"phase":               func(r *ledger.Record) { r.Phase = "done" },
		"ref is missing":      func(r *ledger.Record) { r.Phase, r.Ref = ledger.Created, provider.Ref{} },
		"ref is malformed": func(r *ledger.Record) {
			r.Ref.Data = json.RawMessage(`"` + strings.Repeat("x", provider.MaxRefBytes) + `"`)
		},
		"protectedNames[1]":     func(r *ledger.Record) { r.ProtectedNames[1] = canary },
		"protectedNames holds":  func(r *ledger.Record) { r.ProtectedNames = make([]string, ledger.MaxProtectedNames+1) },
		"protected must":        func(r *ledger.Record) { r.Protected = false },
		"manifest must":         func(r *ledger.Record) { r.Manifest = json.RawMessage(`["` + canary + `"]`) },
		"manifest must be":      func(r *ledger.Record) { r.Manifest = json.RawMessage(`{"a":`) },
		"manifest is larger":    func(r *ledger.Record) { r.Manifest = bytes.Repeat([]byte(" "), ledger.MaxManifest+1) },
		"createdAt and":         func(r *ledger.Record) { r.CreatedAt = time.Time{} },
		"times must":            func(r *ledger.Record) { r.ExpiresAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"idle":                  func(r *ledger.Record) { r.Idle = -1 },
		"lastError must be":     func(r *ledger.Record) { r.LastError = canary },
		"ref is malformed or t": func(r *ledger.Record) { r.Ref.ID = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ledgertest.Record("s", "a")
			change(&r)
			err := r.Validate()
			require.ErrorIs(t, err, provider.ErrInvalidArgument)
			require.ErrorContains(t, err, name)
			require.NotContains(t, fmt.Sprintf("%+v", err), "canary")
			_, err = ledger.EncodeRecord(r)
			require.ErrorIs(t, err, provider.ErrInvalidArgument)
		})
	}
	r := ledgertest.Record("s", "a")
	require.NoError(t, r.Validate())
}

func TestErrors(t *testing.T) {
	t.Parallel()
	te := &ledger.TransitionError{Attempt: "a", From: ledger.Gone, To: ledger.Intent}
	require.EqualError(t, te, "ledger: attempt a cannot go from gone to intent; the phases go intent, created, retiring, gone, and a failed intent may retire")
	require.ErrorIs(t, te, provider.ErrFailedPrecondition)
	require.Equal(t, provider.FailedPrecondition, provider.CodeOf(fmt.Errorf("wrapped: %w", te)))
	ie := &ledger.IdentityError{Attempt: "a", Field: "owner"}
	require.EqualError(t, ie, "ledger: attempt a is recorded with another owner; use a fresh attempt for another sandbox")
	require.ErrorIs(t, ie, provider.ErrConflict)
	require.False(t, errors.Is(ie, provider.ErrInternal))
}

func TestCodec(t *testing.T) {
	t.Parallel()
	r := ledgertest.Record("s", "a")
	r.CreatedAt = r.CreatedAt.In(time.FixedZone("x", 3600))
	r.Manifest = json.RawMessage("{ \"html\": \"<&>\" }")
	data, err := ledger.EncodeRecord(r)
	require.NoError(t, err)
	require.Contains(t, string(data), `"manifest":{"html":"<&>"}`)
	got, err := ledger.DecodeRecord(data)
	require.NoError(t, err)
	r.CreatedAt, r.Manifest = r.CreatedAt.UTC(), json.RawMessage(`{"html":"<&>"}`)
	require.Equal(t, r, got)

	valid := string(data)
	for name, doc := range map[string]string{
		"empty":             ``,
		"null":              `null`,
		"array":             `[]`,
		"no version":        `{"record":{}}`,
		"version zero":      strings.Replace(valid, `"version":1`, `"version":0`, 1),
		"version text":      strings.Replace(valid, `"version":1`, `"version":"1"`, 1),
		"no record":         `{"version":1}`,
		"trailing":          valid + `{}`,
		"truncated":         valid[:len(valid)-2],
		"unknown field":     strings.Replace(valid, `"session":"s"`, `"session":"s","value":"x"`, 1),
		"duplicate field":   strings.Replace(valid, `"session":"s"`, `"session":"s","session":"t"`, 1),
		"other case":        strings.Replace(valid, `"session":"s"`, `"Session":"s"`, 1),
		"wrong type":        strings.Replace(valid, `"session":"s"`, `"session":7`, 1),
		"null field":        strings.Replace(valid, `"protected":true`, `"protected":null`, 1),
		"ref with more":     strings.Replace(valid, `"ref":{`, `"ref":{"token":"x",`, 1),
		"ref in other case": strings.Replace(valid, `"ref":{"id"`, `"ref":{"ID"`, 1),
		"invalid":           strings.Replace(valid, `"phase":"intent"`, `"phase":"other"`, 1),
		"not UTF-8":         strings.Replace(valid, `"session":"s"`, "\"session\":\"\xff\"", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NotEqual(t, valid, doc)
			_, err := ledger.DecodeRecord([]byte(doc))
			require.ErrorIs(t, err, provider.ErrInternal)
			require.NotContains(t, err.Error(), "HOST_TOKEN")
		})
	}
	_, err = ledger.DecodeRecord([]byte(strings.Replace(valid, `"version":1`, `"version":2`, 1)))
	require.ErrorIs(t, err, provider.ErrUnsupported)
}

func FuzzDecodeRecord(f *testing.F) {
	data, err := ledger.EncodeRecord(ledgertest.Record("s", "a"))
	require.NoError(f, err)
	f.Add(data)
	bare := ledgertest.Record("s", "b")
	bare.Ref, bare.Manifest, bare.Key, bare.ExpiresAt = provider.Ref{}, nil, "", time.Time{}
	data, err = ledger.EncodeRecord(bare)
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"version":1,"record":{"session":"s","Session":"t"}}`))
	f.Add([]byte(`{"version":9}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ledger.DecodeRecord(data)
		if err != nil {
			return
		}
		require.NoError(t, r.Validate())
		again, err := ledger.EncodeRecord(r)
		require.NoError(t, err)
		back, err := ledger.DecodeRecord(again)
		require.NoError(t, err)
		require.Equal(t, r, back)
		once, err := ledger.EncodeRecord(back)
		require.NoError(t, err)
		require.Equal(t, string(again), string(once))
	})
}

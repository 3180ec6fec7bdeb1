// Package ledger is the host's durable record of what it made, so that no
// sandbox is orphaned when a process dies or an answer is lost. It holds names,
// ids and references, never a value.
//
// Ledgertest.Run is the test that every implementation passes.
package ledger

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// Phase is how far the life of a sandbox has come.
type Phase string

// The phases, in order.
const (
	// Intent: the provider is about to be asked, or was; whether the sandbox
	// exists is not known.
	Intent Phase = "intent"
	// Created: the sandbox is complete.
	Created Phase = "created"
	// Retiring: it is to be destroyed, or that was tried.
	Retiring Phase = "retiring"
	// Gone: it is destroyed. Records are usually deleted instead.
	Gone Phase = "gone"
)

// Record is what the ledger knows of one sandbox. While a replacement is being
// built a session has two. See Record.Validate for what each field may hold.
type Record struct {
	Session        string          `json:"session"`
	Attempt        string          `json:"attempt"` // the key: fresh random per create
	Owner          string          `json:"owner"`
	Epoch          string          `json:"epoch"` // of the owner's process that made it
	Provider       string          `json:"provider"`
	Name           string          `json:"name"` // planned by the host
	Digest         string          `json:"digest"`
	Key            string          `json:"key,omitempty"` // the caller's idempotency key
	Phase          Phase           `json:"phase"`
	Ref            provider.Ref    `json:"ref,omitzero"`
	Protected      bool            `json:"protected"`
	ProtectedNames []string        `json:"protectedNames,omitempty"`
	Manifest       json.RawMessage `json:"manifest,omitempty"` // references only
	CreatedAt      time.Time       `json:"createdAt"`
	UpdatedAt      time.Time       `json:"updatedAt"`
	ExpiresAt      time.Time       `json:"expiresAt,omitzero"`
	Idle           time.Duration   `json:"idle,omitempty"`
	LastError      string          `json:"lastError,omitempty"` // a provider.Code, nothing else
}

// Ledger keeps records by attempt. All methods are safe for concurrent use and
// linearizable: a call that starts after a Put or Delete returned sees it.
// Records are copied in and out; the caller may change what it gave or got. A
// call whose context has ended before it starts fails and changes nothing. After
// Close every method but Close is FailedPrecondition.
//
// Errors are *provider.Error, *TransitionError or *IdentityError, or context
// errors; act on provider.CodeOf.
type Ledger interface {
	// Put writes the record under its Attempt, replacing what was there. It is
	// durable when Put returns nil; when it returns an error the record is
	// either as before or as given, never something else. It is idempotent and
	// may be retried.
	//
	// A record that Validate refuses is InvalidArgument. A phase that does not
	// follow the stored one is a *TransitionError, a change of what identifies
	// the sandbox an *IdentityError; nothing is written then. A new record may
	// have any phase but Gone.
	Put(ctx context.Context, r Record) error
	// Get returns the record of an attempt; an error whose code is
	// provider.NotFound when there is none. It changes nothing and may be
	// retried.
	Get(ctx context.Context, attempt string) (Record, error)
	// Session returns the records of a session, oldest first by CreatedAt, then
	// by Attempt; none is an empty result. It changes nothing and may be retried.
	Session(ctx context.Context, session string) ([]Record, error)
	// List returns the records of an owner, in any phase, in the order of
	// Session; none is an empty result. It changes nothing and may be retried.
	List(ctx context.Context, owner string) ([]Record, error)
	// Delete removes a record, whatever its phase: only the caller knows that
	// nothing of the sandbox is left. It is durable when it returns nil. An
	// absent record is success; it may be retried.
	Delete(ctx context.Context, attempt string) error
	// Close releases the ledger. The caller that opened it calls it, after the
	// host's Close. It waits for calls under way and may be repeated.
	Close() error
}

package host

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// ledgered wraps a provider for one sandbox, so that the ledger always knows at
// least as much as the provider: the intent is durable before Create is asked,
// and the record goes only when Destroy has succeeded.
type ledgered struct {
	provider.Provider
	ledger ledger.Ledger
	now    func() time.Time
	// still confirms that Create may go on, once the intent is recorded.
	still func() error
	// checkRef refuses a ref that must not be kept; nil keeps any.
	checkRef func(provider.Ref) error

	record ledger.Record // its Phase and Ref change; used by one operation at a time
	saved  saved         // what the ledger is known to have
}

// saved is the part of a record that changes, as it was last written.
type saved struct {
	phase ledger.Phase
	ref   provider.Ref
}

// knows reports whether the ledger has exactly this ref.
func (l *ledgered) knows(ref provider.Ref) bool {
	return l.saved.ref.ID == ref.ID && bytes.Equal(l.saved.ref.Data, ref.Data)
}

// Create implements provider.Provider. An ambiguous answer is settled by looking
// for the sandbox; see settle.
func (l *ledgered) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	if err := l.put(ctx, ledger.Intent); err != nil {
		// The provider is not asked; a record that came through all the same
		// would be looked for in vain.
		_ = l.ledger.Delete(context.WithoutCancel(ctx), l.record.Attempt)
		return nil, err
	}
	if err := l.still(); err != nil {
		_ = l.ledger.Delete(context.WithoutCancel(ctx), l.record.Attempt)
		return nil, &stopped{err}
	}
	var during sync.Mutex // a provider that was given up may still be at work
	over := false
	req.Checkpoint = func(ref provider.Ref) error {
		during.Lock()
		defer during.Unlock()
		if over {
			return refusal(provider.FailedPrecondition, "checkpoint", "the create was given up", "remove what was made")
		}
		return l.checkpoint(ctx, ref)
	}
	sb, err := l.Provider.Create(ctx, req)
	during.Lock()
	over = true
	during.Unlock()
	if err != nil {
		if sb, err = l.settle(ctx, err); err != nil {
			return nil, err
		}
	}
	l.learn(sb.Ref())
	return sb, nil
}

// learn takes over a ref that a provider gave, unless it must not be kept: what
// is in the record is on disk with its next write.
func (l *ledgered) learn(ref provider.Ref) {
	if l.checkRef == nil || l.checkRef(ref) == nil {
		l.record.Ref = ref
	}
}

// checkpoint makes a ref durable while its sandbox is still being made. Its
// error makes the provider stop and remove what there is.
func (l *ledgered) checkpoint(ctx context.Context, ref provider.Ref) error {
	if l.checkRef != nil {
		if err := l.checkRef(ref); err != nil {
			return err
		}
	}
	before := l.record.Ref
	l.record.Ref = ref
	// The sandbox exists whatever became of the caller.
	if err := l.put(context.WithoutCancel(ctx), ledger.Intent); err != nil {
		l.record.Ref = before
		return err
	}
	return nil
}

// stopped is an error of the host's own, found before the provider was asked.
type stopped struct{ error }

// created records that the sandbox is complete.
func (l *ledgered) created(ctx context.Context) error { return l.put(ctx, ledger.Created) }

// retiring records that the sandbox is to go, before anything is done about it:
// whoever comes after a crash finishes it. A ledger that cannot be written does
// not keep a sandbox alive: its record still says that it exists, and that is
// what reconcile needs.
func (l *ledgered) retiring(ctx context.Context) {
	if l.saved.phase != ledger.Retiring {
		_ = l.put(context.WithoutCancel(ctx), ledger.Retiring)
	}
}

// Destroy implements provider.Provider.
func (l *ledgered) Destroy(ctx context.Context, ref provider.Ref) error {
	l.retiring(ctx)
	if err := l.Provider.Destroy(ctx, ref); err != nil {
		l.failed(ctx, err)
		return err
	}
	if err := l.ledger.Delete(context.WithoutCancel(ctx), l.record.Attempt); err != nil {
		return ledgerFailed("destroy", provider.AppliedYes, err)
	}
	return nil
}

// failed keeps the code of a removal that did not work.
func (l *ledgered) failed(ctx context.Context, err error) {
	l.record.LastError = string(codeOf(err))
	_ = l.put(context.WithoutCancel(ctx), ledger.Retiring)
}

func (l *ledgered) put(ctx context.Context, phase ledger.Phase) error {
	l.record.Phase, l.record.UpdatedAt = phase, l.now()
	if err := l.ledger.Put(ctx, l.record); err != nil {
		return ledgerFailed("record", provider.AppliedNo, err)
	}
	l.saved = saved{phase, l.record.Ref}
	return nil
}

// ledgerFailed keeps the ledger's error: it holds no value.
func ledgerFailed(op string, applied provider.Applied, err error) error {
	return &provider.Error{Code: provider.Unavailable, Op: op, Message: "the ledger failed", Err: err,
		Remedy: "see that its storage is there, writable and not full", Applied: applied}
}

// settle finds out what a failed Create left. A sandbox that carries our
// attempt's label is ours: it is adopted if it runs and only the answer was
// lost, else destroyed. What cannot be settled stays in the ledger: a sandbox
// that is not visible yet is not gone.
func (l *ledgered) settle(ctx context.Context, cause error) (provider.Sandbox, error) {
	code := codeOf(cause)
	// The caller may have given up; finding out has its own time.
	after := context.WithoutCancel(ctx)
	if appliedOf(cause) == provider.AppliedNo && l.record.Ref.ID == "" {
		_ = l.ledger.Delete(after, l.record.Attempt)
		return nil, cause
	}
	found, err := l.find(after)
	if err != nil {
		l.failed(after, cause)
		return nil, cause
	}
	// A provider that has not come back may yet undo what it does, and what it
	// makes after that is destroyed when it arrives: nothing of it is adopted.
	var working *unanswered
	returned := !errors.As(cause, &working)
	if returned && ctx.Err() == nil && len(found) == 1 && found[0].State == provider.StateRunning && answerLost(code) {
		if sb, err := l.Open(ctx, found[0].Ref); err == nil {
			return sb, nil
		}
	}
	for _, r := range found {
		l.learn(r.Ref)
		if err := l.Provider.Destroy(after, r.Ref); err != nil {
			l.failed(after, err)
			return nil, cause
		}
	}
	if !returned || len(found) == 0 && (mayStillCome(code) || l.record.Ref.ID != "") {
		l.failed(after, cause)
		return nil, cause
	}
	_ = l.ledger.Delete(after, l.record.Attempt)
	return nil, cause
}

// find lists the sandboxes that carry the labels of our attempt.
func (l *ledgered) find(ctx context.Context) ([]provider.Resource, error) {
	listed, err := l.List(ctx, provider.Query{Owner: l.record.Owner, Session: l.record.Session})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(listed), func(r provider.Resource) bool { return !proven(r, l.record) }), nil
}

// answerLost says that the sandbox may be sound and only its answer went
// missing.
func answerLost(code provider.Code) bool {
	return slices.Contains([]provider.Code{provider.DeadlineExceeded, provider.Unavailable, provider.Lost}, code)
}

// mayStillCome says that a sandbox may appear after the answer.
func mayStillCome(code provider.Code) bool {
	return answerLost(code) || code == provider.Canceled || code == provider.Internal
}

// proven reports whether a listed sandbox is the one of a record. Every label
// must agree: a sandbox with our owner's name alone, or of another life of it,
// is not ours.
func proven(r provider.Resource, rec ledger.Record) bool {
	protected := "0"
	if rec.Protected {
		protected = "1"
	}
	return rec.Attempt != "" &&
		r.Labels[provider.LabelOwner] == rec.Owner &&
		r.Labels[provider.LabelEpoch] == rec.Epoch &&
		r.Labels[provider.LabelSession] == rec.Session &&
		r.Labels[provider.LabelAttempt] == rec.Attempt &&
		r.Labels[provider.LabelDigest] == rec.Digest &&
		r.Labels[provider.LabelProtected] == protected
}

// visibilityGrace is how long a sandbox whose create was not answered may take
// to appear in the provider's list.
const visibilityGrace = 15 * time.Minute

// errNotVisible says that a sandbox may yet appear.
var errNotVisible = &provider.Error{Code: provider.Unavailable, Op: "retire", Applied: provider.AppliedNo,
	Message: "the sandbox is not visible at the provider, but may still appear"}

// remove destroys the record's sandbox wherever its create got to. The provider
// must list it with our labels: listed is what it reported, or why it could not.
// Only a provider that never lists is given the ref that it returned itself.
func (l *ledgered) remove(ctx context.Context, listed []provider.Resource, listErr error) error {
	if listErr != nil {
		if codeOf(listErr) != provider.Unsupported || l.record.Ref.ID == "" {
			l.failed(ctx, listErr)
			return listErr
		}
		return l.Destroy(ctx, l.record.Ref)
	}
	if i := slices.IndexFunc(listed, func(r provider.Resource) bool { return proven(r, l.record) }); i >= 0 {
		return l.Destroy(ctx, listed[i].Ref)
	}
	switch {
	case l.record.Ref.ID == "" && l.now().Sub(l.record.CreatedAt) < visibilityGrace:
		return errNotVisible
	case l.record.Ref.ID != "":
		// Not listed is not gone: a list may be stale. But what is there and
		// does not carry our labels is not ours to destroy.
		if _, err := l.Open(ctx, l.record.Ref); codeOf(err) != provider.NotFound {
			return errNotVisible
		}
	}
	if err := l.ledger.Delete(ctx, l.record.Attempt); err != nil {
		return ledgerFailed("retire", provider.AppliedNo, err)
	}
	return nil
}

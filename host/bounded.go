package host

import (
	"context"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// answerGrace is how long a provider may take to come back after its context
// ended. A well-behaved one uses the time to remove what it began.
const answerGrace = time.Second

// bounded calls f, which may hang or panic. It returns f's answer, or, when ctx
// ends or limit passes and f has not come back a grace later, an error that says
// that the outcome is unknown. An answer that arrives after that goes to late,
// which may be nil.
func bounded[T any](ctx context.Context, limit time.Duration, op string, late func(T), f func(context.Context) (T, error)) (T, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		a := answer{err: errPanicked(op)}
		defer func() {
			// The panic's value and stack may hold what the provider holds.
			_ = recover()
			answers <- a
		}()
		a.v, a.err = f(ctx)
	}()
	select {
	case a := <-answers:
		return a.v, a.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(answerGrace)
	defer grace.Stop()
	select {
	case a := <-answers:
		return a.v, a.err
	case <-grace.C:
	}
	if late != nil {
		go func() {
			if a := <-answers; a.err == nil {
				late(a.v)
			}
		}()
	}
	var zero T
	return zero, &unanswered{&provider.Error{Code: provider.CodeOf(ctx.Err()), Op: op,
		Message: "the provider did not answer in time", Applied: provider.AppliedUnknown}}
}

// unanswered says that a provider has not come back at all: it may be at work
// still.
type unanswered struct{ err *provider.Error }

func (u *unanswered) Error() string { return u.err.Error() }

func (u *unanswered) Unwrap() error { return u.err }

func errPanicked(op string) error {
	return &provider.Error{Code: provider.Internal, Op: op, Message: "the provider panicked",
		Remedy: "report it to the provider's author", Applied: provider.AppliedUnknown}
}

// boundedErr is bounded for calls that return only an error.
func boundedErr(ctx context.Context, limit time.Duration, op string, f func(context.Context) error) error {
	_, err := bounded(ctx, limit, op, nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f(ctx)
	})
	return err
}

package provider_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider"
)

type coded struct{}

func (coded) Error() string            { return "coded" }
func (coded) ErrorCode() provider.Code { return provider.NotGranted }

func TestCodeOf(t *testing.T) {
	t.Parallel()
	notFound := &provider.Error{Code: provider.NotFound, Op: "open"}
	for _, tt := range []struct {
		name string
		err  error
		want provider.Code
	}{
		{"nil", nil, ""},
		{"error", notFound, provider.NotFound},
		{"wrapped", fmt.Errorf("more: %w", notFound), provider.NotFound},
		{"joined", errors.Join(errors.New("x"), notFound), provider.NotFound},
		{"outermost wins", &provider.Error{Code: provider.Internal, Err: notFound}, provider.Internal},
		{"another package's", fmt.Errorf("more: %w", coded{}), provider.NotGranted},
		{"code", provider.ErrLost, provider.Lost},
		{"canceled", fmt.Errorf("more: %w", context.Canceled), provider.Canceled},
		{"deadline", context.DeadlineExceeded, provider.DeadlineExceeded},
		{"context below an error", &provider.Error{Code: provider.Unavailable, Err: context.Canceled}, provider.Unavailable},
		{"other", errors.New("x"), provider.Internal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, provider.CodeOf(tt.err))
		})
	}
}

func TestErrorIs(t *testing.T) {
	t.Parallel()
	sentinels := []error{provider.ErrInvalidArgument, provider.ErrNotFound, provider.ErrAlreadyExists, provider.ErrConflict,
		provider.ErrNotGranted, provider.ErrPermissionDenied, provider.ErrUnsupported, provider.ErrFailedPrecondition,
		provider.ErrResourceExhausted, provider.ErrUnavailable, provider.ErrDeadlineExceeded, provider.ErrCanceled,
		provider.ErrLost, provider.ErrInternal}
	require.Len(t, sentinels, len(provider.Codes()))
	for i, code := range provider.Codes() {
		err := fmt.Errorf("more: %w", &provider.Error{Code: code})
		for j, s := range sentinels {
			require.Equal(t, i == j, errors.Is(err, s), "%s is %v", code, s)
		}
		require.Equal(t, code == provider.Canceled, errors.Is(err, context.Canceled))
		require.Equal(t, code == provider.DeadlineExceeded, errors.Is(err, context.DeadlineExceeded))
	}
	cause := errors.New("cause")
	require.ErrorIs(t, &provider.Error{Code: provider.Internal, Err: cause}, cause)
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]*provider.Error{
		"NotFound": {Code: provider.NotFound},
		"docker: create sandbox-1: pull failed: cause; check the name": {Code: provider.Unavailable, Provider: "docker", Op: "create",
			Subject: "sandbox-1", Message: "pull failed", Remedy: "check the name", Err: errors.New("cause")},
		"exec: bad 7": provider.Errorf(provider.InvalidArgument, "exec", "bad %d", 7),
	} {
		require.Equal(t, want, err.Error())
	}
}

func TestApplied(t *testing.T) {
	t.Parallel()
	require.Equal(t, provider.AppliedUnknown, provider.AppliedOf(nil))
	require.Equal(t, provider.AppliedUnknown, provider.AppliedOf(errors.New("x")))
	require.Equal(t, provider.AppliedUnknown, provider.AppliedOf(&provider.Error{}))
	require.Equal(t, provider.AppliedUnknown, provider.AppliedOf(provider.Errorf(provider.Lost, "exec", "x")))
	require.Equal(t, provider.AppliedNo, provider.AppliedOf(fmt.Errorf("more: %w", &provider.Error{Applied: provider.AppliedNo})))
}

func TestRetryable(t *testing.T) {
	t.Parallel()
	want := map[provider.Code]bool{provider.Unavailable: true, provider.ResourceExhausted: true,
		provider.DeadlineExceeded: true, provider.Conflict: true}
	for _, c := range provider.Codes() {
		require.Equal(t, want[c], c.Retryable(), c)
	}
}

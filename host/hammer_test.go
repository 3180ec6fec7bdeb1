package host_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

// Many goroutines use one host in every way at once.
func TestHammer(t *testing.T) {
	t.Parallel()
	e := newEnv(t, granted)
	ctx := context.Background()
	shared := e.create(t, protected())
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			m := ordinary()
			if i%2 == 0 {
				m = protected()
			}
			for round := range 4 {
				s, err := e.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m, Key: fmt.Sprint(i%10, "-", i%2)})
				if !assert.NoError(t, err) {
					return
				}
				r, err := s.Exec(ctx, host.ExecRequest{Shell: `echo "$GREETING $TOKEN"`, Secrets: activation(map[string]string{"K": requestCanary})})
				if err == nil {
					noCanary(t, string(r.Stdout))
				}
				_, _ = s.State(ctx)
				_ = s.WriteFile(ctx, "f", []byte("x"), host.WriteOptions{})
				_, _ = s.ReadFile(ctx, "f")
				_ = s.Info()
				_ = e.SetGrants(tokenGrant())
				switch rand.IntN(4) {
				case 0:
					assert.NoError(t, s.Close(ctx))
				case 1:
					_, err := e.Reconcile(ctx)
					assert.NoError(t, err)
				case 2:
					if state, err := s.State(ctx); err == nil {
						resume(ctx, t, e, state, m)
					}
				}
				if round == 0 {
					_, err = shared.Exec(ctx, host.ExecRequest{Args: []string{"true"}})
					assert.NoError(t, err)
				}
			}
		})
	}
	wg.Wait()
	_, err := e.Reconcile(ctx)
	require.NoError(t, err)
	// Exactly one sandbox per live session.
	list, err := e.fake.List(ctx, provider.Query{Owner: e.ID()})
	require.NoError(t, err)
	seen := map[string]int{}
	for _, r := range list {
		seen[r.Labels[provider.LabelSession]]++
	}
	live := map[string]int{}
	for _, s := range e.Sessions() {
		live[s.ID()] = 1
	}
	assert.Equal(t, live, seen)
}

func resume(ctx context.Context, t *testing.T, e *env, state []byte, m manifest.Manifest) {
	t.Helper()
	s, err := e.Resume(ctx, host.ResumeRequest{State: state, Provider: "fake", Manifest: &m})
	if err != nil {
		// It may have been closed, or is being resumed by somebody else.
		c := provider.CodeOf(err)
		assert.Contains(t, []provider.Code{provider.NotFound, provider.FailedPrecondition, provider.Conflict, provider.Canceled}, c, "%v", err)
		return
	}
	_, _ = s.Exec(ctx, host.ExecRequest{Args: []string{"true"}})
}

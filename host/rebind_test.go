package host_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each operation that finds the grants reloaded makes a new binding, which ends the
// one before it. Those that looked at that one are not refused for it.
func TestGrantsReloadedUnderManyOperations(t *testing.T) {
	t.Parallel()
	e := newEnv(t, granted)
	s := e.create(t, protected())
	for i := range 500 {
		set := tokenGrant()
		if i%2 == 0 {
			set.AllowedProcessEnvironmentKeys = []string{"UNRELATED"}
		}
		require.NoError(t, e.SetGrants(set))
		var operations sync.WaitGroup
		for range 8 {
			operations.Go(func() {
				_, err := s.State(t.Context())
				assert.NoError(t, err)
			})
		}
		operations.Wait()
		if t.Failed() {
			return
		}
	}
}

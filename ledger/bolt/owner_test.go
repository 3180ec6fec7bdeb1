package bolt_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/ledger/bolt"
	"github.com/sbxhost/sbxhost/ledger/ledgertest"
	"github.com/sbxhost/sbxhost/provider"
)

// TestOwner: a ledger that has to be one owner's is not opened when a record is
// another's, and is left as it is.
func TestOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	mine := ledgertest.Record("s1", "a1")
	l, err := bolt.Open(path, bolt.Options{Owner: mine.Owner})
	require.NoError(t, err, "a new one")
	require.NoError(t, l.Put(t.Context(), mine))
	require.NoError(t, l.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)

	for _, tc := range []struct {
		name, owner string
		want        provider.Code
	}{
		{"any owner", "", ""},
		{"the owner", mine.Owner, ""},
		{"another one", mine.Owner + "2", provider.FailedPrecondition},
	} {
		l, err := bolt.Open(path, bolt.Options{Owner: tc.owner})
		if tc.want == "" {
			require.NoError(t, err, tc.name)
			require.NoError(t, l.Close(), tc.name)
			continue
		}
		require.ErrorIs(t, err, tc.want, tc.name)
		assert.ErrorContains(t, err, "it holds records of "+mine.Owner+"; give it back the name it had", tc.name)
	}
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

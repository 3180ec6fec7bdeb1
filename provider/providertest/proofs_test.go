package providertest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/leaktest"
	"github.com/sbxhost/sbxhost/provider/providertest"
)

// What one check left behind, where it may, is not taken for a value of the next
// one: a search that also looks for pieces of a value finds none that both have.
func TestProofsShareNoPiece(t *testing.T) {
	t.Parallel()
	var left leaktest.Corpus
	for name, v := range providertest.ProofValues() {
		for _, f := range leaktest.Forms(v) {
			if !f.Bytes {
				left.Add(name+" as "+f.Kind, []byte(f.Text))
			}
		}
	}
	for name, v := range providertest.ProofValues() {
		if len(v) < 16 {
			continue // the kit does not look for it
		}
		hits, err := leaktest.Find([]leaktest.Canary{leaktest.Known(name, v)}, &left)
		require.NoError(t, err)
		for _, h := range hits {
			assert.Fail(t, "of an earlier check", "%s", h)
		}
	}
}

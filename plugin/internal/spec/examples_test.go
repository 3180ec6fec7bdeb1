package spec_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin/internal/spec"
)

func TestManifestsOfTheExamplesParse(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../plugins/examples/*/manifest.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(filepath.Base(filepath.Dir(f)), func(t *testing.T) {
			t.Parallel()
			doc, err := os.ReadFile(f) //nolint:gosec // the repository's own
			require.NoError(t, err)
			_, err = spec.Parse(doc)
			assert.NoError(t, err)
		})
	}
}

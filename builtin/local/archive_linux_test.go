package local_test

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExportOfUnreadable: what a workload made unreadable, the root included,
// neither stops an export nor is missing from it, and stays as it is.
func TestExportOfUnreadable(t *testing.T) {
	atLevels(t, func(t *testing.T, level local.Level) {
		sb := create(t, newProvider(t, local.Options{Level: level}))
		require.Zero(t, run(t, sb, `mkdir -p locked/in search; echo one >locked/in/file; echo two >shut; echo three >search/file; echo four >setuid
			chmod 000 shut locked/in/file locked/in locked; chmod 600 search; chmod 4100 setuid; chmod 300 .`).exit.Code)
		var buf bytes.Buffer
		require.NoError(t, sb.(provider.Archiver).Export(t.Context(), &buf))
		got := map[string]string{}
		modes := map[string]int64{}
		for r := tar.NewReader(&buf); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			b, err := io.ReadAll(r)
			require.NoError(t, err)
			got[h.Name], modes[h.Name] = string(b), h.Mode
		}
		assert.Equal(t, map[string]string{"locked/": "", "locked/in/": "", "locked/in/file": "one\n", "shut": "two\n",
			"search/": "", "search/file": "three\n", "setuid": "four\n"}, got)
		assert.Equal(t, map[string]int64{"locked/": 0, "locked/in/": 0, "locked/in/file": 0, "shut": 0,
			"search/": 0o600, "search/file": 0o644, "setuid": 0o100}, modes)
		show := run(t, sb, `stat -c %a .; chmod 700 .; stat -c %a shut locked search setuid; chmod 700 locked; stat -c %a locked/in; chmod 700 locked/in; stat -c %a locked/in/file`)
		assert.Equal(t, "300\n0\n0\n600\n4100\n0\n0\n", show.stdout, show.stderr)
	})
}

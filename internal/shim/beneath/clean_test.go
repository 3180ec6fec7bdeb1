package beneath_test

import (
	"path"
	"strings"
	"testing"

	"github.com/sbxhost/sbxhost/internal/shim/beneath"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": ".", ".": ".", "a/": "a", "./a/../b": "b", "a//b": "a/b", "..a": "..a", "...": "..."} {
		got, err := beneath.Clean(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got)
	}
	for in, want := range map[string]error{"/": beneath.ErrAbsolute, "/a": beneath.ErrAbsolute, "..": beneath.ErrOutside, "a/../..": beneath.ErrOutside, "../a": beneath.ErrOutside, "a\x00b": beneath.ErrNUL} {
		_, err := beneath.Clean(in)
		assert.Equal(t, want, err, in)
	}
}

// FuzzClean: what is accepted stays below the root, lexically, and stays as it is.
func FuzzClean(f *testing.F) {
	f.Add("a/../../b")
	f.Add("..")
	f.Fuzz(func(t *testing.T, in string) {
		c, err := beneath.Clean(in)
		if err != nil {
			return
		}
		again, err := beneath.Clean(c)
		joined := path.Join("/root", c)
		if err != nil || again != c || (joined != "/root" && !strings.HasPrefix(joined, "/root/")) || strings.Contains("/"+c+"/", "/../") {
			t.Fatalf("%q from %q", c, in)
		}
	})
}

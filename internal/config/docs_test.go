package config_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/config"
)

// The example in docs/config.md is valid and shows every key.
func TestDocumentedExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/config.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "## Everything there is\n\n```yaml\n")
	require.True(t, ok)
	example, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	_, err = config.Parse([]byte(example))
	require.NoError(t, err)
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			assert.Contains(t, example, f.Tag.Get("json")+":")
			if f.Type.Kind() == reflect.Struct {
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[config.Config]())
}

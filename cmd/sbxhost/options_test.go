package main

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/secret"
)

// Every setting of a built-in provider arrives at it.
func TestSettingsArrive(t *testing.T) {
	t.Parallel()
	var c config.Config
	for _, section := range []any{&c.Local, &c.Docker, &c.Daytona} {
		fill(t, reflect.ValueOf(section).Elem())
	}
	for name, tc := range map[string]struct {
		settings, options any
		elsewhere         []string // where it goes is tested on its own
	}{
		"local":   {c.Local, localOptions(c.Local, providerFlags{}), []string{"KillLeftovers"}},
		"docker":  {c.Docker, dockerOptions(c.Docker), nil},
		"daytona": {c.Daytona, daytonaOptions(c.Daytona, secret.Value{}), []string{"APIKey"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings, options := reflect.ValueOf(tc.settings), reflect.ValueOf(tc.options)
			for i := range settings.NumField() {
				field := settings.Type().Field(i).Name
				if slices.Contains(tc.elsewhere, field) {
					continue
				}
				option := options.FieldByName(field)
				require.True(t, option.IsValid(), "%s has no option", field)
				want := settings.Field(i)
				assert.Equal(t, want.Interface(), option.Convert(want.Type()).Interface(), field)
			}
		})
	}
}

// fill gives every field a value that is not its zero value.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f := v.Field(i)
		switch p := f.Addr().Interface().(type) {
		case *string:
			*p = "set"
		case *bool:
			*p = true
		case **bool:
			*p = new(bool)
		case *int64:
			*p = 7
		case *time.Duration:
			*p = time.Hour
		case *[]string:
			*p = []string{"set"}
		default:
			if f.Kind() != reflect.Struct {
				t.Fatalf("%s: a kind that this test does not know", v.Type().Field(i).Name)
			}
			fill(t, f)
		}
	}
}

package abi_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
)

func TestValueAccessors(t *testing.T) {
	t.Parallel()
	v, err := abi.Parse([]byte(`{"a":{"b":[{"id":"x","n":7,"f":1.9,"ok":true,"nil":null},2]},"m":{"k":"v","n":1}}`))
	require.NoError(t, err)
	item := v.Get("a", "b").Items()[0]
	assert.Equal(t, "x", item.Get("id").Text())
	assert.Equal(t, int64(7), item.Get("n").Int())
	assert.Equal(t, int64(1), item.Get("f").Int())
	assert.True(t, item.Get("ok").Bool())
	assert.False(t, item.Get("nil").Exists())
	assert.Equal(t, map[string]string{"k": "v"}, v.Get("m").StringMap())
	assert.Equal(t, []string{"a", "m"}, v.Keys())

	// Everything on something missing or of another type is the zero value.
	none := v.Get("a", "nope", "deeper")
	assert.False(t, none.Exists())
	assert.Empty(t, none.Text())
	assert.Zero(t, none.Int())
	assert.False(t, none.Bool())
	assert.Empty(t, none.Items())
	assert.Empty(t, none.Keys())
	assert.Empty(t, none.StringMap())
}

func TestParseRefusesDuplicates(t *testing.T) {
	t.Parallel()
	_, err := abi.Parse([]byte(`{"a":1,"b":2,"a":3}`))
	require.ErrorContains(t, err, "duplicate member")
	wide := []byte(`{"k0":0,"k1":0,"k2":0,"k3":0,"k4":0,"k5":0,"k6":0,"k7":0,"k8":0,"k9":0,"ka":0,"kb":0,"kc":0,"kd":0,"ke":0,"kf":0,"kg":0,"k0":1}`)
	_, err = abi.Parse(wide)
	require.ErrorContains(t, err, "duplicate member")
}

// FuzzParse checks that what Parse accepts is valid JSON, and that it accepts
// whatever encoding/json writes.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a":[1,"\u00e9",true,null,-0.5e-3]}`))
	f.Add([]byte(`[[[[]]]]`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if _, err := abi.Parse(doc); err == nil && !json.Valid(doc) {
			t.Fatalf("accepted invalid JSON %q", doc)
		}
	})
}

package config_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/sbxhost/sbxhost/internal/config"
)

const schemaFile = "../../config.schema.json"

func schema(t *testing.T) (*jsonschema.Schema, map[string]any) {
	t.Helper()
	f, err := os.Open(schemaFile)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	doc, err := jsonschema.UnmarshalJSON(f)
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("config.schema.json", doc))
	s, err := c.Compile("config.schema.json")
	require.NoError(t, err)
	return s, doc.(map[string]any)
}

// The schema has exactly the keys of the struct, each with a description.
func TestSchemaMatchesStruct(t *testing.T) {
	t.Parallel()
	_, doc := schema(t)
	var walk func(node map[string]any, typ reflect.Type, path string)
	walk = func(node map[string]any, typ reflect.Type, path string) {
		props, _ := node["properties"].(map[string]any)
		assert.Equal(t, false, node["additionalProperties"], "%s is open", path)
		var want []string
		for i := range typ.NumField() {
			f := typ.Field(i)
			name := f.Tag.Get("json")
			want = append(want, name)
			p, ok := props[name].(map[string]any)
			if !assert.True(t, ok, "%s/%s is not in the schema", path, name) {
				continue
			}
			if f.Type.Kind() == reflect.Struct {
				walk(p, f.Type, path+"/"+name)
			}
			if p["enum"] == nil {
				assert.NotEmpty(t, p["description"], "%s/%s", path, name)
			}
		}
		got := make([]string, 0, len(props))
		for name := range props {
			got = append(got, name)
		}
		assert.ElementsMatch(t, want, got, path)
	}
	walk(doc, reflect.TypeFor[config.Config](), "")
}

// Schema and parser agree on the examples, apart from what a schema cannot say.
func TestSchemaAgreesWithParser(t *testing.T) {
	t.Parallel()
	s, _ := schema(t)
	validate := func(in string) error {
		var v any
		if err := yaml.Unmarshal([]byte(in), &v); err != nil {
			return err
		}
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		var plain any
		if err := json.Unmarshal(b, &plain); err != nil {
			return err
		}
		return s.Validate(plain)
	}
	require.NoError(t, validate(full))
	require.NoError(t, validate("{}"))
	onlyParser := map[string]bool{ // YAML's own matters, and rules across keys
		"anchor": true, "merge key": true, "tag": true, "two documents": true,
		"number as key": true, "conflict of grants": true, "host and context of docker": true, "alias": true,
		"hexadecimal": true, "too large": true, "octal": true, "True is not true": true,
	}
	for _, tc := range refused {
		if onlyParser[tc.name] {
			continue
		}
		assert.Error(t, validate(tc.in), tc.name)
	}
}

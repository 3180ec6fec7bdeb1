package leaktest_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/internal/leaktest"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/redact"
	"github.com/sbxhost/sbxhost/secret"
)

// TestHoldersKeepTheirValues prints, marshals, logs and walks by reflection
// everything that carries values through the program, also inside other structs.
func TestHoldersKeepTheirValues(t *testing.T) {
	t.Parallel()
	canaries := leaktest.Canaries(t)
	values := map[string]secret.Value{}
	sources := map[string]string{}
	m := manifest.New()
	m.Environment = map[string]manifest.Entry{}
	var reqs []grants.Requirement
	for _, c := range canaries {
		values[c.Name] = secret.FromString(c.Value())
		sources[c.Name] = c.Value()
		reqs = append(reqs, grants.Requirement{Name: c.Name})
		m.Environment[c.Name] = manifest.Entry{Reference: &manifest.Reference{}}
	}
	set := grants.Set{}
	for name := range sources {
		set.AllowedProcessEnvironmentKeys = append(set.AllowedProcessEnvironmentKeys, name)
	}
	env := secret.NewEnv(values)
	carrier := grants.NewCarrier(sources)
	activation := grants.Activate(reqs, carrier)
	require.Empty(t, activation.Missing())
	red := redact.New(redact.Options{})
	red.AddEnv(env)
	binding, err := grants.Bind(t.Context(), grants.BindRequest{Manifest: m, Grants: set, Source: grants.MapSource(sources),
		Provider: "test", Session: "00000000000000000000000000000000"})
	require.NoError(t, err)
	bound, err := binding.Values(t.Context(), grants.Use{Manifest: m, Provider: "test", Session: "00000000000000000000000000000000", Grants: set})
	require.NoError(t, err)
	require.Equal(t, len(canaries), bound.Len())

	type outer struct {
		Name  string
		inner any
		env   secret.Env
	}
	holders := map[string]any{
		"value":            values[canaries[0].Name],
		"value pointer":    new(values[canaries[0].Name]),
		"environment":      env,
		"bound":            bound,
		"binding":          binding,
		"carrier":          carrier,
		"activation":       activation,
		"redactor":         red,
		"redactor stats":   red.Stats(),
		"create request":   provider.CreateRequest{SessionID: "x", Protected: env},
		"exec request":     &provider.ExecRequest{ID: "x", Protected: env, Secrets: env},
		"struct":           outer{Name: "outer", inner: &outer{inner: values}, env: env},
		"map":              values,
		"error with value": fmt.Errorf("wrapped: %w", errors.New(fmt.Sprint(env, carrier, values))),
	}
	var corpus leaktest.Corpus
	for name, h := range holders {
		corpus.AddValue(name, h)
		corpus.Add(name+" %d", fmt.Appendf(nil, "%d %X %t %U", h, h, h, h))
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(h); err != nil {
			corpus.AddError(name+" gob", err)
		}
		corpus.Add(name+" gob", b.Bytes())
		var logs bytes.Buffer
		slog.New(slog.NewJSONHandler(&logs, nil)).Info("holder", "h", h, slog.Group("g", "h", h))
		slog.New(slog.NewTextHandler(&logs, nil)).Info("holder", "h", h)
		corpus.Add(name+" slog", logs.Bytes())
		var spy failingMessages
		assert.Equal(&spy, h, "something else")
		assert.Empty(&spy, h)
		corpus.Add(name+" testify", []byte(spy.text))
		indented, err := json.MarshalIndent(map[string]any{"h": h}, "", " ")
		corpus.Add(name+" indented JSON", append(indented, fmt.Sprint(err)...))
	}
	leaktest.Scan(t, canaries, &corpus)
}

// failingMessages keeps what testify says of a failure.
type failingMessages struct{ text string }

func (f *failingMessages) Errorf(format string, args ...any) { f.text += fmt.Sprintf(format, args...) }

package grants

import (
	"context"
	"os"
	"runtime"
	"strings"

	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/secret"
)

// Source is where values come from. Both methods must be safe for concurrent
// use and must honour ctx. They are called only after every reference has been
// found granted. Their errors are never shown or kept: they may quote a value.
type Source interface {
	// Lookup returns the value of name, and false when it is not set. An empty
	// value counts as set.
	Lookup(ctx context.Context, name string) (secret.Value, bool, error)
	// Present reports whether name is set, without handing out its value.
	Present(ctx context.Context, name string) (bool, error)
}

// ProcessEnvironment returns the environment of this process. Names are exact,
// on Windows too.
func ProcessEnvironment() Source { return processEnvironment{} }

type processEnvironment struct{}

func (processEnvironment) lookup(name string) (string, bool) {
	if manifest.ValidName(name) != nil {
		return "", false
	}
	if runtime.GOOS != "windows" {
		return os.LookupEnv(name)
	}
	// os.LookupEnv folds case there; a grant for one name must not read
	// another.
	for _, kv := range os.Environ() {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

func (s processEnvironment) Lookup(_ context.Context, name string) (secret.Value, bool, error) {
	v, ok := s.lookup(name)
	if !ok {
		return secret.Value{}, false, nil
	}
	return secret.FromString(v), true, nil
}

func (s processEnvironment) Present(_ context.Context, name string) (bool, error) {
	_, ok := s.lookup(name)
	return ok, nil
}

// MapSource returns a source with fixed values, for tests. The map is copied.
func MapSource(values map[string]string) Source {
	m := make(map[string]secret.Value, len(values))
	for k, v := range values {
		m[k] = secret.FromString(v)
	}
	return &mapSource{env: secret.NewEnv(m)}
}

type mapSource struct{ env secret.Env }

func (s *mapSource) Lookup(_ context.Context, name string) (secret.Value, bool, error) {
	v, ok := s.env.Get(name)
	return v, ok, nil
}

func (s *mapSource) Present(_ context.Context, name string) (bool, error) {
	return s.env.Has(name), nil
}

package docker

import (
	"slices"
	"strings"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/secret"
)

// safePath is what the engine itself uses when an image names none.
const safePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environ is the environment of a command: the last one of a name counts.
type environ struct {
	names  []string
	values map[string][]byte
}

// baseEnv is the environment that an image gives its commands.
func baseEnv(image []string) *environ {
	e := &environ{values: map[string][]byte{}}
	e.set("PATH", safePath)
	for _, kv := range image {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			e.set(k, v)
		}
	}
	return e
}

func (e *environ) put(name string, value []byte) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environ) set(name, value string) { e.put(name, []byte(value)) }

func (e *environ) setValue(name string, v secret.Value) { e.put(name, v.Reveal()) }

func (e *environ) has(name string) bool { _, ok := e.values[name]; return ok }

// list returns NAME=VALUE entries and forgets the values.
func (e *environ) list() [][]byte {
	out := make([][]byte, 0, len(e.names))
	for _, n := range e.names {
		v := e.values[n]
		b := make([]byte, 0, len(n)+1+len(v))
		out = append(out, append(append(append(b, n...), '='), v...))
		clear(v)
	}
	e.values = nil
	return out
}

// helperEnv is what the engine gives an exec of the supervisor on top of the
// container's environment: a fixed safe one, and every name that the container
// has, removed. A name without "=" removes it.
func helperEnv(container []string) []string {
	fixed := append(shim.EngineEnviron(), "PATH="+safePath, "HOME=/")
	have := make([]string, 0, len(fixed))
	for _, kv := range fixed {
		k, _, _ := strings.Cut(kv, "=")
		have = append(have, k)
	}
	var out []string
	for _, kv := range container {
		if k, _, _ := strings.Cut(kv, "="); k != "" && !slices.Contains(have, k) && !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return append(out, fixed...)
}

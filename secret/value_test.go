package secret_test

import (
	"reflect"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/secret"
)

func TestValueHoldsCopies(t *testing.T) {
	t.Parallel()
	in := []byte(canary)
	v := secret.New(in)
	in[0] = 'X'
	out := v.Reveal()
	require.Equal(t, canary, string(out))
	out[0] = 'Y'
	assert.Equal(t, canary, string(v.Reveal()))
}

func TestValueZeroAndEmpty(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]secret.Value{"zero": {}, "nil": secret.New(nil), "empty": secret.FromString("")} {
		assert.Equal(t, 0, v.Len(), name)
		assert.NotNil(t, v.Reveal(), name)
		assert.Empty(t, v.Reveal(), name)
		assert.False(t, v.HasNUL(), name)
		assert.True(t, v.Equal(secret.Value{}), name)
		assert.Equal(t, secret.Placeholder, v.String(), name)
	}
}

func TestValueEqualAndNUL(t *testing.T) {
	t.Parallel()
	v := secret.FromString(canary)
	assert.True(t, v.Equal(secret.New([]byte(canary))))
	assert.False(t, v.Equal(secret.FromString(canary+"x")))
	assert.False(t, v.Equal(secret.Value{}))
	assert.Equal(t, len(canary), v.Len())
	assert.False(t, v.HasNUL())
	assert.True(t, secret.New([]byte("a\x00b")).HasNUL())
	assert.Equal(t, []byte{0xff, 0, '\n'}, secret.New([]byte{0xff, 0, '\n'}).Reveal(), "any byte is kept")
}

// A Value in a map key or a == would compare, or panic, by accident.
func TestValueIsNotComparable(t *testing.T) {
	t.Parallel()
	assert.False(t, reflect.TypeFor[secret.Value]().Comparable())
	assert.False(t, reflect.TypeFor[secret.Env]().Comparable())
}

func TestEnv(t *testing.T) {
	t.Parallel()
	entries := map[string]secret.Value{"B": secret.FromString("two"), "A": secret.FromString("1"), "C": {}}
	e := secret.NewEnv(entries)
	delete(entries, "A")
	assert.Equal(t, 3, e.Len())
	names := e.Names()
	require.Equal(t, []string{"A", "B", "C"}, names)
	names[0] = "X"
	assert.Equal(t, []string{"A", "B", "C"}, e.Names())

	v, ok := e.Get("B")
	assert.True(t, ok)
	assert.Equal(t, "two", string(v.Reveal()))
	_, ok = e.Get("b")
	assert.False(t, ok, "names are exact")
	assert.True(t, e.Has("C"), "an empty value counts as set")
	assert.False(t, e.Has(""))
	assert.Equal(t, len("A=1")+len("B=two")+len("C=")+3, e.Size())

	var order []string
	for n := range e.All() {
		order = append(order, n)
		if n == "B" {
			break
		}
	}
	assert.Equal(t, []string{"A", "B"}, order)

	w := e.Without("B", "missing")
	assert.Equal(t, []string{"A", "C"}, w.Names())
	assert.Equal(t, 3, e.Len(), "Without copies")
	assert.Equal(t, "secret.Env[A B C]", e.String())
	assert.Equal(t, "secret.Env[]", secret.Env{}.String())
	assert.Equal(t, 0, secret.Env{}.Len())
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	v := secret.FromString(canary)
	e := secret.NewEnv(map[string]secret.Value{"T": v})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				got, _ := e.Get("T")
				assert.True(t, got.Equal(v))
				got.Reveal()[0] = 'X'
			}
		})
	}
	wg.Wait()
	assert.Equal(t, canary, string(v.Reveal()))
}

package cache_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin/internal/cache"
)

// compiler stands for the engine: it looks for a file in its directory and makes
// one if there is none.
type compiler struct {
	dir   string
	runs  int
	found []byte
	fail  error
}

func (c *compiler) compile() error {
	sub := filepath.Join(c.dir, "engine-v1")
	if err := os.MkdirAll(sub, 0o700); err != nil {
		return err
	}
	path := filepath.Join(sub, "code")
	b, err := os.ReadFile(path)
	if err == nil {
		c.found = b
		if c.fail != nil {
			return c.fail
		}
		return nil
	}
	c.found = nil
	c.runs++
	return os.WriteFile(path, []byte("native code"), 0o600)
}

type fixture struct {
	dir, key string
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	root := t.TempDir()
	return fixture{filepath.Join(root, "cache"), filepath.Join(root, "keys", "cache.key")}
}

func (f fixture) open(t *testing.T) (*cache.Cache, *cache.Workspace, *compiler) {
	t.Helper()
	c, err := cache.Open(cache.Options{Dir: f.dir, KeyFile: f.key})
	require.NoError(t, err)
	w, err := c.Workspace()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, w.Close())
		assert.NoDirExists(t, w.Dir())
	})
	require.NoError(t, os.Mkdir(filepath.Join(w.Dir(), "engine-v1"), 0o700))
	return c, w, &compiler{dir: w.Dir()}
}

func (f fixture) entry(t *testing.T) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(f.dir, "*.sbxc"))
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

var module = []byte("a module")

func TestSecondProcessFindsTheCode(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, w, comp := f.open(t)
	require.NoError(t, w.Compile("r1", module, comp.compile))
	assert.Equal(t, 1, comp.runs)
	assert.Equal(t, cache.Stats{Misses: 1}, c.Stats())

	c, w, comp = f.open(t)
	require.NoError(t, w.Compile("r1", module, comp.compile))
	assert.Zero(t, comp.runs)
	assert.Equal(t, "native code", string(comp.found))
	assert.Equal(t, cache.Stats{Hits: 1}, c.Stats())

	// Other module, other rewriter: nothing found, nothing rejected.
	require.NoError(t, w.Compile("r1", []byte("another"), comp.compile))
	require.NoError(t, w.Compile("r2", module, comp.compile))
	assert.Equal(t, 2, comp.runs)
	assert.Equal(t, cache.Stats{Hits: 1, Misses: 2}, c.Stats())

	if runtime.GOOS != "windows" {
		for path, mode := range map[string]os.FileMode{f.dir: 0o700, f.key: 0o600, w.Dir(): 0o700} {
			st, err := os.Stat(path)
			require.NoError(t, err)
			assert.Equal(t, mode, st.Mode().Perm(), path)
		}
	}
}

// Whatever is done to an entry, it is not used, and replaced by a good one.
func TestForgedEntriesAreNeverUsed(t *testing.T) {
	t.Parallel()
	flip := func(at func(n int) int) func([]byte) []byte {
		return func(b []byte) []byte { b[at(len(b))] ^= 1; return b }
	}
	tests := map[string]func([]byte) []byte{
		"first byte": flip(func(int) int { return 0 }), "name": flip(func(int) int { return 30 }),
		"code": flip(func(n int) int { return n - 33 }), "code's start": flip(func(n int) int { return n - 32 - 11 }),
		"mac":       flip(func(n int) int { return n - 1 }),
		"truncated": func(b []byte) []byte { return b[:len(b)-1] },
		"empty":     func([]byte) []byte { return nil },
		"magic":     func(b []byte) []byte { return b[:24] },
		"longer":    func(b []byte) []byte { return append(b, 0) },
		"all zero":  func(b []byte) []byte { return make([]byte, len(b)) },
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			_, w, comp := f.open(t)
			require.NoError(t, w.Compile("r1", module, comp.compile))
			path := f.entry(t)
			good, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, damage(bytes.Clone(good)), 0o600))

			c, w, comp := f.open(t)
			require.NoError(t, w.Compile("r1", module, comp.compile))
			assert.Equal(t, 1, comp.runs, "compiled again")
			assert.Nil(t, comp.found, "nothing was handed to the compiler")
			assert.Equal(t, cache.Stats{Misses: 1, Rejected: 1}, c.Stats())
			now, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, good, now, "replaced by a good entry")
		})
	}
}

func TestEntriesCannotBeMoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, w, comp := f.open(t)
	require.NoError(t, w.Compile("r1", module, comp.compile))
	first := f.entry(t)
	b, err := os.ReadFile(first)
	require.NoError(t, err)
	require.NoError(t, os.Remove(first))
	require.NoError(t, w.Compile("r1", []byte("victim"), comp.compile))
	// The genuine entry of one module under the name of another.
	require.NoError(t, os.WriteFile(f.entry(t), b, 0o600))
	c, w, comp := f.open(t)
	require.NoError(t, w.Compile("r1", []byte("victim"), comp.compile))
	assert.Nil(t, comp.found)
	assert.Equal(t, cache.Stats{Misses: 1, Rejected: 1}, c.Stats())
}

func TestAnotherKeyDoesNotOpenEntries(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, w, comp := f.open(t)
	require.NoError(t, w.Compile("r1", module, comp.compile))
	require.NoError(t, os.Remove(f.key))
	c, w, comp := f.open(t)
	require.NoError(t, w.Compile("r1", module, comp.compile))
	assert.Nil(t, comp.found)
	assert.EqualValues(t, 1, c.Stats().Rejected)
}

func TestUnusableCodeIsCompiledAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, w, comp := f.open(t)
	require.NoError(t, w.Compile("r1", module, comp.compile))
	c, w, comp := f.open(t)
	comp.fail = errors.New("cannot be loaded")
	require.NoError(t, w.Compile("r1", module, comp.compile))
	assert.Equal(t, 1, comp.runs)
	assert.Equal(t, cache.Stats{Misses: 1, Rejected: 1}, c.Stats())
}

func TestCompilerErrorsAreNotCached(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, w, _ := f.open(t)
	boom := errors.New("boom")
	require.ErrorIs(t, w.Compile("r1", module, func() error { return boom }), boom)
	all, err := filepath.Glob(filepath.Join(f.dir, "*"))
	require.NoError(t, err)
	assert.Empty(t, all)
}

func TestLinksAndPipesAreNotFollowed(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no symbolic links without privilege")
	}
	f := newFixture(t)
	_, w, comp := f.open(t)
	require.NoError(t, w.Compile("r1", module, comp.compile))
	path := f.entry(t)
	moved := filepath.Join(t.TempDir(), "moved")
	require.NoError(t, os.Rename(path, moved))
	require.NoError(t, os.Symlink(moved, path))
	_, w, comp = f.open(t)
	require.NoError(t, w.Compile("r1", module, comp.compile))
	assert.Nil(t, comp.found)
	st, err := os.Lstat(path)
	require.NoError(t, err)
	assert.True(t, st.Mode().IsRegular(), "the link was replaced, not written through")
}

func TestKeyMustBePrivate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.open(t)
	tests := map[string]struct {
		do   func(t *testing.T)
		want string
	}{
		"readable by others": {func(t *testing.T) { require.NoError(t, os.Chmod(f.key, 0o644)) }, "0600"},
		"damaged": {func(t *testing.T) {
			require.NoError(t, os.Chmod(f.key, 0o600))
			require.NoError(t, os.WriteFile(f.key, []byte("short"), 0o600))
		}, "damaged"},
		"a link": {func(t *testing.T) {
			require.NoError(t, os.Remove(f.key))
			require.NoError(t, os.Symlink("/dev/zero", f.key))
		}, "cache key"},
	}
	if runtime.GOOS == "windows" {
		t.Skip("modes say nothing here")
	}
	for _, name := range []string{"readable by others", "damaged", "a link"} {
		tests[name].do(t)
		_, err := cache.Open(cache.Options{Dir: f.dir, KeyFile: f.key})
		require.ErrorContains(t, err, tests[name].want, name)
	}
	for _, inside := range []string{"cache.key", "sub/cache.key"} {
		_, err := cache.Open(cache.Options{Dir: f.dir, KeyFile: filepath.Join(f.dir, inside)})
		require.ErrorContains(t, err, "must not lie in the cache directory")
	}
}

func TestConcurrentFirstUseMakesOneKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var wg sync.WaitGroup
	caches := make([]*cache.Cache, 8)
	for i := range caches {
		wg.Go(func() {
			c, err := cache.Open(cache.Options{Dir: f.dir, KeyFile: f.key})
			assert.NoError(t, err)
			caches[i] = c
		})
	}
	wg.Wait()
	_, w, comp := f.open(t)
	require.NoError(t, w.Compile("r1", module, comp.compile))
	for _, c := range caches {
		w, err := c.Workspace()
		require.NoError(t, err)
		comp := &compiler{dir: w.Dir()}
		require.NoError(t, os.Mkdir(filepath.Join(w.Dir(), "engine-v1"), 0o700))
		require.NoError(t, w.Compile("r1", module, comp.compile))
		assert.Zero(t, comp.runs)
		require.NoError(t, w.Close())
	}
}

func TestOldEntriesAreEvicted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, err := cache.Open(cache.Options{Dir: f.dir, KeyFile: f.key, MaxBytes: 300})
	require.NoError(t, err)
	w, err := c.Workspace()
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close()) }()
	comp := &compiler{dir: w.Dir()}
	for i := range 10 {
		require.NoError(t, w.Compile("r1", []byte{byte(i)}, comp.compile))
	}
	all, err := filepath.Glob(filepath.Join(f.dir, "*"))
	require.NoError(t, err)
	total := int64(0)
	for _, p := range all {
		st, err := os.Stat(p)
		require.NoError(t, err)
		total += st.Size()
	}
	assert.LessOrEqual(t, total, int64(300))
	assert.NotEmpty(t, all)
	// The newest is still there.
	require.NoError(t, w.Compile("r1", []byte{9}, comp.compile))
	assert.EqualValues(t, 1, c.Stats().Hits)
}

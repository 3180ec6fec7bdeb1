package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/provider"
)

// A C guest may use a C library: wasi-libc, as a reactor. Its constructors run
// before the snapshot, so each call finds what they made.
func TestCWithLibrary(t *testing.T) {
	t.Parallel()
	toolchain(t, "clang-19", "/usr/include/wasm32-wasi/stdio.h")
	out := filepath.Join(t.TempDir(), "libc.wasm")
	msg, err := exec.Command("clang-19", "-B/usr/lib/llvm-19/bin", "--target=wasm32-wasi", "-mexec-model=reactor", "-Os", "-Wall", "-Wextra", "-Werror",
		"-I../../abi/include", "-Wl,--strip-all", "-o", out, "testdata/libc.c").CombinedOutput()
	require.NoError(t, err, "%s", msg)
	raw, err := os.ReadFile(out)
	require.NoError(t, err)
	packed, err := plugin.Pack(raw, []byte(`{"abi":"sbx_v1","name":"libc","version":"1","kind":"plugin-driven","operations":["create","status","exec","list","destroy"],
		"exec":{"stream":true,"stdin":"none","tty":false,"stderr":"separate","kill":"none","partialOnTimeout":false}}`))
	require.NoError(t, err)
	f := newRig(t, func() ([]byte, error) { return packed, nil }, nil)
	q := createRequest(sessionA, nil)
	q.Environment = nil
	sb, err := f.load(t).Create(t.Context(), q)
	require.NoError(t, err)
	for range 2 {
		exit, text, _ := run(t, sb, provider.ExecRequest{Args: []string{"word"}})
		assert.Equal(t, 3, exit.Code)
		assert.Equal(t, "word 42 1.50\n", text, "each call starts from the state after initialisation")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.Contains(t, f.logs.String(), "wrote 13 bytes")
}

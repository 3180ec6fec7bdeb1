package examples_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

var memoryModule = module("memory")

func TestMemoryKeepsItsStateInTheReference(t *testing.T) {
	t.Parallel()
	toolchain(t, needs["memory"]...)
	f := newRig(t, memoryModule, nil)
	p := f.load(t)
	var checkpoints []provider.Ref
	q := createRequest(sessionA, nil)
	_, err := p.Create(t.Context(), q)
	require.ErrorIs(t, err, provider.ErrUnsupported, "it cannot give literals to anything, and says so")
	q.Environment = nil
	q.Checkpoint = func(r provider.Ref) error { checkpoints = append(checkpoints, r); return nil }
	sb, err := p.Create(t.Context(), q)
	require.NoError(t, err)
	assert.NotEmpty(t, checkpoints, "the reference must be durable before create returns")
	for i, text := range []string{"first", `second "quoted"`} {
		exit, _, _ := run(t, sb, provider.ExecRequest{ID: "n" + string(rune('0'+i)), Args: []string{"note", text}})
		assert.Equal(t, 0, exit.Code)
	}
	// A new process has nothing but the reference.
	again, err := f.load(t).Open(t.Context(), sb.Ref())
	require.NoError(t, err)
	exit, out, _ := run(t, again, provider.ExecRequest{Args: []string{"notes"}})
	assert.Equal(t, provider.ExitExited, exit.Kind)
	assert.Equal(t, "first\nsecond \"quoted\"\n", out)

	exit, out, _ = run(t, again, provider.ExecRequest{ID: "e", Args: []string{"echo", "a", "b"}})
	assert.Equal(t, 0, exit.Code)
	assert.Equal(t, "a b\n", out)

	_, err = p.List(t.Context(), provider.Query{Owner: "o1"})
	require.ErrorIs(t, err, provider.ErrUnsupported)
	require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	st, err := sb.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, provider.StateGone, st.State)
}

// A reference is refused before any of the plugin's code runs: not a byte
// crossed into its sight, and the same module with a trap in every function is
// refused with the same error.
func TestMemoryIsGivenNoReference(t *testing.T) {
	t.Parallel()
	toolchain(t, needs["memory"]...)
	manifest, err := plugin.Inspect(must(memoryModule()))
	require.NoError(t, err)
	trapping, err := plugin.Pack(trap, manifest.Manifest)
	require.NoError(t, err)
	for name, wasm := range map[string][]byte{"real": must(memoryModule()), "traps on any call, _initialize included": trapping} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newRig(t, func() ([]byte, error) { return wasm, nil }, nil)
			p := f.load(t)
			for _, transport := range []provider.Transport{provider.TransportCreate, provider.TransportExec} {
				q := createRequest(sessionA, map[string]string{"TOKEN": canary})
				q.Transport = transport
				if transport == provider.TransportExec {
					q.Protected = secret.Env{}
				}
				_, err := p.Create(t.Context(), q)
				require.ErrorIs(t, err, provider.ErrUnsupported)
				assert.NotContains(t, err.Error(), canaryWord)
				assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
			}
			assert.Zero(t, f.seen.Len(), "the plugin saw something")
			assert.Empty(t, p.Describe().Transports)
		})
	}
	// The control: without a reference the trapping module's code does run.
	f := newRig(t, func() ([]byte, error) { return trapping, nil }, nil)
	_, err = f.load(t).Create(t.Context(), createRequest(sessionA, nil))
	var panicked *plugin.PluginPanic
	require.ErrorAs(t, err, &panicked)
}

// trap is a module whose _initialize and sbx_v1_call are one "unreachable".
var trap = []byte("\x00asm\x01\x00\x00\x00" +
	"\x01\x09\x02\x60\x00\x00\x60\x01\x7f\x01\x7f" + // types: () -> (), (i32) -> i32
	"\x03\x03\x02\x00\x01" + // two functions
	"\x05\x03\x01\x00\x01" + // one page of memory
	"\x07\x26\x03\x06memory\x02\x00\x0b_initialize\x00\x00\x0bsbx_v1_call\x00\x01" +
	"\x0a\x09\x02\x03\x00\x00\x0b\x03\x00\x00\x0b")

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

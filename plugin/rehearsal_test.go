package plugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmtest"
)

// Before the snapshot a plugin is called with made-up requests. What it sends then
// goes nowhere, what it is given holds nothing of anybody, and what it remembers of
// it is all the same in every call.
func TestRehearsalReachesNothing(t *testing.T) {
	t.Parallel()
	const meta = `{"route":"list"}`
	// Any operation sends the request and adds one to a word of memory. The third in
	// a row and those after it end with a division by zero.
	m := importing(t, "http_open", func(call []byte) []byte {
		return wasmtest.Cat(
			call, wasmtest.Op(0x1a),
			wasmtest.I32Const(1024), wasmtest.I32Const(1024), wasmtest.Op(0x28, 2, 0), wasmtest.I32Const(1), wasmtest.Op(0x6a), wasmtest.Op(0x36, 2, 0),
			wasmtest.I32Const(1024), wasmtest.Op(0x28, 2, 0), wasmtest.I32Const(3), wasmtest.Op(0x49), []byte{0x04, wasmtest.I32}, // fewer than three
			wasmtest.I32Const(1), []byte{0x05}, wasmtest.I32Const(1), wasmtest.I32Const(0), wasmtest.Op(0x6d), wasmtest.Op(0x0b))
	}, wasmtest.I32Const(16), wasmtest.I32Const(int32(len(meta))), wasmtest.I32Const(0), wasmtest.I32Const(0))
	m.Data = []wasmtest.Data{{Offset: 16, Bytes: []byte(meta)}}
	s := stageWith(t, packed(t, m.Bytes(), hostileManifest), nil)
	for i := range 3 {
		err := s.run("list")
		require.Error(t, err)
		// The third call of the instance's life, each time: create and status
		// were rehearsed.
		assert.Contains(t, cause[*plugin.PluginTrap](t, err).Kind, "divide by zero")
		assert.Len(t, s.v.sent(), i+1, "one request for each real call, none for the rehearsal")
	}
	s.mu.Lock()
	seen := s.seen.String()
	s.mu.Unlock()
	assert.NotContains(t, seen, "rehearsal", "it is no conversation with the plugin that anybody watches")
}

// A plugin that does not survive its rehearsal works all the same, and remembers
// nothing of it.
func TestRehearsalMayFail(t *testing.T) {
	t.Parallel()
	// Any operation changes memory and then ends as unreachable; one that found it
	// changed divides by zero.
	m := entry(wasmtest.Cat(
		wasmtest.I32Const(1024), wasmtest.Op(0x28, 2, 0), []byte{0x04, 0x40}, wasmtest.I32Const(1), wasmtest.I32Const(0), wasmtest.Op(0x6d), wasmtest.Op(0x1a), wasmtest.Op(0x0b),
		wasmtest.I32Const(1024), wasmtest.I32Const(1), wasmtest.Op(0x36, 2, 0),
		unreachable))
	s := stageWith(t, packed(t, m.Bytes(), hostileManifest), nil)
	for range 3 {
		err := s.run("list")
		_ = cause[*plugin.PluginPanic](t, err)
	}
}

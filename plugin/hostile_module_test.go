package plugin_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmtest"
	"github.com/sbxhost/sbxhost/provider"
)

var unreachable = []byte{0x00}

// entry is a module whose operations do what code does.
func entry(code []byte, more ...wasmtest.Func) *wasmtest.Module {
	return &wasmtest.Module{Memory: []uint32{1}, Funcs: append([]wasmtest.Func{{Params: []byte{wasmtest.I32}, Results: []byte{wasmtest.I32}, Code: code, Export: abi.CallExport}}, more...)}
}

// importing gives m one import of the ABI, which becomes function 0.
func importing(t *testing.T, name string, code func(call []byte) []byte, args ...[]byte) *wasmtest.Module {
	t.Helper()
	for _, im := range abi.Imports() {
		if im.Name != name {
			continue
		}
		types := func(names []string) []byte {
			var out []byte
			for _, n := range names {
				out = append(out, map[string]byte{"i32": wasmtest.I32, "i64": wasmtest.I64}[n])
			}
			return out
		}
		m := entry(code(append(wasmtest.Cat(args...), wasmtest.Op(0x10, 0)...)))
		m.Imports = []wasmtest.Import{{Module: abi.Module, Name: name, Params: types(im.Params), Results: types(im.Results)}}
		return m
	}
	t.Fatalf("no import %s", name)
	return nil
}

// TestHostileModules: modules written by hand. Each is refused before it is
// compiled, or ends in its own error.
func TestHostileModules(t *testing.T) {
	t.Parallel()
	tree := wasmtest.CallTree(41) // the same shape as cases of an exponential call tree without loops
	tree.Funcs[0].Export = ""
	tree.Funcs = append(tree.Funcs, wasmtest.Func{Params: []byte{wasmtest.I32}, Results: []byte{wasmtest.I32}, Code: wasmtest.Op(0x10, 0), Export: abi.CallExport})
	recursion := entry(wasmtest.Cat(wasmtest.Op(0x20, 0), wasmtest.Op(0x10, 0)))
	divide := entry(wasmtest.Cat(wasmtest.I32Const(1), wasmtest.I32Const(0), wasmtest.Op(0x6d)))
	beyond := entry(wasmtest.Cat(wasmtest.I32Const(-4), wasmtest.Op(0x28, 2, 0)))
	spinInit := entry(wasmtest.I32Const(0), wasmtest.Func{Code: wasmtest.Spin(), Export: "_initialize"})
	trapInit := entry(wasmtest.I32Const(0), wasmtest.Func{Code: unreachable, Export: "_initialize"})
	spinStart := entry(wasmtest.I32Const(0), wasmtest.Func{Code: wasmtest.Spin()})
	start := uint32(1)
	spinStart.Start = &start
	grow := entry(wasmtest.Cat( // grows until it is told no, then traps
		[]byte{0x03, 0x40}, wasmtest.I32Const(16), wasmtest.Op(0x40, 0), wasmtest.I32Const(-1), wasmtest.Op(0x47), wasmtest.Op(0x0d, 0), wasmtest.Op(0x0b), unreachable))
	for name, tc := range map[string]struct {
		module   *wasmtest.Module
		manifest string
		check    func(t *testing.T, err error)
	}{
		"endless loop":          {entry(append(wasmtest.Spin(), unreachable...)), limited(100), func(t *testing.T, err error) { _ = cause[*plugin.Deadline](t, err) }},
		"endless loop, by fuel": {entry(append(wasmtest.Spin(), unreachable...)), hostileManifest, func(t *testing.T, err error) { _ = cause[*plugin.FuelExhausted](t, err) }},
		"loop-free call tree":   {tree, limited(100), func(t *testing.T, err error) { _ = cause[*plugin.Deadline](t, err) }},
		"deep recursion":        {recursion, hostileManifest, func(t *testing.T, err error) { assert.Contains(t, cause[*plugin.LimitExceeded](t, err).Which, "depth") }},
		"division by zero": {divide, hostileManifest, func(t *testing.T, err error) {
			assert.Contains(t, cause[*plugin.PluginTrap](t, err).Kind, "divide by zero")
		}},
		"read out of memory": {beyond, hostileManifest, func(t *testing.T, err error) {
			assert.Contains(t, cause[*plugin.PluginTrap](t, err).Kind, "out of bounds")
		}},
		"unreachable":          {entry(unreachable), hostileManifest, func(t *testing.T, err error) { _ = cause[*plugin.PluginPanic](t, err) }},
		"growing memory":       {grow, hostileManifest, func(t *testing.T, err error) { _ = cause[*plugin.PluginPanic](t, err) }},
		"spinning _initialize": {spinInit, hostileManifest, func(t *testing.T, err error) { _ = cause[*plugin.FuelExhausted](t, err) }},
		"spinning start":       {spinStart, hostileManifest, func(t *testing.T, err error) { _ = cause[*plugin.FuelExhausted](t, err) }},
		"trapping _initialize": {trapInit, hostileManifest, func(t *testing.T, err error) { _ = cause[*plugin.PluginPanic](t, err) }},
		"neither 0 nor 1": {entry(wasmtest.I32Const(7)), hostileManifest, func(t *testing.T, err error) {
			assert.Contains(t, cause[*plugin.ABIViolation](t, err).What, "neither 0 nor 1")
		}},
		"no reply": {entry(wasmtest.I32Const(0)), hostileManifest, func(t *testing.T, err error) {
			assert.Contains(t, cause[*plugin.ABIViolation](t, err).What, "malformed")
		}},
		"no error document": {entry(wasmtest.I32Const(1)), hostileManifest, func(t *testing.T, err error) {
			assert.Contains(t, cause[*plugin.ABIViolation](t, err).What, "malformed")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stageWith(t, packed(t, tc.module.Bytes(), tc.manifest), nil)
			err := s.run("list")
			require.Error(t, err)
			tc.check(t, err)
			again := s.run("list")
			require.Error(t, again)
			tc.check(t, again)
			s.corpus.Add("nothing", []byte("the scan needs something"))
			s.finish(err)
		})
	}
}

// TestHostilePointers: every import, with pointers and lengths near the end of
// the address space and just over the end of memory.
func TestHostilePointers(t *testing.T) {
	t.Parallel()
	for _, im := range abi.Imports() {
		if len(im.Params) == 0 {
			continue
		}
		for _, at := range []struct{ ptr, n int32 }{{-16, -1}, {0, -1}, {-1, 1}, {-1, -1}, {65535, 2}, {65536, 1}, {1 << 30, 1 << 30}, {-2147483648, -2147483648}} {
			t.Run(fmt.Sprintf("%s/%d+%d", im.Name, uint32(at.ptr), uint32(at.n)), func(t *testing.T) { //nolint:gosec // as the guest sees them
				t.Parallel()
				var args [][]byte
				for i, p := range im.Params {
					v := at.ptr
					if i%2 == 1 && im.Params[0] != "i64" || i%2 == 0 && im.Params[0] == "i64" || im.Name == "sleep_ms" {
						v = at.n
					}
					if im.Name == "checkpoint" || im.Name == "emit" || im.Name == "log" { // kind, pointer, length
						v = []int32{0, at.ptr, at.n}[i]
					}
					if p == "i64" {
						args = append(args, wasmtest.I64Const(1))
						continue
					}
					args = append(args, wasmtest.I32Const(v))
				}
				// A guest that survives spins or returns 1: the host must be well
				// either way.
				m := importing(t, im.Name, func(call []byte) []byte { return wasmtest.Cat(call, []byte{0x1a}, wasmtest.I32Const(1)) }, args...)
				s := stageWith(t, packed(t, m.Bytes(), limited(300)), nil)
				err := s.run("list")
				require.Error(t, err)
				var bug *plugin.HostBug
				require.NotErrorAs(t, err, &bug)
				for _, b := range []string{"out of range", "runtime error", "goroutine"} {
					assert.NotContains(t, fmt.Sprintf("%+v", err), b)
				}
			})
		}
	}
}

// TestHostileShapes: refused by inspection, in no time, before anything is
// compiled.
func TestHostileShapes(t *testing.T) {
	t.Parallel()
	withEntry := func(m *wasmtest.Module) *wasmtest.Module {
		m.Memory = []uint32{1}
		m.Funcs = append(m.Funcs, wasmtest.Func{Params: []byte{wasmtest.I32}, Results: []byte{wasmtest.I32}, Code: wasmtest.I32Const(0), Export: abi.CallExport})
		return m
	}
	limit := func(t *testing.T, err error) { _ = cause[*plugin.ModuleLimit](t, err) }
	data := &wasmtest.Module{}
	for range 140_000 {
		data.Data = append(data.Data, wasmtest.Data{Bytes: []byte{1}})
	}
	globals := &wasmtest.Module{}
	for range 2000 {
		globals.Globals = append(globals.Globals, wasmtest.Global{Type: wasmtest.I32, Init: wasmtest.I32Const(0)})
	}
	memory := withEntry(&wasmtest.Module{})
	memory.Memory = []uint32{10_000}
	command := withEntry(&wasmtest.Module{})
	command.Funcs = append(command.Funcs, wasmtest.Func{Export: "_start"})
	threads := entry(wasmtest.Cat([]byte{0xfe, 0x00}, wasmtest.U(nil, 2), wasmtest.U(nil, 0), wasmtest.I32Const(0)))
	for name, tc := range map[string]struct {
		module []byte
		check  func(t *testing.T, err error)
	}{
		"table":               {withEntry(wasmtest.TableBomb(100_000_000)).Bytes(), limit},
		"compile, nested":     {withEntry(wasmtest.CompileBomb(900, 2000)).Bytes(), limit},
		"compile, more":       {withEntry(&wasmtest.Module{Funcs: []wasmtest.Func{{Params: []byte{wasmtest.I32}, Locals: bytes.Repeat([]byte{wasmtest.I32}, 900), Code: wasmtest.FlatBlocks(900, 4000)}}}).Bytes(), limit},
		"locals":              {withEntry(&wasmtest.Module{Funcs: []wasmtest.Func{{Locals: bytes.Repeat([]byte{wasmtest.I64}, 50_000)}}}).Bytes(), limit},
		"data segments":       {withEntry(data).Bytes(), limit},
		"globals":             {withEntry(globals).Bytes(), limit},
		"memory":              {memory.Bytes(), limit},
		"imports":             {imports("env", "abort", "wasi_snapshot_preview1", "sock_send", "sbx_v2", "in_len").Bytes(), importsAll},
		"a command":           {command.Bytes(), func(t *testing.T, err error) { assert.Contains(t, fmt.Sprintf("%+v", err), "reactor") }},
		"threads":             {threads.Bytes(), func(t *testing.T, err error) { _ = cause[*plugin.ModuleError](t, err) }},
		"no entry":            {(&wasmtest.Module{Memory: []uint32{1}, Funcs: []wasmtest.Func{{Export: "x"}}}).Bytes(), func(t *testing.T, err error) { assert.Contains(t, fmt.Sprintf("%+v", err), abi.CallExport) }},
		"entry of other type": {(&wasmtest.Module{Memory: []uint32{1}, Funcs: []wasmtest.Func{{Export: abi.CallExport}}}).Bytes(), func(t *testing.T, err error) { assert.Contains(t, fmt.Sprintf("%+v", err), abi.CallExport) }},
		"no memory":           {(&wasmtest.Module{Funcs: entry(wasmtest.I32Const(0)).Funcs}).Bytes(), func(t *testing.T, err error) { assert.Contains(t, fmt.Sprintf("%+v", err), "memory") }},
		"cut off":             {entry(unreachable).Bytes()[:20], func(t *testing.T, err error) { _ = cause[*plugin.ModuleError](t, err) }},
		"not a module":        {[]byte("#!/bin/sh"), func(t *testing.T, err error) { _ = cause[*plugin.ModuleError](t, err) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			best := time.Hour
			for range 10 { // the machine may be busy
				begin := time.Now()
				_, err := plugin.Pack(tc.module, []byte(hostileManifest))
				best = min(best, time.Since(begin))
				require.Error(t, err)
				tc.check(t, err)
				assert.Equal(t, provider.InvalidArgument, provider.CodeOf(err))
				if best < 5*time.Second {
					break
				}
			}
			assert.Less(t, best, 5*time.Second, "refused without compiling")
		})
	}
}

func imports(pairs ...string) *wasmtest.Module {
	m := &wasmtest.Module{Memory: []uint32{1}}
	for i := 0; i < len(pairs); i += 2 {
		m.Imports = append(m.Imports, wasmtest.Import{Module: pairs[i], Name: pairs[i+1], Results: []byte{wasmtest.I32}})
	}
	m.Funcs = entry(wasmtest.I32Const(0)).Funcs
	return m
}

func importsAll(t *testing.T, err error) {
	t.Helper()
	e := cause[*plugin.ImportError](t, err)
	for _, name := range []string{"env", "abort", "sock_send", "sbx_v2"} {
		assert.Contains(t, e.Error(), name, "all are listed at once")
	}
}

// TestReferencesNeedNoPluginCode: what is refused is refused by the host alone. A
// module that traps whatever is called, _initialize included, proves it.
func TestReferencesNeedNoPluginCode(t *testing.T) {
	t.Parallel()
	trap := entry(unreachable, wasmtest.Func{Code: unreachable, Export: "_initialize"}).Bytes()
	for name, manifest := range map[string]string{
		"no protected transport":              strings.Replace(hostileManifest, `"protectedTransport":{"create":["create"],"exec":["start"]}`, `"protectedTransport":{}`, 1),
		"plugin-driven, not allowed":          drivenManifest(),
		"protected transport of another kind": strings.Replace(hostileManifest, `"protectedTransport":{"create":["create"],"exec":["start"]}`, `"protectedTransport":{"exec":["start"]}`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stage{t: t, v: newVendor(t)}
			s.p = s.load(s.config(packed(t, trap, manifest), nil))
			_, err := s.p.Create(s.ctx(), s.request(sessionA))
			require.ErrorIs(t, err, provider.ErrUnsupported)
			assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
			assert.Empty(t, s.v.sent())
			s.corpus.Add("nothing", []byte("the scan needs something"))
			s.finish(err)
			// The same module without references does run, and traps.
			q := createRequest(sessionA, nil)
			q.Labels[provider.LabelProtected] = "0"
			_, err = s.p.Create(s.ctx(), q)
			_ = cause[*plugin.PluginPanic](t, err)
		})
	}
}

package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/api"

	"github.com/sbxhost/sbxhost/plugin/internal/engine"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
)

// guest is the Go guest of testdata, built once per test run.
var guest []byte

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sbxhost-engine-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out := filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-trimpath", "-buildmode=c-shared", "-o", out, "./testdata/guest")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the guest: %v\n%s", err, b)
		os.Exit(1)
	}
	guest, err = os.ReadFile(out)
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// exchange is the state of a call: what the module reads and what it writes.
type exchange struct {
	in  []byte
	out []byte
}

func i32s(n int) []wasmfile.ValType {
	return bytes2types(bytes.Repeat([]byte{byte(wasmfile.I32)}, n))
}

func bytes2types(b []byte) []wasmfile.ValType {
	ts := make([]wasmfile.ValType, len(b))
	for i := range b {
		ts[i] = wasmfile.ValType(b[i])
	}
	return ts
}

// hostModules are preview 1, the three functions of the guest, and two that
// fail.
func hostModules() []engine.HostModule {
	fn := func(name string, params int, f engine.HostFunc) engine.Func {
		return engine.Func{Name: name, Type: wasmfile.FuncType{Params: i32s(params), Results: i32s(1)}, Fn: f}
	}
	return []engine.HostModule{engine.Preview1(), {Name: "sbx_v1", Funcs: []engine.Func{
		fn("in_len", 0, func(c *engine.Call, stack []uint64) error {
			stack[0] = uint64(len(c.State.(*exchange).in))
			return nil
		}),
		fn("in_read", 3, func(c *engine.Call, stack []uint64) error {
			in := c.State.(*exchange).in
			off, n := api.DecodeU32(stack[1]), api.DecodeU32(stack[2])
			if uint64(off)+uint64(n) > uint64(len(in)) {
				return &engine.ABIViolation{What: "in_read beyond the input"}
			}
			if !c.Memory().Write(api.DecodeU32(stack[0]), in[off:off+n]) {
				return &engine.ABIViolation{What: "in_read: pointer out of range"}
			}
			stack[0] = uint64(n)
			return nil
		}),
		fn("out_write", 2, func(c *engine.Call, stack []uint64) error {
			b, ok := c.Memory().Read(api.DecodeU32(stack[0]), api.DecodeU32(stack[1]))
			if !ok {
				return &engine.ABIViolation{What: "out_write: pointer out of range"}
			}
			if x, ok := c.State.(*exchange); ok {
				x.out = b
			}
			stack[0] = 0
			return nil
		}),
		fn("boom", 0, func(*engine.Call, []uint64) error { panic("host panic with canary-7f3a") }),
		fn("wait", 0, func(c *engine.Call, stack []uint64) error {
			if inside, ok := c.State.(*atomic.Int32); ok {
				inside.Add(1)
			}
			<-c.Context().Done()
			stack[0] = 0
			return nil
		}),
	}}}
}

func newEngine(t testing.TB, cfg engine.Config) *engine.Engine {
	t.Helper()
	if cfg.HostModules == nil {
		cfg.HostModules = hostModules()
	}
	cfg.CompileTimeout = long
	e, err := engine.New(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// long is a wall time that nothing here takes, however busy the machine: where a
// test is not about deadlines the clock must not decide.
const long = 10 * time.Minute

func load(t testing.TB, e *engine.Engine, wasm []byte, o engine.Options) *engine.Pool {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = long
	}
	if o.InitTimeout == 0 {
		o.InitTimeout = long
	}
	m, err := wasmfile.Parse(wasm)
	require.NoError(t, err)
	p, err := e.Load(context.Background(), m, o)
	require.NoError(t, err)
	return p
}

// shared is one engine with the guest loaded, for the tests that only call it:
// compiling it takes a second or more.
var shared = sync.OnceValues(func() (*engine.Pool, error) {
	// Under the race detector on a busy machine the compiler takes minutes.
	e, err := engine.New(context.Background(), engine.Config{HostModules: hostModules(), CompileTimeout: long})
	if err != nil {
		return nil, err
	}
	m, err := wasmfile.Parse(guest)
	if err != nil {
		return nil, err
	}
	return e.Load(context.Background(), m, engine.Options{
		Timeout: long, InitTimeout: long, Log: record,
		Warmup: []engine.Warmup{{Op: 0, State: &exchange{in: payload(1 << 10)}}},
	})
})

func goGuest(t testing.TB) *engine.Pool {
	t.Helper()
	p, err := shared()
	require.NoError(t, err)
	return p
}

var (
	logMu   sync.Mutex
	logSeen []engine.Line
)

func record(l engine.Line) {
	logMu.Lock()
	defer logMu.Unlock()
	logSeen = append(logSeen, l)
}

// payload is JSON of about n bytes that the guest's echo gives back unchanged.
func payload(n int) []byte {
	type item struct {
		ID        string            `json:"id"`
		Name      string            `json:"name"`
		Image     string            `json:"image"`
		State     string            `json:"state"`
		CreatedAt string            `json:"createdAt"`
		CPUs      int               `json:"cpus"`
		MemoryMiB int               `json:"memoryMiB"`
		Labels    map[string]string `json:"labels"`
		Note      string            `json:"note"`
	}
	var items []item
	var b []byte
	for i := 0; len(b) < n; i++ {
		items = append(items, item{
			ID: fmt.Sprintf("sbx-%06d", i), Name: "a sandbox", Image: "registry.example.com/team/python:3.12-slim", State: "running",
			CreatedAt: "2026-01-02T03:04:05Z", CPUs: 2, MemoryMiB: 512, Labels: map[string]string{"owner": "core"},
			Note: "made for the nightly run of the integration suite; removed after an hour without use",
		})
		var err error
		if b, err = json.Marshal(items); err != nil {
			panic(err)
		}
	}
	return b
}

func asAny(err error, targets ...any) bool {
	for _, target := range targets {
		if errors.As(err, target) {
			return true
		}
	}
	return false
}

package plugins_test

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"

	extism "github.com/extism/go-sdk"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/knqyf263/go-plugin/examples/helloworld/greeting"
	"github.com/tetratelabs/wazero"

	"github.com/sbxhost/sbxhost/bench/guests/items"
	"github.com/sbxhost/sbxhost/bench/hashiecho"
	"github.com/sbxhost/sbxhost/plugin/benchbridge"
)

// echoes is one host's echoes: JSON decoded and encoded by the same code for all,
// plain bytes, and a typed document by what the host's own kit decodes and encodes
// with; nil where there is no kit for JSON.
type echoes struct {
	name           string
	json, raw, kit func(in []byte) ([]byte, error)
	pid            int
}

// The operations of the guest "raw".
const (
	opJSON int32 = 0
	opRaw  int32 = 1
	opList int32 = 2
)

// ours is the engine as plugins run in it: metered, with a deadline, every call
// from the clean snapshot.
func ours(b *testing.B) echoes {
	p, err := benchbridge.NewPool(goWasm(b, "raw"),
		benchbridge.Warmup{Op: opJSON, In: items.Payload(1 << 10)}, benchbridge.Warmup{Op: opList, In: items.ListPayload(1 << 10)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if n := p.Discarded(); n > 0 {
			b.Logf("%d instances could not be put back", n)
		}
		_ = p.Close()
	})
	return echoes{
		name: "sbxhost",
		json: func(in []byte) ([]byte, error) { return p.Call(opJSON, in) },
		raw:  func(in []byte) ([]byte, error) { return p.Call(opRaw, in) },
		kit:  func(in []byte) ([]byte, error) { return p.Call(opList, in) },
	}
}

func newBare(b *testing.B, wasm []byte, o benchbridge.BareOptions) *benchbridge.Bare {
	bare, err := benchbridge.NewBare(wasm, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = bare.Close() })
	return bare
}

// reused is one instance on wazero alone, with all it remembers.
func reused(b *testing.B, name string, o benchbridge.BareOptions) echoes {
	in, err := newBare(b, goWasm(b, "raw"), o).Instance()
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	if o.CloseOnContextDone {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Hour)
		b.Cleanup(cancel)
	}
	return echoes{
		name: name,
		json: func(doc []byte) ([]byte, error) { return in.Call(ctx, opJSON, doc) },
		raw:  func(doc []byte) ([]byte, error) { return in.Call(ctx, opRaw, doc) },
		kit:  func(doc []byte) ([]byte, error) { return in.Call(ctx, opList, doc) },
	}
}

// viaExtism is extism/go-sdk, with its own kit in the guest. A timeout is its only
// bound on processor time.
func viaExtism(b *testing.B, name string, timeout time.Duration) echoes {
	ctx := context.Background()
	p, err := extism.NewPlugin(ctx, extism.Manifest{
		Wasm:    []extism.Wasm{extism.WasmData{Data: goWasm(b, "extism")}},
		Timeout: uint64(timeout.Milliseconds()),
	}, extism.PluginConfig{EnableWasi: true, ModuleConfig: wazero.NewModuleConfig().WithStartFunctions("_initialize")}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Close(ctx) })
	call := func(fn string) func([]byte) ([]byte, error) {
		return func(in []byte) ([]byte, error) {
			code, out, err := p.Call(fn, in)
			if err == nil && code != 0 {
				err = fmt.Errorf("exit code %d", code)
			}
			return out, err
		}
	}
	return echoes{name: name, json: call("json_echo"), raw: call("raw_echo"), kit: call("list_echo")}
}

// viaKnqyf is knqyf263/go-plugin, over its own example's generated service.
func viaKnqyf(b *testing.B) echoes {
	ctx := context.Background()
	p, err := greeting.NewGreeterPlugin(ctx)
	if err != nil {
		b.Fatal(err)
	}
	g, err := p.Load(ctx, goWasmFile(b, "knqyf263"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = g.Close(ctx) })
	call := func(in []byte) ([]byte, error) {
		r, err := g.Greet(ctx, &greeting.GreetRequest{Name: string(in)})
		return []byte(r.GetMessage()), err
	}
	return echoes{
		name: "knqyf263",
		json: call,
		// What does not start with a bracket comes back unchanged.
		raw: func(in []byte) ([]byte, error) {
			in[0] = ' '
			out, err := call(in)
			in[0] = '['
			if len(out) > 0 {
				out[0] = '['
			}
			return out, err
		},
	}
}

// viaHashicorp is hashicorp/go-plugin: a process of its own, over gRPC.
func viaHashicorp(b *testing.B) echoes {
	c := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  hashiecho.Handshake,
		Plugins:          map[string]plugin.Plugin{"echo": &hashiecho.Plugin{}},
		Cmd:              exec.Command(goProgram(b, "hashicorp")),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclog.New(&hclog.LoggerOptions{Output: io.Discard}),
	})
	b.Cleanup(c.Kill)
	conn, err := c.Client()
	if err != nil {
		b.Fatal(err)
	}
	raw, err := conn.Dispense("echo")
	if err != nil {
		b.Fatal(err)
	}
	client := raw.(*hashiecho.Client)
	ctx := context.Background()
	return echoes{
		name: "hashicorp",
		json: func(in []byte) ([]byte, error) { return client.Call(ctx, "JSON", in) },
		raw:  func(in []byte) ([]byte, error) { return client.Call(ctx, "Raw", in) },
		pid:  c.ReattachConfig().Pid,
	}
}

package plugins_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/bench/guests/items"
	"github.com/sbxhost/sbxhost/bench/measure"
	"github.com/sbxhost/sbxhost/plugin/benchbridge"
)

var sizes = []struct {
	name string
	n    int
}{{"1KiB", 1 << 10}, {"64KiB", 64 << 10}}

// same makes a contender of an echo, and checks once that it is one.
func same(b *testing.B, name string, pid int, in []byte, echo func([]byte) ([]byte, error)) measure.Contender {
	b.Helper()
	out, err := echo(in)
	if err == nil && !bytes.Equal(out, in) {
		err = errors.New("what came back is not what was sent")
	}
	if err != nil {
		b.Fatalf("%s: %v", name, err)
	}
	return measure.Contender{Name: name, PID: pid, Call: func() error {
		_, err := echo(in)
		return err
	}}
}

// BenchmarkEcho runs the same echo through every host. The first is ours, as
// plugins run: metered, with a deadline, each call from the clean snapshot; the
// others keep their instance between calls.
func BenchmarkEcho(b *testing.B) {
	all := []echoes{
		ours(b),
		reused(b, "sbxhost-metered-reused", benchbridge.BareOptions{Metered: true}),
		reused(b, "wazero", benchbridge.BareOptions{}),
		reused(b, "wazero-closeOnContextDone", benchbridge.BareOptions{CloseOnContextDone: true}),
		viaExtism(b, "extism", 0),
		viaExtism(b, "extism-deadline", time.Minute),
		viaKnqyf(b),
		viaHashicorp(b),
		// No plugin at all: the same work in the host, as a measure of the machine.
		{name: "native", json: items.Echo, kit: items.EchoList, raw: func(in []byte) ([]byte, error) { return bytes.Clone(in), nil }},
	}
	for _, s := range sizes {
		for _, work := range []struct {
			name string
			in   []byte
			echo func(echoes) func([]byte) ([]byte, error)
		}{
			{"json", items.Payload(s.n), func(e echoes) func([]byte) ([]byte, error) { return e.json }},
			{"raw", items.Payload(s.n), func(e echoes) func([]byte) ([]byte, error) { return e.raw }},
			{"kit", items.ListPayload(s.n), func(e echoes) func([]byte) ([]byte, error) { return e.kit }},
		} {
			b.Run(work.name+"/"+s.name, func(b *testing.B) {
				var cs []measure.Contender
				for _, e := range all {
					if echo := work.echo(e); echo != nil {
						cs = append(cs, same(b, e.name, e.pid, work.in, echo))
					}
				}
				measure.Report(b, cs)
			})
		}
	}
}

// BenchmarkMetering is the same instance plain and metered, in Go and in Rust.
// cpu-x of metered is the price of metering.
func BenchmarkMetering(b *testing.B) {
	for _, lang := range []struct {
		name string
		wasm func(*testing.B) []byte
		op   int32
		wrap func([]byte) []byte
	}{
		{"go", func(b *testing.B) []byte { return goWasm(b, "raw") }, opJSON, func(p []byte) []byte { return p }},
		{"rust", rustWasm, int32(abi.OpCreate), func(p []byte) []byte {
			return append(append([]byte(`{"config":`), p...), '}')
		}},
	} {
		b.Run(lang.name, func(b *testing.B) {
			wasm := lang.wasm(b)
			var ins []*benchbridge.Instance
			kinds := []string{"plain", "metered", "closeOnContextDone"}
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			for _, kind := range kinds {
				in, err := newBare(b, wasm, benchbridge.BareOptions{Metered: kind == "metered", CloseOnContextDone: kind == "closeOnContextDone"}).Instance()
				if err != nil {
					b.Fatal(err)
				}
				ins = append(ins, in)
			}
			for _, s := range sizes {
				doc := lang.wrap(items.Payload(s.n))
				b.Run(s.name, func(b *testing.B) {
					var cs []measure.Contender
					for i, in := range ins {
						cs = append(cs, same(b, kinds[i], 0, doc, func(doc []byte) ([]byte, error) { return in.Call(ctx, lang.op, doc) }))
					}
					measure.Report(b, cs)
				})
			}
		})
	}
}

// BenchmarkIsolation is what a clean state per call costs: the first keeps its
// state, the second starts from the snapshot, the third is made for the call.
func BenchmarkIsolation(b *testing.B) {
	wasm := goWasm(b, "raw")
	plain := newBare(b, goWasm(b, "raw,noroom"), benchbridge.BareOptions{})
	for _, s := range sizes {
		b.Run(s.name, func(b *testing.B) {
			in := items.Payload(s.n)
			dirty, err := newBare(b, wasm, benchbridge.BareOptions{Metered: true}).Instance()
			if err != nil {
				b.Fatal(err)
			}
			measure.Report(b, []measure.Contender{
				same(b, "dirty", 0, in, func(in []byte) ([]byte, error) { return dirty.Call(b.Context(), opJSON, in) }),
				same(b, "snapshot", 0, in, ours(b).json),
				same(b, "fresh", 0, in, func(in []byte) ([]byte, error) {
					fresh, err := plain.Instance()
					if err != nil {
						return nil, err
					}
					out, err := fresh.Call(b.Context(), opJSON, in)
					return out, errors.Join(err, fresh.Close())
				}),
			})
		})
	}
}

// BenchmarkCreate is a create request of 1 KiB and a reply of that size through
// the Go kit, metered, in a reused instance (the work of kit and codec) and from
// the snapshot (what a plugin's call costs in all).
func BenchmarkCreate(b *testing.B) {
	c := newCreator(b)
	in, err := newBare(b, c.wasm, benchbridge.BareOptions{Metered: true}).Instance()
	if err != nil {
		b.Fatal(err)
	}
	measure.Report(b, []measure.Contender{
		c.contender("reused", func() ([]byte, error) { return in.Call(b.Context(), int32(abi.OpCreate), c.request) }),
		c.contender("snapshot", c.fromSnapshot(b)),
	})
}

// BenchmarkCreateFresh is the same call from the snapshot and in an ordinary
// instance made for it. On its own: making instances is a load that those who are
// measured beside it would feel.
func BenchmarkCreateFresh(b *testing.B) {
	c := newCreator(b)
	plain := newBare(b, c.wasm, benchbridge.BareOptions{})
	measure.Report(b, []measure.Contender{
		c.contender("snapshot", c.fromSnapshot(b)),
		c.contender("fresh", func() ([]byte, error) {
			fresh, err := plain.Instance()
			if err != nil {
				return nil, err
			}
			out, err := fresh.Call(b.Context(), int32(abi.OpCreate), c.request)
			return out, errors.Join(err, fresh.Close())
		}),
	})
}

// creator is the guest "create" and a request for it.
type creator struct {
	wasm, request []byte
	refLen        int
}

func newCreator(b *testing.B) *creator {
	config := append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, 800)...), '"')
	req := abi.CreateRequest{
		Session: "s-0123456789abcdef", Config: config, Name: "sbxhost-s-0123456789abcdef", Image: "registry.example.com/team/python:3.12-slim",
		Network: "none", Ports: []int64{8080}, TTLSeconds: 3600, Env: abi.EnvHandle{Handle: "env_0123456789abcdef", Names: []string{"API_TOKEN", "DATABASE_URL"}},
	}
	return &creator{wasm: goWasm(b, "create"), request: req.AppendJSON(nil), refLen: len(config)}
}

func (c *creator) fromSnapshot(b *testing.B) func() ([]byte, error) {
	pool, err := benchbridge.NewPool(c.wasm, benchbridge.Warmup{Op: int32(abi.OpCreate), In: c.request})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = pool.Close() })
	return func() ([]byte, error) { return pool.Call(int32(abi.OpCreate), c.request) }
}

// contender decodes the reply as the host does.
func (c *creator) contender(name string, call func() ([]byte, error)) measure.Contender {
	return measure.Contender{Name: name, Call: func() error {
		out, err := call()
		if err != nil {
			return err
		}
		var reply abi.CreateReply
		if err := reply.DecodeJSON(out, true); err != nil {
			return err
		}
		if len(reply.Ref) != c.refLen {
			return errors.New("the reply is not the request's")
		}
		return nil
	}}
}

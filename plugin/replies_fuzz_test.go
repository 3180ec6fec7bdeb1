package plugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmtest"
	"github.com/sbxhost/sbxhost/provider"
)

// answering is a module that has one document for everything: it checkpoints it
// when told to, writes it as its reply or its error document, and returns ret.
func answering(doc []byte, checkpoint int32, write string, ret int32) []byte {
	n := int32(len(doc)) //nolint:gosec // bounded by the caller
	m := &wasmtest.Module{
		Memory: []uint32{uint32(len(doc)/65536) + 1},
		Data:   []wasmtest.Data{{Bytes: doc}},
		Imports: []wasmtest.Import{
			{Module: abi.Module, Name: write, Params: []byte{wasmtest.I32, wasmtest.I32}, Results: []byte{wasmtest.I32}},
			{Module: abi.Module, Name: "checkpoint", Params: []byte{wasmtest.I32, wasmtest.I32, wasmtest.I32}, Results: []byte{wasmtest.I32}},
		},
	}
	code := wasmtest.Cat(wasmtest.I32Const(0), wasmtest.I32Const(n), wasmtest.Op(0x10, 0), []byte{0x1a}, wasmtest.I32Const(ret))
	if checkpoint >= 0 {
		code = wasmtest.Cat(wasmtest.I32Const(checkpoint), wasmtest.I32Const(0), wasmtest.I32Const(n), wasmtest.Op(0x10, 1), []byte{0x1a}, code)
	}
	m.Funcs = []wasmtest.Func{{Params: []byte{wasmtest.I32}, Results: []byte{wasmtest.I32}, Code: code, Export: abi.CallExport}}
	return m.Bytes()
}

// everything declares every operation that a plugin without a network can.
const everything = `{"abi":"sbx_v1","name":"answers","version":"1","kind":"plugin-driven",
 "operations":["create","status","exec","input","signal","read","write","list_dir","stat","remove","mkdir","pause","resume","list","destroy"],
 "exec":{"stream":true,"stdin":"live","tty":false,"stderr":"separate","kill":"tree","partialOnTimeout":true},
 "limits":{"memoryMiB":4,"wallMs":2000}}`

// FuzzGuestReplies: whatever a guest answers, to any operation and as reply, error
// document or checkpoint, ends in a result or a typed error that is fit to be
// shown; never in a panic, a fault of the host, or a state that does not exist.
func FuzzGuestReplies(f *testing.F) {
	for _, doc := range []string{
		`{"state":"running"}`, `{"state":"pending","pollMs":-1,"ref":{"a":[1,null]}}`, `{"state":"gone","ref":"x"}`, `{"status":"exited","exitCode":256}`,
		`{"status":"signaled","signal":"KILL"}`, `{"items":[{"sandbox":"x","state":"running","labels":{"sbxhost.owner":"o1"},"createdAt":9223372036854775807}]}`,
		`{"entries":[{"name":"../x","dir":true,"size":-1},{"name":""}]}`, `{"entry":{"name":"a/b","mode":4294967295,"modified":-9223372036854775808}}`, `{"size":-5,"mode":-1}`,
		`{"code":"NotFound","message":"gone\u001b[2J\u202e"}`, `{"code":"NotGranted","message":""}`, `{}`, `[]`, `{`, "", "\xff", `{"state":"running","state":"gone"}`,
	} {
		for _, how := range []uint8{0, 1, 5} {
			f.Add([]byte(doc), how)
		}
	}
	rt, err := plugin.NewRuntime(context.Background(), plugin.RuntimeConfig{})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, rt.Close()) })
	f.Fuzz(func(t *testing.T, doc []byte, how uint8) {
		if len(doc) > 1<<17 {
			return
		}
		write, ret := "out_write", int32(0)
		if how&1 != 0 {
			write, ret = "err_write", 1
		}
		if how&8 != 0 {
			ret = 1 - ret
		}
		checkpoint := int32(how>>1&3) - 1
		module, err := plugin.Pack(answering(doc, checkpoint, write, ret), []byte(everything))
		require.NoError(t, err)
		lock := &plugin.Lock{}
		_, err = lock.Approve(module)
		require.NoError(t, err)
		p, err := plugin.Load(t.Context(), rt, plugin.Config{Module: module, Lock: lock})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close()) }()
		judge := func(what string, err error) {
			var (
				typed *provider.Error
				bug   *plugin.HostBug
			)
			switch {
			case err == nil || errors.Is(err, io.EOF):
			case errors.As(err, &bug):
				t.Fatalf("%s: the host failed: %v", what, err)
			case !errors.As(err, &typed):
				t.Fatalf("%s: an error without a code: %v", what, err)
			default:
				if strings.IndexFunc(typed.Message, unicode.IsControl) >= 0 || len(typed.Message) > 2048 {
					t.Fatalf("%s: a message that is not fit to be shown: %q", what, typed.Message)
				}
			}
		}
		// A create that stays pending would be polled until its context ends.
		ctx, cancel := context.WithTimeout(t.Context(), 50e6)
		defer cancel()
		sb, err := p.Create(ctx, createRequest("0123456789abcdef0123456789abcdef", nil))
		judge("create", err)
		if err == nil && !json.Valid(doc) {
			t.Fatalf("create took %q for a reply", doc)
		}
		rs, err := p.List(t.Context(), provider.Query{Owner: "o1"})
		judge("list", err)
		for _, r := range rs {
			if r.Labels[provider.LabelOwner] != "o1" {
				t.Fatal("a list of others' sandboxes")
			}
		}
		if sb == nil {
			data, err := json.Marshal(map[string]any{"session": "0123456789abcdef0123456789abcdef", "root": "/workspace"})
			require.NoError(t, err)
			sb, err = p.Open(t.Context(), provider.Ref{ID: provider.NamePrefix + "0123456789abcdef0123456789abcdef", Data: data})
			judge("open", err)
		}
		if sb == nil {
			return
		}
		st, err := sb.Status(t.Context())
		judge("status", err)
		switch st.State {
		case "", provider.StatePending, provider.StateRunning, provider.StatePaused, provider.StateStopped, provider.StateGone, provider.StateUnknown:
		default:
			t.Fatalf("the state %q", st.State)
		}
		proc, err := sb.Exec(t.Context(), provider.ExecRequest{ID: "e", Args: []string{"x"}, Stdin: provider.StdinNone, Stdout: io.Discard, Stderr: io.Discard})
		judge("exec", err)
		if err == nil {
			exit, err := proc.Wait(t.Context())
			judge("wait", err)
			if exit.Kind == provider.ExitExited && (exit.Code < 0 || exit.Code > 255) {
				t.Fatalf("exit code %d", exit.Code)
			}
		}
		fs := sb.Files()
		_, err = fs.Stat(t.Context(), "f")
		judge("stat", err)
		es, err := fs.List(t.Context(), "")
		judge("list_dir", err)
		for _, e := range es {
			if e.Name == "" || strings.ContainsAny(e.Name, "/\x00") || e.Name == ".." {
				t.Fatalf("an entry named %q", e.Name)
			}
		}
		judge("write", fs.Write(t.Context(), "f", strings.NewReader("x"), provider.WriteOptions{}))
		judge("mkdir", fs.Mkdir(t.Context(), "d", 0o755))
		judge("remove", fs.Remove(t.Context(), "f", false))
		if r, _, err := fs.Open(t.Context(), "f"); err == nil {
			_, err = io.Copy(io.Discard, r)
			judge("read", err)
			judge("close", r.Close())
		} else {
			judge("read", err)
		}
		if ps, ok := sb.(provider.Pauser); ok {
			judge("pause", ps.Pause(t.Context()))
			judge("resume", ps.Resume(t.Context()))
		}
		ctx, cancel = context.WithTimeout(t.Context(), 50e6)
		defer cancel()
		judge("destroy", p.Destroy(ctx, sb.Ref()))
	})
}

package wire_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"testing/iotest"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFramesRoundTrip(t *testing.T) {
	t.Parallel()
	var b []byte
	b = wire.Append(b, wire.Args, wire.AppendStrings(nil, "sh", "", "a b"))
	b = wire.AppendSize(b, wire.Terminal, 132, 44)
	b = wire.Append(b, wire.Go, nil)
	b = wire.Append(b, wire.Input, bytes.Repeat([]byte{7}, wire.MaxChunk))
	b = wire.AppendUint32(b, wire.Kill, 2000)

	r := wire.NewReader(iotest.OneByteReader(bytes.NewReader(b)), wire.FromHost)
	f, err := r.Next()
	require.NoError(t, err)
	assert.Equal(t, wire.Args, f.Type)
	list, ok := wire.Strings(f.Payload)
	require.True(t, ok)
	assert.Equal(t, [][]byte{[]byte("sh"), {}, []byte("a b")}, list)
	f, err = r.Next()
	require.NoError(t, err)
	cols, rows := wire.Size(f.Payload)
	assert.Equal(t, [2]uint16{132, 44}, [2]uint16{cols, rows})
	f, err = r.Next()
	require.NoError(t, err)
	assert.Equal(t, wire.Go, f.Type)
	f, err = r.Next()
	require.NoError(t, err)
	assert.Len(t, f.Payload, wire.MaxChunk)
	f, err = r.Next()
	require.NoError(t, err)
	assert.EqualValues(t, 2000, wire.Uint32(f.Payload))
	_, err = r.Next()
	assert.Equal(t, io.EOF, err)
}

func TestDecoderRefuses(t *testing.T) {
	t.Parallel()
	header := func(typ wire.Type, n uint32) []byte {
		return binary.BigEndian.AppendUint32([]byte{byte(typ)}, n)
	}
	for name, c := range map[string]struct {
		from wire.Direction
		in   []byte
	}{
		"unknown type":                  {wire.FromHost, header('?', 0)},
		"zero type":                     {wire.FromHost, []byte{0}},
		"type of the other direction":   {wire.FromHost, header(wire.Exit, 7)},
		"host type from the supervisor": {wire.FromSupervisor, header(wire.Args, 0)},
		"too long by one":               {wire.FromHost, header(wire.Input, wire.MaxChunk+1)},
		"as long as can be said":        {wire.FromHost, header(wire.Env, 1<<32-1)},
		"empty input":                   {wire.FromHost, header(wire.Input, 0)},
		"short size":                    {wire.FromHost, header(wire.Terminal, 3)},
		"go with payload":               {wire.FromHost, header(wire.Go, 1)},
		"short exit":                    {wire.FromSupervisor, header(wire.Exit, 6)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := wire.Decoder{From: c.from}
			d.Feed(c.in)
			_, ok, err := d.Next()
			assert.False(t, ok)
			require.ErrorIs(t, err, wire.ErrProtocol)
			d.Feed(wire.Append(nil, wire.Go, nil))
			_, ok, err = d.Next()
			assert.False(t, ok, "nothing after an error")
			assert.ErrorIs(t, err, wire.ErrProtocol)
		})
	}
}

func TestReaderTellsATornFrame(t *testing.T) {
	t.Parallel()
	b := wire.AppendUint32(nil, wire.Ready, 7)
	_, err := wire.NewReader(bytes.NewReader(b[:6]), wire.FromSupervisor).Next()
	assert.Equal(t, io.ErrUnexpectedEOF, err)
}

func TestStatusRoundTrip(t *testing.T) {
	t.Parallel()
	for _, s := range []wire.ExitStatus{{}, {Code: 255}, {Signal: 9, ByUs: true}, {Code: 3, Left: 1 << 20}} {
		got, err := wire.ParseExit(wire.AppendExit(nil, s)[wire.HeaderSize:])
		require.NoError(t, err)
		assert.Equal(t, s, got)
	}
	_, err := wire.ParseExit([]byte{9, 1, 0, 0, 0, 0, 0})
	assert.ErrorIs(t, err, wire.ErrProtocol, "a signal and a code")
	f := wire.Failure{Stage: wire.StageExec, Errno: 2, Detail: "x"}
	got, err := wire.ParseFailure(wire.AppendFailure(nil, f)[wire.HeaderSize:])
	require.NoError(t, err)
	assert.Equal(t, f, got)
	_, err = wire.ParseFailure([]byte{99, 0, 0, 0, 0})
	assert.ErrorIs(t, err, wire.ErrProtocol)
}

func config() wire.Config {
	return wire.Config{
		Jail: true, Loopback: true, Hostname: "h", TagExecs: true, IDs: wire.IDSet, UID: 1, GID: 2, HostUID: 3, HostGID: 4,
		Mounts: []wire.Mount{{Source: "/a", Target: "/b", ReadOnly: true, NoDev: true, Optional: true, Passed: true}},
		Links:  []wire.Link{{Path: "/l", Target: "t"}}, Files: []wire.File{{Path: "/f", Content: "c"}},
		Tmpfs: []wire.Tmpfs{{Path: "/t", Options: "o"}}, Masked: []string{"/proc/x"}, Root: "/r",
		Landlock: wire.Landlock{FS: 1, Net: 2, Scoped: 3, Rules: []wire.Rule{{Path: "/", Access: 5}}},
		Rlimits:  []wire.Rlimit{{Resource: 1, Soft: 2, Hard: 3}}, PIDs: 9, Seccomp: make([]byte, 16), Unconfined: true,
		User: "app:staff", Keep: 1 << 40,
	}
}

func TestConfigRoundTrip(t *testing.T) {
	t.Parallel()
	want := config()
	b, err := want.MarshalBinary()
	require.NoError(t, err)
	var got wire.Config
	require.NoError(t, got.UnmarshalBinary(b))
	assert.Equal(t, want, got)
	for i := range b {
		assert.ErrorIs(t, new(wire.Config).UnmarshalBinary(b[:i]), wire.ErrProtocol, "cut at %d", i)
	}
	assert.ErrorIs(t, new(wire.Config).UnmarshalBinary(append(b, 0)), wire.ErrProtocol)
}

// FuzzDecoder: whatever comes and however it is split, the frames are the same,
// within their limits, and re-encode to what was read.
func FuzzDecoder(f *testing.F) {
	f.Add(wire.AppendUint32(wire.Append(nil, wire.Args, []byte("a\x00")), wire.Kill, 1), byte(wire.FromHost), 3)
	f.Add(wire.AppendExit(wire.Append(nil, wire.Stdout, []byte("hello")), wire.ExitStatus{Code: 7}), byte(wire.FromSupervisor), 1)
	f.Add([]byte{'I', 0xff, 0xff, 0xff, 0xff, 1}, byte(wire.FromHost), 2)
	f.Add(wire.AppendInfo(nil, wire.FileEntry, wire.Info{Name: "a"}), byte(wire.FilesFromHost), 2)
	f.Add(wire.AppendFault(nil, wire.FileFault{Kind: wire.FaultErrno, Errno: 2}), byte(wire.FilesFromSupervisor), 2)
	f.Fuzz(func(t *testing.T, in []byte, from byte, step int) {
		direction := wire.Direction(from % 4)
		whole := wire.Decoder{From: direction}
		whole.Feed(in)
		var encoded []byte
		var werr error
		for {
			fr, ok, err := whole.Next()
			if werr = err; err != nil || !ok {
				break
			}
			encoded = wire.Append(encoded, fr.Type, fr.Payload)
		}
		if !bytes.HasPrefix(in, encoded) {
			t.Fatalf("re-encoding differs")
		}
		step = max(1, step%64)
		parts := wire.Decoder{From: direction}
		var again []byte
		var perr error
		for rest := in; len(rest) > 0 && perr == nil; {
			n := min(step, len(rest))
			parts.Feed(rest[:n])
			rest = rest[n:]
			for {
				fr, ok, err := parts.Next()
				if perr = err; err != nil || !ok {
					break
				}
				again = wire.Append(again, fr.Type, fr.Payload)
			}
		}
		if !bytes.Equal(encoded, again) || (werr == nil) != (perr == nil) {
			t.Fatalf("split in %d: other frames", step)
		}
	})
}

// FuzzConfig: no record makes the reader panic or allocate without bound, and what
// it accepts it writes back the same.
func FuzzConfig(f *testing.F) {
	c := config()
	b, _ := c.MarshalBinary()
	f.Add(b)
	f.Add([]byte{1, 0, 0, 0, 0, 9})
	f.Fuzz(func(t *testing.T, in []byte) {
		var c wire.Config
		if c.UnmarshalBinary(in) != nil {
			return
		}
		out, err := c.MarshalBinary()
		if err != nil || !bytes.Equal(in, out) {
			t.Fatalf("not the same: %x %x", in, out)
		}
	})
}

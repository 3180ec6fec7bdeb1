package wire_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const nonce = "0123456789abcdef0123456789abcdef"

func TestControlLine(t *testing.T) {
	t.Parallel()
	b := wire.AppendLine(nil, nonce, wire.VerbKeep, "one", "two")
	assert.Equal(t, "sbx1 "+nonce+" keep one two d0114b24\n", string(b), "the wire format")
	l, ok := wire.ParseLine(b[:len(b)-1])
	require.True(t, ok)
	assert.Equal(t, nonce, string(l.Nonce))
	assert.Equal(t, "keep", string(l.Verb))
	require.Len(t, l.Args, 2)
	assert.Equal(t, "two", string(l.Args[1]))
	line := b[:len(b)-1]
	for i := range line {
		_, ok := wire.ParseLine(line[:i])
		assert.False(t, ok, "cut at %d", i)
		for _, c := range []byte{0, ' ', 'x', line[i] ^ 1} {
			changed := bytes.Clone(line)
			if changed[i] == c {
				continue
			}
			changed[i] = c
			_, ok = wire.ParseLine(changed)
			assert.False(t, ok, "%q at %d", c, i)
		}
	}
	_, ok = wire.ParseLine(append(bytes.Clone(line), line...))
	assert.False(t, ok, "two in one")
	for _, bad := range []string{"", "sbx1", "sbx2 " + nonce + " ping 00000000"} {
		_, ok = wire.ParseLine([]byte(bad))
		assert.False(t, ok)
	}
	for _, n := range []string{strings.ToUpper(nonce), nonce[1:], nonce + "0", "g" + nonce[1:]} {
		b := wire.AppendLine(nil, n, wire.VerbPing)
		_, ok = wire.ParseLine(b[:len(b)-1])
		assert.False(t, ok, "nonce %q", n)
	}
	for _, a := range []string{"", "a  b", "a\tb", "\x7f"} {
		b := wire.AppendLine(nil, nonce, wire.VerbPing, a)
		_, ok = wire.ParseLine(b[:len(b)-1])
		assert.Equal(t, false, ok, "argument %q", a)
	}
}

func TestSplitterResynchronises(t *testing.T) {
	t.Parallel()
	good := string(wire.AppendLine(nil, nonce, wire.VerbPing))
	for name, in := range map[string]string{
		"noise":       "\x00\xff\n" + good,
		"cut":         good[:20] + "\n" + good,
		"merged":      good[:20] + good + good,
		"too long":    strings.Repeat("x", wire.MaxLine+5) + "\n" + good,
		"twice as so": strings.Repeat("x", 2*wire.MaxLine+5) + "\n" + good,
	} {
		for _, step := range []int{1 << 16, 4093} {
			var s wire.Splitter
			n := 0
			for rest := []byte(in); len(rest) > 0; {
				k := min(step, len(rest))
				s.Feed(rest[:k])
				rest = rest[k:]
				for {
					if _, ok := s.Next(); !ok {
						break
					}
					n++
				}
				s.Rest()
			}
			assert.Equal(t, 1, n, name)
		}
	}
}

func TestValidID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{"a": true, "0a-b_c.d": true, strings.Repeat("a", wire.MaxID): true,
		"": false, ".": false, "-a": false, "a b": false, "a/b": false, "a\x00": false, strings.Repeat("a", wire.MaxID+1): false} {
		assert.Equal(t, want, wire.ValidID(id), "%q", id)
	}
}

func TestImageStatus(t *testing.T) {
	t.Parallel()
	for _, s := range []wire.ImageStatus{{}, {State: wire.ImageEnded, Code: 255}, {State: wire.ImageEnded, Signal: 9}} {
		got, ok := wire.UnpackImage(s.Pack())
		require.True(t, ok)
		assert.Equal(t, s, got)
	}
	_, ok := wire.UnpackImage(1 << 24)
	assert.False(t, ok)
	_, ok = wire.UnpackImage(99 << 16)
	assert.False(t, ok)
	for in, want := range map[string]int{"0": 0, "123456789": 123456789} {
		n, ok := wire.Number([]byte(in))
		require.True(t, ok)
		assert.Equal(t, want, n)
	}
	for _, in := range []string{"", "-1", "1x", "1234567890"} {
		_, ok := wire.Number([]byte(in))
		assert.False(t, ok, in)
	}
	b, ok := wire.DecodeBlob([]byte(wire.EncodeBlob([]byte("a\x00b"))))
	require.True(t, ok)
	assert.Equal(t, "a\x00b", string(b))
	_, ok = wire.DecodeBlob([]byte("a"))
	assert.False(t, ok)
}

func TestFileRecords(t *testing.T) {
	t.Parallel()
	want := wire.Info{Mode: 0o100644, Size: 1 << 40, Sec: -5, Nsec: 7, Final: true, Name: "a/b", Target: "t"}
	b := wire.AppendInfo(nil, wire.FileInfo, want)[wire.HeaderSize:]
	got, err := wire.ParseInfo(b)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	for i := range b {
		_, err := wire.ParseInfo(b[:i])
		assert.ErrorIs(t, err, wire.ErrProtocol)
	}
	for _, bad := range []wire.Info{{Size: 1 << 63}, {Nsec: 1e9}, {Name: "a\x00b"}, {Target: "\x00"}, {Name: strings.Repeat("x", wire.MaxPath+1)}} {
		_, err := wire.ParseInfo(wire.AppendInfo(nil, wire.FileInfo, bad)[wire.HeaderSize:])
		assert.ErrorIs(t, err, wire.ErrProtocol)
	}
	f := wire.FileFault{Kind: wire.FaultErrno, Errno: 13, Path: "p"}
	gf, err := wire.ParseFault(wire.AppendFault(nil, f)[wire.HeaderSize:])
	require.NoError(t, err)
	assert.Equal(t, f, gf)
	for _, bad := range [][]byte{nil, {1, 0, 0, 0}, {0, 0, 0, 0, 0}, {200, 0, 0, 0, 0}} {
		_, err := wire.ParseFault(bad)
		assert.ErrorIs(t, err, wire.ErrProtocol)
	}
}

// FuzzSplitter: however a stream is cut, the same lines come out; each re-encodes to
// a line that was in the stream.
func FuzzSplitter(f *testing.F) {
	f.Add(wire.AppendLine(wire.AppendLine(nil, nonce, wire.VerbPing), nonce, wire.VerbKill, "id"), 3)
	f.Add([]byte("sbx1 \n\n\x00"), 1)
	f.Fuzz(func(t *testing.T, in []byte, step int) {
		lines := func(step int) []byte {
			var s wire.Splitter
			var out []byte
			for rest := in; len(rest) > 0; {
				n := min(step, len(rest))
				s.Feed(rest[:n])
				rest = rest[n:]
				for {
					l, ok := s.Next()
					if !ok {
						break
					}
					var args []string
					for _, a := range l.Args {
						args = append(args, string(a))
					}
					one := wire.AppendLine(nil, string(l.Nonce), string(l.Verb), args...)
					if !bytes.Contains(in, one) {
						t.Fatalf("%q was not in the stream", one)
					}
					out = append(out, one...)
				}
				s.Rest()
			}
			return out
		}
		if !bytes.Equal(lines(len(in)+1), lines(max(1, step%64))) {
			t.Fatal("other lines when cut")
		}
	})
}

// FuzzInfo: what is accepted re-encodes to itself.
func FuzzInfo(f *testing.F) {
	f.Add(wire.AppendInfo(nil, wire.FileInfo, wire.Info{Name: "a", Target: "b", Final: true})[wire.HeaderSize:])
	f.Add(wire.AppendFault(nil, wire.FileFault{Kind: wire.FaultDepth, Path: "x"})[wire.HeaderSize:])
	f.Fuzz(func(t *testing.T, in []byte) {
		if i, err := wire.ParseInfo(in); err == nil && !bytes.Equal(in, wire.AppendInfo(nil, wire.FileInfo, i)[wire.HeaderSize:]) {
			t.Fatal("another record")
		}
		if f, err := wire.ParseFault(in); err == nil && len(in) <= wire.MaxPath && !bytes.Equal(in, wire.AppendFault(nil, f)[wire.HeaderSize:]) {
			t.Fatal("another fault")
		}
	})
}

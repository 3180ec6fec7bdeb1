package docker_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"testing/iotest"

	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/docker"
)

func TestDemultiplex(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	out, errs := stdcopy.NewStdWriter(&b, stdcopy.Stdout), stdcopy.NewStdWriter(&b, stdcopy.Stderr)
	for _, w := range []struct {
		w io.Writer
		s string
	}{{out, "one "}, {errs, "noise"}, {out, ""}, {out, "two"}, {errs, "end"}} {
		_, err := io.WriteString(w.w, w.s)
		require.NoError(t, err)
	}
	for name, r := range map[string]io.Reader{"whole": bytes.NewReader(b.Bytes()), "by bytes": iotest.OneByteReader(bytes.NewReader(b.Bytes()))} {
		s := docker.Demultiplex(r)
		got, err := io.ReadAll(s)
		require.NoError(t, err)
		assert.Equal(t, "one two", string(got), name)
		notes, _ := docker.Explanation(s)
		assert.Equal(t, "noiseend", notes)
	}
	_, err := io.ReadAll(docker.Demultiplex(bytes.NewReader([]byte{9, 0, 0, 0, 0, 0, 0, 1, 'x'})))
	assert.Error(t, err)
	_, err = io.ReadAll(docker.Demultiplex(bytes.NewReader([]byte{1, 0, 0, 0, 0, 0, 0, 9, 'x'})))
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "a torn stream is not an end")
}

// FuzzDemultiplex: however the engine's stream is split, or torn, what is read is what
// the client's own demultiplexer gives, and what is kept is bounded.
func FuzzDemultiplex(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 2, 'h', 'i', 2, 0, 0, 0, 0, 0, 0, 1, 'x'}, 3)
	f.Add([]byte{1, 0, 0, 0, 255, 255, 255, 255, 'h'}, 1)
	f.Add([]byte{0, 1, 2}, 2)
	f.Fuzz(func(t *testing.T, in []byte, step int) {
		step = max(1, step%64)
		s := docker.Demultiplex(&stepReader{in, step})
		got, err := io.ReadAll(s)
		want, ok := demultiplexed(in)
		if ok != (err == nil) || !bytes.Equal(got, want) {
			t.Fatalf("%q, %v; it must be %q, whole: %v", got, err, want, ok)
		}
		if notes, began := docker.Explanation(s); len(notes) > 4<<10 || len(began) > 4<<10 {
			t.Fatal("more is kept than allowed")
		}
	})
}

// demultiplexed is the simple way: the bytes of standard output, and whether the
// stream is whole.
func demultiplexed(in []byte) (out []byte, ok bool) {
	for len(in) > 0 {
		if len(in) < 8 || in[0] > 3 {
			return out, false
		}
		n := int(binary.BigEndian.Uint32(in[4:8]))
		chunk := in[8:min(len(in), 8+n)]
		if in[0] == 1 {
			out = append(out, chunk...)
		}
		if len(chunk) < n {
			return out, false
		}
		in = in[8+n:]
	}
	return out, true
}

type stepReader struct {
	b    []byte
	step int
}

func (r *stepReader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.b[:min(r.step, len(r.b))])
	r.b = r.b[n:]
	return n, nil
}

// FuzzNames: only names of ours are ours, and a name's session is in it.
func FuzzNames(f *testing.F) {
	f.Add("sbxhost-0123456789abcdef0123456789abcdef")
	f.Add("sbxhost-0123456789abcdef0123456789abcdef-01234567")
	f.Add("sbxhost-0123456789abcdef0123456789abcdef-")
	f.Fuzz(func(t *testing.T, name string) {
		s := docker.SessionOf(name)
		if s == "" {
			return
		}
		if len(s) != 32 || len(name) < 40 || name[:40] != "sbxhost-"+s {
			t.Fatalf("session %q of %q", s, name)
		}
	})
}

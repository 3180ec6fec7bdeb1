// Package wire is what the host and the in-sandbox supervisor say to each
// other: frames, and the setup record that describes a jail.
//
// A frame is one type byte, the payload's length (32 bits, big-endian) and the
// payload. Every type has its own largest payload, known before anything is
// allocated; an unknown type, a type of the other direction or a longer payload
// ends the conversation.
//
// The package imports nothing that would make the supervisor large: no fmt, no
// reflection.
package wire

import (
	"encoding/binary"
	"errors"
	"io"
)

// Type is the first byte of a frame.
type Type byte

// Frames from the host to the supervisor. Those up to Go set an exec up, each at
// most once; those after it drive it.
const (
	Setup    Type = 'J' // jail and confinement, see Config
	Passed   Type = 'P' // standard streams are attached as descriptors: stdin, stdout, stderr (or stdin only, with a terminal)
	Args     Type = 'A' // NUL-terminated arguments
	Env      Type = 'E' // NUL-terminated NAME=VALUE entries
	Dir      Type = 'D' // working directory
	Terminal Type = 'T' // columns, rows: 16 bits each
	KillRest Type = 'L' // when the command has ended, kill what it left running
	Go       Type = 'G' // start
	Input    Type = 'I' // bytes for the command's input, within the credit
	InputEnd Type = 'Z' // end of the command's input
	Resize   Type = 'W' // columns, rows
	Signal   Type = 'S' // one byte: the signal's number
	Kill     Type = 'K' // milliseconds of grace between TERM and KILL: 32 bits
	NewExec  Type = 'N' // on a jail's control socket: an exec's socket is attached
)

// Frames from the supervisor to the host.
const (
	Ready    Type = 'R' // the command runs: its process id, 32 bits; with a terminal and passed descriptors its master is attached
	Stdout   Type = '1'
	Stderr   Type = '2'
	Credit   Type = 'C' // so many more bytes of Input may be sent: 32 bits
	Exit     Type = 'X' // the one exit frame, see ExitStatus
	Failed   Type = 'F' // the command was not started, see Failure
	Killed   Type = 'Y' // answer to one Kill: the tree is gone (0) or so many processes remain: 32 bits
	TreeGone Type = 'O' // after Exit: nothing of the exec is left
)

// HeaderSize is the length of a frame's type and length.
const HeaderSize = 5

// Window is the number of bytes of Input the host may have sent without having
// been given credit for more.
const Window = 256 << 10

// MaxChunk is the largest payload of Input, Stdout and Stderr.
const MaxChunk = 64 << 10

// MaxSetup is the largest payload of Args and Env: what Linux lets an execve
// take at the default stack size, with room to spare.
const MaxSetup = 4 << 20

// ErrProtocol is what every violation of the framing is.
var ErrProtocol = errors.New("shim: malformed frame")

// Frame is one decoded frame. Payload belongs to the decoder and is valid until
// its next call.
type Frame struct {
	Type    Type
	Payload []byte
}

// Direction selects the frames that a decoder accepts.
type Direction byte

// The directions of the two conversations: about an exec or a jail, and about files.
const (
	FromSupervisor Direction = iota
	FromHost
	FilesFromSupervisor
	FilesFromHost
)

// limit returns the smallest and the largest payload of a type, and whether the
// type exists in that direction.
func limit(d Direction, t Type) (minimum, maximum int, ok bool) {
	if d == FilesFromHost || d == FilesFromSupervisor {
		return fileLimit(d, t)
	}
	if d == FromHost {
		switch t {
		case Setup:
			return 1, MaxSetup, true
		case Args, Env:
			return 0, MaxSetup, true
		case Dir:
			return 1, 4096, true
		case Terminal, Resize, Kill:
			return 4, 4, true
		case Input:
			return 1, MaxChunk, true
		case Signal:
			return 1, 1, true
		case Passed, KillRest, Go, InputEnd, NewExec:
			return 0, 0, true
		}
		return 0, 0, false
	}
	switch t {
	case Ready, Credit, Killed:
		return 4, 4, true
	case Stdout, Stderr:
		return 1, MaxChunk, true
	case Exit:
		return exitSize, exitSize, true
	case Failed:
		return 5, 5 + maxDetail, true
	case TreeGone:
		return 0, 0, true
	}
	return 0, 0, false
}

// Append appends a frame to dst.
func Append(dst []byte, t Type, payload []byte) []byte {
	dst = append(dst, byte(t), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(dst[len(dst)-4:], uint32(len(payload)))
	return append(dst, payload...)
}

// AppendUint32 appends a frame whose payload is one 32-bit number.
func AppendUint32(dst []byte, t Type, v uint32) []byte {
	dst = append(dst, byte(t), 0, 0, 0, 4)
	return binary.BigEndian.AppendUint32(dst, v)
}

// AppendSize appends a frame whose payload is a terminal's size.
func AppendSize(dst []byte, t Type, cols, rows uint16) []byte {
	return AppendUint32(dst, t, uint32(cols)<<16|uint32(rows))
}

// Uint32 reads a payload of one 32-bit number.
func Uint32(p []byte) uint32 { return binary.BigEndian.Uint32(p) }

// Size reads a terminal's size.
func Size(p []byte) (cols, rows uint16) {
	v := binary.BigEndian.Uint32(p)
	return uint16(v >> 16), uint16(v)
}

// Decoder splits a byte stream that is fed piecewise into frames. It never
// allocates more than the frame at hand may be long. The zero Decoder accepts
// frames FromSupervisor.
type Decoder struct {
	From Direction
	buf  []byte
	off  int
	err  error
}

// Feed adds bytes of the stream. They are copied.
func (d *Decoder) Feed(p []byte) {
	if d.off == len(d.buf) {
		d.buf, d.off = d.buf[:0], 0
	} else if d.off > MaxChunk {
		n := copy(d.buf, d.buf[d.off:])
		d.buf, d.off = d.buf[:n], 0
	}
	d.buf = append(d.buf, p...)
}

// Next returns the next complete frame; false when more bytes are needed. After
// an error every call returns it.
func (d *Decoder) Next() (Frame, bool, error) {
	if d.err != nil {
		return Frame{}, false, d.err
	}
	rest := d.buf[d.off:]
	if len(rest) == 0 {
		return Frame{}, false, nil
	}
	t := Type(rest[0])
	minimum, maximum, ok := limit(d.From, t)
	if !ok {
		d.err = ErrProtocol
		return Frame{}, false, d.err
	}
	if len(rest) < HeaderSize {
		return Frame{}, false, nil
	}
	n := binary.BigEndian.Uint32(rest[1:HeaderSize])
	if n < uint32(minimum) || n > uint32(maximum) {
		d.err = ErrProtocol
		return Frame{}, false, d.err
	}
	end := HeaderSize + int(n)
	if len(rest) < end {
		return Frame{}, false, nil
	}
	d.off += end
	return Frame{Type: t, Payload: rest[HeaderSize:end:end]}, true, nil
}

// Buffered returns the number of bytes fed and not yet returned.
func (d *Decoder) Buffered() int { return len(d.buf) - d.off }

// Wipe overwrites what the decoder holds.
func (d *Decoder) Wipe() {
	clear(d.buf[:cap(d.buf)])
	d.buf, d.off = d.buf[:0], 0
}

// Reader decodes frames from r.
type Reader struct {
	d   Decoder
	r   io.Reader
	buf []byte
}

// NewReader returns a Reader of one direction.
func NewReader(r io.Reader, from Direction) *Reader {
	return &Reader{d: Decoder{From: from}, r: r, buf: make([]byte, 4096)}
}

// Next returns the next frame, io.EOF at the end between two frames, or
// io.ErrUnexpectedEOF within one.
func (r *Reader) Next() (Frame, error) {
	for {
		f, ok, err := r.d.Next()
		if err != nil || ok {
			return f, err
		}
		n, err := r.r.Read(r.buf)
		r.d.Feed(r.buf[:n])
		if n > 0 && err == nil && n == len(r.buf) && n < MaxChunk+HeaderSize {
			r.buf = make([]byte, MaxChunk+HeaderSize) // a stream of output: larger reads
		}
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) && r.d.Buffered() > 0 {
				err = io.ErrUnexpectedEOF
			}
			return Frame{}, err
		}
	}
}

// AppendStrings appends each string with a terminating NUL.
func AppendStrings(dst []byte, list ...string) []byte {
	for _, s := range list {
		dst = append(append(dst, s...), 0)
	}
	return dst
}

// Strings splits a payload of NUL-terminated strings; false when the last one
// is not terminated. The strings share the payload's memory.
func Strings(p []byte) ([][]byte, bool) {
	var out [][]byte
	for len(p) > 0 {
		i := 0
		for i < len(p) && p[i] != 0 {
			i++
		}
		if i == len(p) {
			return nil, false
		}
		out = append(out, p[:i])
		p = p[i+1:]
	}
	return out, true
}

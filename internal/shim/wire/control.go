package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
)

// Control lines are what a host and PID 1 of a container say to each other over
// the container's standard input and output. Both are shared with whoever else is
// attached, outlive a host that died in the middle of a sentence, and are kept in
// the container's log. So they are lines of printable text, each complete in
// itself: a line that was cut or mixed with another fails its checksum and is
// passed over, and an answer carries the nonce of its question.
//
//	sbx1 NONCE VERB ARGUMENT… CHECKSUM\n
//
// The checksum is the CRC-32 (IEEE) of everything before its space, eight
// hexadecimal digits. It is against accidents: who can write to the stream is the
// host or the engine.

// Version is what the control lines, the frames and the setup record are of.
const Version = 1

// StopSignal is what an engine sends to PID 1 to stop a container: SIGRTMIN+3, which
// cannot be lost among others of its kind, as TERM can.
const StopSignal = 37

const lineMark = "sbx1"

// MaxLine is the largest control line, its line feed included.
const MaxLine = 2 << 20

// MaxID and MaxUser are the largest lengths of an exec's id and of a user.
const (
	MaxID   = 128
	MaxUser = 256
)

// nonceSize is the length of a nonce.
const nonceSize = 32

// Verbs of questions.
const (
	VerbPing  = "ping"  // → ok VERSION STATE CODE SIGNAL
	VerbList  = "list"  // → ok ID…
	VerbKill  = "kill"  // ID → ok FOUND LEFT
	VerbKeep  = "keep"  // ID… → ok FOUND LEFT: kill every exec but these
	VerbImage = "image" // BASE64 → ok | failed STAGE ERRNO
)

// Verbs of answers.
const (
	VerbOK     = "ok"
	VerbFailed = "failed"
	VerbRefuse = "refused" // REASON
)

// Reasons of a refusal.
const (
	RefuseUnknown = "unknown" // no such verb
	RefuseArgs    = "arguments"
	RefuseMode    = "mode"  // PID 1 was started without an image's command
	RefuseAgain   = "again" // the image's command was started already
)

// Line is one control line. Its fields share the memory they were parsed from.
type Line struct {
	Nonce []byte
	Verb  []byte
	Args  [][]byte
}

// AppendLine appends a line. Nonce must be 32 lower-case hexadecimal digits, verb
// and args non-empty and free of spaces and control characters.
func AppendLine(dst []byte, nonce, verb string, args ...string) []byte {
	start := len(dst)
	dst = append(append(append(append(append(dst, lineMark...), ' '), nonce...), ' '), verb...)
	for _, a := range args {
		dst = append(append(dst, ' '), a...)
	}
	sum := crc32.ChecksumIEEE(dst[start:])
	const digits = "0123456789abcdef"
	dst = append(dst, ' ')
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, digits[sum>>shift&15])
	}
	return append(dst, '\n')
}

// ParseLine reads one line without its line feed; false when it is none of ours,
// was cut or was garbled.
func ParseLine(b []byte) (Line, bool) {
	const tail = 9
	if len(b) >= MaxLine || len(b) < len(lineMark)+1+nonceSize+2+tail {
		return Line{}, false
	}
	body, sum := b[:len(b)-tail], b[len(b)-tail:]
	want := crc32.ChecksumIEEE(body)
	var got uint32
	if sum[0] != ' ' {
		return Line{}, false
	}
	for _, c := range sum[1:] {
		v, ok := hexDigit(c)
		if !ok {
			return Line{}, false
		}
		got = got<<4 | uint32(v)
	}
	if got != want {
		return Line{}, false
	}
	var fields [][]byte
	start := 0
	for i := 0; i <= len(body); i++ {
		if i < len(body) && body[i] != ' ' {
			if body[i] < '!' || body[i] > '~' {
				return Line{}, false
			}
			continue
		}
		if i == start {
			return Line{}, false
		}
		fields = append(fields, body[start:i])
		start = i + 1
	}
	if len(fields) < 3 || string(fields[0]) != lineMark || len(fields[1]) != nonceSize {
		return Line{}, false
	}
	for _, c := range fields[1] {
		if _, ok := hexDigit(c); !ok {
			return Line{}, false
		}
	}
	return Line{Nonce: fields[1], Verb: fields[2], Args: fields[3:]}, true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

// ValidID reports whether id can name an exec.
func ValidID[T string | []byte](id T) bool {
	if len(id) == 0 || len(id) > MaxID {
		return false
	}
	for i := range len(id) {
		c := id[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '.' && c != '-' && c != '_') {
			return false
		}
	}
	return true
}

// Splitter cuts a stream into control lines. What is longer than MaxLine is passed
// over up to the next line feed.
type Splitter struct {
	buf  []byte
	off  int
	seen int // bytes after off that hold no line feed
	skip bool
}

// Feed adds bytes of the stream. They are copied.
func (s *Splitter) Feed(p []byte) {
	if s.off > 0 {
		n := copy(s.buf, s.buf[s.off:])
		clear(s.buf[n:])
		s.buf, s.off = s.buf[:n], 0
	}
	s.buf = append(s.buf, p...)
}

// Next returns the next well-formed line; false when more bytes are needed. The
// line is valid until the next call of any method.
func (s *Splitter) Next() (Line, bool) {
	for {
		rest := s.buf[s.off:]
		end := bytes.IndexByte(rest[s.seen:], '\n')
		if end < 0 {
			s.seen = len(rest)
			if len(rest) >= MaxLine {
				s.skip = true
			}
			if s.skip {
				s.Wipe()
			}
			return Line{}, false
		}
		end += s.seen
		s.off, s.seen = s.off+end+1, 0
		if s.skip {
			s.skip = false
			continue
		}
		if l, ok := ParseLine(rest[:end:end]); ok {
			return l, true
		}
	}
}

// Rest forgets and overwrites the lines that were returned. No Line may be used
// afterwards.
func (s *Splitter) Rest() { s.Feed(nil) }

// Wipe overwrites what the splitter holds.
func (s *Splitter) Wipe() {
	clear(s.buf[:cap(s.buf)])
	s.buf, s.off, s.seen = s.buf[:0], 0, 0
}

// EncodeBlob returns b as an argument of a line.
func EncodeBlob(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// DecodeBlob is the reverse.
func DecodeBlob(b []byte) ([]byte, bool) {
	out := make([]byte, base64.RawURLEncoding.DecodedLen(len(b)))
	n, err := base64.RawURLEncoding.Strict().Decode(out, b)
	return out[:n], err == nil
}

// Number reads a decimal argument; false when it is not one.
func Number(b []byte) (int, bool) {
	if len(b) == 0 || len(b) > 9 {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// ImageState is how the image's command is.
type ImageState byte

// The states.
const (
	ImageNone    ImageState = iota // PID 1 was started without one
	ImageWaiting                   // not started yet
	ImageRunning
	ImageEnded // with a code, or of a signal
	ImageLost  // its supervisor was killed
	imageEnd
)

// ImageStatus is the state of the image's command.
type ImageStatus struct {
	State  ImageState
	Code   byte
	Signal byte
}

// Pack returns s as one number.
func (s ImageStatus) Pack() uint32 {
	return binary.BigEndian.Uint32([]byte{0, byte(s.State), s.Code, s.Signal})
}

// UnpackImage is the reverse of Pack.
func UnpackImage(v uint32) (ImageStatus, bool) {
	s := ImageStatus{ImageState(v >> 16), byte(v >> 8), byte(v)}
	return s, v>>24 == 0 && s.State < imageEnd
}

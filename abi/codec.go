package abi

import (
	"maps"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Raw is one complete JSON value, kept as it was written.
type Raw []byte

// MaxDepth is how deeply arrays and objects may nest in a document.
const MaxDepth = 64

// SyntaxError says what is wrong with a document and where. Its text never
// holds content of the document other than field names that the schema declares.
type SyntaxError struct {
	Offset  int    // in bytes from the start of the document
	Pointer string // JSON pointer (RFC 6901) of the value
	Message string
}

// Error returns "pointer at offset: message".
func (e *SyntaxError) Error() string {
	p := e.Pointer
	if p == "" {
		p = "document"
	}
	return p + " at byte " + strconv.Itoa(e.Offset) + ": " + e.Message
}

// decoder reads one JSON document without reflection: guests are compiled from
// this code too, where encoding/json costs an order of magnitude more.
type decoder struct {
	data   []byte
	text   string // data, if strings are cut from it
	pos    int
	from   int  // where what was read last begins in data, -1 if it is a copy
	strict bool // refuse unknown and missing fields
	depth  int
	nodes  []node // to be used by values
}

// sharing says that all strings of a document are cut from one copy of it. That
// saves an allocation each, and keeps all of the document for as long as one of
// them is kept: right for a plugin, whose memory ends with the call, wrong for a
// host that remembers a sandbox's id.
const sharing = runtime.GOOS == "wasip1"

func newDecoder(data []byte, strict bool) decoder {
	d := decoder{data: data, strict: strict}
	if sharing {
		d.text = string(data)
	}
	return d
}

func (d *decoder) fail(msg string) error { return &SyntaxError{Offset: d.pos, Message: msg} }

// in prefixes the pointer of err with one reference token.
func in(err error, token string) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*SyntaxError); ok { //nolint:errorlint // made in this file, never wrapped; errors.As is reflection that guests pay for
		e.Pointer = "/" + token + e.Pointer
	}
	return err
}

func inIndex(err error, i int) error {
	if err == nil {
		return nil
	}
	return in(err, strconv.Itoa(i))
}

func (d *decoder) space() {
	for d.pos < len(d.data) {
		switch d.data[d.pos] {
		case ' ', '\t', '\n', '\r':
			d.pos++
		default:
			return
		}
	}
}

func (d *decoder) peek() byte {
	if d.pos < len(d.data) && d.data[d.pos] > ' ' {
		return d.data[d.pos]
	}
	return d.peekSpace()
}

func (d *decoder) peekSpace() byte {
	d.space()
	if d.pos >= len(d.data) {
		return 0
	}
	return d.data[d.pos]
}

func (d *decoder) expect(c byte) error {
	if d.peek() != c {
		return d.fail("expected " + strconv.Quote(string(rune(c))))
	}
	d.pos++
	return nil
}

func (d *decoder) end() error {
	d.space()
	if d.pos != len(d.data) {
		return d.fail("data after the document")
	}
	return nil
}

func (d *decoder) enter() error {
	d.depth++
	if d.depth > MaxDepth {
		return d.fail("nested deeper than " + strconv.Itoa(MaxDepth))
	}
	return nil
}

// begin opens an object or array and reports whether it has a first element.
func (d *decoder) begin(open, shut byte) (bool, error) {
	if err := d.expect(open); err != nil {
		return false, err
	}
	if err := d.enter(); err != nil {
		return false, err
	}
	if d.peek() == shut {
		d.pos++
		d.depth--
		return false, nil
	}
	return true, nil
}

// next reports whether another element follows.
func (d *decoder) next(shut byte) (bool, error) {
	switch d.peek() {
	case ',':
		d.pos++
		return true, nil
	case shut:
		d.pos++
		d.depth--
		return false, nil
	}
	return false, d.fail("expected ',' or " + strconv.Quote(string(rune(shut))))
}

// key reads a member name and its colon.
func (d *decoder) key() ([]byte, error) {
	k, err := d.bytes()
	if err != nil {
		return nil, err
	}
	return k, d.expect(':')
}

func (d *decoder) unknown() error {
	if d.strict {
		return d.fail("unknown field")
	}
	return d.skip()
}

func (d *decoder) null() bool {
	if d.peek() == 'n' && len(d.data)-d.pos >= 4 && string(d.data[d.pos:d.pos+4]) == "null" {
		d.pos += 4
		return true
	}
	return false
}

// bytes reads a string; the result aliases the document when nothing was
// escaped.
func (d *decoder) bytes() ([]byte, error) {
	d.from = -1
	if d.peek() != '"' {
		return nil, d.fail("expected a string")
	}
	start := d.pos + 1
	ascii := true
	for i := plain(d.data, start); i < len(d.data); i = plain(d.data, i+1) {
		c := d.data[i]
		switch {
		case c == '"':
			s := d.data[start:i]
			if !ascii && !utf8.Valid(s) {
				return nil, d.fail("string is not valid UTF-8")
			}
			d.from, d.pos = start, i+1
			return s, nil
		case c == '\\':
			return d.escaped(start, i)
		case c < 0x20:
			d.pos = i
			return nil, d.fail("control character in a string")
		default:
			ascii = false
		}
	}
	return nil, d.fail("unterminated string")
}

const (
	eachByte = 0x0101010101010101
	highBits = 0x80 * eachByte
)

// special marks bytes that cannot be taken as they are in a string: quote,
// backslash, control characters, and what is not ASCII. The lowest mark is right;
// those above it may be marked in error, by a borrow.
func special(x uint64) uint64 {
	quote, slash := x^('"'*eachByte), x^('\\'*eachByte)
	return (x | (x - ' '*eachByte) | (quote - eachByte) | (slash - eachByte)) & highBits
}

// plain is the index of the first byte from i on that is special, or len(b). Eight
// bytes at a time: the compiler makes one load of them.
func plain(b []byte, i int) int {
	for ; len(b)-i >= 8; i += 8 {
		w := b[i : i+8 : i+8]
		x := uint64(w[0]) | uint64(w[1])<<8 | uint64(w[2])<<16 | uint64(w[3])<<24 |
			uint64(w[4])<<32 | uint64(w[5])<<40 | uint64(w[6])<<48 | uint64(w[7])<<56
		if m := special(x); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// plainText is plain for a string.
func plainText(s string, i int) int {
	for ; len(s)-i >= 8; i += 8 {
		w := s[i : i+8]
		x := uint64(w[0]) | uint64(w[1])<<8 | uint64(w[2])<<16 | uint64(w[3])<<24 |
			uint64(w[4])<<32 | uint64(w[5])<<40 | uint64(w[6])<<48 | uint64(w[7])<<56
		if m := special(x); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(s) && s[i] >= ' ' && s[i] < utf8.RuneSelf && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}

func (d *decoder) escaped(start, i int) ([]byte, error) {
	out := append([]byte(nil), d.data[start:i]...)
	for i < len(d.data) {
		c := d.data[i]
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				return nil, d.fail("string is not valid UTF-8")
			}
			d.pos = i + 1
			return out, nil
		case c < 0x20:
			d.pos = i
			return nil, d.fail("control character in a string")
		case c != '\\':
			out = append(out, c)
			i++
		default:
			if i+1 >= len(d.data) {
				return nil, d.fail("unterminated string")
			}
			i++
			switch e := d.data[i]; e {
			case '"', '\\', '/':
				out = append(out, e)
			case 'b':
				out = append(out, '\b')
			case 'f':
				out = append(out, '\f')
			case 'n':
				out = append(out, '\n')
			case 'r':
				out = append(out, '\r')
			case 't':
				out = append(out, '\t')
			case 'u':
				r, ok := hex4(d.data, i+1)
				if !ok {
					d.pos = i
					return nil, d.fail("malformed \\u escape")
				}
				i += 4
				if utf16.IsSurrogate(r) {
					low, ok := rune(0), false
					if i+2 < len(d.data) && d.data[i+1] == '\\' && d.data[i+2] == 'u' {
						low, ok = hex4(d.data, i+3)
					}
					if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
						d.pos = i
						return nil, d.fail("unpaired surrogate")
					}
					i += 6
				}
				out = utf8.AppendRune(out, r)
			default:
				d.pos = i
				return nil, d.fail("unknown escape")
			}
			i++
		}
	}
	return nil, d.fail("unterminated string")
}

func hex4(b []byte, at int) (rune, bool) {
	if at+4 > len(b) {
		return 0, false
	}
	var r rune
	for _, c := range b[at : at+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

func (d *decoder) string() (string, error) {
	b, err := d.bytes()
	return d.own(b), err
}

// own makes a string of what bytes, key or number returned last.
func (d *decoder) own(b []byte) string {
	if d.text != "" && d.from >= 0 {
		return d.text[d.from : d.from+len(b)]
	}
	return string(b)
}

func (d *decoder) bool() (bool, error) {
	d.space()
	rest := d.data[d.pos:]
	switch {
	case len(rest) >= 4 && string(rest[:4]) == "true":
		d.pos += 4
		return true, nil
	case len(rest) >= 5 && string(rest[:5]) == "false":
		d.pos += 5
		return false, nil
	}
	return false, d.fail("expected true or false")
}

// number returns the text of a number after checking its grammar.
func (d *decoder) number() ([]byte, error) {
	d.space()
	b, i := d.data, d.pos
	if i < len(b) && b[i] == '-' {
		i++
	}
	digits := func() bool {
		n := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > n
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return nil, d.fail("expected a number")
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return nil, d.fail("malformed number")
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return nil, d.fail("malformed number")
		}
	}
	s := b[d.pos:i]
	d.from, d.pos = d.pos, i
	return s, nil
}

func (d *decoder) int() (int64, error) {
	at := d.pos
	s, err := d.number()
	if err != nil {
		return 0, err
	}
	n, perr := strconv.ParseInt(d.own(s), 10, 64)
	if perr != nil {
		d.pos = at
		return 0, d.fail("expected an integer of 64 bits")
	}
	return n, nil
}

func (d *decoder) float() (float64, error) {
	at := d.pos
	s, err := d.number()
	if err != nil {
		return 0, err
	}
	f, perr := strconv.ParseFloat(d.own(s), 64)
	if perr != nil || math.IsInf(f, 0) {
		d.pos = at
		return 0, d.fail("number out of range")
	}
	return f, nil
}

// raw reads and checks one value of any type.
func (d *decoder) raw() (Raw, error) {
	d.space()
	start := d.pos
	if err := d.skip(); err != nil {
		return nil, err
	}
	return append(Raw(nil), d.data[start:d.pos]...), nil
}

func (d *decoder) skip() error {
	switch c := d.peek(); {
	case c == '{':
		more, err := d.begin('{', '}')
		for ; more && err == nil; more, err = d.next('}') {
			if _, err = d.key(); err != nil {
				return err
			}
			if err = d.skip(); err != nil {
				return err
			}
		}
		return err
	case c == '[':
		more, err := d.begin('[', ']')
		for ; more && err == nil; more, err = d.next(']') {
			if err = d.skip(); err != nil {
				return err
			}
		}
		return err
	case c == '"':
		_, err := d.bytes()
		return err
	case c == 't' || c == 'f':
		_, err := d.bool()
		return err
	case c == 'n':
		if d.null() {
			return nil
		}
		return d.fail("expected a value")
	default:
		_, err := d.number()
		return err
	}
}

func (d *decoder) strings() ([]string, error) {
	out := []string{}
	more, err := d.begin('[', ']')
	for ; more && err == nil; more, err = d.next(']') {
		var s string
		if s, err = d.string(); err != nil {
			return nil, inIndex(err, len(out))
		}
		out = append(out, s)
	}
	return out, err
}

func (d *decoder) ints() ([]int64, error) {
	out := []int64{}
	more, err := d.begin('[', ']')
	for ; more && err == nil; more, err = d.next(']') {
		var n int64
		if n, err = d.int(); err != nil {
			return nil, inIndex(err, len(out))
		}
		out = append(out, n)
	}
	return out, err
}

func (d *decoder) stringMap() (map[string]string, error) {
	out := map[string]string{}
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var k []byte
		if k, err = d.key(); err != nil {
			return nil, err
		}
		name := d.own(k)
		if _, dup := out[name]; dup {
			return nil, d.fail("duplicate key")
		}
		var s string
		if s, err = d.string(); err != nil {
			return nil, err
		}
		out[name] = s
	}
	return out, err
}

// AppendString appends s as a JSON string to b. Bytes that are not UTF-8 become
// the replacement character.
func AppendString(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := plainText(s, 0); i < len(s); i = plainText(s, i) {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(b, s[from:i]...)
				b = append(b, `\ufffd`...)
				i++
				from = i
				continue
			}
			i += size
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		i++
		from = i
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

func appendRaw(b []byte, r Raw) []byte {
	if len(r) == 0 {
		return append(b, "null"...)
	}
	return append(b, r...)
}

func appendStrings(b []byte, l []string) []byte {
	b = append(b, '[')
	for i, s := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, s)
	}
	return append(b, ']')
}

func appendInts(b []byte, l []int64) []byte {
	b = append(b, '[')
	for i, n := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return append(b, ']')
}

func appendFloat(b []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, '0')
	}
	return strconv.AppendFloat(b, f, 'g', -1, 64)
}

// appendStringMap writes the entries in key order, so that equal maps give equal
// documents.
func appendStringMap(b []byte, m map[string]string) []byte {
	keys := slices.Sorted(maps.Keys(m))
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, k)
		b = append(b, ':')
		b = AppendString(b, m[k])
	}
	return append(b, '}')
}

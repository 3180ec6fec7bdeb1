package wasmfile

import "unicode/utf8"

// cursor reads a byte range of the module and remembers absolute offsets, so
// that every error says where. The first error sticks; later reads return zero
// values, which lets callers check once per item.
type cursor struct {
	data []byte
	pos  int
	end  int
	err  error
}

func (c *cursor) fail(what string) {
	if c.err == nil {
		c.err = &Error{Offset: c.pos, Message: what}
	}
}

func (c *cursor) failAt(pos int, what string) {
	if c.err == nil {
		c.err = &Error{Offset: pos, Message: what}
	}
}

func (c *cursor) limit(which string, limit, got uint64) {
	if c.err == nil {
		c.err = &LimitError{Which: which, Limit: limit, Got: got, Offset: c.pos}
	}
}

func (c *cursor) remaining() int { return c.end - c.pos }

func (c *cursor) byte() byte {
	if c.err != nil || c.pos >= c.end {
		c.fail("unexpected end")
		return 0
	}
	b := c.data[c.pos]
	c.pos++
	return b
}

func (c *cursor) bytes(n uint32) []byte {
	if c.err != nil || uint64(n) > uint64(c.end-c.pos) {
		c.fail("unexpected end")
		return nil
	}
	b := c.data[c.pos : c.pos+int(n) : c.pos+int(n)]
	c.pos += int(n)
	return b
}

// u32 reads an unsigned LEB128 of at most 32 bits and 5 bytes.
func (c *cursor) u32() uint32 {
	if c.err == nil && c.pos < c.end {
		if b := c.data[c.pos]; b < 0x80 { // nearly every number in a module
			c.pos++
			return uint32(b)
		}
	}
	start := c.pos
	var v uint32
	for shift := 0; ; shift += 7 {
		b := c.byte()
		if c.err != nil {
			return 0
		}
		if shift == 28 && b > 0x0f {
			c.failAt(start, "number is longer than 32 bits")
			return 0
		}
		v |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
}

// signed reads a signed LEB128 of the given width.
func (c *cursor) signed(bits int) int64 {
	start := c.pos
	var v int64
	for shift := 0; ; shift += 7 {
		b := c.byte()
		if c.err != nil {
			return 0
		}
		if left := bits - shift; left < 7 {
			// The last byte: its unused bits must repeat the sign.
			sign := b & 0x7f >> (left - 1)
			if b >= 0x80 || (sign != 0 && sign != 0x7f>>(left-1)) {
				c.failAt(start, "signed number is too long")
				return 0
			}
		}
		v |= int64(b&0x7f) << shift
		if b < 0x80 {
			if shift+7 < 64 && b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}

func (c *cursor) name() string {
	n := c.u32()
	start := c.pos
	b := c.bytes(n)
	if c.err == nil && !utf8.Valid(b) {
		c.failAt(start, "name is not UTF-8")
		return ""
	}
	return string(b)
}

// count reads a vector's length and refuses one that could not fit in what is
// left, so that no allocation is larger than the input justifies.
func (c *cursor) count(which string, limit uint64, minItemBytes int) int {
	n := c.u32()
	if c.err != nil {
		return 0
	}
	if uint64(n) > limit {
		c.limit(which, limit, uint64(n))
		return 0
	}
	if uint64(n)*uint64(minItemBytes) > uint64(c.remaining()) {
		c.fail("vector is longer than its section")
		return 0
	}
	return int(n)
}

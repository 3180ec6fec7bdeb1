package wasmfile

import "math"

// PluginSection is the custom section that holds a plugin's manifest.
const PluginSection = "sbxhost.plugin"

// CustomSection returns the payload of the only custom section of that name
// without looking at the rest of the module, and whether there is one. Two of
// them are an error: which one counts must not depend on the reader.
func CustomSection(data []byte, name string) ([]byte, bool, error) {
	var payload []byte
	found := false
	err := eachSection(data, func(id byte, whole, body Range) error {
		n, at, err := customName(data, id, body)
		if err != nil || id != SectionCustom || n != name {
			return err
		}
		if found {
			return &Error{Offset: whole.Start, Message: "custom section " + name + " is repeated"}
		}
		found = true
		payload = data[at:body.End:body.End]
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return payload, found, nil
}

// WithCustomSection returns a copy of a module in which every custom section of
// that name is removed and, unless payload is nil, one is appended at the end.
func WithCustomSection(data []byte, name string, payload []byte) ([]byte, error) {
	if len(name)+len(payload) > math.MaxInt32 {
		return nil, &LimitError{Which: "custom section bytes", Limit: math.MaxInt32, Got: uint64(len(payload))}
	}
	out := make([]byte, 0, len(data)+len(payload)+len(name)+16)
	if len(data) >= 8 {
		out = append(out, data[:8]...)
	}
	err := eachSection(data, func(id byte, whole, body Range) error {
		n, _, err := customName(data, id, body)
		if err != nil {
			return err
		}
		if id != SectionCustom || n != name {
			out = append(out, data[whole.Start:whole.End]...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if payload == nil {
		return out, nil
	}
	body := AppendUint(nil, uint64(len(name)))
	body = append(append(body, name...), payload...)
	out = AppendUint(append(out, SectionCustom), uint64(len(body)))
	return append(out, body...), nil
}

func customName(data []byte, id byte, body Range) (string, int, error) {
	if id != SectionCustom {
		return "", 0, nil
	}
	c := cursor{data: data, pos: body.Start, end: body.End}
	n := c.name()
	return n, c.pos, c.err
}

func eachSection(data []byte, visit func(id byte, whole, body Range) error) error {
	c := cursor{data: data, end: len(data)}
	c.header()
	for c.err == nil && c.pos < c.end {
		start := c.pos
		id := c.byte()
		size := c.u32()
		from := c.pos
		c.bytes(size)
		if c.err != nil {
			break
		}
		if err := visit(id, Range{start, c.pos}, Range{from, c.pos}); err != nil {
			return err
		}
	}
	return c.err
}

// AppendUint appends v as unsigned LEB128.
func AppendUint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// AppendInt appends v as signed LEB128.
func AppendInt(b []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

package meter

import "unicode/utf8"

// nameSection carries function names over, so that traces stay readable. Other
// names are dropped, and so is a section that cannot be read: names are never
// worth refusing a module.
func (w *writer) nameSection() []byte {
	for _, c := range w.m.Customs {
		if c.Name != "name" {
			continue
		}
		if names, ok := functionNames(c.Payload); ok {
			body := w.renumber(names)
			return append(uvar(append(str(nil, "name"), 1), uint64(len(body))), body...)
		}
		return nil
	}
	return nil
}

type funcName struct {
	index uint32
	name  []byte
}

func (w *writer) renumber(names []funcName) []byte {
	b := uvar(nil, uint64(len(names)))
	for _, n := range names {
		b = append(uvar(uvar(b, uint64(w.fn(n.index))), uint64(len(n.name))), n.name...)
	}
	return b
}

// functionNames reads subsection 1 of a name section.
func functionNames(b []byte) ([]funcName, bool) {
	for len(b) > 0 {
		id := b[0]
		size, rest, ok := take(b[1:])
		if !ok || uint64(size) > uint64(len(rest)) {
			return nil, false
		}
		if id != 1 {
			b = rest[size:]
			continue
		}
		return nameMap(rest[:size])
	}
	return nil, false
}

func nameMap(b []byte) ([]funcName, bool) {
	n, b, ok := take(b)
	if !ok || uint64(n)*2 > uint64(len(b)) {
		return nil, false
	}
	names := make([]funcName, 0, n)
	last := int64(-1)
	for range n {
		var f funcName
		var size uint32
		if f.index, b, ok = take(b); !ok || int64(f.index) <= last {
			return nil, false
		}
		last = int64(f.index)
		if size, b, ok = take(b); !ok || uint64(size) > uint64(len(b)) {
			return nil, false
		}
		f.name, b = b[:size], b[size:]
		if !utf8.Valid(f.name) {
			return nil, false
		}
		names = append(names, f)
	}
	return names, len(b) == 0
}

// take reads one number.
func take(b []byte) (uint32, []byte, bool) {
	var v uint64
	for i := 0; i < len(b) && i < 5; i++ {
		v |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return uint32(v), b[i+1:], v < 1<<31
		}
	}
	return 0, nil, false
}

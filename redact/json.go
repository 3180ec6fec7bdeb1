package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// ErrNotJSON is returned by JSON for what is not one JSON document.
var ErrNotJSON = errors.New("redact: not a JSON document")

// JSON masks a JSON document on its decoded strings, keys included, so that
// escaping hides nothing and the result is always a JSON document. A number
// that holds a secret becomes a string. What holds none is copied as it stands,
// white space included. Keys that become equal are told apart by #2, #3, …
// The error never repeats the document.
func (r *Redactor) JSON(doc json.RawMessage) (json.RawMessage, error) {
	if !json.Valid(doc) {
		return nil, ErrNotJSON
	}
	m := jsonMasker{r: r, in: doc, out: make([]byte, 0, len(doc)+64)}
	m.space()
	m.value()
	m.space()
	return m.out, nil
}

// jsonMasker walks a document that is known to be valid.
type jsonMasker struct {
	r   *Redactor
	in  []byte
	pos int
	out []byte
}

func (m *jsonMasker) space() {
	start := m.pos
	for m.pos < len(m.in) && bytes.IndexByte([]byte(" \t\r\n"), m.in[m.pos]) >= 0 {
		m.pos++
	}
	m.out = append(m.out, m.in[start:m.pos]...)
}

// punct copies the one byte at pos.
func (m *jsonMasker) punct() byte {
	c := m.in[m.pos]
	m.out = append(m.out, c)
	m.pos++
	return c
}

func (m *jsonMasker) value() {
	switch m.in[m.pos] {
	case '{':
		m.members(true)
	case '[':
		m.members(false)
	case '"':
		m.out = append(m.out, m.text(m.literal())...)
	default:
		m.out = append(m.out, m.scalar()...)
	}
}

func (m *jsonMasker) members(object bool) {
	m.punct()
	m.space()
	var used map[string]bool
	for m.in[m.pos] != '}' && m.in[m.pos] != ']' {
		if object {
			if used == nil {
				used = map[string]bool{}
			}
			m.key(used)
			m.space()
			m.punct() // colon
			m.space()
		}
		m.value()
		m.space()
		if m.in[m.pos] == ',' {
			m.punct()
			m.space()
		}
	}
	m.punct()
}

func (m *jsonMasker) key(used map[string]bool) {
	lit := m.literal()
	key := m.text(lit)
	if !bytes.Equal(lit, key) {
		base := string(key[:len(key)-1])
		for n := 2; used[string(key)]; n++ {
			key = []byte(base + "#" + strconv.Itoa(n) + `"`)
		}
	}
	used[string(key)] = true
	m.out = append(m.out, key...)
}

// literal takes the string at pos, quotes included.
func (m *jsonMasker) literal() []byte {
	start := m.pos
	for m.pos++; m.in[m.pos] != '"'; m.pos++ {
		if m.in[m.pos] == '\\' {
			m.pos++
		}
	}
	m.pos++
	return m.in[start:m.pos]
}

// text masks a string literal: its decoded text, and also the way it is
// written, which a reader of the raw document sees.
func (m *jsonMasker) text(lit []byte) []byte {
	var decoded string
	if json.Unmarshal(lit, &decoded) != nil {
		return quote(plainMarker)
	}
	masked := m.r.String(decoded)
	if masked != decoded {
		return quote(masked)
	}
	inner := lit[1 : len(lit)-1]
	if out, hits := m.r.Bytes(inner); len(hits) > 0 {
		return quote(string(out))
	}
	return lit
}

func quote(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil {
		return []byte(`"` + plainMarker + `"`)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// scalar takes and masks a number, true, false or null.
func (m *jsonMasker) scalar() []byte {
	start := m.pos
	for m.pos < len(m.in) && bytes.IndexByte([]byte(" \t\r\n,]}"), m.in[m.pos]) < 0 {
		m.pos++
	}
	lit := m.in[start:m.pos]
	if c := lit[0]; c == 't' || c == 'f' || c == 'n' {
		return lit
	}
	if out, hits := m.r.Bytes(lit); len(hits) > 0 {
		return quote(string(out))
	}
	return lit
}

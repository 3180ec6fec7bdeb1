package redact_test

import (
	"sort"
	"strings"

	"github.com/sbxhost/sbxhost/redact"
)

// model is the oracle: it keeps the whole input and what became of every byte
// of it, looks at every needle at every position, and shares no code with the
// package.
type model struct {
	needles []redact.RawNeedle
	text    string
	state   []byte // pending, shown or masked
	carry   int    // bytes before it are not searched again
	out     strings.Builder
	hits    map[string]int64
}

const (
	pending byte = iota
	shown
	masked
)

type modelSpan struct {
	start, end, core int
	name             string
}

const alphabet64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

func sextets(chars string) (mask uint64) {
	for i := range len(chars) {
		switch c := chars[i]; c {
		case '+', '-':
			mask |= 1 << 62
		case '/', '_':
			mask |= 1 << 63
		default:
			if v := strings.IndexByte(alphabet64, c); v >= 0 {
				mask |= 1 << v
			}
		}
	}
	return mask
}

func (m *model) alnum(i int) bool { return strings.IndexByte(alphabet64, m.text[i]) >= 0 }

// half reports whether text[i] is the second byte of a backslash pair.
func (m *model) half(i int) bool {
	n := 0
	for i > 0 && m.text[i-1] == '\\' {
		n++
		i--
	}
	return n%2 == 1
}

func (m *model) freeBefore(i int) bool {
	return i == 0 || !m.alnum(i-1) || strings.ContainsRune("bfnrt", rune(m.text[i-1])) && m.half(i-1)
}

const escapes = `"\/bfnrtu`

func (m *model) leftOf(n redact.RawNeedle, i int) bool {
	c := m.text[i-1 : i]
	return sextets(c)&n.Left != 0 || c == `\` && strings.Contains(escapes, n.Text[:1]) && m.half(i)
}

func openEnded(n redact.RawNeedle) bool {
	return n.Bound || n.Right != 0 || strings.HasSuffix(n.Text, `\`)
}

// spans returns the merged spans. atEnd says that the end of the text is a
// boundary, cut that a beginning there may be a secret cut off.
func (m *model) spans(atEnd, cut bool) []modelSpan {
	var all []modelSpan
	for _, n := range m.needles {
		for i := m.carry; i < len(m.text); i++ {
			rest := m.text[i:]
			size := len(n.Text)
			switch {
			case strings.HasPrefix(rest, n.Text):
			case cut && strings.HasPrefix(n.Text, rest) && len(rest) >= 8 && 2*len(rest) >= size:
				size = len(rest)
			default:
				continue
			}
			end := i + size
			if n.Bound {
				if !m.freeBefore(i) || end < len(m.text) && m.alnum(end) || end == len(m.text) && !atEnd {
					continue
				}
			}
			sp := modelSpan{start: i, end: end, core: size, name: n.Name}
			if i > m.carry && m.leftOf(n, i) {
				sp.start--
			}
			if end < len(m.text) {
				next := m.text[end : end+1]
				if sextets(next)&n.Right != 0 || m.text[end-1] == '\\' && strings.Contains(escapes, next) && m.half(end) {
					sp.end++
				}
			}
			all = append(all, sp)
		}
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		if a.start != b.start {
			return a.start < b.start
		}
		if a.core != b.core {
			return a.core > b.core
		}
		return a.name < b.name
	})
	var merged []modelSpan
	for _, sp := range all {
		if k := len(merged) - 1; k >= 0 && sp.start < merged[k].end {
			merged[k].end = max(merged[k].end, sp.end)
		} else {
			merged = append(merged, sp)
		}
	}
	return merged
}

// held is where the longest beginning of a widened needle starts.
func (m *model) held() int {
	held := len(m.text)
	for _, n := range m.needles {
		for h := m.carry; h <= len(m.text); h++ {
			rest := m.text[h:]
			if !strings.HasPrefix(n.Text, rest) || rest == n.Text && !openEnded(n) {
				continue
			}
			held = min(held, h)
			if h > m.carry && m.leftOf(n, h) {
				held = min(held, h-1)
			}
		}
	}
	return held
}

func (m *model) emit(spans []modelSpan, limit int) {
	for len(m.state) < len(m.text) {
		m.state = append(m.state, pending)
	}
	at := func(i int) *modelSpan {
		for k := range spans {
			if spans[k].start <= i && i < spans[k].end && spans[k].start < limit {
				return &spans[k]
			}
		}
		return nil
	}
	for i := range m.text {
		if m.state[i] != pending {
			continue
		}
		sp := at(i)
		if sp == nil {
			if i < limit {
				m.state[i] = shown
				m.out.WriteByte(m.text[i])
			}
			continue
		}
		m.state[i] = masked
		if i == sp.start || m.state[i-1] != masked {
			m.out.WriteString("[redacted:" + sp.name + "]")
			if m.hits == nil {
				m.hits = map[string]int64{}
			}
			m.hits[sp.name]++
		}
	}
}

func (m *model) write(p string) {
	m.text += p
	held := m.held()
	m.emit(m.spans(false, false), held)
	m.carry = held
}

func (m *model) flush() {
	held := m.held()
	m.emit(m.spans(true, false), len(m.text))
	m.carry = held
}

func (m *model) close() {
	m.emit(m.spans(true, true), len(m.text))
	m.carry = len(m.text)
}

func (m *model) idle() {
	spans := m.spans(false, false)
	quiet := true
	for i := m.carry; i < len(m.text); i++ {
		rest := m.text[i:]
		for _, n := range m.needles {
			if !strings.HasPrefix(n.Text, rest) || rest == n.Text && !openEnded(n) {
				continue
			}
			size, length := len(rest), len(n.Text)
			if !(size <= 3 && 2*size <= length || 4*size <= length && length-size >= 12) {
				quiet = false
			}
		}
	}
	if quiet {
		m.emit(spans, len(m.text))
		return
	}
	done := m.carry
	for done < len(m.state) && m.state[done] != pending {
		done++
	}
	limit := done
	for _, sp := range spans {
		if sp.start > limit {
			break
		}
		limit = max(limit, sp.end)
	}
	if limit > done {
		m.emit(spans, limit)
	}
}

// oracle masks a whole text.
func oracle(needles []redact.RawNeedle, text string) string {
	m := &model{needles: needles, text: text}
	m.close()
	return m.out.String()
}

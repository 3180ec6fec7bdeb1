package redact

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
)

// name is one secret's name, shared by its needles.
type name struct {
	text   string
	marker string
	plain  atomic.Bool // the marker collides with a needle: write *** instead
	hits   atomic.Int64
}

const plainMarker = "***"

func (n *name) mark() string {
	if n.plain.Load() {
		return plainMarker
	}
	return n.marker
}

// set is an immutable compiled collection: a big engine, and smaller ones for
// what was added since the big one was built.
type set struct {
	layers []engine
	least  int    // length of the shortest needle
	left   uint64 // six-bit values that can stand before some needle
	escape bool   // some needle starts like the second half of an escape
	first  [256]uint8
	narrow bool     // of the small engine: see shared.widen
	only   *sampled // the one layer, if it is a fast one
}

// What a byte may be, in set.first.
const (
	firstBegins = 1 << iota // the beginning of a needle
	firstWidens             // taken in by a needle that follows, or part of an escape
)

func newSet(left uint64, escape bool, layers ...engine) *set {
	s := &set{left: left, escape: escape}
	for _, l := range layers {
		if l != nil && l.size() > 0 {
			if len(s.layers) == 0 || l.shortest() < s.least {
				s.least = l.shortest()
			}
			s.layers = append(s.layers, l)
		}
	}
	if len(s.layers) == 1 {
		s.only, _ = s.layers[0].(*sampled)
	}
	for i := range s.first {
		b := [1]byte{byte(i)}
		for _, l := range s.layers {
			if l.begins(b[:]) > 0 {
				s.first[i] |= firstBegins
			}
		}
		if b[0] == '\\' || sextet[b[0]]&left != 0 {
			s.first[i] |= firstWidens
		}
	}
	return s
}

// lookbehind is what must be known of the bytes before a text.
type lookbehind struct {
	prev    byte
	any     bool // there is a previous byte
	escaped bool // prev is the second byte of a backslash pair
	odd     bool // prev is a backslash that escapes what follows
}

// odd reports whether the run of backslashes that ends before text[i] makes
// text[i] the second byte of a pair.
func (c lookbehind) oddAt(text []byte, i int) bool {
	j := i
	for j > 0 && text[j-1] == '\\' {
		j--
	}
	odd := (i-j)&1 == 1
	if j == 0 && c.odd {
		odd = !odd
	}
	return odd
}

// at returns the lookbehind of text[i:].
func (c lookbehind) at(text []byte, i int) lookbehind {
	if i == 0 {
		return c
	}
	if prev := text[i-1]; prev != '\\' && (i == 1 || text[i-2] != '\\') {
		return lookbehind{prev: prev, any: true, escaped: i == 1 && c.odd}
	}
	return lookbehind{prev: text[i-1], any: true, escaped: c.oddAt(text, i-1), odd: c.oddAt(text, i)}
}

// boundaryBefore reports whether no letter or digit stands before text[i]; the
// letter of an escape such as \n is none.
func (c lookbehind) boundaryBefore(text []byte, i int) bool {
	prev, known := c.prev, c.any
	if i > 0 {
		prev, known = text[i-1], true
	}
	if !known || !isAlnum(prev) {
		return true
	}
	if strings.IndexByte("bfnrt", prev) < 0 {
		return false
	}
	if i > 0 {
		return c.oddAt(text, i-1)
	}
	return c.escaped
}

// escapable reports whether c can follow the backslash of a JSON escape.
func escapable(c byte) bool { return strings.IndexByte(`"\/bfnrtu`, c) >= 0 }

// sextet maps a base64 character of either alphabet to the bit of its value.
var sextet = func() (t [256]uint64) {
	for i, c := range []byte(alnum) {
		t[c] = 1 << i
	}
	t['+'], t['-'], t['/'], t['_'] = 1<<62, 1<<62, 1<<63, 1<<63
	return
}()

// span is a widened occurrence, or several merged. core orders those that start
// together.
type span struct {
	start, end int
	core       int // length of the needle found
	n          *name
}

func compareSpans(a, b span) int {
	if c := cmp.Compare(a.start, b.start); c != 0 {
		return c
	}
	if c := cmp.Compare(b.core, a.core); c != 0 {
		return c
	}
	return strings.Compare(a.n.text, b.n.text)
}

// scratch is reusable memory for resolve.
type scratch struct {
	found
	spans []span
}

// add appends a span, or merges it with the last one if they overlap, so that
// dense hits stay few. It reports whether the spans are still in order and
// disjoint as far as the last two tell.
func (b *scratch) add(sp span) bool {
	k := len(b.spans) - 1
	if k < 0 || sp.start >= b.spans[k].end {
		b.spans = append(b.spans, sp)
		return true
	}
	last := &b.spans[k]
	if sp.end <= last.start {
		b.spans = append(b.spans, sp)
		return false
	}
	before := sp.start < last.start
	end := max(last.end, sp.end)
	if before || sp.start == last.start && compareSpans(sp, *last) < 0 {
		*last = sp
	}
	last.end = end
	return !before || k == 0
}

// end says what follows a text.
type end int

const (
	more  end = iota // more may come: what is undecided stays so
	pause            // more may come, but decide what a boundary would decide
	eof              // nothing: a long enough beginning of a needle is one cut off
)

// resolve finds what to mask in text. The returned spans are disjoint and in
// order; each carries the name of the occurrence that starts first, of those
// the longest, of those the first by name. text[held:] must be kept back: it
// could be the beginning of an occurrence. The spans live in buf.
//
// Which name a merged span gets never depends on bytes after held: whatever
// starts where a span starts is complete, or held would lie there.
func (s *set) resolve(text []byte, c lookbehind, e end, buf *scratch) (spans []span, held int) {
	buf.hits, buf.spans = buf.hits[:0], buf.spans[:0]
	if len(s.layers) == 0 || len(text) == 0 {
		return nil, len(text)
	}
	hold := 0
	for _, l := range s.layers {
		hold = max(hold, l.scan(text, &buf.found))
	}
	held = len(text) - hold
	if e == eof {
		if hold >= truncatedFloor {
			s.truncated(text, hold, c, buf)
		}
	}
	sorted := true
	for i := range buf.hits {
		h := &buf.hits[i]
		if h.n.bound {
			if !c.boundaryBefore(text, h.start) {
				continue
			}
			if h.end < len(text) && isAlnum(text[h.end]) || h.end == len(text) && e == more {
				continue
			}
		}
		start, end := h.start, h.end
		if h.n.left|h.n.right != 0 || start > 0 && text[start-1] == '\\' || text[end-1] == '\\' {
			start, end = h.widen(text, c)
		}
		if k := len(buf.spans) - 1; k >= 0 && start > buf.spans[k].start && start < buf.spans[k].end {
			buf.spans[k].end = max(buf.spans[k].end, end)
			continue
		}
		sorted = buf.add(span{start, end, min(h.end-h.start, len(h.n.text)), h.n.name}) && sorted
	}
	if s.startsBefore(text, held, c) {
		held--
	}
	if !sorted {
		slices.SortFunc(buf.spans, compareSpans)
		merged := buf.spans[:1]
		for _, sp := range buf.spans[1:] {
			last := &merged[len(merged)-1]
			if sp.start < last.end {
				last.end = max(last.end, sp.end)
			} else {
				merged = append(merged, sp)
			}
		}
		buf.spans = merged
	}
	return buf.spans, held
}

// widen takes in the neighbours that carry bits of the value or would be left
// behind as half an escape.
func (h *hit) widen(text []byte, c lookbehind) (start, end int) {
	start, end, n := h.start, h.end, h.n
	if start > 0 {
		before := text[start-1]
		if sextet[before]&n.left != 0 || before == '\\' && escapable(n.text[0]) && c.oddAt(text, start) {
			start--
		}
	}
	if h.end < len(text) && h.end-h.start >= len(n.text) {
		after := text[h.end]
		if sextet[after]&n.right != 0 ||
			text[h.end-1] == '\\' && escapable(after) && c.oddAt(text, h.end) {
			end++
		}
	}
	return start, end
}

// startsBefore reports whether text[held-1] would be taken in by an occurrence
// that begins at held.
func (s *set) startsBefore(text []byte, held int, c lookbehind) bool {
	if held == 0 {
		return false
	}
	before, rest := text[held-1], text[held:]
	if before == '\\' {
		if !c.oddAt(text, held) {
			return false
		}
		if len(rest) == 0 {
			return s.escape
		}
		return escapable(rest[0])
	}
	bit := sextet[before]
	if bit&s.left == 0 {
		return false
	}
	if len(rest) == 0 {
		return true
	}
	for _, l := range s.layers {
		if l.widens(rest, bit) {
			return true
		}
	}
	return false
}

// truncatedFloor is the length from which the beginning of a needle at the end
// of a stream counts as a secret that was cut off, if it is half of it too.
const truncatedFloor = 8

func (s *set) truncated(text []byte, hold int, c lookbehind, buf *scratch) {
	for size := hold; size >= truncatedFloor; size-- {
		start := len(text) - size
		found := false
		for _, l := range s.layers {
			l.continued(text[start:], func(n *needle) bool {
				if size < len(n.text) && 2*size >= len(n.text) && (!n.bound || c.boundaryBefore(text, start)) {
					buf.hits = append(buf.hits, hit{start: start, end: len(text), n: n})
					found = true
				}
				return true
			})
		}
		if found {
			return
		}
	}
}

// releasable reports whether none of the beginnings of needles at the end of
// text would give much away.
func (s *set) releasable(text []byte) bool {
	ok := true
	for i := range text {
		size := len(text) - i
		for _, l := range s.layers {
			l.continued(text[i:], func(n *needle) bool {
				length := len(n.text)
				ok = size <= idleFree && 2*size <= length || size <= idleMost && 4*size <= length && length-size >= idleUnknown
				return ok
			})
			if !ok {
				return false
			}
		}
	}
	return true
}

const (
	idleFree    = 3  // bytes that an idle writer lets go of in any case
	idleMost    = 16 // bytes that it lets go of at most: a quarter of a long value would be much
	idleUnknown = 12 // bytes that must stay unknown when it lets go of more
)

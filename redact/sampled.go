package redact

import (
	"encoding/binary"
	"math/bits"
)

// sampled is the fast engine. If every needle has at least m bytes, any
// occurrence contains a whole gram of q bytes at a text position divisible by
// s = m-q+1. So the grams at s consecutive offsets of each needle go into a
// filter, and one position in s is tested. What passes is looked up in a hash of
// grams and compared in full.
//
// Needles are split into classes by length, each with its own m, q and pass.
// A beginning of a needle at the end of a text is found by the pass when it
// holds a sample that is not before its window. If it does not but has q bytes,
// the last q of the text are one of few grams of the needle: one more sample, at
// the very end, says that there is none. Else it is looked for by bisection in
// the sorted needles.
type sampled struct {
	order
	classes []*class
	loops   []loop
	one     [4]uint64
	two     [1 << 10]uint64 // first two bytes
	// three and four are filters over a hash of the first three and four bytes,
	// each in two bits of a word.
	three, four []uint64
	shift       uint
}

func newSampled(needles []needle) *sampled {
	e := &sampled{order: newOrder(needles)}
	width := max(4, bits.Len(uint(len(needles)))-1)
	e.shift = uint(64 - width)
	e.three, e.four = make([]uint64, 1<<width), make([]uint64, 1<<width)
	groups := [4][]int32{}
	for i := range e.needles {
		t := e.needles[i].text
		e.one[t[0]>>6] |= 1 << (t[0] & 63)
		h := uint32(t[0])<<8 | uint32(t[1])
		e.two[h>>6] |= 1 << (h & 63)
		x := (uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16) * mixA
		e.three[x>>e.shift] |= 1<<(x>>34&63) | 1<<(x>>28&63)
		x = (uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24) * mixA
		e.four[x>>e.shift] |= 1<<(x>>34&63) | 1<<(x>>28&63)
		g := 0
		switch {
		case len(t) >= 18:
			g = 3
		case len(t) >= 10:
			g = 2
		case len(t) >= 6:
			g = 1
		}
		if groups[g] == nil {
			groups[g] = make([]int32, 0, len(e.needles)-i)
		}
		groups[g] = append(groups[g], int32(i))
	}
	for g, indices := range groups {
		if len(indices) > 0 {
			e.classes = append(e.classes, newClass(e.needles, indices, [4]int{3, 3, 4, 5}[g], e.loop))
		}
	}
	return e
}

// loop notes that a needle repeats itself.
func (e *sampled) loop(needle int32) int32 {
	t := e.needles[needle].text
	twin := int(needle)+1 < len(e.needles) && e.needles[needle+1].text == t
	e.loops = append(e.loops, loop{
		needle: needle, fail: borders(t, make([]int32, 0, len(t))),
		alone: !twin && !e.needles[needle].bound,
	})
	return int32(len(e.loops) - 1)
}

// scan implements engine.
func (e *sampled) scan(text []byte, f *found) int {
	hold, from := 0, len(text)
	for _, c := range e.classes {
		if len(text) < c.m {
			from = 0
			continue
		}
		hold = c.pass(e, text, f, hold)
		short := len(text) - c.q + 1
		if c.mayEnd(text) {
			short = (len(text)-c.q)/c.s*c.s - c.back + 1
		}
		from = min(from, short)
	}
	for _, k := range f.live {
		f.runs[k] = run{}
	}
	f.live = f.live[:0]
	return max(hold, e.tail(text, from, hold))
}

// begins implements engine.
func (e *sampled) begins(text []byte) int { return e.tail(text, 0, 0) }

// tail finds the longest beginning of a needle at the end of text that starts
// at from or later. It need not find one that is no longer than known.
func (e *sampled) tail(text []byte, from, known int) int {
	i := max(0, from, len(text)-e.maxLength)
	for ; i < len(text)-max(known, 3); i++ {
		x := uint64(binary.LittleEndian.Uint32(text[i:])) * mixA
		w := e.four[x>>(e.shift&63)]
		if w>>(x>>34&63)&(w>>(x>>28&63))&1 != 0 && e.begin(text[i:]) {
			return len(text) - i
		}
	}
	// Which of the short ones it is cannot be guessed, so nothing branches on the
	// shortest.
	rest, hold := text[min(i, len(text)):], 0
	if k := len(rest); k >= 1 {
		last := rest[k-1]
		hold = int(e.one[last>>6] >> (last & 63) & 1)
		if k >= 2 && e.pair(rest[k-2], last) {
			hold = 2
		}
		if k >= 3 && e.triple(rest[k-3], rest[k-2], last) && e.begin(rest[k-3:]) {
			hold = 3
		}
	}
	return hold
}

// pair reports whether a needle begins with a, b.
func (e *sampled) pair(a, b byte) bool {
	h := uint32(a)<<8 | uint32(b)
	return e.two[h>>6]>>(h&63)&1 != 0
}

// triple reports whether a needle may begin with a, b, c.
func (e *sampled) triple(a, b, c byte) bool {
	x := (uint64(a) | uint64(b)<<8 | uint64(c)<<16) * mixA
	w := e.three[x>>(e.shift&63)]
	return w>>(x>>34&63)&(w>>(x>>28&63))&1 != 0
}

// begin reports whether rest is a proper prefix of a needle, or an open one.
func (e *sampled) begin(rest []byte) bool {
	if e.keys != nil && len(rest) < e.least && len(rest) <= 8 {
		return e.beginsWith(rest)
	}
	after := e.upper(rest)
	if after < len(e.needles) && prefixOf(rest, e.needles[after].text) {
		return true
	}
	for j := after - 1; j >= 0 && e.needles[j].text == string(rest); j-- {
		if e.needles[j].open() {
			return true
		}
	}
	return false
}

func prefixOf(prefix []byte, text string) bool {
	return len(prefix) <= len(text) && text[:len(prefix)] == string(prefix)
}

// pass finds the class's needles in text, and the longest beginning of one at
// its end if that is longer than hold.
func (c *class) pass(e *sampled, text []byte, f *found, hold int) int {
	end := len(text) - c.q
	for p := c.skip(text, 0); p <= end; p = c.skip(text, p) {
		// What is met at one sample is often met at the next.
		for meets := true; meets; meets = p <= end && c.test(c.load(text, p)*mixA) {
			hold = c.meet(e, text, p, c.load(text, p), f, hold)
			p += c.s
		}
	}
	return hold
}

// meet looks at the needles that have gram g, which is at text[p:].
func (c *class) meet(e *sampled, text []byte, p int, g uint64, f *found, hold int) int {
	at, _ := c.slot(g)
	for k := uint32(c.slots[at]); k != 0; k = c.next[k-1] {
		member, offset := c.split(k - 1)
		mb := &c.members[member]
		to := p - int(mb.window)
		if mb.loop >= 0 {
			if to >= 0 {
				hold = e.follow(text, mb.loop, max(0, to-c.s+1), to, f, hold)
			}
			continue
		}
		start := to - offset
		if start < 0 {
			continue
		}
		n := &e.needles[mb.needle]
		rest := text[start:]
		if len(rest) < len(n.text) {
			if len(rest) > hold && n.text[:len(rest)] == string(rest) {
				hold = len(rest)
			}
			continue
		}
		if !equal(rest[:len(n.text)], n.text) {
			continue
		}
		if mb.twins {
			f.hits = e.report(mb.needle, start, f.hits)
		} else {
			f.hits = append(f.hits, hit{start: start, end: start + len(n.text), n: n})
		}
		if len(rest) == len(n.text) && len(rest) > hold && e.open(mb.needle) {
			hold = len(rest)
		}
	}
	return hold
}

// report appends a hit for every needle with the text of this one.
func (e *sampled) report(needle int32, start int, hits []hit) []hit {
	t := e.needles[needle].text
	for j := int(needle); j < len(e.needles) && (j == int(needle) || e.needles[j].text == t); j++ {
		hits = append(hits, hit{start: start, end: start + len(t), n: &e.needles[j]})
	}
	return hits
}

// open reports whether a needle with the text of this one is.
func (e *sampled) open(needle int32) bool {
	t := e.needles[needle].text
	for j := int(needle); j < len(e.needles) && (j == int(needle) || e.needles[j].text == t); j++ {
		if e.needles[j].open() {
			return true
		}
	}
	return false
}

// equal compares. Words at the end and in the middle go first: text that
// repeats a long needle's beginning should fail soon.
func equal(text []byte, n string) bool {
	if size := len(n); size >= 64 {
		if string(text[size-16:]) != n[size-16:] {
			return false
		}
		if half := size / 2; string(text[half:half+16]) != n[half:half+16] {
			return false
		}
	}
	return string(text) == n
}

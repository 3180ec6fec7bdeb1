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
// The beginnings of needles at the end of a text are found by the pass when
// they hold a whole window, else by bisection in the sorted needles.
type sampled struct {
	*sorted
	classes []*class
	reach   int // the pass finds every beginning of a needle at least this long
	one     [4]uint64
	two     [1 << 10]uint64 // first two bytes
	three   [1 << 8]uint64  // hash of the first three
	period  []int32         // shortest period of a needle, or its length
}

// maxWindow bounds how far into a needle its window may begin. It reaches past
// the armour of a PEM key and the header that all keys share.
const maxWindow = 64

// maxSample bounds m: longer windows gain nothing and fill the filter.
const maxSample = 36

func newSampled(needles []needle) *sampled {
	e := &sampled{sorted: newSorted(needles)}
	groups := [4][]int32{}
	for i := range e.needles {
		t := e.needles[i].text
		e.one[t[0]>>6] |= 1 << (t[0] & 63)
		h := pairHash(t[0], t[1])
		e.two[h>>6] |= 1 << (h & 63)
		h = tripleHash(t[0], t[1], t[2])
		e.three[h>>6] |= 1 << (h & 63)
		g := 0
		switch {
		case len(t) >= 18:
			g = 3
		case len(t) >= 10:
			g = 2
		case len(t) >= 6:
			g = 1
		}
		groups[g] = append(groups[g], int32(i))
	}
	e.period = make([]int32, len(e.needles))
	for i := range e.needles {
		e.period[i] = int32(shortestPeriod(e.needles[i].text))
	}
	for g, members := range groups {
		if len(members) > 0 {
			c := newClass(e.needles, members, [4]int{3, 3, 4, 5}[g])
			e.classes = append(e.classes, c)
			e.reach = max(e.reach, c.reach)
		}
	}
	return e
}

func pairHash(a, b byte) uint32 { return uint32(a)<<8 | uint32(b) }

func tripleHash(a, b, c byte) uint32 {
	return (uint32(a)<<16 | uint32(b)<<8 | uint32(c)) * 0x9E3779B1 >> 18
}

// shortestPeriod is the smallest p such that s[i] == s[i+p] throughout. A
// needle that repeats itself occurs at many positions that overlap; with the
// period known, each costs only the bytes that the one before did not cover.
func shortestPeriod(s string) int {
	fail := make([]int32, len(s))
	k := int32(0)
	for i := 1; i < len(s); i++ {
		for k > 0 && s[i] != s[k] {
			k = fail[k-1]
		}
		if s[i] == s[k] {
			k++
		}
		fail[i] = k
	}
	return len(s) - int(k)
}

// class searches for needles of similar length.
type class struct {
	m, q, s int
	lsh     uint // leaves q bytes of an eight-byte load
	reach   int

	// One of these is the first filter, by the number of grams.
	small  *[1 << 15]uint8
	medium *[1 << 12]uint64
	large  *[1 << 16]uint64
	huge   *[1 << 18]uint64

	// slots is an open-addressed hash of grams: tag<<32 | first entry + 1.
	slots     []uint64
	slotShift uint
	entries   []entry
}

// entry is one place of a gram. last ends the list of a gram.
type entry struct {
	needle int32
	offset int32 // of the gram in the needle; negative: ^offset, and the last one
}

const (
	mixA = 0x9E3779B97F4A7C15
	mixB = 0xD6E8FEB86659FD93
)

// load reads the gram at text[p:], which has at least q bytes.
func (c *class) load(text []byte, p int) uint64 {
	if p+8 <= len(text) {
		return binary.LittleEndian.Uint64(text[p:]) << c.lsh
	}
	var b [8]byte
	copy(b[:], text[p:])
	return binary.LittleEndian.Uint64(b[:]) << c.lsh
}

func newClass(needles []needle, members []int32, q int) *class {
	m := maxSample
	for _, i := range members {
		m = min(m, len(needles[i].text))
	}
	q = min(q, m)
	// Chance meetings with text must stay rare, so more grams need longer ones.
	for space := pow62(q); q < min(m, 8) && space < 1000*len(members)*(m-q+1); q++ {
		space *= 62
	}
	c := &class{m: m, q: q, s: m - q + 1, lsh: uint(64 - 8*q)}
	seen := newCounter(len(members) * c.s)
	type placed struct {
		gram  uint64
		entry entry
	}
	places := make([]placed, 0, len(members)*c.s)
	gram := func(t string, o int) uint64 {
		var x uint64
		for k := q - 1; k >= 0; k-- {
			x = x<<8 | uint64(t[o+k])
		}
		return x << c.lsh
	}
	for k, i := range members {
		t := needles[i].text
		if k > 0 && needles[members[k-1]].text == t {
			continue // scan reports all that share a text
		}
		// The window with the fewest grams that other needles have, too, and
		// the fewest that ordinary text may have.
		best, bestCost := 0, -1
		for w := 0; w <= min(len(t)-m, maxWindow); w++ {
			cost := 0
			for o := w; o < w+c.s; o++ {
				cost += 16*seen.count(gram(t, o)) + plainness(t[o:o+q])
				if bestCost >= 0 && cost >= bestCost {
					break
				}
			}
			if bestCost < 0 || cost < bestCost {
				best, bestCost = w, cost
			}
			if bestCost < 16 {
				break
			}
		}
		for o := best + c.s - 1; o >= best; o-- {
			g := gram(t, o)
			seen.add(g)
			places = append(places, placed{g, entry{i, int32(o)}})
		}
		c.reach = max(c.reach, best+m)
	}
	// Lay the places out by gram, each list in the order of places: of one
	// needle the larger offset, which is the earlier occurrence, first.
	next := make([]int32, len(seen.counts))
	total := int32(0)
	for at, n := range seen.counts {
		next[at] = total
		total += n
	}
	c.entries = make([]entry, total)
	for _, p := range places {
		at := seen.slot(p.gram)
		c.entries[next[at]] = p.entry
		next[at]++
	}
	c.slotShift = uint(64 - max(4, bits.Len(uint(len(places)*3/2))))
	c.slots = make([]uint64, 1<<(64-c.slotShift))
	grams := make([]uint64, 0, len(places))
	for i, n := range seen.counts {
		if n == 0 {
			continue
		}
		g := seen.keys[i]
		grams = append(grams, g)
		last := &c.entries[next[i]-1]
		last.offset = ^last.offset
		h := g * mixB
		at := h >> c.slotShift
		for c.slots[at] != 0 {
			at = (at + 1) & uint64(len(c.slots)-1)
		}
		c.slots[at] = tag(h)<<32 | uint64(next[i]-n+1)
	}
	c.fill(grams)
	return c
}

// tag is what a slot keeps of a gram's hash. The low bits of the hash of a
// short gram are zero.
func tag(h uint64) uint64 { return h >> 28 & 0xffffffff }

func pow62(q int) int {
	n := 1
	for range q {
		n *= 62
	}
	return n
}

// plainness is 1 for a gram that ordinary text may well contain.
func plainness(g string) int {
	for i := range len(g) {
		c := g[i]
		if (c < 'a' || c > 'z') && c != ' ' && c != '-' && c != '.' {
			return 0
		}
	}
	return 1
}

// counter counts grams.
type counter struct {
	keys   []uint64
	counts []int32
	shift  uint
}

func newCounter(n int) *counter {
	width := max(4, bits.Len(uint(2*n)))
	return &counter{keys: make([]uint64, 1<<width), counts: make([]int32, 1<<width), shift: uint(64 - width)}
}

func (c *counter) slot(g uint64) int {
	at := g * mixA >> c.shift
	for c.counts[at] != 0 && c.keys[at] != g {
		at = (at + 1) & uint64(len(c.keys)-1)
	}
	return int(at)
}

func (c *counter) count(g uint64) int { return int(c.counts[c.slot(g)]) }

func (c *counter) add(g uint64) {
	at := c.slot(g)
	c.keys[at] = g
	c.counts[at]++
}

// fill makes the first filter: as small as keeps false alarms rare.
func (c *class) fill(grams []uint64) {
	switch n := len(grams); {
	case n <= 400:
		c.small = new([1 << 15]uint8)
	case n <= 4000:
		c.medium = new([1 << 12]uint64)
	case n <= 40000:
		c.large = new([1 << 16]uint64)
	default:
		c.huge = new([1 << 18]uint64)
	}
	for _, g := range grams {
		x := g * mixA
		switch {
		case c.small != nil:
			c.small[x>>49] = 1
		case c.medium != nil:
			c.medium[x>>52] |= 1 << (x >> 46 & 63)
		case c.large != nil:
			c.large[x>>48] |= 1 << (x >> 42 & 63)
		default:
			c.huge[x>>46] |= 1 << (x >> 40 & 63)
		}
	}
}

// scan implements engine.
func (e *sampled) scan(text []byte, hits []hit) ([]hit, int) {
	hold := 0
	for _, c := range e.classes {
		if len(text) >= c.m {
			hits, hold = c.pass(e, text, hits, hold)
		}
	}
	return hits, max(hold, e.tail(text, hold))
}

// tail finds the longest beginning of a needle at the end of text among the
// lengths that the passes may miss, if it is longer than known.
func (e *sampled) tail(text []byte, known int) int {
	for i := max(0, len(text)-e.reach); i < len(text)-known; i++ {
		rest := text[i:]
		switch len(rest) {
		case 1:
			if e.one[rest[0]>>6]&(1<<(rest[0]&63)) != 0 {
				return 1
			}
			return 0
		case 2:
			h := pairHash(rest[0], rest[1])
			if e.two[h>>6]&(1<<(h&63)) != 0 {
				return 2
			}
			continue
		case 3:
			h := tripleHash(rest[0], rest[1], rest[2])
			if e.three[h>>6]&(1<<(h&63)) == 0 {
				continue
			}
		default:
			x := e.hash(binary.LittleEndian.Uint32(rest))
			if e.filter[x>>6]&(1<<(x&63)) == 0 {
				continue
			}
		}
		if len(rest) > e.maxLen {
			continue
		}
		after := e.upper(rest)
		if after < len(e.needles) && prefixOf(rest, e.needles[after].text) {
			return len(rest)
		}
		for j := after - 1; j >= 0 && e.needles[j].text == string(rest); j-- {
			if e.needles[j].open() {
				return len(rest)
			}
		}
	}
	return 0
}

func prefixOf(prefix []byte, text string) bool {
	return len(prefix) <= len(text) && text[:len(prefix)] == string(prefix)
}

// pass finds the class's needles in text, and the longest beginning of one at
// its end if that is longer than hold.
func (c *class) pass(e *sampled, text []byte, hits []hit, hold int) ([]hit, int) {
	lastNeedle, lastStart := int32(-1), 0
	end := len(text) - c.q
	for p := c.next(text, 0); p <= end; p = c.next(text, p+c.s) {
		h := c.load(text, p) * mixB
		at := h >> c.slotShift
		for ; c.slots[at] != 0; at = (at + 1) & uint64(len(c.slots)-1) {
			if c.slots[at]>>32 != tag(h) {
				continue
			}
			for k := int(c.slots[at]&0xffffffff) - 1; ; k++ {
				en := c.entries[k]
				offset := int(en.offset)
				if offset < 0 {
					offset = ^offset
				}
				start := p - offset
				if start >= 0 {
					n := &e.needles[en.needle]
					size := len(n.text)
					switch rest := len(text) - start; {
					case rest < size:
						if rest > hold && n.text[:rest] == string(text[start:]) {
							hold = rest
						}
					default:
						known := 0
						if step := start - lastStart; en.needle == lastNeedle && step > 0 && step < size {
							if period := int(e.period[en.needle]); step == period || uint32(step)%uint32(period) == 0 {
								known = size - step
							}
						}
						if equal(text[start:start+size], n.text, known) {
							lastNeedle, lastStart = en.needle, start
							for j := int(en.needle); j < len(e.needles) && (j == int(en.needle) || e.needles[j].text == n.text); j++ {
								n := &e.needles[j]
								hits = append(hits, hit{start: start, end: start + size, n: n})
								if rest == size && rest > hold && n.open() {
									hold = rest
								}
							}
						}
					}
				}
				if en.offset < 0 {
					break
				}
			}
		}
	}
	return hits, hold
}

// equal compares, from the known-th byte. Words at the end and in the middle go
// first: text that repeats a long needle's beginning should fail soon.
func equal(text []byte, n string, known int) bool {
	if size := len(n); size-known >= 64 {
		if string(text[size-16:]) != n[size-16:] {
			return false
		}
		if half := size / 2; string(text[half:half+16]) != n[half:half+16] {
			return false
		}
	}
	return string(text[known:]) == n[known:]
}

// next returns the first sampled position from p on whose gram may be in the
// class, or one where no whole gram is left.
func (c *class) next(text []byte, p int) int {
	switch {
	case c.small != nil:
		p = c.nextSmall(text, p)
	case c.medium != nil:
		p = c.nextMedium(text, p)
	case c.large != nil:
		p = c.nextLarge(text, p)
	default:
		p = c.nextHuge(text, p)
	}
	for ; p+c.q <= len(text); p += c.s {
		x := c.load(text, p) * mixA
		var found bool
		switch {
		case c.small != nil:
			found = c.small[x>>49] != 0
		case c.medium != nil:
			found = c.medium[x>>52]>>(x>>46&63)&1 != 0
		case c.large != nil:
			found = c.large[x>>48]>>(x>>42&63)&1 != 0
		default:
			found = c.huge[x>>46]>>(x>>40&63)&1 != 0
		}
		if found {
			return p
		}
	}
	return p
}

// The loops below test four samples at a time and stop before the first four of
// which one is in the filter. They differ in their constants, which is what
// spares them a bounds check for each look-up.

func (c *class) nextSmall(text []byte, p int) int {
	t, s, lsh := c.small, c.s, c.lsh&63
	for p+3*s+8 <= len(text) {
		a := binary.LittleEndian.Uint64(text[p:]) << lsh * mixA
		b := binary.LittleEndian.Uint64(text[p+s:]) << lsh * mixA
		d := binary.LittleEndian.Uint64(text[p+2*s:]) << lsh * mixA
		e := binary.LittleEndian.Uint64(text[p+3*s:]) << lsh * mixA
		if t[a>>49]|t[b>>49]|t[d>>49]|t[e>>49] != 0 {
			return p
		}
		p += 4 * s
	}
	return p
}

func (c *class) nextMedium(text []byte, p int) int {
	t, s, lsh := c.medium, c.s, c.lsh&63
	for p+3*s+8 <= len(text) {
		a := binary.LittleEndian.Uint64(text[p:]) << lsh * mixA
		b := binary.LittleEndian.Uint64(text[p+s:]) << lsh * mixA
		d := binary.LittleEndian.Uint64(text[p+2*s:]) << lsh * mixA
		e := binary.LittleEndian.Uint64(text[p+3*s:]) << lsh * mixA
		if (t[a>>52]>>(a>>46&63)|t[b>>52]>>(b>>46&63)|t[d>>52]>>(d>>46&63)|t[e>>52]>>(e>>46&63))&1 != 0 {
			return p
		}
		p += 4 * s
	}
	return p
}

func (c *class) nextLarge(text []byte, p int) int {
	t, s, lsh := c.large, c.s, c.lsh&63
	for p+3*s+8 <= len(text) {
		a := binary.LittleEndian.Uint64(text[p:]) << lsh * mixA
		b := binary.LittleEndian.Uint64(text[p+s:]) << lsh * mixA
		d := binary.LittleEndian.Uint64(text[p+2*s:]) << lsh * mixA
		e := binary.LittleEndian.Uint64(text[p+3*s:]) << lsh * mixA
		if (t[a>>48]>>(a>>42&63)|t[b>>48]>>(b>>42&63)|t[d>>48]>>(d>>42&63)|t[e>>48]>>(e>>42&63))&1 != 0 {
			return p
		}
		p += 4 * s
	}
	return p
}

func (c *class) nextHuge(text []byte, p int) int {
	t, s, lsh := c.huge, c.s, c.lsh&63
	for p+3*s+8 <= len(text) {
		a := binary.LittleEndian.Uint64(text[p:]) << lsh * mixA
		b := binary.LittleEndian.Uint64(text[p+s:]) << lsh * mixA
		d := binary.LittleEndian.Uint64(text[p+2*s:]) << lsh * mixA
		e := binary.LittleEndian.Uint64(text[p+3*s:]) << lsh * mixA
		if (t[a>>46]>>(a>>40&63)|t[b>>46]>>(b>>40&63)|t[d>>46]>>(d>>40&63)|t[e>>46]>>(e>>40&63))&1 != 0 {
			return p
		}
		p += 4 * s
	}
	return p
}

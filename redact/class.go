package redact

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// class searches for needles of similar length.
type class struct {
	m, q, s int
	mask    uint64 // leaves q bytes of an eight-byte load
	back    int    // the window that begins farthest into its needle

	// filter is the first filter: a gram has two bits of one word. Its hash,
	// shifted by filterShift, is the word's number and those of the bits.
	filter      []uint64
	filterShift uint

	// slots is an open-addressed hash of grams: tag<<32 | first place + 1. A
	// place is a member's number times s, plus the number of the gram in its
	// window. next links the places of the same gram, each plus one.
	slots     []uint64
	slotShift uint
	next      []uint32
	members   []member
	inverse   uint64 // 2^36/s, rounded up: see split

	// heads is a filter of the grams before the windows, each in two bits of a
	// word: empty where every window is the beginning of its needle.
	heads     []uint64
	headShift uint
}

// member is a needle of a class.
type member struct {
	needle int32 // the first of those with its text
	window int32 // where its window begins
	loop   int32 // its number among the needles that repeat themselves, or -1
	twins  bool  // other needles have the same text
}

const (
	mixA = 0x9E3779B97F4A7C15
	mixB = 0xD6E8FEB86659FD93
)

// load reads the gram at text[p:], which has at least q bytes.
func (c *class) load(text []byte, p int) uint64 {
	if at := min(p, len(text)-8); at >= 0 {
		return binary.LittleEndian.Uint64(text[at:]) >> (8 * uint(p-at) & 63) & c.mask
	}
	var b [8]byte
	copy(b[:], text[p:])
	return binary.LittleEndian.Uint64(b[:]) & c.mask
}

// gram is load for a needle.
func (c *class) gram(t string, p int) uint64 {
	if p+8 <= len(t) {
		t = t[p : p+8]
		return (uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 |
			uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56) & c.mask
	}
	var x uint64
	for k := c.q - 1; k >= 0; k-- {
		x = x<<8 | uint64(t[p+k])
	}
	return x
}

// maxWindow bounds how far into a needle its window may begin. It reaches past
// the armour of a PEM key and the header that all keys share.
const maxWindow = 64

// maxSample bounds m: longer windows gain nothing and fill the filter.
const maxSample = 36

// newClass compiles the given needles, in their order. Those that repeat
// themselves are handed to loop, which numbers them.
func newClass(needles []needle, indices []int32, q int, loop func(needle int32) int32) *class {
	m := maxSample
	for _, i := range indices {
		m = min(m, len(needles[i].text))
	}
	q = min(q, m)
	// Chance meetings with text must stay rare, so more grams need longer ones.
	for space := pow62(q); q < min(m, 8) && space < 1000*len(indices)*(m-q+1); q++ {
		space *= 62
	}
	c := &class{m: m, q: q, s: m - q + 1, mask: 1<<(8*q) - 1}
	c.inverse = (1<<36 + uint64(c.s) - 1) / uint64(c.s)
	c.members = make([]member, 0, len(indices))
	for k, i := range indices {
		if k > 0 && needles[indices[k-1]].text == needles[i].text {
			c.members[len(c.members)-1].twins = true
			continue
		}
		c.members = append(c.members, member{needle: i, loop: -1})
	}
	places := len(c.members) * c.s
	width := 18
	switch {
	case places <= 400:
		width = 10
	case places <= 4000:
		width = 12
	case places <= 40000:
		width = 14
	case places <= 200000:
		width = 16
	}
	c.filter, c.filterShift = make([]uint64, 1<<width), uint(64-12-width)
	c.slotShift = uint(64 - max(4, bits.Len(uint(places*5/4))))
	c.slots = make([]uint64, 1<<(64-c.slotShift))
	c.next = make([]uint32, places)
	grams := make([]uint64, 0, maxSample)
	for k := range c.members {
		mb := &c.members[k]
		t := needles[mb.needle].text
		mb.window = int32(c.choose(needles, mb.needle))
		grams = grams[:0]
		for o := range c.s {
			if g := c.gram(t, int(mb.window)+o); !slices.Contains(grams, g) {
				grams = append(grams, g)
			}
		}
		if 4*len(grams) <= c.s || len(t) >= longLoop && shortestPeriod(t) <= len(t)/longLoop {
			mb.loop = loop(mb.needle)
			for o, g := range grams {
				c.link(g, uint32(k*c.s+o))
			}
		} else {
			for o := range c.s {
				c.link(c.gram(t, int(mb.window)+o), uint32(k*c.s+o))
			}
		}
		c.back = max(c.back, int(mb.window))
	}
	c.addHeads(needles)
	return c
}

// addHeads fills heads.
func (c *class) addHeads(needles []needle) {
	n := 0
	for k := range c.members {
		n += int(c.members[k].window)
	}
	if n == 0 {
		return
	}
	width := max(4, bits.Len(uint(n))-2)
	c.heads, c.headShift = make([]uint64, 1<<width), uint(64-width)
	for k := range c.members {
		t := needles[c.members[k].needle].text
		for o := range int(c.members[k].window) {
			x := c.gram(t, o) * mixA
			c.heads[x>>c.headShift] |= 1<<(x>>28&63) | 1<<(x>>34&63)
		}
	}
}

// mayEnd reports whether text, of at least q bytes, may end in the beginning of a
// needle that has at least q bytes and that a pass does not find: then its last
// gram is one of the needle's window, or one before it.
func (c *class) mayEnd(text []byte) bool {
	x := c.load(text, len(text)-c.q) * mixA
	if c.test(x) {
		return true
	}
	if len(c.heads) == 0 {
		return false
	}
	w := c.heads[x>>(c.headShift&63)]
	return w>>(x>>28&63)&(w>>(x>>34&63))&1 != 0
}

// split takes a place apart: place/s and place%s, for places below 2^30. A
// division would take longer than all else that is done with one.
func (c *class) split(place uint32) (member, offset int) {
	m := uint64(place) * c.inverse >> 36
	return int(m), int(uint64(place) - m*uint64(c.s))
}

// choose returns where the window of a needle should begin: where it has the
// fewest grams that other secrets have, too, and that ordinary text may have.
// Forms of one secret share most of theirs, which is no harm: text that has
// them is rare.
func (c *class) choose(needles []needle, i int32) int {
	t, id := needles[i].text, needles[i].name
	var costs [maxWindow + maxSample]int
	price := func(o int) int {
		costs[o] = 16*c.shared(needles, c.gram(t, o), id) + plainness(t[o:o+c.q])
		return costs[o]
	}
	cost := 0
	for o := range c.s {
		cost += price(o)
	}
	best, bestCost := 0, cost
	for w := 1; w <= min(len(t)-c.m, maxWindow) && bestCost >= 16; w++ {
		cost += price(w+c.s-1) - costs[w-1]
		if cost < bestCost {
			best, bestCost = w, cost
		}
	}
	return best
}

// slot is where gram g is, or would be.
func (c *class) slot(g uint64) (at, tag uint64) {
	h := g * mixB
	at, tag = h>>c.slotShift, gramTag(h)
	for c.slots[at] != 0 && c.slots[at]>>32 != tag {
		at = (at + 1) & uint64(len(c.slots)-1)
	}
	return at, tag
}

// gramTag is what a slot keeps of a gram's hash. The low bits of a hash depend on
// few bytes of the gram. Grams that share a tag share a list, which costs
// comparisons and nothing else.
func gramTag(h uint64) uint64 { return h >> 28 & 0xffffffff }

// shared counts the places of gram g in other secrets, among up to eight.
func (c *class) shared(needles []needle, g uint64, id *name) int {
	if !c.test(g * mixA) {
		return 0
	}
	at, _ := c.slot(g)
	n := 0
	for k, left := uint32(c.slots[at]), 8; k != 0 && left > 0; k, left = c.next[k-1], left-1 {
		if member, _ := c.split(k - 1); needles[c.members[member].needle].name != id {
			n++
		}
	}
	return n
}

// link adds a place to the list of gram g.
func (c *class) link(g uint64, place uint32) {
	at, tag := c.slot(g)
	c.next[place] = uint32(c.slots[at])
	c.slots[at] = tag<<32 | uint64(place+1)
	x := g * mixA
	y := x >> c.filterShift
	c.filter[y>>12] |= 1<<(y>>6&63) | 1<<(y&63)
}

// test asks the filter for a hash.
func (c *class) test(x uint64) bool {
	y := x >> (c.filterShift & 63)
	w := c.filter[y>>12]
	return w>>(y>>6&63)&(w>>(y&63))&1 != 0
}

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

// skip returns the first sampled position from p on that may be in the class, or
// one that is too near the end of text for a gram.
func (c *class) skip(text []byte, p int) int {
	switch len(c.filter) {
	case 1 << 10:
		p = next((*[1 << 10]uint64)(c.filter), text, p, c.s, c.mask)
	case 1 << 12:
		p = next((*[1 << 12]uint64)(c.filter), text, p, c.s, c.mask)
	case 1 << 14:
		p = next((*[1 << 14]uint64)(c.filter), text, p, c.s, c.mask)
	case 1 << 16:
		p = next((*[1 << 16]uint64)(c.filter), text, p, c.s, c.mask)
	default:
		p = next((*[1 << 18]uint64)(c.filter), text, p, c.s, c.mask)
	}
	for ; p+c.q <= len(text) && !c.test(c.load(text, p)*mixA); p += c.s {
	}
	return p
}

// next is skip for positions with s+8 bytes after them, and for a filter of a length
// that is known at compile time, so that no look-up in it is checked. It tests two
// samples at a time, from slices of one length, so that one check does for both.
func next[F [1 << 10]uint64 | [1 << 12]uint64 | [1 << 14]uint64 | [1 << 16]uint64 | [1 << 18]uint64](
	t *F, text []byte, p, s int, mask uint64,
) int {
	shift := uint(64 - bits.TrailingZeros(uint(len(*t))))
	size := len(text) - s
	if size < 8 {
		return p
	}
	even, odd := text[:size:size], text[s:][:size:size]
	for p >= 0 && p < size-7 {
		a := binary.LittleEndian.Uint64(even[p:p+8:p+8]) & mask * mixA
		b := binary.LittleEndian.Uint64(odd[p:p+8:p+8]) & mask * mixA
		wa, wb := (*t)[a>>shift], (*t)[b>>shift]
		// The first bit of a gram is mostly missing, so the second costs nothing.
		if wa>>(a>>(shift-6)&63)&1 != 0 && wa>>(a>>(shift-12)&63)&1 != 0 {
			return p
		}
		if wb>>(b>>(shift-6)&63)&1 != 0 && wb>>(b>>(shift-12)&63)&1 != 0 {
			return p + s
		}
		p += 2 * s
	}
	return p
}

package redact

import (
	"slices"
	"strings"
)

// order holds needles in byte order, for bisection.
type order struct {
	needles   []needle
	least     int         // length of the shortest needle
	maxLength int         // and of the longest
	first     *[257]int32 // first[b] is the first needle that begins with b or more; nil for few
	keys      []uint64    // the first bytes of each needle, see keyOf; nil for few
}

// manyNeedles is from how many on an index is worth its memory.
const manyNeedles = 256

func newOrder(needles []needle) order {
	o := order{needles: slices.Clone(needles)}
	slices.SortFunc(o.needles, func(a, b needle) int {
		if c := strings.Compare(a.text, b.text); c != 0 {
			return c
		}
		return strings.Compare(a.name.text, b.name.text)
	})
	for i := range o.needles {
		size := len(o.needles[i].text)
		o.maxLength = max(o.maxLength, size)
		if i == 0 || size < o.least {
			o.least = size
		}
	}
	if len(o.needles) >= manyNeedles {
		o.index()
	}
	return o
}

// index makes what only many needles are worth.
func (o *order) index() {
	o.first = new([257]int32)
	b := 0
	for i := range o.needles {
		for ; b <= int(o.needles[i].text[0]); b++ {
			o.first[b] = int32(i)
		}
	}
	for ; b < len(o.first); b++ {
		o.first[b] = int32(len(o.needles))
	}
	o.keys = make([]uint64, len(o.needles))
	for i := range o.needles {
		o.keys[i] = keyOf(o.needles[i].text)
	}
}

func (o *order) longest() int  { return o.maxLength }
func (o *order) shortest() int { return o.least }
func (o *order) size() int     { return len(o.needles) }

// upper returns the index of the first needle that sorts after text, where a
// needle that has text as a proper prefix counts as after it.
func (o *order) upper(text []byte) int {
	lo, hi := 0, len(o.needles)
	if o.first != nil && len(text) > 0 {
		lo, hi = int(o.first[text[0]]), int(o.first[int(text[0])+1])
	}
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if o.needles[mid].text > string(text) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// keyOf is up to eight bytes of text as a number that sorts as they do; what is
// missing counts as zero.
func keyOf[T string | []byte](text T) uint64 {
	var key uint64
	for i := range min(len(text), 8) {
		key |= uint64(text[i]) << (56 - 8*i)
	}
	return key
}

// beginsWith reports whether prefix, of one to eight bytes and shorter than every
// needle, begins one. It looks at keys alone, which lie side by side.
func (o *order) beginsWith(prefix []byte) bool {
	least := keyOf(prefix)
	lo, hi := int(o.first[prefix[0]]), int(o.first[int(prefix[0])+1])
	end := hi
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if o.keys[mid] >= least {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo < end && (o.keys[lo]^least)>>(64-8*uint(len(prefix))) == 0
}

func hasPrefix(text []byte, prefix string) bool {
	return len(text) >= len(prefix) && string(text[:len(prefix)]) == prefix
}

func (o *order) continued(prefix []byte, yield func(*needle) bool) {
	after := o.upper(prefix)
	for j := after - 1; j >= 0 && o.needles[j].text == string(prefix); j-- {
		if o.needles[j].open() && !yield(&o.needles[j]) {
			return
		}
	}
	for j := after; j < len(o.needles) && strings.HasPrefix(o.needles[j].text, string(prefix)); j++ {
		if !yield(&o.needles[j]) {
			return
		}
	}
}

func (o *order) widens(prefix []byte, bit uint64) bool {
	after := o.upper(prefix)
	for j := after - 1; j >= 0 && o.needles[j].text == string(prefix); j-- {
		if o.needles[j].open() && o.needles[j].left&bit != 0 {
			return true
		}
	}
	for j := after; j < len(o.needles) && strings.HasPrefix(o.needles[j].text, string(prefix)); j++ {
		if o.needles[j].left&bit != 0 {
			return true
		}
	}
	return false
}

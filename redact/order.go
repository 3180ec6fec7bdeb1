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
}

// manyNeedles is from how many on an index of first bytes is worth its memory.
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
	}
	return o
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

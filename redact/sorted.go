package redact

import (
	"encoding/binary"
	"math/bits"
	"strings"
)

// sorted is the simple engine: needles in byte order, searched by bisection at
// each position that a filter on the first four bytes lets through.
type sorted struct {
	order
	// parent is the index of the longest other needle that is a prefix of this
	// one, or -1. All needles that are prefixes of a text lie on one chain.
	parent []int32
	filter []uint64 // bitmap over a hash of four bytes
	shift  uint
}

func newSorted(needles []needle) *sorted {
	s := &sorted{order: newOrder(needles)}
	width := max(10, bits.Len(uint(len(needles)))+6)
	s.filter = make([]uint64, 1<<(width-6))
	s.shift = uint(32 - width)
	s.parent = make([]int32, len(s.needles))
	for i := range s.needles {
		t := s.needles[i].text
		x := s.hash(binary.LittleEndian.Uint32([]byte(t[:shortFloor])))
		s.filter[x>>6] |= 1 << (x & 63)
		p := int32(i - 1)
		for p >= 0 && !strings.HasPrefix(t, s.needles[p].text) {
			p = s.parent[p]
		}
		s.parent[i] = p
	}
	return s
}

func (s *sorted) hash(first uint32) uint32 { return first * 0x9E3779B1 >> s.shift }

func (s *sorted) scan(text []byte, f *found) int {
	hold := 0
	for i := range text {
		rest := text[i:]
		if len(rest) >= shortFloor {
			x := s.hash(binary.LittleEndian.Uint32(rest))
			if s.filter[x>>6]&(1<<(x&63)) == 0 {
				continue
			}
		} else if hold > 0 {
			break
		}
		if len(rest) > s.maxLength {
			rest = rest[:s.maxLength]
		}
		after := s.upper(rest)
		for j := int32(after - 1); j >= 0; j = s.parent[j] {
			n := &s.needles[j]
			if hasPrefix(rest, n.text) {
				f.hits = append(f.hits, hit{start: i, end: i + len(n.text), n: n})
				if hold == 0 && len(n.text) == len(text)-i && n.open() {
					hold = len(text) - i
				}
			}
		}
		if hold == 0 && i+len(rest) == len(text) && after < len(s.needles) && strings.HasPrefix(s.needles[after].text, string(rest)) {
			hold = len(rest)
		}
	}
	return hold
}

func (s *sorted) begins(text []byte) int { return s.scan(text, nil) }

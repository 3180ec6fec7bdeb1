package redact

import (
	"bytes"
	"encoding/binary"
)

// A needle that repeats itself may occur, or nearly occur, at every position of
// a text that repeats itself, too. Comparing at each would take time in the
// product of the lengths, so such a needle is followed byte by byte, as Knuth,
// Morris and Pratt do, from where a sample met it for as long as it goes on.

// longLoop is how often a needle repeats itself as a whole when it counts as
// one that does although its window does not.
const longLoop = 64

// loop is a needle that repeats itself.
type loop struct {
	needle int32
	fail   []int32 // fail[i] is the longest proper border of text[:i+1]
	alone  bool    // occurrences that overlap can be reported as one hit
}

// run is how far a loop was followed: text[pos-matched:pos] is the longest
// suffix there that is a proper prefix of the needle. All occurrences that
// start earlier were reported.
type run struct {
	pos, matched int
	last         int // number of its last hit, plus one
}

func borders(s string, fail []int32) []int32 {
	fail = append(fail[:0], 0)
	k := int32(0)
	for i := 1; i < len(s); i++ {
		for k > 0 && s[i] != s[k] {
			k = fail[k-1]
		}
		if s[i] == s[k] {
			k++
		}
		fail = append(fail, k)
	}
	return fail
}

// shortestPeriod is the smallest p such that s[i] == s[i+p] throughout.
func shortestPeriod(s string) int {
	fail := borders(s, make([]int32, 0, len(s)))
	return len(s) - int(fail[len(s)-1])
}

// follow reports every occurrence of loop k that starts in [from, to] and was
// not reported before. hold is as in scan.
func (e *sampled) follow(text []byte, k int32, from, to int, f *found, hold int) int {
	for len(f.runs) < len(e.loops) {
		f.runs = append(f.runs, run{})
	}
	r := &f.runs[k]
	if r.pos == 0 {
		f.live = append(f.live, k)
	}
	pos, matched := r.pos, r.matched
	if pos < from {
		pos, matched = from, 0
	}
	l := &e.loops[k]
	n := e.needles[l.needle].text
	first := n[0]
	for pos < len(text) && pos-matched <= to {
		if matched == 0 {
			skip := bytes.IndexByte(text[pos:to+1], first)
			if skip < 0 {
				pos = to + 1
				break
			}
			pos += skip
		}
		c := text[pos]
		if matched > 0 && n[matched] != c {
			// Where the text goes on as what matched repeats itself, each
			// period leads back to this same mismatch.
			if period := matched - int(l.fail[matched-1]); 4*period <= matched {
				if k := repeats(text[pos-period:], period); k > 0 {
					pos += k
					continue
				}
			}
			for matched > 0 && n[matched] != c {
				matched = int(l.fail[matched-1])
			}
		}
		if matched > 0 || c == first {
			matched++
		}
		pos++
		if matched < len(n) {
			continue
		}
		period := matched - int(l.fail[matched-1])
		if !l.alone {
			f.hits = e.report(l.needle, pos-matched, f.hits)
		} else {
			if last := r.last - 1; last >= 0 && pos-matched < f.hits[last].end {
				f.hits[last].end = pos
			} else {
				f.hits = append(f.hits, hit{start: pos - matched, end: pos, n: &e.needles[l.needle]})
				r.last = len(f.hits)
			}
			// Likewise, each period ends in another occurrence.
			if 4*period <= matched {
				pos += repeats(text[pos-period:], period)
				f.hits[r.last-1].end = pos
			}
		}
		if pos == len(text) && e.open(l.needle) {
			hold = max(hold, matched)
		}
		matched -= period
	}
	if pos == len(text) {
		hold = max(hold, matched)
	}
	r.pos, r.matched = pos, matched
	return hold
}

// repeats returns for how many bytes, in whole periods, text repeats its first
// period bytes.
func repeats(text []byte, period int) int {
	a, b := text, text[period:]
	k := 0
	for k+8 <= len(b) && binary.LittleEndian.Uint64(a[k:]) == binary.LittleEndian.Uint64(b[k:]) {
		k += 8
	}
	for k < len(b) && a[k] == b[k] {
		k++
	}
	return k - k%period
}

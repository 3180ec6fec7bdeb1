package redact

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
		c := text[pos]
		for matched > 0 && n[matched] != c {
			matched = int(l.fail[matched-1])
		}
		if matched > 0 || c == first {
			matched++
		}
		pos++
		if matched == len(n) {
			if last := r.last - 1; l.alone && last >= 0 && pos-matched < f.hits[last].end {
				f.hits[last].end = pos
			} else {
				f.hits = e.report(l.needle, pos-matched, f.hits)
				r.last = len(f.hits)
			}
			if pos == len(text) && e.open(l.needle) {
				hold = max(hold, matched)
			}
			matched = int(l.fail[matched-1])
		}
	}
	if pos == len(text) {
		hold = max(hold, matched)
	}
	r.pos, r.matched = pos, matched
	return hold
}

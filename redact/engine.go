package redact

// needle is one byte string to search for. Needles are immutable.
//
// An occurrence is widened by a base64 character beside it that carries bits of
// the value: left and right hold the six-bit values that such a character can
// have (0 where the form has none). It is also widened by a backslash before
// it, or by the character after its own last backslash, when leaving that
// behind would leave half of an escape sequence.
type needle struct {
	text        string
	name        *name
	left, right uint64
	bound       bool // counts only where no letter or digit stands beside it
}

// open reports whether a whole needle at the end of the text is undecided until
// the next byte is known.
func (n *needle) open() bool {
	return n.bound || n.right != 0 || n.text[len(n.text)-1] == '\\'
}

// hit is an occurrence of a needle's text, before widening; or a chain of
// occurrences of one needle without boundaries of which each overlaps the next;
// or, at the end of a stream, the beginning of a needle.
type hit struct {
	start, end int
	n          *needle
}

// found is what a scan finds, and memory that scans reuse. A scan leaves runs
// all zero.
type found struct {
	hits []hit
	runs []run // of the needles that repeat themselves
	live []int32
}

// engine finds needles. It is the seam behind which the search can be replaced:
// everything about widening, boundaries, merging and streams is outside it. An
// engine is immutable and safe for concurrent use.
type engine interface {
	// scan appends to f a hit for every occurrence of every needle in text, in
	// any order, or one for a chain of them. It returns the length of the longest suffix of text that is a
	// proper prefix of a needle, or a whole needle that is open.
	scan(text []byte, f *found) (hold int)
	// begins is scan for a text that is shorter than every needle.
	begins(text []byte) (hold int)
	// continued yields every needle of which prefix is a proper prefix, and
	// every open one that equals it, until yield returns false.
	continued(prefix []byte, yield func(*needle) bool)
	// widens reports whether continued yields a needle that has bit in left.
	widens(prefix []byte, bit uint64) bool
	// shortest and longest are the lengths of the shortest and longest needle.
	shortest() int
	longest() int
	// size is the number of needles.
	size() int
}

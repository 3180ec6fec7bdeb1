package redact

import "encoding/binary"

// stream is the state of one redacted byte stream. It is not safe for
// concurrent use.
type stream struct {
	sh *shared
	// carry holds the last bytes of the input: the longest beginning of a
	// needle that the input ends in. carry[:out] has been accounted for in the
	// output, as it is or by a marker; covered says that the last thing written
	// was a marker which masks the bytes up to out.
	carry   []byte
	out     int
	covered bool
	before  lookbehind // of carry
	hits    map[*name]int64
	buf     scratch
	text    []byte // carry and new input joined
	output  []byte
}

// next takes in p and returns what may be written now. The result is valid
// until the next call and may be p itself.
func (st *stream) next(p []byte, e end) []byte {
	set := st.sh.set.Load()
	if set.narrow && st.sh.widen(len(p)) {
		set = st.sh.set.Load()
	}
	if e == more && st.out == 0 && len(st.carry)+len(p) < set.least {
		if len(p) == 1 && len(st.carry) < 3 {
			return st.single(set, p)
		}
		return st.tiny(set, p)
	}
	text := p
	if len(st.carry) > 0 {
		text = st.join(p)
	}
	spans, held := set.resolve(text, st.before, e, &st.buf)
	limit := held
	if e != more {
		limit = len(text)
	}
	out := st.emit(text, spans, limit)
	if e == eof {
		held = len(text)
	}
	st.keep(text, held)
	return out
}

// few is how many carried bytes are moved as one word, whatever their number:
// that cannot be guessed, and a call of memmove would branch on it.
const few = 8

// join returns carry and p in one piece.
func (st *stream) join(p []byte) []byte {
	k := len(st.carry)
	if k > few || cap(st.carry) < few || cap(st.text) < few {
		st.text = append(append(st.text[:0], st.carry...), p...)
		return st.text
	}
	head := st.text[:few]
	binary.LittleEndian.PutUint64(head, binary.LittleEndian.Uint64(st.carry[:few]))
	st.text = append(head[:k], p...)
	return st.text
}

// single is tiny for one byte after less than three: what a program that writes
// byte by byte mostly gives.
func (st *stream) single(set *set, p []byte) []byte {
	b := p[0]
	k := len(st.carry)
	if k == 0 {
		switch set.first[b] {
		case 0: // begins nothing, and nothing could take it in
			st.before = lookbehind{prev: b, any: true, escaped: st.before.odd}
			return p
		case firstBegins:
			st.carry = append(st.carry, b)
			return nil
		}
		return st.tiny(set, p)
	}
	only := set.only
	if only == nil {
		return st.tiny(set, p)
	}
	a, last := st.carry[0], st.carry[k-1]
	if (set.first[a]|set.first[last]|set.first[b])&firstWidens != 0 || k == 2 && only.triple(a, last, b) {
		return st.tiny(set, p)
	}
	out := append(st.output[:0], a)
	if k == 2 {
		out = append(out, last)
	}
	st.output = out
	switch {
	case only.pair(last, b): // a two-byte beginning stays, what is before it goes
		if k == 1 {
			st.carry = append(st.carry, b)
			return nil
		}
		out = out[:1]
		st.carry[0], st.carry[1] = last, b
	case set.first[b] != 0:
		st.carry[0], st.carry = b, st.carry[:1]
	default:
		out = append(out, b)
		st.output, st.carry = out, st.carry[:0]
		st.before = lookbehind{prev: b, any: true}
		return out
	}
	st.before = lookbehind{prev: out[len(out)-1], any: true, escaped: len(out) == 1 && st.before.odd}
	return out
}

// tiny is next where carry and p are shorter than every needle together: all of
// it is written, but for the beginning of a needle at its end.
func (st *stream) tiny(set *set, p []byte) []byte {
	st.carry = appendFew(st.carry, p)
	text := st.carry
	hold := 0
	for _, l := range set.layers {
		hold = max(hold, l.begins(text))
	}
	held := len(text) - hold
	if held == 0 {
		return nil
	}
	if before := text[held-1]; (before == '\\' || sextet[before]&set.left != 0) && set.startsBefore(text, held, st.before) {
		if held--; held == 0 {
			return nil
		}
	}
	st.before = st.before.at(text, held)
	st.output = appendFew(st.output[:0], text[:held])
	st.carry = appendFew(text[:0], text[held:])
	return st.output
}

// appendFew is append for a few bytes, for which a call of memmove costs more
// than a loop. src may be a later part of dst.
func appendFew(dst, src []byte) []byte {
	for i := range src { //nolint:staticcheck // S1011 would bring back the call
		dst = append(dst, src[i])
	}
	return dst
}

// emit brings the output up to text[:limit]. A span that begins before limit is
// masked whole; the part of it that was written before stays as it was.
func (st *stream) emit(text []byte, spans []span, limit int) []byte {
	if len(spans) == 0 || spans[0].start >= limit {
		if st.out >= limit {
			return nil
		}
		plain := text[st.out:limit]
		st.out, st.covered = limit, false
		return plain
	}
	st.output = st.output[:0]
	for _, sp := range spans {
		if sp.start >= limit {
			break
		}
		if sp.start > st.out {
			st.output = append(st.output, text[st.out:sp.start]...)
			st.out, st.covered = sp.start, false
		}
		if sp.end > st.out {
			// A span that reaches back under a marker extends what that masks.
			if !st.covered || sp.start >= st.out {
				st.mark(sp.n)
			}
			st.out, st.covered = sp.end, true
		}
	}
	if st.out < limit {
		st.output = append(st.output, text[st.out:limit]...)
		st.out, st.covered = limit, false
	}
	return st.output
}

func (st *stream) mark(n *name) {
	st.output = append(st.output, n.mark()...)
	n.hits.Add(1)
	if st.hits == nil {
		st.hits = map[*name]int64{}
	}
	st.hits[n]++
}

// counts returns the markers written so far, by name.
func (st *stream) counts() map[string]int64 {
	out := make(map[string]int64, len(st.hits))
	for n, hits := range st.hits {
		out[n.text] = hits
	}
	return out
}

// keep makes text[held:] the carry.
func (st *stream) keep(text []byte, held int) {
	st.out -= held
	if held == 0 {
		if len(text) > len(st.carry) {
			st.carry = append(st.carry, text[len(st.carry):]...)
		}
		return
	}
	st.before = st.before.at(text, held)
	k := len(text) - held
	if k > few || cap(st.carry) < few || len(text) < few {
		st.carry = append(st.carry[:0], text[held:]...)
		return
	}
	all := st.carry[:few]
	binary.LittleEndian.PutUint64(all, binary.LittleEndian.Uint64(text[len(text)-few:])>>(64-8*uint(k)))
	st.carry = all[:k]
}

// idle is called when no data has come for a while. It lets go of held bytes
// that give too little away, and of finished markers. What it let go stays in
// the carry, so that an occurrence which completes later is masked from there.
func (st *stream) idle() []byte {
	if st.out >= len(st.carry) {
		return nil
	}
	set := st.sh.set.Load()
	spans, _ := set.resolve(st.carry, st.before, more, &st.buf)
	if set.releasable(st.carry) {
		return st.emit(st.carry, spans, len(st.carry))
	}
	limit := st.out
	for _, sp := range spans {
		if sp.start > limit {
			break
		}
		limit = max(limit, sp.end)
	}
	if limit == st.out {
		return nil
	}
	return st.emit(st.carry, spans, limit)
}

package redact

import (
	"maps"
	"slices"
	"sync"
)

// whole is memory for redacting one whole text.
type whole struct {
	buf  scratch
	text []byte
}

var wholes = sync.Pool{New: func() any { return new(whole) }}

func (w *whole) release() {
	clear(w.text)
	clear(w.buf.hits)
	clear(w.buf.spans)
	if cap(w.text) > 1<<20 {
		w.text = nil
	}
	if cap(w.buf.hits) > 1<<14 {
		w.buf = scratch{}
	}
	w.text = w.text[:0]
	wholes.Put(w)
}

// each calls span for everything to mask in src, in order, and reports whether
// there was anything.
func (r *Redactor) each(w *whole, src []byte) []span {
	sh := r.core()
	set := sh.set.Load()
	if set.narrow && sh.widen(len(src)) {
		set = sh.set.Load()
	}
	spans, _ := set.resolve(src, lookbehind{}, eof, &w.buf)
	return spans
}

func appendMasked(dst, src []byte, spans []span, hits Hits) []byte {
	pos := 0
	for _, sp := range spans {
		dst = append(dst, src[pos:sp.start]...)
		dst = append(dst, sp.n.mark()...)
		sp.n.hits.Add(1)
		if hits != nil {
			hits[sp.n.text]++
		}
		pos = sp.end
	}
	return append(dst, src[pos:]...)
}

// Append appends the masked form of src, taken as a whole stream, to dst. It
// allocates nothing when nothing is masked and dst has room.
func (r *Redactor) Append(dst, src []byte) []byte {
	w := wholes.Get().(*whole)
	defer w.release()
	return appendMasked(dst, src, r.each(w, src), nil)
}

// Bytes returns the masked form of b, taken as a whole stream, and the markers
// in it by name: b itself and nil when nothing is masked.
func (r *Redactor) Bytes(b []byte) ([]byte, Hits) {
	w := wholes.Get().(*whole)
	defer w.release()
	spans := r.each(w, b)
	if len(spans) == 0 {
		return b, nil
	}
	hits := Hits{}
	return appendMasked(make([]byte, 0, len(b)+64), b, spans, hits), hits
}

// String returns the masked form of s, taken as a whole stream: s itself when
// nothing is masked.
func (r *Redactor) String(s string) string {
	w := wholes.Get().(*whole)
	defer w.release()
	w.text = append(w.text[:0], s...)
	spans := r.each(w, w.text)
	if len(spans) == 0 {
		return s
	}
	return string(appendMasked(make([]byte, 0, len(s)+64), w.text, spans, nil))
}

// Contains returns the sorted names of the secrets that Bytes would mask in b:
// none means that b is clean. It counts no hits.
func (r *Redactor) Contains(b []byte) []string {
	w := wholes.Get().(*whole)
	defer w.release()
	spans := r.each(w, b)
	if len(spans) == 0 {
		return nil
	}
	found := map[string]bool{}
	for _, sp := range spans {
		found[sp.n.text] = true
	}
	return slices.Sorted(maps.Keys(found))
}

package host

import (
	"fmt"
	"unicode/utf8"
)

// truncate returns a stream of total bytes, of which head and tail were kept, in
// at most limit bytes: the beginning and the end around a marker with the exact
// number of bytes left out. A limit of 0 or less, or one that is not exceeded,
// changes nothing. A limit too small for the marker keeps the beginning alone.
func truncate(head, tail []byte, total, limit int64) ([]byte, bool) {
	if kept := int64(len(head) + len(tail)); kept == total && (limit <= 0 || total <= limit) {
		return append(append(make([]byte, 0, total), head...), tail...), false
	}
	whole := head
	if int64(len(head)+len(tail)) == total {
		// Everything is there; the cuts may fall anywhere.
		whole = append(append(make([]byte, 0, total), head...), tail...)
		tail = whole
	}
	// The marker's length depends on the number in it, which depends on the
	// marker's length; the longest number is that of all bytes.
	room := limit - int64(len(omitted(total)))
	if room <= 0 {
		b := whole[:min(int64(len(whole)), max(limit, 0))]
		return append([]byte(nil), cutRune(b)...), true
	}
	first := whole[:min(int64(len(whole)), room-room/2)]
	last := tail[max(0, int64(len(tail))-room/2):]
	first, last = cutRune(first), skipRune(last)
	out := append([]byte(nil), first...)
	out = append(out, omitted(total-int64(len(first)+len(last)))...)
	return append(out, last...), true
}

func omitted(n int64) string { return fmt.Sprintf("\n[... %d bytes left out ...]\n", n) }

// cutRune drops a character that was cut off at the end.
func cutRune(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		c := b[len(b)-i]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			return b
		}
	}
	return b
}

// skipRune drops the rest of a character that was cut off at the beginning.
func skipRune(b []byte) []byte {
	for i := 0; i < utf8.UTFMax && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

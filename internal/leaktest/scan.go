package leaktest

import (
	"encoding/binary"
	"fmt"
	"sort"
	"testing"
)

// Hit is one canary found. It does not hold the value.
type Hit struct {
	Canary string // its name
	Form   string // its Form.Kind; "part of" when it was a piece of a long form
	Where  string
	Offset int
}

// String describes the hit.
func (h Hit) String() string {
	return fmt.Sprintf("%s as %s in %s at byte %d", h.Canary, h.Form, h.Where, h.Offset)
}

// piece is the length of the pieces by which a long form is looked for too, so
// that a value cut short is still seen.
const piece = 32

type needle struct {
	canary, form, text string
}

// Scanner knows the forms of some canaries. Making one costs time for long
// values; it may be used many times, also concurrently.
type Scanner struct{ needles *needles }

// NewScanner returns a Scanner for the canaries.
func NewScanner(canaries []Canary) Scanner { return Scanner{compile(canaries)} }

// needles are the forms of all canaries, by their first eight bytes.
type needles struct {
	by     map[uint64][]needle
	filter [1 << 13]uint64 // 2^19 bits over a hash of the key
}

func bit(key uint64) (word, mask uint64) {
	h := key * 0x9E3779B97F4A7C15 >> 45
	return h >> 6, 1 << (h & 63)
}

func (n *needles) add(nd needle) {
	key := binary.LittleEndian.Uint64([]byte(nd.text[:8]))
	for _, have := range n.by[key] {
		if have.text == nd.text {
			return
		}
	}
	n.by[key] = append(n.by[key], nd)
	w, m := bit(key)
	n.filter[w] |= m
}

func compile(canaries []Canary) *needles {
	n := &needles{by: map[uint64][]needle{}}
	for _, c := range canaries {
		for _, f := range Forms(c.value) {
			n.add(needle{c.Name, f.Kind, f.Text})
			if len(f.Text) < 2*piece {
				continue
			}
			middle := len(f.Text) / 2
			for _, p := range []string{f.Text[:piece], f.Text[middle : middle+piece], f.Text[len(f.Text)-piece:]} {
				n.add(needle{c.Name, "part of " + f.Kind, p})
			}
		}
	}
	return n
}

// find calls hit for every needle in data, once each.
func (n *needles) find(data []byte, hit func(nd needle, at int)) {
	found := map[string]bool{}
	for i := 0; i+8 <= len(data); i++ {
		key := binary.LittleEndian.Uint64(data[i:])
		if w, m := bit(key); n.filter[w]&m == 0 {
			continue
		}
		for _, nd := range n.by[key] {
			if len(data)-i >= len(nd.text) && string(data[i:i+len(nd.text)]) == nd.text && !found[nd.text] {
				found[nd.text] = true
				hit(nd, i)
			}
		}
	}
}

// Find looks for every canary in everything of the corpus. The hits are sorted
// by canary. An error means that something could not be read.
func (s Scanner) Find(corpus *Corpus) ([]Hit, error) {
	var hits []Hit
	err := corpus.each(func(where string, data []byte) {
		s.needles.find(data, func(nd needle, at int) {
			hits = append(hits, Hit{nd.canary, nd.form, where, at})
		})
	})
	sort.SliceStable(hits, func(i, j int) bool { return hits[i].Canary < hits[j].Canary })
	return hits, err
}

// Find is NewScanner(canaries).Find(corpus).
func Find(canaries []Canary, corpus *Corpus) ([]Hit, error) {
	return NewScanner(canaries).Find(corpus)
}

// Scan fails the test for every canary found, and when the corpus is empty or
// cannot be read, which would make the scan worthless.
func Scan(tb testing.TB, canaries []Canary, corpus *Corpus) {
	tb.Helper()
	if corpus.Len() == 0 {
		tb.Errorf("leaktest: nothing to scan")
		return
	}
	hits, err := Find(canaries, corpus)
	if err != nil {
		tb.Errorf("leaktest: %v", err)
	}
	for i, h := range hits {
		if i == 50 {
			tb.Errorf("leaktest: and %d more", len(hits)-i)
			break
		}
		tb.Errorf("leaked: %s", h)
	}
}

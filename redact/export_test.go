package redact

import (
	"slices"
	"strings"
	"time"
)

// RawNeedle is a needle as the engines see it, for tests that compare them with
// the naive model.
type RawNeedle struct {
	Text, Name  string
	Left, Right uint64
	Bound       bool
}

// AddRaw installs needles without deriving forms.
func (r *Redactor) AddRaw(raw ...RawNeedle) {
	sh := r.core()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var fresh []needle
	for _, n := range raw {
		fresh = append(fresh, needle{text: n.Text, name: sh.name(n.Name), left: n.Left, right: n.Right, bound: n.Bound})
	}
	sh.install(fresh)
}

// Raw lists the needles installed so far.
func (r *Redactor) Raw() []RawNeedle {
	sh := r.core()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var out []RawNeedle
	for _, n := range sh.all {
		out = append(out, RawNeedle{Text: n.text, Name: n.name.text, Left: n.left, Right: n.right, Bound: n.bound})
	}
	return out
}

// Form is one derived form.
type Form struct{ Kind, Text string }

// Forms derives the forms of a value's core.
func Forms(value string) []Form {
	var out []Form
	for _, f := range allForms(core(value)) {
		out = append(out, Form{f.kind, f.text})
	}
	return out
}

// InertForms derives the forms of an inert value with and without the short cut,
// and reports whether the value is one.
func InertForms(value string) (short, full []Form, ok bool) {
	if !inert(value) {
		return nil, nil, false
	}
	for _, f := range allForms(value) {
		short = append(short, Form{f.kind, f.text})
	}
	for _, f := range escapedForms(value) {
		full = append(full, Form{f.kind, f.text})
	}
	return short, full, true
}

// Core is what of a value is searched for.
func Core(value string) string { return core(value) }

// IdleNow does what the idle timer does.
func (w *Writer) IdleNow() error {
	c := w.core()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send(c.st.idle())
}

// Carry returns the bytes the Writer remembers, and how many of them are still
// to be written.
func (w *Writer) Carry() (string, int) {
	c := w.core()
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.st.carry), max(0, len(c.st.carry)-c.st.out)
}

// Idle returns the option that is in force.
func (r *Redactor) Idle() time.Duration { return r.core().opts.Idle }

// Settled reports whether no background merge is running.
func (r *Redactor) Settled() bool {
	sh := r.core()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return !sh.merging
}

// StopWords lists the values that are refused as too common.
func StopWords() []string {
	var out []string
	for w := range stopWords {
		out = append(out, w)
	}
	return out
}

// UseSimple makes r use the simple engine. Call it before the first Add.
func (r *Redactor) UseSimple() {
	r.core().build = func(n []needle) engine { return newSorted(n) }
}

// Widen makes r use the fast engine now, not after some kilobytes.
func (r *Redactor) Widen() { r.core().widen(widenAfter) }

// ScanHit is one hit of an engine.
type ScanHit struct {
	Start, End int
	Text, Name string
}

// ScanBoth runs both engines over text, the fast one also with the index that only
// many needles get, which must make no difference.
func ScanBoth(raw []RawNeedle, text string) (simple, fast []ScanHit, simpleHold, fastHold int) {
	names := map[string]*name{}
	var needles []needle
	for _, n := range raw {
		if names[n.Name] == nil {
			names[n.Name] = &name{text: n.Name}
		}
		needles = append(needles, needle{text: n.Text, name: names[n.Name], left: n.Left, right: n.Right, bound: n.Bound})
	}
	list := func(e engine) (out []ScanHit, hold int) {
		var f found
		hold = e.scan([]byte(text), &f)
		for _, h := range f.hits {
			// A chain of occurrences is taken apart; each must overlap the next.
			end := h.start
			for i := h.start; i <= h.end-len(h.n.text); i++ {
				if strings.HasPrefix(text[i:], h.n.text) {
					if i > h.start && i >= end {
						panic("a chain of occurrences with a gap")
					}
					end = i + len(h.n.text)
					out = append(out, ScanHit{i, end, h.n.text, h.n.name.text})
				}
			}
			if end != h.end || end-h.start > len(h.n.text) && h.n.bound {
				panic("a hit that is no occurrence")
			}
		}
		return out, hold
	}
	simple, simpleHold = list(newSorted(needles))
	sampled := newSampled(needles)
	fast, fastHold = list(sampled)
	if len(needles) == 0 {
		return simple, fast, simpleHold, fastHold
	}
	indexed := newSampled(needles)
	indexed.index()
	if again, hold := list(indexed); !slices.Equal(fast, again) || hold != fastHold {
		panic("an index changes what is found")
	}
	sorted := newSorted(needles)
	for n := range min(indexed.least, 10) { // the index looks at eight bytes
		for i := 0; i+n <= len(text) && i < 64; i++ {
			b := []byte(text[i : i+n])
			if hold := indexed.begins(b); hold != sampled.begins(b) || hold != sorted.begins(b) {
				panic("an index changes what may begin")
			}
		}
	}
	return simple, fast, simpleHold, fastHold
}

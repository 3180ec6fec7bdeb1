package egress

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"sync"

	"github.com/sbxhost/sbxhost/secret"
)

// guard recognises values, and parts of values, in what a plugin is about to
// see. It does not work on a stream: hold-back timing would tell the plugin what
// it may not see. Whole leaves are replaced instead.
//
// A part is any run of bytes as long as half of the value, between 8 and 16 (of
// values longer than 256 bytes, up to 47): a vendor, or a workload, may echo a
// value cut in two.
//
// One guard serves all sessions of a plugin: a list reply shows every sandbox of
// the owner, and what one session may not show, no other may either.
type guard struct {
	mu    sync.RWMutex
	grams [3]map[string]entry // by length 8, 12, 16
	whole map[string]entry    // forms shorter than 8
}

// entry is a fragment's value and how many times it was added.
type entry struct {
	name string
	n    int
}

var gramLengths = [3]int{8, 12, 16}

// minGuarded is the shortest value that is looked for. Shorter ones would match
// ordinary text everywhere; the host reports them as unmaskable.
const minGuarded = 4

func newGuard() *guard {
	g := &guard{whole: map[string]entry{}}
	for i := range g.grams {
		g.grams[i] = map[string]entry{}
	}
	return g
}

// add makes v, and the forms in which systems usually echo it, recognised.
func (g *guard) add(name string, v secret.Value) { g.count(name, v, 1) }

// remove undoes one add.
func (g *guard) remove(v secret.Value) { g.count("", v, -1) }

func (g *guard) count(name string, v secret.Value, by int) {
	if v.Len() < minGuarded {
		return
	}
	all := forms(v.Reveal())
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, form := range all {
		f := string(form)
		if len(f) < gramLengths[0] {
			bump(g.whole, f, name, by)
			continue
		}
		class := 0
		for class < 2 && len(f)/2 >= gramLengths[class+1] {
			class++
		}
		n, step := gramLengths[class], stride(len(f))
		for i := 0; i+n <= len(f); i += step {
			bump(g.grams[class], f[i:i+n], name, by)
		}
	}
}

// stride is the distance of the fragments kept of a long form: every fragment
// would take fifty times the value's memory.
func stride(n int) int {
	switch {
	case n <= 256:
		return 1
	case n <= 4096:
		return 8
	}
	return 32
}

func bump(m map[string]entry, k, name string, by int) {
	e := m[k]
	if e.n == 0 {
		e.name = name
	}
	if e.n += by; e.n <= 0 {
		delete(m, k)
		return
	}
	m[k] = e
}

// forms returns the value and its usual encodings, each once.
func forms(raw []byte) [][]byte {
	seen := map[string]bool{}
	var out [][]byte
	add := func(f []byte) {
		if len(f) >= minGuarded && !seen[string(f)] {
			seen[string(f)] = true
			out = append(out, f)
		}
	}
	add(raw)
	add(bytes.TrimSpace(raw))
	lower := []byte(hex.EncodeToString(raw))
	add(lower)
	add(bytes.ToUpper(lower))
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for k := range 3 {
			// Only the characters that the value alone decides: the first and
			// last may mix with its neighbours.
			e := enc.EncodeToString(append(make([]byte, k), raw...))
			if from, to := (8*k+5)/6, 8*(k+len(raw))/6; to-from >= gramLengths[0] {
				add([]byte(e[from:to]))
			}
		}
	}
	for _, p := range []string{url.QueryEscape(string(raw)), url.PathEscape(string(raw))} {
		add([]byte(p))
		add(lowerEscapes(p))
	}
	// A document inside a string of a document: echoes of whole requests.
	var escaped bytes.Buffer
	enc := json.NewEncoder(&escaped)
	for _, html := range []bool{false, true} {
		escaped.Reset()
		enc.SetEscapeHTML(html)
		if enc.Encode(string(raw)) == nil {
			once := strings.TrimSuffix(escaped.String(), "\n")
			add([]byte(once[1 : len(once)-1]))
		}
	}
	return out
}

// lowerEscapes writes the hex digits of percent escapes in lower case.
func lowerEscapes(p string) []byte {
	b := []byte(p)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return b
}

// find returns the name of a value that text holds, whole or in part.
func (g *guard) find(text string) (string, bool) {
	name, hit := "", false
	g.each(withoutNUL(text), func(_, _ int, n string) bool {
		name, hit = n, true
		return false
	})
	return name, hit
}

// each calls f with the bounds of every fragment of a value in text, until f
// returns false.
func (g *guard) each(text string, f func(start, end int, name string) bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for form, e := range g.whole {
		for from := 0; ; {
			i := strings.Index(text[from:], form)
			if i < 0 {
				break
			}
			if !f(from+i, from+i+len(form), e.name) {
				return
			}
			from += i + 1
		}
	}
	for class, n := range gramLengths {
		if len(g.grams[class]) == 0 {
			continue
		}
		for i := 0; i+n <= len(text); i++ {
			if e, ok := g.grams[class][text[i:i+n]]; ok && !f(i, i+n, e.name) {
				return
			}
		}
	}
}

// withoutNUL drops NUL characters: UTF-16 text in a JSON string shows as every
// other character NUL.
func withoutNUL(text string) string {
	if strings.IndexByte(text, 0) < 0 {
		return text
	}
	return strings.ReplaceAll(text, "\x00", "")
}

// sight is what one session's plugin calls were shown, as far as it takes to
// recognise a value that comes in pieces.
type sight struct {
	*guard
	mu    sync.Mutex
	tails map[string]string // by place in the replies: the last bytes shown there
}

// maxTails bounds how many places are remembered apart; all further ones share
// one.
const maxTails = 512

func newSight(g *guard) *sight { return &sight{guard: g, tails: map[string]string{}} }

// findAt is find for one place of the replies: it also sees a value that was cut
// into pieces shown at the same place one after the other.
func (s *sight) findAt(place, text string) (string, bool) {
	text = withoutNUL(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	tail, known := s.tails[place]
	if !known && len(s.tails) >= maxTails {
		place = ""
		tail = s.tails[place]
	}
	// What was hidden stays in the tail: the pieces that follow belong to it. A
	// fragment that ends in the tail says nothing about text.
	name, hit := "", false
	s.each(tail+text, func(_, end int, n string) bool {
		if end > len(tail) {
			name, hit = n, true
		}
		return !hit
	})
	const keep = 63 // more than the longest run that may go unseen
	next := tail + text
	if len(next) > keep {
		next = next[len(next)-keep:]
	}
	s.tails[place] = next
	return name, hit
}

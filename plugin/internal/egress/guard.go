package egress

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"sync"

	"github.com/sbxhost/sbxhost/secret"
)

// guard recognises values, and parts of values, in what a plugin is about to
// see. It does not work on a stream: hold-back timing would tell the plugin what
// it may not see. Whole leaves are replaced instead.
//
// A part is any run of bytes as long as half of the value, between 8 and 16: a
// vendor, or a workload, may echo a value cut in two.
type guard struct {
	mu    sync.RWMutex
	grams [3]map[string]string // by length 8, 12, 16: fragment to name
	whole map[string]string    // values shorter than 8
	tails map[string]string    // by place in the replies: the last bytes shown there
}

var gramLengths = [3]int{8, 12, 16}

// maxTails bounds how many places of a session's replies are remembered; a
// plugin whose vendor has more is told that everything was redacted.
const maxTails = 512

// minGuarded is the shortest value that is looked for. Shorter ones would match
// ordinary text everywhere; the host reports them as unmaskable.
const minGuarded = 4

func newGuard() *guard {
	g := &guard{whole: map[string]string{}, tails: map[string]string{}}
	for i := range g.grams {
		g.grams[i] = map[string]string{}
	}
	return g
}

// add makes v, and the forms in which systems usually echo it, recognised.
func (g *guard) add(name string, v secret.Value) {
	if v.Len() < minGuarded {
		return
	}
	raw := v.Reveal()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, form := range forms(raw) {
		if len(form) < gramLengths[0] {
			g.whole[string(form)] = name
			continue
		}
		class := 0
		for class < 2 && len(form)/2 >= gramLengths[class+1] {
			class++
		}
		n := gramLengths[class]
		for i := 0; i+n <= len(form); i++ {
			g.grams[class][string(form[i:i+n])] = name
		}
	}
}

// forms returns the value and its usual encodings.
func forms(raw []byte) [][]byte {
	out := [][]byte{raw}
	if t := bytes.TrimSpace(raw); len(t) < len(raw) && len(t) >= minGuarded {
		out = append(out, t)
	}
	lower := []byte(hex.EncodeToString(raw))
	out = append(out, lower, bytes.ToUpper(lower))
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for k := range 3 {
			// Only the characters that the value alone decides: the first and
			// last may mix with its neighbours.
			e := enc.EncodeToString(append(make([]byte, k), raw...))
			from, to := (8*k+5)/6, 8*(k+len(raw))/6
			if to-from >= gramLengths[0] {
				out = append(out, []byte(e[from:to]))
			}
		}
	}
	for _, p := range []string{url.QueryEscape(string(raw)), url.PathEscape(string(raw))} {
		if p != string(raw) {
			out = append(out, []byte(p), []byte(strings.ToLower(p)))
		}
	}
	return out
}

// find returns the name of a value that text holds, whole or in part.
func (g *guard) find(text string) (string, bool) {
	if strings.IndexByte(text, 0) >= 0 {
		// UTF-16 in a JSON string shows as every other byte NUL.
		text = strings.ReplaceAll(text, "\x00", "")
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	for form, name := range g.whole {
		if strings.Contains(text, form) {
			return name, true
		}
	}
	for class, n := range gramLengths {
		if len(g.grams[class]) == 0 {
			continue
		}
		for i := 0; i+n <= len(text); i++ {
			if name, ok := g.grams[class][text[i:i+n]]; ok {
				return name, true
			}
		}
	}
	return "", false
}

// findAt is find for one place of the replies: it also sees a value that was cut
// into pieces shown at the same place one after the other.
func (g *guard) findAt(place, text string) (string, bool) {
	g.mu.Lock()
	tail, known := g.tails[place]
	full := !known && len(g.tails) >= maxTails
	g.mu.Unlock()
	if full {
		return "*", true
	}
	if name, hit := g.find(tail + text); hit {
		g.mu.Lock()
		g.tails[place] = ""
		g.mu.Unlock()
		return name, true
	}
	const keep = 15 // one less than the longest fragment
	next := tail + text
	if len(next) > keep {
		next = next[len(next)-keep:]
	}
	g.mu.Lock()
	g.tails[place] = next
	g.mu.Unlock()
	return "", false
}

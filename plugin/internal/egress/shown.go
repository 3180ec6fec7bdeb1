package egress

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/sbxhost/sbxhost/abi"
)

// Redacted is what a plugin sees in place of a whole reply that cannot be shown
// in part.
const Redacted = `{"redacted":true}`

// decodeJSON reads a reply strictly: UTF-8, no duplicate members, no trailing
// data, depth bounded.
func decodeJSON(doc []byte) (any, error) {
	if _, err := abi.Parse(doc); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return v, nil
}

func encodeJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte(Redacted) // only strings, numbers, maps and slices get here
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// show returns the document with every leaf replaced that holds a value or a
// part of one, and whether there was any. place says where in the plugin's
// traffic the document stands.
func (s *sight) show(place string, v any) (any, bool) {
	w := &walk{g: s}
	out := w.value(place, v)
	// A value may also be cut over neighbouring leaves.
	if w.all.cut(s.guard) || w.leafs.cut(s.guard) {
		w.hit, w.whole = true, true
	}
	if w.whole {
		return map[string]any{"redacted": true}, true
	}
	return out, w.hit
}

// joint is the texts of a document one after the other.
type joint struct {
	text   strings.Builder
	hidden [][2]int // bounds of what is replaced already
}

func (j *joint) add(text string, hidden bool) {
	from := j.text.Len()
	j.text.WriteString(withoutNUL(text))
	if hidden {
		j.hidden = append(j.hidden, [2]int{from, j.text.Len()})
	}
}

// cut reports whether a fragment of a value reaches into what would be shown.
func (j *joint) cut(g *guard) bool {
	found := false
	g.each(j.text.String(), func(start, end int, _ string) bool {
		for _, h := range j.hidden {
			if h[0] <= start && end <= h[1] {
				return true
			}
		}
		found = true
		return false
	})
	return found
}

type walk struct {
	g     *sight
	all   joint // every text of the document
	leafs joint // without member names
	hit   bool
	whole bool
}

func (w *walk) value(place string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			w.all.add(k, false)
			if _, hit := w.g.find(k); hit {
				w.hit, w.whole = true, true
			}
			v[k] = w.value(place+"/"+k, v[k])
		}
		return v
	case []any:
		for i := range v {
			// Elements share a place: pieces of a value may be in one each.
			v[i] = w.value(place+"/*", v[i])
		}
		return v
	case string:
		return w.leaf(place, v, v)
	case json.Number:
		return w.leaf(place, v.String(), v)
	case int: // a payload's length, which the host put there
		return v
	}
	return v
}

func (w *walk) leaf(place, text string, v any) any {
	if name, hit := w.g.findAt(place, text); hit {
		w.hit = true
		w.all.add(text, true)
		w.leafs.add(text, true)
		return "[redacted:" + name + "]"
	}
	w.all.add(text, false)
	w.leafs.add(text, false)
	return v
}

package egress

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sbxhost/sbxhost/plugin/internal/spec"
)

// tokens splits a JSON pointer (RFC 6901).
func tokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	out := strings.Split(pointer[1:], "/")
	for i, t := range out {
		out[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return out
}

// lookup returns the value at a pointer.
func lookup(doc any, pointer string) (any, bool) {
	for _, t := range tokens(pointer) {
		switch v := doc.(type) {
		case map[string]any:
			next, ok := v[t]
			if !ok {
				return nil, false
			}
			doc = next
		case []any:
			i, err := strconv.Atoi(t)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			doc = v[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

// replace puts v at a pointer that exists.
func replace(doc any, pointer string, v any) {
	ts := tokens(pointer)
	parent, ok := lookup(doc, strings.TrimSuffix(pointer, "/"+lastToken(pointer)))
	if !ok || len(ts) == 0 {
		return
	}
	last := ts[len(ts)-1]
	switch p := parent.(type) {
	case map[string]any:
		p[last] = v
	case []any:
		if i, err := strconv.Atoi(last); err == nil && i >= 0 && i < len(p) {
			p[i] = v
		}
	}
}

func lastToken(pointer string) string { return pointer[strings.LastIndexByte(pointer, '/')+1:] }

// insert puts v at a pointer that must be free. Missing parents are made:
// objects, or an array where the token is 0. A member that differs in case only
// is taken for occupied, since a vendor may not tell them apart.
func insert(doc *any, pointer string, v any) error {
	ts := tokens(pointer)
	if *doc == nil {
		*doc = map[string]any{}
	}
	at := *doc
	set := func(any) {}
	for i, t := range ts {
		last := i == len(ts)-1
		switch p := at.(type) {
		case map[string]any:
			next, ok := p[t]
			if !ok {
				for k := range p {
					if strings.EqualFold(k, t) {
						return errors.New("the pointer " + pointer + " is occupied under another spelling")
					}
				}
			}
			switch {
			case last && ok:
				return errors.New("the pointer " + pointer + " is occupied")
			case last:
				p[t] = v
				return nil
			case !ok:
				next = newParent(ts[i+1])
				p[t] = next
			}
			set = func(n any) { p[t] = n }
			at = next
		case []any:
			n, err := strconv.Atoi(t)
			if err != nil || n != len(p) && !(n < len(p) && !last) {
				return errors.New("the pointer " + pointer + " does not fit the array")
			}
			if n == len(p) {
				var next any = v
				if !last {
					next = newParent(ts[i+1])
				}
				p = append(p, next)
				set(p)
				if last {
					return nil
				}
			}
			set = func(x any) { p[n] = x }
			at = p[n]
		default:
			return errors.New("the pointer " + pointer + " leads through something that is not an object")
		}
	}
	return errors.New("the pointer " + pointer + " is empty")
}

func newParent(next string) any {
	if next == "0" {
		return []any{}
	}
	return map[string]any{}
}

// checkFreeText checks a path or query parameter of the plugin's.
func checkFreeText(f spec.Free, v string) error {
	switch f.Type {
	case "integer":
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return errors.New("must be an integer")
		}
		return checkRange(f, n)
	case "boolean":
		if v != "true" && v != "false" {
			return errors.New("must be true or false")
		}
		return nil
	}
	return checkText(f, v)
}

// checkFreeValue checks a body field of the plugin's.
func checkFreeValue(f spec.Free, v any) error {
	switch f.Type {
	case "integer":
		n, ok := v.(json.Number)
		if !ok {
			return errors.New("must be an integer")
		}
		i, err := strconv.ParseInt(n.String(), 10, 64)
		if err != nil {
			return errors.New("must be an integer")
		}
		return checkRange(f, i)
	case "boolean":
		if _, ok := v.(bool); !ok {
			return errors.New("must be true or false")
		}
		return nil
	}
	s, ok := v.(string)
	if !ok {
		return errors.New("must be a string")
	}
	return checkText(f, s)
}

func checkRange(f spec.Free, n int64) error {
	if f.Min != nil && n < *f.Min || f.Max != nil && n > *f.Max {
		return errors.New("is out of range")
	}
	return nil
}

func checkText(f spec.Free, v string) error {
	if len(f.Enum) > 0 {
		for _, e := range f.Enum {
			if e == v {
				return nil
			}
		}
		return errors.New("is not one of the approved values")
	}
	if len(v) > f.MaxLength {
		return errors.New("is longer than approved")
	}
	if !utf8.ValidString(v) || strings.ContainsAny(v, "\x00\r\n") {
		return errors.New("holds a line break or bytes that are not text")
	}
	return nil
}

package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/abi"
)

// Problem is one thing wrong with a manifest.
type Problem struct {
	Pointer string // JSON pointer; "" is the document
	Message string
}

// Error lists everything wrong with a manifest.
type Error struct {
	Problems []Problem
}

// Error joins the problems, one a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		where := p.Pointer
		if where == "" {
			where = "document"
		}
		lines[i] = where + ": " + p.Message
	}
	return "plugin manifest: " + strings.Join(lines, "\n  ")
}

// problems collects what is wrong.
type problems struct{ list []Problem }

func (p *problems) add(pointer, format string, args ...any) {
	if len(p.list) < 50 {
		p.list = append(p.list, Problem{pointer, fmt.Sprintf(format, args...)})
	}
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return &Error{Problems: p.list}
}

// object reads the members of one JSON object and reports those it was not asked
// for.
type object struct {
	v    abi.Value
	at   string
	out  *problems
	seen map[string]bool
}

func openObject(v abi.Value, at string, out *problems) *object {
	if v.Kind() != abi.KindObject {
		out.add(at, "must be an object")
	}
	return &object{v: v, at: at, out: out, seen: map[string]bool{}}
}

// get returns a member and whether it is there.
func (o *object) get(name string) (abi.Value, string, bool) {
	o.seen[name] = true
	v := o.v.Get(name)
	return v, o.at + "/" + escapeToken(name), v.Kind() != abi.KindNone
}

// close reports members that no one asked for.
func (o *object) close() {
	known := slices.Sorted(maps.Keys(o.seen))
	for _, k := range o.v.Keys() {
		if !o.seen[k] {
			o.out.add(o.at+"/"+escapeToken(k), "unknown field; known here are %s", strings.Join(known, ", "))
		}
	}
}

func (o *object) text(name string) string {
	v, at, ok := o.get(name)
	if !ok {
		return ""
	}
	if v.Kind() != abi.KindString {
		o.out.add(at, "must be a string")
	}
	return v.Text()
}

func (o *object) flag(name string) bool {
	v, at, ok := o.get(name)
	if ok && v.Kind() != abi.KindBool {
		o.out.add(at, "must be true or false")
	}
	return v.Bool()
}

func (o *object) number(name string) (int64, bool) {
	v, at, ok := o.get(name)
	if !ok {
		return 0, false
	}
	if v.Kind() != abi.KindNumber || strings.ContainsAny(v.Number(), ".eE") || len(v.Number()) > 15 {
		o.out.add(at, "must be an integer")
		return 0, false
	}
	return v.Int(), true
}

func (o *object) texts(name string) []string {
	v, at, ok := o.get(name)
	if !ok {
		return nil
	}
	if v.Kind() != abi.KindArray {
		o.out.add(at, "must be a list of strings")
		return nil
	}
	var out []string
	for i, item := range v.Items() {
		if item.Kind() != abi.KindString {
			o.out.add(fmt.Sprintf("%s/%d", at, i), "must be a string")
		}
		out = append(out, item.Text())
	}
	return out
}

// duration reads a Go duration as milliseconds.
func (o *object) duration(name string) int64 {
	s := o.text(name)
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		o.out.add(o.at+"/"+name, `must be a duration such as "24h"`)
		return 0
	}
	return d.Milliseconds()
}

// each calls f for every element of a list of objects.
func (o *object) each(name string, f func(*object)) {
	v, at, ok := o.get(name)
	if !ok {
		return
	}
	if v.Kind() != abi.KindArray {
		o.out.add(at, "must be a list")
		return
	}
	for i, item := range v.Items() {
		child := openObject(item, fmt.Sprintf("%s/%d", at, i), o.out)
		f(child)
		child.close()
	}
}

// entries calls f for every member of an object of objects.
func (o *object) entries(name string, f func(key string, child *object)) {
	v, at, ok := o.get(name)
	if !ok {
		return
	}
	if v.Kind() != abi.KindObject {
		o.out.add(at, "must be an object")
		return
	}
	for _, k := range v.Keys() {
		child := openObject(v.Get(k), at+"/"+escapeToken(k), o.out)
		f(k, child)
		child.close()
	}
}

// child calls f for a member that is an object.
func (o *object) child(name string, f func(*object)) bool {
	v, at, ok := o.get(name)
	if !ok {
		return false
	}
	c := openObject(v, at, o.out)
	f(c)
	c.close()
	return true
}

// escapeToken writes a JSON pointer reference token (RFC 6901 section 3).
func escapeToken(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}

// constant returns a JSON constant as its text.
func (o *object) constant(name string) (string, bool) {
	v, at, ok := o.get(name)
	if !ok {
		return "", false
	}
	switch v.Kind() {
	case abi.KindString:
		return string(abi.AppendString(nil, v.Text())), true
	case abi.KindNumber:
		return v.Number(), true
	case abi.KindBool:
		return fmt.Sprint(v.Bool()), true
	case abi.KindNull:
		return "null", true
	}
	o.out.add(at, "must be a string, number, boolean or null")
	return "", true
}

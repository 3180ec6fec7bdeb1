package daytonatest

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// listed is what the list showed at some time.
type listed struct {
	at    time.Time
	items []listEntry
}

type listEntry struct {
	sb     *sandbox
	object map[string]any // without env
	full   map[string]any
}

// maxHistory bounds what stale lists can reach back to.
const maxHistory = 256

// remember keeps what the list shows after a change; s.mu is held.
func (s *Server) remember() {
	entry := listed{at: s.Now()}
	for _, sb := range s.sandboxes {
		if sb.destroyed {
			continue
		}
		entry.items = append(entry.items, listEntry{sb: sb, object: sb.object(true), full: sb.object(false)})
		// Maps are replaced, never changed, except these.
		entry.items[len(entry.items)-1].object["labels"] = maps.Clone(sb.labels)
		entry.items[len(entry.items)-1].full["labels"] = maps.Clone(sb.labels)
	}
	s.history = append(s.history, entry)
	if n := len(s.history) - maxHistory; n > 0 {
		s.history = slices.Delete(s.history, 0, n)
	}
}

// asOf returns the list as it was at a time; s.mu is held.
func (s *Server) asOf(at time.Time) []listEntry {
	for _, l := range slices.Backward(s.history) {
		if !l.at.After(at) {
			return l.items
		}
	}
	return nil
}

// entries returns what a list shows now, under its faults; s.mu is held.
func (c *call) entries() []listEntry {
	s := c.s
	age := s.opts.Timing.List
	if _, ok := s.faults.is(EmptyList, c.op, nil); ok {
		return nil
	}
	if f, ok := s.faults.is(StaleList, c.op, nil); ok {
		age = f.delay(2 * time.Second)
	} else if f, ok := s.faults.is(FlappingList, c.op, nil); ok {
		if s.flap++; s.flap%2 == 0 {
			age = f.delay(2 * time.Second)
		}
	}
	return s.asOf(s.Now().Add(-age))
}

// filter is the part of a list's query that selects.
type filter struct {
	labels map[string]string
	states []string
	id     string
	name   string
}

func (c *call) filter() (filter, string) {
	q := c.r.URL.Query()
	f := filter{id: q.Get("id"), name: q.Get("name")}
	if text := q.Get("labels"); text != "" {
		if err := json.Unmarshal([]byte(text), &f.labels); err != nil {
			return f, "Invalid JSON in labels"
		}
	}
	for _, v := range q["states"] {
		f.states = append(f.states, strings.Split(v, ",")...)
	}
	return f, ""
}

func (f filter) matches(o map[string]any) bool {
	labels, _ := o["labels"].(map[string]string)
	for k, v := range f.labels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	id, _ := o["id"].(string)
	name, _ := o["name"].(string)
	state, _ := o["state"].(string)
	return strings.Contains(id, f.id) && strings.HasPrefix(strings.ToLower(name), strings.ToLower(f.name)) &&
		(len(f.states) == 0 || slices.Contains(f.states, state))
}

// limit reads a page size; it returns 0 and a message when it is not valid.
func (c *call) limit() (int, string) {
	text := c.query("limit")
	if text == "" {
		return 100, ""
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 1:
		return 0, "limit must not be less than 1"
	case n > 200:
		return 0, "limit must not be greater than 200"
	}
	return n, ""
}

// selected returns the entries that a list has to show.
func (c *call) selected() ([]listEntry, bool) {
	f, wrong := c.filter()
	if wrong != "" {
		c.fail(http.StatusBadRequest, wrong)
		return nil, false
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if _, ok := c.s.faults.is(UnfilteredList, c.op, nil); ok {
		f = filter{}
	}
	var out []listEntry
	for _, e := range c.entries() {
		if f.matches(e.object) {
			out = append(out, e)
		}
	}
	if c.query("order") != "asc" { // the newest first
		slices.Reverse(out)
	}
	return out, true
}

// list is the list with a cursor, whose items have no env.
func (c *call) list() {
	limit, wrong := c.limit()
	if wrong != "" {
		c.fail(http.StatusBadRequest, wrong)
		return
	}
	all, ok := c.selected()
	if !ok {
		return
	}
	// The cursor names the last item of the page before, so that a change in
	// between neither repeats nor skips what is still there.
	if cursor := c.query("cursor"); cursor != "" {
		last, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || len(last) == 0 {
			c.fail(http.StatusBadRequest, "Invalid cursor")
			return
		}
		all = after(all, string(last), c.query("order") != "asc")
	}
	c.s.mu.Lock()
	_, tiny := c.s.faults.is(TinyPages, c.op, nil)
	_, looping := c.s.faults.is(LoopingCursor, c.op, nil)
	c.s.mu.Unlock()
	if tiny {
		limit = 1
	}
	var next any
	if len(all) > limit {
		all = all[:limit]
		next = cursorOf(all[limit-1].sb)
	}
	if looping {
		next = base64.RawURLEncoding.EncodeToString([]byte("0|loop"))
	}
	items := make([]any, 0, len(all))
	for _, e := range all {
		items = append(items, c.item(e, e.object))
	}
	c.json(http.StatusOK, map[string]any{"items": items, "nextCursor": next})
}

// item applies the faults of objects to a list's item.
func (c *call) item(e listEntry, o map[string]any) map[string]any {
	o = maps.Clone(o)
	if f, ok := c.s.faults.is(ForeignToolboxURL, c.op, e.sb); ok {
		o["toolboxProxyUrl"] = f.Location
	}
	if _, ok := c.s.faults.is(UnknownFields, c.op, e.sb); ok {
		o["futureField"] = []any{map[string]any{}}
	}
	return o
}

func position(sb *sandbox) string {
	return strconv.FormatInt(sb.created.UnixNano(), 10) + "|" + sb.id
}

func cursorOf(sb *sandbox) string { return base64.RawURLEncoding.EncodeToString([]byte(position(sb))) }

func after(all []listEntry, last string, newestFirst bool) []listEntry {
	i := slices.IndexFunc(all, func(e listEntry) bool {
		if newestFirst {
			return position(e.sb) < last
		}
		return position(e.sb) > last
	})
	if i < 0 {
		return nil
	}
	return all[i:]
}

// paginated is the deprecated list, whose items have env in clear.
func (c *call) paginated() {
	limit, wrong := c.limit()
	if wrong != "" {
		c.fail(http.StatusBadRequest, wrong)
		return
	}
	all, ok := c.selected()
	if !ok {
		return
	}
	c.s.mu.Lock()
	if _, tiny := c.s.faults.is(TinyPages, c.op, nil); tiny {
		limit = 1
	}
	c.s.mu.Unlock()
	page := 1
	if text := c.query("page"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1<<20 {
			c.fail(http.StatusBadRequest, "page must not be less than 1")
			return
		}
		page = n
	}
	total := len(all)
	from := min((page-1)*limit, total)
	items := make([]any, 0, limit)
	for _, e := range all[from:min(from+limit, total)] {
		items = append(items, c.item(e, e.full))
	}
	c.json(http.StatusOK, map[string]any{"items": items, "total": total, "page": page, "totalPages": (total + limit - 1) / limit})
}

package egress

import (
	"maps"
	"slices"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/provider"
)

// lists reports whether a route's reply is a list of sandboxes.
func lists(r *spec.Route) bool {
	if r.Response.Items != nil {
		return true
	}
	for _, f := range r.Query {
		if f.From == "ownerLabels" {
			return true
		}
	}
	return false
}

// filter drops every element of a list reply that does not carry the owner's
// label, and remembers those that do.
func (o *Response) filter(doc any) (any, error) {
	owner := o.c.cfg.Owner
	if o.c.cfg.Session != nil {
		owner = o.c.cfg.Session.owner
	}
	if owner[provider.LabelOwner] == "" {
		return nil, failure(abi.ErrnoState, "a list needs an owner")
	}
	items := o.r.Response.Items
	pointer := ""
	if items != nil {
		pointer = items.Pointer
	} else if m, ok := doc.(map[string]any); ok {
		// Without a declaration: the only list in the document.
		for k, v := range m {
			if _, isList := v.([]any); isList {
				if pointer != "" {
					return nil, failure(abi.ErrnoInvalid, "the list reply holds several lists; the route must declare response.items")
				}
				pointer = "/" + k
			}
		}
	}
	v, ok := lookup(doc, pointer)
	if !ok || v == nil {
		if items != nil && pointer != "" {
			// A page without the member is a page without sandboxes only where
			// the document is an object.
			if _, isObject := doc.(map[string]any); isObject {
				o.c.mu.Lock()
				o.c.asked = true
				o.c.mu.Unlock()
				return doc, nil
			}
		}
		return nil, failure(abi.ErrnoInvalid, "the list reply holds no list")
	}
	list, ok := v.([]any)
	if !ok {
		return nil, failure(abi.ErrnoInvalid, "the list reply holds no list")
	}
	if len(list) > 0 && items != nil {
		// Before filtering: a vendor that pages by the last id counts everybody's.
		if id, _ := lookup(list[len(list)-1], items.Sandbox); id != nil {
			o.c.listLast, _ = id.(string)
		}
	}
	kept := make([]any, 0, len(list))
	for _, e := range list {
		labels := elementLabels(e, items)
		if !carriesAll(labels, owner) {
			continue
		}
		o.c.b.omit(e)
		kept = append(kept, e)
		if err := o.c.prove(o.r, e, labels); err != nil {
			return nil, err
		}
	}
	o.c.mu.Lock()
	o.c.asked = true
	o.c.mu.Unlock()
	if pointer == "" {
		return kept, nil
	}
	replace(doc, pointer, kept)
	// What else the reply holds may be about sandboxes of others: paging needs
	// plain members only.
	if m, isObject := doc.(map[string]any); isObject {
		for k, x := range m {
			switch x.(type) {
			case map[string]any, []any:
				if k != tokens(pointer)[0] {
					delete(m, k)
				}
			}
		}
	}
	return doc, nil
}

func carriesAll(labels, want map[string]string) bool {
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// elementLabels returns an element's labels: where the route declares them, or
// the one object in it that has our owner label.
func elementLabels(e any, items *spec.Items) map[string]string {
	if items != nil {
		v, _ := lookup(e, items.Labels)
		return labelMap(v)
	}
	m, _ := e.(map[string]any)
	for _, v := range m {
		if l := labelMap(v); l[provider.LabelOwner] != "" {
			return l
		}
		if inner, ok := v.(map[string]any); ok {
			for _, w := range inner {
				if l := labelMap(w); l[provider.LabelOwner] != "" {
					return l
				}
			}
		}
	}
	return nil
}

// labelMap reads labels written as an object, as name/value or key/value pairs,
// or as "k=v" texts.
func labelMap(v any) map[string]string {
	out := map[string]string{}
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if s, ok := x.(string); ok {
				out[k] = s
			}
		}
	case []any:
		for _, x := range v {
			p, ok := x.(map[string]any)
			if !ok {
				continue
			}
			for _, name := range []string{"name", "key"} {
				k, _ := p[name].(string)
				if s, ok := p["value"].(string); ok && k != "" {
					out[k] = s
				}
			}
		}
	}
	return out
}

// prove keeps what a list element says about a sandbox of ours.
func (c *Call) prove(r *spec.Route, e any, labels map[string]string) error {
	pointer := c.b.elementID(r)
	v, _ := lookup(e, pointer)
	id, ok := v.(string)
	if !ok || !safeSandboxID(id) {
		return failure(abi.ErrnoInvalid, "an element of the list has no sandbox id at "+pointer)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed[id] = maps.Clone(labels)
	return nil
}

// elementID is where an element of a list reply has the sandbox's id: where the
// route declares it, or under the name that it has in a create reply.
func (b *Broker) elementID(r *spec.Route) string {
	if r.Response.Items != nil {
		return r.Response.Items.Sandbox
	}
	for i := range b.m.Routes {
		if p := b.m.Routes[i].Response.Sandbox; p != "" {
			return "/" + lastToken(p)
		}
	}
	return "/id"
}

// Listed returns the sandboxes that the vendor's own list replies of this call
// proved to be ours, by id with their labels, and whether there was such a reply
// at all. A plugin's word is not enough.
func (c *Call) Listed() (map[string]map[string]string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.listed), c.asked
}

// environmentPointers returns where a manifest's requests carry environments. A
// vendor that shows a sandbox's configuration shows them there again.
func environmentPointers(m *spec.Manifest) []string {
	var out []string
	add := func(p string) {
		if p != "" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for i := range m.Routes {
		q := &m.Routes[i].Request
		add(q.EnvPointer)
		for _, s := range q.Slots {
			if s.From == "environment" || s.From == "exec.environment" {
				add(s.Pointer)
			}
		}
	}
	return out
}

// omit takes out of a reply what a vendor repeats of an environment. Redaction
// would find the values it knows; a list also shows sandboxes whose values this
// process never had.
func (b *Broker) omit(doc any) {
	for _, p := range b.omitted {
		if v, ok := lookup(doc, p); ok && v != nil {
			replace(doc, p, "[omitted]")
		}
	}
}

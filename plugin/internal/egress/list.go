package egress

import (
	"maps"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/provider"
)

// listedItem is one sandbox that a vendor's list reply proved to be ours.
type listedItem struct{ labels map[string]string }

// lists reports whether the route's reply is a list of sandboxes.
func (o *Response) lists() bool {
	if o.r.Response.Items != nil {
		return true
	}
	for _, f := range o.r.Query {
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
				return doc, nil
			}
		}
		return nil, failure(abi.ErrnoInvalid, "the list reply holds no list")
	}
	list, ok := v.([]any)
	if !ok {
		return nil, failure(abi.ErrnoInvalid, "the list reply holds no list")
	}
	kept := make([]any, 0, len(list))
	for _, e := range list {
		labels := elementLabels(e, items)
		if !carriesAll(labels, owner) {
			continue
		}
		kept = append(kept, e)
		o.c.b.remember(e, items, labels)
	}
	if pointer == "" {
		return kept, nil
	}
	replace(doc, pointer, kept)
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

// remember keeps the proof for Proven. Without a declared id every text of the
// element counts as one, so that the plugin's claim can be looked up.
func (b *Broker) remember(e any, items *spec.Items, labels map[string]string) {
	item := listedItem{labels: maps.Clone(labels)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.listed) > 100_000 {
		b.listed = map[string]listedItem{}
	}
	if items != nil {
		if v, ok := lookup(e, items.Sandbox); ok {
			if id, isText := v.(string); isText {
				b.listed[id] = item
			}
		}
		return
	}
	m, _ := e.(map[string]any)
	for _, v := range m {
		if id, ok := v.(string); ok && safeSandboxID(id) {
			b.listed[id] = item
		}
	}
}

// Proven returns the labels with which a vendor's own list reply proved a
// sandbox to be ours. A plugin's word is not enough.
func (b *Broker) Proven(sandbox string) (map[string]string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, ok := b.listed[sandbox]
	return maps.Clone(i.labels), ok
}

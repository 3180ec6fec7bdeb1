package egress

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/sbxhost/sbxhost/abi"
)

// maxReturns is how often a definite refusal by the vendor gives a single-use
// right back.
const maxReturns = 5

// handle stands for an environment in a plugin-driven call.
type handle struct {
	call *Call
	uses uses
}

// NewHandle returns the opaque stand-in for the call's environment: "env_" and
// 128 random bits. It is valid for this call only.
func (c *Call) NewHandle() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("egress: no random source: " + err.Error())
	}
	id := "env_" + hex.EncodeToString(b[:])
	c.b.mu.Lock()
	c.b.handles[id] = &handle{call: c}
	c.b.mu.Unlock()
	c.handle = id
	return id
}

// take spends a handle for one request. Wrong, stale, replayed and altered
// handles all look the same to the plugin.
func (c *Call) take(id string) (*handle, error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	h := c.b.handles[id]
	if h == nil || h.call != c || h.uses.spent {
		return nil, failure(abi.ErrnoBadf, "the environment handle is not valid for this call")
	}
	h.uses.spent = true
	return h, nil
}

// giveBack makes a right usable again after a definite refusal.
func (u *uses) giveBack() {
	if u.returned++; u.returned <= maxReturns {
		u.spent = false
	}
}

// carriesHandle reports whether text that a plugin sends holds a live handle in
// any of the usual encodings.
func (b *Broker) carriesHandle(texts ...string) bool {
	b.mu.Lock()
	live := make([]string, 0, len(b.handles))
	for id := range b.handles {
		live = append(live, id)
	}
	b.mu.Unlock()
	if len(live) == 0 {
		return false
	}
	for _, t := range texts {
		views := decodings(t)
		for _, id := range live {
			bits := id[len("env_"):]
			for _, v := range views {
				// The bits alone identify a handle; base64 of it is searched at
				// its three alignments.
				if strings.Contains(strings.ToLower(v), bits) || strings.Contains(strings.ToLower(v), hex.EncodeToString([]byte(bits))) {
					return true
				}
				for k := range 3 {
					e := base64.RawStdEncoding.EncodeToString(append(make([]byte, k), bits...))
					if strings.Contains(v, e[(8*k+5)/6:8*(k+len(bits))/6]) {
						return true
					}
				}
			}
		}
	}
	return false
}

// decodings returns the ways in which a receiver might read text.
func decodings(t string) []string {
	out := []string{t}
	if u, err := url.QueryUnescape(t); err == nil && u != t {
		out = append(out, u)
		if v, err := url.QueryUnescape(u); err == nil && v != u {
			out = append(out, v)
		}
	}
	var s string
	if json.Unmarshal([]byte(`"`+t+`"`), &s) == nil && s != t {
		out = append(out, s)
	}
	// A JSON body as a whole: its strings with escapes resolved.
	var doc any
	if json.Unmarshal([]byte(t), &doc) == nil {
		out = append(out, string(encodeJSON(doc)))
	}
	if h, err := hex.DecodeString(t); err == nil {
		out = append(out, string(h))
	}
	return out
}

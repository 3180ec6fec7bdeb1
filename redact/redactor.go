package redact

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sbxhost/sbxhost/secret"
)

// Redactor masks a growing set of secrets. It is safe for concurrent use; what
// is added stays until the Redactor is dropped.
type Redactor struct {
	// core is a closure so that printers which follow pointers and read
	// unexported fields show an address and no needle.
	core func() *shared
}

// shared is the state of a Redactor.
type shared struct {
	opts  Options
	build func([]needle) engine // the fast engine
	set   atomic.Pointer[set]
	held  atomic.Int64
	spent atomic.Int64 // bytes that were looked at while narrow

	mu      sync.Mutex
	names   map[string]*name
	known   map[needle]bool
	all     []needle // in the order of arrival; append-only
	built   int      // all[:built] is in the big engine
	mended  int      // all[built:mended] is in the middle one, the rest in a small one
	big     engine
	middle  engine
	merging bool
	left    uint64
	escape  bool
	wide    bool             // the fast engine is in use, not the small one
	markers []byte           // every marker, each followed by a NUL
	grams   *[1 << 10]uint64 // bitmap of the four-byte pieces of markers; nil while they are few
	fresh   []*name          // markers not yet looked at for collisions
	refused []Refused
	retired map[string]bool
	secrets int
}

const defaultIdle = 20 * time.Millisecond

// New returns a Redactor that knows no secret.
func New(opts Options) *Redactor {
	if opts.MinLen == 0 {
		opts.MinLen = minLength
	}
	opts.MinLen = max(opts.MinLen, shortFloor)
	if opts.Idle == 0 {
		opts.Idle = defaultIdle
	}
	sh := &shared{
		opts:  opts,
		build: func(n []needle) engine { return newSampled(n) },
		names: map[string]*name{}, known: map[needle]bool{}, retired: map[string]bool{},
	}
	sh.set.Store(newSet(0, false))
	return &Redactor{core: func() *shared { return sh }}
}

// Add arms the given secrets and returns those values, and parts of values,
// that will not be masked. When it returns, every later Write, and every other
// call that starts later, masks them. Add more of the same name to mask old and
// new values of a rotated secret. It costs well under a millisecond for a
// common value, however many are known.
func (r *Redactor) Add(secrets ...Secret) []Refused {
	sh := r.core()
	var refused []Refused
	sh.mu.Lock()
	defer sh.mu.Unlock()
	fresh := make([]needle, 0, len(secrets))
	if len(sh.known) == 0 && len(secrets) > smallMax {
		sh.known = make(map[needle]bool, len(secrets))
	}
	if len(sh.names) == 0 && len(secrets) > smallMax {
		sh.names = make(map[string]*name, len(secrets))
	}
	for _, s := range secrets {
		s.AllowShort = s.AllowShort || sh.opts.AllowShort
		id := sh.name(s.Name)
		needles, no := expand(s, id, sh.opts.MinLen)
		refused = append(refused, no...)
		if len(needles) > 0 {
			sh.secrets++
		}
		for _, n := range needles {
			if !sh.known[n] {
				sh.known[n] = true
				fresh = append(fresh, n)
			}
		}
	}
	for _, no := range refused {
		if !slices.Contains(sh.refused, no) {
			sh.refused = append(sh.refused, no)
		}
	}
	if !sh.opts.Off && len(fresh) > 0 {
		sh.install(fresh)
	}
	return refused
}

// AddEnv arms every value of env under its name. It is how protected values
// enter a session's redactor.
func (r *Redactor) AddEnv(env secret.Env) []Refused {
	secrets := make([]Secret, 0, env.Len())
	for n, v := range env.All() {
		secrets = append(secrets, Secret{Name: n, Value: v.Reveal()})
	}
	return r.Add(secrets...)
}

// Retire notes that the named secrets are no longer in use. Their values go on
// being masked: what was printed once can be printed again.
func (r *Redactor) Retire(names ...string) {
	sh := r.core()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, n := range names {
		if _, ok := sh.names[n]; ok {
			sh.retired[n] = true
		}
	}
}

// Unmaskable returns everything that Add and AddEnv refused so far.
func (r *Redactor) Unmaskable() []Refused {
	sh := r.core()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return slices.Clone(sh.refused)
}

// Stats returns current figures. Names appear in Hits once they were hit.
func (r *Redactor) Stats() Stats {
	sh := r.core()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	st := Stats{Secrets: sh.secrets, Retired: len(sh.retired), Needles: len(sh.all), Refused: len(sh.refused), Held: sh.held.Load(), Hits: Hits{}}
	for text, n := range sh.names {
		if h := n.hits.Load(); h > 0 {
			st.Hits[text] = h
		}
	}
	return st
}

// ContainsMarker returns the sorted names of this Redactor's secrets whose
// marker [redacted:NAME] occurs in b: writing b back where it came from would
// replace a secret by its marker.
func (r *Redactor) ContainsMarker(b []byte) []string {
	sh := r.core()
	found := map[string]bool{}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for {
		i := bytes.Index(b, []byte(markerStart))
		if i < 0 {
			return slices.Sorted(maps.Keys(found))
		}
		b = b[i+len(markerStart):]
		name, _, ok := bytes.Cut(b[:min(len(b), maxName+1)], []byte("]"))
		if ok {
			if _, ours := sh.names[string(name)]; ours {
				found[string(name)] = true
			}
		}
	}
}

const typeName = "redact.Redactor"

// GoString names the type and shows nothing of what it knows.
func (r *Redactor) GoString() string { return typeName }

// Format names the type for every verb and flag.
func (r *Redactor) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, typeName) }

// LogValue names the type.
func (r *Redactor) LogValue() slog.Value { return slog.StringValue(typeName) }

// MarshalJSON returns ErrMarshal.
func (r *Redactor) MarshalJSON() ([]byte, error) { return nil, ErrMarshal }

// MarshalText returns ErrMarshal.
func (r *Redactor) MarshalText() ([]byte, error) { return nil, ErrMarshal }

// GobEncode returns ErrMarshal.
func (r *Redactor) GobEncode() ([]byte, error) { return nil, ErrMarshal }

const (
	markerStart = "[redacted:"
	maxName     = 128
)

// name returns the shared record of a secret's name. sh.mu is held.
func (sh *shared) name(text string) *name {
	if n, ok := sh.names[text]; ok {
		return n
	}
	n := &name{text: text, marker: plainMarker}
	if clean(text) {
		n.marker = markerStart + text + "]"
		sh.markers = append(append(sh.markers, n.marker...), 0)
		if sh.grams == nil && len(sh.names) >= manyNames {
			sh.grams = new([1 << 10]uint64)
			for _, old := range sh.names {
				sh.sift(old.marker)
			}
		}
		sh.sift(n.marker)
		sh.fresh = append(sh.fresh, n)
	}
	sh.names[text] = n
	return n
}

// manyNames is how many names make the bitmap worth its memory.
const manyNames = 16

// sift notes the pieces of a marker in the bitmap.
func (sh *shared) sift(marker string) {
	if sh.grams == nil {
		return
	}
	for i := range len(marker) - shortFloor + 1 {
		h := gramHash(marker[i:])
		sh.grams[h>>6] |= 1 << (h & 63)
	}
}

// What was added last is compiled at every Add, so it stays few; what was added
// since the big engine was built is compiled whenever there is too much of that.
const (
	smallMax  = 64
	middleMax = 512
)

// install compiles fresh needles and publishes the larger set. sh.mu is held.
func (sh *shared) install(fresh []needle) {
	sh.all = append(sh.all, fresh...)
	for i := range fresh {
		sh.left |= fresh[i].left
		sh.escape = sh.escape || escapable(fresh[i].text[0])
		sh.collide(fresh[i].text)
	}
	if !sh.wide && len(sh.all) > smallMax { // a merge under way reads it: see merge
		sh.wide = true
	}
	switch {
	case len(fresh) > max(middleMax, sh.built):
		sh.big, sh.built = sh.compile(sh.all), len(sh.all)
		sh.middle, sh.mended = nil, len(sh.all)
	case len(sh.all)-sh.mended > smallMax:
		sh.middle, sh.mended = sh.compile(sh.all[sh.built:]), len(sh.all)
	}
	s := sh.layered()
	var f found
	for _, n := range sh.fresh {
		for _, l := range s.layers {
			f.hits = f.hits[:0]
			if l.scan([]byte(n.marker), &f); len(f.hits) > 0 {
				n.plain.Store(true)
			}
		}
	}
	sh.fresh = nil
	sh.set.Store(s)
	if len(sh.all)-sh.built > middleMax && !sh.merging {
		sh.merging = true
		go sh.merge(slices.Clip(sh.all))
	}
}

// merge builds a big engine beside the running ones and puts it in their place.
func (sh *shared) merge(all []needle) {
	big := sh.compile(all)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.merging = false
	if len(all) < sh.built {
		return // a batch came in meanwhile and built a bigger one
	}
	sh.big, sh.built = big, len(all)
	sh.middle, sh.mended = sh.compile(sh.all[sh.built:]), len(sh.all)
	sh.set.Store(sh.layered())
}

// layered is the set of the engines as they are and a small one for the rest.
func (sh *shared) layered() *set {
	s := newSet(sh.left, sh.escape, sh.big, sh.middle, sh.compile(sh.all[sh.mended:]))
	s.narrow = !sh.wide && len(s.layers) > 0
	return s
}

// widenAfter is how many bytes the small engine looks at before the fast one,
// which takes some ten times its memory, pays: a host has many sandboxes of which
// little is ever read.
const widenAfter = 16 << 10

// widen counts bytes that are looked at by the small engine, and puts the fast
// one in its place when they become many. It reports whether the set changed.
func (sh *shared) widen(n int) bool {
	if sh.spent.Add(int64(n)) < widenAfter {
		return false
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !sh.wide {
		sh.wide = true
		sh.set.Store(sh.layered())
	}
	return true
}

// collide makes every marker in which a needle occurs the plain one.
func (sh *shared) collide(text string) {
	if len(text) > len(markerStart)+maxName+1 {
		return
	}
	for i := range len(text) - shortFloor + 1 {
		if sh.grams == nil {
			break
		}
		if h := gramHash(text[i:]); sh.grams[h>>6]&(1<<(h&63)) == 0 {
			return
		}
	}
	if !bytes.Contains(sh.markers, []byte(text)) {
		return
	}
	for _, n := range sh.names {
		if bytes.Contains([]byte(n.marker), []byte(text)) {
			n.plain.Store(true)
		}
	}
}

// gramHash hashes the first four bytes of s.
func gramHash(s string) uint32 {
	return (uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24) * 0x9E3779B1 >> 16
}

// compile builds an engine, or none for no needles.
func (sh *shared) compile(needles []needle) engine {
	if len(needles) == 0 {
		return nil
	}
	if !sh.wide {
		return newSorted(needles)
	}
	return sh.build(needles)
}

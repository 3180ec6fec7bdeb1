package host

import (
	"bytes"
	"math"
	"slices"
	"sync"
)

// transcript keeps what a command printed, redacted: the head and the tail of
// each stream, within a limit, and everything that a reader has yet to see.
//
// Nothing is lost to a reader that keeps reading: a write that would push out
// what it has not seen waits for it. With no reader, output is counted and its
// middle dropped.
type transcript struct {
	mu      sync.Mutex
	streams [2]kept
	readers []*transcriptReader
	changed chan struct{} // closed and replaced whenever something changes
	waits   bool          // a reader is expected: writes wait for it to come
	nowait  bool          // writes never wait any more
	lossy   bool          // … and what readers have not seen may be dropped
	ended   *Result
}

// kept is one stream.
type kept struct {
	name     string
	headMax  int
	tailMax  int
	head     []byte
	tail     []byte // the last bytes after head; up to twice tailMax
	total    int64
	stopped  bool // nothing is accepted any more
	overflow bool // the middle was dropped
}

// transcriptReader is one consumer's position in each stream.
type transcriptReader struct{ at [2]int64 }

func newTranscript(limit int64, waits bool) *transcript {
	if limit > math.MaxInt/4 {
		limit = math.MaxInt / 4
	}
	t := &transcript{changed: make(chan struct{}), waits: waits}
	for i, name := range []string{Stdout, Stderr} {
		half := int(limit / 2)
		t.streams[i] = kept{name: name, headMax: int(limit) - half, tailMax: half}
	}
	return t
}

// writer returns the end that the redactor writes to.
func (t *transcript) writer(i int) *transcriptWriter { return &transcriptWriter{t: t, i: i} }

type transcriptWriter struct {
	t *transcript
	i int
}

// Write takes p in pieces, so that a large one wakes readers early.
func (w *transcriptWriter) Write(p []byte) (int, error) {
	const piece = 64 << 10
	for part := range slices.Chunk(p, piece) {
		w.t.append(w.i, part)
	}
	return len(p), nil
}

func (t *transcript) append(i int, p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := &t.streams[i]
	for !k.stopped && !t.nowait && !k.fits(len(p), t.unread(i)) {
		changed := t.changed
		t.mu.Unlock()
		<-changed
		t.mu.Lock()
	}
	if k.stopped {
		return
	}
	k.add(p, t.unread(i))
	t.wake()
}

// unread is the first offset of a stream that somebody still has to see.
func (t *transcript) unread(i int) int64 {
	switch {
	case t.lossy:
		return math.MaxInt64
	case len(t.readers) == 0 && t.waits:
		return 0
	}
	first := int64(math.MaxInt64)
	for _, r := range t.readers {
		first = min(first, r.at[i])
	}
	return first
}

// readAhead is how far a command may get ahead of a reader at least.
const readAhead = 1 << 20

// fits reports whether n more bytes can be taken without losing what is unread.
func (k *kept) fits(n int, unread int64) bool {
	if k.total+int64(n) <= int64(k.headMax) {
		return true
	}
	start := k.total - int64(len(k.tail))
	mustKeep := k.total - max(unread, start)
	return unread >= k.total || mustKeep+int64(n) <= int64(2*k.tailMax+readAhead)
}

// add takes p and drops from the middle what is neither wanted nor unread.
func (k *kept) add(p []byte, unread int64) {
	if room := k.headMax - len(k.head); room > 0 && k.total == int64(len(k.head)) {
		n := min(room, len(p))
		k.head = append(k.head, p[:n]...)
		k.total += int64(n)
		p = p[n:]
	}
	k.tail = append(k.tail, p...)
	k.total += int64(len(p))
	if len(k.tail) <= 2*k.tailMax+4096 {
		return
	}
	start := k.total - int64(len(k.tail))
	keepFrom := min(k.total-int64(k.tailMax), max(unread, start))
	if drop := int(keepFrom - start); drop > 0 {
		k.tail = append(k.tail[:0], k.tail[drop:]...)
		k.overflow = true
	}
}

// wake tells everyone that waits. The caller holds t.mu.
func (t *transcript) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// attach adds a reader that begins at the given offsets.
func (t *transcript) attach(stdout, stderr int64) *transcriptReader {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &transcriptReader{at: [2]int64{max(stdout, 0), max(stderr, 0)}}
	t.readers = append(t.readers, r)
	return r
}

// detach removes a reader. Without any the command runs on unhindered.
func (t *transcript) detach(r *transcriptReader) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers = slices.DeleteFunc(t.readers, func(x *transcriptReader) bool { return x == r })
	t.waits = false
	t.wake()
}

// drain says that no reader need be waited for.
func (t *transcript) drain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits {
		t.waits = false
		t.wake()
	}
}

// flow makes writes go through whatever readers do: the command is to end. What
// they have not seen is kept, unless lossy says that more may come than can be.
func (t *transcript) flow(lossy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nowait, t.lossy = true, t.lossy || lossy
	t.wake()
}

// stop ends both streams: what is written later is dropped, and a write that waits
// comes back.
func (t *transcript) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.streams {
		t.streams[i].stopped = true
	}
	t.wake()
}

// end adds the terminal event.
func (t *transcript) end(r *Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = r
	t.wake()
}

// next returns the reader's next event, waiting for it.
func (t *transcript) next(r *transcriptReader) Event {
	for {
		t.mu.Lock()
		if ev, ok := t.take(r); ok {
			t.mu.Unlock()
			return ev
		}
		changed := t.changed
		t.mu.Unlock()
		<-changed
	}
}

// take returns the next piece of output, or the end, if there is one.
func (t *transcript) take(r *transcriptReader) (Event, bool) {
	for i := range t.streams {
		k := &t.streams[i]
		if r.at[i] >= k.total {
			continue
		}
		at, data := k.from(r.at[i], 64<<10)
		r.at[i] = at + int64(len(data))
		t.wake()
		return Event{Stream: k.name, Offset: at, Data: data}, true
	}
	if t.ended != nil {
		return Event{Exit: t.ended.clone()}, true
	}
	return Event{}, false
}

// from copies up to limit kept bytes at or after offset.
func (k *kept) from(offset int64, limit int) (int64, []byte) {
	if offset < int64(len(k.head)) {
		b := k.head[offset:]
		return offset, bytes.Clone(b[:min(len(b), limit)])
	}
	start := k.total - int64(len(k.tail))
	offset = max(offset, start)
	b := k.tail[offset-start:]
	return offset, bytes.Clone(b[:min(len(b), limit)])
}

// result returns a stream's head and tail within limit.
func (t *transcript) result(i int, limit int64) ([]byte, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := &t.streams[i]
	return truncate(k.head, k.tail, k.total, limit)
}

package redact

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// ErrClosed is returned by a Writer that was closed.
var ErrClosed = errors.New("redact: writer is closed")

// Writer masks what passes through it. It is safe for concurrent use.
//
// After each Write it holds back the longest suffix of the input that could be
// the beginning of a secret, and nothing else. Held bytes are released by more
// data, by Flush, by Close and, when they give too little away (at most three
// bytes, or a quarter of every secret they could begin, sixteen at most), by a
// timer.
type Writer struct {
	core func() *writer // hides carried bytes from printers, as in Redactor
}

type writer struct {
	mu     sync.Mutex
	st     stream
	dst    io.Writer
	err    error // of all later calls: ErrClosed once closed
	closed bool
	held   int // what this Writer has added to shared.held; may be late while armed

	timer  *time.Timer
	armed  bool
	writes uint64 // counts Writes, so that the timer sees that more came
	seen   uint64 // writes when the timer was last set
}

// Writer returns a Writer that masks what goes to dst. The caller must Close
// it; that does not close dst. dst is never written to concurrently, but may be
// written to from the timer's goroutine.
func (r *Redactor) Writer(dst io.Writer) *Writer {
	w := &writer{st: stream{sh: r.core()}, dst: dst}
	return &Writer{core: func() *writer { return w }}
}

// Write masks p. It returns len(p), unless dst fails: then it returns 0 and
// that error, as do all later calls. It does not keep p.
func (w *Writer) Write(p []byte) (int, error) {
	c := w.core()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || len(p) == 0 {
		return 0, c.err
	}
	c.writes++
	if out := c.st.next(p, more); len(out) > 0 {
		if n, err := c.dst.Write(out); err != nil || n < len(out) {
			c.fail(err)
			c.account()
			return 0, c.err
		}
	}
	if !c.armed && (len(c.st.carry) > 0 || c.held > 0) {
		c.account()
		c.arm()
	}
	return len(p), nil
}

// Flush writes everything that is held, masking only what is complete: a
// secret whose beginning was flushed is masked from there on. Call it where
// showing the beginning of a secret is better than waiting.
func (w *Writer) Flush() error {
	c := w.core()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return c.send(c.st.next(nil, pause))
}

// Close writes what is held. A held beginning of a secret that is at least
// eight bytes and half of the secret is masked as one that was cut off. It is
// an error to write afterwards; closing again does nothing.
func (w *Writer) Close() error {
	c := w.core()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
		c.armed = false
	}
	err := c.err
	if err != nil {
		c.st.carry = c.st.carry[:0]
		c.account()
	} else {
		err = c.send(c.st.next(nil, eof))
	}
	c.err = ErrClosed
	return err
}

// Hits returns the markers written so far, by secret name. The caller owns the
// map.
func (w *Writer) Hits() map[string]int64 {
	c := w.core()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st.counts()
}

// send writes b and brings the gauge up to date.
func (c *writer) send(b []byte) error {
	if len(b) > 0 {
		if n, err := c.dst.Write(b); err != nil || n < len(b) {
			c.fail(err)
		}
	}
	c.account()
	return c.err
}

// fail keeps the error of a write that was not done in full.
func (c *writer) fail(err error) {
	if c.err = err; err == nil {
		c.err = io.ErrShortWrite
	}
}

// account keeps the gauge of held bytes. While the timer is set its tick does
// that, so that a write of one byte need not.
func (c *writer) account() {
	if held := c.holding(); held != c.held {
		c.st.sh.held.Add(int64(held - c.held))
		c.held = held
	}
}

func (c *writer) holding() int { return max(0, len(c.st.carry)-c.st.out) }

// arm starts the timer if something is held. It ticks twice per idle period and
// acts on the first tick before which no Write came, so that a Write need not
// touch it and held bytes leave at most one idle period after the last Write.
func (c *writer) arm() {
	if c.armed || c.holding() == 0 {
		return
	}
	c.armed, c.seen = true, c.writes
	half := defaultIdle / 2 // for the gauge alone, where nothing is let go
	if idle := c.st.sh.opts.Idle; idle > 0 {
		half = max(idle/2, 1)
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(half, c.tick)
	} else {
		c.timer.Reset(half)
	}
}

func (c *writer) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	c.account()
	if c.err != nil || c.held == 0 {
		return
	}
	if c.writes != c.seen {
		c.arm()
		return
	}
	if c.st.sh.opts.Idle < 0 {
		return
	}
	_ = c.send(c.st.idle()) // kept in c.err for the next call
}

// String names the type; what a Writer holds back is never shown.
func (w *Writer) String() string { return "redact.Writer" }

// GoString is String.
func (w *Writer) GoString() string { return w.String() }

// Format writes String for every verb and flag.
func (w *Writer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, w.String()) }

// LogValue is String.
func (w *Writer) LogValue() slog.Value { return slog.StringValue(w.String()) }

// MarshalJSON returns ErrMarshal.
func (w *Writer) MarshalJSON() ([]byte, error) { return nil, ErrMarshal }

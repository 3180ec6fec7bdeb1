package engine

import "bytes"

// Stream says where a log line was written.
type Stream byte

// The streams a module can write to.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Line is one line that a module wrote, without its newline. It is the module's
// own text: untrusted.
type Line struct {
	Stream Stream
	Text   string
	// Init is true if it was written during initialisation.
	Init bool
	// State is that of the call.
	State any
	// Truncated is true if the rest of the line, or of the call's output,
	// was dropped.
	Truncated bool
}

const maxLine = 4 << 10

// lineWriter cuts a stream into lines.
type lineWriter struct {
	call   *Call
	stream Stream
	pool   *Pool
	buf    []byte
	over   bool // the line so far is longer than maxLine
}

func (w *lineWriter) init(c *Call, s Stream, p *Pool) {
	w.call, w.stream, w.pool = c, s, p
}

func (w *lineWriter) write(b []byte) {
	if w.pool.opts.Log == nil {
		return
	}
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		part := b
		if i >= 0 {
			part = b[:i]
		}
		if room := maxLine - len(w.buf); len(part) > room {
			w.over = true
			w.buf = append(w.buf, part[:room]...)
		} else {
			w.buf = append(w.buf, part...)
		}
		if i < 0 {
			return
		}
		w.emit()
		b = b[i+1:]
	}
}

func (w *lineWriter) emit() {
	c, limit := w.call, w.pool.opts.LogBytes
	text, over := w.buf, w.over
	w.buf, w.over = w.buf[:0], false
	if c.logged > limit {
		return
	}
	if c.logged += len(text) + 1; c.logged > limit {
		over = true
	}
	w.pool.opts.Log(Line{Stream: w.stream, Text: string(text), Init: c.Init, State: c.State, Truncated: over})
}

// Write adds to the module's standard output or error as seen by the log.
func (c *Call) write(s Stream, b []byte) { c.lines[s-1].write(b) }

func (c *Call) flushLines() {
	for i := range c.lines {
		if len(c.lines[i].buf) > 0 {
			c.lines[i].emit()
		}
	}
}

package redact

import "io"

// Reader returns a Reader of src's bytes, masked. What could be the beginning
// of a secret is held until src yields more or ends. An error of src ends the
// stream as io.EOF does, and is returned after the last bytes, masked like any
// error if its text holds a secret. The Reader is not safe for concurrent use. It
// also has a method Hits() map[string]int64, as Writer does.
func (r *Redactor) Reader(src io.Reader) io.Reader {
	c := &reader{r: r, src: src, st: stream{sh: r.core()}, in: make([]byte, 32<<10)}
	return &hiddenReader{read: c.Read, hits: c.st.counts}
}

// hiddenReader keeps carried bytes from printers.
type hiddenReader struct {
	read func([]byte) (int, error)
	hits func() map[string]int64
}

// Read implements io.Reader.
func (h *hiddenReader) Read(p []byte) (int, error) { return h.read(p) }

// Hits returns the markers read so far, by secret name. The caller owns the map.
func (h *hiddenReader) Hits() map[string]int64 { return h.hits() }

type reader struct {
	r   *Redactor
	src io.Reader
	st  stream
	in  []byte
	out []byte // masked, not yet read; may be part of in
	err error
}

func (c *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for empty := 0; len(c.out) == 0; empty++ {
		if c.err != nil {
			return 0, c.err
		}
		if empty > 100 {
			return 0, io.ErrNoProgress
		}
		n, err := c.src.Read(c.in)
		if n > 0 {
			empty = 0
			c.out = c.st.next(c.in[:n], more)
		}
		if err != nil {
			c.err = err
			if err != io.EOF && len(c.r.Contains([]byte(err.Error()))) > 0 {
				c.err = c.r.Error(err)
			}
			// The tail lives in memory of its own: next may reuse what out is in.
			tail := append([]byte(nil), c.out...)
			c.out = append(tail, c.st.next(nil, eof)...)
		}
	}
	n := copy(p, c.out)
	c.out = c.out[n:]
	return n, nil
}

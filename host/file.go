package host

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/sbxhost/sbxhost/provider"
)

// File is an open file of a sandbox. Everything read from it is redacted, and
// offsets address the redacted bytes. It is safe for concurrent use, one read at
// a time. The caller must Close it.
type File struct {
	s    *Session
	path string
	info FileInfo
	ctx  context.Context
	done func() // ends the session's operation; may be called again

	mu     sync.Mutex
	src    io.ReadCloser
	masked io.Reader
	pos    int64 // of masked, in redacted bytes
	next   int64 // of Read
	closed bool
}

// Format implements fmt.Formatter: its session's id, whatever the verb. Printing
// reads none of the fields that change.
func (f *File) Format(st fmt.State, _ rune) { _, _ = io.WriteString(st, "host.File["+f.s.id+"]") }

// Open opens a regular file for reading. ctx covers everything that is done with
// it. The session cannot end while it is open, other than by Close, Detach or
// its lifetime, which cancel reads.
func (s *Session) Open(ctx context.Context, path string) (*File, error) {
	fctx, done, err := s.use(ctx, "open")
	if err != nil {
		return nil, err
	}
	_, tr := s.trace(ctx, KindFile, "open")
	tr.record.Path = path
	f := &File{s: s, path: path, ctx: fctx, done: sync.OnceFunc(done)}
	err = f.rewind()
	tr.end(err)
	if err != nil {
		done()
		return nil, err
	}
	// A file that nobody closes must not keep the session from ending.
	context.AfterFunc(fctx, f.done)
	return f, nil
}

// rewind opens the file again, at its beginning: a redacted offset can be found
// only by redacting what comes before it.
func (f *File) rewind() error {
	src, info, err := f.s.sandbox.Files().Open(f.ctx, f.path)
	if err != nil {
		return err
	}
	if f.src != nil {
		_ = f.src.Close()
	}
	f.src, f.info, f.pos = src, info, 0
	f.masked = f.s.redactor.Reader(src)
	return nil
}

// Info describes the file as it was when it was opened. Its Size counts the
// bytes in the sandbox, not the redacted ones.
func (f *File) Info() FileInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.info
}

// Redactions counts what was replaced in the bytes that were read, by name.
// Bytes that were read, or passed over, twice count once if they were read from
// the beginning each time.
func (f *File) Redactions() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return hitsOf(f.masked)
}

func hitsOf(r io.Reader) map[string]int64 {
	if h, ok := r.(interface{ Hits() map[string]int64 }); ok {
		return h.Hits()
	}
	return nil
}

// Read implements io.Reader.
func (f *File) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.readAt(p, f.next)
	f.next += int64(n)
	return n, err
}

// ReadAt implements io.ReaderAt over the redacted bytes. Reading backwards
// begins the file anew, and sees it as it is then.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, invalid("read", "the offset is negative", "")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	total := 0
	for total < len(p) {
		n, err := f.readAt(p[total:], off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// readAt does one read. The caller holds f.mu.
func (f *File) readAt(p []byte, off int64) (int, error) {
	if f.closed {
		return 0, refusal(provider.FailedPrecondition, "read", "the file is closed", "")
	}
	if off < f.pos {
		if err := f.rewind(); err != nil {
			return 0, err
		}
	}
	if skip := off - f.pos; skip > 0 {
		n, err := io.CopyN(io.Discard, f.masked, skip)
		f.pos += n
		if err != nil {
			return 0, err
		}
	}
	// What was read ahead does not count: to cancel is to be heard at once.
	if f.ctx.Err() != nil {
		return 0, f.s.boundary.err("read", errNotRead(f.ctx))
	}
	n, err := f.masked.Read(p)
	f.pos += int64(n)
	return n, err
}

// Close lets go of the file. Closing again does nothing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	err := f.src.Close()
	f.done()
	return err
}

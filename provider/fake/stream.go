package fake

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// pipeSize is how much a process can write before somebody reads, as a Linux
// pipe holds.
const pipeSize = 64 << 10

// pipe is a bounded byte queue. Unlike io.Pipe it decouples writer and reader,
// so that a killed process never hangs on a blocked reader, and knows how many
// processes hold its writing end.
type pipe struct {
	mu      sync.Mutex
	cond    *sync.Cond
	buf     []byte
	holders int  // processes that may still write
	cut     bool // the reader has gone: writes are dropped
	ended   bool // no more data will come, whatever holders says
}

func newPipe(holders int) *pipe {
	p := &pipe{holders: holders}
	p.cond = sync.NewCond(&p.mu)
	return p
}

// write blocks while the pipe is full and alive says that the writer lives. It
// returns io.ErrClosedPipe when the writer died first.
func (p *pipe) write(b []byte, alive func() bool) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for len(b) > 0 {
		for len(p.buf) >= pipeSize && !p.cut && !p.ended && alive() {
			p.cond.Wait()
		}
		switch {
		case !alive() || p.ended:
			return n, io.ErrClosedPipe
		case p.cut:
			return n + len(b), nil // drained and dropped
		}
		k := min(len(b), pipeSize-len(p.buf))
		p.buf = append(p.buf, b[:k]...)
		b, n = b[k:], n+k
		p.cond.Broadcast()
	}
	return n, nil
}

// take waits for data and returns all of it. It returns nil at the end: when
// nobody holds the writing end, or when it was ended or cut.
func (p *pipe) take() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf) == 0 && p.holders > 0 && !p.ended && !p.cut {
		p.cond.Wait()
	}
	if len(p.buf) == 0 {
		return nil
	}
	out := p.buf
	p.buf = nil
	p.cond.Broadcast()
	return out
}

// read is take for a process's standard input.
func (p *pipe) read(b []byte, alive func() bool) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf) == 0 && p.holders > 0 && !p.ended && alive() {
		p.cond.Wait()
	}
	if !alive() || len(p.buf) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.buf)
	p.buf = p.buf[n:]
	p.cond.Broadcast()
	return n, nil
}

func (p *pipe) hold() { p.mu.Lock(); p.holders++; p.mu.Unlock() }

func (p *pipe) release() { p.mu.Lock(); p.holders--; p.cond.Broadcast(); p.mu.Unlock() }

// wake makes blocked calls look at their conditions again.
func (p *pipe) wake() { p.mu.Lock(); p.cond.Broadcast(); p.mu.Unlock() }

// end says that no more data will come; what is buffered can still be taken.
func (p *pipe) end() { p.mu.Lock(); p.ended = true; p.cond.Broadcast(); p.mu.Unlock() }

// delivery copies a pipe to the caller's writer until the pipe ends or is cut.
type delivery struct {
	pipe  *pipe
	crlf  bool // a terminal's output translation
	held  bool // deliver at the end only
	dst   io.Writer
	stash bytes.Buffer
	done  chan struct{}
}

// run is the one goroutine that calls the caller's writer.
func (d *delivery) run() {
	defer close(d.done)
	failed := false
	for {
		b := d.pipe.take()
		if b == nil {
			return
		}
		if d.crlf {
			b = bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))
		}
		switch {
		case failed:
		case d.held:
			d.stash.Write(b)
		default:
			_, err := d.dst.Write(b)
			failed = err != nil
		}
	}
}

// finish waits until every holder has gone and the data was delivered, or for
// grace; then it stops using the writer. Data written before the call is
// delivered in any case.
func (d *delivery) finish(grace time.Duration, keep bool) {
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-d.done:
	case <-t.C:
		d.pipe.mu.Lock()
		d.pipe.cut = true // what is buffered now is still delivered
		d.pipe.cond.Broadcast()
		d.pipe.mu.Unlock()
		<-d.done
	}
	if d.held && keep && d.stash.Len() > 0 {
		_, _ = d.dst.Write(d.stash.Bytes())
	}
}

package shim

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// DrainLimit is how long output is delivered after the command's end when
// something else still holds its streams.
const DrainLimit = 250 * time.Millisecond

// stream delivers one output stream to its writer.
type stream interface {
	// ended tells that the command has ended.
	ended()
	// finished is closed when everything to be delivered was.
	finished() <-chan struct{}
}

// sink writes until the first failure, then drops.
type sink struct {
	w      io.Writer
	failed bool
}

func (s *sink) write(p []byte) {
	if s.failed || s.w == nil || len(p) == 0 {
		return
	}
	if n, err := s.w.Write(p); err != nil || n < len(p) {
		s.failed = true
	}
}

// pump reads a descriptor that the command writes to.
type pump struct {
	f    *os.File
	tty  bool
	kick chan struct{}
	done chan struct{}
	once sync.Once
}

func startPump(f *os.File, tty bool, w io.Writer) *pump {
	p := &pump{f: f, tty: tty, kick: make(chan struct{}), done: make(chan struct{})}
	go p.run(sink{w: w})
	return p
}

func (p *pump) finished() <-chan struct{} { return p.done }

// ended interrupts the read that may be in progress.
func (p *pump) ended() {
	p.once.Do(func() {
		close(p.kick)
		_ = p.f.SetReadDeadline(time.Unix(1, 0))
	})
}

func (p *pump) run(out sink) {
	buf := make([]byte, 64<<10)
	finish := sync.OnceFunc(func() { close(p.done) })
	defer func() { _ = p.f.Close() }()
	defer finish()
	for {
		n, err := p.f.Read(buf)
		out.write(buf[:n])
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		break
	}
	// The command has ended. What is in the pipe now is its own and is delivered
	// however slow the writer is; what comes later, for a moment.
	end := time.Now().Add(DrainLimit)
	_ = p.f.SetReadDeadline(time.Time{})
	// A terminal does not tell all that it holds: it hands on a part at a time.
	for left := terminalHolds; p.tty && left > 0; {
		n, more := readNow(p.f, buf)
		out.write(buf[:n])
		if left -= n; !more {
			break
		}
	}
	for floor := buffered(p.f); floor > 0; {
		n, err := p.f.Read(buf[:min(floor, len(buf))])
		out.write(buf[:n])
		floor -= n
		if err != nil {
			return
		}
	}
	_ = p.f.SetReadDeadline(end)
	for {
		n, err := p.f.Read(buf)
		out.write(buf[:n])
		if err == nil && time.Now().Before(end) {
			continue
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		break
	}
	finish()
	// Something still holds the stream. Closing it would kill that with SIGPIPE.
	_ = p.f.SetReadDeadline(time.Time{})
	_, _ = io.CopyBuffer(io.Discard, onlyReader{p.f}, buf)
}

// terminalHolds is more than a terminal keeps of what was printed and not read.
const terminalHolds = 256 << 10

type onlyReader struct{ io.Reader }

// queue delivers a stream that arrives in frames. It holds little, so that a
// blocked writer is felt by the command; but once the command is being killed it
// does not wait any more, because the answer to the kill is behind it.
type queue struct {
	mu     sync.Mutex
	cond   *sync.Cond
	chunks [][]byte
	size   int
	killed bool
	cut    bool // something was dropped, and so is what comes after it
	closed bool
	done   chan struct{}
}

const queueLimit = 256 << 10

// KillLimit is how much of a stream is kept for a writer that does not take it while
// the command is being killed. What is beyond is dropped: a command may go on
// writing as long as the grace lasts, and the host must not grow with it.
const KillLimit = 16 << 20

func startQueue(w io.Writer) *queue {
	q := &queue{done: make(chan struct{})}
	q.cond = sync.NewCond(&q.mu)
	go q.run(sink{w: w})
	return q
}

func (q *queue) finished() <-chan struct{} { return q.done }

func (q *queue) ended() {
	q.mu.Lock()
	q.closed = true
	q.cond.Broadcast()
	q.mu.Unlock()
}

func (q *queue) waitNoMore() {
	q.mu.Lock()
	q.killed = true
	q.cond.Broadcast()
	q.mu.Unlock()
}

func (q *queue) push(p []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.size >= queueLimit && !q.killed && !q.closed {
		q.cond.Wait()
	}
	q.cut = q.cut || q.size+len(p) > KillLimit
	if q.closed || q.cut {
		return
	}
	q.chunks = append(q.chunks, append([]byte(nil), p...))
	q.size += len(p)
	q.cond.Broadcast()
}

func (q *queue) run(out sink) {
	defer close(q.done)
	for {
		q.mu.Lock()
		for len(q.chunks) == 0 && !q.closed {
			q.cond.Wait()
		}
		if len(q.chunks) == 0 {
			q.mu.Unlock()
			return
		}
		c := q.chunks[0]
		q.chunks = q.chunks[1:]
		q.mu.Unlock()
		out.write(c)
		q.mu.Lock()
		q.size -= len(c)
		q.cond.Broadcast()
		q.mu.Unlock()
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

package shim

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
)

// Dial starts one `shim files ID` (see FilesArgs) and returns its standard input and
// output. ctx covers the start only. Closing what it returns ends the program and a
// Read in progress.
type Dial func(ctx context.Context) (io.ReadWriteCloser, error)

// idleFor is how long a stream is kept for the next operation. Its program counts
// towards the container's limit of processes meanwhile.
const idleFor = 5 * time.Second

// errStream: the stream broke, or its other end does not keep to the protocol.
var errStream = errors.New("shim: the stream of file operations broke")

// faultError is an operation that the program refused or that failed there.
type faultError struct{ wire.FileFault }

func (e *faultError) Error() string { return "shim: a file operation failed" }

// fileStream is one running program. It is used by one operation at a time.
type fileStream struct {
	conn   io.ReadWriteCloser
	frames chan wire.Frame // a payload is valid until the next receive
	gone   chan struct{}   // closed with the stream
	once   sync.Once

	used   bool // by an earlier operation
	silent bool // nothing has come since the last request
	broken bool
	early  *wire.Frame // an answer that came before its time
}

// newFileStream owns conn and starts reading, so that a dead program is noticed.
func newFileStream(conn io.ReadWriteCloser) *fileStream {
	st := &fileStream{conn: conn, frames: make(chan wire.Frame), gone: make(chan struct{})}
	go func() {
		defer close(st.frames)
		rd := wire.NewReader(conn, wire.FilesFromSupervisor)
		var bufs [2][]byte // one with the consumer, one being filled
		for i := 0; ; i ^= 1 {
			f, err := rd.Next()
			if err != nil {
				return
			}
			bufs[i] = append(bufs[i][:0], f.Payload...)
			select {
			case st.frames <- wire.Frame{Type: f.Type, Payload: bufs[i]}:
			case <-st.gone:
				return
			}
		}
	}()
	return st
}

func (st *fileStream) close() {
	st.once.Do(func() {
		close(st.gone)
		_ = st.conn.Close()
	})
}

func (st *fileStream) fail(err error) error {
	st.broken = true
	return errors.Join(errStream, err)
}

func (st *fileStream) send(b []byte) error {
	st.silent = true
	if _, err := st.conn.Write(b); err != nil {
		return st.fail(err)
	}
	return nil
}

func (st *fileStream) next() (wire.Frame, error) {
	if st.early != nil {
		f := *st.early
		st.early = nil
		return f, nil
	}
	f, ok := <-st.frames
	if !ok {
		return f, st.fail(io.ErrUnexpectedEOF)
	}
	st.silent = false
	return f, nil
}

// failure turns a frame that is not what was waited for into an error.
func (st *fileStream) failure(f wire.Frame) error {
	if f.Type == wire.FileFailed {
		if fault, err := wire.ParseFault(f.Payload); err == nil {
			return &faultError{fault}
		}
	}
	return st.fail(wire.ErrProtocol)
}

// done waits for the end of an operation.
func (st *fileStream) done() error {
	f, err := st.next()
	if err != nil {
		return err
	}
	if f.Type != wire.FileDone {
		return st.failure(f)
	}
	return nil
}

// ask sends a request whose answer begins with one description.
func (st *fileStream) ask(request []byte) (wire.Info, error) {
	if err := st.send(request); err != nil {
		return wire.Info{}, err
	}
	f, err := st.next()
	if err != nil {
		return wire.Info{}, err
	}
	if f.Type != wire.FileInfo {
		return wire.Info{}, st.failure(f)
	}
	i, err := wire.ParseInfo(f.Payload)
	if err != nil {
		return wire.Info{}, st.fail(err)
	}
	return i, nil
}

// errEarly: the program has answered already, before all was sent.
var errEarly = errors.New("shim: answered before the end")

// sendUpload sends a frame of an upload, unless it was answered already.
func (st *fileStream) sendUpload(b []byte) error {
	select {
	case f, ok := <-st.frames:
		if !ok {
			return st.fail(io.ErrUnexpectedEOF)
		}
		st.early = &f
		return errEarly
	default:
	}
	return st.send(b)
}

// upload sends what fill hands on, then its end, and waits for the answer. When fill
// fails, or the program does, the rest is called off.
func (st *fileStream) upload(fill func(chunk func([]byte) error) error) error {
	var b []byte
	err := fill(func(p []byte) error {
		b = wire.Append(b[:0], wire.FileChunk, p)
		return st.sendUpload(b)
	})
	return st.endUpload(err)
}

func (st *fileStream) endUpload(err error) error {
	if st.broken {
		return err
	}
	if err == nil {
		if err = st.send(wire.Append(nil, wire.FileEnd, nil)); err != nil {
			return err
		}
		return st.done()
	}
	if serr := st.send(wire.Append(nil, wire.FileCancel, nil)); serr != nil {
		return serr
	}
	answer := st.done()
	if errors.Is(err, errEarly) || st.broken {
		if answer == nil { // done before the end: not what we speak
			return st.fail(wire.ErrProtocol)
		}
		return answer
	}
	return err
}

// streamPool keeps one idle stream.
type streamPool struct {
	keep  time.Duration // in tests; 0: idleFor
	mu    sync.Mutex
	idle  *fileStream
	timer *time.Timer
}

func (p *streamPool) take() *fileStream {
	p.mu.Lock()
	st := p.idle
	p.idle = nil
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	if st == nil {
		return nil
	}
	select {
	case <-st.frames: // it ended, or speaks unasked
		st.close()
		return nil
	default:
		return st
	}
}

func (p *streamPool) put(st *fileStream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle != nil {
		st.close()
		return
	}
	p.idle = st
	p.timer = time.AfterFunc(cmp.Or(p.keep, idleFor), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.idle == st {
			p.idle = nil
			st.close()
		}
	})
}

func (p *streamPool) drop() {
	if st := p.take(); st != nil {
		st.close()
	}
}

// stream returns an idle stream, or a fresh one whose setup is in force.
func (f *Files) stream(ctx context.Context, p filesProblem) (*fileStream, error) {
	if ctx.Err() != nil {
		return nil, p.context(ctx)
	}
	if st := f.pool.take(); st != nil {
		return st, nil
	}
	c, err := f.o.Workload.config()
	if err != nil {
		return nil, f.invalid(p.op, p.name, err.Error())
	}
	c.Root = f.o.Root
	setup, err := c.MarshalBinary()
	if err != nil {
		return nil, p.of(err)
	}
	conn, err := f.o.Dial(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, p.context(ctx)
		}
		return nil, p.dial(err)
	}
	st := newFileStream(conn)
	stop := context.AfterFunc(ctx, st.close)
	err = st.send(wire.Append(nil, wire.Setup, setup))
	if err == nil {
		var fr wire.Frame
		if fr, err = st.next(); err == nil && fr.Type != wire.FileReady {
			err = st.failure(fr)
		}
	}
	if !stop() {
		st.close()
		return nil, p.context(ctx)
	}
	if err != nil {
		st.close()
		return nil, p.of(err)
	}
	return st, nil
}

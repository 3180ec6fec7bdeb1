package shim

import (
	"io"
	"os"
	"sync"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
)

func inputPipe() (theirs, ours *os.File, err error) {
	r, w, err := pipes(1)
	if err != nil {
		return nil, nil, err
	}
	// The ends are the other way round here.
	swapBlocking(r[0], w[0])
	return r[0], w[0], nil
}

// framedInput sends input under the credit window.
type framedInput struct {
	e    *Exec
	once sync.Once
	shut bool
}

// Write blocks while the command does not read, and fails once it has ended.
func (in *framedInput) Write(p []byte) (int, error) {
	e := in.e
	done := 0
	for done < len(p) {
		e.mu.Lock()
		for e.credit == 0 && !e.ended && !in.shut {
			e.cond.Wait()
		}
		if e.ended || in.shut {
			e.mu.Unlock()
			return done, io.ErrClosedPipe
		}
		n := min(len(p)-done, e.credit, wire.MaxChunk)
		e.credit -= n
		e.mu.Unlock()
		if err := e.send(wire.Append(nil, wire.Input, p[done:done+n])); err != nil {
			return done, io.ErrClosedPipe
		}
		done += n
	}
	return done, nil
}

// Close is the command's end of file.
func (in *framedInput) Close() error {
	in.once.Do(func() {
		in.e.mu.Lock()
		in.shut = true
		in.e.cond.Broadcast()
		in.e.mu.Unlock()
		_ = in.e.send(wire.Append(nil, wire.InputEnd, nil))
	})
	return nil
}

// terminalInput writes to a terminal that the output's pump owns.
type terminalInput struct {
	f    *os.File
	once sync.Once
}

func (in *terminalInput) Write(p []byte) (int, error) {
	n, err := in.f.Write(p)
	if err != nil {
		err = io.ErrClosedPipe
	}
	return n, err
}

// Close is the end of file of a line at a terminal, ^D.
func (in *terminalInput) Close() error {
	in.once.Do(func() { _, _ = in.f.Write([]byte{4}) })
	return nil
}

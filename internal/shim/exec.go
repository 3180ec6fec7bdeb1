package shim

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
)

// ErrLost means that the connection broke before the exit frame: how the command
// ended is not known.
var ErrLost = errors.New("shim: the connection to the supervisor ended before the command's exit was known")

// ErrEnded means that the command has ended already.
var ErrEnded = errors.New("shim: the command has ended")

// SurvivorsError is a kill that left processes alive.
type SurvivorsError struct{ Left uint32 }

func (e *SurvivorsError) Error() string {
	return "shim: processes of the command are still alive after KILL"
}

// StartError is a command that was not started. Nothing of it runs.
type StartError struct{ wire.Failure }

func (e *StartError) Error() string { return "shim: the command was not started" }

// Request is one command.
type Request struct {
	// Setup is the encoded wire.Config for a supervisor of one exec; nil for a
	// jail's, which has its own.
	Setup []byte
	// Args are the program and its arguments, none with a NUL.
	Args []string
	// Env is the complete environment, NAME=VALUE, no NUL. Start overwrites
	// the entries once they were sent.
	Env [][]byte
	Dir string
	// TTY gives the command a terminal of Cols × Rows.
	TTY           bool
	Cols, Rows    uint16
	KillLeftovers bool
	// Input, when not nil, is the whole input; else LiveInput says that Stdin
	// will be used. With neither the input is empty.
	Input     io.Reader
	LiveInput bool
	// Stdout and Stderr may be nil: then the output is dropped.
	Stdout, Stderr io.Writer
	// Timeout after which the tree is killed with Grace; 0 is none.
	Timeout, Grace time.Duration
	// HandOver passes the supervisor's end of the connection on, for a jail. It
	// is called once, when the request was written if it is small.
	HandOver func() error
}

// Status is how a command ended.
type Status struct {
	wire.ExitStatus
	// Lost: nothing else is known.
	Lost bool
	// TimedOut and KilledByHost: the tree was killed for that reason before the
	// command ended.
	TimedOut, KilledByHost bool
	// SignalledByHost: it died of a signal that Signal had sent.
	SignalledByHost bool
	// TreeDead: nothing of the command is left.
	TreeDead bool
}

// Exec is one command that a supervisor watches over. All methods are safe for
// concurrent use.
type Exec struct {
	conn     Conn
	streams  []stream
	queues   [2]*queue
	terminal *os.File
	stdin    io.WriteCloser
	pid      uint32

	wmu sync.Mutex // writes to conn

	mu       sync.Mutex
	cond     *sync.Cond // credit
	credit   int
	exit     *wire.ExitStatus
	ended    bool // exit or loss
	gone     bool // nothing of it is left
	finished bool
	lost     bool // the connection ended: nothing more will be answered
	status   Status
	kills    []chan error
	timedOut bool
	killed   bool
	signals  map[byte]bool
	timer    *time.Timer

	done chan struct{}
}

// directLimit is how much a socket surely takes without being read.
const directLimit = 32 << 10

// Start sends a request and returns when the command runs, or with a
// [*StartError], or with ErrLost or ctx's error, after which nothing of it is
// left running for long. It owns conn from the call on.
func Start(ctx context.Context, conn Conn, req Request) (*Exec, error) {
	e := &Exec{conn: conn, credit: wire.Window, signals: map[byte]bool{}, done: make(chan struct{})}
	e.cond = sync.NewCond(&e.mu)
	fc, direct := conn.(FileConn)

	size := 256 + len(req.Setup) + len(req.Dir)
	for _, a := range req.Args {
		size += len(a) + 1
	}
	for _, v := range req.Env {
		size += len(v) + 1
	}
	b := make([]byte, 0, size)
	defer func() { clear(b[:cap(b)]) }()
	if direct {
		b = wire.Append(b, wire.Passed, nil)
	}
	if req.Setup != nil {
		b = wire.Append(b, wire.Setup, req.Setup)
	}
	b = appendList(b, wire.Args, req.Args)
	b = appendList(b, wire.Env, req.Env)
	for _, v := range req.Env {
		clear(v)
	}
	if req.Dir != "" {
		b = wire.Append(b, wire.Dir, []byte(req.Dir))
	}
	if req.TTY {
		b = wire.AppendSize(b, wire.Terminal, req.Cols, req.Rows)
	}
	if req.KillLeftovers {
		b = wire.Append(b, wire.KillRest, nil)
	}
	b = wire.Append(b, wire.Go, nil)
	if !direct && req.Input == nil && !req.LiveInput {
		b = wire.Append(b, wire.InputEnd, nil)
	}

	var theirs, ours []*os.File
	if direct {
		var err error
		if theirs, ours, err = directStreams(req); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	// Giving up is closing the connection, from which the supervisor draws the
	// consequence.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	handOver := req.HandOver
	if handOver == nil {
		handOver = func() error { return nil }
	}
	send := func() error {
		if direct {
			return fc.WriteFiles(b, theirs...)
		}
		_, err := conn.Write(b)
		return err
	}
	first, second := send, handOver
	if len(b) > directLimit {
		first, second = handOver, send
	}
	err := first()
	if err == nil {
		err = second()
	}
	closeAll(theirs)
	rd := wire.NewReader(conn, wire.FromSupervisor)
	var f wire.Frame
	if err == nil {
		f, err = rd.Next()
	}
	fail := func(err error) (*Exec, error) {
		stop()
		_ = conn.Close()
		closeAll(ours)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	if err != nil {
		return fail(errors.Join(ErrLost, err))
	}
	switch f.Type {
	case wire.Ready:
		e.pid = wire.Uint32(f.Payload)
	case wire.Failed:
		failure, err := wire.ParseFailure(f.Payload)
		if err != nil {
			return fail(err)
		}
		return fail(&StartError{failure})
	default:
		return fail(wire.ErrProtocol)
	}
	if req.TTY && direct {
		if e.terminal = fc.TakeFile(); e.terminal == nil {
			return fail(wire.ErrProtocol)
		}
	}
	if !stop() {
		if e.terminal != nil {
			_ = e.terminal.Close()
		}
		return fail(ctx.Err())
	}
	e.connect(req, direct, ours)
	if req.Timeout > 0 {
		e.mu.Lock()
		e.timer = time.AfterFunc(req.Timeout, func() { e.requestKill(req.Grace, true) })
		e.mu.Unlock()
	}
	go e.read(rd)
	return e, nil
}

// directStreams makes the descriptors that the command gets, and our ends:
// input (nil when there is none), output, error output.
func directStreams(req Request) (theirs, ours []*os.File, err error) {
	if req.TTY {
		f, err := os.Open(os.DevNull)
		return []*os.File{f}, []*os.File{nil, nil, nil}, err
	}
	out, outW, err := pipes(2)
	if err != nil {
		return nil, nil, err
	}
	var in, inW *os.File
	if req.Input != nil || req.LiveInput {
		in, inW, err = inputPipe()
	} else {
		in, err = os.Open(os.DevNull)
	}
	if err != nil {
		closeAll(out)
		closeAll(outW)
		return nil, nil, err
	}
	return []*os.File{in, outW[0], outW[1]}, []*os.File{inW, out[0], out[1]}, nil
}

// connect starts what carries the streams.
func (e *Exec) connect(req Request, direct bool, ours []*os.File) {
	switch {
	case direct && req.TTY:
		e.streams = []stream{startPump(e.terminal, true, req.Stdout)}
		in := &terminalInput{f: e.terminal}
		if req.Input != nil {
			go feed(in, req.Input)
		} else if req.LiveInput {
			e.stdin = in
		} else {
			_ = in.Close()
		}
		return
	case direct:
		e.streams = []stream{startPump(ours[1], false, req.Stdout), startPump(ours[2], false, req.Stderr)}
		if req.Input != nil {
			go feed(ours[0], req.Input)
		} else if req.LiveInput {
			e.stdin = ours[0]
		}
		if ours[0] != nil {
			go func() { // a reader that is never written to again must not hold it
				<-e.done
				_ = ours[0].Close()
			}()
		}
		return
	}
	e.queues = [2]*queue{startQueue(req.Stdout), startQueue(req.Stderr)}
	e.streams = []stream{e.queues[0], e.queues[1]}
	in := &framedInput{e: e}
	if req.Input != nil {
		go feed(in, req.Input)
	} else if req.LiveInput {
		e.stdin = in
	}
}

func feed(w io.WriteCloser, r io.Reader) {
	_, _ = io.Copy(w, r)
	_ = w.Close()
}

// read handles frames until the supervisor has nothing more to say.
func (e *Exec) read(rd *wire.Reader) {
	for {
		f, err := rd.Next()
		if err != nil || !e.frame(f) {
			break
		}
	}
	e.mu.Lock()
	e.lostConn()
	e.mu.Unlock()
	_ = e.conn.Close()
}

// frame handles one frame; false when it was the last, or wrong.
func (e *Exec) frame(f wire.Frame) bool {
	switch f.Type {
	case wire.Stdout, wire.Stderr:
		i := 0
		if f.Type == wire.Stderr {
			i = 1
		}
		if e.queues[i] == nil {
			return false
		}
		e.queues[i].push(f.Payload)
		return true
	case wire.Credit:
		e.mu.Lock()
		e.credit += int(wire.Uint32(f.Payload))
		e.cond.Broadcast()
		e.mu.Unlock()
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch f.Type {
	case wire.Exit:
		st, err := wire.ParseExit(f.Payload)
		if err != nil || e.ended {
			return false
		}
		e.exit, e.ended, e.gone = &st, true, st.Left == 0
		e.cond.Broadcast()
		if e.timer != nil && !e.timedOut {
			e.timer.Stop()
		}
		for _, s := range e.streams {
			s.ended()
		}
		// A kill in progress decides whether the tree is dead: wait for its
		// answer.
		if len(e.kills) == 0 || e.gone {
			e.finish()
		}
		return !e.gone
	case wire.Killed:
		if len(e.kills) == 0 {
			return false
		}
		left := wire.Uint32(f.Payload)
		if left == 0 && e.ended {
			e.gone = true
		}
		var err error
		if left > 0 {
			err = &SurvivorsError{left}
		}
		e.kills[0] <- err
		e.kills = e.kills[1:]
		if len(e.kills) == 0 && e.ended {
			e.finish()
		}
		return true
	case wire.TreeGone:
		e.gone = true
		return false
	}
	return false
}

// lostConn settles everything that waits for a frame. Called with mu held.
func (e *Exec) lostConn() {
	e.lost = true
	if !e.ended {
		e.ended = true
		for _, s := range e.streams {
			s.ended()
		}
	}
	e.cond.Broadcast()
	e.finish()
	for _, k := range e.kills {
		if e.gone {
			k <- nil
		} else {
			k <- ErrLost
		}
	}
	e.kills = nil
	if e.timer != nil {
		e.timer.Stop()
	}
}

// finish fixes the status, once, and lets waiters go when the output was
// delivered. Called with mu held.
func (e *Exec) finish() {
	if e.finished {
		return
	}
	e.finished = true
	st := Status{TimedOut: e.timedOut, KilledByHost: e.killed, TreeDead: e.gone}
	if e.exit == nil {
		st.Lost = true
	} else {
		st.ExitStatus = *e.exit
		st.SignalledByHost = st.Signal != 0 && e.signals[st.Signal]
		if e.gone {
			st.Left = 0
		}
	}
	e.status = st
	go func() {
		for _, s := range e.streams {
			<-s.finished()
		}
		close(e.done)
	}()
}

// PID returns the command's process id as the supervisor sees it.
func (e *Exec) PID() int { return int(e.pid) }

// Stdin returns the command's input, nil unless LiveInput was asked for.
func (e *Exec) Stdin() io.WriteCloser { return e.stdin }

// Done is closed when the status is known and the output was delivered.
func (e *Exec) Done() <-chan struct{} { return e.done }

// Wait waits for the command's end, or for ctx.
func (e *Exec) Wait(ctx context.Context) (Status, error) {
	select {
	case <-e.done:
		return e.status, nil
	default:
	}
	select {
	case <-e.done:
		return e.status, nil
	case <-ctx.Done():
		return Status{}, ctx.Err()
	}
}

// Signal sends a signal to the command, ErrEnded when it has ended. It waits as long
// as the connection does not take the frame, and so does Resize.
func (e *Exec) Signal(number byte) error {
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return ErrEnded
	}
	e.signals[number] = true
	e.mu.Unlock()
	return e.send(wire.Append(nil, wire.Signal, []byte{number}))
}

// Resize sets the terminal's size.
func (e *Exec) Resize(cols, rows uint16) error {
	if e.terminal != nil {
		if err := setSize(e.terminal, cols, rows); err != nil {
			return ErrEnded
		}
		return nil
	}
	return e.send(wire.AppendSize(nil, wire.Resize, cols, rows))
}

// Kill ends the tree: TERM, grace, KILL. It returns nil only when nothing of the
// command is left. From now on output that its writer does not take is dropped
// beyond KillLimit.
func (e *Exec) Kill(ctx context.Context, grace time.Duration) error {
	answer := e.requestKill(grace, false)
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// requestKill sends a kill frame and returns where its answer will be.
func (e *Exec) requestKill(grace time.Duration, timeout bool) <-chan error {
	answer := make(chan error, 1)
	e.mu.Lock()
	if e.gone {
		e.mu.Unlock()
		answer <- nil
		return answer
	}
	if e.lost {
		e.mu.Unlock()
		answer <- ErrLost
		return answer
	}
	if e.ended && timeout {
		e.mu.Unlock()
		answer <- nil
		return answer
	}
	if !e.ended && !e.timedOut && !e.killed {
		e.timedOut, e.killed = timeout, !timeout
	}
	e.kills = append(e.kills, answer)
	e.mu.Unlock()
	for _, q := range e.queues {
		if q != nil {
			q.waitNoMore()
		}
	}
	ms := min(max(grace, 0)/time.Millisecond, 1<<31)
	// A failed write shows as the end of the connection, which answers. One that
	// is not taken must not hold up whoever waits for the answer.
	go func() { _ = e.send(wire.AppendUint32(nil, wire.Kill, uint32(ms))) }()
	return answer
}

func (e *Exec) send(b []byte) error {
	e.wmu.Lock()
	defer e.wmu.Unlock()
	if _, err := e.conn.Write(b); err != nil {
		return ErrEnded
	}
	return nil
}

func appendList[T string | []byte](b []byte, t wire.Type, list []T) []byte {
	start := len(b)
	b = wire.Append(b, t, nil)
	for _, v := range list {
		b = append(append(b, v...), 0)
	}
	n := uint32(len(b) - start - wire.HeaderSize)
	b[start+1], b[start+2], b[start+3], b[start+4] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return b
}

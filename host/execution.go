package host

import (
	"context"
	"crypto/sha256"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/redact"
)

const (
	// execGrace is between TERM and KILL.
	execGrace = 2 * time.Second
	// deathWait is how long the host waits for a provider to confirm, after the
	// grace.
	deathWait = 3 * time.Second
)

// stopReason is why the host stops a command.
type stopReason int

const (
	stopNone stopReason = iota
	stopTimeout
	stopKilled   // by Process.Kill
	stopCanceled // the caller of Exec gave up
	stopEnded    // the session ended
	stopInput    // its input broke off
)

// execution is one command, from its request to its end.
type execution struct {
	s         *Session
	id        string
	callerID  bool
	print     [sha256.Size]byte
	request   provider.ExecRequest
	input     io.Reader // copied to the live input
	live      bool
	tty       bool
	exclusive bool
	limit     int64
	begun     time.Time

	transcript *transcript
	gates      [2]*gate
	redactors  [2]*redact.Writer

	proc  provider.Process
	stdin io.WriteCloser

	tr      *traced
	release func() // gives back the slot and ends the session's operation

	stops   chan stopOrder
	started chan struct{} // closed when proc is set, or never will be
	done    chan struct{} // closed when result and err are set

	mu     sync.Mutex
	sent   string // the last signal sent by a caller
	result *Result
	err    error
}

type stopOrder struct {
	why   stopReason
	grace time.Duration
}

func newExecution(s *Session, req ExecRequest, preq provider.ExecRequest, streaming bool, tr *traced) *execution {
	e := &execution{s: s, id: preq.ID, callerID: req.ID != "", print: fingerprint(req), request: preq,
		live: req.LiveStdin, tty: req.TTY, begun: tr.begun, limit: req.MaxOutput, tr: tr,
		stops: make(chan stopOrder, 1), started: make(chan struct{}), done: make(chan struct{})}
	if req.Stdin != nil && preq.Stdin == provider.StdinLive {
		e.input = req.Stdin
	}
	if e.limit == 0 {
		e.limit = s.h.limits.Output
	}
	if e.limit < 0 {
		e.limit = 1<<63 - 1
	}
	e.transcript = newTranscript(e.limit, streaming)
	for i := range e.gates {
		e.redactors[i] = s.redactor.Writer(e.transcript.writer(i))
		e.gates[i] = &gate{w: e.redactors[i]}
	}
	e.request.Stdout, e.request.Stderr = e.gates[0], e.gates[1]
	return e
}

// gate is what a provider writes to. Once shut nothing passes, whatever a
// provider that hangs does later.
type gate struct {
	mu   sync.Mutex // held by a write
	w    io.Writer
	shut atomic.Bool
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut.Load() {
		return 0, io.ErrClosedPipe
	}
	return g.w.Write(p)
}

// close shuts the gate and waits for a write that is under way. stuck is called
// when it does not come back in time.
func (g *gate) close(stuck func()) {
	g.shut.Store(true)
	timer := time.AfterFunc(gatePatience, stuck)
	defer timer.Stop()
	g.mu.Lock()
	g.mu.Unlock() //nolint:staticcheck // SA2001: the wait is the point
}

// leave is close for a writer that the caller may have blocked himself: after a
// while that one write is his own concern.
func (g *gate) leave() { leave(&g.shut, &g.mu) }

func leave(shut *atomic.Bool, busy *sync.Mutex) {
	shut.Store(true)
	if busy.TryLock() {
		busy.Unlock()
		return
	}
	idle := make(chan struct{})
	go func() {
		busy.Lock()
		busy.Unlock() //nolint:staticcheck // SA2001: the wait is the point
		close(idle)
	}()
	patience := time.NewTimer(gatePatience)
	defer patience.Stop()
	select {
	case <-idle:
	case <-patience.C:
	}
}

// inlet is what a provider reads from: a gate in the other direction.
type inlet struct {
	mu   sync.Mutex // held by a read
	r    io.Reader
	shut atomic.Bool
}

func (i *inlet) Read(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.shut.Load() {
		return 0, io.ErrClosedPipe
	}
	return i.r.Read(p)
}

func (i *inlet) leave() { leave(&i.shut, &i.mu) }

// gatePatience is how long a write may go on after the command's end, or the
// operation's.
const gatePatience = time.Second

// awaitStart waits until another caller's start of this command has been
// answered.
func (e *execution) awaitStart(ctx context.Context) error {
	select {
	case <-e.started:
		return nil
	case <-ctx.Done():
		return refusal(provider.CodeOf(ctx.Err()), opExec, "gave up waiting for the start of the command "+e.id, "")
	}
}

// start asks the provider. Its deadline is the command's: a provider that takes
// longer to start it than it may run has timed out.
func (e *execution) start(ctx context.Context) error {
	s := e.s
	s.disclosure().handedOver(s.execPairs(), opExec)
	s.disclosure().request(e.request.Secrets.Names(), opExec, "declared and supplied", true)
	deadline := e.begun.Add(e.request.Timeout)
	sctx, cancel := context.WithDeadline(ctx, deadline)
	proc, err := s.sandbox.Exec(sctx, e.request)
	cancel()
	if err == nil {
		e.proc = proc
		e.connect()
		close(e.started)
		go e.supervise(time.Until(deadline))
		return nil
	}
	if in, upfront := e.request.Input.(*inlet); upfront {
		in.leave() // it is the caller's again
	}
	close(e.started)
	if ctx.Err() == nil && !time.Now().Before(deadline) {
		// The start alone used up the time. Whether it runs is not known.
		e.finish(provider.Exit{Kind: provider.ExitTimedOut, Code: -1, LeftRunning: -1}, stopTimeout, false, nil)
		return nil
	}
	e.abandon(err)
	return err
}

// refuse takes the command back before the provider was asked.
func (e *execution) refuse(err error) {
	close(e.started)
	e.abandon(err)
}

// abandon ends an execution whose start failed. When nothing was started the ID
// is free again; else it stands for the error.
func (e *execution) abandon(err error) {
	e.shut()
	if appliedOf(err) == provider.AppliedNo {
		e.s.table().never(e)
	}
	r := &Result{ID: e.id, Status: Lost, ExitCode: -1, LeftRunning: -1, Duration: time.Since(e.begun)}
	e.conclude(r, err, false)
}

// connect wires the command's input.
func (e *execution) connect() {
	w := e.proc.Stdin()
	switch {
	case w == nil:
	case e.live:
		e.stdin = w
	case e.input != nil:
		go func() {
			// A command that does not read to the end is no error of ours.
			in := &source{r: e.input}
			if _, _ = io.Copy(w, in); in.broke {
				// The end of its input would tell the command that this was all.
				e.stop(stopInput, 0)
				<-e.done
			}
			_ = w.Close()
		}()
	}
}

// source tells the failure of a reader from that of the writer it is copied to.
type source struct {
	r     io.Reader
	broke bool
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.broke = err != nil && err != io.EOF // around it, it is no end
	return n, err
}

// stop asks supervise to end the command. Only the first order counts.
func (e *execution) stop(why stopReason, grace time.Duration) {
	select {
	case e.stops <- stopOrder{why, grace}:
	default:
	}
}

// signalled notes that a caller sent a signal, so that its effect is not taken
// for somebody else's.
func (e *execution) signalled(name string) {
	e.mu.Lock()
	e.sent = name
	e.mu.Unlock()
}

type ending struct {
	exit provider.Exit
	err  error
}

// supervise follows the command to its end and enforces its deadline, also
// against a provider that hangs.
func (e *execution) supervise(left time.Duration) {
	wctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ends := make(chan ending, 1)
	go func() {
		exit, err := e.proc.Wait(wctx)
		ends <- ending{exit, err}
	}()
	timer := time.NewTimer(left)
	defer timer.Stop()

	var end ending
	var order stopOrder
	confirmed := true
	select {
	case end = <-ends:
	case order = <-e.stops:
	case <-timer.C:
		order = stopOrder{stopTimeout, execGrace}
	}
	if order.why != stopNone {
		e.transcript.flow(true)
		end, confirmed = e.kill(order, ends)
	}
	if end.err != nil {
		end.exit = provider.Exit{Kind: provider.ExitLost, Code: -1, LeftRunning: -1}
	}
	e.finish(end.exit, order.why, confirmed, end.err)
}

// kill ends the command's tree. It returns how it ended, as far as the provider
// answers in time, and whether it confirmed the death.
func (e *execution) kill(order stopOrder, ends <-chan ending) (ending, bool) {
	limit := order.grace + deathWait
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	kills := make(chan error, 1)
	go func() { kills <- e.proc.Kill(ctx, order.grace) }()

	end := ending{exit: provider.Exit{Kind: provider.ExitKilled, Code: -1, LeftRunning: -1}}
	ended, dead, answered := false, false, false
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for late := false; !late && !(ended && answered); {
		select {
		case end = <-ends:
			ended = true
		case err := <-kills:
			dead, answered = err == nil, true
		case <-timer.C:
			late = true
			// On a busy machine it is this look that comes late, and not the answers.
			select {
			case end = <-ends:
			default:
			}
			select {
			case err := <-kills:
				dead = err == nil
			default:
			}
		}
	}
	return end, dead || end.err == nil && end.exit.TreeDead
}

// shut ends the output: what is held back comes out, and nothing more is taken.
func (e *execution) shut() {
	e.transcript.flow(false)
	for i := range e.gates {
		e.gates[i].close(e.transcript.stop)
		_ = e.redactors[i].Close()
	}
}

// finish makes the result.
func (e *execution) finish(exit provider.Exit, why stopReason, confirmed bool, cause error) {
	if !confirmed {
		e.transcript.stop() // a provider that still writes must not hold the gate
	}
	e.shut()
	r := &Result{ID: e.id, Status: exit.Kind, ExitCode: -1, Signal: exit.Signal, LeftRunning: exit.LeftRunning,
		DeathConfirmed: confirmed, Merged: exit.Merged || e.tty, Duration: time.Since(e.begun),
		Redactions: map[string]int64{}, Unmaskable: e.s.redactor.Unmaskable()}
	e.judge(r, exit, why)
	r.Stdout, r.Truncated.Stdout = e.transcript.result(0, e.limit)
	r.Stderr, r.Truncated.Stderr = e.transcript.result(1, e.limit)
	for _, w := range e.redactors {
		for name, n := range w.Hits() {
			r.Redactions[name] += n
		}
	}
	if len(r.Redactions) == 0 {
		r.Redactions = nil
	}
	var err error
	if r.Status == Lost {
		r.DeathConfirmed = exit.TreeDead
		if err = cause; err == nil {
			err = e.s.boundary.err(opExec, &provider.Error{Code: provider.Lost, Op: opExec, Provider: e.s.reg.name,
				Message: "the stream broke, and how the command ended is not known", Remedy: "look for its effects before running it again", Applied: provider.AppliedUnknown})
		}
	}
	e.conclude(r, err, exit.TreeDead || why != stopNone && confirmed)
}

// judge decides how the command ended.
func (e *execution) judge(r *Result, exit provider.Exit, why stopReason) {
	switch {
	case why == stopTimeout || exit.Kind == provider.ExitTimedOut:
		r.Status, r.TimedOut = TimedOut, true
		if why == stopNone {
			r.DeathConfirmed = exit.TreeDead
		}
		r.Notice = timeoutNotice(e.request.Timeout, r.DeathConfirmed)
	case why == stopInput && exit.Kind != provider.ExitExited:
		r.Status, r.Notice = Killed, inputNotice
	case why != stopNone && why != stopInput:
		r.Status = Killed
	case exit.Kind == provider.ExitExited && exit.Code >= 0:
		r.ExitCode = exit.Code
	case exit.Kind == provider.ExitSignaled, exit.Kind == provider.ExitKilled:
		e.mu.Lock()
		if e.sent != "" && e.sent == exit.Signal {
			r.Status = Killed
		}
		e.mu.Unlock()
	default:
		r.Status = Lost
	}
}

// conclude publishes the result. By the time anybody can see it, the command
// counts as ended everywhere.
func (e *execution) conclude(r *Result, err error, treeDead bool) {
	e.mu.Lock()
	e.result, e.err = r, err
	e.mu.Unlock()
	e.s.table().over(e, e.proc, treeDead)
	e.tr.record.Exec = e.id
	if r.Status != Lost {
		e.tr.record.Status, e.tr.record.Counts = r.Status, r.Redactions
	}
	if r.Status == Exited {
		e.tr.record.ExitCode = &r.ExitCode
	}
	e.tr.end(err)
	e.release()
	close(e.done)
	e.transcript.end(r)
}

// outcome returns the result and error of an ended command.
func (e *execution) outcome() (*Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.result.clone(), e.err
}

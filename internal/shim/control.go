package shim

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
)

// ErrControlClosed means that the stream to PID 1 ended, or was closed, before the
// answer: whether the question was acted on is not known. Asking again over a
// fresh stream is safe for everything.
var ErrControlClosed = errors.New("shim: the stream to the container's PID 1 ended before it answered")

// RefusedError is a question that PID 1 does not answer. Nothing was done.
type RefusedError struct {
	// Reason is one of wire's: "unknown" (a supervisor of another version),
	// "arguments", "mode" or "again".
	Reason string
}

func (e *RefusedError) Error() string {
	return "shim: the container's PID 1 refused: " + e.Reason
}

// Pong is PID 1's answer to Ping.
type Pong struct {
	// Version is to be ProtocolVersion; a container made by another build of us
	// may run another.
	Version int
	// Image is the state of the image's command.
	Image wire.ImageStatus
}

// Killed is what a kill through PID 1 did.
type Killed struct {
	// Execs is the number of supervisors that were found and killed with their
	// trees. Zero: there was none, so nothing of it runs.
	Execs int
}

// Control speaks to PID 1 of a container over its standard input and output, for
// example an engine's attach, demultiplexed to standard output alone. Several may
// be attached at once, and one may be attached long after another broke off in the
// middle: answers are told apart by random nonces. All methods are safe for
// concurrent use. Each ends with its context at the latest; then the question may
// still be acted on, and the Control stays usable.
type Control struct {
	conn io.ReadWriteCloser

	wmu    sync.Mutex
	mu     sync.Mutex
	asked  map[string]chan answer
	closed bool
	done   chan struct{}
}

type answer struct {
	verb string
	args []string
}

// NewControl owns conn from the call on. Reads of conn must end when it is closed.
func NewControl(conn io.ReadWriteCloser) *Control {
	c := &Control{conn: conn, asked: map[string]chan answer{}, done: make(chan struct{})}
	go c.read()
	return c
}

// Done is closed when the stream has ended, which it also does with the container.
func (c *Control) Done() <-chan struct{} { return c.done }

// Close closes the stream. It ends nothing in the container.
func (c *Control) Close() error {
	err := c.conn.Close()
	<-c.done
	return err
}

// Ping returns when PID 1 answered: the container is up.
func (c *Control) Ping(ctx context.Context) (Pong, error) {
	a, err := c.ask(ctx, wire.VerbPing)
	if err != nil {
		return Pong{}, err
	}
	n, ok := numbers(a, 2)
	if !ok {
		return Pong{}, wire.ErrProtocol
	}
	st, ok := wire.UnpackImage(uint32(n[1]))
	if !ok {
		return Pong{}, wire.ErrProtocol
	}
	return Pong{Version: n[0], Image: st}, nil
}

// Execs lists the ids of the supervisors (of execs and file streams) that live; one
// whose last frame has come may be among them for another moment. They
// are known by what no workload can forge: the engine put them into the container,
// so they have no parent there, and their command line is ExecArgs or FilesArgs.
func (c *Control) Execs(ctx context.Context) ([]string, error) {
	a, err := c.ask(ctx, wire.VerbList)
	if err != nil {
		return nil, err
	}
	for _, id := range a.args {
		if !wire.ValidID(id) {
			return nil, wire.ErrProtocol
		}
	}
	return a.args, nil
}

// KillExec kills the exec's supervisor, also a stopped one, and its whole tree. It
// returns nil when nothing of them is left, and a [*SurvivorsError] when something
// is after five seconds of KILL. The exec's own stream ends without an exit frame.
// An exec that the engine is still starting is not seen: close its stream, which ends
// it. Orphans, whose supervisor is dead already, are killed along with it.
func (c *Control) KillExec(ctx context.Context, id string) (Killed, error) {
	if !ValidID(id) {
		return Killed{}, &RefusedError{wire.RefuseArgs}
	}
	return c.kill(ctx, wire.VerbKill, id)
}

// KillAllExcept does what KillExec does for every exec and file stream that is not
// in the list. It is for a host that cannot account for them.
func (c *Control) KillAllExcept(ctx context.Context, ids []string) (Killed, error) {
	for _, id := range ids {
		if !ValidID(id) {
			return Killed{}, &RefusedError{wire.RefuseArgs}
		}
	}
	return c.kill(ctx, wire.VerbKeep, ids...)
}

func (c *Control) kill(ctx context.Context, verb string, ids ...string) (Killed, error) {
	a, err := c.ask(ctx, verb, ids...)
	if err != nil {
		return Killed{}, err
	}
	n, ok := numbers(a, 2)
	if !ok {
		return Killed{}, wire.ErrProtocol
	}
	k := Killed{Execs: n[0]}
	if n[1] > 0 {
		return k, &SurvivorsError{uint32(n[1])}
	}
	return k, nil
}

// StartImage starts the image's command, once in a container's life: a second time
// is a [*RefusedError] with reason "again", also after the first failed, and one
// without PID1Options.Image is "mode". A [*StartError] says why it could not be
// started.
func (c *Control) StartImage(ctx context.Context, cmd ImageCommand) error {
	config, err := cmd.Workload.config()
	if err != nil {
		return err
	}
	setup, err := config.MarshalBinary()
	if err != nil {
		return err
	}
	b := wire.Append(nil, wire.Setup, setup)
	b = appendList(b, wire.Args, cmd.Args)
	b = appendList(b, wire.Env, cmd.Env)
	if cmd.Dir != "" {
		b = wire.Append(b, wire.Dir, []byte(cmd.Dir))
	}
	b = wire.Append(b, wire.Go, nil)
	defer clear(b)
	a, err := c.ask(ctx, wire.VerbImage, wire.EncodeBlob(b))
	if err != nil {
		return err
	}
	if a.verb == wire.VerbFailed {
		n, ok := numbers(a, 2)
		if !ok {
			return wire.ErrProtocol
		}
		return &StartError{wire.Failure{Stage: wire.Stage(n[0]), Errno: uint32(n[1])}}
	}
	return nil
}

// ask sends a question and waits for its answer.
func (c *Control) ask(ctx context.Context, verb string, args ...string) (answer, error) {
	var r [16]byte
	_, _ = rand.Read(r[:])
	nonce := hex.EncodeToString(r[:])
	// The line feed ends what somebody else left unfinished.
	line := wire.AppendLine([]byte{'\n'}, nonce, verb, args...)
	defer clear(line)
	if len(line) > wire.MaxLine {
		return answer{}, &RefusedError{wire.RefuseArgs}
	}
	ch := make(chan answer, 1)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return answer{}, ErrControlClosed
	}
	c.asked[nonce] = ch
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.asked, nonce)
		c.mu.Unlock()
	}()
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	sent := make(chan error, 1)
	own := append([]byte(nil), line...) // the write may outlive this call
	go func() {
		c.wmu.Lock()
		defer c.wmu.Unlock()
		_, err := c.conn.Write(own)
		clear(own)
		sent <- err
	}()
	for {
		select {
		case a := <-ch:
			if a.verb == wire.VerbRefuse {
				reason := wire.RefuseUnknown
				if len(a.args) == 1 {
					reason = a.args[0]
				}
				return answer{}, &RefusedError{reason}
			}
			if a.verb != wire.VerbOK && a.verb != wire.VerbFailed {
				return answer{}, wire.ErrProtocol
			}
			return a, nil
		case err := <-sent:
			if err != nil {
				return answer{}, ErrControlClosed
			}
			sent = nil
		case <-c.done:
			return answer{}, ErrControlClosed
		case <-ctx.Done():
			return answer{}, ctx.Err()
		}
	}
}

// read hands answers to who asked.
func (c *Control) read() {
	var s wire.Splitter
	buf := make([]byte, 32<<10)
	for {
		n, err := c.conn.Read(buf)
		s.Feed(buf[:n])
		for {
			l, ok := s.Next()
			if !ok {
				break
			}
			a := answer{verb: string(l.Verb)}
			for _, arg := range l.Args {
				a.args = append(a.args, string(arg))
			}
			c.mu.Lock()
			if ch := c.asked[string(l.Nonce)]; ch != nil {
				delete(c.asked, string(l.Nonce))
				ch <- a
			}
			c.mu.Unlock()
		}
		if err != nil {
			break
		}
	}
	_ = c.conn.Close()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	close(c.done)
}

func numbers(a answer, want int) ([]int, bool) {
	if len(a.args) != want {
		return nil, false
	}
	var out []int
	for _, s := range a.args {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > 1<<30 {
			return nil, false
		}
		out = append(out, n)
	}
	return out, true
}

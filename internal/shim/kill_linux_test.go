package shim_test

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scripted starts a command whose supervisor is the test: it gets what the host
// sends, and says what the test writes.
func scripted(t *testing.T, req shim.Request) (x *shim.Exec, frames *wire.Reader, supervisor net.Conn) {
	t.Helper()
	conn, supervisor := net.Pipe()
	frames = wire.NewReader(supervisor, wire.FromHost)
	t.Cleanup(func() { _ = supervisor.Close() })
	req.Setup, req.Args, req.LiveInput = setup(t), []string{"command"}, true
	ready := make(chan error, 1)
	go func() {
		for {
			f, err := frames.Next()
			if err == nil && f.Type == wire.Go {
				_, err = supervisor.Write(wire.AppendUint32(nil, wire.Ready, 1))
			} else if err == nil {
				continue
			}
			ready <- err
			return
		}
	}()
	x, err := shim.Start(t.Context(), conn, req)
	require.NoError(t, err)
	require.NoError(t, <-ready)
	return x, frames, supervisor
}

// A command that goes on writing while it is being killed, to a reader that does not
// read, does not grow the host: what is kept is bounded, and a beginning of it all.
func TestOutputDuringAKillIsBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	out := &gated{until: release}
	x, frames, supervisor := scripted(t, shim.Request{Stdout: out})
	killed := make(chan error, 1)
	go func() { killed <- x.Kill(soon(t), time.Second) }()
	f, err := frames.Next()
	require.NoError(t, err)
	require.Equal(t, wire.Kill, f.Type)
	chunk := make([]byte, wire.MaxChunk)
	for i := range 4 * shim.KillLimit / wire.MaxChunk {
		for j := range chunk {
			chunk[j] = byte(i)
		}
		_, err := supervisor.Write(wire.Append(nil, wire.Stdout, chunk))
		require.NoError(t, err)
	}
	last := wire.AppendUint32(nil, wire.Killed, 0)
	_, err = supervisor.Write(wire.AppendExit(last, wire.ExitStatus{Signal: 9, ByUs: true}))
	require.NoError(t, err)
	require.NoError(t, <-killed, "the kill waits for the reader")
	close(release)
	assert.True(t, wait(t, x).TreeDead)
	assert.LessOrEqual(t, out.n, shim.KillLimit+2*wire.MaxChunk)
	assert.GreaterOrEqual(t, out.n, shim.KillLimit-wire.MaxChunk)
	assert.Equal(t, out.n/wire.MaxChunk-1, int(out.last), "something in the middle is missing")
}

// gated takes output once it is let.
type gated struct {
	until chan struct{}
	n     int
	last  byte
}

func (g *gated) Write(p []byte) (int, error) {
	<-g.until
	g.n += len(p)
	g.last = p[len(p)-1]
	return len(p), nil
}

// A kill over a connection that takes nothing ends with its context.
func TestKillEndsWithItsContext(t *testing.T) {
	t.Parallel()
	x, _, supervisor := scripted(t, shim.Request{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan error, 1)
	go func() { done <- x.Kill(ctx, 0) }()
	select {
	case err := <-done:
		assert.ErrorIs(t, err, context.Canceled)
	case <-time.After(time.Minute):
		t.Error("the kill waits for a connection that takes nothing")
	}
	require.NoError(t, supervisor.Close())
	assert.True(t, wait(t, x).Lost)
}

// A kill of what a command left, when its supervisor is gone, is answered at once: no
// answer will come.
func TestKillAfterTheSupervisorsEnd(t *testing.T) {
	t.Parallel()
	x, _, supervisor := scripted(t, shim.Request{})
	_, err := supervisor.Write(wire.AppendExit(nil, wire.ExitStatus{Left: 1}))
	require.NoError(t, err)
	assert.False(t, wait(t, x).TreeDead)
	require.NoError(t, supervisor.Close())
	// It may still be on its way to hear of the end, and then hears of it.
	for range 2 {
		require.ErrorIs(t, x.Kill(soon(t), 0), shim.ErrLost)
	}
}

// A kill cannot see a supervisor that the engine is still starting. The host that
// gave such a command up has closed its stream, and that ends it: nothing is left,
// however late it comes up.
func TestKillRacesWithAStart(t *testing.T) {
	t.Parallel()
	b, c := startBox(t, boxOptions{})
	m := marker(t)
	request := recorded(t, shim.Request{
		Args: []string{"/bin/sh", "-c", `trap '' TERM; setsid sleep ` + m + ` & (setsid sleep ` + m + ` &); sleep ` + m},
		Env:  [][]byte{[]byte("PATH=/usr/bin:/bin")},
	})
	e, up := b.heldExec(shim.ExecArgs("late"))
	require.Eventually(t, func() bool { return len(b.everything()) == 1 }, time.Minute, time.Millisecond, "it is in the container")
	lives(t, c) // and is no supervisor yet
	_, err := e.in.Write(request)
	require.NoError(t, err)
	require.NoError(t, e.in.Close())
	k, err := c.KillExec(soon(t), "late")
	require.NoError(t, err)
	assert.Zero(t, k.Execs)
	require.NoError(t, up.Close())
	f, err := wire.NewReader(e.out, wire.FromSupervisor).Next()
	require.NoError(t, err)
	require.Equal(t, wire.Ready, f.Type, "the command was started")
	b.gone("what came up late is alive", b.everything)
}

// recorded returns the bytes of a request.
func recorded(t *testing.T, req shim.Request) []byte {
	t.Helper()
	var err error
	req.Setup, err = shim.Workload{}.Setup()
	require.NoError(t, err)
	r := &recorder{}
	_, err = shim.Start(t.Context(), r, req)
	require.ErrorIs(t, err, shim.ErrLost)
	return r.b
}

type recorder struct{ b []byte }

func (r *recorder) Write(p []byte) (int, error) { r.b = append(r.b, p...); return len(p), nil }
func (r *recorder) Read([]byte) (int, error)    { return 0, io.EOF }
func (r *recorder) Close() error                { return nil }

// heldExec starts a program in the container from outside, which does not execute
// before up is closed.
func (b *box) heldExec(args []string) (e *engine, up *os.File) {
	b.t.Helper()
	r, up, err := os.Pipe()
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = up.Close() })
	return b.enter(entry{Args: args, Env: shim.EngineEnviron(), Cgroup: b.cgroup, Held: true}, r), up
}

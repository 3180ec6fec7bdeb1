package docker_test

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/provider"
)

// tapped is the real engine; the test sees what is written to its execs.
type tapped struct {
	*faulty
	write func(c net.Conn, p []byte) (int, error)

	mu    sync.Mutex
	execs []string
}

func newTapped(t *testing.T, write func(c net.Conn, p []byte) (int, error)) (*tapped, *docker.Provider) {
	t.Helper()
	o := options(t)
	c, err := docker.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	e := &tapped{faulty: newFaulty(c), write: write}
	p, err := docker.NewWithEngine(t.Context(), e, o)
	require.NoError(t, err)
	return e, patient(p)
}

func (e *tapped) ContainerExecCreate(ctx context.Context, id string, o container.ExecOptions) (container.ExecCreateResponse, error) {
	r, err := e.faulty.ContainerExecCreate(ctx, id, o)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.execs = append(e.execs, r.ID)
	return r, err
}

func (e *tapped) made() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.execs)
}

func (e *tapped) ContainerExecAttach(ctx context.Context, id string, o container.ExecAttachOptions) (types.HijackedResponse, error) {
	r, err := e.faulty.ContainerExecAttach(ctx, id, o)
	if err == nil {
		r.Conn = tappedConn{r.Conn, e.write}
	}
	return r, err
}

type tappedConn struct {
	net.Conn
	write func(c net.Conn, p []byte) (int, error)
}

func (c tappedConn) Write(p []byte) (int, error) { return c.write(c.Conn, p) }

// An engine that takes nothing any more does not hold up whoever signals, resizes or
// kills: each call ends with its context. And what cannot be told to the command's
// supervisor is told to the first process.
func TestStalledConnectionHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	stalled := false
	end := make(chan struct{})
	defer close(end)
	_, p := newTapped(t, func(c net.Conn, b []byte) (int, error) {
		mu.Lock()
		stop := stalled
		mu.Unlock()
		if stop {
			<-end
			return 0, net.ErrClosed
		}
		return c.Write(b)
	})
	docker.SetKillPatience(p, 40*time.Second) // more than the calls have
	sb := create(t, p)
	word := "stalled-" + randomHex(8)
	r := shell(family(word))
	r.TTY, r.Cols, r.Rows, r.Stdin = true, 80, 24, provider.StdinLive
	proc := begin(t, sb, r)
	mu.Lock()
	stalled = true
	mu.Unlock()
	for name, call := range map[string]func(context.Context) error{
		"signal": func(ctx context.Context) error { return proc.Signal(ctx, "USR1") },
		"resize": func(ctx context.Context) error { return proc.(provider.Resizer).Resize(ctx, 10, 10) },
		"kill":   func(ctx context.Context) error { return proc.Kill(ctx, 0) },
	} {
		for limit := time.Second; ; limit = 30 * time.Second {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			done := make(chan error, 1)
			go func() { done <- call(ctx) }()
			var err error
			select {
			case err = <-done:
			case <-time.After(2 * time.Minute):
				t.Errorf("%s waits for the engine", name)
			}
			cancel()
			if provider.AppliedOf(err) == provider.AppliedNo && limit == time.Second {
				continue // on a busy machine it had ended before the call began
			}
			assert.ErrorIs(t, err, provider.ErrDeadlineExceeded, name)
			assert.Equal(t, provider.AppliedUnknown, provider.AppliedOf(err), name)
			break
		}
	}
	docker.SetKillPatience(p, time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, proc.Kill(ctx, 0))
	assertNone(t, word)
	assert.Equal(t, provider.ExitLost, wait(t, proc, time.Minute).Kind)
}

// A command whose caller gives up at the moment at which it was asked for is ended
// with everything it made, however long the engine takes to start it.
func TestGivenUpExecLeavesNothing(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	giveUp := func() {}
	e, p := newTapped(t, func(c net.Conn, b []byte) (int, error) {
		n, err := c.Write(b)
		mu.Lock()
		defer mu.Unlock()
		giveUp()
		return n, err
	})
	sb := create(t, p)
	word := "given-up-" + randomHex(8)
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		mu.Lock()
		giveUp = cancel
		mu.Unlock()
		_, err := sb.Exec(ctx, provider.ExecRequest{ID: randomHex(8), Shell: family(word), Stdout: io.Discard, Stderr: io.Discard})
		cancel()
		require.ErrorIs(t, err, provider.ErrCanceled)
		assert.Equal(t, provider.AppliedUnknown, provider.AppliedOf(err))
	}
	require.Len(t, e.made(), 5)
	cli := api(t)
	for _, id := range e.made() {
		// Only when the engine has started and ended it, there is nothing to come.
		assert.Eventually(t, func() bool {
			x, err := cli.ContainerExecInspect(t.Context(), id)
			return err == nil && x.Pid != 0 && !x.Running
		}, time.Minute, 10*time.Millisecond, "a supervisor goes on")
	}
	assert.Empty(t, marked(t, word))
}

// Trap 5: what an engine says of an exec's end is not what is reported: the
// supervisor's own word is.
func TestTrap05ExitIsTheSupervisors(t *testing.T) {
	t.Parallel()
	o := options(t)
	c, err := docker.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	e := &lying{faulty: newFaulty(c)}
	p, err := docker.NewWithEngine(t.Context(), e, o)
	require.NoError(t, err)
	patient(p)
	sb := create(t, p)
	assert.Equal(t, provider.Exit{Kind: provider.ExitExited, Code: 7, TreeDead: true}, run(t, sb, shell("exit 7")).Exit)
	assert.Equal(t, provider.ExitSignaled, run(t, sb, shell("kill -SEGV $$")).Kind)
	word := "lies-" + randomHex(8)
	proc := begin(t, sb, shell(family(word)))
	require.NoError(t, proc.Kill(t.Context(), 0))
	assert.Equal(t, provider.ExitKilled, wait(t, proc, time.Minute).Kind)
	assertNone(t, word)
}

// lying is an engine that records every exec as one that could not be executed.
type lying struct{ *faulty }

func (l *lying) ContainerExecInspect(_ context.Context, id string) (container.ExecInspect, error) {
	return container.ExecInspect{ExecID: id, ExitCode: 126}, nil
}

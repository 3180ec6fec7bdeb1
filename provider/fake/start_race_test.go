package fake_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
)

// A command may start others while its caller signals it: both know the command
// itself, whatever there is of others.
func TestSignalWhileOthersStart(t *testing.T) {
	t.Parallel()
	started, enough := make(chan struct{}), make(chan struct{})
	p := fake.New(fake.Options{Commands: map[string]fake.Command{"parent": func(_ context.Context, proc *fake.Proc) int {
		close(started)
		for n := 0; ; n++ {
			select {
			case <-enough:
				return 0
			default:
			}
			if n > 1000 { // a test that comes late must not find them without number
				time.Sleep(time.Millisecond)
			}
			if _, err := proc.Spawn([]string{"cat"}, fake.SpawnOptions{}); err != nil {
				return 1
			}
		}
	}}})
	sb := create(t, p, newRequest())
	proc, err := sb.Exec(t.Context(), provider.ExecRequest{ID: "e", Args: []string{"parent"}, Stdin: provider.StdinLive, Stdout: io.Discard, Stderr: io.Discard})
	require.NoError(t, err)
	<-started
	for range 100 {
		require.NoError(t, proc.Signal(t.Context(), "CONT"))
	}
	close(enough)
	exit, err := proc.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 0, exit.Code)
}

// What still starts others while its sandbox is being destroyed leaves nothing
// behind: whoever ends them looks once.
func TestNothingStartsDuringDestroy(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	p := fake.New(fake.Options{Commands: map[string]fake.Command{
		"parent": func(ctx context.Context, proc *fake.Proc) int {
			for range 500 { // who are reached before the last one
				_, _ = proc.Spawn([]string{"sleep", "3000"}, fake.SpawnOptions{})
			}
			_, _ = proc.Spawn([]string{"starter"}, fake.SpawnOptions{})
			<-ctx.Done()
			return 0
		},
		"starter": func(_ context.Context, proc *fake.Proc) int {
			close(begun)
			for n := 0; ; n++ {
				if n > 20_000 { // nobody destroys: not more of them than fit
					time.Sleep(time.Millisecond)
				}
				if _, err := proc.Spawn([]string{"sleep", "3000"}, fake.SpawnOptions{}); err != nil {
					return 0
				}
				if n > 1000 { // a test that comes late must not find them without number
					time.Sleep(time.Millisecond)
				}
			}
		},
	}})
	sb := create(t, p, newRequest())
	_, err := sb.Exec(t.Context(), provider.ExecRequest{ID: "e", Args: []string{"parent"}, Stdout: io.Discard, Stderr: io.Discard})
	require.NoError(t, err)
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, p.Destroy(ctx, sb.Ref()))
	require.Empty(t, p.Running(sb.Ref()))
}

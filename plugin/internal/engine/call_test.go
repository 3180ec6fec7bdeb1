package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin/internal/engine"
	"github.com/sbxhost/sbxhost/plugin/internal/snapshot"
)

func TestGoGuestEchoesJSON(t *testing.T) {
	t.Parallel()
	p := goGuest(t)
	assert.Equal(t, snapshot.Supported, p.Snapshot())
	for _, n := range []int{1 << 10, 64 << 10} {
		x := &exchange{in: payload(n)}
		res, err := p.Call(context.Background(), 0, x)
		require.NoError(t, err)
		assert.Zero(t, res.Code)
		assert.Equal(t, string(x.in), string(x.out))
		assert.Positive(t, res.Fuel)
		t.Logf("%d bytes: %d units of fuel", n, res.Fuel)
	}
}

func TestNothingSurvivesACall(t *testing.T) {
	t.Parallel()
	p := goGuest(t)
	for range 20 {
		x := &exchange{in: []byte("left by an earlier call")}
		_, err := p.Call(context.Background(), 1, x)
		require.NoError(t, err)
		require.Empty(t, string(x.out))
	}
}

func TestGoGuestEndsInTypedErrors(t *testing.T) {
	t.Parallel()
	p := goGuest(t)
	tests := []struct {
		name  string
		op    int32
		in    string
		check func(t *testing.T, err error)
	}{
		{"panic", 2, "", func(t *testing.T, err error) {
			var trap *engine.Trap
			require.ErrorAs(t, err, &trap)
			assert.Equal(t, "unreachable", trap.Kind)
		}},
		{"exit(0)", 3, "", func(t *testing.T, err error) {
			var exit *engine.GuestExit
			require.ErrorAs(t, err, &exit)
			assert.Zero(t, exit.Code)
		}},
		{"exit(3)", 3, "abc", func(t *testing.T, err error) {
			var exit *engine.GuestExit
			require.ErrorAs(t, err, &exit)
			assert.EqualValues(t, 3, exit.Code)
		}},
		{"out of memory", 8, "", func(t *testing.T, err error) {
			require.Error(t, err)
			var trap *engine.Trap
			var exit *engine.GuestExit
			assert.True(t, asAny(err, &trap, &exit), "%v", err)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := p.Call(context.Background(), tt.op, &exchange{in: []byte(tt.in)})
			tt.check(t, err)
			// The next call is none the worse for it.
			x := &exchange{in: payload(100)}
			_, err = p.Call(context.Background(), 0, x)
			require.NoError(t, err)
			assert.Equal(t, string(x.in), string(x.out))
		})
	}
}

func TestSleepEndsWithTheCall(t *testing.T) {
	t.Parallel()
	p := goGuest(t)
	for range 2 { // a second cancellation must work as the first did
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		start := time.Now()
		_, err := p.Call(ctx, 4, &exchange{})
		cancel()
		var deadline *engine.Deadline
		require.ErrorAs(t, err, &deadline)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(start), long/2)

		ctx, cancel = context.WithCancel(context.Background())
		time.AfterFunc(20*time.Millisecond, cancel)
		_, err = p.Call(ctx, 4, &exchange{})
		var canceled *engine.Canceled
		require.ErrorAs(t, err, &canceled)
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestRandomNumbersNeverRepeat(t *testing.T) {
	t.Parallel()
	p := goGuest(t)
	seen := map[string]bool{}
	for range 8 {
		x := &exchange{}
		_, err := p.Call(context.Background(), 5, x)
		require.NoError(t, err)
		require.Len(t, x.out, 16)
		require.False(t, seen[string(x.out)])
		seen[string(x.out)] = true
	}
}

func TestOutputBecomesLogLines(t *testing.T) {
	t.Parallel()
	p := goGuest(t)
	x := &exchange{}
	_, err := p.Call(context.Background(), 6, x)
	require.NoError(t, err)
	logMu.Lock()
	defer logMu.Unlock()
	var got []string
	for _, l := range logSeen {
		if l.State == x {
			got = append(got, string('0'+rune(l.Stream))+l.Text)
		}
	}
	assert.ElementsMatch(t, []string{"1first line", "1second line", "1third, unfinished", "2to standard error"}, got)
}

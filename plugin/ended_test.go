package plugin_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider"
)

// A caller who has given up already starts nothing: neither the plugin nor the
// vendor hears of the command.
func TestExecAfterTheCallerGaveUp(t *testing.T) {
	t.Parallel()
	s := stageOf(t, hostileManifest, nil)
	sb := s.create()
	before := len(s.v.sent())
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for ctx, want := range map[context.Context]provider.Code{late: provider.DeadlineExceeded, gone: provider.Canceled} {
		_, err := sb.Exec(unheard{ctx}, provider.ExecRequest{ID: "e1", Args: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard})
		require.ErrorIs(t, err, ctx.Err())
		assert.Equal(t, want, provider.CodeOf(err))
		assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
	}
	assert.Len(t, s.v.sent(), before)
}

// unheard is a context that has ended and of which nobody has been told yet: what
// a busy machine makes of any.
type unheard struct{ context.Context }

func (unheard) Done() <-chan struct{} { return nil }

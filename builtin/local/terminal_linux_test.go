package local_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/stretchr/testify/assert"
)

type slowWriter struct{ lockedBuffer }

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(150 * time.Millisecond)
	return w.lockedBuffer.Write(p)
}

// What a command printed on its terminal before it ended is delivered, however slow
// the reader is.
func TestSlowTerminal(t *testing.T) {
	atLevels(t, func(t *testing.T, level local.Level) {
		sb := create(t, newProvider(t, local.Options{Level: level}))
		out := &slowWriter{}
		run(t, sb, "seq 3000; echo the end", func(r *provider.ExecRequest) {
			r.TTY, r.Cols, r.Rows, r.Stdout = true, 80, 24, out
		})
		assert.True(t, strings.HasSuffix(out.String(), "the end\r\n"), "%d bytes: %q", len(out.String()), out.String()[max(0, len(out.String())-20):])
	})
}

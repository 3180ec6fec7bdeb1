package host_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/host"
)

// What the embedder holds may be printed and logged at any time: while commands
// run and sessions come and go. Under the race detector this is red when a verb
// reads the fields.
func TestPrintingWhileBusy(t *testing.T) {
	t.Parallel()
	e := newEnv(t, granted)
	s := e.create(t, protected())
	require.NoError(t, s.WriteFile(t.Context(), "f", []byte("0123456789"), host.WriteOptions{}))
	file, err := s.Open(t.Context(), "f")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	p, err := s.Start(t.Context(), host.ExecRequest{Args: []string{"sleep", "1000"}})
	require.NoError(t, err)

	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
			assert.NoError(t, err)
			other, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary()})
			if assert.NoError(t, err) {
				assert.NoError(t, other.Close(t.Context()))
			}
			_, _ = file.Read(make([]byte, 1))
		}
	}()
	for busy := true; busy; {
		select {
		case <-done:
			busy = false
		default:
		}
		for _, v := range []any{e.Host, s, p, file} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
				text := fmt.Sprintf(verb, v)
				assert.Regexp(t, `^host\.(Host|Session|Process|File)\[\w+\]$`, text)
			}
			doc, err := json.Marshal(v)
			require.NoError(t, err)
			assert.Equal(t, "{}", string(doc))
		}
	}
	require.NoError(t, p.Kill(t.Context()))
}

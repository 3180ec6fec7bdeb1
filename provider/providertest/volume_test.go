package providertest_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/providertest"
)

// hoard keeps what passes.
type hoard struct {
	w    io.Writer
	kept [][]byte
}

func (h *hoard) Write(b []byte) (int, error) {
	h.kept = append(h.kept, append([]byte(nil), b...))
	return h.w.Write(b)
}

// A provider that keeps the output in memory fails the volume check. Not
// parallel: the check watches the heap.
func TestBrokenVolume(t *testing.T) {
	f := plain()
	w := &wrapped{Provider: f}
	w.exec = func(ctx context.Context, sb provider.Sandbox, req provider.ExecRequest) (provider.Process, error) {
		req.Stdout = &hoard{w: req.Stdout}
		return sb.Exec(ctx, req)
	}
	h := fakeHarness(f, w)
	h.Only = []string{"volume/"}
	require.Equal(t, []string{"volume/output"}, providertest.Check(h).With(providertest.Failed))
}

package leaktest_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/leaktest"
	"github.com/sbxhost/sbxhost/redact"
)

// TestRedactorMasksEveryForm asks for a second opinion on package redact: every
// form that this package derives on its own must come out masked. Go's own ways
// of printing bytes are the exception: the redactor does not claim them.
func TestRedactorMasksEveryForm(t *testing.T) {
	t.Parallel()
	for _, c := range leaktest.Canaries(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			scanner := leaktest.NewScanner([]leaktest.Canary{c})
			r := redact.New(redact.Options{})
			require.Empty(t, r.Add(redact.Secret{Name: c.Name, Value: []byte(c.Value())}))
			for _, f := range leaktest.Forms(c.Value()) {
				if f.Bytes {
					continue
				}
				var out bytes.Buffer
				w := r.Writer(&out)
				_, err := w.Write([]byte("before [ " + f.Text + " ] after\n"))
				require.NoError(t, err)
				require.NoError(t, w.Close())
				for canary, form := range found(t, scanner, out.Bytes()) {
					assert.Fail(t, "not masked", "%s: printed as %s, still there as %s", canary, f.Kind, form)
				}
			}
		})
	}
}

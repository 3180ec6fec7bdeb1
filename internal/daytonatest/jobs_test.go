package daytonatest

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Jobs that are started while somebody waits are waited for, too.
func TestJobs(t *testing.T) {
	t.Parallel()
	var j jobs
	j.Wait()
	var ended atomic.Int32
	var start func(n int)
	start = func(n int) {
		j.Go(func() {
			if n > 0 {
				start(n - 1)
			}
			ended.Add(1)
		})
	}
	for range 20 {
		start(50)
	}
	j.Wait()
	assert.EqualValues(t, 20*51, ended.Load())
}

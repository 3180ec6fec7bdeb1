//go:build linux

package leaktest_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/leaktest"
)

func TestWatcherSeesArgumentsAndEnvironment(t *testing.T) {
	t.Parallel()
	canaries := leaktest.Canaries(t)[:2]
	w := leaktest.Watch(t)
	cmd := exec.Command("/bin/sh", "-c", "echo up; read x", canaries[0].Value())
	cmd.Env = []string{"X=" + canaries[1].Value()}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	seen := func() bool {
		for _, p := range w.Seen() {
			if strings.Contains(p.Args, canaries[0].Value()) && p.Environ != "" {
				return true
			}
		}
		return false
	}
	require.Eventually(t, seen, time.Minute, 2*time.Millisecond)
	require.NoError(t, in.Close())
	_ = cmd.Wait()
	w.Stop()
	assert.Positive(t, w.Looks())

	names := func(workload func(leaktest.Process) bool) map[string]bool {
		var c leaktest.Corpus
		w.AddTo(&c, workload)
		hits, err := leaktest.Find(canaries, &c)
		require.NoError(t, err)
		out := map[string]bool{}
		for _, h := range hits {
			out[h.Canary] = true
		}
		return out
	}
	assert.Equal(t, map[string]bool{canaries[0].Name: true, canaries[1].Name: true},
		names(func(leaktest.Process) bool { return false }))
	assert.Equal(t, map[string]bool{canaries[0].Name: true},
		names(func(p leaktest.Process) bool { return p.PID == cmd.Process.Pid }),
		"a workload may hold the value in its environment, never in its arguments")
}

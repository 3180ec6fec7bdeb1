//go:build linux

package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

func TestFaultsAreListed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, run([]string{"-faults"}, &out))
	for _, k := range daytonatest.Kinds() {
		assert.Contains(t, out.String(), string(k.Kind)+" ")
	}
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-fault", "nonsense"}, {"-fault", "slow:x"}, {"-fault", "slow:0"}, {"-release", "1"}, {"more"}, {"-listen", "nowhere:x"}} {
		require.Error(t, run(args, io.Discard), "%v", args)
	}
}

// It serves until it is told to stop, and leaves nothing.
func TestServesUntilInterrupted(t *testing.T) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run([]string{"-key", "dtn_test", "-fault", "forbidden:1"}, w) }()
	lines := bufio.NewReader(r)
	first, err := lines.ReadString('\n')
	require.NoError(t, err)
	second, err := lines.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "export DAYTONA_API_KEY=dtn_test\n", second)
	link := strings.TrimSpace(strings.TrimPrefix(first, "export DAYTONA_API_URL="))
	for _, want := range []int{http.StatusForbidden, http.StatusOK} {
		p, err := http.Get(link + "/config")
		require.NoError(t, err)
		require.NoError(t, p.Body.Close())
		assert.Equal(t, want, p.StatusCode)
	}
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	require.NoError(t, <-done)
}

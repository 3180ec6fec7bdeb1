//go:build unix

package fakevendor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
)

// What a command wrote is there when it has ended, also where its output is read
// late; and what it left running does not keep it from ending.
func TestOutputIsWhole(t *testing.T) {
	t.Parallel()
	v := fakevendor.New(t.TempDir())
	t.Cleanup(v.CloseAll)
	s, err := v.Create("x", "", nil, nil)
	require.NoError(t, err)
	for id, script := range map[string]string{
		"read late":   "printf first; sleep 0.2; printf second; printf third >&2",
		"left behind": "printf first; sleep 600 & printf second; printf third >&2",
		"chatting":    "printf first; (sleep 0.5; while printf .; do sleep 0.1; done) & printf second; printf third >&2",
		"closed":      "printf firstsecond; printf third >&2; exec >&- 2>&-; sleep 0.2",
	} {
		c, _, err := s.Start(id, []string{"/bin/sh", "-c", script}, fakevendor.Root, nil, false)
		require.NoError(t, err)
		if id == "read late" {
			c.Stall(3 * time.Second)
		}
		c.Settle(5 * time.Minute)
		_, _, ended := c.Ended()
		require.True(t, ended, id)
		stdout, stderr := c.Output()
		assert.Equal(t, "firstsecond", strings.Trim(string(stdout), "."), id)
		assert.Equal(t, "third", string(stderr), id)
	}
}

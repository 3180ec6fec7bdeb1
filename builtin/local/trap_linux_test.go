package local_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Trap 10: a process that made itself unreadable may not map the users of a child's
// namespace. So the jail's first process maps itself, while it is readable and holds
// nothing, and is unreadable before it hears of any value.
func TestTrap10UnreadableHost(t *testing.T) {
	t.Parallel()
	for _, uid := range users() {
		t.Run(fmt.Sprintf("uid=%d", uid), func(t *testing.T) {
			t.Parallel()
			out, err := again(t, uid, roleUndumped, nil).CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), "level: namespaces\n")
			assert.Contains(t, string(out), "output: works|cat: /proc/1/environ: Permission denied|")
		})
	}
}

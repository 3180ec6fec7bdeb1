package bolt

import (
	"os"
	"strings"
)

// bootID names this run of the kernel: while it lasts, nothing that was written to
// a file can be lost.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

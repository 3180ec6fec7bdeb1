package local

import (
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"golang.org/x/sys/unix"
)

// rlimits of every command: no core dumps, for they would hold values; a number
// of open files as on an ordinary machine; without a memory cgroup the address
// space of each process.
func rlimits(r *record, cgroup bool) []wire.Rlimit {
	limits := []wire.Rlimit{{Resource: unix.RLIMIT_CORE}}
	var nofile unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &nofile) == nil {
		n := min(nofile.Max, 65536)
		limits = append(limits, wire.Rlimit{Resource: unix.RLIMIT_NOFILE, Soft: min(n, 4096), Hard: n})
	}
	if r.Resources.MemoryMiB > 0 && !cgroup {
		n := uint64(r.Resources.MemoryMiB) << 20
		limits = append(limits, wire.Rlimit{Resource: unix.RLIMIT_AS, Soft: n, Hard: n})
	}
	return limits
}

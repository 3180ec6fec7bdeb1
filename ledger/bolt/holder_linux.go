package bolt

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// holder returns the process that has a lock on the file, as far as the kernel
// tells this one; 0 otherwise.
func holder(path string) int {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	// 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	// The kernel gives out a long list in pieces, between which locks come and go: one
	// that is there all the time may be in none of them.
	for range 5 {
		if pid := lockedBy(want); pid != 0 {
			return pid
		}
	}
	return 0
}

// lockedBy looks once.
func lockedBy(file string) int {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5] != file {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

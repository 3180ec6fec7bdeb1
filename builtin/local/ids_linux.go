package local

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
)

// idRange is where the host's user ids for sandboxes come from.
type idRange struct{ first, count uint32 }

// nobody is the id that belongs to nobody by convention.
const nobody = 65534

// unprivilegedIDs picks a range of ids that belong to nobody, within what this
// user namespace maps. Where there is none because the namespace maps an ordinary
// user to root and nothing else, that root is an ordinary user, and ok is false.
func unprivilegedIDs() (ids idRange, ok bool) {
	wanted := []idRange{{0x10000000, 1 << 24}, {165536, 1 << 20}, {40000, 20000}}
	mapped := [][2]uint64{}
	if f, err := os.Open("/proc/self/uid_map"); err == nil {
		defer func() { _ = f.Close() }()
		for s := bufio.NewScanner(f); s.Scan(); {
			var in, out, n uint64
			if _, err := fmt.Sscan(s.Text(), &in, &out, &n); err == nil {
				mapped = append(mapped, [2]uint64{in, in + n})
			}
		}
	}
	for _, w := range wanted {
		for _, m := range mapped {
			if uint64(w.first) >= m[0] && uint64(w.first)+uint64(w.count) <= m[1] {
				return w, true
			}
		}
	}
	last := idRange{nobody, 1}
	for _, m := range mapped {
		if m[0] <= nobody && nobody < m[1] {
			return last, true
		}
	}
	return last, ownedByUs("/proc/version")
}

// ownedByUs reports whether the owner of a file is this process's user. That of
// the kernel's own files in /proc is the host's root, whose processes the kernel
// does not limit, so it is not taken for an ordinary user.
func ownedByUs(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return true
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(st.Uid) == os.Geteuid()
}

// of returns the id of a sandbox: distinct ones for almost all.
func (r idRange) of(id string) uint32 {
	sum := sha256.Sum256([]byte(id))
	return r.first + binary.BigEndian.Uint32(sum[:])%r.count
}

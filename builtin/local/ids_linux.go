package local

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
)

// idRange is where the host's user ids for sandboxes come from.
type idRange struct{ first, count uint32 }

// unprivilegedIDs picks a range of ids that belong to nobody, within what this
// user namespace maps.
func unprivilegedIDs() idRange {
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
				return w
			}
		}
	}
	return idRange{65534, 1}
}

// of returns the id of a sandbox: distinct ones for almost all.
func (r idRange) of(id string) uint32 {
	sum := sha256.Sum256([]byte(id))
	return r.first + binary.BigEndian.Uint32(sum[:])%r.count
}

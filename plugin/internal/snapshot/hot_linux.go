package snapshot

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// maxHot is how many private pages a memory keeps over a reset: 4 MiB.
	// Copying a page back is several times cheaper than faulting on it again.
	maxHot = 1024
	// minPatience is after how many resets in a row that found a page unchanged it
	// is dropped: one large call must not make all small ones after it pay. A page
	// can be written without being changed, so one that comes back after it was
	// dropped is kept four times as long, up to maxPatience.
	minPatience, maxPatience = 4, 1 << 14
)

// hotPage is a private page.
type hotPage struct {
	number         uint32
	idle, patience uint16 // resets that found it unchanged, in a row; how many may
}

// look finds out which pages are private. It reports whether they are known and
// few.
func (m *Memory) look() bool {
	p := pagemap()
	if p == nil {
		return false
	}
	old := m.hot
	m.spare = m.spare[:0]
	ok := p.changed(m.reserved[:m.size], func(page int) bool {
		if len(m.spare) == maxHot {
			return false
		}
		h := hotPage{number: uint32(page), patience: minPatience} //nolint:gosec // below 2^32 bytes / 4096
		for len(old) > 0 && old[0].number < h.number {
			old = old[1:]
		}
		if len(old) > 0 && old[0].number == h.number {
			h = old[0]
		} else if p, ok := m.dropped[h.number]; ok {
			h.patience = 4 * min(p, maxPatience/4)
		}
		m.spare = append(m.spare, h)
		return true
	})
	if !ok {
		return false
	}
	m.hot, m.spare = m.spare, m.hot
	return true
}

// restore copies the private pages back from the image.
func (m *Memory) restore() error {
	drop := false
	for i := range m.hot {
		h := &m.hot[i]
		at := int(h.number) * pageSize
		page, image := m.reserved[at:at+pageSize], m.img.view[at:at+pageSize]
		if !bytes.Equal(page, image) {
			copy(page, image)
			h.idle = 0
			continue
		}
		h.idle++
		drop = drop || h.idle >= h.patience
	}
	if !drop {
		return nil
	}
	return m.dropIdle()
}

// dropIdle gives back the pages that were not changed for a while. They hold what
// the image holds, so it does not matter when.
func (m *Memory) dropIdle() error {
	if m.dropped == nil || len(m.dropped) > maxHot {
		m.dropped = map[uint32]uint16{}
	}
	kept := m.hot[:0]
	for i := 0; i < len(m.hot); {
		if m.hot[i].idle < m.hot[i].patience {
			kept = append(kept, m.hot[i])
			i++
			continue
		}
		first := int(m.hot[i].number)
		n := 0
		for i < len(m.hot) && m.hot[i].idle >= m.hot[i].patience && int(m.hot[i].number) == first+n {
			m.dropped[m.hot[i].number] = m.hot[i].patience
			i++
			n++
		}
		if err := unix.Madvise(m.reserved[first*pageSize:(first+n)*pageSize], unix.MADV_DONTNEED); err != nil {
			m.known = false
			return fmt.Errorf("give back pages of a plugin's memory: %w", err)
		}
	}
	m.hot = kept
	return nil
}

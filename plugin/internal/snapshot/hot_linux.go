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
	// maxIdle is after how many resets in a row that found a page unchanged it is
	// dropped: one large call must not make all small ones after it pay.
	maxIdle = 4
)

// hotPage is a private page.
type hotPage struct {
	number uint32
	idle   uint8 // resets that found it unchanged, in a row
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
		h := hotPage{number: uint32(page)} //nolint:gosec // below 2^32 bytes / 4096
		for len(old) > 0 && old[0].number < h.number {
			old = old[1:]
		}
		if len(old) > 0 && old[0].number == h.number {
			h.idle = old[0].idle
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
		drop = drop || h.idle >= maxIdle
	}
	if !drop {
		return nil
	}
	return m.dropIdle()
}

// dropIdle gives back the pages that were not changed for a while. They hold what
// the image holds, so it does not matter when.
func (m *Memory) dropIdle() error {
	kept := m.hot[:0]
	for i := 0; i < len(m.hot); {
		if m.hot[i].idle < maxIdle {
			kept = append(kept, m.hot[i])
			i++
			continue
		}
		first := int(m.hot[i].number)
		n := 0
		for i < len(m.hot) && m.hot[i].idle >= maxIdle && int(m.hot[i].number) == first+n {
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

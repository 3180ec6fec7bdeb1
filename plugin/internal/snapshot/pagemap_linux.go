package snapshot

import (
	"encoding/binary"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxHot is how many changed pages are copied back rather than dropped: 1 MiB.
const maxHot = 256

// Bits of an entry of /proc/self/pagemap, one entry of 8 bytes per page.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageShared  = 1 << 61 // still the file's
)

// pagemap is the kernel's word on which pages of a private mapping are our own
// copies; nil if it cannot be had or does not tell what this package relies on.
var pagemap = sync.OnceValue(func() *os.File {
	if os.Getpagesize() != pageSize {
		return nil
	}
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil
	}
	if !tellsChanged(f) {
		_ = f.Close()
		return nil
	}
	return f
})

// tellsChanged tries it out on four pages of an image: one left alone, one read,
// one written, and one written with what was there before.
func tellsChanged(f *os.File) bool {
	src := make([]byte, 4*pageSize)
	for i := range src {
		src[i] = byte(i | 1)
	}
	img, err := NewImage(src)
	if err != nil {
		return false
	}
	defer func() { _ = img.Close() }()
	m := newMemory(img, img.size)
	defer m.Free()
	b := m.Reallocate(img.size)
	if b == nil {
		return false
	}
	sum := b[pageSize]
	b[2*pageSize] = sum + 1
	b[3*pageSize] = src[3*pageSize]
	var got [4]bool
	n := 0
	ok := changedPages(f, b, func(page int) bool {
		got[page] = true
		n++
		return true
	})
	return ok && n == 2 && got[2] && got[3]
}

// changedPages calls visit with the number of every page that is not the file's
// any more, until it returns false. It reports whether all were visited.
func changedPages(f *os.File, mem []byte, visit func(page int) bool) bool {
	var buf [4096]byte
	pages := len(mem) / pageSize
	first := int64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) / pageSize
	for done := 0; done < pages; {
		want := min((pages-done)*8, len(buf))
		n, err := unix.Pread(int(f.Fd()), buf[:want], (first+int64(done))*8)
		if err != nil || n < 8 {
			return false
		}
		for i := 0; i+8 <= n; i += 8 {
			e := binary.LittleEndian.Uint64(buf[i:])
			if e&(pagePresent|pageSwapped) != 0 && e&pageShared == 0 {
				if !visit(done + i/8) {
					return false
				}
			}
		}
		done += n / 8
	}
	return true
}

// copyBack restores changed pages from the image, if the kernel says which they
// are and they are few. If it reports false the memory is as it was, or partly
// restored.
func (m *Memory) copyBack() bool {
	f := pagemap()
	if f == nil {
		return false
	}
	n := 0
	return changedPages(f, m.reserved[:m.size], func(page int) bool {
		if n++; n > maxHot {
			return false
		}
		at := page * pageSize
		copy(m.reserved[at:at+pageSize], m.img.view[at:at+pageSize])
		return true
	})
}

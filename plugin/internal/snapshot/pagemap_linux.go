package snapshot

import (
	"encoding/binary"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pages is the kernel's word on which pages of a private mapping are our own
// copies. It is asked in one of two ways, the first that this kernel has and that
// tells what this package relies on.
type pages struct {
	fd   int
	scan bool // by the ioctl of Linux 6.7, which gives ranges; else page by page
}

// pagemap is nil if the kernel cannot be asked.
var pagemap = sync.OnceValue(func() *pages {
	if os.Getpagesize() != pageSize {
		return nil
	}
	fd, err := unix.Open("/proc/self/pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	for _, scan := range []bool{true, false} {
		if p := (&pages{fd: fd, scan: scan}); p.tells() {
			return p
		}
	}
	_ = unix.Close(fd)
	return nil
})

// tells tries it out on pages of an image: some left alone, some read, some
// written, one of them with what was there before.
func (p *pages) tells() bool {
	const n = 9
	src := make([]byte, n*pageSize)
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
	b[5*pageSize-1] = 9
	b[n*pageSize-1] = 7
	var got [n]bool
	seen := 0
	ok := p.changed(b, func(page int) bool {
		got[page] = true
		seen++
		return true
	})
	return ok && seen == 4 && got[2] && got[3] && got[4] && got[n-1]
}

// changed calls visit with the number of every page that is not the file's any
// more, in order, until it returns false. It reports whether all were visited.
func (p *pages) changed(mem []byte, visit func(page int) bool) bool {
	if p.scan {
		return p.changedRanges(mem, visit)
	}
	return p.changedEntries(mem, visit)
}

// The ioctl PAGEMAP_SCAN, from linux/fs.h.
const (
	pagemapScan   = 0xc0606610
	isFile        = 1 << 2
	isPresent     = 1 << 3
	isSwapped     = 1 << 4
	scanArguments = 96 // bytes
)

type scanArgument struct {
	size, flags, start, end, walkEnd uint64
	vec, vecLen, maxPages            uint64
	inverted, mask, anyOf, returned  uint64
	regions                          [64]struct{ start, end, categories uint64 }
}

var scanArgumentPool = sync.Pool{New: func() any { return new(scanArgument) }}

func (p *pages) changedRanges(mem []byte, visit func(page int) bool) bool {
	a := scanArgumentPool.Get().(*scanArgument)
	defer scanArgumentPool.Put(a)
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	end := base + uint64(len(mem))
	for at := base; at < end; {
		a.size, a.flags, a.start, a.end, a.walkEnd = scanArguments, 0, at, end, 0
		a.vec, a.vecLen, a.maxPages = uint64(uintptr(unsafe.Pointer(&a.regions))), uint64(len(a.regions)), 0
		// Present or swapped out, and not the file's.
		a.inverted, a.mask, a.anyOf, a.returned = isFile, isFile, isPresent|isSwapped, isPresent
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(p.fd), pagemapScan, uintptr(unsafe.Pointer(a)))
		if errno != 0 || n > uintptr(len(a.regions)) || a.walkEnd <= at || a.walkEnd > end {
			return false
		}
		for _, r := range a.regions[:n] {
			if r.start < at || r.end > end || r.start >= r.end {
				return false
			}
			for ; r.start < r.end; r.start += pageSize {
				if !visit(int((r.start - base) / pageSize)) {
					return false
				}
			}
		}
		at = a.walkEnd
	}
	runtime.KeepAlive(mem)
	return true
}

// Bits of an entry of /proc/self/pagemap, one entry of 8 bytes per page.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageShared  = 1 << 61 // still the file's
)

func (p *pages) changedEntries(mem []byte, visit func(page int) bool) bool {
	var buf [4096]byte
	count := len(mem) / pageSize
	first := int64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) / pageSize
	for done := 0; done < count; {
		want := min((count-done)*8, len(buf))
		n, err := unix.Pread(p.fd, buf[:want], (first+int64(done))*8)
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

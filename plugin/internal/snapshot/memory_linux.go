package snapshot

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Supported says that images work on this system.
const Supported = true

const pageSize = 4096 // what is copied at once; smaller than or equal to the system's

// Image is an immutable copy of a memory. It may be used by any number of
// instances at once and must outlive making and resetting them.
type Image struct {
	fd   int
	size uint64
	view []byte // read-only, shared by all resets
}

// NewImage copies a memory, whose size must be a multiple of 64 KiB. Pages of
// zeros take no room.
func NewImage(mem []byte) (*Image, error) {
	fd, err := unix.MemfdCreate("sbxhost-plugin-image", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create a memory file for a plugin image: %w", err)
	}
	img := &Image{fd: fd, size: uint64(len(mem))}
	if err := img.fill(mem); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("fill a plugin image: %w", err)
	}
	if img.size > 0 {
		if img.view, err = unix.Mmap(fd, 0, len(mem), unix.PROT_READ, unix.MAP_SHARED); err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("map a plugin image: %w", err)
		}
	}
	return img, nil
}

func (i *Image) fill(mem []byte) error {
	if err := unix.Ftruncate(i.fd, int64(len(mem))); err != nil {
		return err
	}
	for at := 0; at < len(mem); at += pageSize {
		page := mem[at:min(at+pageSize, len(mem))]
		if isZero(page) {
			continue
		}
		for off := 0; off < len(page); {
			n, err := unix.Pwrite(i.fd, page[off:], int64(at+off))
			if err != nil {
				if errors.Is(err, unix.EINTR) {
					continue
				}
				return err
			}
			off += n
		}
	}
	// Nothing can change or shrink it any more: a shrunk file would turn every
	// access of an instance into a SIGBUS of the host.
	_, err := unix.FcntlInt(uintptr(i.fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	return err
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// Size is the image's size in bytes.
func (i *Image) Size() uint64 { return i.size }

// Close releases the image. Instances made from it keep working.
func (i *Image) Close() error {
	if i.fd < 0 {
		return nil
	}
	fd := i.fd
	i.fd = -1
	if i.view != nil {
		_ = unix.Munmap(i.view)
		i.view = nil
	}
	return unix.Close(fd)
}

// Memory is the linear memory of one instance. It is used by one goroutine at a
// time.
type Memory struct {
	img      *Image
	reserved []byte // whole range, PROT_NONE beyond size
	size     uint64
	start    uint64 // size at first
	err      error

	hot, spare []hotPage         // private pages in order, as of the last reset
	dropped    map[uint32]uint16 // patience of pages given back, by number
	known      bool              // no other page was private then
	exact      bool              // and none has become so since
	watching   bool              // between Enter and Leave
	before     int64             // faults of the thread at Enter
}

func newMemory(img *Image, limit uint64) *Memory {
	m := &Memory{img: img}
	if limit == 0 {
		return m
	}
	if img != nil && img.size > limit {
		m.err = fmt.Errorf("image of %d bytes is larger than the memory's maximum of %d", img.size, limit)
		return m
	}
	m.reserved, m.err = unix.Mmap(-1, 0, int(limit), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if m.err != nil {
		m.err = fmt.Errorf("reserve %d bytes of address space for a plugin: %w", limit, m.err)
	}
	return m
}

// Err says why the memory could not be made or grown for another reason than
// its maximum.
func (m *Memory) Err() error { return m.err }

// Reallocate implements experimental.LinearMemory. The first call decides the
// initial size: that of the image if it is larger than what is asked for.
func (m *Memory) Reallocate(size uint64) []byte {
	if m.err != nil || size > uint64(len(m.reserved)) {
		return nil
	}
	if m.start == 0 && m.size == 0 {
		if m.img != nil {
			size = max(size, m.img.size)
			if m.err = m.mapImage(); m.err != nil {
				return nil
			}
		}
		m.start = size
	}
	if size > m.size {
		if err := unix.Mprotect(m.reserved[m.size:size], unix.PROT_READ|unix.PROT_WRITE); err != nil {
			m.err = fmt.Errorf("grow a plugin's memory to %d bytes: %w", size, err)
			return nil
		}
		m.size = size
	}
	return m.reserved[:m.size:m.size]
}

func (m *Memory) mapImage() error {
	if m.img.size == 0 {
		return nil
	}
	err := mmapFixed(m.reserved[:m.img.size], m.img.fd)
	runtime.KeepAlive(m.img)
	if err != nil {
		return fmt.Errorf("map a plugin image: %w", err)
	}
	m.size = m.img.size
	return nil
}

// Bytes is the memory as it is now.
func (m *Memory) Bytes() []byte { return m.reserved[:m.size:m.size] }

// Grown reports whether the memory is larger than at first. Such a memory
// cannot be reset: the instance has its size in places that only grow.
func (m *Memory) Grown() bool { return m.size > m.start }

// Reset puts the memory back to its image. Changed pages are copied back and stay
// private, so that the next use does not fault on them again, unless they are very
// many or were not changed for some time. An error leaves it in no defined state.
func (m *Memory) Reset() error {
	if m.size == 0 {
		return nil
	}
	if m.img == nil || m.Grown() {
		return errors.New("a memory without image, or one that grew, cannot be reset")
	}
	if m.find() {
		m.exact = false // whatever comes next, unless Enter and Leave say so again
		return m.restore()
	}
	return m.Trim()
}

// find sees to it that the private pages are known. It reports false if they
// cannot be, or are very many.
func (m *Memory) find() bool {
	if m.known && m.exact {
		return true
	}
	m.known, m.exact = false, false
	if m.size != uint64(len(m.img.view)) || !m.look() {
		return false
	}
	m.known, m.exact = true, true
	return true
}

const (
	// cheapPages is how many pages are copied back without a thought: that takes
	// less than handing them to another thread.
	cheapPages = 64
	// cheapSize is how large a memory may be for its page tables to be looked at
	// without a thought.
	cheapSize = 8 << 20
)

// Cheap reports whether Reset will copy few pages and do nothing else. To say so
// it may look at the page tables, which the Reset then need not do.
func (m *Memory) Cheap() bool {
	if m.img == nil || m.Grown() || m.size == 0 || !m.known || len(m.hot) > cheapPages || !m.exact && m.size > cheapSize {
		return false
	}
	return m.find() && len(m.hot) <= cheapPages
}

// Hot reports whether the memory holds private pages since it was reset.
func (m *Memory) Hot() bool { return len(m.hot) > 0 }

// Trim is Reset by dropping all private pages: the memory then takes as little
// room as it can.
func (m *Memory) Trim() error {
	if m.img == nil || m.Grown() {
		return errors.New("a memory without image, or one that grew, cannot be reset")
	}
	m.known, m.exact = false, false
	if err := unix.Madvise(m.reserved[:m.size], unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("reset a plugin's memory: %w", err)
	}
	m.hot, m.known = m.hot[:0], pagemap() != nil
	return nil
}

// Free implements experimental.LinearMemory.
func (m *Memory) Free() {
	if m.reserved != nil {
		_ = unix.Munmap(m.reserved)
		m.reserved, m.size = nil, 0
	}
}

//go:build !linux

package snapshot

import "errors"

// Supported says that images work on this system.
const Supported = false

var errUnsupported = errors.New("plugin images are not supported on this system")

// Image is not available here.
type Image struct{}

// NewImage always fails.
func NewImage([]byte) (*Image, error) { return nil, errUnsupported }

// Size is zero.
func (i *Image) Size() uint64 { return 0 }

// Close does nothing.
func (i *Image) Close() error { return nil }

// Memory is the linear memory of one instance.
type Memory struct {
	buf   []byte
	limit uint64
	start int
	used  bool
}

func newMemory(_ *Image, limit uint64) *Memory { return &Memory{limit: limit} }

// Err is nil.
func (m *Memory) Err() error { return nil }

// Reallocate implements experimental.LinearMemory.
func (m *Memory) Reallocate(size uint64) []byte {
	if size > m.limit {
		return nil
	}
	if size > uint64(len(m.buf)) {
		buf := make([]byte, size)
		copy(buf, m.buf)
		m.buf = buf
	}
	if !m.used {
		m.used, m.start = true, len(m.buf)
	}
	return m.buf
}

// Bytes is the memory as it is now.
func (m *Memory) Bytes() []byte { return m.buf }

// Grown reports whether the memory is larger than at first.
func (m *Memory) Grown() bool { return len(m.buf) > m.start }

// Reset always fails.
func (m *Memory) Reset() error { return errUnsupported }

// Enter does nothing.
func (m *Memory) Enter() {}

// Loose does nothing.
func (m *Memory) Loose() {}

// Leave does nothing.
func (m *Memory) Leave() {}

// Cheap is false.
func (m *Memory) Cheap() bool { return false }

// Hot is false.
func (m *Memory) Hot() bool { return false }

// Trim always fails.
func (m *Memory) Trim() error { return errUnsupported }

// Free implements experimental.LinearMemory.
func (m *Memory) Free() { m.buf = nil }

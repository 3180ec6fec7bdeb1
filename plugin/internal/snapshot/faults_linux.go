package snapshot

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// threadFaults is how many page faults the calling thread has had. A private page
// comes into being by a fault of the thread that writes, so a count that stands
// still says that no new one did: one system call instead of asking about each
// page.
func threadFaults() (int64, bool) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return 0, false
	}
	return u.Minflt + u.Majflt, true
}

// faultsTell reports whether this kernel counts faults as this package relies on:
// the first write to each page of an image counts, after a read too. Where the
// count does not move, as under some emulations, it says nothing.
var faultsTell = sync.OnceValue(func() bool {
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
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sum := byte(0)
	for at := 0; at < len(b)/2; at += pageSize {
		sum += b[at]
	}
	for at := 0; at < len(b); at += pageSize {
		before, ok := threadFaults()
		b[at] += sum
		after, ok2 := threadFaults()
		if !ok || !ok2 || after <= before {
			return false
		}
	}
	return true
})

// Enter is called on the goroutine that is about to run the module. Until Leave or
// Loose it stays on its thread, and whether it faults is noted: what a Reset has
// to do depends on it. Without Enter, Reset finds out by itself.
func (m *Memory) Enter() {
	m.exact, m.watching = false, false
	if !m.known || !faultsTell() {
		return
	}
	runtime.LockOSThread()
	n, ok := threadFaults()
	if !ok {
		runtime.UnlockOSThread()
		return
	}
	m.before, m.watching = n, true
}

// Loose lets the goroutine go to other threads: it is going to wait.
func (m *Memory) Loose() {
	if m.watching {
		m.watching = false
		runtime.UnlockOSThread()
	}
}

// Leave is called on the goroutine of Enter when the module has run.
func (m *Memory) Leave() {
	if !m.watching {
		return
	}
	n, ok := threadFaults()
	m.exact = ok && n == m.before
	m.Loose()
}

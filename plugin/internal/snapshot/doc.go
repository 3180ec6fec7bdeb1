// Package snapshot provides linear memories for WebAssembly instances that start
// from a common image and can be put back to it.
//
// On Linux the image is a sealed memory file which every instance maps privately:
// untouched pages are shared, and putting an instance back means copying the
// image's bytes over its private pages, or dropping them. Which pages are private
// the kernel tells, and a count of page faults tells when it need not be asked.
// Elsewhere memories are plain and Supported is false.
package snapshot

import "github.com/tetratelabs/wazero/experimental"

// Allocator makes the memory of one instance; use one per instance. It
// implements wazero's MemoryAllocator. Image may be nil: the memory then starts
// empty, as the module says.
type Allocator struct {
	Image *Image
	// Memory is the memory made, once there is one.
	Memory *Memory
}

var (
	_ experimental.MemoryAllocator = (*Allocator)(nil)
	_ experimental.LinearMemory    = (*Memory)(nil)
)

// Allocate implements experimental.MemoryAllocator.
func (a *Allocator) Allocate(_, limit uint64) experimental.LinearMemory {
	a.Memory = newMemory(a.Image, limit)
	return a.Memory
}

package snapshot

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmapFixed maps the file privately over an existing mapping. The standard
// wrapper cannot place a mapping, so this calls the kernel itself.
func mmapFixed(over []byte, fd int) error {
	addr := unsafe.Pointer(unsafe.SliceData(over))
	_, err := unix.MmapPtr(fd, 0, addr, uintptr(len(over)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err
}

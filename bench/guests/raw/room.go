//go:build wasip1 && !noroom

package main

import "runtime"

// As in the kit: room on the heap, so that calls need no more memory. It makes
// initialising dearer, so a guest that is initialised for each call goes without.
func init() {
	spare := make([]byte, 1<<20)
	runtime.KeepAlive(&spare)
	spare = nil
	runtime.GC()
}

//go:build !linux

package main

import "runtime"

// systemChecks has nothing to look at: sandboxes run locally on Linux only.
func systemChecks() []check {
	return []check{{"system", statusNote, runtime.GOOS + ": the local provider needs Linux", nil}}
}

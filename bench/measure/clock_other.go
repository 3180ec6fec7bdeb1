//go:build !linux

package measure

import "time"

var start = time.Now()

// Process is wall time here: this system's processor time is not read.
func Process() time.Duration { return time.Since(start) }

// Thread is wall time here.
func Thread() time.Duration { return time.Since(start) }

// Other is not known here.
func Other(int) time.Duration { return 0 }

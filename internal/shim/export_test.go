package shim

import "time"

// KeepIdle makes f keep an idle stream for so long.
func KeepIdle(f *Files, d time.Duration) { f.pool.keep = d }

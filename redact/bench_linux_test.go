package redact_test

import (
	"runtime"
	"syscall"
	"testing"
)

// cpuClock measures this thread's processor time, which other load on the
// machine does not stretch. The returned function reports cpu-ns/op, and
// cpu-MB/s if the bytes of one operation are given.
func cpuClock(b *testing.B) func(size int) {
	b.Helper()
	runtime.LockOSThread()
	const thread = 1 // RUSAGE_THREAD
	now := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(thread, &u); err != nil {
			b.Fatal(err)
		}
		return float64(u.Utime.Nano() + u.Stime.Nano())
	}
	start := now()
	return func(size int) {
		took := now() - start
		runtime.UnlockOSThread()
		b.ReportMetric(took/float64(b.N), "cpu-ns/op")
		if size > 0 {
			b.ReportMetric(float64(size)*float64(b.N)*1e3/took, "cpu-MB/s")
		}
	}
}

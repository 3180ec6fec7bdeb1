package engine_test

import (
	"context"
	"runtime"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/plugin/internal/engine"
)

// cpuTime is what the calling thread has computed, undisturbed by what else runs
// on the machine.
func cpuTime(tb testing.TB) time.Duration {
	var ts unix.Timespec
	require.NoError(tb, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts))
	return time.Duration(ts.Nano())
}

// medians runs the functions in turn, a block of ten calls each, over and over,
// and returns each one's median of CPU time on this thread. Blocks, for one that
// touches much memory would otherwise slow down the next.
func medians(b *testing.B, rounds int, fns ...func()) []time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := make([][]time.Duration, len(fns))
	for range rounds / 10 {
		for i, fn := range fns {
			for range 10 {
				start := cpuTime(b)
				fn()
				all[i] = append(all[i], cpuTime(b)-start)
			}
		}
	}
	out := make([]time.Duration, len(fns))
	for i, ds := range all {
		sort.Slice(ds, func(i, j int) bool { return ds[i] < ds[j] })
		out[i] = ds[len(ds)/2]
	}
	return out
}

// BenchmarkRatios measures in turns what is to be compared, as CPU medians.
func BenchmarkRatios(b *testing.B) {
	for _, s := range sizes {
		b.Run("metered to plain/"+s.name, func(b *testing.B) {
			plain, metered := newBare(b, false, false), newBare(b, true, false)
			_, f := plain.instance(b)
			_, g := metered.instance(b)
			in := payload(s.n)
			for b.Loop() {
				m := medians(b, 300, func() { plain.call(b, f, 0, in) }, func() { metered.call(b, g, 0, in) })
				b.ReportMetric(float64(m[0].Nanoseconds()), "plain-ns")
				b.ReportMetric(float64(m[1].Nanoseconds()), "metered-ns")
				b.ReportMetric(float64(m[1])/float64(m[0]), "ratio")
			}
		})
	}
	b.Run("snapshot to dirty and fresh", func(b *testing.B) {
		metered, plain := newBare(b, true, false), newBare(b, false, false)
		_, g := metered.instance(b)
		e := newEngine(b, engine.Config{})
		in := payload(1 << 10)
		x := &exchange{in: in}
		p := load(b, e, guest, engine.Options{Warmup: []engine.Warmup{{Op: 0, State: &exchange{in: in}}}})
		for b.Loop() {
			m := medians(b, 300, func() { metered.call(b, g, 0, in) }, func() {
				_, err := p.Call(context.Background(), 0, x)
				require.NoError(b, err)
			}, func() {
				mod, fn := plain.instance(b)
				plain.call(b, fn, 0, in)
				_ = mod.Close(context.Background())
			})
			b.ReportMetric(float64(m[0].Nanoseconds()), "dirty-ns")
			b.ReportMetric(float64(m[1].Nanoseconds()), "snapshot-ns")
			b.ReportMetric(float64(m[2].Nanoseconds()), "fresh-ns")
			b.ReportMetric(float64(m[1])/float64(m[0]), "snapshot/dirty")
			b.ReportMetric(float64(m[2])/float64(m[1]), "fresh/snapshot")
		}
	})
	b.Run("raw echo", func(b *testing.B) {
		plain := newBare(b, false, false)
		_, f := plain.instance(b)
		p := goGuest(b)
		in := payload(1 << 10)
		x := &exchange{in: in}
		for b.Loop() {
			m := medians(b, 1000, func() { plain.call(b, f, 7, in) }, func() {
				_, err := p.Call(context.Background(), 7, x)
				require.NoError(b, err)
			})
			b.ReportMetric(float64(m[0].Nanoseconds()), "wazero-ns")
			b.ReportMetric(float64(m[1].Nanoseconds()), "engine-ns")
		}
	})
}

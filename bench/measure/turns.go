// Package measure compares contenders in one run: they take turns, so that all
// see the same machine, and each one's median is reported beside a baseline's.
package measure

import (
	"flag"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Budget is what one contender may take in all: the flag -benchtime, of which
// "20x" means twenty milliseconds here.
func Budget() time.Duration {
	f := flag.Lookup("test.benchtime")
	if f == nil {
		return time.Second
	}
	v := f.Value.String()
	if n, ok := strings.CutSuffix(v, "x"); ok {
		if n, err := strconv.Atoi(n); err == nil {
			return time.Duration(n) * time.Millisecond
		}
	}
	if d, err := time.ParseDuration(v); err == nil && d > 0 {
		return d
	}
	return time.Second
}

// Contender is one way to do the same thing.
type Contender struct {
	Name string
	// Call does it once.
	Call func() error
	// PID is another process that does part of it, whose processor time
	// counts too. 0: none.
	PID int
}

// Cost is what one call takes.
type Cost struct{ CPU, Wall time.Duration }

func (c Contender) cpu() time.Duration {
	t := Process()
	if c.PID != 0 {
		t += Other(c.PID)
	}
	return t
}

const (
	minRounds = 5
	maxRounds = 2000
)

// block is how many calls make one turn: several, so that what a call leaves to
// be done afterwards is in the measure, but not for long.
func block(one time.Duration) time.Duration {
	if one > 2*time.Millisecond {
		return 3
	}
	return 10
}

// Turns runs the contenders, each within the budget, and returns their medians.
// CPU is that of the whole process, so that work left to other goroutines counts.
func Turns(b *testing.B, cs []Contender) []Cost {
	b.Helper()
	all := make([][2][]time.Duration, len(cs))
	for round, end := 0, time.Now().Add(Budget()*time.Duration(len(cs))); round < minRounds || round < maxRounds && time.Now().Before(end); round++ {
		for i, c := range cs {
			// Once without measuring: what the one before left in the
			// caches, and of garbage, is not this one's.
			warm := time.Now()
			if err := c.Call(); err != nil {
				b.Fatalf("%s: %v", c.Name, err)
			}
			block := block(time.Since(warm))
			cpu, wall := c.cpu(), time.Now()
			for range int(block) {
				if err := c.Call(); err != nil {
					b.Fatalf("%s: %v", c.Name, err)
				}
			}
			all[i][0] = append(all[i][0], (c.cpu()-cpu)/block)
			all[i][1] = append(all[i][1], time.Since(wall)/block)
		}
		if round == 0 {
			runtime.GC()
		}
	}
	out := make([]Cost, len(cs))
	for i := range all {
		out[i] = Cost{median(all[i][0]), median(all[i][1])}
	}
	return out
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

// Report runs Turns and prints one benchmark result per contender: processor and
// wall time of a call, and both in multiples of the first contender's.
func Report(b *testing.B, cs []Contender) {
	b.Helper()
	costs := Turns(b, cs)
	for i, c := range cs {
		b.Run(c.Name, func(b *testing.B) {
			b.ReportMetric(0, "ns/op") // measured above, not by b
			b.ReportMetric(float64(costs[i].CPU.Nanoseconds()), "cpu-ns/call")
			b.ReportMetric(float64(costs[i].Wall.Nanoseconds()), "wall-ns/call")
			b.ReportMetric(ratio(costs[i].CPU, costs[0].CPU), "cpu-x")
			b.ReportMetric(ratio(costs[i].Wall, costs[0].Wall), "wall-x")
		})
	}
}

func ratio(a, b time.Duration) float64 {
	if b <= 0 {
		return 0
	}
	return float64(a) / float64(b)
}

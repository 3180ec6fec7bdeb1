package redaction_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildkite/agent/v3/benchbridge"

	"github.com/sbxhost/sbxhost/bench/measure"
)

const rounds = 5

// turn writes parts of the text, from where the last turn ended, until the
// processor time is used up. It returns the bytes a second.
func turn(b *testing.B, name string, write func([]byte) error, text []byte, at *int, size int, budget time.Duration) float64 {
	start, done := measure.Thread(), 0
	for unit := size; ; {
		for n := 0; n < unit; {
			p := text[*at:min(*at+size, len(text))]
			if err := write(p); err != nil {
				b.Fatalf("%s: %v", name, err)
			}
			n += len(p)
			if *at += len(p); *at == len(text) {
				*at = 0
			}
			done += len(p)
		}
		took := measure.Thread() - start
		if took >= budget {
			return float64(done) / took.Seconds()
		}
		if took < budget/8 { // look at the clock seldom: it costs more than a write
			unit = min(2*unit, 4<<20)
		}
	}
}

// BenchmarkRedact writes a log of 64 MiB through every contender in turns and
// reports the medians: MB/s of processor time, and in multiples of our own
// (x-ours) and of bytes.IndexByte (x-IndexByte), the ceiling.
func BenchmarkRedact(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sets := []func() set{formSet}
	for _, n := range []int{1, 10, 100, 1000, 10000} {
		sets = append(sets, func() set { return rawSet(n) })
	}
	all := contenders()
	for _, make := range sets {
		s := make()
		if got := s.redact.Stats().Needles; got != len(s.needles) {
			b.Fatalf("%s: %d needles here, %d in the redactor", s.name, len(s.needles), got)
		}
		b.Run(s.name, func(b *testing.B) {
			writes := map[string]func([]byte) error{}
			for _, c := range all {
				if c.most == 0 || len(s.needles) <= c.most {
					writes[c.name] = c.make(s)
				}
			}
			for _, hits := range []string{"none", "10KB"} {
				text := plainLog()
				if hits == "10KB" {
					text = planted(s.needles)
				}
				for _, size := range []int{32 << 10, 100} {
					b.Run(fmt.Sprintf("hits=%s/write=%d", hits, size), func(b *testing.B) { inTurns(b, all, writes, text, size) })
				}
			}
		})
		runtime.GC()
	}
}

func inTurns(b *testing.B, all []contender, writes map[string]func([]byte) error, text []byte, size int) {
	rates, at := map[string][]float64{}, map[string]*int{}
	for range rounds {
		for _, c := range all {
			write, ok := writes[c.name]
			if !ok {
				continue
			}
			if at[c.name] == nil {
				at[c.name] = new(int)
			}
			rates[c.name] = append(rates[c.name], turn(b, c.name, write, text, at[c.name], size, measure.Budget()/rounds))
		}
	}
	median := func(name string) float64 {
		r := rates[name]
		slices.Sort(r)
		return r[len(r)/2]
	}
	for _, c := range all {
		b.Run(c.name, func(b *testing.B) {
			if len(rates[c.name]) == 0 {
				b.Skipf("not measured: with more than %d needles one write takes many seconds", c.most)
			}
			b.ReportMetric(0, "ns/op") // measured above, not by b
			b.ReportMetric(median(c.name)/1e6, "cpu-MB/s")
			b.ReportMetric(median(c.name)/median("sbxhost"), "x-ours")
			b.ReportMetric(median(c.name)/median("IndexByte"), "x-IndexByte")
		})
	}
}

// Both streaming contenders must do the work they are measured by: every needle
// planted in the log is gone from their output, however it was cut into writes.
func TestStreamingContendersMask(t *testing.T) {
	t.Parallel()
	s := rawSet(100)
	text := planted(s.needles)[:1<<20]
	ours, theirs := &bytes.Buffer{}, &bytes.Buffer{}
	w := s.redact.Writer(ours)
	bk, flush := benchbridge.NewRedactor(theirs, s.needles)
	for _, sink := range []io.Writer{w, bk} {
		for rest := text; len(rest) > 0; {
			n := min(100, len(rest))
			if _, err := sink.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := flush(); err != nil {
		t.Fatal(err)
	}
	for name, out := range map[string]string{"ours": ours.String(), "buildkite": theirs.String()} {
		if want := strings.Count(strings.ToLower(out), "[redacted"); want != 105 {
			t.Errorf("%s: %d markers, want 105", name, want)
		}
		for _, n := range s.needles {
			if strings.Contains(out, n) {
				t.Errorf("%s: a needle came through", name)
			}
		}
	}
}

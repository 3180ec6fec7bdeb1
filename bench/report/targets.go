package main

import (
	"fmt"
	"io"
	"strings"
)

// target is a promise and how to find out whether it holds.
type target struct {
	group, what, unit string
	most              bool // the bound is an upper one
	bound             float64
	value             func(r results) (float64, bool)
}

func metric(name, unit string, scale float64) func(results) (float64, bool) {
	return func(r results) (float64, bool) {
		v, ok := r.get(name, unit)
		return v * scale, ok
	}
}

func over(a, b, unit string) func(results) (float64, bool) {
	return func(r results) (float64, bool) { return r.over(a, b, unit) }
}

// least is the smallest value among the benchmarks whose names begin so.
func least(prefix, unit string) func(results) (float64, bool) {
	return func(r results) (low float64, found bool) {
		for name := range r {
			if v, ok := r.get(name, unit); ok && strings.HasPrefix(name, prefix) && (!found || v < low) {
				low, found = v, true
			}
		}
		return low, found
	}
}

func targets() []target {
	var out []target
	atMost := func(group, what, unit string, bound float64, v func(results) (float64, bool)) {
		out = append(out, target{group, what, unit, true, bound, v})
	}
	atLeast := func(group, what, unit string, bound float64, v func(results) (float64, bool)) {
		out = append(out, target{group, what, unit, false, bound, v})
	}

	for _, lang := range []string{"go", "rust"} {
		for _, size := range []string{"1KiB", "64KiB"} {
			base := "Metering/" + lang + "/" + size
			atMost("plugins", "metered, JSON "+size+", "+lang, "× plain", 1.35, over(base+"/metered", base+"/plain", "cpu-ns/call"))
		}
	}
	for _, size := range []string{"1KiB", "64KiB"} {
		base := "Isolation/" + size
		atMost("plugins", "call from the snapshot, JSON "+size+", go", "× reused instance", 2, over(base+"/snapshot", base+"/dirty", "cpu-ns/call"))
	}
	atLeast("plugins", "fresh instance per call, JSON 1KiB, go", "× snapshot", 15, over("Isolation/1KiB/fresh", "Isolation/1KiB/snapshot", "cpu-ns/call"))
	atLeast("plugins", "fresh instance per call, create through the go kit", "× snapshot", 15, over("CreateFresh/fresh", "CreateFresh/snapshot", "cpu-ns/call"))
	atMost("plugins", "memory of an idle go instance", "KiB", 150, metric("IdleInstance", "KiB/instance", 1))
	atMost("plugins", "create of 1 KiB through the go kit, reused instance", "µs CPU", 60, metric("Create/reused", "cpu-ns/call", 1e-3))
	atMost("plugins", "create of 1 KiB through the go kit, from the snapshot", "µs CPU", 60, metric("Create/snapshot", "cpu-ns/call", 1e-3))
	atMost("plugins", "raw echo of 1 KiB, metered, reused instance", "× bare wazero", 2, over("Echo/raw/1KiB/sbxhost-metered-reused", "Echo/raw/1KiB/wazero", "cpu-ns/call"))
	atMost("plugins", "raw echo of 1 KiB, from the snapshot", "× bare wazero", 2, over("Echo/raw/1KiB/sbxhost", "Echo/raw/1KiB/wazero", "cpu-ns/call"))
	for _, e := range []string{"json/1KiB", "json/64KiB", "raw/1KiB", "raw/64KiB", "kit/1KiB", "kit/64KiB"} {
		atLeast("plugins", "extism with a deadline, echo "+e, "× ours", 5, over("Echo/"+e+"/extism-deadline", "Echo/"+e+"/sbxhost", "cpu-ns/call"))
	}

	for _, s := range []struct {
		name  string
		bound float64
	}{{"10secrets", 0.4}, {"needles=100", 0.4}, {"needles=1000", 0.3}, {"needles=10000", 0.15}} {
		base := "Redact/" + s.name + "/hits=none/write=32768"
		atLeast("redaction", s.name+", 32 KiB writes", "× IndexByte", s.bound, metric(base+"/sbxhost", "x-IndexByte", 1))
	}
	for _, s := range []string{"needles=1", "needles=10", "10secrets", "needles=100", "needles=1000", "needles=10000"} {
		for _, v := range []string{"hits=none/write=32768", "hits=10KB/write=32768", "hits=none/write=100", "hits=10KB/write=100"} {
			base := "Redact/" + s + "/" + v
			atLeast("redaction", s+", "+strings.ReplaceAll(v, "/", ", "), "× Buildkite's", 10, over(base+"/sbxhost", base+"/buildkite", "cpu-MB/s"))
		}
	}
	for _, s := range []string{"needles=1", "10secrets", "needles=100", "needles=1000", "needles=10000"} {
		atLeast("redaction", s+", 100-byte writes", "GB/s CPU", 0.5, metric("Redact/"+s+"/hits=none/write=100/sbxhost", "cpu-MB/s", 1e-3))
	}
	for _, n := range []string{"1", "100", "10000"} {
		atMost("redaction", n+" needles, 1-byte write", "ns CPU", 30, metric("OneByte/needles="+n, "cpu-ns/op", 1))
		atMost("redaction", n+" needles, 1-byte write", "allocs", 0, metric("OneByte/needles="+n, "allocs/op", 1))
	}
	atLeast("redaction", "slowest input", "MB/s CPU", 50, least("Worst/", "cpu-MB/s"))
	atMost("redaction", "compiling 10,000 needles", "ms CPU", 50, metric("Add/first_10000_at_once", "cpu-ns/op", 1e-6))
	atMost("redaction", "memory of 10,000 needles", "MiB", 8, metric("Add/retained_by_10000", "retained-MiB", 1))
	atMost("redaction", "adding one to 10,000", "ms CPU", 1, metric("Add/one_to_10000", "cpu-ns/op", 1e-6))

	for _, level := range []string{"namespaces", "landlock"} {
		atMost("local", "create, level "+level, "ms", 8, metric("Lifecycle/"+level, "create-µs", 1e-3))
		atMost("local", "exec of true, level "+level, "× os/exec", 2, metric("Exec", level+"/os-exec", 1))
		atMost("local", "destroy, level "+level, "ms", 1, metric("Lifecycle/"+level, "destroy-µs", 1e-3))
	}
	atMost("local", "exec of true, level namespaces", "× bubblewrap", 1, over2("Exec", "namespaces-µs", "bwrap-µs"))
	return out
}

// over2 divides two units of one benchmark.
func over2(name, a, b string) func(results) (float64, bool) {
	return func(r results) (float64, bool) {
		x, ok := r.get(name, a)
		y, ok2 := r.get(name, b)
		if !ok || !ok2 || y == 0 {
			return 0, false
		}
		return x / y, true
	}
}

// table prints the targets of the groups. A missed one says so, and so does one
// that was not measured.
func table(w io.Writer, r results, groups []string) {
	fmt.Fprintln(w, "| what | target | measured | |")
	fmt.Fprintln(w, "|---|---|--:|---|")
	met, missed, unknown := 0, 0, 0
	for _, t := range targets() {
		if !contains(groups, t.group) {
			continue
		}
		sign := "≥"
		if t.most {
			sign = "≤"
		}
		v, ok := t.value(r)
		measured, verdict := "–", "not measured"
		if ok {
			measured = fmt.Sprintf("%.3g", v)
			if v >= 1000 {
				measured = fmt.Sprintf("%.0f", v)
			}
			verdict = "met"
			if t.most && v > t.bound || !t.most && v < t.bound {
				verdict = "**missed**"
			}
		}
		switch verdict {
		case "met":
			met++
		case "not measured":
			unknown++
		default:
			missed++
		}
		fmt.Fprintf(w, "| %s | %s %g %s | %s | %s |\n", t.what, sign, t.bound, t.unit, measured, verdict)
	}
	fmt.Fprintf(w, "\n%d met, %d missed, %d not measured\n", met, missed, unknown)
}

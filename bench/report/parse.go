package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// results are the values of a run: benchmark name, without "Benchmark" and the
// number of processors, to unit to median.
type results map[string]map[string]float64

var procs = regexp.MustCompile(`-\d+$`)

// parse reads the output of go test -bench. Benchmarks that ran several times
// give their median.
func parse(text []byte) results {
	all := map[string]map[string][]float64{}
	for _, line := range strings.Split(string(text), "\n") {
		name, rest, ok := strings.Cut(line, "\t")
		name, isBench := strings.CutPrefix(strings.TrimSpace(name), "Benchmark")
		if !ok || !isBench {
			continue
		}
		name = procs.ReplaceAllString(name, "")
		for i, f := range strings.Split(rest, "\t") {
			value, unit, ok := strings.Cut(strings.TrimSpace(f), " ")
			n, err := strconv.ParseFloat(value, 64)
			if i == 0 || !ok || err != nil { // the first is the number of runs
				continue
			}
			if all[name] == nil {
				all[name] = map[string][]float64{}
			}
			all[name][unit] = append(all[name][unit], n)
		}
	}
	out := results{}
	for name, units := range all {
		out[name] = map[string]float64{}
		for unit, values := range units {
			slices.Sort(values)
			out[name][unit] = values[len(values)/2]
		}
	}
	return out
}

// get returns a value; ok is false if it was not measured.
func (r results) get(name, unit string) (v float64, ok bool) {
	v, ok = r[name][unit]
	return v, ok
}

// over divides the unit of a by that of b.
func (r results) over(a, b, unit string) (float64, bool) {
	x, ok := r.get(a, unit)
	y, ok2 := r.get(b, unit)
	if !ok || !ok2 || y == 0 {
		return 0, false
	}
	return x / y, true
}

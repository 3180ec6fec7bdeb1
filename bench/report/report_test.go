package main

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	r := parse([]byte(`goos: linux
BenchmarkEcho/raw/1KiB/wazero-2 	1000000000	     100.0 cpu-ns/call	         1.000 cpu-x
BenchmarkEcho/raw/1KiB/sbxhost-2 	1000000000	     100.0 cpu-ns/call
BenchmarkEcho/raw/1KiB/sbxhost-2 	1000000000	     150.0 cpu-ns/call
BenchmarkEcho/raw/1KiB/sbxhost-2 	1000000000	     900.0 cpu-ns/call
BenchmarkRedact/needles=100/hits=none/write=32768/sbxhost-16 	1	 0.5 x-IndexByte
PASS`))
	if v, ok := r.over("Echo/raw/1KiB/sbxhost", "Echo/raw/1KiB/wazero", "cpu-ns/call"); !ok || v != 1.5 {
		t.Errorf("the ratio of medians is %v, %v", v, ok)
	}
	if v, ok := r.get("Redact/needles=100/hits=none/write=32768/sbxhost", "x-IndexByte"); !ok || v != 0.5 {
		t.Errorf("got %v, %v", v, ok)
	}
	if _, ok := r.get("Echo", "cpu-ns/call"); ok {
		t.Error("found what is not there")
	}
}

func TestTableSaysWhatWasMissed(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	table(&out, parse([]byte("BenchmarkExec-2\t1\t3.1 namespaces/os-exec\t1.9 landlock/os-exec\nBenchmarkLifecycle/namespaces-2\t1\t8000 create-µs\n")), []string{"local"})
	for _, want := range []string{
		"| exec of true, level namespaces | ≤ 2 × os/exec | 3.1 | **missed** |",
		"| exec of true, level landlock | ≤ 2 × os/exec | 1.9 | met |",
		"| create, level namespaces | ≤ 8 ms | 8 | met |",
		"| destroy, level namespaces | ≤ 1 ms | – | not measured |",
		"2 met, 1 missed, 4 not measured",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
}

// Command report runs the benchmarks that the project sets itself targets for,
// its own and those beside peers, and prints each target with what was measured.
//
//	go run ./report [-benchtime 200ms] [-only plugins,redaction,local] [-out FILE]
//	go run ./report -in FILE
//
// FILE is the plain output of go test -bench, for benchstat. Run it in the bench
// folder.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// suite is one go test run.
type suite struct{ group, dir, pkg, bench string }

var suites = []suite{
	{"plugins", ".", "./plugins", "."},
	{"plugins", "..", "./plugin/internal/engine", "IdleInstance"},
	{"redaction", ".", "./redaction", "."},
	{"redaction", "..", "./redact", "OneByte|Worst|Add"},
	{"local", "..", "./builtin/local", "Exec|Lifecycle"},
}

func main() {
	benchtime := flag.String("benchtime", "200ms", "time per benchmark, or per contender where contenders take turns")
	only := flag.String("only", "plugins,redaction,local", "groups to run")
	in := flag.String("in", "", "read this output of an earlier run instead of running anything")
	out := flag.String("out", "", "also write the plain benchmark output here, for benchstat")
	flag.Parse()
	if err := report(*benchtime, *only, *in, *out); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func report(benchtime, only, in, out string) error {
	groups := strings.Split(only, ",")
	var text []byte
	var failed error
	if in != "" {
		var err error
		if text, err = os.ReadFile(in); err != nil {
			return err
		}
	} else {
		before := load()
		var all bytes.Buffer
		fmt.Fprintf(&all, "note: %s, %s %s/%s, %d CPUs, benchtime %s\n", time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), benchtime)
		for _, s := range suites {
			if !contains(groups, s.group) {
				continue
			}
			fmt.Fprintf(os.Stderr, "running %s\n", s.pkg)
			cmd := exec.Command("go", "test", "-run", "^$", "-bench", s.bench, "-benchmem", "-benchtime", benchtime, "-timeout", "60m", s.pkg)
			cmd.Dir = s.dir
			cmd.Stdout = io.MultiWriter(&all, os.Stderr)
			cmd.Stderr = os.Stderr
			if err := cmd.Run(); err != nil {
				// What was measured before the failure is still worth
				// showing, what was not shows as such.
				failed = fmt.Errorf("%s: %w", s.pkg, err)
				fmt.Fprintln(os.Stderr, failed)
			}
		}
		fmt.Fprintf(&all, "note: load average %s before, %s after\n", before, load())
		text = all.Bytes()
	}
	if out != "" {
		if err := os.WriteFile(out, text, 0o600); err != nil {
			return err
		}
	}
	for _, l := range strings.Split(string(text), "\n") {
		if n, ok := strings.CutPrefix(l, "note: "); ok {
			fmt.Println(n)
		}
	}
	fmt.Println()
	table(os.Stdout, parse(text), groups)
	return failed
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if strings.TrimSpace(l) == s {
			return true
		}
	}
	return false
}

// load is the system's load average, where it can be read.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(b)); err == nil && len(f) >= 3 {
		return strings.Join(f[:3], " ")
	}
	return "unknown"
}

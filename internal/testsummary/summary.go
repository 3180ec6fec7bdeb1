package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// event is one line of `go test -json`.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64
}

type summary struct {
	out     io.Writer
	verbose bool

	output               map[string][]string // package+test → its output, until it passed
	skips                []skip
	failures             []failure
	packages             []string // result lines
	passed, failed       int
	packagesFailed, seen int
}

type skip struct{ name, reason string }

// failure is a test that failed and what it printed.
type failure struct {
	name   string
	output []string
}

// linesOfFailure is how many lines of a failed test are repeated at the end of a
// verbose run, where whoever has only the end of a long log finds them.
const linesOfFailure = 40

func newSummary(out io.Writer, verbose bool) *summary {
	return &summary{out: out, verbose: verbose, output: map[string][]string{}}
}

func (s *summary) read(in io.Reader) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				s.add(e)
			} else {
				s.printf("%s", line) // a build error of an old toolchain, a stray print
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read test events: %w", err)
		}
	}
}

func (s *summary) add(e event) {
	s.seen++
	key := e.Package + "\x00" + e.Test
	switch e.Action {
	case "build-output":
		s.printf("%s", e.Output)
	case "output":
		if s.verbose {
			s.printf("%s", e.Output)
		}
		s.output[key] = append(s.output[key], e.Output)
	case "pass":
		s.end(e, key, "ok  ")
	case "fail":
		s.end(e, key, "FAIL")
	case "skip":
		s.end(e, key, "?   ")
	}
}

func (s *summary) end(e event, key, word string) {
	output := s.output[key]
	delete(s.output, key)
	if e.Test == "" {
		line := fmt.Sprintf("%s\t%s\t%.3fs", word, e.Package, e.Elapsed)
		switch word {
		case "?   ":
			line = fmt.Sprintf("%s\t%s\t[no test files]", word, e.Package)
		case "FAIL":
			s.packagesFailed++
			if !s.verbose {
				s.printf("%s", strings.Join(output, ""))
			}
		}
		s.packages = append(s.packages, line)
		if !s.verbose && !strings.Contains(strings.Join(output, ""), "FAIL\t"+e.Package) {
			s.printf("%s\n", line)
		}
		return
	}
	switch word {
	case "ok  ":
		s.passed++
	case "FAIL":
		s.failed++
		s.failures = append(s.failures, failure{name: e.Package + " " + e.Test, output: output})
		if !s.verbose {
			s.printf("%s", strings.Join(output, ""))
		}
	default:
		s.skips = append(s.skips, skip{name: e.Package + " " + e.Test, reason: reason(output)})
	}
}

// reason is a skipped test's message: its output without go test's own lines.
func reason(output []string) string {
	var kept []string
	for _, o := range output {
		t := strings.TrimSpace(o)
		if t == "" || strings.HasPrefix(t, "=== ") || strings.HasPrefix(t, "--- ") {
			continue
		}
		kept = append(kept, t)
	}
	return strings.Join(kept, " ")
}

// finish prints the totals and reports whether the run counts as passed.
func (s *summary) finish(failOnSkip bool) bool {
	if len(s.skips) > 0 {
		s.printf("\n!!! NOT TESTED HERE: %d skipped\n", len(s.skips))
		for _, k := range s.skips {
			s.printf("!!!   %s: %s\n", k.name, k.reason)
		}
	}
	if s.verbose {
		s.printf("\n")
		for _, p := range s.packages {
			s.printf("%s\n", p)
		}
	}
	for _, f := range s.failures {
		s.printf("\nFAILED: %s\n", f.name)
		if !s.verbose {
			continue
		}
		lines := f.output
		if left := len(lines) - linesOfFailure; left > 0 {
			s.printf("(%d lines before these)\n", left)
			lines = lines[left:]
		}
		s.printf("%s", strings.Join(lines, ""))
	}
	ok := s.failed == 0 && s.packagesFailed == 0
	switch {
	case len(s.packages) == 0:
		s.printf("no package was tested\n")
		ok = false
	case len(s.skips) > 0 && failOnSkip:
		s.printf("skipped tests are not allowed in this run\n")
		ok = false
	}
	word := "PASS"
	if !ok {
		word = "FAIL"
	}
	s.printf("%s: %d passed, %d failed, %d skipped, %d packages (%s)\n", word, s.passed, s.failed, len(s.skips),
		len(s.packages), time.Now().Format(time.TimeOnly))
	return ok
}

func (s *summary) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format, args...)
}

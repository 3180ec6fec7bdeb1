// Command testsummary reads `go test -json` on stdin and prints what failed in
// full, one line per package, and, loudly, what was skipped. It exists because
// plain `go test` hides skips, and a skipped test must never look like a passed
// one.
package main

import (
	"flag"
	"os"
)

func main() {
	verbose := flag.Bool("verbose", false, "print every test's output, as go test -v does")
	failOnSkip := flag.Bool("fail-on-skip", false, "exit 1 when a test was skipped")
	flag.Parse()
	s := newSummary(os.Stdout, *verbose)
	if err := s.read(os.Stdin); err != nil {
		_, _ = os.Stderr.WriteString("testsummary: " + err.Error() + "\n")
		os.Exit(2)
	}
	if !s.finish(*failOnSkip) {
		os.Exit(1)
	}
}

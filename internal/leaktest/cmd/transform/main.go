// Command transform prints the environment variables that its arguments name,
// each in every form that a redactor claims to know. It is the careless workload
// of leak tests: it encodes its secrets and prints them.
package main

import (
	"bufio"
	"fmt"
	"os"

	"github.com/sbxhost/sbxhost/internal/leaktest"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "-link" {
		if err := os.Symlink("/"+os.Getenv(os.Args[2]), os.Args[3]); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "transform: the link cannot be made")
			os.Exit(1)
		}
		return
	}
	out := bufio.NewWriter(os.Stdout)
	defer func() { _ = out.Flush() }()
	for _, name := range os.Args[1:] {
		for _, f := range leaktest.Forms(os.Getenv(name)) {
			if f.Bytes {
				continue
			}
			_, _ = fmt.Fprintf(out, "%s %s: [ %s ]\n", name, f.Kind, f.Text)
		}
	}
}

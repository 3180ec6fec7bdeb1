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

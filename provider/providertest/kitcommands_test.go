package providertest_test

import (
	"context"
	"io"
	"strconv"
	"time"

	"github.com/sbxhost/sbxhost/provider/fake"
)

// kitCommands are probes in the exact form the kit asks for.
func kitCommands() map[string]fake.Command {
	return map[string]fake.Command{
		"kit-print": func(_ context.Context, p *fake.Proc) int {
			_, _ = io.WriteString(p.Stdout(), p.Args[1])
			_, _ = io.WriteString(p.Stderr(), p.Args[2])
			return 0
		},
		"kit-env": func(_ context.Context, p *fake.Proc) int {
			v, ok := p.Getenv(p.Args[1])
			if !ok {
				return 3
			}
			_, _ = io.WriteString(p.Stdout(), v)
			return 0
		},
		"kit-print-sleep": func(_ context.Context, p *fake.Proc) int {
			_, _ = io.WriteString(p.Stdout(), p.Args[1])
			s, err := strconv.ParseFloat(p.Args[2], 64)
			if err != nil {
				return 2
			}
			p.Sleep(time.Duration(s * float64(time.Second)))
			return 0
		},
		// The child first: who reads "started" may count on it.
		"kit-start": func(_ context.Context, p *fake.Proc) int {
			verb, args := p.Args[1], p.Args[2:]
			o := fake.SpawnOptions{HoldOutput: true}
			if args[0] == "-setsid" {
				o.NewSession, args = true, args[1:]
			}
			wait, err := p.Spawn(args, o)
			if err != nil {
				return 126
			}
			_, _ = io.WriteString(p.Stdout(), "started\n")
			if verb == "background" {
				return 0
			}
			return wait()
		},
	}
}

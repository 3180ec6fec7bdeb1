// Command daytona-fake serves the fake Daytona for use by hand and by clients in
// other languages. It prints the two variables that the official clients read,
// and serves until it is interrupted.
//
//	daytona-fake [-listen 127.0.0.1:0] [-key KEY] [-release 0.190|0.218] [-measured] [-fault KIND[:TIMES]]… [-v]
//	daytona-fake -faults
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "daytona-fake:", err)
		os.Exit(1)
	}
}

// faultFlags collects -fault.
type faultFlags []daytonatest.Fault

func (f *faultFlags) String() string { return "" }

func (f *faultFlags) Set(text string) error {
	kind, times, counted := strings.Cut(text, ":")
	fault := daytonatest.Fault{Kind: daytonatest.Kind(kind)}
	if counted {
		n, err := strconv.Atoi(times)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no number of times", times)
		}
		fault.Times = n
	}
	for _, k := range daytonatest.Kinds() {
		if k.Kind == fault.Kind {
			*f = append(*f, fault)
			return nil
		}
	}
	return fmt.Errorf("there is no fault %q; -faults lists them", kind)
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("daytona-fake", flag.ContinueOnError)
	var opts daytonatest.Options
	var faults faultFlags
	release := ""
	flags.StringVar(&opts.Address, "listen", "127.0.0.1:0", "address to listen on; who reaches it can run commands here")
	flags.StringVar(&opts.Key, "key", "", "the valid API key (default random)")
	flags.StringVar(&release, "release", string(daytonatest.ReleaseMeasured), "surface: 0.190 as measured, or 0.218 as specified")
	flags.StringVar(&opts.User, "user", "", "default user of sandboxes (default root)")
	flags.BoolVar(&opts.HostPreviews, "host-previews", false, "preview URLs of the form PORT-TOKEN.preview.localhost")
	measured := flags.Bool("measured", false, "take as long as the real service was measured to take")
	verbose := flags.Bool("v", false, "print a line per request")
	list := flags.Bool("faults", false, "list the fault modes and stop")
	flags.Var(&faults, "fault", "inject a fault, KIND or KIND:TIMES; may be repeated")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *list {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, k := range daytonatest.Kinds() {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", k.Kind, k.Does)
		}
		return w.Flush()
	}
	opts.Release = daytonatest.Release(release)
	if *measured {
		opts.Timing = daytonatest.Measured()
	}
	if *verbose {
		opts.Logf = log.Printf
	}
	s, err := daytonatest.Start(opts)
	if err != nil {
		return err
	}
	for _, f := range faults {
		s.Inject(f)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	_, err = fmt.Fprintf(out, "export DAYTONA_API_URL=%s\nexport DAYTONA_API_KEY=%s\n", s.URL(), s.Key())
	if err == nil {
		<-stop
	}
	return errors.Join(err, s.Close())
}

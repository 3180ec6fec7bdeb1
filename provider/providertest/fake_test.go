package providertest_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
	"github.com/sbxhost/sbxhost/provider/providertest"
	"github.com/sbxhost/sbxhost/secret"
)

// fakeCommands are the kit's probes as built-in commands of the fake. What they
// lack is registered by newFake.
func fakeCommands() providertest.Commands {
	args := func(a ...string) providertest.Command { return providertest.Command{Args: a} }
	secs := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
	child := func(verb string, d time.Duration, m string, session bool) providertest.Command {
		c := args("kit-start", verb)
		if session {
			c.Args = append(c.Args, "-setsid")
		}
		c.Args = append(c.Args, "sleep", secs(d), m)
		return c
	}
	return providertest.Commands{
		Exit:      func(code int) providertest.Command { return args("exit", strconv.Itoa(code)) },
		Print:     func(o, e string) providertest.Command { return args("kit-print", o, e) },
		PrintArgs: func(a ...string) providertest.Command { return args(append([]string{"args"}, a...)...) },
		PrintEnv:  func(name string) providertest.Command { return args("kit-env", name) },
		Environ:   func() providertest.Command { return args("env", "-0") },
		Cat:       func() providertest.Command { return args("cat") },
		Dir:       func() providertest.Command { return args("pwd") },
		User:      func() providertest.Command { return args("whoami") },
		ReadFile:  func(name string) providertest.Command { return args("cat", name) },
		Append:    func(file, line string) providertest.Command { return args("append", file, line) },
		Symlink:   func(target, name string) providertest.Command { return args("ln", "-s", target, name) },
		PrintSleep: func(text string, d time.Duration, m string) providertest.Command {
			return args("kit-print-sleep", text, secs(d), m)
		},
		IgnoreTerm: func(d time.Duration, m string) providertest.Command {
			return args("ignore", "TERM", "kit-print-sleep", "ready\n", secs(d), m)
		},
		Background: func(d time.Duration, m string, session bool) providertest.Command {
			return child("background", d, m, session)
		},
		Foreground: func(d time.Duration, m string, session bool) providertest.Command {
			return child("foreground", d, m, session)
		},
		Raise:     func(s string) providertest.Command { return args("raise", s) },
		Spam:      func(n int64) providertest.Command { return args("spam", strconv.FormatInt(n, 10)) },
		TTYSize:   func() providertest.Command { return args("tty") },
		TTYResize: func() providertest.Command { return args("winch") },
	}
}

// fakeOptions completes o with the probes that the fake has no command for.
func fakeOptions(o fake.Options) fake.Options {
	o.Commands = kitCommands()
	return o
}

// fakeHarness is the harness of a fake, wrapped or not.
func fakeHarness(f *fake.Provider, p provider.Provider) providertest.Harness {
	return providertest.Harness{
		New:      func(providertest.TB) provider.Provider { return p },
		Commands: fakeCommands(),
		Survivors: func(_ providertest.TB, sb provider.Sandbox, marker string) int {
			n := 0
			for _, r := range f.Running(sb.Ref()) {
				if slices.ContainsFunc(r.Args, func(a string) bool { return strings.Contains(a, marker) }) {
					n++
				}
			}
			return n
		},
		Records: func(tb providertest.TB, sb provider.Sandbox, needle []byte) []string {
			r, ok := f.Record(sb.Ref())
			if !ok {
				tb.Fatalf("the fake has no record of the sandbox")
			}
			return r.Find(secret.New(needle))
		},
		Break: func(tb providertest.TB, sb provider.Sandbox, _ provider.Process) {
			if f.BreakStreams(sb.Ref()) == 0 {
				tb.Fatalf("nothing runs")
			}
		},
		Timeout:     300 * time.Millisecond,
		Slack:       20 * time.Second, // the machine is busy
		CallTimeout: 30 * time.Second,
	}
}

// Not parallel: the volume check watches the heap.
func TestFake(t *testing.T) {
	f := fake.New(fakeOptions(fake.Options{}))
	providertest.Run(t, fakeHarness(f, f))
}

// Weaker fakes still keep the contract they declare.
func TestFakeWeak(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		opts    fake.Options
		harness func(*providertest.Harness)
		refused []string // checks of refusals that must have run
	}{
		{name: "no input", opts: fake.Options{Describe: func(d *provider.Description) {
			d.Exec.Stdin, d.Exec.TTY = provider.StdinNone, false
		}}, refused: []string{"stdin/undeclared", "tty/undeclared"}},
		{name: "input upfront", opts: fake.Options{Describe: func(d *provider.Description) {
			d.Exec.Stdin, d.Exec.TTY = provider.StdinUpfront, false
		}}, refused: []string{"stdin/undeclared", "stdin/upfront"}},
		{name: "merged, not streaming, no partial output", opts: fake.Options{Describe: func(d *provider.Description) {
			d.Exec.Stderr, d.Exec.Stream, d.Exec.PartialOnTimeout = provider.StderrMerged, false, false
		}}},
		{name: "kills the group", opts: fake.Options{Describe: func(d *provider.Description) { d.Exec.Kill = provider.KillGroup }}},
		{name: "kills the process", opts: fake.Options{Describe: func(d *provider.Description) { d.Exec.Kill = provider.KillProcess }}},
		{name: "kills nothing, keeps no background", opts: fake.Options{Describe: func(d *provider.Description) {
			d.Exec.Kill, d.Exec.BackgroundSafe = provider.KillNone, false
		}}, refused: []string{"kill/undeclared"}},
		{name: "create transport only", opts: fake.Options{Describe: func(d *provider.Description) {
			d.Transports = d.Transports[1:]
		}}, refused: []string{"env/undeclared", "env/create-exact"}},
		{name: "no transport, no request secrets", opts: fake.Options{NoSecrets: true, Describe: func(d *provider.Description) {
			d.Transports = nil
		}}, harness: func(h *providertest.Harness) { h.NoRequestSecrets = true }, refused: []string{"env/undeclared", "secrets/refused", "create/unsupported"}},
		{name: "cannot list", opts: fake.Options{NoList: true},
			harness: func(h *providertest.Harness) { h.CannotList = true }, refused: []string{"list/cannot"}},
		{name: "no features, no optional interfaces", opts: fake.Options{NoPorts: true, NoPauser: true, NoArchiver: true, NoLogs: true,
			Describe: func(d *provider.Description) {
				d.Features = provider.Features{NetworkNone: provider.SupportEnforced}
			}}, refused: []string{"create/unsupported"}},
	}
	reports := make([]chan providertest.Report, len(tests))
	for i, tt := range tests {
		reports[i] = make(chan providertest.Report, 1)
		go func() {
			f := fake.New(fakeOptions(tt.opts))
			h := fakeHarness(f, f)
			h.Volume = 4 << 20
			if tt.harness != nil {
				tt.harness(&h)
			}
			reports[i] <- providertest.Check(h)
		}()
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := <-reports[i]
			require.Empty(t, r.With(providertest.Failed), r.String())
			require.Subset(t, r.With(providertest.Passed), tt.refused)
			require.Greater(t, len(r.With(providertest.Passed)), 40)
		})
	}
}

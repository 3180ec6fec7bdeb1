package providertest

import (
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// TB is what a harness's functions get: the part of testing.TB that makes sense
// outside a test too. Fatalf and FailNow end the check.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	FailNow()
	Cleanup(func())
}

// Harness tells the kit about one provider. New and Commands are required.
type Harness struct {
	// New returns the provider under test. It is called once per Run; release
	// what it needs with tb.Cleanup.
	New func(tb TB) provider.Provider

	// Request adapts a create request to the provider, for example by setting
	// the image. It may be nil. It must leave session id, name, digest, labels,
	// environment and protected values alone.
	Request func(req *provider.CreateRequest)

	// Commands are the programs that the kit runs in the sandbox.
	// ShellCommands gives them for anything that has a POSIX shell.
	Commands Commands

	// RealShell says that ExecRequest.Shell is run by a real POSIX shell with
	// the usual tools beside it, and turns the matrix checks on.
	RealShell bool

	// Shells in the sandbox for the matrix; none means that it cannot be
	// proved.
	Shells []Shell

	// Survivors counts the live processes of a sandbox whose command line
	// contains marker. CountHostProcesses does it for sandboxes whose processes
	// this machine's /proc shows. nil: the death of a tree cannot be proved.
	Survivors func(tb TB, sb provider.Sandbox, marker string) int

	// Records searches everything the provider or its vendor stores of a
	// sandbox (API objects, engine files, process arguments …) for needle and
	// returns the places that contain it. nil: cannot be proved.
	Records func(tb TB, sb provider.Sandbox, needle []byte) []string

	// HostArgv says that the commands run as processes of this machine, so that
	// the kit can look for values in everybody's /proc/PID/cmdline.
	HostArgv bool

	// Break cuts the connection to a running command without ending it, as a
	// network fault would. nil: cannot be proved.
	Break func(tb TB, sb provider.Sandbox, p provider.Process)

	// CannotList says that the provider has no way to list; List must then fail.
	CannotList bool

	// NoRequestSecrets says that the provider cannot deliver request-scoped
	// secrets; Exec must then refuse them with Unsupported.
	NoRequestSecrets bool

	// Skip names checks that this environment, not the provider, makes
	// impossible, each with the reason. They are printed.
	Skip map[string]string

	// Only limits the run to the checks whose names start with one of these; the
	// others are reported as skipped. Empty: all.
	Only []string

	// Settle releases what may stay for good reason, such as idle connections,
	// before goroutines are counted. It may be nil.
	Settle func()

	// IgnoreGoroutines are parts of stack traces that may stay.
	IgnoreGoroutines []string

	// Timeout is the deadline that timeout checks give a command; default 1 s.
	Timeout time.Duration

	// Slack is how much later than its deadline, or than a kill, a command may end;
	// default 3 s. It allows for a busy machine, not for a provider that gives
	// up later.
	Slack time.Duration

	// CallTimeout bounds each call of the provider; default 60 s.
	CallTimeout time.Duration

	// Volume is how many bytes the volume check writes; default 200 MB.
	Volume int64
}

// Shell is one shell of the sandbox: Args followed by "-c", a script and $0 runs
// the script.
type Shell struct {
	Name string
	Args []string
}

// Command is what to run: one of both.
type Command struct {
	Args  []string
	Shell string
}

// Commands are the probes of the kit. Exit and Print are required; a nil one
// means that what it proves cannot be proved. "Exactly" means byte for byte, and
// nothing else on the streams.
//
// A marker is a word that must stay in the command line of the process that
// sleeps, and of its children, as long as they live: survivors are counted by
// it.
type Commands struct {
	// Exit ends with this exit code.
	Exit func(code int) Command
	// Print writes exactly these texts to stdout and stderr, in that order.
	Print func(stdout, stderr string) Command
	// PrintArgs writes exactly its arguments, each followed by a NUL. They
	// travel as arguments, unquoted.
	PrintArgs func(args ...string) Command
	// PrintEnv writes exactly the value of the variable; exit code 3 when it is
	// not set.
	PrintEnv func(name string) Command
	// Environ writes the whole environment as NAME=VALUE, each followed by a NUL.
	Environ func() Command
	// Cat copies input to output as it comes, until the input ends.
	Cat func() Command
	// Dir prints the working directory and a newline.
	Dir func() Command
	// User prints the user's name or id and a newline.
	User func() Command
	// ReadFile writes exactly the file; a relative name starts at the working
	// directory.
	ReadFile func(name string) Command
	// Append adds a line to a file.
	Append func(file, line string) Command
	// Symlink makes a symbolic link.
	Symlink func(target, name string) Command
	// PrintSleep writes exactly text, at once, and then sleeps.
	PrintSleep func(text string, d time.Duration, marker string) Command
	// IgnoreTerm writes "ready\n" when it ignores TERM, and sleeps on.
	IgnoreTerm func(d time.Duration, marker string) Command
	// Background starts a child that holds the output streams and sleeps, and
	// ends at once with "started\n" and exit code 0. With session the child
	// leaves the command's session (setsid).
	Background func(d time.Duration, marker string, session bool) Command
	// Foreground starts a child as in Background, writes "started\n" and waits
	// for it.
	Foreground func(d time.Duration, marker string, session bool) Command
	// Raise sends itself a signal, by its name without SIG.
	Raise func(signal string) Command
	// Spam writes n bytes of anything to stdout.
	Spam func(n int64) Command
	// TTYSize prints "COLSxROWS" and a newline, or ends with exit code 1
	// without a terminal.
	TTYSize func() Command
	// TTYResize prints the size as TTYSize does, and again when it has changed.
	TTYResize func() Command
	// Script runs a POSIX shell script. Only with RealShell.
	Script func(script string) Command
}

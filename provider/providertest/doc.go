// Package providertest tests a provider against the contract in package
// provider. Every built-in provider and every plugin passes it; so should
// yours.
//
// # How to use it
//
// Describe your provider to the kit in a [Harness] and call [Run] in a test:
//
//	func TestProvider(t *testing.T) {
//		providertest.Run(t, providertest.Harness{
//			New:       func(tb providertest.TB) provider.Provider { return mine.New(…) },
//			Commands:  providertest.ShellCommands("/bin/sh"),
//			RealShell: true,
//			Shells:    []providertest.Shell{{Name: "sh", Args: []string{"/bin/sh"}}},
//		})
//	}
//
// New and Commands are all it needs. Each further field lets the kit prove more;
// what it could not prove, and what your Describe does not declare, is printed at
// the end. Nothing is passed over in silence.
//
// # What it tests
//
// Exactly what Describe declares. A capability you declare is exercised; one you
// do not declare must be refused with Unsupported before anything happens. Each
// check has a name that stays the same, such as "destroy/absent", and is a
// subtest: go test -run 'TestProvider/destroy/absent'. [Checks] lists them. A
// failure says what was done, what was expected and which rule asks for it.
//
//	describe     the description is sound and always the same
//	lifecycle    create, open, status, ref
//	create       idempotence, refusals, cancellation
//	list         by owner, by session, in any state
//	destroy      verified, absent is success, twice, while in use
//	exec         exit codes, output, arguments, directory, environment, errors
//	stdin        none, upfront, live
//	timeout      deadline, tree, partial output
//	kill         confirmation, tree, TERM ignored, idempotence; signals
//	background   children that outlive their command
//	tty          terminal, size, resize
//	env          proof that protected values arrive exactly, and nowhere else
//	secrets      request-scoped values
//	files        contents, modes, escapes out of the root
//	cancel       contexts that end
//	volume       much output, little memory
//	port, pause, archive, logs   where the sandbox implements them
//	matrix       shells × shapes of script, with RealShell
//	goroutines   none left behind
//
// # Rules of the house
//
// Run does not run checks in parallel, and goroutines are told apart by pprof
// labels, so other tests may run beside it. A check that hangs is ended by name:
// a provider that ignores its context cannot hang the suite. The kit's secret
// values are random canaries; no failure message is built from one.
package providertest

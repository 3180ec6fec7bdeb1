package providertest_test

import (
	"fmt"
	"testing"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
	"github.com/sbxhost/sbxhost/provider/providertest"
)

// This is the whole test of a provider with a POSIX shell whose processes the
// machine's /proc shows.
func ExampleRun() {
	newProvider := func() provider.Provider { return fake.New(fake.Options{}) } // yours here

	// In your package this is a function of its own: func TestProvider(t *testing.T).
	_ = func(t *testing.T) {
		providertest.Run(t, providertest.Harness{
			New:       func(providertest.TB) provider.Provider { return newProvider() },
			Request:   func(req *provider.CreateRequest) { req.Image = "busybox" },
			Commands:  providertest.ShellCommands("/bin/sh"),
			RealShell: true,
			Shells:    []providertest.Shell{{Name: "sh", Args: []string{"/bin/sh"}}},
			Survivors: providertest.CountHostProcesses,
			HostArgv:  true,
		})
	}
}

// Outside a test the report is a value.
func ExampleCheck() {
	f := fake.New(fakeOptions(fake.Options{}))
	h := fakeHarness(f, f)
	h.Only = []string{"destroy/", "exec/shell"}
	r := providertest.Check(h)
	fmt.Println("passed:", r.With(providertest.Passed))
	fmt.Println("failed:", r.With(providertest.Failed))
	fmt.Println("not proved:", r.With(providertest.Unproven))
	// Output:
	// passed: [destroy/verified destroy/twice destroy/absent destroy/concurrent destroy/others destroy/in-use]
	// failed: []
	// not proved: [exec/shell]
}

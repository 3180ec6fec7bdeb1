package examples_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin/plugintest"
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
	e2bfake "github.com/sbxhost/sbxhost/plugins/examples/e2b/fake"
	flyfake "github.com/sbxhost/sbxhost/plugins/examples/flymachines/fake"
	runloopfake "github.com/sbxhost/sbxhost/plugins/examples/runloop/fake"
)

// TestKit runs the whole conformance kit on each example, as its "make test" does.
// Nothing may fail, and what is not proved is exactly what is known not to be.
func TestKit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs whole conformance kits")
	}
	// Checks that no provider can pass here: they need a break in the connection, or
	// another machine's file system.
	always := []string{"provider/exec/lost", "provider/files/escape-link"}
	for name, tc := range map[string]struct {
		build    func() ([]byte, error)
		register func(*fakevendor.Vendor, string) fakevendor.Hello
		commands string
		unproven []string
	}{
		"e2b": {build: e2bModule, register: e2bfake.Register, unproven: []string{
			"provider/files/mode", "provider/files/atomic", "provider/exec/not-found", "provider/exec/not-executable", "provider/env/errors",
			"provider/env/records", "provider/secrets/records", // the fake cannot be searched
		}},
		"flymachines": {build: flyModule, register: flyfake.Register, unproven: []string{
			"provider/exec/dir-missing", "provider/exec/not-found",
			"provider/env/argv", "provider/destroy/in-use", "provider/kill/undeclared", // nothing can be done while a command runs
		}},
		"runloop": {build: runloopModule, register: runloopfake.Register, unproven: []string{
			"provider/exec/dir-missing", "provider/exec/not-found", "provider/exec/not-executable", "provider/signal/own", "provider/signal/term", "provider/files/atomic",
		}},
		"memory": {build: memoryModule, commands: "memory/commands.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			toolchain(t, needs[name]...)
			f := newRig(t, tc.build, tc.register)
			o := plugintest.Options{Module: f.module, Runtime: runtime}
			if tc.register != nil {
				o.Fake = &f.hello
			}
			if tc.commands != "" {
				doc, err := os.ReadFile(tc.commands)
				require.NoError(t, err)
				o.Words, err = plugintest.ParseWords(doc)
				require.NoError(t, err)
			}
			r, err := plugintest.Run(t.Context(), o)
			require.NoError(t, err)
			var b strings.Builder
			require.NoError(t, r.WriteText(&b, true))
			t.Log(b.String())
			for _, c := range r.With(plugintest.Failed) {
				t.Errorf("%s: %s", c.Name, strings.Join(c.Reasons, "\n"))
			}
			var unproven []string
			for _, c := range r.With(plugintest.NotProved) {
				if tc.commands == "" {
					unproven = append(unproven, c.Name)
					continue
				}
				assert.Contains(t, c.Reasons[0], "the harness does not give", c.Name) // a word it does not know
			}
			if tc.commands == "" {
				assert.ElementsMatch(t, slices.Concat(tc.unproven, always), unproven)
			}
		})
	}
}

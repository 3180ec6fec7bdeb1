// Command flymachines-fake serves a stand-in for the Machines API until its input
// ends.
package main

import (
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
	"github.com/sbxhost/sbxhost/plugins/examples/flymachines/fake"
)

func main() { fakevendor.Main(fake.Register) }

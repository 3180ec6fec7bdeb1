// Command e2b-fake serves a stand-in for E2B's API until its input ends.
package main

import (
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
	"github.com/sbxhost/sbxhost/plugins/examples/e2b/fake"
)

func main() { fakevendor.Main(fake.Register) }

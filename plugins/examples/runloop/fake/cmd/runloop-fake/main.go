// Command runloop-fake serves a stand-in for Runloop's API until its input ends.
package main

import (
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
	"github.com/sbxhost/sbxhost/plugins/examples/runloop/fake"
)

func main() { fakevendor.Main(fake.Register) }

package main

import (
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

// daytona FILE starts a fake Daytona service, writes a configuration for it, and
// sets DAYTONA_API_KEY; daytona without a file checks that no sandbox is left on
// it, nor any of the given texts in what it stored.
func scriptDaytona(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: daytona start FILE | daytona clean [TEXT…]")
	}
	switch {
	case len(args) == 2 && args[0] == "start":
		srv, err := daytonatest.Start(daytonatest.Options{})
		ts.Check(err)
		ts.Defer(func() { _ = srv.Close() })
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte("daytona:\n  apiUrl: "+srv.URL()+"\n"), 0o600))
		ts.Setenv("DAYTONA_API_KEY", srv.Key())
		daytonaServers[ts.Name()] = srv
	case len(args) >= 1 && args[0] == "clean":
		srv := daytonaServers[ts.Name()]
		if srv == nil {
			ts.Fatalf("no service was started")
		}
		for _, sb := range srv.Sandboxes() {
			if !sb.Destroyed {
				ts.Fatalf("the sandbox %s is left, in state %s", sb.Name, sb.State)
			}
		}
		if len(srv.Sandboxes()) == 0 {
			ts.Fatalf("no sandbox was ever made")
		}
		for _, text := range args[1:] {
			if where := srv.Find([]byte(text)); len(where) > 0 {
				ts.Fatalf("the service stored a text that it must not: %v", where)
			}
		}
	default:
		ts.Fatalf("usage: daytona start FILE | daytona clean [TEXT…]")
	}
}

// daytonaServers are the running services by the script that started them; only
// one script does.
var daytonaServers = map[string]*daytonatest.Server{}

package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sbxhost": func() { os.Exit(mainCode()) }})
}

// Every file in testdata/script is a session at the keyboard.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("XDG_CONFIG_HOME", "")
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "home", "state"))
			env.Setenv("SBXHOST_CONFIG", "")
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "home", "cache"))
			env.Setenv("GOCACHE", goCache())
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":    scriptCode,
			"empty":   scriptEmpty,
			"json":    scriptJSON,
			"e2b":     scriptE2B,
			"fake":    scriptFake,
			"replace": scriptReplace,
			"daytona": scriptDaytona,
		},
	})
}

// code N COMMAND… runs a command that must exit with exactly N.
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND [ARG…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d; stderr:\n%s", got, want, ts.ReadFile("stderr"))
	}
}

// empty DIR checks that no sandbox's folder is in a state folder, which may be
// absent.
func scriptEmpty(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] empty DIR")
	}
	names, err := os.ReadDir(ts.MkAbs(args[0]))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		ts.Fatalf("%v", err)
	}
	found := ""
	for _, n := range names {
		if n.IsDir() {
			found = n.Name()
		}
	}
	switch {
	case !neg && found != "":
		ts.Fatalf("%s is there", found)
	case neg && found == "":
		ts.Fatalf("nothing is there")
	}
}

// json FILE checks that a file (or stdout) is one JSON document.
func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: json FILE")
	}
	if text := ts.ReadFile(args[0]); !json.Valid([]byte(text)) {
		ts.Fatalf("%s is not one JSON document:\n%s", args[0], text)
	}
}

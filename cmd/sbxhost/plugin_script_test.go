package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
)

// example is the E2B example: its module as the compiler makes it, its manifest
// and its fake, built once.
type example struct{ module, manifest, fake []byte }

var buildExample = sync.OnceValues(func() (example, error) {
	const dir = "../../plugins/examples/e2b"
	tmp, err := os.MkdirTemp("", "e2b-")
	if err != nil {
		return example{}, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	build := func(pkg string, env []string, args ...string) ([]byte, error) {
		out := filepath.Join(tmp, "out")
		cmd := exec.Command("go", append(append([]string{"build", "-trimpath", "-o", out}, args...), pkg)...)
		cmd.Env = append(os.Environ(), env...)
		if msg, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", pkg, err, msg)
		}
		return os.ReadFile(out)
	}
	var e example
	if e.module, err = build(dir, []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"}, "-buildmode=c-shared", "-ldflags=-s -w"); err != nil {
		return example{}, err
	}
	if e.fake, err = build(dir+"/fake/cmd/e2b-fake", []string{"CGO_ENABLED=0"}); err != nil {
		return example{}, err
	}
	e.manifest, err = os.ReadFile(dir + "/manifest.json")
	return e, err
})

// e2b puts raw.wasm, manifest.json and e2b-fake into the script's folder.
func scriptE2B(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: e2b")
	}
	e, err := buildExample()
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("raw.wasm"), e.module, 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("manifest.json"), e.manifest, 0o600))
	// A process that another script starts meanwhile would have it open for writing,
	// and what is open for writing cannot be executed.
	syscall.ForkLock.RLock()
	err = os.WriteFile(ts.MkAbs("e2b-fake"), e.fake, 0o700) //nolint:gosec // a program
	syscall.ForkLock.RUnlock()
	ts.Check(err)
}

// fake CONFIG [LINE…] starts ./e2b-fake until the script ends, writes a
// configuration for the plugin e2b that uses it, with further lines in the
// plugin's section, and sets E2B_API_KEY.
func scriptFake(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: fake CONFIG [LINE…]")
	}
	cmd := exec.Command(ts.MkAbs("e2b-fake"))
	in, err := cmd.StdinPipe()
	ts.Check(err)
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = in.Close() // which ends it
		_ = cmd.Wait() // how does not matter
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	ts.Check(err)
	var hello fakevendor.Hello
	ts.Check(json.Unmarshal(line, &hello))
	var b strings.Builder
	b.WriteString("plugins:\n  e2b:\n    path: e2b.wasm\n    credentials:\n      apiKey: {type: process_env, name: E2B_API_KEY}\n    settings:\n")
	for _, k := range slices.Sorted(maps.Keys(hello.Settings)) {
		fmt.Fprintf(&b, "      %s: %q\n", k, hello.Settings[k])
	}
	b.WriteString("    origins:\n")
	for _, k := range slices.Sorted(maps.Keys(hello.Origins)) {
		fmt.Fprintf(&b, "      %s: {url: %q, allowPrivate: true}\n", k, hello.Origins[k])
	}
	for _, l := range args[1:] {
		b.WriteString("    " + l + "\n")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b.String()), 0o600))
	ts.Setenv("E2B_API_KEY", hello.Credentials["apiKey"])
	ts.Setenv("FAKE_CONTROL", hello.Control)
}

// replace OLD NEW FILE replaces text in a file.
func scriptReplace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace OLD NEW FILE")
	}
	text := ts.ReadFile(args[2])
	if !strings.Contains(text, args[0]) {
		ts.Fatalf("%s does not hold %s", args[2], args[0])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(strings.ReplaceAll(text, args[0], args[1])), 0o600))
}

// goCache is where the go command keeps what it compiled; a script's home has
// nothing.
var goCache = sync.OnceValue(func() string {
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
})

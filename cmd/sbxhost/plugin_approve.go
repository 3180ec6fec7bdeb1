package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/plugin"
)

// approval is what approve --json prints.
type approval struct {
	Name     string   `json:"name"`
	Digest   string   `json:"digest"`
	Previous string   `json:"previous,omitempty"` // digest that was approved before
	Changes  []string `json:"changes,omitempty"`  // lines of the manifest, with + or -
	Lock     string   `json:"lock"`
	Approved bool     `json:"approved"`
}

func (a *app) pluginApproveCommand() *cobra.Command {
	var lock string
	var yes bool
	cmd := &cobra.Command{
		Use:   "approve MODULE [--lock FILE] [--yes]",
		Short: "Approve exactly this file, after looking at it",
		Long: `Shows what inspect shows, and what changed since the approval before, asks, and
writes the file's digest and manifest into plugins.lock. Only approved files are
loaded. Without a terminal it needs --yes: somebody must have looked.

The lock file is --lock, else pluginsLock of the configuration, else plugins.lock
beside the configuration.`,
		Example: `  sbxhost plugin approve e2b.wasm
  sbxhost plugin inspect e2b.wasm && sbxhost plugin approve e2b.wasm --yes`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: files("wasm"),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			module, err := readModule(args[0])
			if err != nil {
				return err
			}
			in, err := plugin.Inspect(module)
			if err != nil {
				return err
			}
			path := lockPath(cfg, lock)
			l, err := plugin.ReadLock(path)
			if err != nil {
				return err
			}
			out := approval{Name: in.Name, Digest: in.Digest, Lock: path}
			known := false
			for _, p := range l.Plugins {
				if p.Name == in.Name {
					known = true
					out.Previous = p.Digest
					if out.Changes, err = manifestChanges(p.Manifest, in.Manifest); err != nil {
						return err
					}
				}
			}
			if !a.json {
				a.printf("%s\n", inspection(in))
				a.printChanges(known, out)
			}
			if known && out.Previous == in.Digest {
				out.Approved = true
				if a.json {
					return a.printJSON(out)
				}
				a.printf("%s is approved already\n", in.Name)
				return nil
			}
			if !yes {
				if err := a.confirm("approve this plugin?"); err != nil {
					return err
				}
			}
			if _, err := l.Approve(module); err != nil {
				return err
			}
			if err := l.Write(path); err != nil {
				return fmt.Errorf("write %s: %w", path, err)
			}
			out.Approved = true
			if a.json {
				return a.printJSON(out)
			}
			a.printf("approved %s in %s\n", in.Name, path)
			if _, ok := cfg.Plugins[in.Name]; !ok {
				a.printf("next, in the configuration:\n%s", configSnippet(in, args[0]))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&lock, "lock", "", "`FILE` with the approvals")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask: it was looked at")
	must(cmd.RegisterFlagCompletionFunc("lock", files("lock")))
	return cmd
}

// confirm asks at a terminal; elsewhere it refuses.
func (a *app) confirm(question string) error {
	if _, ok := terminal(a.stdin); !ok {
		return &exitError{code: exitFailed, err: errors.New("not approved: nobody can be asked here; look at what is shown and run it again with --yes")}
	}
	_, _ = fmt.Fprintf(a.stderr, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(a.stdin).ReadString('\n') // an end of input is a no
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &exitError{code: exitFailed, err: errors.New("not approved")}
}

func (a *app) printChanges(known bool, out approval) {
	switch {
	case !known:
		a.printf("it was never approved before\n\n")
	case out.Previous == out.Digest:
	case len(out.Changes) == 0:
		a.printf("approved before as %s; the manifest is the same, the code is not\n\n", out.Previous)
	default:
		a.printf("approved before as %s; what changes in the manifest:\n", out.Previous)
		for _, l := range out.Changes {
			a.printf("  %s\n", clean(l))
		}
		a.printf("\n")
	}
}

// manifestChanges compares two manifests line by line.
func manifestChanges(before, after json.RawMessage) ([]string, error) {
	lines := func(doc json.RawMessage) ([]string, error) {
		var b bytes.Buffer
		if err := json.Indent(&b, doc, "", "  "); err != nil {
			return nil, fmt.Errorf("read the manifest: %w", err)
		}
		return strings.Split(b.String(), "\n"), nil
	}
	a, err := lines(before)
	if err != nil {
		return nil, err
	}
	b, err := lines(after)
	if err != nil {
		return nil, err
	}
	return diff(a, b), nil
}

// maxDiff bounds the lines compared exactly.
const maxDiff = 4000

// diff returns the lines taken out and added, in order, by longest common
// subsequence.
func diff(a, b []string) []string {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var out []string
	if len(a) > maxDiff || len(b) > maxDiff {
		for _, l := range a {
			out = append(out, "- "+l)
		}
		for _, l := range b {
			out = append(out, "+ "+l)
		}
		return out
	}
	long := make([][]int16, len(a)+1)
	for i := range long {
		long[i] = make([]int16, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				long[i][j] = long[i+1][j+1] + 1
			} else {
				long[i][j] = max(long[i+1][j], long[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && long[i+1][j] >= long[i][j+1]:
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return out
}

// configSnippet is what the configuration needs to use a plugin.
func configSnippet(in *plugin.Inspection, path string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  plugins:\n    %s:\n      path: %s\n", in.Name, path)
	if len(in.Credentials) > 0 {
		b.WriteString("      credentials:\n")
		for _, c := range in.Credentials {
			fmt.Fprintf(&b, "        %s: {type: process_env, name: %s}\n", c, envName(in.Name+"_"+c))
		}
	}
	for i, o := range in.Origins {
		if o.Address == "set by the operator" {
			if i == 0 {
				b.WriteString("      origins:\n")
			}
			fmt.Fprintf(&b, "        %s: {url: https://…}\n", o.Name)
		}
	}
	return b.String()
}

// envName makes a variable's name of "e2b_apiKey": E2B_API_KEY.
func envName(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r >= 'A' && r <= 'Z' && i > 0:
			b.WriteRune('_')
			b.WriteRune(r)
		case r >= 'a' && r <= 'z':
			b.WriteRune(r - 'a' + 'A')
		case r >= '0' && r <= '9', r >= 'A' && r <= 'Z':
			b.WriteRune(r)
		default:
			b.WriteRune('_')
		}
	}
	return b.String()
}

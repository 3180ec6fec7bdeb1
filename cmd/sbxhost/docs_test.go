package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite docs/cli.md")

const cliDocs = "../../docs/cli.md"

// docs/cli.md is what the commands say of themselves.
func TestCommandDocs(t *testing.T) {
	t.Parallel()
	got := commandDocs((&app{getenv: func(string) string { return "" }}).root())
	if *update {
		require.NoError(t, os.WriteFile(cliDocs, []byte(got), 0o644))
	}
	want, err := os.ReadFile(cliDocs)
	require.NoError(t, err)
	if got != string(want) {
		t.Fatal("docs/cli.md is out of date; run: go test ./cmd/sbxhost -run TestCommandDocs -update")
	}
}

// Every command has an example and a description, every flag is explained.
func TestCommandsAreExplained(t *testing.T) {
	t.Parallel()
	walk((&app{getenv: func(string) string { return "" }}).root(), func(c *cobra.Command) {
		assert.NotEmpty(t, c.Short, c.CommandPath())
		if c.Runnable() && !c.HasSubCommands() {
			assert.NotEmpty(t, c.Example, c.CommandPath())
		}
	})
}

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
		return
	}
	visit(c)
	for _, sub := range c.Commands() {
		walk(sub, visit)
	}
}

func commandDocs(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Commands\n\nWhat `--help` says, in one page. This file is generated:\n`go test ./cmd/sbxhost -run TestCommandDocs -update`.\n")
	walk(root, func(c *cobra.Command) {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n```\n%s\n```\n", c.CommandPath(), c.Short, c.UseLine())
		if c.Long != "" {
			fmt.Fprintf(&b, "\n%s\n", markdown(c.Long))
		}
		if c.Example != "" {
			fmt.Fprintf(&b, "\n```sh\n%s\n```\n", unindent(c.Example))
		}
		if flags := strings.TrimRight(c.LocalNonPersistentFlags().FlagUsages(), "\n"); flags != "" {
			fmt.Fprintf(&b, "\n```\n%s\n```\n", unindent(flags))
		}
		if c == root {
			fmt.Fprintf(&b, "\nFlags of every command:\n\n```\n%s\n```\n", unindent(strings.TrimRight(c.PersistentFlags().FlagUsages(), "\n")))
		}
	})
	b.WriteString("\n## sbxhost completion\n\n`sbxhost completion bash|zsh|fish|powershell` prints a completion script; its\n`--help` says how to install it. Names of providers, transports and host variables\nare completed, values never shown.\n")
	return b.String()
}

// markdown keeps angle brackets from being read as HTML.
func markdown(s string) string {
	return strings.NewReplacer("<", "&lt;", "[redacted:NAME]", "`[redacted:NAME]`").Replace(s)
}

func unindent(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "  ")
	}
	return strings.Join(lines, "\n")
}

package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/internal/config"
)

// execute runs one invocation and returns its exit code.
func (a *app) execute(args []string) int {
	defer a.leave()
	root := a.root()
	a.args = args
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	cmd, err := root.ExecuteC()
	path := root.Name()
	if cmd != nil {
		path = cmd.CommandPath()
	}
	var x *exitError
	if err != nil && !errors.As(err, &x) && cobraUsage(err) {
		err = &exitError{code: exitFailed, err: err, usage: true}
	}
	if err != nil && !a.known && cmd != nil && (cmd.Name() == "run" || cmd.Name() == "redact") {
		a.maskTyped() // no other command reads values
	}
	if err == nil && a.unwritten != nil {
		err = fmt.Errorf("write the result: %w", a.unwritten)
		if errors.Is(err, syscall.EPIPE) {
			err = exit(exitBrokenPipe)
		}
	}
	return a.report(err, path)
}

// cobraUsage recognises cobra's own errors, which have no type.
func cobraUsage(err error) bool {
	for _, p := range []string{"unknown command", "unknown flag", "unknown shorthand", "flag needs an argument",
		"invalid argument", "required flag", "accepts ", "requires at least", "bad flag syntax"} {
		if strings.HasPrefix(err.Error(), p) {
			return true
		}
	}
	return false
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sbxhost",
		Short: "Run commands in sandboxes with granted secrets",
		Long: `sbxhost runs commands in sandboxes and gives them the secrets that this host
granted, and nothing else. Values are delivered to the command alone and are
replaced by [redacted:NAME] in everything that comes back.

The configuration is --config, else $` + config.EnvVar + `, else ./sbxhost.yaml, else
$XDG_CONFIG_HOME/sbxhost/config.yaml.

Exit codes: run returns the command's own; 124 it timed out, 125 sbxhost failed,
126 it cannot be run, 127 it was not found, 130 interrupted, 141 nobody reads the
output any more. Checks return 1 when the answer is no.`,
		Example: `  HOST_TOKEN=… sbxhost run --secret SANDBOX_TOKEN=HOST_TOKEN -- sh -c 'use "$SANDBOX_TOKEN"'
  sbxhost run -f manifest.yaml -- make test
  sbxhost grants check -f manifest.yaml
  sbxhost doctor`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDescriptions: false},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError("unknown command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := root.PersistentFlags()
	f.StringVar(&a.configFlag, "config", "", "configuration `FILE`")
	f.StringVar(&a.logLevel, "log-level", "", "diagnostics on stderr: debug, info, warn or error (default: the configuration's, else error)")
	f.StringVar(&a.logFormat, "log-format", "", "text or json (default: the configuration's, else text)")
	f.BoolVar(&a.json, "json", false, "print results and errors as JSON")
	must(root.RegisterFlagCompletionFunc("log-level", fixed(config.LogLevels...)))
	must(root.RegisterFlagCompletionFunc("log-format", fixed(config.LogFormats...)))
	root.AddCommand(a.runCommand(), a.grantsCommand(), a.redactCommand(), a.pluginCommand(), a.reconcileCommand(), a.doctorCommand(), a.versionCommand())
	// cobra adds it on execution and lets any shell's name pass, with its help.
	root.InitDefaultCompletionCmd("completion")
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.RunE = func(cmd *cobra.Command, args []string) error {
				if len(args) > 0 {
					return usageError("no completion for this shell; known: bash, zsh, fish, powershell")
				}
				return cmd.Help()
			}
			c.Args = cobra.ArbitraryArgs
		}
	}
	return root
}

// must is for wiring that can only fail by a programming error.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func fixed(values ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

func files(extensions ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return extensions, cobra.ShellCompDirectiveFilterFileExt
	}
}

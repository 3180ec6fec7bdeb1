package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/provider"
)

// runFlags are the flags of run.
type runFlags struct {
	manifestFlags
	provider     string
	grants       []string
	requestNames []string
	skills       []string
	transport    string
	timeout      time.Duration
	workdir      string
	files        []string
	keep         bool
	sharedTrust  bool
	unsafeLocal  bool
	interactive  bool
	tty          bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG…]",
		Short: "Run one command in a new sandbox",
		Long: `Makes a sandbox, runs the command in it with live redacted output, and removes the
sandbox. Nothing is left behind, unless --keep says so; what a run leaves that was
killed outright, the next run with that provider removes, or sbxhost reconcile.

The command's environment is the provider's short base, the manifest's literals,
-e and --env-file, and the values of the references. References come from the
manifest (-f), --env-file and --secret, and each needs a grant: from the
configuration, from --grant, or from --secret, which is a reference and its grant
in one. What is granted here counts for this run only.

--request-secret and --skill give values of sbxhost's own environment to this one
command, without a reference: only what is declared, and only what is set. A skill
declares them under required-secrets in its front matter: a list of names, or of
{name, optional}.

Standard input is empty unless -i is given. The exit code is the command's own, or
124 (timed out), 125 (sbxhost failed, or how the command ended is not known),
126 (cannot be run), 127 (not found), 130 (interrupted), 141 (nobody reads the output
any more); 128+N when signal N ended the command. The first Ctrl-C stops the command
and cleans up, the second one does not wait for that.

--json prints one document instead: status (exited, signaled, timed_out, killed or
lost), exitCode, stdout, stderr, redactions and what else is known; of a failure
error.code, error.message and how to fix it.`,
		Example: `  HOST_TOKEN=… sbxhost run --secret SANDBOX_TOKEN=HOST_TOKEN -- sh -c 'use "$SANDBOX_TOKEN"'
  sbxhost run -f manifest.yaml --timeout 5m -- make test
  sbxhost run -e LOG_LEVEL=debug --file ./src:src --workdir src -- python3 main.py
  sbxhost run -it -- sh
  sbxhost run --json -f manifest.yaml -- ./report | jq .exitCode`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(cmd.Context(), f, args)
		},
	}
	fl := cmd.Flags()
	fl.SetInterspersed(false)
	fl.StringVar(&f.provider, "provider", "", "`NAME` of the provider: local, docker, daytona or a configured plugin (default "+defaultProvider+")")
	f.manifestFlags.add(cmd)
	fl.StringArrayVar(&f.grants, "grant", nil, "grant `DEST[=SOURCE]` for this run, without making a reference (repeatable)")
	fl.StringArrayVar(&f.requestNames, "request-secret", nil, "give the value of variable `NAME` to this command only (repeatable)")
	fl.StringArrayVar(&f.skills, "skill", nil, "`SKILL.md` whose required-secrets are given to this command only (repeatable)")
	fl.StringVar(&f.transport, "transport", "", "how values are delivered: auto, exec or create (default auto)")
	fl.DurationVar(&f.timeout, "timeout", 0, "stop the command's whole process tree after this time (default: limits.execTimeout of the configuration, else 10m)")
	fl.StringVar(&f.workdir, "workdir", "", "`DIR` to run in, relative to the sandbox's root or absolute")
	fl.StringArrayVar(&f.files, "file", nil, "copy a local file or folder in: `LOCAL[:PATH]`; PATH is its own name by default (repeatable)")
	fl.BoolVar(&f.keep, "keep", false, "leave the sandbox; only with providers whose sandboxes outlive this process")
	fl.BoolVar(&f.sharedTrust, "shared-trust", false, "processes in the sandbox may see each other's request secrets")
	fl.BoolVar(&f.unsafeLocal, "unsafe-local", false, "let the local provider run without isolation: the command can do whatever you can")
	fl.BoolVarP(&f.interactive, "interactive", "i", false, "pass standard input to the command")
	fl.BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal")
	must(cmd.RegisterFlagCompletionFunc("provider", a.completeProviders))
	must(cmd.RegisterFlagCompletionFunc("transport", completeTransports))
	must(cmd.RegisterFlagCompletionFunc("grant", completeVariables))
	must(cmd.RegisterFlagCompletionFunc("request-secret", completeVariables))
	must(cmd.RegisterFlagCompletionFunc("skill", files("md")))
	return cmd
}

func (a *app) run(ctx context.Context, f runFlags, args []string) error {
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	plan, err := a.planRun(cfg, f, args)
	if err != nil {
		return err
	}
	ctx, stop := a.interruptible(ctx)
	defer stop()
	res, err := a.runPlan(ctx, cfg, plan)
	if errors.Is(context.Cause(ctx), errInterrupted) {
		a.note("interrupted")
		if a.json {
			var doc any = res
			if res == nil {
				doc = failure{failureDetail{Code: provider.Canceled, Message: "interrupted"}}
			}
			if err := a.printJSON(doc); err != nil {
				return err
			}
		}
		return exit(exitInterrupted)
	}
	if err != nil {
		return err
	}
	if a.json {
		if err := a.printJSON(res); err != nil {
			return err
		}
	}
	return exit(a.exitCode(res))
}

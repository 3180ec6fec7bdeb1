package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/host"
)

func (a *app) reconcileCommand() *cobra.Command {
	var kept bool
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Finish what killed runs left",
		Long: `Every run notes what it makes in a ledger of its own before it makes it. This
command looks at the ledgers of runs that are not alive any more and removes what
they left: sandboxes of runs that were killed, and of removals that failed. What
--keep left stays, unless its lifetime is over or --kept is given.

Only what the ledger and the labels at the provider both prove to be the run's is
removed. What cannot be reached now is reported and stays in the ledger. The exit
code is 1 when something is left to do, 130 after Ctrl-C.`,
		Example: `  sbxhost reconcile
  sbxhost reconcile --kept
  sbxhost reconcile --json | jq '.[] | select(.status == "pending")'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			ctx, stop := a.interruptible(cmd.Context())
			defer stop()
			left, err := a.finishRuns(ctx, func(h *host.Host, name, place string) error {
				p, register, err := a.openProvider(ctx, cfg, name, providerFlags{})
				if err != nil {
					return err
				}
				if err := checkPlace(name, p, place); err != nil {
					return err
				}
				return register(h)
			}, kept)
			interrupted := errors.Is(context.Cause(ctx), errInterrupted)
			if err != nil && !interrupted {
				return err
			}
			err = nil
			if a.json {
				err = a.printJSON(left)
			} else if len(left) > 0 || !interrupted { // else it is not known
				a.showRuns(left)
			}
			if err != nil {
				return err
			}
			if interrupted { // what was done until then has been said
				a.note("interrupted")
				return exit(exitInterrupted)
			}
			for _, r := range left {
				if r.Status == "pending" || r.Status == "unreadable" {
					return exit(exitFailedCheck)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&kept, "kept", false, "remove what --keep left, too")
	return cmd
}

// showRuns prints what was done, in a line per thing.
func (a *app) showRuns(left []leftRun) {
	said := false
	say := func(format string, args ...any) {
		said = true
		a.printf(format+"\n", args...)
	}
	for _, r := range left {
		for _, s := range r.Destroyed {
			say("%s: removed session %s", r.Run, s)
		}
		for _, s := range r.Kept {
			say("%s: session %s is kept", r.Run, s)
		}
		for _, s := range r.Pending {
			say("%s: session %s on %s could not be removed; it will be tried again", r.Run, s, strings.Join(r.Providers, ", "))
		}
		if r.Error != "" {
			said = true
			a.note("%s: %s", r.Run, r.Error)
			if r.Status == "pending" {
				a.note("%s: its ledger is %s", r.Run, r.Ledger)
			}
		}
		if r.Status == "running" {
			say("%s: running", r.Run)
		}
	}
	if !said {
		a.printf("nothing was left\n")
	}
}

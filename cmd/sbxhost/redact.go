package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/redact"
	"github.com/sbxhost/sbxhost/secret"
)

func (a *app) redactCommand() *cobra.Command {
	var names []string
	var strict bool
	cmd := &cobra.Command{
		Use:   "redact --secret NAME…",
		Short: "Filter stdin to stdout with secrets replaced",
		Long: `Copies stdin to stdout and puts [redacted:NAME] in place of each secret, raw and
in the encodings that tools commonly print, also when it is split over writes.

The values come from sbxhost's own environment: --secret NAME[=VARIABLE] masks the
value of VARIABLE (NAME itself by default) as [redacted:NAME]. A variable that is
not set is an error, so that nothing passes unmasked by mistake. A value that is
too short or too common to be masked is reported on stderr, and with --strict
nothing is copied then.

Redaction is a safety net against accidents: a value that was transformed on
purpose passes.`,
		Example: `  make deploy 2>&1 | sbxhost redact --secret API_KEY --secret DB_PASSWORD
  sbxhost redact --secret TOKEN=GITHUB_TOKEN <build.log >shareable.log`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			if len(names) == 0 {
				return usageError("name at least one --secret")
			}
			pairs, err := parsePairs("--secret", names)
			if err != nil {
				return err
			}
			source := grants.ProcessEnvironment()
			values := map[string]secret.Value{}
			for _, p := range pairs {
				v, ok, err := source.Lookup(cmd.Context(), p.Source)
				if err != nil {
					return err
				}
				if !ok {
					return &exitError{code: exitFailed, err: notSet(p.Source)}
				}
				values[p.Destination] = v
			}
			r := redact.New(redactOptions(cfg.Redact))
			refused := r.AddEnv(secret.NewEnv(values))
			for _, x := range refused {
				a.note("%s cannot be masked: %s", x.Name, x.Reason)
			}
			if strict && len(refused) > 0 {
				return &exitError{code: exitFailed, err: errors.New("nothing was copied, because of --strict")}
			}
			w := r.Writer(a.stdout)
			_, err = io.Copy(w, a.stdin)
			if cerr := w.Close(); err == nil {
				err = cerr
			}
			if errors.Is(err, syscall.EPIPE) {
				return exit(exitBrokenPipe)
			}
			return err
		},
	}
	cmd.Flags().StringArrayVar(&names, "secret", nil, "mask the value of variable `NAME[=VARIABLE]` (repeatable)")
	cmd.Flags().BoolVar(&strict, "strict", false, "fail before copying when a value cannot be masked")
	must(cmd.RegisterFlagCompletionFunc("secret", completeVariables))
	return cmd
}

// completeVariables offers the names, never the values, of the environment.
func completeVariables(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	head := ""
	if dest, rest, ok := strings.Cut(prefix, "="); ok {
		head, prefix = dest+"=", rest
	}
	var out []string
	for _, name := range environNames() {
		if strings.HasPrefix(name, prefix) {
			out = append(out, head+name)
		}
	}
	slices.Sort(out)
	return out, cobra.ShellCompDirectiveNoFileComp
}

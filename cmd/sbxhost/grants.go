package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/host"
)

func (a *app) grantsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "grants",
		Short: "Look into what is granted",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.grantsCheckCommand())
	return cmd
}

func (a *app) grantsCheckCommand() *cobra.Command {
	var (
		mf        manifestFlags
		name      string
		extra     []string
		transport string
		unsafe    bool
	)
	cmd := &cobra.Command{
		Use:   "check -f MANIFEST",
		Short: "Explain each reference of a manifest",
		Long: `Says for each reference where its value would come from, whether it is granted,
whether the source is set, how the value would be delivered and who else could see
it. Reads no value, starts nothing. Exit code 1 if any reference would fail.`,
		Example: `  sbxhost grants check -f manifest.yaml
  sbxhost grants check -f manifest.yaml --grant SANDBOX_TOKEN=HOST_TOKEN --json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			if mf.manifest == "" && len(mf.secrets) == 0 && len(mf.envFiles) == 0 {
				return usageError("name a manifest with -f")
			}
			t, err := parseTransport(transport)
			if err != nil {
				return err
			}
			m, secrets, err := a.readManifest(mf)
			if err != nil {
				return err
			}
			pairs, err := parsePairs("--grant", extra)
			if err != nil {
				return err
			}
			b, err := findProvider(cfg.Config, name)
			if err != nil {
				return err
			}
			h, _, err := a.newHost(cmd.Context(), cfg, b.name, providerFlags{unsafeLocal: unsafe}, nil)
			if err != nil {
				return err
			}
			defer func() {
				c, cancel := cleanupContext(cmd.Context())
				defer cancel()
				_ = h.Close(c) // nothing was made
			}()
			req := host.CheckRequest{Manifest: m, Provider: b.name, Transport: t}
			if pairs = append(pairs, secrets...); len(pairs) > 0 {
				run := withGrants(cfg.Grants(), pairs)
				req.Grants = &run
			}
			rep, err := h.CheckGrants(cmd.Context(), req)
			if err != nil {
				return err
			}
			if a.json {
				if err := a.printJSON(rep); err != nil {
					return err
				}
			} else if err := a.printGrants(rep); err != nil {
				return err
			}
			if !rep.OK {
				return exit(exitFailedCheck)
			}
			return nil
		},
	}
	mf.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&name, "provider", "", "`NAME` of the provider: local, docker, daytona or a configured plugin (default "+defaultProvider+")")
	fl.StringArrayVar(&extra, "grant", nil, "consider `DEST[=SOURCE]` granted (repeatable)")
	fl.StringVar(&transport, "transport", "", "auto, exec or create (default auto)")
	fl.BoolVar(&unsafe, "unsafe-local", false, "let the local provider run without isolation: the command can do whatever you can")
	must(cmd.RegisterFlagCompletionFunc("provider", a.completeProviders))
	must(cmd.RegisterFlagCompletionFunc("transport", completeTransports))
	must(cmd.RegisterFlagCompletionFunc("grant", completeVariables))
	return cmd
}

func (a *app) printGrants(r host.GrantReport) error {
	trust := "not trusted"
	if r.Trusted {
		trust = "trusted"
	}
	a.printf("provider   %s (%s)\n", r.Provider, trust)
	if r.Transport != "" {
		a.printf("transport  %s\n", r.Transport)
	}
	if r.Exposure != "" {
		a.printf("exposure   %s\n", r.Exposure)
	}
	if r.Reason != "" {
		a.printf("refused    %s\n", r.Reason)
	}
	if len(r.References) == 0 {
		a.printf("the manifest has no references\n")
		return nil
	}
	a.printf("\n")
	w := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "DESTINATION\tSOURCE\tGRANTED\tSET\tRESULT") // Flush reports it
	for _, ref := range r.References {
		result := "ok"
		if !ref.OK {
			result = "fails: " + ref.Reason
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", ref.Destination, ref.Source, yes(ref.Granted), ref.Set, result) // Flush reports it
	}
	return w.Flush()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

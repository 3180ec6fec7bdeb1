package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/plugin"
)

// listedPlugin is one line of plugin ls.
type listedPlugin struct {
	Name       string `json:"name"`
	Version    string `json:"version,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Approved   string `json:"approved,omitempty"` // digest
	Configured string `json:"configured,omitempty"`
	// Status: ready, not configured, not approved, changed, unreadable.
	Status string `json:"status"`
	Detail string `json:"detail,omitempty"`
}

func (a *app) pluginListCommand() *cobra.Command {
	var lock string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List approved and configured plugins",
		Long: `Lists the approved plugins and those that are configured, and whether each
configured file is the approved one. Runs nothing.`,
		Example: `  sbxhost plugin ls
  sbxhost plugin ls --json | jq '.[] | select(.status != "ready")'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			list, err := listPlugins(cfg, lockPath(cfg, lock))
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			if len(list) == 0 {
				a.printf("no plugin is approved or configured\n")
				return nil
			}
			w := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "NAME\tVERSION\tKIND\tDIGEST\tSTATUS\tFILE") // Flush reports it
			for _, p := range list {
				digest := "-"
				if p.Approved != "" {
					digest = p.Approved[:min(len("sha256:")+12, len(p.Approved))]
				}
				status := p.Status
				if p.Detail != "" {
					status += ": " + p.Detail
				}
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, dash(clean(p.Version)), dash(p.Kind), digest, status, dash(p.Configured)) // Flush reports it
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringVar(&lock, "lock", "", "`FILE` with the approvals")
	must(cmd.RegisterFlagCompletionFunc("lock", files("lock")))
	return cmd
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// listPlugins joins approvals and configuration, by name.
func listPlugins(cfg config.Loaded, path string) ([]listedPlugin, error) {
	lock, err := plugin.ReadLock(path)
	if err != nil {
		return nil, err
	}
	by := map[string]listedPlugin{}
	for _, p := range lock.Plugins {
		l := listedPlugin{Name: p.Name, Approved: p.Digest, Status: "not configured"}
		if m, err := plugin.ParseManifest(p.Manifest); err == nil { // ReadLock has parsed it
			l.Version, l.Kind = m.Version, string(m.Kind)
		}
		by[p.Name] = l
	}
	for name, c := range cfg.Plugins {
		l, approved := by[name]
		l.Name, l.Configured = name, c.Path
		module, err := readModule(c.Path)
		in := (*plugin.Inspection)(nil)
		if err == nil {
			in, err = plugin.Inspect(module)
		}
		switch {
		case err != nil:
			l.Status, l.Detail = "unreadable", clean(firstLine(err.Error()))
		case in.Name != name:
			l.Status, l.Detail = "changed", "the file holds the plugin "+clean(in.Name)
		case !approved:
			l.Status, l.Version, l.Kind = "not approved", in.Version, in.Kind
		case in.Digest != l.Approved:
			l.Status, l.Detail = "changed", "the file's digest is "+in.Digest
		default:
			l.Status = "ready"
		}
		by[name] = l
	}
	out := make([]listedPlugin, 0, len(by))
	for _, name := range slices.Sorted(maps.Keys(by)) {
		out = append(out, by[name])
	}
	return out, nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

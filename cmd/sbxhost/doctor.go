package main

import (
	"context"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/builtin/local/envpolicy"
	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/provider"
)

// status of one check.
type status string

const (
	statusOK   status = "ok"
	statusNote status = "note" // works, with something to know
	statusFail status = "fail" // something required is broken
)

// check is one line of doctor's report. It holds names, never values.
type check struct {
	Name   string   `json:"name"`
	Status status   `json:"status"`
	Detail string   `json:"detail"`
	Fix    []string `json:"fix,omitempty"`
}

// localCheckName is the check of the provider whose description is diagnosis.Local.
const localCheckName = "local provider"

// diagnosis is what doctor --json prints.
type diagnosis struct {
	Version versionInfo           `json:"version"`
	OK      bool                  `json:"ok"`
	Checks  []check               `json:"checks"`
	Local   *provider.Description `json:"local,omitempty"` // as the local provider describes itself here
}

// environment is what doctor --env prints: names of the host's variables.
type environment struct {
	Passes  []string          `json:"passes"`
	Refused map[string]string `json:"refused,omitempty"` // on the allow-list but refused, with the reason
}

func (a *app) doctorCommand() *cobra.Command {
	var env bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what works here and how to fix what does not",
		Long: `Checks this machine and the configuration: isolation (namespaces, Landlock, seccomp,
control groups, process limits), the configuration file, each grant and whether its
source is set, each configured plugin, and the providers: what separates a local
sandbox and what stays open, the Docker Engine, the Daytona service and its key.
Prints names, never values. Exit code 1 if something required is broken; an engine
that the configuration does not name, and Daytona without a key, are only noted.

--env lists the names of host variables that a local sandbox would inherit.`,
		Example: `  sbxhost doctor
  sbxhost doctor --json | jq '.checks[] | select(.status != "ok")'
  sbxhost doctor --env`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if env {
				return a.doctorEnv()
			}
			d := a.diagnose(cmd.Context())
			if a.json {
				if err := a.printJSON(d); err != nil {
					return err
				}
			} else {
				a.printDiagnosis(d)
			}
			if !d.OK {
				return exit(exitFailedCheck)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&env, "env", false, "list the names of host variables that a local sandbox would inherit")
	return cmd
}

func (a *app) doctorEnv() error {
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	// Filter returns entries with their values: only the names go on from here.
	kept, dropped := envpolicy.Filter(os.Environ(), cfg.Local.InheritEnv)
	e := environment{Passes: make([]string, 0, len(kept)), Refused: map[string]string{}}
	for _, kv := range kept {
		name, _, _ := strings.Cut(kv, "=")
		e.Passes = append(e.Passes, name)
	}
	for _, name := range dropped {
		value, _ := lookupEnv(name)
		e.Refused[name], _ = envpolicy.Blocked(name, value)
	}
	slices.Sort(e.Passes)
	if a.json {
		return a.printJSON(e)
	}
	for _, name := range e.Passes {
		a.printf("%s\n", name)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Refused)) {
		a.note("%s would be inherited, but is refused: %s", name, e.Refused[name])
	}
	return nil
}

func (a *app) diagnose(ctx context.Context) diagnosis {
	d := diagnosis{Version: readVersion(), OK: true}
	add := func(c check) { d.Checks = append(d.Checks, c) }
	for _, c := range systemChecks() {
		add(c)
	}
	cfg, err := a.loadConfig()
	if err != nil {
		add(check{"config", statusFail, err.Error(), []string{"correct the file; docs/config.md lists every key, config.schema.json checks it in an editor"}})
	} else {
		add(configCheck(cfg))
		for _, c := range grantChecks(ctx, cfg) {
			add(c)
		}
		for _, c := range rootChecks(cfg) {
			add(c)
		}
	}
	if err == nil {
		for _, c := range pluginChecks(ctx, cfg) {
			add(c)
		}
	}
	c, desc := localCheck(ctx, cfg.Config)
	add(c)
	add(dockerCheck(ctx, cfg.Config))
	for _, c := range daytonaChecks(ctx, cfg.Daytona) {
		add(c)
	}
	d.Local = desc
	for _, c := range d.Checks {
		if c.Status == statusFail {
			d.OK = false
		}
	}
	return d
}

func configCheck(cfg config.Loaded) check {
	if cfg.Path == "" {
		return check{"config", statusOK, "none found; defaults are in force and nothing is granted", nil}
	}
	return check{"config", statusOK, cfg.Path + " (" + cfg.Why + ")", nil}
}

// grantChecks says of each granted pair whether its source is set. An unset
// source is a note: nobody may be using it today.
func grantChecks(ctx context.Context, cfg config.Loaded) []check {
	pairs := map[string]string{}
	for _, k := range cfg.AllowedProcessEnvironmentKeys {
		pairs[k] = k
	}
	maps.Copy(pairs, cfg.ProcessEnvironmentBindings)
	if len(pairs) == 0 {
		return []check{{"grants", statusOK, "nothing is granted", nil}}
	}
	source := grants.ProcessEnvironment()
	var out []check
	for _, dest := range slices.Sorted(maps.Keys(pairs)) {
		src := pairs[dest]
		shown := grants.DisplaySource(src)
		c := check{Name: "grant " + grants.DisplaySource(dest), Status: statusOK, Detail: "from " + shown + ", which is set"}
		set, err := source.Present(ctx, src)
		switch {
		case err != nil:
			c.Status, c.Detail = statusNote, "from "+shown+", which cannot be looked up"
		case !set:
			c.Status, c.Detail = statusNote, "from "+shown+", which is not set"
			c.Fix = []string{"set " + shown + " in sbxhost's environment before a manifest refers to it"}
		}
		out = append(out, c)
	}
	return out
}

func rootChecks(cfg config.Loaded) []check {
	var out []check
	for _, dir := range cfg.HostPathRoots {
		c := check{Name: "hostPathRoots", Status: statusOK, Detail: dir}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			c.Status, c.Detail = statusFail, dir+" is not a directory that can be read"
			c.Fix = []string{"make it, or take it out of hostPathRoots"}
		}
		out = append(out, c)
	}
	return out
}

// localCheck constructs the local provider, which probes for real.
func localCheck(ctx context.Context, c config.Config) (check, *provider.Description) {
	b, err := findProvider(c, "local")
	if err != nil {
		return check{localCheckName, statusFail, err.Error(), nil}, nil
	}
	p, err := b.make(ctx, c, providerFlags{})
	if err != nil {
		return check{localCheckName, statusFail, err.Error(), localFix()}, nil
	}
	d := p.Describe()
	out := check{Name: localCheckName, Status: statusOK, Detail: "isolation: " + d.Isolation}
	if len(d.Transports) > 0 {
		out.Detail += ", transport " + d.Transports[0].String()
	}
	switch d.Isolation {
	case "namespaces":
	case "landlock":
		out.Status, out.Fix = statusNote, localFix()
	default:
		out.Status, out.Fix = statusNote, []string{"take local.unsafe out of the configuration"}
	}
	if r, ok := p.(interface{ Reasons() []string }); ok && len(r.Reasons()) > 0 {
		out.Detail += "; not better because: " + strings.Join(r.Reasons(), "; ")
	}
	return out, &d
}

func localFix() []string {
	if runtime.GOOS != "linux" {
		return []string{"the local provider needs Linux; use a Linux machine or virtual machine"}
	}
	return []string{
		"full isolation needs user namespaces: see the namespaces line",
		"inside a container: give it the right to make namespaces, or accept the landlock level",
	}
}

func (a *app) printDiagnosis(d diagnosis) {
	marks := map[status]string{statusOK: "ok  ", statusNote: "note", statusFail: "FAIL"}
	a.printf("sbxhost %s on %s/%s\n", d.Version.Version, d.Version.OS, d.Version.Arch)
	for _, c := range d.Checks {
		a.printf("%s  %-18s %s\n", marks[c.Status], c.Name, c.Detail)
		if c.Name == localCheckName && d.Local != nil {
			for _, end := range d.Local.OpenEnds {
				a.printf("      %-18s stays open: %s\n", "", end)
			}
		}
		for _, f := range c.Fix {
			a.printf("      %-18s → %s\n", "", f)
		}
	}
	if d.OK {
		a.printf("everything required works\n")
	} else {
		a.printf("something required is broken\n")
	}
}

package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/manifest"
)

// plan is everything a run needs, checked before anything is started.
type plan struct {
	provider  string
	flags     providerFlags
	create    host.CreateRequest
	exec      host.ExecRequest
	uploads   []upload
	keep      bool
	pass      bool // stdin goes to the command
	tty       bool
	command   string // args[0]
	protected []string
}

func (a *app) planRun(cfg config.Loaded, f runFlags, args []string) (*plan, error) {
	if len(args) == 0 {
		return nil, usageError("no command given; put it after --")
	}
	if f.tty && a.json {
		return nil, usageError("--tty and --json exclude each other")
	}
	if f.timeout < 0 {
		return nil, usageError("--timeout must not be negative")
	}
	if f.interactive && f.manifest == "-" {
		return nil, usageError("-i and -f - both want standard input")
	}
	transport, err := parseTransport(f.transport)
	if err != nil {
		return nil, err
	}
	m, secrets, err := a.readManifest(f.manifestFlags)
	if err != nil {
		return nil, err
	}
	extra, err := parsePairs("--grant", f.grants)
	if err != nil {
		return nil, err
	}
	for _, s := range secrets {
		for _, g := range extra {
			if g.Destination == s.Destination && g.Source != s.Source {
				return nil, usageError("--secret and --grant name different sources for %s", grants.DisplaySource(s.Destination))
			}
		}
	}
	activation, err := a.requestSecrets(f.requestNames, f.skills)
	if err != nil {
		return nil, err
	}
	a.maskMessages(append(a.typed(), m.Pairs()...), activation.Env())
	uploads, err := planUploads(f.files)
	if err != nil {
		return nil, err
	}
	name := f.provider
	if name == "" || name == "auto" {
		name = defaultProvider
	}
	if _, err := findProvider(cfg.Config, name); err != nil {
		return nil, err
	}
	p := &plan{
		provider: name,
		flags:    providerFlags{unsafeLocal: f.unsafeLocal},
		create: host.CreateRequest{
			Provider:    name,
			Manifest:    m,
			Transport:   transport,
			SharedTrust: f.sharedTrust || (name == "local" && sharesTrust(cfg.Local)),
		},
		exec: host.ExecRequest{
			Args:    args,
			Dir:     f.workdir,
			Secrets: activation,
			Timeout: f.timeout,
			TTY:     f.tty,
		},
		uploads: uploads,
		keep:    f.keep,
		pass:    f.interactive,
		tty:     f.tty,
		command: args[0],
	}
	if pairs := append(slices.Clone(extra), secrets...); len(pairs) > 0 {
		run := withGrants(cfg.Grants(), pairs)
		p.create.Grants = &run
	}
	for _, pr := range m.Pairs() {
		p.protected = append(p.protected, pr.Destination)
	}
	a.logger.Debug("run", "provider", name, "literals", sortedNames(m), "references", p.protected,
		"request_secrets", activation.Names(), "arguments", len(args))
	return p, nil
}

// sortedNames lists the names of the literals; their values stay out of logs.
func sortedNames(m manifest.Manifest) []string {
	var out []string
	for name := range m.Literals() {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// requestSecrets makes the activation of --request-secret and --skill: declared
// and present in our environment. Missing required ones are an error here, before
// a sandbox is made.
func (a *app) requestSecrets(names, skills []string) (grants.Activation, error) {
	var reqs []grants.Requirement
	add := func(r grants.Requirement) {
		for i, have := range reqs {
			if have.Name == r.Name {
				reqs[i].Optional = have.Optional && r.Optional // required by one is required
				return
			}
		}
		reqs = append(reqs, r)
	}
	for _, n := range names {
		if err := manifest.ValidEnvKey(n); err != nil {
			return grants.Activation{}, usageError("--request-secret: the name must be an identifier")
		}
		if manifest.ReservedDestination(n) {
			return grants.Activation{}, usageError("--request-secret %s: this variable is managed by shells or the loader", n)
		}
		add(grants.Requirement{Name: n})
	}
	for _, file := range skills {
		declared, err := readSkill(file)
		if err != nil {
			return grants.Activation{}, err
		}
		for _, r := range declared {
			add(r)
		}
	}
	if len(reqs) == 0 {
		return grants.Activation{}, nil
	}
	values := map[string]string{}
	for _, r := range reqs {
		if v, ok := lookupEnv(r.Name); ok {
			values[r.Name] = v
		}
	}
	act := grants.Activate(reqs, grants.NewCarrier(values))
	if missing := act.Missing(); len(missing) > 0 {
		return grants.Activation{}, &exitError{code: exitFailed, err: errors.New("required request secrets are not set in sbxhost's own environment: " + strings.Join(missing, ", "))}
	}
	return act, nil
}

// sharesTrust reports whether the operator chose not to stop left-overs.
func sharesTrust(c config.Local) bool { return c.KillLeftovers != nil && !*c.KillLeftovers }

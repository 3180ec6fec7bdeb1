package provider

import (
	"fmt"
	"slices"
	"strings"
)

// ValidateDescription checks that d is complete and does not contradict itself.
// A host refuses a provider whose description fails. The error is an
// InvalidArgument that lists every fault.
func ValidateDescription(d Description) error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }

	if d.Name == "" || strings.ContainsFunc(d.Name, isControl) {
		fault("name must be non-empty and printable")
	}
	rank := -1
	for i, t := range d.Transports {
		r := slices.Index([]Transport{TransportExec, TransportCreate}, t.Transport)
		switch {
		case r < 0:
			fault("transports[%d]: unknown transport; use %q or %q", i, TransportExec, TransportCreate)
		case r < rank:
			fault("transports[%d]: transports must go from least (exec) to most exposing (create)", i)
		case i > 0 && slices.Contains(d.Transports[:i], t):
			fault("transports[%d]: listed twice", i)
		}
		if r > rank {
			rank = r
		}
		if strings.ContainsFunc(t.Detail, isControl) || strings.Contains(t.Detail, "/") {
			fault("transports[%d]: detail must be one printable word without a slash", i)
		}
	}
	for i, n := range d.RefusedDestinations {
		if !ValidEnvKey(n) {
			fault("refusedDestinations[%d]: not an environment key", i)
		}
	}
	if !slices.Contains([]StdinMode{StdinNone, StdinUpfront, StdinLive}, d.Exec.Stdin) {
		fault("exec.stdin must be none, upfront or live")
	}
	if !slices.Contains([]StderrMode{StderrSeparate, StderrMerged}, d.Exec.Stderr) {
		fault("exec.stderr must be separate or merged")
	}
	if !slices.Contains([]KillMode{KillTree, KillGroup, KillProcess, KillNone}, d.Exec.Kill) {
		fault("exec.kill must be tree, group, process or none")
	}
	if d.Exec.MaxTimeout < 0 {
		fault("exec.maxTimeout must not be negative")
	}
	if d.Exec.TTY && d.Exec.Stdin != StdinLive {
		fault("exec.tty needs exec.stdin live: a terminal without input is none")
	}
	for _, f := range d.Features.all() {
		if !slices.Contains([]Support{SupportNone, SupportEnforced, SupportUnenforced}, f.support) {
			fault("features.%s must be empty, enforced or unenforced", f.name)
		}
	}
	if d.Features.SharedWorkspace && d.Features.WorkspaceMove == SupportNone {
		fault("features.sharedWorkspace needs features.workspaceMove")
	}
	switch d.DefaultNetwork {
	case "none":
		if d.Features.NetworkNone == SupportNone {
			fault("defaultNetwork is none, but features.networkNone is not supported")
		}
	case "default":
		if d.Features.NetworkDefault == SupportNone {
			fault("defaultNetwork is default, but features.networkDefault is not supported")
		}
	default:
		fault("defaultNetwork must be none or default")
	}
	if len(faults) > 0 {
		return &Error{Code: InvalidArgument, Op: "describe", Applied: AppliedNo,
			Message: strings.Join(faults, "; "), Remedy: "correct what Describe returns"}
	}
	return nil
}

type feature struct {
	name    string
	support Support
}

func (f Features) all() []feature {
	return []feature{{"image", f.Image}, {"user", f.User}, {"networkNone", f.NetworkNone},
		{"networkDefault", f.NetworkDefault}, {"pathGrants", f.PathGrants}, {"ports", f.Ports},
		{"startImage", f.StartImage}, {"cpus", f.CPUs}, {"memoryMiB", f.MemoryMiB}, {"pids", f.PIDs},
		{"diskMiB", f.DiskMiB}, {"ttl", f.TTL}, {"workspaceMove", f.WorkspaceMove}}
}

// Offers reports whether d lists t. TransportNone is never offered.
func (d Description) Offers(t Transport) bool {
	return t != TransportNone &&
		slices.ContainsFunc(d.Transports, func(i TransportInfo) bool { return i.Transport == t })
}

// CheckCreate returns Unsupported, listing every wish, when req asks for what d
// says this provider cannot honour. It does not repeat what ValidateCreate
// checks. Hosts call it before the provider is touched; providers may.
func CheckCreate(d Description, req CreateRequest) error {
	f, missing := d.Features, []string(nil)
	want := func(asked bool, s Support, what string) {
		if asked && s == SupportNone {
			missing = append(missing, what)
		}
	}
	want(req.Image != "", f.Image, "image")
	want(req.User != "", f.User, "user")
	want(req.Network == "none", f.NetworkNone, "network: none")
	want(req.Network == "default", f.NetworkDefault, "network: default")
	want(len(req.Mounts) > 0, f.PathGrants, "pathGrants")
	want(len(req.Ports) > 0, f.Ports, "ports")
	want(req.Start == "image", f.StartImage, "start: image")
	want(req.Resources.CPUs > 0, f.CPUs, "resources.cpus")
	want(req.Resources.MemoryMiB > 0, f.MemoryMiB, "resources.memoryMiB")
	want(req.Resources.PIDs > 0, f.PIDs, "resources.pids")
	want(req.Resources.DiskMiB > 0, f.DiskMiB, "resources.diskMiB")
	if req.Transport != TransportNone && !d.Offers(req.Transport) {
		missing = append(missing, "protected values by the "+string(req.Transport)+" transport")
	}
	return unsupported(d, "create", missing)
}

// CheckExec returns Unsupported, listing every wish, when req asks for what d
// says this provider cannot do. Hosts call it before the provider is touched;
// providers may.
func CheckExec(d Description, req ExecRequest) error {
	var missing []string
	c := d.Exec
	switch req.Stdin {
	case StdinLive:
		if c.Stdin != StdinLive {
			missing = append(missing, "input while the command runs")
		}
	case StdinUpfront:
		if c.Stdin == StdinNone {
			missing = append(missing, "standard input")
		}
	}
	if req.TTY && !c.TTY {
		missing = append(missing, "a terminal")
	}
	if c.MaxTimeout > 0 && req.Timeout > c.MaxTimeout {
		missing = append(missing, "a timeout above "+c.MaxTimeout.String())
	}
	if req.Protected.Len() > 0 && !d.Offers(TransportExec) {
		missing = append(missing, "protected values by the exec transport")
	}
	return unsupported(d, "exec", missing)
}

func unsupported(d Description, op string, missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	remedy := "leave it out, or use a provider that can"
	for _, m := range missing {
		if r, ok := d.Remedies[m]; ok {
			remedy = r + "; or " + remedy
		}
	}
	return &Error{Code: Unsupported, Op: op, Provider: d.Name, Applied: AppliedNo,
		Message: "this provider cannot give " + strings.Join(missing, ", "),
		Remedy:  remedy}
}

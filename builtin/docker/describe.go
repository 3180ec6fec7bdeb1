package docker

import (
	"slices"
	"strings"

	"github.com/sbxhost/sbxhost/provider"
)

func (p *Provider) description() provider.Description {
	d := provider.Description{
		Name: providerName, Version: p.version, Isolation: "container",
		Transports: []provider.TransportInfo{
			{Transport: provider.TransportExec, Detail: "supervisor",
				Exposure: "processes of the same user in the sandbox while the command runs; nothing of the engine's"},
			{Transport: provider.TransportCreate,
				Exposure: "whoever can use the engine's API or read its files, where it may outlive the sandbox; the image's own command"},
		},
		Exec: provider.ExecCapabilities{
			Stream: true, Stdin: provider.StdinLive, TTY: true, Stderr: provider.StderrSeparate,
			Kill: provider.KillTree, PartialOnTimeout: true, BackgroundSafe: true,
		},
		Features: provider.Features{
			Image: provider.SupportEnforced, User: provider.SupportEnforced,
			NetworkNone: provider.SupportEnforced, NetworkDefault: provider.SupportEnforced,
			Ports: provider.SupportEnforced, StartImage: provider.SupportEnforced,
			CPUs: provider.SupportEnforced, MemoryMiB: provider.SupportEnforced, PIDs: provider.SupportEnforced,
			DiskMiB: provider.SupportUnenforced, WorkspaceMove: provider.SupportEnforced, SharedWorkspace: true,
		},
		DefaultNetwork: "default", Survives: true,
		OpenEnds: []string{
			"the kernel is shared with the engine's machine",
			"whoever can use the engine's API is root in every sandbox",
			"commands of one user that run at the same time in one sandbox can read each other's environment",
			"with network: default the engine's machine can be reached at the network's gateway, and whatever it lets containers reach, such as a cloud's metadata service",
			"what the image leaves in the sandbox outside the root is not limited in size",
		},
	}
	// An engine that cannot limit something accepts the wish and drops it.
	const noLimit = "the engine cannot limit this: give it control groups (a rootless engine needs systemd and cgroup v2)"
	remedies := map[string]string{}
	for _, l := range []struct {
		can     bool
		feature *provider.Support
		wish    string
	}{
		{p.info.MemoryLimit, &d.Features.MemoryMiB, "resources.memoryMiB"},
		{p.info.CPUCfsQuota, &d.Features.CPUs, "resources.cpus"},
		{p.info.PidsLimit, &d.Features.PIDs, "resources.pids"},
	} {
		if !l.can {
			*l.feature, remedies[l.wish] = provider.SupportNone, noLimit
		}
	}
	if !p.info.PidsLimit {
		d.OpenEnds = append(d.OpenEnds, "the engine does not limit the number of processes")
	}
	if p.info.MemoryLimit && !p.info.SwapLimit {
		d.OpenEnds = append(d.OpenEnds, "the engine limits memory and not swap")
	}
	if !slices.ContainsFunc(p.info.SecurityOptions, func(o string) bool { return strings.HasPrefix(o, "name=seccomp") && !strings.Contains(o, "unconfined") }) {
		d.OpenEnds = append(d.OpenEnds, "the engine does not filter system calls (seccomp)")
	}
	if p.local {
		d.Features.PathGrants = provider.SupportEnforced
	} else {
		remedies["pathGrants"] = "use an engine on this machine: host paths mean nothing to one elsewhere"
	}
	if len(remedies) > 0 {
		d.Remedies = remedies
	}
	if p.shim == nil {
		d.Transports[0] = provider.TransportInfo{Transport: provider.TransportExec, Detail: "engine-env",
			Exposure: "processes of the same user in the sandbox; the engine, and for a moment a file of its runtime"}
		d.Exec.TTY, d.Exec.Kill, d.Exec.BackgroundSafe = false, provider.KillProcess, false
		d.Features.StartImage = provider.SupportNone
		d.OpenEnds = append(d.OpenEnds, "without a supervisor commands are killed by a shell of the image, found by their environment: what hides from that goes on until the sandbox is destroyed",
			"without a supervisor the root belongs to root, and files are not reached but by commands")
	}
	return d
}

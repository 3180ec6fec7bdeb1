package local

import (
	"github.com/sbxhost/sbxhost/provider"
)

func (p *Provider) description() provider.Description {
	d := provider.Description{
		Name: "local", Isolation: string(p.level),
		Transports: []provider.TransportInfo{{
			Transport: provider.TransportExec, Detail: "supervisor",
			Exposure: "the command itself, and processes started by the same exec",
		}},
		Exec: provider.ExecCapabilities{
			Stream: true, Stdin: provider.StdinLive, TTY: true, Stderr: provider.StderrSeparate,
			Kill: provider.KillTree, PartialOnTimeout: true, BackgroundSafe: true,
		},
		Features: provider.Features{
			Image: provider.SupportUnenforced, DiskMiB: provider.SupportUnenforced,
			MemoryMiB: provider.SupportUnenforced, PIDs: provider.SupportEnforced,
			NetworkNone: provider.SupportEnforced, TTL: provider.SupportEnforced,
			WorkspaceMove: provider.SupportEnforced,
		},
		DefaultNetwork: "none",
	}
	if p.opts.AllowNetwork {
		d.Features.NetworkDefault = provider.SupportEnforced
	} else {
		d.Remedies = map[string]string{"network: default": "set " + Setting + ": true in the host's configuration"}
	}
	if p.cgroups != nil && p.level == LevelNamespaces {
		d.Features.MemoryMiB, d.Features.CPUs = provider.SupportEnforced, provider.SupportEnforced
	}
	switch p.level {
	case LevelNamespaces:
		d.Features.PathGrants = provider.SupportEnforced
		d.IsolatesExecs = p.abi > 0
		d.OpenEnds = []string{
			"the kernel is shared with the host",
			"/usr and its like can be read, and kernel information in /proc such as memory size and load",
		}
		if p.abi == 0 {
			d.OpenEnds = append(d.OpenEnds, "this kernel has no Landlock: execs of one sandbox can read each other's environment")
		}
	case LevelLandlock:
		d.IsolatesExecs = true
		if !p.root {
			d.Features.PIDs = provider.SupportUnenforced
		}
		d.OpenEnds = []string{
			"the kernel is shared with the host",
			"the list of the host's processes, their arguments and the number of their open files can be read, their environment cannot",
			"names, sizes, owners and times of the host's files can be seen, and their directories entered and watched; contents cannot be read",
			"files of the host that the sandbox's user owns, or that everybody may write, can have their mode, times and attributes changed, though not their contents",
			"the host's network interfaces and sockets are listed in /proc/net",
			"/usr and its like, and parts of /etc, can be read",
			"the workspace is at its host path, not at the manifest's root; HOME and PWD name it",
			"without a process namespace, what is left running when the host process is killed with SIGKILL is ended by its supervisor, not by the kernel",
			"commands cannot use Unix sockets, System V IPC or new terminals, nor signal processes of other execs",
		}
		if p.opts.AllowNetwork {
			d.OpenEnds = append(d.OpenEnds, "network: default is the host's network, its loopback services included")
		}
	case LevelNone:
		d.OpenEnds = []string{"everything: commands can do what the user of the host process can"}
		d.Features.NetworkNone = provider.SupportNone
		d.Features.NetworkDefault = provider.SupportEnforced
		d.Features.PIDs = provider.SupportUnenforced
		d.DefaultNetwork = "default"
	}
	if p.level == LevelNamespaces && p.opts.AllowNetwork {
		d.OpenEnds = append(d.OpenEnds, "network: default is the host's network, its loopback services included")
	}
	return d
}

package plugin

import (
	"slices"

	"github.com/sbxhost/sbxhost/provider"
)

// unenforced lists the wishes of a request that the plugin accepts and does not
// enforce.
func unenforced(f provider.Features, q provider.CreateRequest) []string {
	var out []string
	for _, w := range []struct {
		asked   bool
		support provider.Support
		name    string
	}{
		{q.Image != "", f.Image, "image"},
		{q.User != "", f.User, "user"},
		{q.Network == "none", f.NetworkNone, "network"},
		{q.Network == "default", f.NetworkDefault, "network"},
		{len(q.Ports) > 0, f.Ports, "ports"},
		{q.Resources.CPUs > 0, f.CPUs, "resources.cpus"},
		{q.Resources.MemoryMiB > 0, f.MemoryMiB, "resources.memoryMiB"},
		{q.Resources.DiskMiB > 0, f.DiskMiB, "resources.diskMiB"},
		{q.TTL > 0, f.TTL, "lifetime.ttl"},
	} {
		if w.asked && w.support == provider.SupportUnenforced {
			out = append(out, w.name)
		}
	}
	return out
}

// signals are the names that can be asked for; which of them a vendor knows is
// the plugin's to say.
var signals = []string{"HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
	"CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "SYS"}

func knownSignal(name string) bool { return slices.Contains(signals, name) }
